"""The `Environment` of a real process."""

from __future__ import annotations

import time

import pytest

from farflung.cli.environment import system_environment


def test_time_passes_while_the_machine_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that who led before that does not write beside who leads since."""
    clocks = {time.CLOCK_MONOTONIC: 10.0, time.CLOCK_BOOTTIME: 10.0}
    monkeypatch.setattr(time, "clock_gettime", clocks.__getitem__)
    monkeypatch.setattr(time, "monotonic", lambda: clocks[time.CLOCK_MONOTONIC])
    env = system_environment()
    before = env.monotonic()
    clocks[time.CLOCK_BOOTTIME] += 3600.0
    assert env.monotonic() - before == 3600.0
