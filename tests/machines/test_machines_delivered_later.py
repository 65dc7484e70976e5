"""Clusters that come to have a SyncTarget, another one, or none, when something is bound to them already."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest
from fleet import PROVIDER, TENANCY
from hub_harness import MERGE_PATCH
from platform_harness import MASTER

from farflung.client.transport import OutgoingRequest
from farflung.machinery.errors import Obj
from farflung.machines.failover import FailoverOptions
from machines import CLUSTERS, PODS, Machines, bind_edge, machine, machines, report

LABEL = "globalscheduler.com/cluster"
PLACEMENTS = "/apis/edge.kcp.io/v1alpha1/edgeplacements"
RETURNED = "edge.kcp.io/status-returned-from"
WORKSPACES = f"/clusters/{PROVIDER}{TENANCY}/workspaces"


class Stage:
    """Clusters in `home`, machines in `home` and in `shop`, and two SyncTargets."""

    def __init__(self, one: Machines, imw: str) -> None:
        self.one = one
        self.imw = imw

    def reference(self, name: str) -> Obj:
        return {"workspace": self.imw, "name": name}

    async def stands_for(self, cluster: str, target: str | None) -> None:
        wanted = None if target is None else self.reference(target)
        patch = {"spec": {"synctarget": wanted}}
        await self.one.of_home("PATCH", f"{CLUSTERS}/{cluster}", patch, content_type=MERGE_PATCH)

    async def led(self, workspace: str) -> dict[str, str]:
        """Machines of a workspace, and the SyncTargets that they are led to."""
        found = {}
        ways = {}
        for one in (await self._of(workspace, PLACEMENTS))["items"]:
            [what] = one["spec"]["downsync"]
            ways[what["labelSelectors"][0]["matchLabels"][LABEL]] = one["spec"]["where"].split('"')[1]
        for pod in (await self._of(workspace, PODS))["items"]:
            found[pod["metadata"]["name"]] = ways.get((pod["metadata"].get("labels") or {}).get(LABEL, ""), "")
        return found

    def are_led(self, workspace: str, **where: str) -> Callable[[], Awaitable[bool]]:
        async def is_so() -> bool:
            return await self.led(workspace) == where

        return is_so

    async def copied(self, name: str) -> dict[str, str]:
        """The SyncTargets that a machine of this name was copied to, and the workspace that it is of."""
        found = {}
        for one in await self.one.fleet.items(WORKSPACES):
            copy = await self._of(one["spec"].get("cluster", "none"), f"{PODS}/{name}")
            if projection := copy.get("metadata", {}).get("annotations", {}).get("edge.kcp.io/projection"):
                [source] = json.loads(projection)["sources"]
                found[one["metadata"]["annotations"]["edge.kcp.io/sync-target-name"]] = source.partition("|")[0]
        return found

    def is_copied(self, name: str, **where: str) -> Callable[[], Awaitable[bool]]:
        async def is_so() -> bool:
            return await self.copied(name) == where

        return is_so

    async def pod(self, workspace: str, name: str) -> Obj:
        return await self._of(workspace, f"{PODS}/{name}")

    async def _of(self, workspace: str, path: str) -> Obj:
        found: Obj = (await self.one.fleet.hub.of(MASTER, "GET", f"/clusters/{workspace}{path}")).json
        return found


@asynccontextmanager
async def stage(failover: FailoverOptions | None = None, *, copies: bool = False) -> AsyncIterator[Stage]:
    """`copies`: machines are copied to mailboxes."""
    async with machines(start=False, **({} if failover is None else {"failover": failover})) as one:
        imw = await one.fleet.hub.workspace("imw")
        for workspace in (one.home, one.shop):
            await bind_edge(one.fleet, workspace)
        for name in ("edge1", "edge2"):
            await one.fleet.target(imw, name, {})
        await report(one, imw, ago=timedelta(0), cpu="9")
        if copies:
            await one.fleet.location(imw, "all", {}, {})
        await one.fleet.start(scheduler=copies, mailboxes=copies, translator=copies, globals=True)
        yield Stage(one, imw)


@pytest.mark.parametrize("is_down", [False, True], ids=["while it runs", "while it is down"])
async def test_what_was_bound_before_follows_the_synctarget_that_its_cluster_names(is_down: bool) -> None:
    async with stage() as here:
        one = here.one
        await one.cluster("az1", {"small": 9})
        for name in ("a", "b"):
            await one.machine(name)
            await one.bound(name)
        assert LABEL not in (await one.pod("a"))["metadata"].get("labels", {})  # which would be a write for nothing
        for target in ("edge1", "edge2", None, "edge1", None):
            if is_down:
                await one.fleet.crash()
            await here.stands_for("az1", target)
            if is_down:
                await one.start()
            wanted = target or ""
            await one.fleet.eventually(here.are_led(one.shop, a=wanted, b=wanted), f"the way to {target}")
            await one.at_rest()
            assert bool((await one.of_shop("GET", PLACEMENTS))["items"]) is (target is not None)
            marks = [LABEL in pod["metadata"].get("labels", {}) for pod in await one.pods()]
            assert marks == [target is not None] * 2
        assert [pod["spec"]["nodeName"] for pod in await one.pods()] == ["az1", "az1"]


async def test_of_machines_of_one_name_that_were_bound_before_one_is_brought_and_the_other_goes_elsewhere() -> None:
    async with stage(FailoverOptions(refused=0.0), copies=True) as here:
        one = here.one
        await one.cluster("az1", {"small": 9})
        await one.of_home("POST", PODS, machine("a"))
        one.fleet.hub.now += timedelta(seconds=2)
        await one.machine("a")
        await one.machine("b")
        for name in ("a", "b"):
            await one.bound(name)
        await here.stands_for("az1", "edge1")
        why = "0/1 clusters fit: 1 has a machine of that name"

        async def is_told() -> bool:
            return await one.refused("a") == why

        await one.fleet.eventually(is_told, "why the younger one has no place")

        async def has_left() -> bool:
            said = "Evicted from default/az1: its name or namespace is in use there"
            return ("Evicted", said) in await one.events("a")

        await one.fleet.eventually(has_left, "the event")
        assert LABEL not in (await one.pod("a"))["metadata"].get("labels", {})
        await one.fleet.eventually(here.is_copied("a", edge1=one.home), "the copy of the older one")
        await one.fleet.eventually(here.is_copied("b", edge1=one.shop), "the copy of another one")
        refusals = {"metadata": {"annotations": {"globalscheduler.com/refused-by": None}}}
        await one.of_shop("PATCH", f"{PODS}/a", refusals, content_type=MERGE_PATCH)  # else it waits for a minute
        await one.of_home("DELETE", f"{PODS}/a")
        await one.fleet.eventually(here.is_copied("a", edge1=one.shop), "that it goes there now")


async def test_a_machine_is_not_displaced_by_one_whose_cluster_comes_to_have_the_same_synctarget() -> None:
    async with stage(copies=True) as here:
        one = here.one
        await one.cluster("az1", {"small": 9}, synctarget=here.reference("edge1"))
        one.fleet.hub.now += timedelta(seconds=2)
        await one.cluster("az2", {"large": 9}, zone="az2")
        await one.of_home("POST", PODS, machine("a", "large"))
        one.fleet.hub.now += timedelta(seconds=2)
        await one.machine("a")
        await one.bound("a")
        await one.fleet.eventually(here.is_copied("a", edge1=one.shop), "the copy of one")
        await here.stands_for("az2", "edge2")
        await one.fleet.eventually(here.is_copied("a", edge1=one.shop, edge2=one.home), "the copy of the other")
        await here.stands_for("az2", "edge1")

        async def is_told() -> bool:
            conditions = (await here.pod(one.home, "a")).get("status", {}).get("conditions", ())
            return "NameInUse" in [condition.get("reason") for condition in conditions]

        await one.fleet.eventually(is_told, "that the name is taken")
        await one.at_rest()
        assert await here.copied("a") == {"edge1": one.shop}
        await here.stands_for("az2", "edge2")
        await one.fleet.eventually(here.is_copied("a", edge1=one.shop, edge2=one.home), "that it is back")


@pytest.mark.parametrize("others", [("edge2",), (None, "edge2"), (None, "edge1")])
async def test_what_has_ended_is_not_run_again_by_another_synctarget(others: tuple[str | None, ...]) -> None:
    async with stage() as here:
        one = here.one
        await one.cluster("az1", {"small": 9}, synctarget=here.reference("edge1"))
        for name in ("a", "b"):
            await one.machine(name)
            await one.bound(name)
        notes = {"metadata": {"annotations": {RETURNED: "edge1"}}}
        await one.of_shop("PATCH", f"{PODS}/a", notes, content_type=MERGE_PATCH)
        ended = {"status": {"phase": "Failed"}}
        await one.of_shop("PATCH", f"{PODS}/a/status", ended, content_type=MERGE_PATCH)
        await one.fleet.eventually(here.are_led(one.shop, a="edge1", b="edge1"), "that both are there")
        await one.at_rest()
        assert await here.led(one.shop) == {"a": "edge1", "b": "edge1"}  # somebody may want to know why
        for target in others:
            await here.stands_for("az1", target)
            await one.fleet.eventually(here.are_led(one.shop, a="", b=target or ""), f"the way to {target}")
        await one.restart()
        await one.at_rest()
        assert await here.led(one.shop) == {"a": "", "b": others[-1] or ""}


async def test_nobody_waits_for_a_workspace_whose_machine_cannot_be_unmarked() -> None:
    async with stage() as here:
        one = here.one
        await one.cluster("az1", {"small": 9}, synctarget=here.reference("edge1"))
        await one.machine("a")
        await one.bound("a")
        await one.of_home("POST", PODS, machine("b"))
        await one.fleet.eventually(here.are_led(one.home, b="edge1"), "the way of a neighbour")
        notes = {"metadata": {"annotations": {RETURNED: "edge1"}}}
        await one.of_shop("PATCH", f"{PODS}/a", notes, content_type=MERGE_PATCH)
        ended = {"status": {"phase": "Failed"}}
        await one.of_shop("PATCH", f"{PODS}/a/status", ended, content_type=MERGE_PATCH)
        writes = 0

        async def write_first(request: OutgoingRequest) -> None:
            nonlocal writes
            if request.method == "PATCH" and f"{PODS}/a" in request.target:
                writes += 1
                word = {"metadata": {"annotations": {"writes": str(writes)}}}
                await one.of_shop("PATCH", f"{PODS}/a", word, content_type=MERGE_PATCH)

        one.fleet.masters.gate = write_first
        await here.stands_for("az1", "edge2")
        await one.fleet.eventually(here.are_led(one.home, b="edge2"), "the way of the neighbour")
        assert writes and await here.led(one.shop) == {"a": "edge1"}
        one.fleet.masters.gate = None
        await one.fleet.eventually(here.are_led(one.shop, a=""), "that it goes nowhere")
