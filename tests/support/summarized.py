"""A workload whose copies report, and what is said of them together."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from fleet import EDGE
from translated import NAMESPACES, PROD, World, deployment, inside, namespace, world

from farflung.machinery.errors import Obj

DEPLOYMENTS = inside("shop", "deployments", "apps/v1")
SUMMARIES = f"{EDGE}/namespaces/shop/statussummaries"
COLLECTORS = f"{EDGE}/statuscollectors"
KUBE = [{"apiGroup": "apis.kcp.io", "resources": ["apibindings"], "resourceNames": ["kube"]}]
WEB = "p.deployments.apps.web"  #: the name of the summary
CONDITION = {"type": "Available", "reason": "MinimumReplicasAvailable", "lastTransitionTime": "2024-05-01T12:00:00Z"}


def ready(number: int, of: int = 1) -> Obj:
    """The status of a Deployment."""
    available = {**CONDITION, "status": "True" if number >= of else "False"}
    numbers = {"replicas": of, "updatedReplicas": of, "readyReplicas": number, "availableReplicas": number}
    return {**numbers, "observedGeneration": 1, "conditions": [available]}


class Reported:
    def __init__(self, world: World) -> None:
        self.world = world

    @property
    def cluster(self) -> str:
        return self.world.workloads[0]

    # --- at the edges -----------------------------------------------------------------------------

    async def report(self, box: str, status: Obj | None, path: str = f"{DEPLOYMENTS}/web") -> None:
        """The status of a copy."""
        patched = await self.world.patch(self.world.boxes[box], f"{path}/status", {"status": None})
        assert patched is not None
        if status is not None:
            assert await self.world.patch(self.world.boxes[box], f"{path}/status", {"status": status}) is not None

    async def say(self, box: str, **status: Any) -> None:
        """What a syncer says of itself."""
        path = f"{EDGE}/syncerconfigs/the-one/status"
        assert await self.world.patch(self.world.boxes[box], path, {"status": status}) is not None

    async def beat(self, *boxes: str) -> None:
        for box in boxes:
            await self.say(box, lastSyncerHeartbeatTime=f"{self.world.fleet.hub.now:%Y-%m-%dT%H:%M:%SZ}")

    async def passes(self, seconds: float) -> None:
        """And somebody looks at the clock."""
        self.world.fleet.hub.now += timedelta(seconds=seconds)
        for cluster in self.world.boxes.values():
            poke = {"metadata": {"annotations": {"poke": str(self.world.fleet.hub.now)}}}
            assert await self.world.patch(cluster, f"{EDGE}/syncerconfigs/the-one", poke) is not None

    # --- where it is described --------------------------------------------------------------------

    async def summary(self, name: str = WEB) -> Obj | None:
        return await self.world.get(self.cluster, f"{SUMMARIES}/{name}")

    async def says(self, name: str = WEB, **destinations: int) -> bool:
        found = await self.summary(name)
        return found is not None and destinations.items() <= found["destinations"].items()

    async def eventually(self, name: str = WEB, **destinations: int) -> Obj:
        """The summary, when it counts so many."""
        await self.world.fleet.eventually(lambda: self.says(name, **destinations), f"{name} {destinations}")
        found = await self.summary(name)
        assert found is not None
        return found

    async def gone(self, name: str = WEB) -> None:
        async def is_gone() -> bool:
            return await self.summary(name) is None

        await self.world.fleet.eventually(is_gone, f"the end of {name}")

    async def source(self, path: str = f"{DEPLOYMENTS}/web") -> Obj:
        found = await self.world.get(self.cluster, path)
        assert found is not None
        return found

    async def ask(self, name: str, **spec: Any) -> None:
        """A StatusCollector."""
        head = {"apiVersion": "edge.kcp.io/v1alpha1", "kind": "StatusCollector", "metadata": {"name": name}}
        await self.world.must_put(self.cluster, COLLECTORS, {**head, "spec": spec})

    async def answer(self, name: str) -> Obj | None:
        found = await self.summary()
        return next((one for one in (found or {}).get("collected") or () if one["name"] == name), None)


@asynccontextmanager
async def reported(*targets: str, **spec: Any) -> AsyncIterator[Reported]:
    """A Deployment `web` in a namespace `shop`, and a placement `p` that brings it to all of them."""
    async with world(*(targets or ("florin", "guilder")), summarizes=True) as one:
        await one.must_put(one.workloads[0], NAMESPACES, namespace("shop", env="prod"))
        await one.must_put(one.workloads[0], DEPLOYMENTS, deployment("web", "httpd"))
        selecting = {} if "downsync" in spec else {"namespaceSelector": PROD}
        await one.placement(0, "p", **selecting, nonNamespacedObjects=KUBE, **spec)
        await one.fleet.eventually(lambda: one.has(one.boxes, f"{DEPLOYMENTS}/web"), "the first copies")
        yield Reported(one)
