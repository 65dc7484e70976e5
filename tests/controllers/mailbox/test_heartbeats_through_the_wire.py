"""From a syncer's heartbeat to a Location that can be used, and back when it falls silent."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from examples import examples
from fleet import EDGE, FAULTS, PROVIDER, SCHEDULING, TENANCY, WORKLOAD, Fleet, fleet
from hypothesis import example, given, settings
from hypothesis import strategies as st

from farflung.apis.edge.names import SYNC_TARGET_NAME
from farflung.machinery.errors import Obj
from farflung.runtime.cache import Key

MERGE = "application/merge-patch+json"
NOON = "2024-05-01T12:00:00Z"


class World:
    """One edge, florin, as its syncer, the hub and the people see it."""

    def __init__(self, fleet: Fleet, inventory: str) -> None:
        self.fleet = fleet
        self.inventory = inventory
        self.last_beat: Any = None  #: when, by the hub's clock
        self.room: Any = None  #: what its syncer said last that its cluster has for work
        self._pokes = itertools.count()

    async def mailbox(self, target: str = "florin") -> str:
        found = await self.fleet.items(f"/clusters/{PROVIDER}{TENANCY}/workspaces")
        marks = ((one["metadata"].get("annotations", {}).get(SYNC_TARGET_NAME), one["spec"]) for one in found)
        return next((spec.get("cluster", "") for name, spec in marks if name == target), "")

    async def furnished(self, target: str = "florin") -> bool:
        box = await self.mailbox(target)
        return bool(box) and await self.fleet.do("GET", f"/clusters/{box}{EDGE}/syncerconfigs/the-one") is not None

    # --- the syncer -------------------------------------------------------------------------------

    async def report(self, **status: Any) -> None:
        """From the first heartbeat on, every report that changes something shows that the syncer is alive."""
        path = f"/clusters/{await self.mailbox()}{EDGE}/syncerconfigs/the-one/status"
        before = await self.fleet.do("GET", path)
        after = await self.fleet.do("PATCH", path, {"status": status}, content_type=MERGE)
        assert before is not None and after is not None
        if "lastSyncerHeartbeatTime" in after["status"] and before["status"] != after["status"]:
            self.last_beat = self.fleet.hub.now

    async def beat(self, clock: str = "") -> None:
        """`clock`: what the syncer takes for the time."""
        await self.report(lastSyncerHeartbeatTime=clock or f"{self.fleet.hub.now:%Y-%m-%dT%H:%M:%SZ}")

    async def count(self, cpu: str) -> None:
        """What the cluster has; nothing if it does not say any longer."""
        self.room = {"cpu": cpu} if cpu else None
        withheld = {"type": "CapacityKnown", "status": "False", "reason": "Forbidden", "lastTransitionTime": NOON}
        conditions = [] if cpu else [withheld]
        await self.report(allocatable=self.room, capacity=self.room, conditions=conditions)

    # --- the hub ----------------------------------------------------------------------------------

    async def passes(self, seconds: int) -> None:
        self.fleet.hub.now += timedelta(seconds=seconds)

    async def target(self) -> Obj:
        """As the hub finds it when it looks at it now."""
        path = f"/clusters/{self.inventory}{WORKLOAD}/synctargets/florin"
        poke = {"metadata": {"annotations": {"poke": str(next(self._pokes))}}}
        poked = await self.fleet.do("PATCH", path, poke, content_type=MERGE)
        assert poked is not None
        found = await self.fleet.do("GET", path)
        assert found is not None
        return found

    async def condition(self, type: str = "Ready") -> Obj:
        conditions = (await self.target()).get("status", {}).get("conditions") or ()
        return next((one for one in conditions if one["type"] == type), {})

    async def shows(self, ready: str, available: int) -> bool:
        location = await self.fleet.do("GET", f"/clusters/{self.inventory}{SCHEDULING}/locations/here")
        assert location is not None
        seen = (location.get("status") or {}).get("availableInstances", 0)
        return (await self.condition()).get("status") == ready and seen == available

    async def becomes(self, ready: str, available: int) -> None:
        await self.fleet.eventually(lambda: self.shows(ready, available), f"Ready={ready}, {available} available")

    async def shows_room(self) -> bool:
        status = (await self.target())["status"]
        return bool(status.get("allocatable") == status.get("capacity") == self.room)

    def written(self) -> int:
        """Writes of SyncTargets so far, by controllers."""
        paths = (request.target for request in self.fleet.transport.writes)
        return sum("/synctargets/" in path for path in paths)

    @property
    def looked(self) -> dict[str, int]:
        assert self.fleet.manager is not None
        return {one.name: one.tally.successes for one in self.fleet.manager.controllers}

    async def is_idle(self) -> bool:
        """Every controller has heard of what happened to the edge, and is done with it."""
        manager, box = self.fleet.manager, await self.mailbox()
        assert manager is not None
        for cluster, path in (
            (self.inventory, f"{WORKLOAD}/synctargets/florin"),
            (box, f"{EDGE}/syncerconfigs/the-one"),
        ):
            found = await self.fleet.do("GET", f"/clusters/{cluster}{path}")
            assert found is not None
            plural, name = path.split("/")[-2:]
            for informer in manager.informers:
                known = informer.cache.version(Key(cluster, "", name))
                if informer.collection.plural == plural and known < int(found["metadata"]["resourceVersion"]):
                    return False
        return manager.idle

    async def idle(self) -> None:
        await self.fleet.eventually(self.is_idle, "peace")


@asynccontextmanager
async def world(**controllers: bool) -> AsyncIterator[World]:
    async with fleet() as one:
        inventory = await one.hub.workspace("imw")
        await one.target(inventory, "florin", {})
        await one.location(inventory, "here", {}, {})
        await one.start(**{"scheduler": False, "mailboxes": True, **controllers})
        found = World(one, inventory)
        await one.eventually(found.furnished)
        yield found


async def test_a_location_is_available_while_its_syncer_sends_heartbeats() -> None:
    async with world() as one:
        await one.becomes("False", 0)
        await one.beat()
        await one.becomes("True", 1)
        await one.passes(61)
        await one.becomes("False", 0)
        assert (await one.condition())["reason"] == "ErrorHeartbeat"
        await one.beat()
        await one.becomes("True", 1)


@pytest.mark.parametrize("clock", ["1970-01-01T00:00:00Z", "2999-01-01T00:00:00Z"])
async def test_a_syncer_with_a_wrong_clock_is_alive_and_dies_like_others(clock: str) -> None:
    async with world() as one:
        await one.beat(clock)
        await one.becomes("True", 1)
        await one.passes(61)
        await one.becomes("False", 0)


async def test_a_controller_that_starts_again_revives_no_dead_edge_and_kills_no_live_one() -> None:
    async with world() as one:
        await one.beat()
        await one.becomes("True", 1)
        await one.fleet.crash()
        await one.passes(30)
        await one.beat()
        await one.passes(40)
        await one.becomes("False", 0)  # nobody was there to tell
        await one.fleet.start(scheduler=False, mailboxes=True)
        await one.becomes("True", 1)
        await one.fleet.crash()
        await one.passes(61)
        await one.fleet.start(scheduler=False, mailboxes=True)
        await one.becomes("False", 0)
        await one.idle()
        assert await one.shows("False", 0)


async def test_an_edge_that_its_syncer_does_not_reach_is_not_ready() -> None:
    async with world() as one:
        lost = {"type": "EdgeReachable", "status": "False", "reason": "Unreachable", "message": "connection refused"}
        await one.report(lastSyncerHeartbeatTime=NOON, conditions=[{**lost, "lastTransitionTime": NOON}])
        await one.fleet.eventually(lambda: _is(one, "Ready", "Unreachable"))
        assert (await one.condition())["message"] == "connection refused"
        assert (await one.condition("EdgeReachable"))["status"] == "False"
        assert (await one.condition("HeartbeatHealthy"))["status"] == "True"
        found = {"type": "EdgeReachable", "status": "True", "lastTransitionTime": NOON}
        await one.report(conditions=[found])
        await one.becomes("True", 1)


async def _is(one: World, type: str, reason: str) -> bool:
    return (await one.condition(type)).get("reason") == reason


async def test_heartbeats_cost_a_write_for_every_other_one_and_the_scheduler_nothing() -> None:
    async with world(scheduler=True) as one:
        workload = await one.fleet.hub.workspace("wmw")
        await one.fleet.hub.bind(workload, "edge.kcp.io", PROVIDER, "edge.kcp.io")
        await one.fleet.placement(workload, "everywhere", {})
        await one.beat()
        await one.becomes("True", 1)
        await one.idle()
        written, looked = one.written(), one.looked
        for _ in range(6):
            await one.passes(20)
            await one.beat()
            await one.idle()
        assert one.written() - written == 3
        after = one.looked
        assert after["edge-scheduler"] == looked["edge-scheduler"]
        assert after["mailbox-controller"] == looked["mailbox-controller"]


async def test_what_a_cluster_has_for_work_is_written_once_and_only_when_it_changed() -> None:
    async with world(scheduler=True) as one:
        await one.beat()
        await one.becomes("True", 1)
        for cpu in ("4", "2500m", "0", ""):
            await one.idle()
            written, looked = one.written(), one.looked
            await one.count(cpu)
            await one.fleet.eventually(one.shows_room)
            await one.report(objects={"synced": len(cpu)})
            await one.idle()
            assert one.written() - written == 1
            assert one.looked["edge-scheduler"] == looked["edge-scheduler"]


async def test_one_sick_cluster_does_not_disturb_the_reports_of_others() -> None:
    async with world() as one:
        await one.fleet.target(one.inventory, "sick", {})
        await one.fleet.eventually(lambda: one.furnished("sick"))
        nonsense = {"allocatable": {"cpu": "1e1000", "x" * 400: "1", "memory": "-5"}, "lastSyncerHeartbeatTime": NOON}
        patch = {"status": nonsense}
        path = f"/clusters/{await one.mailbox('sick')}{EDGE}/syncerconfigs/the-one/status"
        assert await one.fleet.do("PATCH", path, patch, content_type=MERGE) is not None
        await one.beat()
        await one.count("4")
        await one.becomes("True", 2)
        await one.fleet.eventually(one.shows_room)
        shown = await one.fleet.do("GET", f"/clusters/{one.inventory}{WORKLOAD}/synctargets/sick")
        assert shown is not None and "allocatable" not in shown["status"]


Step = tuple[str, Any]
STEPS = st.one_of(
    st.tuples(st.just("beat"), st.sampled_from(["", "", "", "1970-01-01T00:00:00Z", "2999-01-01T00:00:00Z"])),
    st.tuples(st.just("pass"), st.sampled_from([1, 20, 35, 61])),
    st.tuples(st.just("count"), st.sampled_from(["4", "2500m", "0", ""])),
    FAULTS,
)


@pytest.mark.slow
@settings(max_examples=examples(25))
@given(st.lists(STEPS, max_size=20))
@example([("beat", ""), ("pass", 61), ("count", "4")])
async def test_after_any_history_a_sync_target_is_ready_by_its_last_heartbeat_and_shows_the_last_report(
    steps: list[Step],
) -> None:
    async with world() as one:
        for what, how in steps:
            if what == "beat":
                await one.beat(how)
            elif what == "pass":
                await one.passes(how)
            elif what == "count":
                await one.count(how)
            else:
                await one.fleet.suffer(what, how, scheduler=False, mailboxes=True)
        silence = None if one.last_beat is None else (one.fleet.hub.now - one.last_beat).total_seconds()
        if silence is not None and silence <= 35:
            await one.becomes("True", 1)
        elif silence is None or silence > 60:
            await one.becomes("False", 0)
            await one.idle()
            assert await one.shows("False", 0)
        if one.last_beat is not None:
            await one.fleet.eventually(one.shows_room)
