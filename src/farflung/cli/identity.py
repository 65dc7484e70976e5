"""Who a process is among those of which one works: the one before it, if that one is certainly gone.

A process that was killed still holds its Lease, and another one has to wait until that is over.  Not so one that knows
that it is the successor: a file says who the process is, and counts for who has locked it.  The lock of a process goes
with it, however it ends, so nobody else can be at work as who the file says.

Locks are worth little on directories that machines share.  So a file says as well where it was written: what another
machine, this one before it was started anew, or another file says counts for nothing.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import orjson

from farflung.lib.klog import Logger

BOOT: Final = Path("/proc/sys/kernel/random/boot_id")  #: another one after each start of the machine
LONGEST: Final = 4096  #: bytes of a file that may be ours
PATIENCE: Final = 5.0  #: seconds for the end of the one before
PAUSE: Final = 0.1


@asynccontextmanager
async def identity(path: str, log: Logger) -> AsyncIterator[str]:
    """Nobody else's as long as the block lasts.  `path`: the file; empty: there is none."""
    fresh = f"{socket.gethostname()}_{os.urandom(8).hex()}"
    if not path:
        yield fresh
        return
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        log.error(error, "cannot note who this process is, so its lease has to end if it is killed", file=path)
        yield fresh
        return
    try:
        yield _noted(descriptor, fresh) if await _locked(descriptor) else fresh
    finally:
        os.close(descriptor)


async def _locked(descriptor: int) -> bool:
    """Whether nobody else has it, or has it for much longer."""
    try:
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    return True
                except BlockingIOError:
                    await asyncio.sleep(PAUSE)
    except (TimeoutError, OSError):
        return False


def _noted(descriptor: int, fresh: str) -> str:
    """What the locked file says, if it was written here, or what it says from now on."""
    try:
        here = _here(descriptor)
        if known := _read(os.pread(descriptor, LONGEST, 0), here):
            return known
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, orjson.dumps({"where": here, "identity": fresh}), 0)
    except OSError:
        pass  # it says nothing, then
    return fresh


def _here(descriptor: int) -> list[str]:
    """Which machine since which start, and which file."""
    file = os.fstat(descriptor)
    return [socket.gethostname(), BOOT.read_text().strip(), str(file.st_dev), str(file.st_ino)]


def _read(content: bytes, here: list[str]) -> str:
    try:
        said = orjson.loads(content)
    except orjson.JSONDecodeError:
        return ""
    known = said.get("identity") if isinstance(said, dict) and said.get("where") == here else ""
    return known if isinstance(known, str) else ""
