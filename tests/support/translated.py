"""Workspaces with workload and placements, mailboxes, and all the controllers between them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from fleet import EDGE, PROVIDER, TENANCY, Fleet, fleet
from hub_harness import MERGE_PATCH
from platform_harness import APIS, MASTER
from simulated_time import LONGER

from farflung.machinery.errors import Obj

WORKSPACES = f"/clusters/{PROVIDER}{TENANCY}/workspaces"
NAMESPACES = "/api/v1/namespaces"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
KUBE = {"reference": {"export": {"path": "root:compute", "name": "kubernetes"}}}
PROD = {"matchLabels": {"env": "prod"}}
MINE = {"matchLabels": {"mine": "yes"}}
PROJECTED = "edge.kcp.io/projected"
CONFIRM = "edge.kcp.io/confirm-withdrawal"
SOMEWHERE = "imw"


def inside(namespace: str, plural: str, group_version: str = "v1") -> str:
    """The path of a collection, below a cluster."""
    root = "/api/v1" if group_version == "v1" else f"/apis/{group_version}"
    return f"{root}/namespaces/{namespace}/{plural}"


SHOP = f"{NAMESPACES}/shop"
MAPS = inside("shop", "configmaps")
PRICES = f"{MAPS}/prices"
FINALIZER = "edge.kcp.io/syncer"


def config_map(name: str, data: dict[str, str], **metadata: Any) -> Obj:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}, "data": data}


def secret(name: str, data: dict[str, str], **metadata: Any) -> Obj:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, **metadata}, "stringData": data}


def namespace(name: str, **labels: str) -> Obj:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def deployment(name: str, image: str, **metadata: Any) -> Obj:
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "main", "image": image}]}}
    spec = {"selector": {"matchLabels": {"app": name}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, **metadata}, "spec": spec}


def widget(name: str, size: int, version: str = "v1", **metadata: Any) -> Obj:
    head = {"apiVersion": f"example.org/{version}", "kind": "Widget", "metadata": {"name": name, **metadata}}
    return {**head, "spec": {"size": size}}


def definition(*versions: str, stored: str = "") -> Obj:
    """Of Widgets; the first version is stored unless something else is said."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    spec = {
        "group": "example.org",
        "names": {"plural": "widgets", "kind": "Widget"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": version,
                "served": True,
                "storage": version == (stored or versions[0]),
                "schema": {"openAPIV3Schema": schema},
            }
            for version in versions
        ],
    }
    head = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
    return {**head, "metadata": {"name": "widgets.example.org"}, "spec": spec}


def binding(name: str) -> Obj:
    return {"apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIBinding", "metadata": {"name": name}, "spec": KUBE}


class World:
    """`boxes`: the cluster of each mailbox, by the name of its SyncTarget."""

    def __init__(self, fleet: Fleet, inventory: str, workloads: list[str], *, summarizes: bool = False) -> None:
        self.fleet = fleet
        self.summarizes = summarizes
        self.inventory = inventory
        self.workloads = workloads
        self.tenants: dict[str, str] = {}  #: the logical cluster of the parent of each workspace with workload
        self.boxes: dict[str, str] = {}
        self.names: dict[str, str] = {}  #: of the mailboxes, by SyncTarget

    # --- controllers ------------------------------------------------------------------------------

    async def start(self) -> None:
        await self.fleet.start(scheduler=True, mailboxes=True, translator=True, summarizer=self.summarizes)

    async def restart(self) -> None:
        await self.fleet.crash()
        await self.start()

    @property
    def idle(self) -> bool:
        one = self.fleet
        working = [one.translator, one.manager, *([one.summarizer] if self.summarizes else [])]
        return all(each is not None and each.idle for each in working)

    async def at_rest(self) -> None:
        """Until nothing is written for longer than any controller pauses."""
        last = -1
        while last != self.fleet.hub.store.revision:
            last = self.fleet.hub.store.revision
            await asyncio.sleep(LONGER)
            await self.fleet.eventually(lambda: self.idle, "rest")

    # --- objects ----------------------------------------------------------------------------------

    async def ask(self, method: str, cluster: str, path: str, body: Any = None, **headers: str) -> Obj | None:
        """None if it was refused."""
        answer = await self.fleet.hub.of(MASTER, method, f"/clusters/{cluster}{path}", body, **headers)
        return answer.json if answer.status < 300 else None

    async def get(self, cluster: str, path: str) -> Obj | None:
        return await self.ask("GET", cluster, path)

    async def put(self, cluster: str, collection: str, obj: Obj) -> Obj | None:
        """Made, or put in the place of what is there."""
        path = f"{collection}/{obj['metadata']['name']}"
        before = await self.get(cluster, path)
        if before is None:
            return await self.ask("POST", cluster, collection, obj)
        version = before["metadata"]["resourceVersion"]
        body = {**obj, "metadata": {**obj["metadata"], "resourceVersion": version}}
        return await self.ask("PUT", cluster, path, body)

    async def must_put(self, cluster: str, collection: str, obj: Obj) -> Obj:
        made = await self.put(cluster, collection, obj)
        assert made is not None, (collection, obj)
        return made

    async def patch(self, cluster: str, path: str, patch: Obj) -> Obj | None:
        return await self.ask("PATCH", cluster, path, patch, content_type=MERGE_PATCH)

    async def delete(self, cluster: str, path: str) -> Obj | None:
        return await self.ask("DELETE", cluster, path)

    async def items(self, cluster: str, collection: str) -> list[Obj]:
        """Nothing if it is not served."""
        found = await self.get(cluster, collection)
        if found is None:
            return []
        said = {"apiVersion": found["apiVersion"], "kind": found["kind"].removesuffix("List")}
        return [{**said, **item} for item in found["items"]]

    async def location(self, name: str, **labels: str) -> Obj:
        """Where the SyncTarget is that has the name."""
        return await self.fleet.location(self.inventory, name, labels, {"matchLabels": {"id": name}})

    async def placement(self, workload: int, name: str, *selectors: Obj, **spec: Any) -> Obj:
        return await self.fleet.placement(self.workloads[workload], name, *(selectors or ({},)), **spec)

    # --- what is said -----------------------------------------------------------------------------

    async def condition(self, name: str = "p", workload: int = 0) -> Obj:
        """Empty if there is none."""
        found = await self.get(self.workloads[workload], f"{EDGE}/edgeplacements/{name}")
        conditions = ((found or {}).get("status") or {}).get("conditions") or []
        return next((one for one in conditions if one["type"] == "WorkloadProjected"), {})

    async def says(self, reason: str, *words: str, name: str = "p", workload: int = 0) -> bool:
        said = await self.condition(name, workload)
        return said.get("reason") == reason and all(word in said.get("message", "") for word in words)

    async def events(self, workload: int = 0) -> list[tuple[str, str]]:
        found = await self.items(self.workloads[workload], inside("default", "events"))
        return [(one["reason"], one["message"]) for one in found]

    async def copy(self, box: str, path: str) -> Obj | None:
        return await self.get(self.boxes[box], path)

    async def has(self, boxes: Iterable[str], path: str) -> bool:
        return all([await self.copy(box, path) is not None for box in boxes])

    async def lacks(self, boxes: Iterable[str], path: str) -> bool:
        return not any([await self.copy(box, path) is not None for box in boxes])


