"""The slices that the scheduler stores, whatever happens to it, its line and its slices."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from examples import examples
from fleet import EDGE, FAULTS, PROVIDER, SCHEDULING, WORKLOAD, Fleet, fleet
from hypothesis import given, settings
from hypothesis import strategies as st
from platform_harness import ALICE, OPERATOR
from simulated_time import LONGER

from farflung.client.transport import OutgoingRequest
from farflung.machinery.errors import Obj
from farflung.machinery.selectors import selector_of

Destinations = list[tuple[str, str, str, str]]
Step = tuple[str, Any]


class World:
    """Two workspaces with Locations and SyncTargets, two with placements.  Those of the second are alice's, who may use
    what she was granted."""

    def __init__(self, fleet: Fleet, inventories: list[str], workloads: list[str]) -> None:
        self.fleet = fleet
        self.inventories = inventories
        self.workloads = workloads
        self.granted: dict[str, set[str] | None] = {}  #: names of Locations that alice may use; None: all

    def may_place(self, placement: Obj, location: Obj) -> bool:
        names = self.granted.get(cluster_of(location), set())
        return cluster_of(placement) == self.workloads[0] or names is None or name_of(location) in names

    async def join(self) -> dict[tuple[str, str], Destinations]:
        """Where each placement should lead, by nested loops over what the API says now."""
        locations, targets, placements = [
            [obj for cluster in clusters for obj in await self.fleet.items(f"/clusters/{cluster}{path}")]
            for clusters, path in (
                (self.inventories, f"{SCHEDULING}/locations"),
                (self.inventories, f"{WORKLOAD}/synctargets"),
                (self.workloads, f"{EDGE}/edgeplacements"),
            )
        ]
        return {
            (cluster_of(placement), name_of(placement)): sorted(
                (cluster_of(target), name_of(location), name_of(target), target["metadata"]["uid"])
                for location in locations
                for target in targets
                if cluster_of(location) == cluster_of(target)
                and self.may_place(placement, location)
                and any(fits(one, location) for one in placement["spec"].get("locationSelectors") or ())
                and fits(location["spec"]["instanceSelector"], target)
            )
            for placement in placements
        }

    async def stored(self) -> dict[tuple[str, str], Destinations]:
        """Where each placement leads, as the slices say that belong to it."""
        found: dict[tuple[str, str], Destinations] = {}
        for cluster in self.workloads:
            for obj in await self.fleet.items(f"/clusters/{cluster}{EDGE}/edgeplacements"):
                slice = await self.fleet.do("GET", f"/clusters/{cluster}{EDGE}/singleplacementslices/{name_of(obj)}")
                owners = [] if slice is None else slice["metadata"].get("ownerReferences") or []
                if slice is not None and [one["uid"] for one in owners] == [obj["metadata"]["uid"]]:
                    found[cluster, name_of(obj)] = [tuple(one.values()) for one in map(entry, slice["destinations"])]
        return found

    async def settled(self) -> bool:
        return await self.stored() == await self.join()


def entry(destination: Obj) -> Obj:
    return {field: destination[field] for field in ("cluster", "locationName", "syncTargetName", "syncTargetUID")}


def fits(selector: Obj, obj: Obj) -> bool:
    return selector_of(selector).matches(obj["metadata"].get("labels") or {})


def cluster_of(obj: Obj) -> str:
    return str(obj["metadata"]["annotations"]["kcp.io/cluster"])


def name_of(obj: Obj) -> str:
    return str(obj["metadata"]["name"])


@asynccontextmanager
async def world() -> AsyncIterator[World]:
    async with fleet() as one:
        clusters = [await one.hub.workspace(name) for name in ("imw-1", "imw-2", "wmw-1", "wmw-2")]
        for cluster in clusters[2:]:
            await one.hub.bind(cluster, "edge", PROVIDER, "edge.kcp.io")
        await one.hub.grant(clusters[3], "owner", ALICE, *ALL)
        yield World(one, clusters[:2], clusters[2:])


ALL = (
    {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
    {"nonResourceURLs": ["*"], "verbs": ["*"]},
)
LABELS = st.dictionaries(st.just("env"), st.sampled_from(["prod", "dev"]))
EXPRESSIONS = st.sampled_from(
    [
        {"key": "env", "operator": "In", "values": ["prod", "dev"]},
        {"key": "env", "operator": "NotIn", "values": ["prod"]},
        {"key": "env", "operator": "Exists"},
        {"key": "env", "operator": "DoesNotExist"},
    ]
)
SELECTORS = st.one_of(
    st.just({}),
    LABELS.map(lambda labels: {"matchLabels": labels}),
    EXPRESSIONS.map(lambda one: {"matchExpressions": [one]}),
)
WHICH = st.integers(0, 1)
STEPS = st.one_of(
    st.tuples(st.just("location"), st.tuples(WHICH, st.sampled_from(["l1", "l2"]), LABELS, SELECTORS)),
    st.tuples(st.just("target"), st.tuples(WHICH, st.sampled_from(["t1", "t2"]), LABELS)),
    st.tuples(st.just("placement"), st.tuples(WHICH, st.sampled_from(["p1", "p2"]), st.lists(SELECTORS, max_size=2))),
    st.tuples(st.just("right"), st.tuples(WHICH, st.sampled_from([None, (), ("l1",), ("l2", "l3")]))),
    st.tuples(st.just("no right"), WHICH),
    st.tuples(st.just("no location"), st.tuples(WHICH, st.sampled_from(["l1", "l2"]))),
    st.tuples(st.just("no target"), st.tuples(WHICH, st.sampled_from(["t1", "t2"]))),
    st.tuples(st.just("no placement"), st.tuples(WHICH, st.sampled_from(["p1", "p2"]))),
    st.tuples(st.just("no slice"), st.tuples(WHICH, st.sampled_from(["p1", "p2"]))),
    st.tuples(st.just("another slice"), st.tuples(WHICH, st.sampled_from(["p1", "p2"]))),
    FAULTS,
)


async def perform(world: World, step: Step) -> None:
    fleet, (what, how) = world.fleet, step
    inventory, workload = world.inventories, world.workloads
    slices = f"{EDGE}/singleplacementslices"
    match what:
        case "location":
            await fleet.location(inventory[how[0]], how[1], how[2], how[3])
        case "target":
            await fleet.target(inventory[how[0]], how[1], how[2])
        case "placement":
            where = f"/clusters/{workload[how[0]]}{EDGE}/edgeplacements"
            by = ALICE if how[0] else OPERATOR
            await fleet.put(where, "EdgePlacement", how[1], by=by, spec={"locationSelectors": how[2]})
        case "right":
            allowed, names = how[1] is not None, how[1] or ()
            world.granted[inventory[how[0]]] = (set(names) or None) if allowed else set()
            await fleet.may_place(inventory[how[0]], ALICE, *names, allowed=allowed)
        case "no right":
            world.granted[inventory[how]] = set()
            path = f"/clusters/{inventory[how]}/apis/rbac.authorization.k8s.io/v1"
            await fleet.do("DELETE", f"{path}/clusterrolebindings/place-alice")
        case "no location":
            await fleet.do("DELETE", f"/clusters/{inventory[how[0]]}{SCHEDULING}/locations/{how[1]}")
        case "no target":
            await fleet.do("DELETE", f"/clusters/{inventory[how[0]]}{WORKLOAD}/synctargets/{how[1]}")
        case "no placement":
            await fleet.do("DELETE", f"/clusters/{workload[how[0]]}{EDGE}/edgeplacements/{how[1]}")
        case "no slice":
            await fleet.do("DELETE", f"/clusters/{workload[how[0]]}{slices}/{how[1]}")
        case "another slice":
            wrong = {"cluster": "c", "locationName": "l", "syncTargetName": "t", "syncTargetUID": "u"}
            await fleet.put(
                f"/clusters/{workload[how[0]]}{slices}", "SinglePlacementSlice", how[1], destinations=[wrong]
            )
        case _:
            await fleet.suffer(what, how)


@pytest.mark.slow
@settings(max_examples=examples(40))
@given(st.lists(STEPS, max_size=25))
async def test_after_any_history_the_slices_say_what_nested_loops_say_and_nothing_more_is_written(
    steps: list[Step],
) -> None:
    async with world() as one:
        await one.fleet.start()
        for step in steps:
            await perform(one, step)
        await one.fleet.eventually(one.settled, f"agreement after {steps}")
        await at_rest(one)
        with one.fleet.hub.writes_nothing():
            await one.fleet.crash()
            await one.fleet.start()
            await at_rest(one)


async def at_rest(one: World) -> None:
    """Until nothing is written for longer than any controller pauses."""
    hub, last = one.fleet.hub, -1
    while last != hub.store.revision:
        last = hub.store.revision
        await asyncio.sleep(LONGER)
        await one.fleet.eventually(lambda: one.fleet.manager is not None and one.fleet.manager.idle, "rest")


async def turns() -> None:
    for _ in range(200):
        await asyncio.sleep(0)


# --- what is said in words ------------------------------------------------------------------------


@asynccontextmanager
async def small_world() -> AsyncIterator[World]:
    """One Location with one SyncTarget, a placement that leads there, and a scheduler."""
    async with world() as one:
        await one.fleet.target(one.inventories[0], "t1", {"env": "prod"})
        await one.fleet.eventually(lambda: default_location(one), "the default Location")
        await one.fleet.do("DELETE", f"/clusters/{one.inventories[0]}{SCHEDULING}/locations/default")
        await one.fleet.location(one.inventories[0], "l1", {"env": "prod"}, {})
        await one.fleet.placement(one.workloads[0], "p1", {"matchLabels": {"env": "prod"}})
        await one.fleet.start()
        await one.fleet.eventually(one.settled)
        yield one


async def default_location(one: World) -> Obj | None:
    return await one.fleet.do("GET", f"/clusters/{one.inventories[0]}{SCHEDULING}/locations/default")


async def placement(one: World, name: str = "p1") -> Obj:
    found = await one.fleet.do("GET", f"/clusters/{one.workloads[0]}{EDGE}/edgeplacements/{name}")
    assert found is not None
    return found


async def slices(one: World) -> list[Obj]:
    return await one.fleet.items(f"/clusters/{one.workloads[0]}{EDGE}/singleplacementslices")


async def test_the_status_of_a_placement_counts_matching_locations() -> None:
    async with small_world() as one:

        async def told() -> bool:
            status = (await placement(one)).get("status") or {}
            return (status.get("specGeneration"), status.get("matchingLocationCount")) == (1, 1)

        await one.fleet.eventually(told)


async def test_an_invalid_selector_is_reported_with_its_path_keeps_the_last_slice_and_harms_no_other_placement() -> (
    None
):
    async with small_world() as one:
        before = await one.stored()
        broken = {"matchExpressions": [{"key": "env", "operator": "Near", "values": ["x"]}]}
        await one.fleet.placement(one.workloads[0], "p1", {"matchLabels": {"env": "prod"}}, broken)
        await one.fleet.placement(one.workloads[0], "p2", {})

        async def told() -> bool:
            conditions = ((await placement(one)).get("status") or {}).get("conditions") or []
            return any("spec.locationSelectors[1].matchExpressions[0]" in one.get("message", "") for one in conditions)

        await one.fleet.eventually(told)
        await one.fleet.eventually(lambda: led(one, "p2", 1))
        assert (await one.stored())[one.workloads[0], "p1"] == before[one.workloads[0], "p1"]
        await one.fleet.placement(one.workloads[0], "p1", {"matchLabels": {"env": "dev"}})
        await one.fleet.eventually(one.settled)


async def led(one: World, name: str, count: int) -> bool:
    return len((await one.stored()).get((one.workloads[0], name), [])) == count


async def test_a_slice_that_others_change_or_delete_is_mended_and_what_they_added_beside_stays() -> None:
    async with small_world() as one:
        path = f"/clusters/{one.workloads[0]}{EDGE}/singleplacementslices/p1"
        patch = {"metadata": {"labels": {"mine": "yes"}, "ownerReferences": []}, "destinations": []}
        await one.fleet.do("PATCH", path, patch, content_type="application/merge-patch+json")
        await one.fleet.eventually(one.settled)
        assert [slice["metadata"]["labels"] for slice in await slices(one)] == [{"mine": "yes"}]
        await one.fleet.do("DELETE", path)
        await one.fleet.eventually(one.settled)


async def test_the_slice_is_deleted_with_its_placement_and_created_for_another_of_that_name() -> None:
    async with small_world() as one:
        path = f"/clusters/{one.workloads[0]}{EDGE}/edgeplacements"
        await one.fleet.do("DELETE", f"{path}/p1")
        await one.fleet.eventually(lambda: gone(one))
        await one.fleet.placement(one.workloads[0], "p1", {})
        await one.fleet.eventually(one.settled)
        await one.fleet.do("DELETE", f"{path}/p1")
        await one.fleet.placement(one.workloads[0], "p1", {})
        await one.fleet.eventually(one.settled)
        await at_rest(one)
        assert await one.settled()


async def gone(one: World) -> bool:
    return not await slices(one)


async def test_a_scheduler_that_cannot_reach_the_hub_changes_nothing_and_continues_later() -> None:
    async with small_world() as one:
        before = await one.stored()
        one.fleet.transport.go_down()
        await one.fleet.do("DELETE", f"/clusters/{one.inventories[0]}{WORKLOAD}/synctargets/t1")
        await turns()
        assert await one.stored() == before
        one.fleet.transport.up = True
        await one.fleet.eventually(one.settled)
        assert before != await one.stored()


async def test_every_placement_is_written_once_when_a_scheduler_starts_among_many() -> None:
    async with world() as one:
        for number in range(20):
            await one.fleet.location(one.inventories[0], f"l{number}", {}, {})
            await one.fleet.placement(one.workloads[0], f"p{number}", {})
        await one.fleet.target(one.inventories[0], "t", {})
        await one.fleet.eventually(lambda: default_location(one), "the default Location")
        one.fleet.transport.requests.clear()
        await one.fleet.start()
        await one.fleet.eventually(one.settled)
        await at_rest(one)
        written = [request.target.partition("?")[0] for request in one.fleet.transport.writes]
        assert len([path for path in written if path.endswith("/singleplacementslices")]) == 20
        assert len([path for path in written if path.endswith("/status")]) == 20
        assert len(written) == 40


async def test_placements_with_expensive_expressions_do_not_delay_those_of_another_workspace() -> None:
    """The attack: the scheduler evaluated a hundred expressions, each for a second, before it had another turn."""
    expensive = "".join(f"[0,1,2,3,4,5,6,7].all({name}, " for name in "abcd") + "a + b + c + d >= 0" + ")" * 4
    async with world() as one:
        await one.fleet.target(one.inventories[0], "t1", {})
        await one.fleet.eventually(lambda: default_location(one), "the default Location")
        for number in range(2, 5):
            await one.fleet.target(one.inventories[0], f"t{number}", {})
        for number in range(10):
            await one.fleet.placement(one.workloads[0], f"p{number}", {}, where=expensive)
        await one.fleet.placement(one.workloads[1], "mine", {})
        writes: list[str] = []

        async def note(request: OutgoingRequest) -> None:
            if request.method == "POST" and "/singleplacementslices" in request.target:
                writes.append(request.target.split("/clusters/")[1].partition("/")[0])

        one.fleet.transport.gate = note
        await one.fleet.start()
        await one.fleet.eventually(lambda: len(writes) == 11)
        assert writes.index(one.workloads[1]) <= 1
        assert [len(found) for found in (await one.stored()).values()] == [4] * 11


EXPORTS = "/clusters/root/apis/apis.kcp.io/v1alpha1/apiexports"


@pytest.mark.parametrize(("export", "plural"), [("scheduling.kcp.io", "locations"), ("workload.kcp.io", "synctargets")])
async def test_an_export_that_is_made_anew_with_another_identity_empties_no_slice(export: str, plural: str) -> None:
    async with small_world() as one:
        fleet = one.fleet
        before = await fleet.do("GET", f"{EXPORTS}/{export}")
        assert before is not None and fleet.manager is not None
        secret = before["spec"].pop("identity")["secretRef"]
        informer = next(found for found in fleet.manager.informers if found.collection.plural == plural)
        await fleet.do("DELETE", f"{EXPORTS}/{export}")
        await fleet.do("DELETE", f"/clusters/root/api/v1/namespaces/{secret['namespace']}/secrets/{secret['name']}")
        fleet.transport.cut()
        await fleet.eventually(lambda: informer.troubles > 2)
        await fleet.put(EXPORTS, "APIExport", export, spec=before["spec"])
        await fleet.location(one.inventories[0], "l2", {"env": "prod"}, {})
        await fleet.target(one.inventories[0], "t2", {"env": "prod"})
        await fleet.eventually(lambda: led(one, "p1", 4))
        after = await fleet.do("GET", f"{EXPORTS}/{export}")
        assert after is not None and after["status"]["identityHash"] != before["status"]["identityHash"]
        assert "didn't sync" not in fleet.log.getvalue()
        [slice] = await slices(one)
        assert slice["metadata"]["generation"] <= 3, "it never lost what it had"
