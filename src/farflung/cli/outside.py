"""What a real process takes from the world outside."""

from __future__ import annotations

import asyncio
import gc
import random
import time
from typing import Final

from farflung.informer.reflector import Surroundings
from farflung.lib.backoff import Backoff

CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  #: which not every system has
COLLECT: Final = (20_000, 20, 50)  #: new objects between collections


def collect_seldom() -> None:
    """What a write leaves, or a decision, is no garbage, and looking for some took a tenth of its time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECT)


def surroundings() -> Surroundings:
    backoff = Backoff(first=0.05, longest=30.0, random=random.random)
    return Surroundings(elapsed, asyncio.sleep, random.random, backoff)


def elapsed() -> float:
    """Seconds of a clock that never jumps, and goes on while this machine sleeps: others may take over then, and who
    wakes up must know."""
    return time.clock_gettime(CLOCK)
