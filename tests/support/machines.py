"""A fleet with workspaces that have Clusters and virtual machines, and the global scheduler."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from typing import Any

from fleet import EDGE, WORKLOAD, Fleet, fleet
from hub_harness import MERGE_PATCH
from platform_harness import APIS, MASTER, OPERATOR

from farflung.client.transport import OutgoingRequest
from farflung.machinery import times
from farflung.machinery.errors import Obj
from farflung.machines.engine.values import Flavor
from farflung.machines.failover import FailoverOptions

GROUP = "globalscheduler.com"
CLUSTERS = f"/apis/{GROUP}/v1/namespaces/default/clusters"
ALLOCATIONS = f"/apis/{GROUP}/v1/namespaces/default/allocations"
PODS = "/api/v1/namespaces/default/pods"
CATALOGUE = {"small": Flavor("small", 1, 1024), "large": Flavor("large", 4, 8192)}
HOME = "clouds"  #: the workspace that has the Clusters
SHOP = "shop"  #: one that has virtual machines


def cluster_spec(flavors: dict[str, int], region: str = "r1", zone: str = "az1", **more: Any) -> Obj:
    offered = [{"flavorid": flavor, "totalcapacity": number} for flavor, number in flavors.items()]
    return {"region": {"region": region, "availabilityzone": zone}, "flavors": offered, **more}


def machine(name: str, *flavors: str, selector: Obj | None = None, count: int = 0, **spec: Any) -> Obj:
    virtual: Obj = {"name": name, "flavors": [{"flavorID": one} for one in flavors or ("small",)]}
    common = {**({"selector": selector} if selector else {}), **({"count": count} if count else {})}
    if common:
        virtual["resourceCommonInfo"] = common
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"virtualMachine": virtual, **spec}}


def allocation(name: str, *stacks: dict[str, int], replicas: int = 1, selector: Obj | None = None, **spec: Any) -> Obj:
    """`stacks`: of each resource the flavor and how many."""
    resources = [
        {"name": f"r{number}", "flavors": [{"flavor_id": flavor}], "count": count}
        for number, stack in enumerate(stacks)
        for flavor, count in stack.items()
    ]
    wanted = {"resource_group": {"name": name, "resources": resources}, "replicas": replicas, **spec}
    if selector:
        wanted["selector"] = selector
    return {"apiVersion": f"{GROUP}/v1", "kind": "Allocation", "metadata": {"name": name}, "spec": wanted}


class Machines:
    def __init__(self, fleet: Fleet, home: str, shop: str, tolerated: float) -> None:
        """`tolerated`: seconds for which new machines tolerate an unhealthy Cluster."""
        self._tolerated = tolerated
        self.fleet = fleet
        self.home = home
        self.shop = shop

    # --- controllers ------------------------------------------------------------------------------

    async def start(self) -> None:
        await self.fleet.start(scheduler=False, globals=True)

    async def restart(self) -> None:
        await self.fleet.crash()
        await self.start()

    async def at_rest(self) -> None:
        scheduler = self.fleet.global_scheduler
        assert scheduler is not None
        await self.fleet.eventually(lambda: scheduler.idle, "rest")

    def interpose(self, matches: Callable[[OutgoingRequest], bool], act: Callable[[], Awaitable[object]]) -> None:
        """Something happens once, right before such a request is sent."""

        async def gate(request: OutgoingRequest) -> None:
            if matches(request):
                self.fleet.masters.gate = None
                await act()

        self.fleet.masters.gate = gate

    # --- objects ----------------------------------------------------------------------------------

    async def of_home(self, method: str, path: str, body: Any = None, **headers: str) -> Obj:
        return await self._sent(self.home, method, path, body, **headers)

    async def of_shop(self, method: str, path: str, body: Any = None, **headers: str) -> Obj:
        return await self._sent(self.shop, method, path, body, **headers)

    async def _sent(self, cluster: str, method: str, path: str, body: Any, **headers: str) -> Obj:
        answer = await self.fleet.hub.of(MASTER, method, f"/clusters/{cluster}{path}", body, **headers)
        assert answer.status < 300, answer.body
        found: Obj = answer.json
        return found

    async def cluster(self, name: str, flavors: dict[str, int], **spec: Any) -> Obj:
        obj = {"apiVersion": f"{GROUP}/v1", "kind": "Cluster", "metadata": {"name": name}}
        return await self.of_home("POST", CLUSTERS, {**obj, "spec": cluster_spec(flavors, **spec)})

    async def phase(self, name: str, phase: str) -> None:
        await self.of_home("PATCH", f"{CLUSTERS}/{name}/status", {"status": {"phase": phase}}, content_type=MERGE_PATCH)

    async def machine(self, name: str, *flavors: str, **how: Any) -> Obj:
        tolerated = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": int(self._tolerated)}
        taints = ("not-ready", "unreachable")
        how.setdefault("tolerations", [{"key": f"node.kubernetes.io/{taint}", **tolerated} for taint in taints])
        return await self.of_shop("POST", PODS, machine(name, *flavors, **how))

    async def pod(self, name: str) -> Obj:
        return await self.of_shop("GET", f"{PODS}/{name}")

    async def pods(self) -> list[Obj]:
        found: list[Obj] = (await self.of_shop("GET", PODS))["items"]
        return found

    async def allocation(self, name: str) -> Obj:
        return await self.of_shop("GET", f"{ALLOCATIONS}/{name}")

    async def clusters(self) -> list[Obj]:
        found: list[Obj] = (await self.of_home("GET", CLUSTERS))["items"]
        return found

    # --- what came of it --------------------------------------------------------------------------

    async def bound(self, name: str) -> str:
        """The cluster of a pod, as soon as it has one."""
        found: list[str] = []

        async def is_bound() -> bool:
            found[:] = [(await self.pod(name))["spec"].get("nodeName", "")]
            return bool(found[0])

        await self.fleet.eventually(is_bound, f"{name} bound")
        return found[0]

    async def refused(self, name: str, kind: str = "pod") -> str:
        """Why it is not placed, as soon as somebody says so."""
        said: list[str] = []

        async def is_told() -> bool:
            obj = await (self.pod(name) if kind == "pod" else self.allocation(name))
            said[:] = [
                one["message"]
                for one in obj.get("status", {}).get("conditions", ())
                if one["type"] in ("PodScheduled", "Scheduled") and one["status"] == "False"
            ]
            return bool(said)

        await self.fleet.eventually(is_told, f"{name} refused")
        return said[0]

    async def allocated(self, name: str) -> list[str]:
        """The clusters of an Allocation's replicas, as soon as it has them for what it asks for now."""
        found: list[str] = []

        async def is_bound() -> bool:
            obj = await self.allocation(name)
            status = obj.get("status", {})
            found[:] = status.get("cluster_names", [])
            current = status.get("observedGeneration") == obj["metadata"]["generation"]
            return bool(current and status.get("phase") == "Bound")

        await self.fleet.eventually(is_bound, f"{name} bound")
        return found

    async def used(self) -> Counter[tuple[str, str]]:
        """How much of which flavor is bound where, by what the API says."""
        found: Counter[tuple[str, str]] = Counter()
        for pod in await self.pods():
            node, phase = pod["spec"].get("nodeName"), pod.get("status", {}).get("phase")
            if node and phase not in ("Failed", "Succeeded"):
                count = pod["spec"]["virtualMachine"].get("resourceCommonInfo", {}).get("count", 1)
                found[node, pod["metadata"]["annotations"]["globalscheduler.com/flavor-id"]] += count
        for one in (await self.of_shop("GET", ALLOCATIONS))["items"]:
            counts = [resource["count"] for resource in one["spec"]["resource_group"]["resources"]]
            for placement in one.get("status", {}).get("placements", ()):
                for flavor, count in zip(placement["flavors"], counts, strict=True):
                    found[placement["cluster"]["name"], flavor] += count
        return found

    async def events(self, name: str) -> list[tuple[str, str]]:
        found = (await self.of_shop("GET", "/api/v1/namespaces/default/events"))["items"]
        return [(one["reason"], one["message"]) for one in found if one["involvedObject"]["name"] == name]


