"""The mailboxes that there are, whatever happens to SyncTargets, mailboxes, and the controller and its line."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from examples import examples
from fleet import EDGE, FAULTS, PROVIDER, TENANCY, WORKLOAD, Fleet, fleet
from hypothesis import given, settings
from hypothesis import strategies as st
from platform_harness import APIS

from farflung.client.errors import NotFound
from farflung.client.transport import OutgoingRequest
from farflung.machinery.errors import Obj

WORKSPACES = f"/clusters/{PROVIDER}{TENANCY}/workspaces"
MARK = "edge.kcp.io/sync-target-name"


class World:
    def __init__(self, fleet: Fleet, inventories: list[str]) -> None:
        self.fleet = fleet
        self.inventories = inventories

    async def targets(self) -> dict[str, str]:
        """The mailboxes that there should be, and the names of their SyncTargets."""
        return {
            f"{cluster}-mb-{target['metadata']['uid']}": target["metadata"]["name"]
            for cluster in self.inventories
            for target in await self.fleet.items(f"/clusters/{cluster}{WORKLOAD}/synctargets")
        }

    async def mailboxes(self) -> list[Obj]:
        return [one for one in await self.fleet.items(WORKSPACES) if "-mb-" in one["metadata"]["name"]]

    async def settled(self) -> bool:
        """There are those that should be, all furnished."""
        boxes = await self.mailboxes()
        names = {one["metadata"]["name"]: one["metadata"].get("annotations", {}).get(MARK) for one in boxes}
        if names != await self.targets() or any("deletionTimestamp" in one["metadata"] for one in boxes):
            return False
        return all([await self.furnished(one["spec"]["cluster"]) for one in boxes])

    async def furnished(self, cluster: str) -> bool:
        binding = await self.fleet.do("GET", f"/clusters/{cluster}{APIS}/apibindings/bind-edge")
        config = await self.fleet.do("GET", f"/clusters/{cluster}{EDGE}/syncerconfigs/the-one")
        if binding is None or config is None or "deletionTimestamp" in binding["metadata"]:
            return False
        return bool(binding["spec"]["reference"]["export"] == {"path": PROVIDER, "name": "edge.kcp.io"})


@asynccontextmanager
async def world() -> AsyncIterator[World]:
    async with fleet() as one:
        yield World(one, [await one.hub.workspace(name) for name in ("imw-1", "imw-2")])


Step = tuple[str, Any]
WHICH = st.tuples(st.integers(0, 1), st.sampled_from(["florin", "guilder"]))
STEPS = st.one_of(
    st.tuples(st.just("target"), WHICH),
    st.tuples(st.just("no target"), WHICH),
    st.tuples(st.just("no mailbox"), st.integers(0, 3)),
    st.tuples(st.just("no binding"), st.integers(0, 3)),
    st.tuples(st.just("no config"), st.integers(0, 3)),
    st.tuples(st.just("no mark"), st.integers(0, 3)),
    FAULTS,
)


async def perform(world: World, step: Step) -> None:
    fleet, (what, how) = world.fleet, step
    name = cluster = ""
    if what in ("no mailbox", "no binding", "no config", "no mark"):
        boxes = await world.mailboxes()
        if not boxes:
            return
        box = boxes[how % len(boxes)]
        name, cluster = box["metadata"]["name"], box["spec"].get("cluster", "none")
    match what:
        case "target":
            await fleet.target(world.inventories[how[0]], how[1], {})
        case "no target":
            await fleet.do("DELETE", f"/clusters/{world.inventories[how[0]]}{WORKLOAD}/synctargets/{how[1]}")
        case "no mailbox":
            await fleet.do("DELETE", f"{WORKSPACES}/{name}")
        case "no binding":
            await fleet.do("DELETE", f"/clusters/{cluster}{APIS}/apibindings/bind-edge")
        case "no config":
            await fleet.do("DELETE", f"/clusters/{cluster}{EDGE}/syncerconfigs/the-one")
        case "no mark":
            patch = {"metadata": {"annotations": {MARK: None}}}
            if name in await world.targets():
                await fleet.do("PATCH", f"{WORKSPACES}/{name}", patch, content_type="application/merge-patch+json")
        case _:
            await fleet.suffer(what, how, scheduler=False, mailboxes=True)


@pytest.mark.slow
@settings(max_examples=examples(25))
@given(st.lists(STEPS.filter(lambda step: step[0] != "no mark"), max_size=15))
async def test_after_any_history_there_is_one_furnished_mailbox_for_each_target_and_no_other(steps: list[Step]) -> None:
    async with world() as one:
        await one.fleet.start(scheduler=False, mailboxes=True)
        for step in steps:
            await perform(one, step)
        await one.fleet.eventually(one.settled, f"agreement after {steps}")


@asynccontextmanager
async def small_world() -> AsyncIterator[World]:
    async with world() as one:
        await one.fleet.target(one.inventories[0], "florin", {})
        await one.fleet.start(scheduler=False, mailboxes=True)
        await one.fleet.eventually(one.settled)
        yield one


@pytest.mark.parametrize("scheduler", [False, True])
async def test_mailboxes_are_bound_although_the_view_serves_no_kind_before_the_first_binding(scheduler: bool) -> None:
    """As kcp 0.11 has it."""
    async with world() as one:

        async def refuse_unbound(request: OutgoingRequest) -> None:
            if f"/edge.kcp.io/clusters/*{EDGE}/" in request.target and not [
                box
                for box in await one.mailboxes()
                if await one.fleet.do("GET", f"/clusters/{box['spec'].get('cluster')}{APIS}/apibindings/bind-edge")
            ]:
                raise NotFound(404, "NotFound", "the server could not find the requested resource")
            asked.append(request.target)

        asked: list[str] = []
        one.fleet.transport.gate = refuse_unbound
        await one.fleet.target(one.inventories[0], "florin", {})
        await one.fleet.start(scheduler=scheduler, mailboxes=True)
        await one.fleet.eventually(one.settled)
        await one.fleet.eventually(lambda: any(f"{EDGE}/syncerconfigs?" in target for target in asked), "the watch")
        assert one.fleet.manager is not None
        manager = one.fleet.manager
        await one.fleet.eventually(lambda: manager.started, "the other controllers")
        [box] = await one.mailboxes()
        await perform(one, ("no config", 0))
        await one.fleet.eventually(lambda: one.furnished(box["spec"]["cluster"]), "the SyncerConfig again")


async def test_the_log_says_what_was_made_in_the_words_that_people_search_for() -> None:
    async with small_world() as one:
        [box] = await one.mailboxes()
        name, cluster = box["metadata"]["name"], box["spec"]["cluster"]
        log = one.fleet.log.getvalue()
        assert re.search(rf'"Created missing workspace" worker=\d mbwsName="{name}"\n', log)
        created = rf'"Created APIBinding" worker=\d mbwsName="{name}" mbwsCluster="{cluster}" bindingName="bind-edge" '
        assert re.search(rf"{created}resourceVersion=", log)


@pytest.mark.parametrize("what", ["no mailbox", "no binding", "no config", "no mark"])
async def test_objects_that_another_client_deletes_are_created_again(what: str) -> None:
    async with small_world() as one:
        await perform(one, (what, 0))
        await one.fleet.eventually(one.settled, what)


async def test_a_binding_of_another_export_is_replaced() -> None:
    async with small_world() as one:
        [box] = await one.mailboxes()
        path = f"/clusters/{box['spec']['cluster']}{APIS}/apibindings"
        await one.fleet.crash()
        await one.fleet.do("DELETE", f"{path}/bind-edge")
        await one.fleet.eventually(lambda: without(one, f"{path}/bind-edge"))
        await one.fleet.hub.bind(box["spec"]["cluster"], "bind-edge", "root", "topology.kcp.io")
        await one.fleet.start(scheduler=False, mailboxes=True)
        await one.fleet.eventually(one.settled)


async def without(one: World, path: str) -> bool:
    return await one.fleet.do("GET", path) is None


async def test_a_target_that_is_made_again_gets_another_mailbox() -> None:
    async with small_world() as one:
        [before] = await one.mailboxes()
        await perform(one, ("no target", (0, "florin")))
        await perform(one, ("target", (0, "florin")))
        await one.fleet.eventually(one.settled)
        [after] = await one.mailboxes()
        assert before["metadata"]["name"] != after["metadata"]["name"]


async def test_a_workspace_that_only_looks_like_a_mailbox_is_left_alone() -> None:
    async with small_world() as one:
        alike = f"{one.inventories[0]}-mb-00000000-0000-4000-8000-ffffffffffff"
        await one.fleet.hub.workspace(alike, parent=PROVIDER)
        await one.fleet.hub.workspace("shop", parent=PROVIDER)
        await one.fleet.crash()
        await one.fleet.start(scheduler=False, mailboxes=True)
        await one.fleet.eventually(lambda: alike in one.fleet.log.getvalue())
        names = {box["metadata"]["name"] for box in await one.fleet.items(WORKSPACES)}
        assert {alike, "shop"} < names


async def test_a_target_that_the_view_does_not_show_keeps_its_mailbox() -> None:
    """As after a mistake with its export: then a whole list is empty, and nothing must go."""
    async with small_world() as one:
        [box] = await one.mailboxes()
        await one.fleet.crash()
        hidden = one.fleet.transport.function

        def empty(request: Any) -> Any:
            if "/services/apiexport/root/workload.kcp.io/clusters/*" in request.path and "watch=" not in request.query:
                request.path = request.path.replace("/clusters/*", f"/clusters/{one.inventories[1]}")
            return hidden(request)

        one.fleet.transport.function = empty
        await one.fleet.start(scheduler=False, mailboxes=True)
        await one.fleet.eventually(lambda: "its mailbox is kept" in one.fleet.log.getvalue())
        assert [other["metadata"]["uid"] for other in await one.mailboxes()] == [box["metadata"]["uid"]]
