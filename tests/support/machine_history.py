"""Things that happen to virtual machines and their Clusters, and what has to be true whatever happens."""

from __future__ import annotations

from typing import Any

from hub_harness import MERGE_PATCH
from platform_harness import MASTER

from machines import ALLOCATIONS, CLUSTERS, GROUP, PODS, Machines, allocation, cluster_spec, machine

FLAVORS = ["small", "large"]
STACKS = ["x", "y"]


class History:
    """A fleet to which things happen, and what has to be true of it."""

    def __init__(self, one: Machines) -> None:
        self.one = one
        self.bound: dict[str, str] = {}  #: uid → cluster, of machines, as it was first seen

    async def ask(self, cluster: str, method: str, path: str, body: Any = None) -> None:
        """It may be refused: what is there already, and what is not there."""
        headers = {"content_type": MERGE_PATCH} if method == "PATCH" else {}
        await self.one.fleet.hub.of(MASTER, method, f"/clusters/{cluster}{path}", body, **headers)

    async def do(self, what: str, how: Any) -> None:
        match what:
            case "cluster":
                await self._grow(*how)
            case "machine":
                name, flavor, count = how
                await self.ask(self.one.shop, "POST", PODS, machine(name, flavor, count=count))
            case "stack":
                name, flavor, number = how
                await self.ask(self.one.shop, "POST", ALLOCATIONS, allocation(name, {flavor: 1}, replicas=number))
            case "delete":
                path = ALLOCATIONS if how in STACKS else PODS
                await self.ask(self.one.shop, "DELETE", f"{path}/{how}")
            case "end":
                ended = {"status": {"phase": "Succeeded"}}
                await self.ask(self.one.shop, "PATCH", f"{PODS}/{how}/status", ended)
            case _:
                await self.one.fleet.suffer(what, how, scheduler=False, globals=True)

    async def _grow(self, name: str, small: int, large: int) -> None:
        """Never smaller: what is bound already stays, of course."""
        known = {one["metadata"]["name"]: one for one in await self.one.clusters()}
        if name not in known:
            spec = cluster_spec({"small": small, "large": large}, zone=name)
            obj = {"apiVersion": f"{GROUP}/v1", "kind": "Cluster", "metadata": {"name": name}, "spec": spec}
            await self.ask(self.one.home, "POST", CLUSTERS, obj)
            return
        before = offered(known[name])
        grown = {"small": max(small, before["small"]), "large": max(large, before["large"])}
        await self.ask(self.one.home, "PATCH", f"{CLUSTERS}/{name}", {"spec": cluster_spec(grown, zone=name)})

    async def check(self) -> None:
        """What is always true."""
        used = await self.one.used()
        room = {one["metadata"]["name"]: offered(one) for one in await self.one.clusters()}
        assert all(number <= room[place][flavor] for (place, flavor), number in used.items()), (used, room)
        for pod in await self.one.pods():
            uid, node = pod["metadata"]["uid"], pod["spec"].get("nodeName")
            assert self.bound.setdefault(uid, node or "") in ("", node), pod
            self.bound[uid] = node or ""

    async def is_at_rest(self) -> bool:
        """What is true in the end: who is not placed does not fit, and is told so."""
        await self.check()
        used = await self.one.used()
        room = {one["metadata"]["name"]: offered(one) for one in await self.one.clusters()}
        free = {flavor: [room[place][flavor] - used[place, flavor] for place in room] for flavor in FLAVORS}
        for pod in await self.one.pods():
            if not pod["spec"].get("nodeName") and not has_ended(pod):
                virtual = pod["spec"]["virtualMachine"]
                flavor, count = virtual["flavors"][0]["flavorID"], virtual["resourceCommonInfo"]["count"]
                if not is_refused(pod, "PodScheduled") or any(number >= count for number in free[flavor]):
                    return False
        for stack in (await self.one.of_shop("GET", ALLOCATIONS))["items"]:
            if stack.get("status", {}).get("phase") != "Bound":
                flavor = stack["spec"]["resource_group"]["resources"][0]["flavors"][0]["flavor_id"]
                if not is_refused(stack, "Scheduled") or sum(free[flavor]) >= stack["spec"]["replicas"]:
                    return False
        return True

    async def is_known(self) -> bool:
        """What the scheduler thinks that is held is what the API says."""
        scheduler = self.one.fleet.global_scheduler
        assert scheduler is not None
        world = scheduler.state
        thought: dict[tuple[str, str], int] = {}
        for site in world.engine.sites():
            thought |= {
                (site.key.name, flavor): number for flavor, number in world.engine.usage(site.key).flavors.items()
            }
        return bool(thought == await self.one.used())


def offered(cluster: Any) -> dict[str, int]:
    return {one["flavorid"]: one["totalcapacity"] for one in cluster["spec"]["flavors"]}


def has_ended(pod: Any) -> bool:
    return pod.get("status", {}).get("phase") in ("Failed", "Succeeded")


def is_refused(obj: Any, type: str) -> bool:
    conditions = obj.get("status", {}).get("conditions", ())
    return any(one["type"] == type and one["status"] == "False" and one.get("message") for one in conditions)
