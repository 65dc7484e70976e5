"""The `Environment` of a real process."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any, Final

from farflung.lib.backoff import Backoff
from farflung.runtime.reflector import Environment

CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  #: not every system has it


def system_environment() -> Environment:
    backoff = Backoff(first=0.05, longest=30.0, random=random.random)
    return Environment(elapsed, asyncio.sleep, random.random, backoff)


def report_unless_closed(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """An exception handler for event loops.  uvloop reports an error if TLS writes to a connection that was aborted
    while it was read; the task that used the connection has its own error already."""
    error = context.get("exception")
    if not (isinstance(error, RuntimeError) and "the handler is closed" in str(error)):
        loop.default_exception_handler(context)


def elapsed() -> float:
    """Seconds of a clock that never jumps and includes suspend: a suspended process must notice that its Lease
    expired."""
    return time.clock_gettime(CLOCK)
