"""The `Environment` of a real process."""

from __future__ import annotations

import asyncio
import time

import pytest

from farflung.runtime.environment import report_unless_closed, system_environment


def test_time_passes_while_the_machine_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a former leader does not write after its Lease expired."""
    clocks = {time.CLOCK_MONOTONIC: 10.0, time.CLOCK_BOOTTIME: 10.0}
    monkeypatch.setattr(time, "clock_gettime", clocks.__getitem__)
    monkeypatch.setattr(time, "monotonic", lambda: clocks[time.CLOCK_MONOTONIC])
    env = system_environment()
    before = env.monotonic()
    clocks[time.CLOCK_BOOTTIME] += 3600.0
    assert env.monotonic() - before == 3600.0


async def test_only_errors_of_closed_connections_are_not_reported(caplog: pytest.LogCaptureFixture) -> None:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(report_unless_closed)
    for text in ("unable to perform operation on <TCPTransport closed=True>; the handler is closed", "another one"):
        loop.call_exception_handler({"message": "Fatal error on SSL protocol", "exception": RuntimeError(text)})
    (record,) = caplog.records
    assert "another one" in str(record.exc_info)
