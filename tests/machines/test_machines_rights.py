"""A machine is bound to a Cluster with a SyncTarget only if its author may place on a Location that selects it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta

import orjson
import pytest
from fleet import EDGE
from hub_harness import MERGE_PATCH
from platform_harness import ALICE, MASTER

from farflung.apis.edge.authors import author_of
from farflung.apis.edge.names import AUTHOR
from farflung.hub.tenancy.direct_writes import encode_stored
from farflung.machinery.errors import Obj
from farflung.machines import statuses
from farflung.machines.engine.values import SiteKey
from farflung.machines.failover import FailoverOptions
from machines import (
    ALLOCATIONS,
    GROUP,
    PODS,
    Machines,
    allocation,
    bind_edge,
    machine,
    machines,
    report,
)

SOON = FailoverOptions(refused=0.0, vanished=0.0)
PLACEMENTS = f"{EDGE}/edgeplacements"
LABEL = "globalscheduler.com/cluster"
CLOSED = "0/1 clusters fit: 1 closed to its author"


@dataclass
class Inventory:
    """Owns `edge1`, which the Location `all` selects, and `edge2`, which `other` selects."""

    machines: Machines
    cluster: str

    async def may(self, *names: str, allowed: bool = True) -> None:
        await self.machines.fleet.may_place(self.cluster, ALICE, *names, allowed=allowed)

    async def machine(self, name: str, by: str = ALICE) -> Obj:
        path = f"/clusters/{self.machines.shop}{PODS}"
        return await self.machines.fleet.hub.made(by, path, machine(name, "small"))

    async def destinations(self) -> list[str]:
        found = await self.machines.of_shop("GET", f"{EDGE}/singleplacementslices")
        return sorted(one["syncTargetName"] for slice in found["items"] for one in slice["destinations"])

    async def leads_to(self, *names: str) -> None:
        async def leads() -> bool:
            return await self.destinations() == [*names]

        await self.machines.fleet.eventually(leads, f"the way to {names}")

    async def closed(self, name: str, kind: str = "pod", message: str = CLOSED) -> None:
        async def is_closed() -> bool:
            return await self.machines.refused(name, kind) == message

        await self.machines.fleet.eventually(is_closed, f"{name} refused: {message}")

    async def unbound(self, name: str) -> None:
        async def is_unbound() -> bool:
            return not (await self.machines.pod(name))["spec"].get("nodeName")

        await self.machines.fleet.eventually(is_unbound, f"{name} unbound")


@asynccontextmanager
async def inventory(*, start: bool = True) -> AsyncIterator[Inventory]:
    """Alice administers the workspace with the machines.  A Cluster names a SyncTarget of the inventory."""
    async with machines(start=False, failover=SOON) as one:
        fleet = one.fleet
        imw = await fleet.hub.workspace("imw")
        rules = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}, {"nonResourceURLs": ["*"], "verbs": ["*"]}
        await fleet.hub.grant(one.shop, "owner", ALICE, *rules)
        await bind_edge(fleet, one.shop)
        for name, selected in (("all", "edge1"), ("other", "edge2")):
            await fleet.target(imw, selected, {"id": selected})
            await fleet.location(imw, name, {}, {"matchLabels": {"id": selected}})
        path = f"/clusters/{imw}/apis/scheduling.kcp.io/v1alpha1/locations/default"
        await fleet.eventually(lambda: fleet.do("GET", path), "the default Location")
        await fleet.do("DELETE", path)
        await one.cluster("az1", {"small": 9}, synctarget={"workspace": "root:imw", "name": "edge1"})
        await report(one, imw, ago=timedelta(0), cpu="64")
        if start:
            await fleet.start(scheduler=True, globals=True)
        yield Inventory(one, imw)


@pytest.fixture
async def room() -> AsyncIterator[Inventory]:
    async with inventory() as found:
        yield found


async def test_a_cluster_is_open_to_authors_who_may_place_on_a_location_of_its_sync_target(room: Inventory) -> None:
    await room.machine("vm")
    await room.closed("vm")
    await room.may("other")
    await room.machines.at_rest()
    assert not (await room.machines.pod("vm"))["spec"].get("nodeName")
    await room.may("all")
    assert await room.machines.bound("vm") == "az1"
    await room.leads_to("edge1")


async def test_a_machine_whose_author_loses_the_right_is_withdrawn_and_evicted(room: Inventory) -> None:
    await room.may()
    await room.machine("vm")
    assert await room.machines.bound("vm") == "az1"
    await room.leads_to("edge1")
    await room.may(allowed=False)
    await room.leads_to()
    await room.unbound("vm")
    assert LABEL not in (await room.machines.pod("vm"))["metadata"].get("labels", {})

    async def is_reported() -> bool:
        event = "Evicted", "Evicted from default/az1: its author may not place there"
        return event in await room.machines.events("vm")

    await room.machines.fleet.eventually(is_reported, "the event")


async def test_a_machine_that_another_client_binds_and_labels_is_not_delivered(room: Inventory) -> None:
    label = statuses.delivery_label(SiteKey(room.machines.home, "default", "az1"))
    await room.machine("vm")
    await room.closed("vm")
    bound = {
        "metadata": {
            "labels": {LABEL: label},
            "annotations": {LABEL: f"{room.machines.home}|default/az1", f"{GROUP}/flavor-id": "small"},
        },
        "spec": {"nodeName": "az1", "clusterName": "az1"},
    }
    path = f"/clusters/{room.machines.shop}{PODS}/vm"
    assert await room.machines.fleet.do("PATCH", path, bound, MASTER, content_type=MERGE_PATCH)
    await room.unbound("vm")
    await room.machines.at_rest()
    assert await room.destinations() == []
    assert (await room.machines.of_shop("GET", PLACEMENTS))["items"] == []


async def test_machines_of_one_workspace_are_delivered_by_the_rights_of_their_authors(room: Inventory) -> None:
    await room.machine("allowed", MASTER)
    await room.machine("denied")
    assert await room.machines.bound("allowed") == "az1"
    await room.closed("denied")
    await room.leads_to("edge1")
    await room.machines.restart()
    await room.machines.at_rest()
    assert not (await room.machines.pod("denied"))["spec"].get("nodeName")


async def test_an_allocation_gets_clusters_that_its_author_may_use(room: Inventory) -> None:
    path = f"/clusters/{room.machines.shop}{ALLOCATIONS}"
    made = await room.machines.fleet.hub.made(ALICE, path, allocation("stack", {"small": 1}))
    author = author_of(made["metadata"]["annotations"])
    assert author is not None and author.user == ALICE
    await room.closed("stack", "allocation")
    await room.may()
    assert await room.machines.allocated("stack") == ["az1"]


async def test_a_bound_machine_without_an_author_stays_and_a_new_one_waits() -> None:
    async with inventory() as room:
        one = room.machines
        for name in ("old", "new"):
            await room.machine(name, MASTER)
            assert await one.bound(name) == "az1"
        await room.leads_to("edge1")
        await one.fleet.crash()
        for key in one.fleet.hub.stored(one.shop):
            if "/pods" in key or "/edgeplacements" in key:
                await without_author(one, key)
        unbind = {"metadata": {"labels": {LABEL: None}, "annotations": {LABEL: None}}}
        spec = {"spec": {"nodeName": None, "clusterName": None}}
        await one.of_shop("PATCH", f"{PODS}/new", {**unbind, **spec}, content_type=MERGE_PATCH)
        await one.fleet.start(scheduler=True, globals=True)
        await room.closed("new", message="0/1 clusters fit: 1 closed, because its author is not recorded")
        assert (await one.pod("old"))["spec"]["nodeName"] == "az1"
        await one.at_rest()
        assert await room.destinations() == ["edge1"]
        claim = {"metadata": {"annotations": {AUTHOR: "me"}}}
        await one.of_shop("PATCH", f"{PODS}/new", claim, content_type=MERGE_PATCH)
        assert await one.bound("new") == "az1"


async def without_author(one: Machines, key: str) -> None:
    """As an earlier version would have written it."""
    entry = one.fleet.hub.store.get(key)
    assert entry is not None
    obj = orjson.loads(entry.value)
    if obj["metadata"].get("annotations", {}).pop(AUTHOR, None) is not None:
        await one.fleet.hub.store.put(key, encode_stored(obj), expect=entry.revision)
