"""The clock, sleep, randomness and retry pauses of a process."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from farflung.lib.backoff import Backoff

CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  #: not every system has it


@dataclass(frozen=True, slots=True)
class Environment:
    """The clock, sleep, randomness and retry pauses of a process; tests pass simulated ones."""

    monotonic: Callable[[], float]
    sleep: Callable[[float], Awaitable[None]]
    random: Callable[[], float]  #: between 0 and 1
    backoff: Backoff


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
