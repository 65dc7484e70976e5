"""Processes of podman: one per call, and the guard.

podman leaves monitor processes (conmon) behind, which keep its output open.  So a call waits for the exit of podman,
not for the end of a pipe.
"""

from __future__ import annotations

import asyncio
import os
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

from farflung.edge.runtimes.podman_arguments import InstanceIdentity

CHUNK: Final = 64 * 1024
GRACE: Final = 5.0  #: seconds between SIGTERM and SIGKILL
#: Exits on a line on standard input.  When standard input is closed without one, removes the containers, three times,
#: because one may be starting.
SCRIPT: Final = """
trap '' HUP INT TERM
read -r line && exit 0
program=$1 filter=$2 prefix=$3
for turn in 1 2 3; do
  "$program" pod ps --quiet --no-trunc --filter="$filter" | while read -r id; do
    "$program" pod rm --force --ignore --time=0 "$id"
  done
  "$program" ps --all --quiet --no-trunc --filter="$filter" | while read -r id; do
    "$program" rm --force --ignore --time=0 --volumes "$id"
  done
  "$program" secret ls --format '{{.Name}}' | while read -r name; do
    case "$name" in "$prefix"*) "$program" secret rm "$name" ;; esac
  done
  sleep 1
done
"""


@dataclass(frozen=True, slots=True)
class PodmanResult:
    code: int
    output: bytes
    errors: bytes

    @property
    def succeeded(self) -> bool:
        return self.code == 0


async def run_podman(program: str, arguments: Sequence[str], stdin: bytes = b"") -> PodmanResult:
    """`stdin`: its standard input, which is kept in memory only."""
    with _memory(stdin) as standard_input, _memory() as output, _memory() as errors:
        code = await _run(program, arguments, standard_input, output, errors)
        return PodmanResult(code, _content(output), _content(errors))


async def run_podman_truncated(program: str, arguments: Sequence[str], limit: int) -> tuple[int, bytes]:
    """The exit code and the first `limit` bytes of output and errors."""
    loop = asyncio.get_running_loop()
    output = bytearray()
    reading, writing = os.pipe()
    os.set_blocking(reading, False)

    def take() -> None:
        with suppress(BlockingIOError):
            chunk = os.read(reading, CHUNK)
            output.extend(chunk[: limit - len(output)])
            if not chunk:
                loop.remove_reader(reading)

    loop.add_reader(reading, take)
    try:
        code = await _run(program, arguments, DEVNULL, writing, writing)
        take()
    finally:
        loop.remove_reader(reading)
        os.close(reading)
        os.close(writing)
    return code, bytes(output)


async def _run(program: str, arguments: Sequence[str], stdin: int, output: int, errors: int) -> int:
    """Run podman in its own session, so that signals of the terminal do not reach it.  Cancelling stops it."""
    process = await asyncio.create_subprocess_exec(
        program, *arguments, stdin=stdin, stdout=output, stderr=errors, start_new_session=True
    )
    try:
        return await process.wait()
    finally:
        if process.returncode is None:
            await asyncio.shield(_end(process))


async def _end(process: Process) -> None:
    """SIGTERM lets podman finish what it must not leave half done."""
    with suppress(ProcessLookupError):
        process.terminate()
    try:
        async with asyncio.timeout(GRACE):
            await process.wait()
    except TimeoutError:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


@contextmanager
def _memory(content: bytes = b"") -> Iterator[int]:
    """A file in memory, positioned at its beginning.  It never blocks the writer, and leaves nothing on disk."""
    descriptor = os.memfd_create("farflung")
    try:
        with os.fdopen(os.dup(descriptor), "wb") as file:
            file.write(content)
        os.lseek(descriptor, 0, os.SEEK_SET)
        yield descriptor
    finally:
        os.close(descriptor)


def _content(descriptor: int) -> bytes:
    os.lseek(descriptor, 0, os.SEEK_SET)
    with os.fdopen(os.dup(descriptor), "rb") as file:
        return file.read()


class PodmanGuard:
    """A process that removes the containers of an instance when this process dies; podman would keep them."""

    def __init__(self, process: Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, program: str, identity: InstanceIdentity) -> PodmanGuard:
        arguments = (program, identity.instance_filter, identity.instance_prefix)
        return cls(
            await asyncio.create_subprocess_exec(
                *("/bin/sh", "-c", SCRIPT, "farflung-guard", *arguments),
                stdin=PIPE,
                stdout=DEVNULL,
                stderr=DEVNULL,
                start_new_session=True,
            )
        )

    async def dismiss(self) -> None:
        assert self._process.stdin is not None
        with suppress(ConnectionError):
            self._process.stdin.write(b"dismissed\n")
            await self._process.stdin.drain()
        await self._process.wait()
