"""A hub with an inventory and placements, without sockets, and a scheduler that looks when it is told to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import orjson
from hub_harness import USER_TOKEN
from local_transport import LocalTransport
from workspaces_harness import OPERATOR_TOKEN, LocalWorkspaces

from farflung.apis.edge.names import AUTHOR, EDGE_PLACEMENTS
from farflung.apis.kcp.names import LOCATIONS, SYNC_TARGETS
from farflung.apis.names import Collection
from farflung.client.rest import Client
from farflung.controllers.edge_scheduler import decide
from farflung.hub.tenancy.direct_writes import encode_stored
from farflung.inspect import hub
from farflung.inspect.hub import HubClient, hub_client
from farflung.inspect.placing_rights import ReviewedRights
from farflung.machinery.errors import Obj
from farflung.placement.types import parse_placement, previous
from farflung.runtime.plan import apply
from farflung.store.base import Store

BINDINGS = Collection("apis.kcp.io", "v1alpha1", "apibindings", "APIBinding")
ROLES = Collection("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole")
ROLE_BINDINGS = Collection("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding")
INVENTORY, WORKLOAD = "root:places", "root:web"  #: workspaces
NOW = "2024-05-01T12:00:00Z"
SOMEBODY = "somebody"  #: whose token USER_TOKEN is


def custom(collection: Collection, name: str, labels: dict[str, str] | None = None, **spec: Any) -> Obj:
    metadata: Obj = {"name": name, **({"labels": labels} if labels else {})}
    return {"apiVersion": collection.api_version, "kind": collection.kind, "metadata": metadata, "spec": spec}


def placement(name: str = "p", *selectors: Obj, **spec: Any) -> Obj:
    return custom(EDGE_PLACEMENTS, name, locationSelectors=list(selectors), **spec)


@dataclass
class AskedHub:
    transport: LocalTransport  #: what was asked
    client: Client  #: of the administrator, in the workspace of the placements
    inventory: Client
    cluster: str  #: of the inventory
    store: Store

    @classmethod
    async def started(cls) -> Self:
        hub = await LocalWorkspaces.started(bare=False)
        client = Client(LocalTransport(hub.function, OPERATOR_TOKEN), "/clusters/root")
        universal = {"name": "universal"}
        cluster = (await hub.new_workspace("root", "places", type=universal))["spec"]["cluster"]
        await hub.new_workspace("root", "web", type=universal)
        export = {"export": {"path": "root:espw", "name": "edge.kcp.io"}}
        await client.workspace(WORKLOAD).create(BINDINGS, custom(BINDINGS, "edge", reference=export))
        asking = LocalTransport(hub.function, OPERATOR_TOKEN)
        return cls(asking, client.workspace(WORKLOAD), client.workspace(INVENTORY), cluster, hub.store)

    @property
    def asked(self) -> HubClient:
        """For whoever asks as the administrator."""
        return hub_client(Client(self.transport, self.client.prefix, "farflung"))

    @property
    def asked_by_somebody(self) -> HubClient:
        """Who may do only what they were granted."""
        return hub_client(Client(LocalTransport(self.transport.function, USER_TOKEN), self.client.prefix, "farflung"))

    async def grant(self, workspace: str, name: str, *rules: Obj) -> None:
        at, group = self.client.workspace(workspace), "rbac.authorization.k8s.io"
        meta = {"apiVersion": f"{group}/v1", "metadata": {"name": name}}
        await at.create(ROLES, {**meta, "kind": "ClusterRole", "rules": list(rules)})
        reference = {"apiGroup": group, "kind": "ClusterRole", "name": name}
        subjects = [{"apiGroup": group, "kind": "User", "name": SOMEBODY}]
        await at.create(
            ROLE_BINDINGS, {**meta, "kind": "ClusterRoleBinding", "roleRef": reference, "subjects": subjects}
        )

    # --- objects ----------------------------------------------------------------------------------

    async def location(self, name: str, selected: dict[str, str], /, taints: Any = (), **labels: str) -> None:
        resource = {"group": "workload.kcp.io", "version": "v1alpha1", "resource": "synctargets"}
        spec = {"resource": resource, "instanceSelector": {"matchLabels": selected}, "taints": list(taints)}
        await self.inventory.create(LOCATIONS, custom(LOCATIONS, name, labels, **spec))

    async def target(self, name: str, /, taints: Any = (), unschedulable: bool = False, **labels: str) -> Obj:
        spec = {"taints": list(taints), "unschedulable": unschedulable}
        return await self.inventory.create(SYNC_TARGETS, custom(SYNC_TARGETS, name, labels, **spec))

    async def place(self, obj: Obj) -> Obj:
        return await self.client.create(EDGE_PLACEMENTS, obj)

    async def forget_author(self, name: str = "p") -> None:
        """As an earlier version would have stored the placement."""
        [prefix] = [one for one in self.store.storage_prefixes() if "/edgeplacements" in one]
        [entry] = [one for one in self.store.list(prefix).entries if one.key.endswith(f"/{name}")]
        obj = orjson.loads(entry.value)
        del obj["metadata"]["annotations"][AUTHOR]
        await self.store.put(entry.key, encode_stored(obj), expect=entry.revision)

    async def schedule(self, name: str = "p") -> None:
        """What the scheduler does about one placement."""
        document = await self.client.get(EDGE_PLACEMENTS, name)
        value = parse_placement(document)
        observed = await hub.slices_of(self.client, name)
        resolver = (await hub.read_inventory(self.client.workspace("root"))).resolver()
        await ReviewedRights(hub_client(self.client)).put(resolver, value, ())
        resolution = resolver.resolve(value.key, previous(value, observed))
        writes = decide.plan(value, decide.desired(value, resolution), observed)
        writes += decide.plan_status(value, document, resolution, NOW)
        await apply(lambda _: self.client, writes, lambda _write, _answer: None)
