"""A hub with Clusters and virtual machines, without sockets, and nobody who binds them but the test."""

from __future__ import annotations

from typing import Any

from asked_hub import BINDINGS, AskedHub, custom
from hub_harness import ADMIN_TOKEN
from local_transport import LocalTransport

from farflung.apis.globalscheduler.names import ALLOCATIONS, CLUSTERS, FILES_ANNOTATION
from farflung.apis.names import LEASES, PODS
from farflung.client.rest import Client
from farflung.machinery.errors import Obj
from farflung.machines.engine.values import MachineRequest, PlacedReplica, ResourceClaim, SchedulingDecision, SiteKey
from farflung.machines.statuses import bound_allocation_status, pod_conditions
from farflung.machines.subjects import (
    BOUND_CLUSTER,
    POD,
    ObservedSubject,
    PlacedSubject,
    SchedulingSubject,
)
from farflung.machines.subjects import BOUND_FLAVOR as FLAVOR_ID
from farflung.runtime.cache import Key

FLAVOR = "c6.large.2"
NOW = "2024-05-01T12:00:00Z"


def named(collection: Any, name: str, **spec: Any) -> Obj:
    obj = custom(collection, name, **spec)
    return {**obj, "metadata": {**obj["metadata"], "namespace": "default"}}


def machine(name: str = "demovm", *regions: str, flavor: str = FLAVOR, **spec: Any) -> Obj:
    selector = {"regions": [{"region": region} for region in regions]} if regions else {}
    common = {"resourceCommonInfo": {"selector": selector}} if regions else {}
    return named(PODS, name, virtualMachine={"flavors": [{"flavorID": flavor}], **common}, **spec)


def allocation(name: str = "shop", replicas: int = 2, *, strategy: str = "discrete", **spec: Any) -> Obj:
    group = {"resources": [{"name": "web", "flavors": [{"flavor_id": FLAVOR}]}]}
    selector = {"strategy": {"location_strategy": strategy}}
    return named(ALLOCATIONS, name, **{"replicas": replicas, "resource_group": group, "selector": selector, **spec})


class MachineHub:
    """One workspace has both APIs, two Clusters with room for 2 and 4 machines, and whatever a test makes."""

    def __init__(self, hub: AskedHub, cluster: str) -> None:
        self.hub = hub
        self.client = hub.client
        self._scheduler = Client(LocalTransport(hub.transport.function, ADMIN_TOKEN), hub.client.prefix)
        self.cluster = cluster  #: the logical cluster of the workspace of the machines

    @classmethod
    async def started(cls) -> MachineHub:
        hub = await AskedHub.started()
        for export in ("kubernetes", "globalscheduler.com"):
            reference = {"export": {"path": "root:compute", "name": export}}
            await hub.client.create(BINDINGS, custom(BINDINGS, export, reference=reference))
        made = await hub.client.create(CLUSTERS, _cluster("az1", "region1", 2), "default")
        await hub.client.create(CLUSTERS, _cluster("az2", "region2", 4), "default")
        one = cls(hub, made["metadata"]["annotations"]["kcp.io/cluster"])
        metadata = {"name": "global-scheduler", "namespace": "default"}
        body = {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": metadata}
        await one.compute.create(LEASES, body, "default")
        await one.lease("somebody", "")
        return one

    @property
    def compute(self) -> Client:
        return self.client.workspace("root:compute")

    async def lease(self, holder: str, files: str, renewed: str = "2024-05-01T11:59:50.000000Z") -> None:
        """That of the global scheduler, with what it says of its files."""
        patch = {
            "metadata": {"annotations": {FILES_ANNOTATION: files}},
            "spec": {"holderIdentity": holder, "renewTime": renewed},
        }
        await self.compute.patch(LEASES, "global-scheduler", patch, "default")

    async def make(self, obj: Obj) -> Obj:
        collection = PODS if obj["kind"] == POD else ALLOCATIONS
        return await self.client.create(collection, obj, "default")

    def chosen(self, name: str) -> PlacedReplica:
        return PlacedReplica(SiteKey(self.cluster, "default", name), (FLAVOR,), 80.0, ResourceClaim(((FLAVOR, 1),)))

    async def bind(self, pod: Obj, name: str) -> None:
        """As the scheduler would."""
        notes = {BOUND_CLUSTER: f"{self.cluster}|default/{name}", FLAVOR_ID: FLAVOR}
        metadata = {"name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"], "annotations": notes}
        target = {"kind": "Cluster", "name": name}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
        await self._scheduler.create(PODS, body, "default", "binding")

    async def bind_allocation(self, obj: Obj, *names: str) -> None:
        metadata = obj["metadata"]
        seen = ObservedSubject(metadata["uid"], metadata["resourceVersion"], metadata["generation"])
        request = MachineRequest(metadata["uid"], ())
        decision = SchedulingDecision(tuple(self.chosen(name) for name in names))
        subject = SchedulingSubject(ALLOCATIONS.kind, Key(self.cluster, "default", metadata["name"]))
        status = bound_allocation_status(PlacedSubject(subject, seen, request, decision), NOW)
        await self.client.patch(ALLOCATIONS, metadata["name"], {"status": status}, "default", "status")

    async def refuse(self, pod: Obj, message: str) -> None:
        await self.say(pod, pod_conditions(b"{}", "False", "Unschedulable", message, NOW))

    async def say(self, pod: Obj, conditions: list[Obj]) -> None:
        patch = {"status": {"conditions": conditions}}
        await self._scheduler.patch(PODS, pod["metadata"]["name"], patch, "default", "status")


def _cluster(name: str, region: str, number: int) -> Obj:
    flavors = [{"flavorid": FLAVOR, "totalcapacity": number}]
    return named(CLUSTERS, name, region={"region": region, "availabilityzone": name}, flavors=flavors)
