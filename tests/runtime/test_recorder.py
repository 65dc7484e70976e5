"""Events are written beside the work, once, and never too many."""

from __future__ import annotations

import asyncio
import io
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hub_harness import ADMIN_TOKEN, LocalHub
from local_transport import LocalTransport
from scripted_server import ScriptedServer, failure, said

from farflung.apis.names import EVENTS
from farflung.client.rest import Client
from farflung.lib.klog import Logger
from farflung.runtime.recorder import BURST, MAX_EVENTS, REFILL, InvolvedObject, Recorder

ABOUT = InvolvedObject("", "v1", "ConfigMap", "one", "default", "the-uid")


@dataclass
class Clock:
    seconds: float = 0.0

    def now(self) -> datetime:
        return datetime(2024, 5, 1, tzinfo=UTC) + timedelta(seconds=self.seconds)

    def monotonic(self) -> float:
        return self.seconds


@dataclass
class Desk:
    client: Client
    clock: Clock = field(default_factory=Clock)
    log: io.StringIO = field(default_factory=io.StringIO)

    def recorder(self) -> Recorder:
        numbers = itertools.count()
        clock = self.clock
        return Recorder(
            self.client, "tester", clock.now, clock.monotonic, lambda: f"n{next(numbers)}", Logger(self.log, 9)
        )


@asynccontextmanager
async def running(recorder: Recorder) -> AsyncIterator[None]:
    task = asyncio.create_task(recorder.run())
    try:
        yield
    finally:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def settled(recorder: Recorder) -> None:
    async with asyncio.timeout(60):
        await recorder.flush()


async def desk() -> Desk:
    hub = await LocalHub.in_memory().furnish()
    return Desk(Client(LocalTransport(hub.function, ADMIN_TOKEN)))


async def test_an_event_says_what_happened_to_which_object_and_the_same_again_only_counts() -> None:
    made = await desk()
    recorder = made.recorder()
    async with running(recorder):
        recorder.record(ABOUT, "Normal", "Made", "it was made")
        await settled(recorder)
        made.clock.seconds = 60
        recorder.record(ABOUT, "Normal", "Made", "it was made")
        recorder.record(ABOUT, "Warning", "Broken", "it broke")
        await settled(recorder)
    first, second = await made.client.list(EVENTS)
    assert first["metadata"]["name"] == "one.n0"
    assert first["involvedObject"] == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": "one",
        "namespace": "default",
        "uid": "the-uid",
    }
    assert (first["type"], first["reason"], first["message"], first["count"]) == ("Normal", "Made", "it was made", 2)
    assert (first["firstTimestamp"], first["lastTimestamp"]) == ("2024-05-01T00:00:00Z", "2024-05-01T00:01:00Z")
    assert (second["reason"], second["source"], second["count"]) == ("Broken", {"component": "tester"}, 1)


async def test_a_deleted_event_is_created_again() -> None:
    made = await desk()
    recorder = made.recorder()
    async with running(recorder):
        recorder.record(ABOUT, "Normal", "Made", "it was made")
        await settled(recorder)
        await made.client.delete(EVENTS, "one.n0", "default")
        recorder.record(ABOUT, "Normal", "Made", "it was made")
        await settled(recorder)
    [event] = await made.client.list(EVENTS)
    assert (event["metadata"]["name"], event["count"]) == ("one.n1", 1)


@pytest.mark.parametrize("name", ["x" * 199 + ".y", "a" * 253, "x" * 198 + "-.-y"])
async def test_names_of_any_length_make_names_of_events(name: str) -> None:
    made = await desk()
    recorder = made.recorder()
    async with running(recorder):
        recorder.record(InvolvedObject("", "v1", "Thing", name), "Normal", "Made", "x" * 5000)
        await settled(recorder)
    [event] = await made.client.list(EVENTS)
    assert len(event["message"]) == 1024
    assert event["metadata"]["namespace"] == "default"


async def test_events_go_to_the_workspace_of_the_object() -> None:
    server = ScriptedServer(lambda request: said({}))
    recorder = Desk(Client(server)).recorder()
    async with running(recorder):
        recorder.record(InvolvedObject("root:shop", "v1", "Thing", "t"), "Normal", "Made", "m")
        await settled(recorder)
    assert [request.target for request in server.requests] == ["/clusters/root:shop/api/v1/namespaces/default/events"]


@pytest.mark.parametrize("code", [403, 404, 409, 429, 500])
async def test_a_server_that_refuses_events_is_only_logged(code: int) -> None:
    made = Desk(Client(ScriptedServer(lambda request: failure(code))))
    recorder = made.recorder()
    async with running(recorder):
        for number in range(3):
            recorder.record(ABOUT, "Normal", "Made", f"message {number}")
        await settled(recorder)
    assert made.log.getvalue().count("cannot write event") == 3


def test_one_object_gets_so_many_and_then_one_after_a_while() -> None:
    made = Desk(Client(ScriptedServer(lambda request: said({}))))
    recorder = made.recorder()

    def waiting() -> int:
        return recorder._waiting.qsize()

    for number in range(BURST + 10):
        recorder.record(ABOUT, "Normal", "Made", f"message {number}")
    assert waiting() == BURST
    recorder.record(InvolvedObject("", "v1", "ConfigMap", "two"), "Normal", "Made", "m")
    assert waiting() == BURST + 1
    made.clock.seconds += REFILL
    for _ in range(5):
        recorder.record(ABOUT, "Normal", "Made", "later")
    assert waiting() == BURST + 2


def test_events_beyond_the_limit_are_dropped_without_waiting() -> None:
    made = Desk(Client(ScriptedServer(lambda request: said({}))))
    recorder = made.recorder()
    for number in range(MAX_EVENTS + 50):
        recorder.record(InvolvedObject("", "v1", "ConfigMap", f"m{number}"), "Normal", "Made", "m")
    assert made.log.getvalue().count("event dropped") == 50


async def test_what_is_remembered_is_bounded() -> None:
    made = Desk(Client(ScriptedServer(lambda request: said({}))))
    recorder: Any = made.recorder()
    async with running(recorder):
        for number in range(MAX_EVENTS + 50):
            recorder.record(InvolvedObject("", "v1", "ConfigMap", f"m{number}"), "Normal", "Made", "m")
            await settled(recorder)
    assert (len(recorder._written), len(recorder._allowances)) == (MAX_EVENTS, MAX_EVENTS)
