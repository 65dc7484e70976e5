"""What the translator does while what has to be around a copy is going, or on its way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import msgspec
import orjson
import pytest
from platform_harness import APIS
from provider_harness import schema
from translated import (
    DEFINITIONS,
    MAPS,
    NAMESPACES,
    PROD,
    SHOP,
    World,
    config_map,
    definition,
    inside,
    namespace,
    shop,
    widget,
)

from farflung.client.transport import OutgoingRequest
from farflung.machinery.errors import Obj
from farflung.placement.names import GroupResource, PlacementKey
from farflung.placement.select import parse_workload_selector
from farflung.placement.state import SERVING_TIMEOUT
from farflung.placement.types import ObservedObject, Placement, Workspace

WIDGETS = inside("shop", "widgets", "example.org/v1")
BINDINGS = f"{APIS}/apibindings"


def upsyncs(name: str) -> list[Obj]:
    return [{"apiGroup": "apis.kcp.io", "resources": ["apibindings"], "resourceNames": [name]}]


@dataclass
class Gate:
    """Holds requests of a kind until it is opened."""

    method: str
    ending: str  #: of the path
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    opened: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, request: OutgoingRequest) -> None:
        if request.method == self.method and request.target.partition("?")[0].endswith(self.ending):
            self.reached.set()
            await self.opened.wait()


@asynccontextmanager
async def gated(one: World, method: str, ending: str) -> AsyncIterator[Gate]:
    gate = one.fleet.masters.gate = Gate(method, ending)
    try:
        yield gate
    finally:
        gate.opened.set()
        one.fleet.masters.gate = None


async def turns(count: int = 200) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def relabel(one: World, env: str) -> None:
    await one.must_put(one.workloads[0], NAMESPACES, namespace("shop", env=env))


async def data(one: World, name: str) -> dict[str, str] | None:
    copy = await one.copy("florin", f"{MAPS}/{name}")
    return None if copy is None or "deletionTimestamp" in copy["metadata"] else copy["data"]


async def has_both(one: World) -> bool:
    return await data(one, "prices") == {"tea": "3"} and await data(one, "new") == {"a": "1"}


def creations(one: World, what: str) -> int:
    lines = one.fleet.log.getvalue().splitlines()
    return sum("Created object in mailbox" in line and what in line for line in lines)


async def test_who_writes_to_a_copy_at_the_same_time_is_no_trouble_and_the_copy_follows() -> None:
    async with shop() as one:
        await one.at_rest()
        async with gated(one, "PUT", "/configmaps/prices") as gate:
            await one.must_put(one.workloads[0], MAPS, config_map("prices", {"tea": "4"}))
            await one.fleet.eventually(gate.reached.is_set, "the copy is to be changed")
            await one.patch(one.boxes["florin"], f"{MAPS}/prices", {"metadata": {"labels": {"theirs": "x"}}})
        await one.fleet.eventually(lambda: has_tea(one, "4"))
        assert "conflict with another writer" in one.fleet.log.getvalue()
        assert "didn't sync" not in one.fleet.log.getvalue()


async def has_tea(one: World, price: str) -> bool:
    return await data(one, "prices") == {"tea": price}


# --- a namespace that goes ------------------------------------------------------------------------


async def test_a_copy_in_a_terminating_namespace_is_created_once_after_its_deletion() -> None:
    async with shop() as one:
        await one.at_rest()
        async with gated(one, "DELETE", "/namespaces/shop") as gate:
            await relabel(one, "dev")
            await one.fleet.eventually(gate.reached.is_set, "the namespace is to be deleted")
            await relabel(one, "prod")
            await one.must_put(one.workloads[0], MAPS, config_map("new", {"a": "1"}))
            await turns()
            assert await one.lacks(["florin"], f"{MAPS}/new"), "it would go with the namespace"
        await one.fleet.eventually(lambda: has_both(one), "both come")
        await one.at_rest()
        assert await has_both(one)
        assert creations(one, "configmaps shop/new") == 1
        assert [reason for reason, _ in await one.events()] == []
        assert await one.says("Projected")


async def test_a_late_deletion_does_not_delete_a_selected_copy() -> None:
    """The namespace was changed meanwhile, and the one who asks for its deletion does not know it any more."""
    async with shop() as one:
        await one.at_rest()
        async with gated(one, "DELETE", "/namespaces/shop") as gate:
            await relabel(one, "dev")
            await one.fleet.eventually(gate.reached.is_set, "the namespace is to be deleted")
            await one.patch(one.boxes["florin"], SHOP, {"metadata": {"labels": {"theirs": "1"}}})
            await relabel(one, "prod")
            await one.must_put(one.workloads[0], MAPS, config_map("new", {"a": "1"}))
            await turns()
        await one.fleet.eventually(lambda: has_both(one), "both come")
        around = await one.copy("florin", SHOP)
        assert around is not None
        assert around["metadata"]["labels"]["theirs"] == "1", "it was never gone"


@pytest.mark.parametrize("number", [0, 10])
async def test_what_is_put_into_a_namespace_at_any_moment_of_its_end_arrives(number: int) -> None:
    async with shop() as one:
        await one.at_rest()
        await relabel(one, "dev")
        await turns(number)
        await relabel(one, "prod")
        await one.must_put(one.workloads[0], MAPS, config_map("new", {"a": "1"}))
        await one.fleet.eventually(lambda: has_both(one), "both come")
        await one.at_rest()
        assert await has_both(one)
        assert "Refused" not in [reason for reason, _ in await one.events()]


async def test_a_namespace_that_another_client_deletes_is_restored_with_its_copies() -> None:
    async with shop() as one:
        await one.at_rest()
        await one.patch(one.boxes["florin"], f"{MAPS}/prices", {"metadata": {"finalizers": ["example.org/held"]}})
        await one.delete(one.boxes["florin"], SHOP)
        await one.must_put(one.workloads[0], MAPS, config_map("new", {"a": "1"}))
        await one.at_rest()
        assert await one.lacks(["florin"], f"{MAPS}/new"), "nothing can be made there now"
        assert await one.says("Projected"), "and nobody need know"
        await one.patch(one.boxes["florin"], f"{MAPS}/prices", {"metadata": {"finalizers": None}})
        await one.fleet.eventually(lambda: has_both(one), "both come")


async def test_a_definition_that_another_client_deletes_is_restored_with_its_objects() -> None:
    async with shop() as one:
        await one.must_put(one.workloads[0], DEFINITIONS, definition("v1"))
        for name in ("w", "other"):
            made = widget(name, 1)
            await one.fleet.eventually(lambda made=made: one.put(one.workloads[0], WIDGETS, made), "a widget")
            await one.fleet.eventually(lambda name=name: one.has(["florin"], f"{WIDGETS}/{name}"), "its copy")
        box = one.boxes["florin"]
        await one.patch(box, f"{WIDGETS}/w", {"metadata": {"finalizers": ["example.org/held"]}})
        await one.delete(box, f"{DEFINITIONS}/widgets.example.org")
        await one.fleet.eventually(lambda: one.lacks(["florin"], f"{WIDGETS}/other"))
        await one.at_rest()
        await one.patch(box, f"{WIDGETS}/w", {"metadata": {"finalizers": None}})
        await one.fleet.eventually(lambda: one.has(["florin"], f"{WIDGETS}/w"))
        await one.fleet.eventually(lambda: one.has(["florin"], f"{WIDGETS}/other"))
        await one.fleet.eventually(lambda: one.says("Projected"))


# --- a binding that is on its way -----------------------------------------------------------------

GADGETS = "/apis/ex.test/v1/widgets"


@asynccontextmanager
async def pending() -> AsyncIterator[World]:
    """A placement brings a binding to a mailbox and an object that needs it, but somebody has the kind's name there."""
    async with shop() as one:
        provider = await one.fleet.hub.workspace("prov")
        await one.fleet.hub.export(provider, "ex.test", schema())
        await one.fleet.hub.bind(one.workloads[0], "ext", "root:prov", "ex.test")
        await one.fleet.eventually(lambda: one.put(one.workloads[0], GADGETS, gadget("g")), "a gadget")
        await one.must_put(one.boxes["florin"], DEFINITIONS, namesake())
        await one.at_rest()
        everything = {"apiGroup": "ex.test", "resources": ["widgets"], "resourceNames": ["g"]}
        await one.placement(0, "p", namespaceSelector=PROD, nonNamespacedObjects=[*upsyncs("ext"), everything])
        await one.fleet.eventually(lambda: one.has(["florin"], f"{BINDINGS}/ext"), "the binding")
        await one.at_rest()
        yield one


