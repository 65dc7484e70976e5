"""The process runtime with real processes."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from farflung.edge.runtimes.base import Address, ContainerSpec, ImageError, Mount, StartError
from farflung.edge.runtimes.process import ProcessRuntime

SHELL = ContainerSpec("uid-1", "default", "one", "main", 0, "busybox")


def now() -> datetime:
    return datetime(2026, 11, 16, 6, 30, tzinfo=UTC)


def make(directory: Path, *, commands: bool = True, search: str = "/nowhere") -> ProcessRuntime:
    return ProcessRuntime(directory / "containers", now, commands=commands, search=search)


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[ProcessRuntime]:
    made = make(tmp_path)
    yield made
    await made.close()


def text_of(log: Path) -> str:
    """The current content; the file is created with its first line."""
    return log.read_text() if log.exists() else ""


async def until(true: Callable[[], bool | Awaitable[bool]], seconds: float = 60) -> None:
    async with asyncio.timeout(seconds):
        while True:
            answer = true()
            if await answer if isinstance(answer, Awaitable) else answer:
                return
            await asyncio.sleep(0.01)


def shell(tmp_path: Path, script: str, **more: object) -> ContainerSpec:
    log = tmp_path / "0.log"
    return replace(SHELL, command=("/bin/sh", "-c"), arguments=(script,), log=log, **more)  # type: ignore[arg-type]


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


async def fetch(address: Address, path: str = "/") -> tuple[int, bytes]:
    def get() -> tuple[int, bytes]:
        try:
            with urlopen(f"http://{address.host}:{address.port}{path}", timeout=60) as answer:
                return answer.status, answer.read()
        except HTTPError as error:
            with error:
                return error.code, error.read()

    return await asyncio.to_thread(get)


# --- commands -------------------------------------------------------------------------------------


async def test_a_command_runs_with_the_environment_of_the_pod_and_nothing_of_ours(
    runtime: ProcessRuntime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_OF_OURS", "x")
    started = await runtime.start(shell(tmp_path, "env; echo oops >&2; exit 3", environment={"GREETING": "hello"}))
    finished = await runtime.wait(started.id)
    assert (finished.exit_code, finished.reason) == (3, "Error")
    lines = (tmp_path / "0.log").read_text().splitlines()
    assert "2026-11-16T06:30:00.000000000Z stdout F GREETING=hello" in lines
    assert "2026-11-16T06:30:00.000000000Z stdout F HOSTNAME=one" in lines
    assert "2026-11-16T06:30:00.000000000Z stderr F oops" in lines
    assert not any("SECRET_OF_OURS" in line for line in lines)
    assert "without isolation" in started.stand_in


async def test_mounts_are_links_below_the_working_directory(runtime: ProcessRuntime, tmp_path: Path) -> None:
    (tmp_path / "volume").mkdir()
    (tmp_path / "volume" / "key").write_text("value\n")
    mounts = (Mount(tmp_path / "volume", "/etc/settings"), Mount(tmp_path / "volume" / "key", "/opt/one.txt"))
    started = await runtime.start(shell(tmp_path, "cat etc/settings/key opt/one.txt", mounts=mounts))
    assert (await runtime.wait(started.id)).exit_code == 0
    assert (tmp_path / "0.log").read_text().count(" F value") == 2


async def test_a_mount_never_leaves_the_root_of_its_container(runtime: ProcessRuntime, tmp_path: Path) -> None:
    mounts = (Mount(tmp_path, "/../../../../../../outside"),)
    started = await runtime.start(shell(tmp_path, "ls", mounts=mounts))
    await runtime.wait(started.id)
    assert " F outside" in (tmp_path / "0.log").read_text()
    assert not Path("/outside").exists()


@pytest.mark.parametrize("targets", [("/a", "/a/b"), ("/a", "/a"), ("/",)])
async def test_mounts_that_links_cannot_make_are_refused(
    runtime: ProcessRuntime, tmp_path: Path, targets: tuple[str, ...]
) -> None:
    mounts = tuple(Mount(tmp_path, target) for target in targets)
    with pytest.raises(StartError, match="requires podman"):
        await runtime.start(shell(tmp_path, "true", mounts=mounts))


async def test_a_missing_command_ends_with_127_and_a_message(runtime: ProcessRuntime, tmp_path: Path) -> None:
    started = await runtime.start(replace(SHELL, command=("nothing-like-this",), log=tmp_path / "0.log"))
    assert (await runtime.wait(started.id)).exit_code == 127
    assert "nothing-like-this: No such file or directory" in (tmp_path / "0.log").read_text()


async def test_stopping_sends_sigterm_first_and_then_kills(runtime: ProcessRuntime, tmp_path: Path) -> None:
    polite = await runtime.start(shell(tmp_path, "trap 'exit 5' TERM; echo up; while :; do sleep 0.01; done"))
    await until(lambda: "up" in _text(tmp_path / "0.log"))
    await runtime.stop(polite.id, 10)
    assert (await runtime.wait(polite.id)).exit_code == 5
    deaf = shell(tmp_path, "trap '' TERM; echo deaf; while :; do sleep 0.01; done", name="deaf")
    started = await runtime.start(deaf)
    await until(lambda: "deaf" in _text(tmp_path / "0.log"))
    await runtime.stop(started.id, 0.1)
    assert (await runtime.wait(started.id)).exit_code == 137
    await runtime.stop(started.id, 10)


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


async def test_descendants_in_other_sessions_end_with_the_command(runtime: ProcessRuntime, tmp_path: Path) -> None:
    started = await runtime.start(shell(tmp_path, "setsid sh -c 'setsid sleep 1000 & echo $!; wait' & sleep 0.2"))
    assert (await runtime.wait(started.id)).exit_code == 0
    pid = int(_text(tmp_path / "0.log").split()[-1])
    await until(lambda: not alive(pid))


async def test_a_probe_runs_beside_its_container_and_has_its_environment(
    runtime: ProcessRuntime, tmp_path: Path
) -> None:
    started = await runtime.start(shell(tmp_path, "sleep 1000", environment={"A": "b"}))
    assert await runtime.execute(started.id, ["sh", "-c", "echo $A; exit 4"], 10) == (4, b"b\n")
    assert len((await runtime.execute(started.id, ["sh", "-c", "head -c 100000 /dev/zero"], 10))[1]) == 10240
    with pytest.raises(TimeoutError):
        await runtime.execute(started.id, ["sleep", "1000"], 0.1)
    await runtime.stop(started.id, 0)
    assert (await runtime.execute(started.id, ["true"], 10))[0] == 126


async def test_a_removed_container_leaves_no_directory(runtime: ProcessRuntime, tmp_path: Path) -> None:
    started = await runtime.start(shell(tmp_path, "sleep 1000"))
    assert list((tmp_path / "containers").iterdir())
    await runtime.remove(started.id)
    assert not list((tmp_path / "containers").iterdir())
    assert (await runtime.wait(started.id)).reason == "ContainerStatusUnknown"


async def test_a_container_that_fails_to_start_leaves_no_directory(runtime: ProcessRuntime, tmp_path: Path) -> None:
    mounts = (Mount(tmp_path, "/a"), Mount(tmp_path, "/a/b"))
    with pytest.raises(StartError):
        await runtime.start(shell(tmp_path, "true", mounts=mounts))
    assert not list((tmp_path / "containers").iterdir())


@pytest.mark.parametrize("more", [{"working_directory": "/usr/local/apache2/work"}, {}])
async def test_no_directory_is_created_in_a_read_only_mount(
    runtime: ProcessRuntime, tmp_path: Path, more: dict[str, str]
) -> None:
    (tmp_path / "volume").mkdir()
    mounts = (Mount(tmp_path / "volume", "/usr/local/apache2", read_only=True),)
    with pytest.raises(StartError, match="does not exist, and the mount is read-only"):
        await runtime.start(httpd(tmp_path, mounts=mounts, **more))
    assert not list((tmp_path / "volume").iterdir())


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "image, reason, said",
    [
        ("postgres:16", "ErrImagePull", "the process runtime supports httpd, nginx and pause; the podman"),
        ("example.org/somebody/httpd", "ErrImagePull", "the podman runtime runs all images"),
        ("busybox:1.36", "ErrImagePull", "--allow-local-commands"),
        ("Upper/Case", "InvalidImageName", "invalid reference format"),
    ],
)  # fmt: skip
async def test_an_image_that_nothing_stands_in_for_is_refused(
    tmp_path: Path, image: str, reason: str, said: str
) -> None:
    runtime = make(tmp_path, commands=False)
    with pytest.raises(ImageError) as refused:
        await runtime.pull(image, "Always")
    assert refused.value.reason == reason
    assert said in str(refused.value)


async def test_without_the_flag_no_command_of_a_pod_runs_whatever_its_image(tmp_path: Path) -> None:
    runtime = make(tmp_path, commands=False)
    hidden = replace(SHELL, image="httpd", command=("/bin/sh", "-c", f"touch {tmp_path}/made"))
    with pytest.raises(ImageError, match="--allow-local-commands"):
        await runtime.start(hidden)
    started = await runtime.start(replace(SHELL, image="registry.k8s.io/pause:3.9"))
    code, said = await runtime.execute(started.id, ["touch", f"{tmp_path}/made"], 10)
    assert code == 126
    assert b"--allow-local-commands" in said
    assert not (tmp_path / "made").exists()
    await runtime.close()


# --- web servers ----------------------------------------------------------------------------------


def httpd(tmp_path: Path, **more: object) -> ContainerSpec:
    return replace(SHELL, image="library/httpd:2.4", log=tmp_path / "web.log", ports=(80,), **more)  # type: ignore[arg-type]


async def test_the_file_server_stands_in_for_httpd_and_reports_it(runtime: ProcessRuntime, tmp_path: Path) -> None:
    site = tmp_path / "site"
    (site / "..one").mkdir(parents=True)
    (site / "..one" / "index.html").write_text("first")
    (site / "..data").symlink_to("..one")
    (site / "index.html").symlink_to("..data/index.html")
    started = await runtime.start(httpd(tmp_path, mounts=(Mount(site, "/usr/local/apache2/htdocs", True),)))
    assert started.stand_in == "library/httpd:2.4 is not run: a small web server of Farflung stands in for it"
    address = started.addresses[80]
    assert address.host == "127.0.0.1"
    assert await fetch(address) == (200, b"first")
    (site / "..two").mkdir()
    (site / "..two" / "index.html").write_text("second")
    (site / "..new").symlink_to("..two")
    (site / "..new").replace(site / "..data")
    assert await fetch(address) == (200, b"second")
    await until(lambda: "stdout F 127.0.0.1 - - " in text_of(tmp_path / "web.log"))
    await runtime.stop(started.id, 10)
    assert (await runtime.wait(started.id)).exit_code == 0
    with pytest.raises(OSError):
        await fetch(address)


async def test_our_own_web_server_shows_nothing_outside_of_its_documents(
    runtime: ProcessRuntime, tmp_path: Path
) -> None:
    site = tmp_path / "site"
    site.mkdir()
    (tmp_path / "private").write_text("secret")
    (site / "link").symlink_to(tmp_path / "private")
    (site / "loop").symlink_to("loop")
    started = await runtime.start(httpd(tmp_path, mounts=(Mount(site, "/usr/local/apache2/htdocs"),)))
    for path in (
        "/link",
        "/../private",
        "/%2e%2e/private",
        "/..%2fprivate",
        "//etc/passwd",
        "/loop",
        "/%00",
        "/..data",
    ):
        status, body = await fetch(started.addresses[80], path)
        assert status in (400, 403, 404), path
        assert b"secret" not in body
    assert (await fetch(started.addresses[80]))[0] == 403


async def test_a_web_server_without_documents_greets(runtime: ProcessRuntime, tmp_path: Path) -> None:
    started = await runtime.start(replace(httpd(tmp_path), image="docker.io/library/nginx", ports=(80, 8080)))
    for port in (80, 8080):
        status, body = await fetch(started.addresses[port])
        assert status == 200
        assert b"It works!" in body


async def test_stand_ins_do_not_get_variables_of_the_pod(runtime: ProcessRuntime, tmp_path: Path) -> None:
    hostile = {"LD_PRELOAD": "/evil.so", "PYTHONPATH": "/evil", "PYTHONINSPECT": "1"}
    started = await runtime.start(httpd(tmp_path, environment=hostile))
    assert (await fetch(started.addresses[80]))[0] == 200
    await until(lambda: "127.0.0.1 - - " in text_of(tmp_path / "web.log"))
    assert "evil" not in text_of(tmp_path / "web.log")


FAKE = """#!/bin/sh
# a web server that does not come up
echo cannot >&2; exit 1
"""


async def test_a_web_server_of_the_machine_that_does_not_come_up_is_replaced_by_ours(tmp_path: Path) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "nginx").write_text(FAKE)
    (programs / "nginx").chmod(0o755)
    runtime = make(tmp_path, search=str(programs))
    started = await runtime.start(replace(httpd(tmp_path), image="nginx"))
    assert "of Farflung stands in" in started.stand_in
    assert (await fetch(started.addresses[80]))[0] == 200
    await runtime.close()


# --- nothing is left behind -----------------------------------------------------------------------

EDGE = """
import asyncio, sys
from datetime import datetime, UTC
from pathlib import Path
from farflung.edge.runtimes.base import ContainerSpec
from farflung.edge.runtimes.process import ProcessRuntime

