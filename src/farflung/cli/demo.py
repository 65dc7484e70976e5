"""`farflung demo`: a hub, two embedded edges, and web pages from both."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import yaml

from farflung.apis.edge.names import EDGE_PLACEMENTS, SINGLE_PLACEMENT_SLICES, STATUS_SUMMARIES
from farflung.apis.kcp.names import API_BINDINGS, LOCATIONS, SYNC_TARGETS
from farflung.apis.names import CONFIG_MAPS, DEPLOYMENTS, NAMESPACES
from farflung.cli.credentials import KUBECONFIG
from farflung.cli.demo_stage import Demo, DemoError, farflung, listed
from farflung.client.rest import Client
from farflung.edge.ports import PortUnavailable, check_ports
from farflung.inspect.manifests import manifests
from farflung.machinery.errors import Obj

INVENTORY: Final = "root:imw-1"
ORGANIZATION: Final = "root:my-org"
OBJECTS: Final = Path(__file__).with_name("demo_objects")  #: files that `kubectl apply -f` would accept
COLLECTIONS: Final = {
    one.kind: one
    for one in (API_BINDINGS, NAMESPACES, CONFIG_MAPS, DEPLOYMENTS, EDGE_PLACEMENTS, SYNC_TARGETS, LOCATIONS)
}


@dataclass(frozen=True, slots=True)
class DemoCluster:
    """An embedded edge, with its SyncTarget."""

    name: str
    target: str
    ports: dict[int, int]  #: port of the node → index of PAGES

    def kind_config(self, first_port: int) -> Obj:
        mappings = [{"containerPort": inner, "hostPort": first_port + page} for inner, page in self.ports.items()]
        node = {"role": "control-plane", "extraPortMappings": mappings}
        return {"kind": "Cluster", "apiVersion": "kind.x-k8s.io/v1alpha4", "nodes": [node]}


class DemoWorkload(NamedTuple):
    """A web site in a workspace of its own."""

    name: str  #: of its file in OBJECTS
    path: str  #: of the workspace
    namespace: str
    deployment: str
    placement: str
    locations: frozenset[str]  #: that the placement selects


CLUSTERS: Final = (
    DemoCluster("florin", "sync-target-f", {8081: 0}),
    DemoCluster("guilder", "sync-target-g", {8081: 2, 8082: 1}),
)
COMMON: Final = DemoWorkload(
    "common", "root:my-org:wmw-c", "commonstuff", "commond", "edge-placement-c", frozenset(("location-f", "location-g"))
)
SPECIAL: Final = DemoWorkload(
    "special", "root:my-org:wmw-s", "specialstuff", "speciald", "edge-placement-s", frozenset(("location-g",))
)
#: cluster and workload of each page; ports are consecutive
PAGES: Final = (("florin", COMMON), ("guilder", SPECIAL), ("guilder", COMMON))
TO_TRY: Final = (
    "kubectl config use-context root",
    "kubectl ws tree",
    "kubectl ws root:imw-1 && kubectl get locations,synctargets",
    "kubectl ws root:my-org:wmw-c && kubectl get edgeplacements,singleplacementslices,statussummaries -A",
    "farflung trace deployment/commond -n commonstuff",
    "farflung status",
    "kubectl get --context kind-florin deployments,pods -A",
    "kubectl get --context kind-guilder deployments,pods -A",
)


# --- steps ----------------------------------------------------------------------------------------


class EdgeDemo(Demo):
    headline = f"{len(PAGES)} pages from 2 clusters"

    def advice(self) -> Iterator[str]:
        yield f"export KUBECONFIG={self.where.hub / KUBECONFIG}:{self.where.edges}"
        yield f"export PATH={Path(sys.executable).parent}:$PATH"
        yield from TO_TRY
        yield f"curl http://localhost:{self.options.first_port}"

    async def play(self) -> None:
        pages = list(enumerate(PAGES, self.options.first_port))
        try:
            check_ports(("127.0.0.1", port) for port, _ in pages)
        except PortUnavailable as error:
            raise DemoError(f"{error}; choose others with --first-port") from None
        async with asyncio.TaskGroup() as group:
            edges = [group.create_task(self._make_edge(cluster)) for cluster in CLUSTERS]
            await self.start_hub()
            await self._fill_inventory()
            for workload in (COMMON, SPECIAL):
                await self._make_workload(workload)
            await self._wait_for_slices()
            await asyncio.gather(*edges)
            await asyncio.gather(*(self._connect(cluster) for cluster in CLUSTERS))
            await asyncio.gather(*(self._wait_for_deployments(name) for name in ("florin", "guilder")))
        for port, (cluster, workload) in pages:
            where, url = f"{workload.name} on {cluster}", f"http://localhost:{port}"
            with self.steps.step(f"Fetch {url}: {where}"):
                self.outputs.append((f"curl {url}    # {where}", await self._page(port, workload)))
        for workload in (COMMON, SPECIAL):
            await self._wait_for_summary(workload)
        await self._trace(COMMON)

    # --- the parts --------------------------------------------------------------------------------

    async def _make_edge(self, cluster: DemoCluster) -> None:
        with self.steps.step(f"Create the cluster {cluster.name}"):
            config = self.where.directory / f"{cluster.name}-config.yaml"
            config.write_text(yaml.safe_dump(cluster.kind_config(self.options.first_port), sort_keys=False))
            words = ["--config", str(config), "--runtime", self.options.runtime, "--kubeconfig", str(self.where.edges)]
            failure = f"the cluster {cluster.name} could not be created"
            await self.call(failure, farflung("edge", "create", cluster.name, *words))

    async def _fill_inventory(self) -> None:
        with self.steps.step("Register the clusters: create SyncTargets and Locations"):
            await self.workspace(INVENTORY)
            inventory = self.hub.workspace(INVENTORY)
            await self._apply(inventory, "inventory")
            await self.until(lambda: self._delete_default(inventory), "the Location default")

    async def _apply(self, client: Client, name: str) -> None:
        """Create the objects of a file, as `kubectl apply -f` does."""
        for _, obj in manifests([str(OBJECTS / f"{name}.yaml")]):
            await self.make(client, COLLECTIONS[obj["kind"]], obj)

    async def _delete_default(self, inventory: Client) -> bool:
        """It selects every cluster, so that each workload would be placed on all of them."""
        await inventory.delete(LOCATIONS, "default")
        return True

    async def _make_workload(self, workload: DemoWorkload) -> None:
        with self.steps.step(f"Create the {workload.name} workload and its EdgePlacement in {workload.path}"):
            await self.workspace(ORGANIZATION)
            await self.workspace(workload.path)
            for file in ("bindings", workload.name):
                await self._apply(self.hub.workspace(workload.path), file)

    async def _wait_for_slices(self) -> None:
        with self.steps.step("Resolve placements: common on florin and guilder, special on guilder"):
            for workload in (COMMON, SPECIAL):

                async def resolved(workload: DemoWorkload = workload) -> bool:
                    found = await self.hub.workspace(workload.path).get(SINGLE_PLACEMENT_SLICES, workload.placement)
                    return {one["locationName"] for one in found.get("destinations") or ()} == workload.locations

                await self.until(resolved, f"the SinglePlacementSlice {workload.placement}")

    async def _connect(self, cluster: DemoCluster) -> None:
        with self.steps.step(f"Connect {cluster.name}: start its syncer"):
            path = str(self.where.directory / f"{cluster.name}-syncer.kubeconfig")
            options = ["--syncer-kubeconfig", path, *self.where.hub_options(INVENTORY)]
            failure = f"the syncer of {cluster.name} could not be registered"
            await self.call(failure, farflung("syncer-gen", cluster.target, *options))
            target = await self.hub.workspace(INVENTORY).get(SYNC_TARGETS, cluster.target)
            words = ["syncer", "--from-kubeconfig", path, "--to-kubeconfig", str(self.where.edges)]
            words += ["--to-context", f"kind-{cluster.name}", "--sync-target-name", cluster.target]
            words += ["--sync-target-uid", target["metadata"]["uid"], "-v", "2"]
            words += ["--state-directory", str(self.where.directory / f"{cluster.name}-syncer")]
            self.start(f"{cluster.name}-syncer", *words)

    async def _wait_for_deployments(self, name: str) -> None:
        workloads = [COMMON, SPECIAL] if name == "guilder" else [COMMON]
        with self.steps.step(f"Wait for {' and '.join(one.deployment for one in workloads)} on {name}"):
            client = await self.client(self.where.edges, f"kind-{name}")
            for workload in workloads:

                async def available(workload: DemoWorkload = workload) -> bool:
                    found = await client.get(DEPLOYMENTS, workload.deployment, workload.namespace)
                    return bool((found.get("status") or {}).get("availableReplicas"))

                await self.until(available, f"the Deployment {workload.deployment} on {name}")

    async def _page(self, port: int, workload: DemoWorkload) -> str:
        async def fetched() -> str:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                writer.write(f"GET / HTTP/1.0\r\nHost: localhost:{port}\r\n\r\n".encode())
                head, _, body = (await reader.read(1_000_000)).partition(b"\r\n\r\n")
            finally:
                writer.close()
            text = body.decode(errors="replace")
            there = b" 200 " in head[:20] and f"This is a {workload.name} web site." in text
            return text if there else ""

        return await self.until(fetched, f"the page at port {port}")

    async def _wait_for_summary(self, workload: DemoWorkload) -> None:
        path, wanted = workload.path, len(workload.locations)
        with self.steps.step(f"Summarize {workload.deployment}: {wanted} of {wanted} report"):
            client = self.hub.workspace(path)

            async def summarized() -> bool:
                found = [one["destinations"] for one in await client.list(STATUS_SUMMARIES)]
                good = {"expected": wanted, "reporting": wanted, "missing": 0, "stale": 0, "broken": 0}
                return good in found

            await self.until(summarized, f"a StatusSummary of {workload.deployment}")
            self.outputs.append((f"kubectl get ssum -A    # in {path}", await listed(client, STATUS_SUMMARIES)))

    async def _trace(self, workload: DemoWorkload) -> None:
        with self.steps.step(f"Trace {workload.deployment} to its clusters"):
            command = f"trace deployment/{workload.deployment} -n {workload.namespace}"

            async def traced() -> str:
                output = await self.output_of(command, workload.path)
                return output if "are up to date" in output else ""

            self.outputs.append((f"farflung {command}    # in {workload.path}", await self.until(traced, "the trace")))
