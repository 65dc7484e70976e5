"""Keeps a child process running."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import signal
import time
from collections.abc import AsyncIterator, Sequence
from typing import Final

from farflung.lib.backoff import Backoff

log = logging.getLogger(__name__)

GRACE: Final = 10.0  #: seconds between SIGTERM and SIGKILL
READ: Final = 4096  #: bytes of standard output at once
SETTLED: Final = 60.0  #: seconds after which the backoff starts again
BACKOFF: Final = Backoff(first=0.5, longest=30.0, random=random.random)


@contextlib.asynccontextmanager
async def kept_running(
    name: str, command: Sequence[str], *, backoff: Backoff = BACKOFF, grace: float = GRACE
) -> AsyncIterator[asyncio.Event]:
    """Restart the process whenever it exits, until the block ends.  Its standard input is a pipe that closes when this
    process ends in any way.  Yields an event that is set when it has written to its standard output, or exited."""
    ready = asyncio.Event()
    keeping = asyncio.create_task(_keep(name, command, backoff, grace, ready), name=name)
    try:
        yield ready
    finally:
        keeping.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await keeping


async def _keep(name: str, command: Sequence[str], backoff: Backoff, grace: float, ready: asyncio.Event) -> None:
    failures = 0
    while True:
        began = time.monotonic()
        try:
            ended = f"ended with exit code {await _once(command, grace, ready)}"
        except OSError as error:
            ended = f"cannot be started: {(error.strerror or str(error)).lower()}"
        ready.set()
        failures = 1 if time.monotonic() - began > SETTLED else failures + 1
        pause = backoff.delay(failures)
        log.warning("%s %s; restarting in %.1f s", name, ended, pause)
        await asyncio.sleep(pause)


async def _once(command: Sequence[str], grace: float, ready: asyncio.Event) -> int:
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,  # ^C in a terminal is for this process only
    )
    reading = asyncio.create_task(_read(process.stdout, ready), name="standard output")
    try:
        return await process.wait()
    finally:
        await _end(process, grace)
        reading.cancel()


async def _read(stdout: asyncio.StreamReader | None, ready: asyncio.Event) -> None:
    assert stdout is not None
    while await stdout.read(READ):
        ready.set()


async def _end(process: asyncio.subprocess.Process, grace: float) -> None:
    if process.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signal.SIGTERM)
    try:
        async with asyncio.timeout(grace):
            await process.wait()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
