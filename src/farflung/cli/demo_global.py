"""`farflung demo global`: binds virtual machines to a dozen Clusters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from farflung.apis.globalscheduler.names import ALLOCATIONS, CLUSTERS, GLOBALSCHEDULER_GROUP
from farflung.apis.kcp.names import API_BINDINGS
from farflung.apis.names import POD_SCHEDULED, PODS, Collection
from farflung.cli.demo_stage import Demo, listed
from farflung.client.rest import Client
from farflung.lib.words import count
from farflung.machinery.errors import Obj
from farflung.machines.statuses import find_condition

WORKSPACE: Final = "root:machines"
EXPORTS: Final = ("kubernetes", GLOBALSCHEDULER_GROUP)
REGIONS: Final = ("region1", "region2", "region3", "region4")
ZONES: Final = 3  #: of each region
FLAVOR, LARGE, RARE = "c6.large.2", "m6.xlarge.4", "p2.gpu.8"
STACKS: Final = 6  #: replicas of the Allocation
TO_TRY: Final = (
    f"kubectl ws {WORKSPACE}",
    "kubectl get clusters,allocations",
    "kubectl get pods -o wide",
    "kubectl describe pods demovm",
    "farflung explain allocation shop",
)
MESSAGE: Final = """kubectl get pod render2 -o jsonpath='{.status.conditions[?(@.type=="PodScheduled")].message}'"""


# --- objects --------------------------------------------------------------------------------------


def _clusters() -> Iterator[Obj]:
    """The first has the largest capacity; only the last has the rare flavor, once."""
    for at in range(len(REGIONS) * ZONES):
        flavors = {FLAVOR: 8 if at == 0 else 4, LARGE: 2}
        if at == len(REGIONS) * ZONES - 1:
            flavors[RARE] = 1
        yield {
            "apiVersion": CLUSTERS.api_version,
            "kind": "Cluster",
            "metadata": {"name": f"az{at + 1}"},
            "spec": {
                "region": {"region": REGIONS[at // ZONES], "availabilityzone": f"az{at + 1}"},
                "flavors": [{"flavorid": name, "totalcapacity": number} for name, number in flavors.items()],
                "eipcapacity": 8,
            },
        }


def _machine(name: str, flavor: str, *regions: str) -> Obj:
    selector = {"regions": [{"region": region} for region in regions], "strategy": {"localStrategy": "centralize"}}
    machine = {
        "keyPairName": "foobar",
        "name": "vm001",
        "image": "download.cirros-cloud.net/0.3.5/cirros-0.3.5-x86_64-disk.img",
        "imagePullPolicy": "IfNotPresent",
        "needEIP": True,
        "flavors": [{"flavorID": flavor}],
        "resourceCommonInfo": {"selector": selector},
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"virtualMachine": machine}}


def _stack() -> Obj:
    """Replicas of a web server with its database, in two regions."""
    resources = [
        {"name": name, "resource_type": "vm", "flavors": [{"flavor_id": flavor}]}
        for name, flavor in (("web", FLAVOR), ("db", LARGE))
    ]
    selector = {
        "regions": [{"region": "region2"}, {"region": "region3"}],
        "strategy": {"location_strategy": "discrete"},
    }
    spec = {"replicas": STACKS, "resource_group": {"name": "shop", "resources": resources}, "selector": selector}
    return {"apiVersion": ALLOCATIONS.api_version, "kind": "Allocation", "metadata": {"name": "shop"}, "spec": spec}


# --- steps ----------------------------------------------------------------------------------------


class GlobalDemo(Demo):
    command = "demo global"
    headline = f"{count(STACKS + 2, 'stack')} in 12 Clusters"

    def advice(self) -> Iterator[str]:
        yield from (*Demo.advice(self), *TO_TRY)

    async def play(self) -> None:
        await self.start_hub()
        with self.steps.step(f"Create 12 Clusters in {count(len(REGIONS), 'region')}, in the workspace {WORKSPACE}"):
            await self.workspace(WORKSPACE)
            for export in EXPORTS:
                await self.make(self._home, API_BINDINGS, _binding(export))
            for cluster in _clusters():
                await self._create(CLUSTERS, cluster)
        with self.steps.step("Bind the virtual machine demovm to a Cluster of region1"):
            await self._create(PODS, _machine("demovm", FLAVOR, "region1"))
            await self._bound("demovm")
        with self.steps.step(f"Bind {STACKS} stacks of two machines to Clusters of region2 and region3"):
            await self._create(ALLOCATIONS, _stack())
            await self.until(self._allocated, "the bindings of all stacks")
            self.outputs.append(
                (f"kubectl get allocations -A    # in {WORKSPACE}", await listed(self._home, ALLOCATIONS))
            )
        await self._find_no_room()
        await self._show()

    async def _find_no_room(self) -> None:
        """It is bound as soon as capacity is free."""
        with self.steps.step(f"Refuse a second {RARE}: all Clusters together have one"):
            await self._create(PODS, _machine("render1", RARE))
            await self._bound("render1")
            await self._create(PODS, _machine("render2", RARE))
            why = await self.until(self._refusal, "a reason")
            self.outputs.append((f"{MESSAGE}    # in {WORKSPACE}, while render1 existed", why))
        with self.steps.step("Delete the first one, and bind the second"):
            await self._home.delete(PODS, "render1", "default")
            await self._bound("render2")

    async def _show(self) -> None:
        with self.steps.step("Explain the binding of demovm"):
            await self.until(self._counted, "the number of stacks of each Cluster")
            for what, collection in (("pods -A -o wide", PODS), ("clusters -A", CLUSTERS)):
                shown = await listed(self._home, collection, wide=collection is PODS)
                self.outputs.append((f"kubectl get {what}    # in {WORKSPACE}", shown))
            command = "explain pod demovm"
            self.outputs.append((f"farflung {command}    # in {WORKSPACE}", await self.output_of(command, WORKSPACE)))

    # --- helpers --------------------------------------------------------------------------------------

    @property
    def _home(self) -> Client:
        return self.hub.workspace(WORKSPACE)

    async def _create(self, collection: Collection, obj: Obj) -> None:
        await self.make(self._home, collection, {**obj, "metadata": {**obj["metadata"], "namespace": "default"}})

    async def _bound(self, name: str) -> None:
        async def bound() -> bool:
            found = await self._home.get(PODS, name, "default")
            return find_condition(found.get("status") or {}, POD_SCHEDULED).get("status") == "True"

        await self.until(bound, f"a Cluster for {name}")

    async def _allocated(self) -> bool:
        found = await self._home.get(ALLOCATIONS, "shop", "default")
        return bool((found.get("status") or {}).get("phase") == "Bound")

    async def _refusal(self) -> str:
        found = await self._home.get(PODS, "render2", "default")
        return str(find_condition(found.get("status") or {}, POD_SCHEDULED).get("message", ""))

    async def _counted(self) -> bool:
        stacks = [(one.get("status") or {}).get("stacks", 0) for one in await self._home.list(CLUSTERS)]
        return bool(sum(stacks) == STACKS + 2)


def _binding(export: str) -> Obj:
    return {
        "apiVersion": API_BINDINGS.api_version,
        "kind": "APIBinding",
        "metadata": {"name": export},
        "spec": {"reference": {"export": {"path": "root:compute", "name": export}}},
    }
