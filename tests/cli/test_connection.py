"""What time it is where commands ask."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from scripted_server import ScriptedServer, said

from farflung.client.rest import Client
from farflung.inspect.hub import hub_client, server_time


async def test_the_time_is_that_of_the_hub_or_if_it_does_not_say_ours() -> None:
    answers = [said({}, date="Wed, 01 May 2024 12:00:00 GMT"), said({})]
    hub = hub_client(Client(ScriptedServer(lambda request: answers.pop(0))))
    assert await server_time(hub) == datetime(2024, 5, 1, 12, tzinfo=UTC)
    assert abs(await server_time(hub) - datetime.now(UTC)) < timedelta(minutes=5)