async def test_an_unserved_kind_is_not_reported_while_its_binding_is_pending() -> None:
    async with pending() as one:
        assert await one.says("Projected")
        assert await one.events() == []
        await one.delete(one.boxes["florin"], f"{DEFINITIONS}/gizmos.ex.test")
        await one.fleet.eventually(lambda: one.has(["florin"], f"{GADGETS}/g"), "the copy")
        assert await one.says("Projected")


async def test_a_binding_that_is_not_bound_for_long_is_worth_a_word() -> None:
    async with pending() as one:
        one.fleet.hub.now += timedelta(seconds=SERVING_TIMEOUT + 1)
        await one.restart()
        await one.fleet.eventually(lambda: one.says("NotServed", "widgets.ex.test g"))


async def test_a_pending_binding_is_withdrawn_with_the_last_object_that_needs_it() -> None:
    async with pending() as one:
        everything = {"apiGroup": "ex.test", "resources": ["widgets"], "resourceNames": ["g"]}
        await one.placement(0, "p", namespaceSelector=PROD, nonNamespacedObjects=[everything])
        await one.at_rest()
        assert await one.has(["florin"], f"{BINDINGS}/ext")
        await one.delete(one.workloads[0], f"{GADGETS}/g")
        await one.fleet.eventually(lambda: one.lacks(["florin"], f"{BINDINGS}/ext"), "the withdrawal")


