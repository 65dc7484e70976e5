"""Real containers; CONTRIBUTING.md has the requirements."""

import asyncio
import os
import signal
import sys
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

import pytest
from podman_machine import build, podman, settle

from farflung.edge.logs import LogFilter
from farflung.edge.runtimes.base import ContainerExit, ContainerSpec, ImageError, Mount, StartedContainer, StartError
from farflung.edge.runtimes.podman import Podman
from farflung.edge.runtimes.podman_arguments import InstanceIdentity
from farflung.edge.runtimes.selection import find_podman, remove_containers
from farflung.lib.klog import Logger

pytestmark = pytest.mark.long

IMAGE = f"localhost/farflung-tests:{os.getpid()}"
CHOWN = 1
USUAL = 0xA80425FB  #: what containerd gives to containers, as bits of linux/capability.h


class Start(Protocol):
    def __call__(self, script: str | None = None, **changes: object) -> Awaitable[StartedContainer]: ...


def now() -> datetime:
    return datetime.now(UTC)


@pytest.fixture(scope="session")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    directory = tmp_path_factory.mktemp("podman")
    settle(directory)
    build(IMAGE, directory)
    yield IMAGE
    podman("rmi", "--force", IMAGE)


@pytest.fixture
async def runtime(image: str, tmp_path: Path) -> AsyncIterator[Podman]:
    runtime = await opened(tmp_path, "life")
    yield runtime
    await runtime.close()


@pytest.fixture
def start(runtime: Podman, image: str, tmp_path: Path) -> Start:
    return starter(runtime, image, tmp_path)


def starter(runtime: Podman, image: str, directory: Path) -> Start:
    attempts = iter(range(1000))

    def start(script: str | None = None, **changes: object) -> Awaitable[StartedContainer]:
        attempt = next(attempts)
        settings: dict[str, object] = {
            "pod_uid": "1f2e",
            "namespace": "shop",
            "pod": "web-abc",
            "name": "main",
            "attempt": attempt,
            "image": image,
            "command": None if script is None else ("/bin/sh", "-c", script),
            "log": directory / "logs" / f"{attempt}.log",
        }
        return runtime.start(ContainerSpec(**(settings | changes)))  # type: ignore[arg-type]

    return start


async def opened(directory: Path, instance: str) -> Podman:
    found = await find_podman(directory)
    return await Podman.open(found.program, found.version, directory, instance, now, Logger(sys.stderr))


def all_of(directory: Path) -> list[str]:
    return podman("ps", "--all", "--quiet", f"--filter={InstanceIdentity.of(directory, '').edge_filter}").split()


def logged(directory: Path, attempt: int = 0) -> str:
    cut = LogFilter(datetime(2000, 1, 1, tzinfo=UTC), None, timestamps=False)
    return (cut.feed((directory / "logs" / f"{attempt}.log").read_bytes()) + cut.end()).decode()


async def fetched(url: str) -> bytes:
    def fetch() -> bytes:
        with urllib.request.urlopen(url, timeout=60) as response:
            body: bytes = response.read()
            return body

    return await asyncio.to_thread(fetch)


async def eventually(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.05)


async def printed(runtime: Podman, started: StartedContainer, directory: Path, attempt: int = 0) -> str:
    async with asyncio.timeout(60):
        await runtime.wait(started.id)
    return logged(directory, attempt)


# --- images -----------------------------------------------------------------------------------------------------------


async def test_a_present_image_is_pulled_only_with_always(runtime: Podman, image: str) -> None:
    await runtime.pull(image, "IfNotPresent")
    await runtime.pull(image, "Never")
    with pytest.raises(ImageError) as refused:
        await runtime.pull(image, "Always")
    assert refused.value.reason == "ErrImagePull"


async def test_a_failed_pull_reports_the_error(runtime: Podman) -> None:
    with pytest.raises(ImageError, match="connection refused") as refused:
        await runtime.pull("127.0.0.1:1/nothing:1", "IfNotPresent")
    assert refused.value.reason == "ErrImagePull"
    with pytest.raises(ImageError) as never:
        await runtime.pull("127.0.0.1:1/nothing:1", "Never")
    assert never.value.reason == "ErrImageNeverPull"
    with pytest.raises(ImageError) as invalid:
        await runtime.pull("Nothing", "IfNotPresent")
    assert invalid.value.reason == "InvalidImageName"


# --- what runs --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "arguments", "output"),
    [
        (None, None, "entry command\n"),
        (None, ("--help", "me"), "entry --help me\n"),
        (("/bin/echo", "own"), None, "own\n"),
        (("/bin/echo", "own"), ("words",), "own words\n"),
    ],
)
async def test_command_and_arguments_work_as_in_kubernetes(
    runtime: Podman,
    start: Start,
    tmp_path: Path,
    command: tuple[str, ...] | None,
    arguments: tuple[str, ...] | None,
    output: str,
) -> None:
    assert await printed(runtime, await start(command=command, arguments=arguments), tmp_path) == output


