"""`farflung demo`: pages from two clusters, and nothing left behind, however it ends."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from own_ports import own_ports

PATIENCE = 150.0  #: seconds
FARFLUNG = Path(sys.executable).with_name("farflung")

pytestmark = pytest.mark.slow


@pytest.fixture
def first_port(tmp_path: Path) -> Iterator[int]:
    """It and the next two are ours, and nothing of the demo is left however the test ends."""
    with own_ports() as ports:
        yield int(ports["8081"])
        while left := processes_of(tmp_path):
            for process in left:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)


def demo(home: Path, first_port: int, *words: str, path: str = os.environ["PATH"]) -> subprocess.Popen[str]:
    environment = {"PATH": path, "HOME": str(home), "FARFLUNG_HOME": str(home / "farflung")}
    return subprocess.Popen(
        [FARFLUNG, "demo", "--first-port", str(first_port), *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
        start_new_session=True,
    )


def ended(process: subprocess.Popen[str]) -> str:
    output, _ = process.communicate(timeout=PATIENCE)
    return output


def processes_of(home: Path) -> dict[int, str]:
    """Those that name it, and their command lines."""
    found = {}
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            words = (directory / "cmdline").read_bytes() + (directory / "environ").read_bytes()
        except OSError:
            continue
        if str(home).encode() in words:
            found[int(directory.name)] = words.replace(b"\0", b" ").decode(errors="replace")[:200]
    return found


def nothing_of(home: Path) -> bool:
    return not processes_of(home) and not (home / "farflung" / "demo").exists()


def page(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}", timeout=PATIENCE) as answer:
        text: str = answer.read().decode()
        return text


def check_story(output: str, first_port: int) -> None:
    assert output.count("This is a common web site.") == 2
    assert output.count("This is a special web site.") == 1
    for port in range(first_port, first_port + 3):
        assert f"$ curl http://localhost:{port}" in output
    assert re.search(r"Deployment +commond +2 +2 +0 ", output), output
    assert re.search(r"Deployment +speciald +1 +1 +0 ", output), output
    assert "$ farflung trace deployment/commond -n commonstuff" in output
    assert "All 2 destinations are up to date." in output


def test_a_kept_demo_serves_pages_until_it_is_stopped_and_leaves_nothing_behind(
    tmp_path: Path, first_port: int
) -> None:
    kept = demo(tmp_path, first_port, "--keep")
    output = ended(kept)
    assert kept.returncode == 0, output
    check_story(output, first_port)
    assert "farflung demo --stop" in output
    refused = demo(tmp_path, first_port)
    assert "farflung demo --stop` stops and removes it, and `" in ended(refused)
    assert refused.returncode == 1
    assert "This is a special web site." in page(first_port + 1)
    stopped = demo(tmp_path, first_port, "--stop")
    assert ended(stopped) == "Stopped and removed the demo.\n"
    assert nothing_of(tmp_path)
    again = demo(tmp_path, first_port, "--stop")
    assert ended(again) == "No demo is running.\n"


@pytest.mark.long
def test_a_demo_replaces_a_kept_one_and_leaves_nothing_behind(tmp_path: Path, first_port: int) -> None:
    kept = demo(tmp_path, first_port, "--keep")
    output = ended(kept)
    assert kept.returncode == 0, output
    second = demo(tmp_path, first_port, "--replace")
    output = ended(second)
    assert second.returncode == 0, output
    assert "Stopped and removed the earlier demo." in output
    check_story(output, first_port)
    assert nothing_of(tmp_path)


def test_a_port_that_is_in_use_is_named_with_its_process_and_nothing_is_created(
    tmp_path: Path, first_port: int
) -> None:
    with socket.create_server(("127.0.0.1", first_port + 1)):
        process = demo(tmp_path, first_port)
        output = ended(process)
    assert process.returncode == 1
    assert f"port {first_port + 1} of 127.0.0.1 is in use by process {os.getpid()}" in output
    assert "; choose others with --first-port\n" in output
    assert nothing_of(tmp_path)


@pytest.mark.parametrize("words", [(), ("--replace",), ("--stop",)])
def test_a_directory_that_cannot_be_used_is_named(tmp_path: Path, first_port: int, words: tuple[str, ...]) -> None:
    circle = tmp_path / "farflung"
    circle.symlink_to(circle)
    process = demo(tmp_path, first_port, *words)
    assert ended(process) == f"Error: cannot use {circle}/demo: too many levels of symbolic links\n"
    assert process.returncode == 1


@pytest.mark.long
def test_what_goes_wrong_is_one_sentence_and_leaves_nothing_behind(tmp_path: Path, first_port: int) -> None:
    (tmp_path / "podman").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "podman").chmod(0o755)
    process = demo(tmp_path, first_port, "--runtime", "podman", path=f"{tmp_path}:{os.environ['PATH']}")
    output = ended(process)
    assert process.returncode == 1
    assert "Error: the cluster" in output
    assert "could not be created: edge" in output
    assert "Traceback" not in output
    assert nothing_of(tmp_path)


@pytest.mark.parametrize(
    "after",
    [
        "Start the hub",
        pytest.param("Create the common", marks=pytest.mark.long),
        pytest.param("Create the cluster", marks=pytest.mark.long),
        pytest.param("Connect", marks=pytest.mark.long),
    ],
)
def test_an_interrupted_demo_leaves_nothing_behind(tmp_path: Path, first_port: int, after: str) -> None:
    process = demo(tmp_path, first_port)
    assert process.stdout is not None
    deadline = time.monotonic() + PATIENCE
    for line in process.stdout:
        assert time.monotonic() < deadline
        if after in line:
            break
    process.send_signal(signal.SIGINT)
    ended(process)
    assert process.returncode == 1
    assert nothing_of(tmp_path)
