"""The Lease identity of a process, which its successor reuses.

A killed process still holds its Lease, and another process waits until it expires.  A successor need not wait: it locks
the file with the identity.  The lock ends with the process, so no other process can use that identity.

Locks are unreliable on shared directories.  So the file also records host, boot and inode; otherwise it is ignored.
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

BOOT: Final = Path("/proc/sys/kernel/random/boot_id")  #: differs after each boot
MAX_BYTES: Final = 4096  #: bytes of a valid file
LOCK_SECONDS: Final = 5.0  #: seconds to wait for the lock
PAUSE: Final = 0.1


@asynccontextmanager
async def identity(path: str, log: Logger) -> AsyncIterator[str]:
    """Unique until the block ends.  `path`: the file; empty: none."""
    fresh = f"{socket.gethostname()}_{os.urandom(8).hex()}"
    if not path:
        yield fresh
        return
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        log.error(
            error, "cannot store the Lease identity; after a kill, a successor waits for the Lease to expire", file=path
        )
        yield fresh
        return
    try:
        yield _stored_identity(descriptor, fresh) if await _locked(descriptor) else fresh
    finally:
        os.close(descriptor)


async def _locked(descriptor: int) -> bool:
    """False if another process keeps the lock."""
    try:
        async with asyncio.timeout(LOCK_SECONDS):
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    return True
                except BlockingIOError:
                    await asyncio.sleep(PAUSE)
    except (TimeoutError, OSError):
        return False


def _stored_identity(descriptor: int, fresh: str) -> str:
    """The identity in the locked file if it is valid here; otherwise stores `fresh`."""
    try:
        here = _origin(descriptor)
        if known := _read(os.pread(descriptor, MAX_BYTES, 0), here):
            return known
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, orjson.dumps({"where": here, "identity": fresh}), 0)
    except OSError:
        pass  # the identity is not stored
    return fresh


def _origin(descriptor: int) -> list[str]:
    """Host, boot and file."""
    file = os.fstat(descriptor)
    return [socket.gethostname(), BOOT.read_text().strip(), str(file.st_dev), str(file.st_ino)]


def _read(content: bytes, here: list[str]) -> str:
    try:
        stored = orjson.loads(content)
    except orjson.JSONDecodeError:
        return ""
    known = stored.get("identity") if isinstance(stored, dict) and stored.get("where") == here else ""
    return known if isinstance(known, str) else ""
