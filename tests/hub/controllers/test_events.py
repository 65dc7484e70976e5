"""How Events end."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

from examples import examples
from hub_harness import LocalHub
from hypothesis import given, settings
from hypothesis import strategies as st

from farflung.hub.controllers.events import BATCH, EventTTLController
from farflung.machinery.errors import Obj

CORE = "/api/v1/namespaces/default/events"
NEW = "/apis/events.k8s.io/v1/namespaces/default/events"
START = datetime(2024, 5, 1, 12, 0, 0, tzinfo=UTC)


def event(name: str) -> Obj:
    involved = {"apiVersion": "v1", "kind": "Pod", "name": "p", "namespace": "default"}
    return {"metadata": {"name": name}, "involvedObject": involved, "reason": "Because", "type": "Normal"}


async def left(hub: LocalHub) -> list[str]:
    return (await hub.get(CORE)).names


class Ending:
    """The controller in a hub whose time the test sets."""

    def __init__(self, hub: LocalHub, seconds: float = 100) -> None:
        self.controller = EventTTLController(hub.store, lambda: hub.now, seconds)

    async def __aenter__(self) -> Ending:
        self.controller.start()
        self._running = asyncio.create_task(self._run())
        return self

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group:
            self.controller.queue.start(group)

    async def look(self) -> None:
        """As if the time of its sleep were over."""
        self.controller.queue.add("")
        await self.controller.queue.finished()

    async def __aexit__(self, *_: object) -> None:
        self.controller.stop()
        self._running.cancel()
        await asyncio.wait([self._running])


async def test_an_event_is_deleted_some_time_after_its_last_write(hub: LocalHub) -> None:
    async with Ending(hub) as ending:
        await hub.create(CORE, event("old"))
        await hub.create(CORE, event("renewed"))
        watch = await hub.watch(CORE, {"resourceVersion": str(hub.store.revision)})
        hub.later(60)
        await hub.patch(f"{CORE}/renewed", {"count": 2})
        hub.later(60)
        await ending.look()
        assert await left(hub) == ["renewed"]
        assert [(one["type"], one["object"]["metadata"]["name"]) for one in await watch.next(2)] == [
            ("MODIFIED", "renewed"),
            ("DELETED", "old"),
        ]
        hub.later(60)
        await ending.look()
        assert await left(hub) == []


async def test_many_events_go_at_once(hub: LocalHub) -> None:
    async with Ending(hub) as ending:
        for number in range(3 * BATCH):
            await hub.create(CORE, event(f"e{number}"))
        hub.later(101)
        await hub.create(CORE, event("young"))
        await ending.look()
        assert await left(hub) == ["young"]


async def test_a_new_hub_takes_the_time_from_the_event(hub: LocalHub) -> None:
    def at(seconds: int) -> str:
        return (hub.now + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")

    await hub.create(CORE, event("old"))
    await hub.create(CORE, event("seen-later") | {"lastTimestamp": at(50)})
    await hub.create(CORE, event("wrong-clock") | {"lastTimestamp": at(100_000)})
    hub.later(50)
    await hub.create(CORE, event("young"))
    hub.later(60)
    async with Ending(hub) as ending:
        await ending.look()
        assert await left(hub) == ["seen-later", "wrong-clock", "young"]
        hub.later(60)
        await ending.look()
        assert await left(hub) == ["wrong-clock"]
        hub.later(60)
        await ending.look()
        assert await left(hub) == []


async def test_both_groups_see_it_go(hub: LocalHub) -> None:
    async with Ending(hub) as ending:
        await hub.create(CORE, event("e"))
        watch = await hub.watch(NEW, {"resourceVersion": str(hub.store.revision)})
        hub.later(101)
        await ending.look()
        assert (await watch.next(1))[0]["type"] == "DELETED"
        assert (await hub.get(NEW)).names == []


@settings(max_examples=examples(40))
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 60), st.booleans()), max_size=20))
async def test_an_event_is_there_exactly_as_long_as_it_should(steps: list[tuple[int, int, bool]]) -> None:
    hub = await LocalHub.in_memory().furnish()
    written: dict[str, datetime] = {}
    async with Ending(hub) as ending:
        for number, seconds, deleted in steps:
            hub.later(seconds)
            await ending.look()
            written = {name: time for name, time in written.items() if hub.now < time + timedelta(seconds=100)}
            assert await left(hub) == sorted(written)
            name = f"e{number}"
            if deleted and name in written:
                await hub.delete(f"{CORE}/{name}")
                del written[name]
            elif name in written:
                await hub.patch(f"{CORE}/{name}", {"count": seconds + 1, "message": str(hub.now)})
                written[name] = hub.now
            else:
                await hub.create(CORE, event(name))
                written[name] = hub.now
