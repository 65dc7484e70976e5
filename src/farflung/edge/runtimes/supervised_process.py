"""Starts commands under `supervisor.py`, so that they end with this process."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SUPERVISOR: Final = Path(__file__).with_name("supervisor.py")
CHUNK: Final = 64 * 1024  #: bytes that are read at once

Printed = Callable[[str, bytes], None]  #: called with `stdout` or `stderr` and data


@dataclass(frozen=True, slots=True)
class CommandSpec:
    command: Sequence[str]
    environment: Mapping[str, str]
    directory: Path
    owner: int | None = None  #: uid that may reopen its output, for servers that log to /proc/self/fd/1
    descriptors: tuple[int, ...] = ()  #: inherited, with the same numbers


class SupervisedProcess:
    """A running command.  Created by `start_supervised`."""

    def __init__(self, process: asyncio.subprocess.Process, reading: asyncio.Task[None]) -> None:
        self._process = process
        self._reading = reading

    @property
    def ended(self) -> bool:
        return self._process.returncode is not None

    async def wait(self) -> int:
        """The exit code, after all output was passed on."""
        code = await self._process.wait()
        await asyncio.shield(self._reading)
        return code

    def terminate(self) -> None:
        if not self.ended and self._process.stdin is not None:
            self._process.stdin.write(b"TERM\n")

    def kill(self) -> None:
        """Kill it and all its descendants."""
        if self._process.stdin is not None:
            self._process.stdin.close()


async def start_supervised(spec: CommandSpec, printed: Printed) -> SupervisedProcess:
    """Raises OSError.  A command that does not exist ends with exit code 127 instead."""
    pipes = [os.pipe(), os.pipe()]
    if spec.owner is not None:
        for _, write_end in pipes:
            os.fchown(write_end, spec.owner, spec.owner)
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-I", "-S", str(SUPERVISOR),
            stdin=asyncio.subprocess.PIPE,
            stdout=pipes[0][1],
            stderr=pipes[1][1],
            pass_fds=spec.descriptors,
            env={},
            cwd="/",
            start_new_session=True,
        )  # fmt: skip
    except BaseException:
        for read_end, _ in pipes:
            os.close(read_end)
        raise
    finally:
        for _, write_end in pipes:
            os.close(write_end)
    request = {"command": [*spec.command], "environment": {**spec.environment}, "directory": str(spec.directory)}
    assert process.stdin is not None
    process.stdin.write(json.dumps(request).encode() + b"\n")
    reading = asyncio.create_task(_read_both(pipes[0][0], pipes[1][0], printed), name=f"output of {spec.command[0]}")
    return SupervisedProcess(process, reading)


async def _read_both(stdout: int, stderr: int, printed: Printed) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(_read("stdout", stdout, printed))
        group.create_task(_read("stderr", stderr, printed))


async def _read(stream: str, descriptor: int, printed: Printed) -> None:
    reader = asyncio.StreamReader(limit=CHUNK)
    with os.fdopen(descriptor, "rb", buffering=0) as pipe:
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), pipe
        )
        try:
            while data := await reader.read(CHUNK):
                printed(stream, data)
        finally:
            transport.close()
            with contextlib.suppress(OSError):
                await asyncio.sleep(0)
