"""What controllers take from the world outside, in a real process."""

from __future__ import annotations

import asyncio
import random
import time

from farflung.informer.reflector import Surroundings
from farflung.lib.backoff import Backoff


def surroundings() -> Surroundings:
    backoff = Backoff(first=0.05, longest=30.0, random=random.random)
    return Surroundings(time.monotonic, asyncio.sleep, random.random, backoff)