async def main():
    runtime = ProcessRuntime(Path(sys.argv[1]) / "containers", lambda: datetime.now(UTC), commands=True)
    script = "trap '' TERM HUP; setsid sh -c 'trap \\"\\" TERM; sleep 1000 & echo $! $$; wait' & echo $$; wait"
    log = Path(sys.argv[1]) / "0.log"
    await runtime.start(ContainerSpec("u", "default", "p", "c", 0, "busybox", ("sh", "-c", script), log=log))
    web = await runtime.start(ContainerSpec("u", "default", "p", "web", 0, "httpd"))
    print("started", flush=True)
    await asyncio.sleep(1000)

asyncio.run(main())
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
async def test_everything_ends_when_the_edge_is_killed(tmp_path: Path, how: signal.Signals) -> None:
    edge = await asyncio.create_subprocess_exec(
        sys.executable, "-c", EDGE, str(tmp_path), stdout=asyncio.subprocess.PIPE
    )
    assert edge.stdout is not None
    assert await edge.stdout.readline() == b"started\n"
    await until(lambda: len(_printed(tmp_path / "0.log")) == 3)
    children = [*_printed(tmp_path / "0.log"), *_descendants(edge.pid)]
    assert len(children) >= 6
    edge.send_signal(how)
    await edge.wait()
    await until(lambda: not any(map(alive, children)))


def _printed(log: Path) -> list[int]:
    return [int(word) for line in _text(log).splitlines() for word in line.split()[3:]]


def _descendants(pid: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            if parent == pid:
                found += [int(entry.name), *_descendants(int(entry.name))]
    return found
