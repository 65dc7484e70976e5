"""A hub whose log is a pipe that is full, because nobody reads it: it works, it ends, and tells all of it later."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from hub_process import FARFLUNG, PATIENCE, HubProcess, eventually

FULL = 64 << 10  #: bytes that a pipe holds
CONFIGMAPS = "/clusters/root/api/v1/namespaces/default/configmaps"


@dataclass
class Pipe:
    path: Path
    descriptor: int

    @property
    def wrapper(self) -> tuple[str, ...]:
        """Around a command, whose standard error it becomes."""
        return ("sh", "-c", f'exec "$@" 2>{self.path}', "sh")

    def fill(self) -> None:
        """Until not a byte more fits into it."""
        os.set_blocking(self.descriptor, False)
        try:
            for piece in (b"." * FULL, b"."):
                with suppress(BlockingIOError):
                    while os.write(self.descriptor, piece):
                        pass
        finally:
            os.set_blocking(self.descriptor, True)

    def read(self) -> str:
        """All that is in it now."""
        os.set_blocking(self.descriptor, False)
        text = b""
        try:
            while piece := os.read(self.descriptor, FULL):
                text += piece
        except BlockingIOError:
            return text.decode()
        finally:
            os.set_blocking(self.descriptor, True)
        return text.decode()


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipe]:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    descriptor = os.open(path, os.O_RDWR)
    pipe = Pipe(path, descriptor)
    pipe.fill()
    yield pipe
    os.close(descriptor)


def test_a_hub_and_controllers_whose_log_has_no_reader_work_and_write_all_of_it_later(
    tmp_path: Path, pipe: Pipe
) -> None:
    hub = HubProcess(tmp_path / "hub", command="start", wrapper=pipe.wrapper)
    names = [f"unread-{number:03}" for number in range(100)]
    targets = "/clusters/root:compute/apis/workload.kcp.io/v1alpha1/synctargets"
    target = {"apiVersion": "workload.kcp.io/v1alpha1", "kind": "SyncTarget", "metadata": {"name": "florin"}}
    try:
        with hub.client() as client:
            client.create(targets, target)

            def has_mailbox() -> bool:
                spaces = client.get("/clusters/root:espw/apis/tenancy.kcp.io/v1alpha1/workspaces")["items"]
                return any("-mb-" in space["metadata"]["name"] for space in spaces)

            eventually(has_mailbox, "a mailbox")
            for name in names:
                client.create(CONFIGMAPS, {"metadata": {"name": name}})
        heard: list[str] = []

        def told() -> bool:
            heard.append(pipe.read())
            return "".join(heard).count(" name=unread-") == len(names)

        eventually(told, "every line")
        lines = "".join(heard).lstrip(".").splitlines()
        assert [line.partition(" name=")[2].split()[0] for line in lines if "unread" in line] == names
        pipe.fill()
        assert hub.stop() == "farflung hub is stopping\n"
    finally:
        hub.kill()


def test_a_command_that_cannot_start_and_has_no_reader_of_its_errors_ends(pipe: Pipe) -> None:
    kubeconfigs = ("--from-kubeconfig=/nowhere", "--to-kubeconfig=/nowhere")
    commands = (
        ("controllers", "--kubeconfig", "/nowhere"),
        ("syncer", "--sync-target-name=a", "--sync-target-uid=b", *kubeconfigs),
    )
    started = [subprocess.Popen([*pipe.wrapper, FARFLUNG, *command]) for command in commands]
    try:
        assert [process.wait(timeout=PATIENCE) for process in started] == [1, 1]
    finally:
        for process in started:
            process.kill()
