"""Asking podman: one process for each question.

podman leaves processes behind that mind containers, and they keep what it was given to write to.  So nothing here
waits for the end of a pipe, only for that of podman.
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
PATIENCE: Final = 5.0  #: seconds between asking podman to end and ending it
#: Waits for a line or for the end of whoever should write it; the latter ends the containers.  A few times, because
#: one may have been on its way.
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
    def worked(self) -> bool:
        return self.code == 0


async def run_podman(program: str, arguments: Sequence[str], given: bytes = b"") -> PodmanResult:
    """`given` is on its standard input, in memory and nowhere else."""
    with _memory(given) as standard_input, _memory() as output, _memory() as errors:
        code = await _ended(program, arguments, standard_input, output, errors)
        return PodmanResult(code, _content(output), _content(errors))


async def run_podman_truncated(program: str, arguments: Sequence[str], limit: int) -> tuple[int, bytes]:
    """Its exit code and the first `limit` bytes of what it prints, errors included; the rest is thrown away."""
    loop = asyncio.get_running_loop()
    kept = bytearray()
    reading, writing = os.pipe()
    os.set_blocking(reading, False)

    def take() -> None:
        with suppress(BlockingIOError):
            chunk = os.read(reading, CHUNK)
            kept.extend(chunk[: limit - len(kept)])
            if not chunk:
                loop.remove_reader(reading)

    loop.add_reader(reading, take)
    try:
        code = await _ended(program, arguments, DEVNULL, writing, writing)
        take()
    finally:
        loop.remove_reader(reading)
        os.close(reading)
        os.close(writing)
    return code, bytes(kept)


async def _ended(program: str, arguments: Sequence[str], given: int, output: int, errors: int) -> int:
    """It does not outlive the call, nor is it hit by what a terminal sends to us."""
    process = await asyncio.create_subprocess_exec(
        program, *arguments, stdin=given, stdout=output, stderr=errors, start_new_session=True
    )
    try:
        return await process.wait()
    finally:
        if process.returncode is None:
            await asyncio.shield(_end(process))


async def _end(process: Process) -> None:
    """podman ends what it must not leave half done before it obeys."""
    with suppress(ProcessLookupError):
        process.terminate()
    try:
        async with asyncio.timeout(PATIENCE):
            await process.wait()
    except TimeoutError:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


@contextmanager
def _memory(content: bytes = b"") -> Iterator[int]:
    """A file in memory, to be read from its beginning: unlike a pipe it takes what there is at once, and unlike a file
    on a disk it leaves nothing behind."""
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
    """Removes the containers of an instance when this process is gone, unless it was dismissed."""

    def __init__(self, process: Process) -> None:
        self._process = process

    @classmethod
    async def post(cls, program: str, identity: InstanceIdentity) -> PodmanGuard:
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