async def test_a_web_server_serves_a_read_only_mount(runtime: Podman, start: Start, image: str, tmp_path: Path) -> None:
    page = tmp_path / "page"
    page.mkdir()
    (page / "index.html").write_text("hello")
    started = await start(
        "exec /bin/httpd -f -p 80 -h /page", mounts=(Mount(page, "/page", read_only=True),), ports=(80, 81)
    )
    assert started.addresses.keys() == {80, 81}
    assert started.image_id.startswith("localhost/farflung-tests@sha256:")
    address = started.addresses[80]
    assert address.host == "127.0.0.1"
    assert await fetched(f"http://{address.host}:{address.port}/") == b"hello"
    (page / "index.html").write_text("hello again")
    assert await fetched(f"http://{address.host}:{address.port}/") == b"hello again"
    code, output = await runtime.execute(started.id, ["/bin/touch", "/page/x"], 20)
    assert code == 1
    assert b"Read-only file system" in output


async def test_a_writable_mount_is_written_to_this_machine(runtime: Podman, start: Start, tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    started = await start("echo written > /scratch/file", mounts=(Mount(scratch, "/scratch"),))
    assert (await runtime.wait(started.id)).exit_code == 0
    assert (scratch / "file").read_text() == "written\n"


async def test_variables_arrive_as_they_are(runtime: Podman, start: Start, tmp_path: Path) -> None:
    environment = {
        "EMPTY": "",
        "PLAIN": "a b=c",
        "PATH": "/bin:/odd",
        "LINES": "one\n two\n",
        "JSON": '{"a": ["b", "$c"], "d": \'e\'}',
        "LONG": "x" * 70_000,
        "LD_PRELOAD": "/nowhere.so # not for podman",
        "ACCENT": "é ",
    }
    started = await start("exec /bin/cat /proc/self/environ", environment=environment)
    output = await printed(runtime, started, tmp_path)
    found = dict(variable.split("=", 1) for variable in output.split("\0") if "=" in variable)
    assert {name: found.get(name) for name in environment} == environment
    assert found["FROM_IMAGE"] == "yes"
    assert found["HOSTNAME"] == "web-abc"
    await runtime.remove(started.id)
    assert InstanceIdentity.of(tmp_path, "").edge_prefix not in podman("secret", "ls")


async def test_user_and_working_directory_are_those_of_the_pod(runtime: Podman, start: Start, tmp_path: Path) -> None:
    started = await start("/bin/id -u; /bin/pwd", user=1234, working_directory="/srv")
    assert await printed(runtime, started, tmp_path) == "1234\n/srv\n"


async def test_it_gets_no_more_rights_than_kubernetes_gives(
    runtime: Podman, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lavish = tmp_path / "containers.conf"
    usual = Path(os.environ.get("CONTAINERS_CONF", "/dev/null")).read_text()
    capabilities = 'default_capabilities = ["CHOWN", "SETUID", "SYS_ADMIN", "NET_ADMIN", "SYS_PTRACE"]'
    lavish.write_text(f"[containers]\n{capabilities}\n" + usual.removeprefix("[containers]\n"))
    for attempt, (configuration, user) in enumerate([("", None), ("", 1234), (str(lavish), None), (str(lavish), 1234)]):
        with monkeypatch.context() as patch:
            if configuration:
                patch.setenv("CONTAINERS_CONF", configuration)
            started = await start("exec /bin/cat /proc/self/status", user=user)
        status = await printed(runtime, started, tmp_path, attempt)
        found = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
        assert found["NoNewPrivs"].strip() == "1"
        assert int(found["CapBnd"], 16) & ~USUAL == 0
        assert int(found["CapBnd"], 16) & CHOWN
        assert int(found["CapEff"], 16) == (int(found["CapBnd"], 16) if user is None else 0)


async def test_its_log_has_both_streams_in_the_form_of_container_runtimes(
    runtime: Podman, start: Start, tmp_path: Path
) -> None:
    started = await start("echo out; echo err >&2")
    assert sorted((await printed(runtime, started, tmp_path)).splitlines()) == ["err", "out"]
    await runtime.remove(started.id)
    lines = (tmp_path / "logs" / "0.log").read_text().splitlines()
    assert sorted(line.split(" ", 1)[1] for line in lines) == ["stderr F err", "stdout F out"]


async def test_its_log_does_not_fill_the_disk(runtime: Podman, start: Start, tmp_path: Path) -> None:
    started = await start("exec /bin/seq 1000000")
    assert (await printed(runtime, started, tmp_path)).endswith("\n1000000\n")
    assert (tmp_path / "logs" / "0.log").stat().st_size <= 10 * 1024 * 1024


# --- how it ends ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("script", "code", "reason"), [("true", 0, "Completed"), ("exit 7", 7, "Error")])
async def test_the_exit_of_a_container_can_be_read_repeatedly(
    runtime: Podman, start: Start, script: str, code: int, reason: str
) -> None:
    before = now()
    started = await start(script)
    for finished in await asyncio.gather(runtime.wait(started.id), runtime.wait(started.id)):
        assert (finished.exit_code, finished.reason) == (code, reason)
        assert before <= finished.at <= now()
    assert (await runtime.wait(started.id)).exit_code == code


async def test_a_container_gets_sigterm_before_it_is_killed(runtime: Podman, start: Start, tmp_path: Path) -> None:
    polite = await start("trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.1; done")
    rude = await start("trap '' TERM; echo ready; while :; do sleep 0.1; done")
    await eventually(lambda: "ready" in logged(tmp_path, 0) and "ready" in logged(tmp_path, 1))
    ends = asyncio.gather(runtime.wait(polite.id), runtime.wait(rude.id))
    await asyncio.gather(runtime.stop(polite.id, 30), runtime.stop(rude.id, 1))
    assert [(end.exit_code, end.reason) for end in await ends] == [(0, "Completed"), (137, "Error")]
    assert "bye" in logged(tmp_path, 0)
    await runtime.stop(polite.id, 30)
    await runtime.remove(polite.id)
    await runtime.stop(polite.id, 30)
    await runtime.remove(polite.id)


async def test_a_container_that_another_program_removes_has_exited(runtime: Podman, start: Start) -> None:
    started = await start("exec sleep 1000")
    waiting = asyncio.create_task(runtime.wait(started.id))
    await asyncio.to_thread(podman, "rm", "--force", "--time=0", started.id.removeprefix("podman://"))
    finished: ContainerExit = await waiting
    assert (finished.exit_code, finished.reason) == (137, "Error")


async def test_a_failed_start_reports_the_error_and_leaves_nothing(
    runtime: Podman, start: Start, tmp_path: Path
) -> None:
    with pytest.raises(StartError, match="/nowhere") as missing:
        await start(command=("/nowhere",), environment={"ODD": "a\nb"})
    assert missing.value.reason == "RunContainerError"
    with pytest.raises(StartError) as unmountable:
        await start("true", mounts=(Mount(tmp_path / "nowhere", "/x"),))
    assert unmountable.value.reason == "CreateContainerError"
    assert all_of(tmp_path) == []
    assert InstanceIdentity.of(tmp_path, "").edge_prefix not in podman("secret", "ls")


async def test_many_start_and_end_at_once(runtime: Podman, start: Start, tmp_path: Path) -> None:
    started = await asyncio.gather(*(start(f"exit {code}") for code in range(8)))
    ends = await asyncio.gather(*(runtime.wait(one.id) for one in started))
    assert [end.exit_code for end in ends] == list(range(8))
    await asyncio.gather(*(runtime.remove(one.id) for one in started))
    assert all_of(tmp_path) == []


async def test_containers_of_one_pod_find_each_other_at_localhost_even_if_one_is_started_again(
    runtime: Podman, start: Start, tmp_path: Path
) -> None:
    web, asking = await asyncio.gather(
        start("echo hello > /srv/index.html; exec /bin/httpd -f -p 80 -h /srv", ports=(80,), shared_ports=(80, 81)),
        start("exec sleep 1000", name="side", ports=(81,), shared_ports=(80, 81)),
    )
    assert (web.addresses.keys(), asking.addresses.keys()) == ({80}, {81})
    assert await fetched(f"http://127.0.0.1:{web.addresses[80].port}/") == b"hello\n"
    run_podman = ["/bin/busybox", "wget", "-q", "-O-", "http://localhost/"]
    assert await runtime.execute(asking.id, run_podman, 20) == (0, b"hello\n")
    await runtime.stop(web.id, 0)
    await runtime.remove(web.id)
    again = await start(
        "echo again > /srv/index.html; exec /bin/httpd -f -p 80 -h /srv", ports=(80,), shared_ports=(80, 81)
    )
    assert again.addresses == web.addresses
    assert await runtime.execute(asking.id, run_podman, 20) == (0, b"again\n")
    await asyncio.gather(runtime.remove(asking.id), runtime.remove(again.id))
    assert all_of(tmp_path) == []


# --- beside it --------------------------------------------------------------------------------------------------------


async def test_a_command_beside_it_tells_its_code_and_the_first_it_prints(runtime: Podman, start: Start) -> None:
    started = await start("exec sleep 1000")
    assert await runtime.execute(started.id, ["/bin/sh", "-c", "echo a; echo b >&2; exit 3"], 20) in (
        (3, b"a\nb\n"),
        (3, b"b\na\n"),
    )
    code, output = await runtime.execute(started.id, ["/bin/seq", "100000"], 20)
    assert code == 0
    assert len(output) == 10 * 1024
    code, output = await runtime.execute(started.id, ["/nowhere"], 20)
    assert code != 0
    assert b"/nowhere" in output


async def test_a_command_that_takes_too_long_is_ended_with_all_it_started(runtime: Podman, start: Start) -> None:
    started = await start("exec sleep 1000")
    with pytest.raises(TimeoutError):
        await runtime.execute(started.id, ["/bin/sh", "-c", "sleep 1001 & sleep 1002"], 2)
    running = podman("top", started.id.removeprefix("podman://"), "args")
    assert "sleep 1000" in running
    await eventually(lambda: "sleep 100" not in podman("top", started.id[9:], "args").replace("sleep 1000", ""))


async def test_a_command_of_another_user_is_ended_too(runtime: Podman, start: Start) -> None:
    started = await start("exec sleep 1000", user=1234)
    with pytest.raises(TimeoutError):
        await runtime.execute(started.id, ["/bin/sleep", "1003"], 0)
    assert "1003" not in podman("top", started.id.removeprefix("podman://"), "args")


async def test_no_command_runs_in_an_exited_container(runtime: Podman, start: Start) -> None:
    started = await start("true")
    await runtime.wait(started.id)
    code, _ = await runtime.execute(started.id, ["/bin/true"], 20)
    assert code != 0


# --- whose it is ------------------------------------------------------------------------------------------------------


async def test_closing_ends_everything(image: str, tmp_path: Path) -> None:
    runtime = await opened(tmp_path, "life")
    started = await starter(runtime, image, tmp_path)("exec sleep 1000", environment={"ODD": "a\nb"})
    waiting = asyncio.create_task(runtime.wait(started.id))
    await runtime.close()
    assert (await waiting).exit_code == 137
    assert all_of(tmp_path) == []
    assert InstanceIdentity.of(tmp_path, "").edge_prefix not in podman("secret", "ls")


async def test_containers_of_earlier_instances_are_removed_and_those_of_others_stay(image: str, tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    earlier, other = await opened(ours, "earlier"), await opened(theirs, "other")
    await starter(earlier, image, ours)("exec sleep 1000", environment={"ODD": "a\nb"}, shared_ports=(80,))
    await starter(earlier, image, ours)("exec sleep 1000", pod_uid="3d4c")
    await starter(other, image, theirs)("exec sleep 1000")
    later = await opened(ours, "later")
    assert all_of(ours) == []
    assert len(all_of(theirs)) == 1
    for runtime in (later, earlier, other):
        await runtime.close()
    assert all_of(theirs) == []


async def test_containers_of_a_stopped_edge_can_be_removed(image: str, tmp_path: Path) -> None:
    runtime = await opened(tmp_path, "life")
    await starter(runtime, image, tmp_path)("exec sleep 1000")
    assert await remove_containers(tmp_path) == 1
    assert await remove_containers(tmp_path) == 0
    await runtime.close()


DOOMED = """
import asyncio, os, signal, sys
from datetime import UTC, datetime
from pathlib import Path
from farflung.edge.runtimes.base import ContainerSpec
from farflung.edge.runtimes.selection import select_runtime
from farflung.lib.klog import Logger

async def main(directory: Path, image: str) -> None:
    now = lambda: datetime.now(UTC)
    runtime = await select_runtime("podman", directory, lambda: None, "doomed", now, Logger(sys.stderr))
    for number in range(2):
        command = ("/bin/sleep", "1000")
        odd = {"environment": {"A": "b\\nc"}, "shared_ports": ()}
        await runtime.start(ContainerSpec("1f2e", "shop", "web", f"c{number}", 0, image, command, **odd))
    print("started", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
"""


async def test_containers_end_with_an_edge_that_is_killed(image: str, tmp_path: Path) -> None:
    doomed = await asyncio.create_subprocess_exec(
        sys.executable, "-c", DOOMED, str(tmp_path), image, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await doomed.communicate()
    assert (doomed.returncode, output) == (-signal.SIGKILL, b"started\n")
    await eventually(lambda: all_of(tmp_path) == [])
    await eventually(lambda: InstanceIdentity.of(tmp_path, "").edge_prefix not in podman("secret", "ls"))
