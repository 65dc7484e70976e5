"""How long the event loop is held."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from farflung.lib.loop_probe import PERIOD, LoopProbe


@dataclass
class Hand:
    now: float = 100.0

    def __call__(self) -> float:
        return self.now


class ByHand(asyncio.SelectorEventLoop):
    """Its newest timer fires when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.newest: Callable[[], object] = lambda: None

    def call_later(self, delay: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:
        self.newest = partial(callback, *args)
        return super().call_later(delay, callback, *args, context=context)


def measured(*ticks: tuple[float, float]) -> LoopProbe:
    """Each: seconds until the timer fires, and seconds of CPU time since the last one."""
    clock, cpu = Hand(), Hand()
    probe, loop = LoopProbe(clock, cpu), ByHand()
    try:
        probe.start(loop)
        for passed, used in ticks:
            clock.now += passed
            cpu.now += used
            loop.newest()
        probe.stop()
    finally:
        loop.close()
    return probe


def test_a_timer_in_time_is_no_lag() -> None:
    probe = measured((PERIOD, 0.001), (PERIOD, PERIOD))
    assert (probe.sum, probe.long_turns) == (0.0, 0)
    assert dict(probe.buckets)["0.005"] == 2


def test_a_turn_that_computes_too_long_is_counted() -> None:
    probe = measured((PERIOD + 0.06, 0.08), (PERIOD, 0.0))
    assert probe.long_turns == 1
    assert round(probe.longest, 3) == 0.06
    assert (dict(probe.buckets)["0.05"], dict(probe.buckets)["0.1"]) == (1, 2)


def test_a_busy_machine_is_lag_but_no_long_turn() -> None:
    probe = measured((PERIOD + 3.0, 0.01))
    assert probe.long_turns == 0
    assert dict(probe.buckets)["2.5"] == 0
    assert dict(probe.buckets)["+Inf"] == 1


def test_many_short_turns_are_no_long_turn() -> None:
    assert measured(*[(PERIOD + 0.01, PERIOD + 0.01)] * 20).long_turns == 0
