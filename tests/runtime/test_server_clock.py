"""What time it is at a server, whatever the clock here says."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from scripted_server import Scripted, ScriptedServer, failure, said

from farflung.client.errors import Unreachable
from farflung.client.rest import Client
from farflung.client.transport import OutgoingRequest
from farflung.runtime.server_clock import OLD, ServerClock

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)


class Machine:
    """Its clock is wrong by hours."""

    def __init__(self) -> None:
        self.passed = 0.0
        self.answer = said({}, date="Wed, 01 May 2024 12:00:00 GMT")
        self.server = ScriptedServer(self._answered)
        self.clock = ServerClock(Client(self.server), self.now, lambda: self.passed)

    def _answered(self, request: OutgoingRequest) -> Scripted:
        return self.answer

    def now(self) -> datetime:
        return NOON - timedelta(hours=3) + timedelta(seconds=self.passed)


async def test_the_server_is_asked_once_in_a_while_and_time_passes_meanwhile() -> None:
    one = Machine()
    assert await one.clock.ask()
    one.passed += 5.5
    assert one.clock.now() == NOON + timedelta(seconds=5.5)
    assert not await one.clock.ask()
    assert len(one.server.requests) == 1
    one.passed = OLD
    one.answer = said({}, date="Wed, 01 May 2024 13:30:00 GMT")
    assert await one.clock.ask()
    assert one.clock.now() == NOON + timedelta(hours=1.5)


async def test_that_answers_take_a_while_is_no_other_time() -> None:
    one = Machine()
    await one.clock.ask()
    one.passed = OLD
    one.answer = said({}, date="Wed, 01 May 2024 12:00:59 GMT")
    assert not await one.clock.ask()


@pytest.mark.parametrize("date", ["", "soon", "Wed, 99 May 2024 12:00:00 GMT", "Fri, 31 Dec 9999 23:59:59 -2359"])
async def test_a_server_that_does_not_say_the_time_has_that_of_this_machine(date: str) -> None:
    one = Machine()
    one.answer = said({}, date=date)
    assert not await one.clock.ask()
    assert one.clock.now() == one.now()


async def test_a_refusal_says_the_time_as_well_and_silence_changes_nothing() -> None:
    one = Machine()
    one.answer = failure(403, date="Wed, 01 May 2024 12:00:00 GMT")
    assert await one.clock.ask()
    one.passed = OLD
    one.answer = Scripted(chunks=[Unreachable("gone")])
    assert not await one.clock.ask()
    assert one.clock.now() == NOON + timedelta(seconds=OLD)