NOW = datetime(2026, 11, 16, tzinfo=UTC)
BOX = "imw-mb-00000000-0000-4000-8000-000000000001"
BINDING = GroupResource("apis.kcp.io", "apibindings")


def namesake() -> Obj:
    """Of another plural."""
    obj = definition("v1")
    names = {"plural": "gizmos", "kind": "Widget"}
    return {**obj, "metadata": {"name": "gizmos.ex.test"}, "spec": {**obj["spec"], "group": "ex.test", "names": names}}


def gadget(name: str) -> Obj:
    return {"apiVersion": "ex.test/v1", "kind": "Widget", "metadata": {"name": name}, "spec": {"size": 1}}


def seen(metadata: Obj, **parts: Obj) -> ObservedObject:
    document = orjson.dumps({"metadata": metadata, **parts})
    return ObservedObject(document, 1, "v1", labels=metadata.get("labels") or {})


def placed(**what: object) -> Placement:
    spec = {"namespaceSelector": PROD, **what}
    return Placement(
        PlacementKey("wmw", "p"), "u", 1, workload=parse_workload_selector({"metadata": {"name": "p"}, "spec": spec})
    )


def mailbox(cluster: str) -> Workspace:
    annotations = {"edge.kcp.io/sync-target-name": "t"}
    spec = {"cluster": cluster}
    obj = {"metadata": {"name": BOX, "annotations": annotations}, "spec": spec, "status": {"phase": "Ready"}}
    return msgspec.json.decode(orjson.dumps(obj), type=Workspace)