@asynccontextmanager
async def world(
    *targets: str,
    labels: dict[str, str] | None = None,
    summarizes: bool = False,
    parents: tuple[str, str] = ("root", "root"),
) -> AsyncIterator[World]:
    """With a mailbox for each of the targets, each at a Location of its own with these labels, and two workspaces for
    workload with these parents: `kube` is bound in the first.  Everything is at work, and what there is is summarized
    if it shall be."""
    async with fleet() as one:
        clusters = [await one.hub.workspace(SOMEWHERE)]
        for name, parent in zip(("wmw-1", "wmw-2"), parents, strict=True):
            if parent != "root":
                await one.hub.workspace(parent.removeprefix("root:"))
            clusters.append(await one.hub.workspace(name, parent=parent))
        for cluster in clusters[1:]:
            await one.hub.bind(cluster, "edge", PROVIDER, "edge.kcp.io")
        found = World(one, clusters[0], clusters[1:], summarizes=summarizes)
        for cluster in clusters[1:]:
            itself = await found.get(cluster, "/apis/core.kcp.io/v1alpha1/logicalclusters/cluster")
            assert itself is not None
            found.tenants[cluster] = itself["spec"]["owner"]["cluster"]
        await found.must_put(clusters[1], f"{APIS}/apibindings", binding("kube"))
        for target in targets:
            await one.target(found.inventory, target, {"id": target})
            await found.location(target, **(labels or {}))
        path = f"/clusters/{found.inventory}/apis/scheduling.kcp.io/v1alpha1/locations/default"
        await one.eventually(lambda: one.do("GET", path), "the default Location")
        await one.do("DELETE", path)
        await found.start()
        await one.eventually(lambda: furnished(found, len(targets)), "mailboxes")
        yield found


async def furnished(world: World, count: int) -> bool:
    """All mailboxes are there, with something to be told to their syncers."""
    for one in await world.fleet.items(WORKSPACES):
        target = (one["metadata"].get("annotations") or {}).get("edge.kcp.io/sync-target-name")
        cluster = one["spec"].get("cluster", "")
        if target and await world.get(cluster, f"{EDGE}/syncerconfigs/the-one"):
            world.boxes[target] = cluster
            world.names[target] = one["metadata"]["name"]
    return len(world.boxes) == count


@asynccontextmanager
async def shop(
    *targets: str, parents: tuple[str, str] = ("root", "root"), summarizes: bool = False, **spec: Any
) -> AsyncIterator[World]:
    """A namespace `shop` with a ConfigMap `prices`, and a placement `p` that brings it to all of them."""
    async with world(*(targets or ("florin",)), parents=parents, summarizes=summarizes) as one:
        await one.must_put(one.workloads[0], NAMESPACES, namespace("shop", env="prod"))
        await one.must_put(one.workloads[0], MAPS, config_map("prices", {"tea": "3"}))
        await one.placement(0, "p", namespaceSelector=PROD, **spec)
        await one.fleet.eventually(lambda: one.has(one.boxes, f"{MAPS}/prices"), "the first copy")
        yield one


# --- syncers --------------------------------------------------------------------------------------


async def hold(one: World, box: str = "florin", path: str = PRICES) -> None:
    """As a syncer does before it brings a copy to the edge."""
    assert await one.patch(one.boxes[box], path, {"metadata": {"finalizers": [FINALIZER]}}) is not None


async def let_go(one: World, box: str = "florin", path: str = PRICES) -> None:
    """As it does when there is nothing of the copy at the edge any more."""
    assert await one.patch(one.boxes[box], path, {"metadata": {"finalizers": None}}) is not None


async def is_going(one: World, box: str = "florin", path: str = PRICES) -> bool:
    copy = await one.copy(box, path)
    return copy is not None and "deletionTimestamp" in copy["metadata"]
