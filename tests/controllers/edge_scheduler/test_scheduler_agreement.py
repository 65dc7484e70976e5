"""Schedulers that work at the same time agree, and nobody writes for ever."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from fleet import EDGE, MASTER, OPERATOR, PROVIDER, SCHEDULING, FaultyTransport, Fleet, fleet
from hypothesis import given
from hypothesis import strategies as st

from farflung.apis.edge.authors import Author
from farflung.client.errors import Unreachable
from farflung.client.transport import OutgoingRequest, Reply
from farflung.controllers.edge_scheduler.controller import REVERT_MEMORY, SECONDS_PER_DESTINATION, WritePace
from farflung.controllers.placing_rights.controller import PlacingRights
from farflung.lib.backoff import Backoff
from farflung.machinery.errors import Obj
from farflung.machinery.selectors import EVERYTHING
from farflung.placement.names import ObjectKey
from farflung.placement.resolve import Resolver
from farflung.placement.types import Destination, Effect, Location, Placement, PlacingRight, Taint, TargetForScheduling

P = ObjectKey("wmw", "p")
TAINTS = st.sampled_from([(), (), *((Taint("old", "", effect),) for effect in Effect)])
LABELS = st.fixed_dictionaries({}, optional={"region": st.sampled_from(["a", "b"])})
ALICE = Author("alice")
PLACEMENTS = st.builds(
    Placement,
    st.just(P),
    author=st.just(ALICE),
    selectors=st.just((EVERYTHING,)),
    number=st.none() | st.integers(0, 4),
    spread_by=st.sampled_from([(), ("region",)]),
)


@st.composite
def engines(draw: st.DrawFn) -> Resolver:
    engine = Resolver()
    for number in range(draw(st.integers(1, 6))):
        engine.put_location(Location(ObjectKey("imw", f"l{number}"), draw(LABELS), taints=draw(TAINTS)))
    for number in range(draw(st.integers(1, 2))):
        engine.put_target(TargetForScheduling(ObjectKey("imw", f"t{number}"), "uid", taints=draw(TAINTS)))
    engine.put_placement(draw(PLACEMENTS))
    names = draw(st.frozensets(st.sampled_from([f"l{number}" for number in range(6)])))
    if draw(st.booleans()):
        engine.put_right(ALICE, "imw", PlacingRight(draw(st.booleans()), names))
    return engine


@given(engines(), st.randoms(use_true_random=False))
def test_two_that_decided_differently_agree_after_each_has_seen_the_choice_of_the_other(
    engine: Resolver, chance: random.Random
) -> None:
    pairs = [Destination("imw", f"l{at}", f"t{target}", "uid") for at in range(6) for target in range(2)]
    decided = [frozenset(pair for pair in pairs if chance.random() < 0.4) for _ in range(2)]
    written = frozenset(pair for pair in pairs if chance.random() < 0.4)
    for turn in range(4):
        who = turn % 2
        written = decided[who] = frozenset(engine.resolve(P, decided[who] | written).destinations)
    assert decided[0] == decided[1]


def test_slices_that_another_client_keeps_changing_are_reverted_with_backoff_and_new_decisions_are_not() -> None:
    now = 0.0
    pace = WritePace(lambda: now, Backoff(1.0, 30.0, lambda: 1.0))
    waits = []
    for _ in range(8):
        pace.note(P, 1, reverting=True)
        waits.append(pace.wait(P, reverting=True))
        assert pace.wait(P) == pytest.approx(SECONDS_PER_DESTINATION)
        now += waits[-1]
    assert waits == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]
    now += REVERT_MEMORY
    pace.note(P, 1, reverting=True)
    assert pace.wait(P, reverting=True) == 1.0
    pace.forget(P)
    assert pace.wait(P, reverting=True) <= 0 >= pace.wait(P)


# --- through the wire -----------------------------------------------------------------------------


class Deaf(FaultyTransport):
    """Hears nothing of Locations for a while."""

    deaf = False

    @asynccontextmanager
    async def open(self, request: OutgoingRequest) -> AsyncIterator[Reply]:
        if self.deaf and "/locations" in request.target:
            raise Unreachable("nothing is heard")
        async with super().open(request) as reply:
            yield reply


@asynccontextmanager
async def workspaces() -> AsyncIterator[tuple[Fleet, str, str]]:
    async with fleet() as one:
        inventory, workload = [await one.hub.workspace(name) for name in ("imw", "wmw")]
        await one.hub.bind(workload, "edge", PROVIDER, "edge.kcp.io")
        yield one, inventory, workload


async def slices(one: Fleet, workload: str) -> list[Obj]:
    return await one.items(f"/clusters/{workload}{EDGE}/singleplacementslices")


async def chosen(one: Fleet, workload: str) -> list[str]:
    found = await slices(one, workload)
    return [destination["locationName"] for slice in found for destination in slice["destinations"]]


def rests(*fleets: Fleet) -> bool:
    """Nobody has anything to do, not even later."""
    managers = [one.manager for one in fleets if one.manager is not None]
    controllers = [one for manager in managers for one in manager.controllers]
    return len(managers) == len(fleets) and all(
        one.queue.idle and (not len(one.queue) or isinstance(one, PlacingRights)) for one in controllers
    )  # rights are reviewed again after a while, which writes nothing


def knows(one: Fleet, location: str) -> bool:
    assert one.manager is not None
    found = next(informer for informer in one.manager.informers if informer.collection.plural == "locations")
    return location in [key.name for key in found.cache]


async def test_two_schedulers_of_which_one_heard_late_of_what_the_other_chose_come_to_rest() -> None:
    async with workspaces() as (one, inventory, workload):
        line = Deaf(one.hub.function, OPERATOR)
        other = Fleet(one.hub, line, FaultyTransport(one.hub.function, MASTER))
        await one.target(inventory, "t", {})
        await one.location(inventory, "m", {"a": "b"}, {})
        await one.placement(workload, "p", {"matchLabels": {"a": "b"}}, numberOfLocations=1)
        try:
            await one.start()
            await other.start()

            async def led_to(*names: str) -> bool:
                return tuple(await chosen(one, workload)) == names and rests(one, other)

            await one.eventually(lambda: led_to("m"))
            line.deaf = True
            line.cut()
            await one.do("DELETE", f"/clusters/{inventory}{SCHEDULING}/locations/m")
            await one.location(inventory, "z", {"a": "b"}, {})

            async def heard() -> bool:
                return await chosen(one, workload) == ["z"]

            await one.eventually(heard)
            await one.location(inventory, "a", {"a": "b"}, {})
            line.deaf = False
            await one.eventually(lambda: knows(other, "a") and rests(one, other))
            revision = one.hub.store.revision
            for _ in range(100):
                await asyncio.sleep(0)
                assert rests(one, other)
            assert one.hub.store.revision == revision
            assert await chosen(one, workload) in (["a"], ["z"])
        finally:
            await other.crash()


async def test_a_further_slice_without_owner_and_destinations_is_repaired() -> None:
    async with workspaces() as (one, inventory, workload):
        for number in range(71):
            await one.target(inventory, f"t{number}", {})
            await one.location(inventory, f"l{number}", {"a": "b"}, {})
        await one.placement(workload, "p", {"matchLabels": {"a": "b"}})
        await one.start()

        async def whole() -> bool:
            return len(await chosen(one, workload)) == 71 * 71 and rests(one)

        await one.eventually(whole)
        further = [slice["metadata"]["name"] for slice in await slices(one, workload)][1]
        path = f"/clusters/{workload}{EDGE}/singleplacementslices/{further}"
        patch = {"metadata": {"ownerReferences": []}, "destinations": []}
        await one.do("PATCH", path, patch, content_type="application/merge-patch+json")
        await one.eventually(whole)
        owners = [slice["metadata"].get("ownerReferences") for slice in await slices(one, workload)]
        assert owners[0] and all(owner == owners[0] for owner in owners)
        assert "EdgePlacement not found" not in one.log.getvalue()