@asynccontextmanager
async def machines(*, start: bool = True, **setting: Any) -> AsyncIterator[Machines]:
    async with fleet() as one:
        one.globals = {"catalogue": CATALOGUE, **setting}
        found = []
        for name in (HOME, SHOP):
            cluster = await one.hub.workspace(name)
            for export in ("kubernetes", GROUP):
                await one.hub.bind(cluster, export, "root:compute", export, by=OPERATOR)
            found.append(cluster)
        home, shop = found
        world = Machines(one, home, shop, setting.get("failover", FailoverOptions()).tolerated)
        for cluster in found:
            await one.eventually(partial(is_served, one, cluster), "the APIs")
        if start:
            await world.start()
        yield world


async def is_served(one: Fleet, cluster: str) -> bool:
    asked = [await one.hub.of(MASTER, "GET", f"/clusters/{cluster}{path}") for path in (PODS, CLUSTERS)]
    return all(answer.status == 200 for answer in asked)


async def bind_edge(fleet: Fleet, cluster: str) -> None:
    reference = {"export": {"path": "root:espw", "name": "edge.kcp.io"}}
    obj = {"metadata": {"name": "edge"}, "spec": {"reference": reference}}
    await fleet.hub.made(MASTER, f"/clusters/{cluster}{APIS}/apibindings", obj)

    async def is_served() -> bool:
        return (await fleet.hub.of(MASTER, "GET", f"/clusters/{cluster}{EDGE}/edgeplacements")).status == 200

    await fleet.eventually(is_served, "the edge API")


async def report(one: Machines, imw: str, *, ago: timedelta, cpu: str = "2500m") -> None:
    """What a syncer would."""
    beat = times.format_seconds(one.fleet.hub.now - ago)
    patch = {"status": {"lastSyncerHeartbeatTime": beat, "allocatable": {"cpu": cpu, "memory": "4Gi"}}}
    path = f"/clusters/{imw}{WORKLOAD}/synctargets/edge1/status"
    answer = await one.fleet.hub.of(MASTER, "PATCH", path, patch, content_type=MERGE_PATCH)
    assert answer.status == 200, answer.body
