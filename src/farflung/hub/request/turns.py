"""Work of a request in several turns of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from farflung.machinery.turns import ALLOWANCE, Paced, Steps, TurnAllowance, TurnOver

T = TypeVar("T")


async def in_turns(function: Callable[[], T]) -> T:
    """Call a function until it does not raise TurnOver, each time in another turn.  It must continue what it began."""
    while True:
        token = ALLOWANCE.set(TurnAllowance())
        try:
            return function()
        except TurnOver:
            pass
        finally:
            ALLOWANCE.reset(token)
        await asyncio.sleep(0)


async def finished(make: Callable[[], Steps[T]]) -> T:
    """The result of steps, which are taken in several turns."""
    paced = Paced(make)
    return await in_turns(lambda: paced.value)
