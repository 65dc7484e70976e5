"""`farflung demo`: a hub, two embedded edges, and web pages from both."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import click
import yaml

from farflung.apis.edge.names import EDGE_GROUP, EDGE_PLACEMENTS, SINGLE_PLACEMENT_SLICES, STATUS_SUMMARIES
from farflung.apis.kcp.names import API_BINDINGS, APIS_GROUP, LOCATIONS, SYNC_TARGETS, WORKLOAD_GROUP
from farflung.apis.names import CONFIG_MAPS, DEPLOYMENTS, NAMESPACES
from farflung.cli import demo_stage
from farflung.cli.credentials import KUBECONFIG
from farflung.cli.demo_stage import TIMEOUT, Demo, DemoDirectory, DemoError, command_name, farflung, listed
from farflung.cli.output import show_progress
from farflung.cli.registration import RegistrationRequest, register
from farflung.cli.settings import ServerOptions
from farflung.cli.syncer_gen import server_of
from farflung.client.rest import Client
from farflung.edge.ports import PortUnavailable, check_ports
from farflung.inspect.hub import PROVIDER
from farflung.lib.files import write_private
from farflung.machinery.errors import Obj
from farflung.syncer.manifest import MailboxServer, kubeconfig

LIFETIME: Final = 30 * 24 * 3600  #: seconds, of a syncer's token
INVENTORY: Final = "root:imw-1"
ORGANIZATION: Final = "root:my-org"

EDGE: Final = "edge.kcp.io/v1alpha1"


@dataclass(frozen=True, slots=True)
class DemoCluster:
    """An embedded edge, with its SyncTarget and Location."""

    name: str
    ports: dict[int, int]  #: port of the node → index of PAGES
    target: str
    location: str
    target_labels: dict[str, str]
    location_labels: dict[str, str]

    def kind_config(self, first_port: int) -> Obj:
        mappings = [{"containerPort": inner, "hostPort": first_port + page} for inner, page in self.ports.items()]
        node = {"role": "control-plane", "extraPortMappings": mappings}
        return {"kind": "Cluster", "apiVersion": "kind.x-k8s.io/v1alpha4", "nodes": [node]}

    def sync_target(self) -> Obj:
        return {
            "apiVersion": "workload.kcp.io/v1alpha1",
            "kind": "SyncTarget",
            "metadata": {"name": self.target, "labels": self.target_labels},
            "spec": {"cells": {"demo": self.name}},
        }

    def place(self) -> Obj:
        resource = {"group": WORKLOAD_GROUP, "version": "v1alpha1", "resource": "synctargets"}
        return {
            "apiVersion": "scheduling.kcp.io/v1alpha1",
            "kind": "Location",
            "metadata": {"name": self.location, "labels": self.location_labels},
            "spec": {"resource": resource, "instanceSelector": {"matchLabels": self.target_labels}},
        }


@dataclass(frozen=True, slots=True)
class DemoWorkload:
    """A web site in a workspace of its own."""

    name: str
    workspace: str
    namespace: str
    deployment: str
    port: int  #: of the node
    sentence: str
    placement: str
    where: dict[str, str]

    def binding(self, name: str, path: str, export: str) -> Obj:
        return {
            "apiVersion": "apis.kcp.io/v1alpha1",
            "kind": "APIBinding",
            "metadata": {"name": name},
            "spec": {"reference": {"export": {"path": path, "name": export}}},
        }

    def bindings(self, provider: str) -> list[Obj]:
        return [
            self.binding("bind-kube", "root:compute", "kubernetes"),
            self.binding("bind-espw", provider, EDGE_GROUP),
        ]

    @property
    def page(self) -> str:
        return f"<!DOCTYPE html>\n<html>\n  <body>\n    {self.sentence}\n  </body>\n</html>\n"

    def home(self) -> Obj:
        metadata = {"name": self.namespace, "labels": {self.name: "si"}}
        return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}

    def content(self) -> Obj:
        metadata = {"name": "httpd-htdocs", "namespace": self.namespace}
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"index.html": self.page}}

    def server(self) -> Obj:
        labels = {"app": self.name}
        container = {
            "name": "httpd",
            "image": "library/httpd:2.4",
            "ports": [{"name": "http", "containerPort": 80, "hostPort": self.port, "protocol": "TCP"}],
            "volumeMounts": [{"name": "htdocs", "readOnly": True, "mountPath": "/usr/local/apache2/htdocs"}],
        }
        volume = {"name": "htdocs", "configMap": {"name": "httpd-htdocs", "optional": False}}
        return {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": self.deployment, "namespace": self.namespace},
            "spec": {
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {"containers": [container], "volumes": [volume]},
                },
            },
        }

    def edge_placement(self) -> Obj:
        bindings = {"apiGroup": APIS_GROUP, "resources": ["apibindings"], "resourceNames": ["bind-kube"]}
        return {
            "apiVersion": EDGE,
            "kind": "EdgePlacement",
            "metadata": {"name": self.placement},
            "spec": {
                "locationSelectors": [{"matchLabels": self.where}],
                "namespaceSelector": {"matchLabels": {self.name: "si"}},
                "nonNamespacedObjects": [bindings],
            },
        }


CLUSTERS: Final = (
    DemoCluster(
        "florin",
        {8081: 0},
        "sync-target-f",
        "location-f",
        {"example": "si", "extended": "non"},
        {"env": "prod"},
    ),
    DemoCluster(
        "guilder",
        {8081: 2, 8082: 1},
        "sync-target-g",
        "location-g",
        {"example": "si", "extended": "si"},
        {"env": "prod", "extended": "si"},
    ),
)
COMMON: Final = DemoWorkload(
    "common",
    "wmw-c",
    "commonstuff",
    "commond",
    8081,
    "This is a common web site.",
    "edge-placement-c",
    {"env": "prod"},
)
SPECIAL: Final = DemoWorkload(
    "special",
    "wmw-s",
    "specialstuff",
    "speciald",
    8082,
    "This is a special web site.",
    "edge-placement-s",
    {"env": "prod", "extended": "si"},
)
#: cluster and workload of each page; ports are consecutive
PAGES: Final = (("florin", COMMON), ("guilder", SPECIAL), ("guilder", COMMON))


def run(*, keep: bool, replace: bool, runtime: str, first_port: int) -> None:
    """Removes everything at the end, unless `keep`.  Raises click.ClickException."""

    async def play(where: DemoDirectory) -> None:
        await _play(where, runtime, first_port)

    def advice(where: DemoDirectory) -> str:
        return _advice(where, first_port)

    demo_stage.run(play, "demo", keep=keep, replace=replace, advice=advice)


def _advice(where: DemoDirectory, first_port: int) -> str:
    return f"""
The demo keeps running. Try:

  export KUBECONFIG={where.hub / KUBECONFIG}:{where.edges}
  export PATH={Path(sys.executable).parent}:$PATH
  kubectl config use-context root
  kubectl ws tree
  kubectl ws root:imw-1 && kubectl get locations,synctargets
  kubectl ws root:my-org:wmw-c && kubectl get edgeplacements,singleplacementslices,statussummaries -A
  farflung trace deployment/commond -n commonstuff
  farflung status
  kubectl get --context kind-florin deployments,pods -A
  kubectl get --context kind-guilder deployments,pods -A
  curl http://localhost:{first_port}

`{command_name()} demo --stop` stops it and removes {where.directory}."""


# --- steps ----------------------------------------------------------------------------------------


async def _play(where: DemoDirectory, runtime: str, first_port: int) -> None:
    try:
        check_ports(("127.0.0.1", first_port + number) for number in range(len(PAGES)))
    except PortUnavailable as error:
        raise DemoError(f"{error}; choose others with --first-port") from None
    began = time.monotonic()
    with show_progress(sys.stderr) as steps:
        async with EdgeDemo(where, steps, runtime=runtime, first_port=first_port).opened() as story:
            await story.play()
    click.echo(f"\n{len(PAGES)} pages from 2 clusters, {time.monotonic() - began:.1f} s after the start.\n")
    for port, (cluster, workload) in enumerate(PAGES, first_port):
        click.secho(f"$ curl http://localhost:{port}    # {workload.name} on {cluster}", bold=True)
        click.echo(story.pages[port])
    story.show()


@dataclass(slots=True)
class EdgeDemo(Demo):
    runtime: str = "process"
    first_port: int = 8081
    pages: dict[int, str] = field(default_factory=dict)

    async def play(self) -> None:
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
        for port, (cluster, workload) in enumerate(PAGES, self.first_port):
            with self.steps.step(f"Fetch http://localhost:{port}: {workload.name} on {cluster}"):
                self.pages[port] = await self._page(port, workload)
        for workload in (COMMON, SPECIAL):
            await self._wait_for_summary(workload)
        await self._trace(COMMON)

    # --- the parts --------------------------------------------------------------------------------

    async def _make_edge(self, cluster: DemoCluster) -> None:
        with self.steps.step(f"Create the cluster {cluster.name}"):
            config = self.where.directory / f"{cluster.name}-config.yaml"
            config.write_text(yaml.safe_dump(cluster.kind_config(self.first_port), sort_keys=False))
            words = ["edge", "create", cluster.name, "--config", str(config), "--runtime", self.runtime]
            words += ["--kubeconfig", str(self.where.edges)]
            process = await asyncio.create_subprocess_exec(
                *farflung(*words),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
                env=self.where.environment,
                start_new_session=True,
            )
            try:
                _, said = await process.communicate()
            except asyncio.CancelledError:
                with contextlib.suppress(ProcessLookupError):
                    process.send_signal(signal.SIGINT)  # the command cleans up
                await process.wait()
                raise
            if process.returncode:
                why = said.decode(errors="replace").rpartition("Error: ")[2].strip()
                raise DemoError(f"the cluster {cluster.name} could not be created: {why}")

    async def _fill_inventory(self) -> None:
        with self.steps.step("Register the clusters: create SyncTargets and Locations"):
            await self.workspace(INVENTORY)
            inventory = self.hub.workspace(INVENTORY)
            for cluster in CLUSTERS:
                await self.make(inventory, SYNC_TARGETS, cluster.sync_target())
                await self.make(inventory, LOCATIONS, cluster.place())
            await self.until(lambda: self._delete_default(inventory), "the Location default")

    async def _delete_default(self, inventory: Client) -> bool:
        """It selects every cluster, so that each workload would be placed on all of them."""
        await inventory.delete(LOCATIONS, "default")
        return True

    async def _make_workload(self, workload: DemoWorkload) -> None:
        path = f"{ORGANIZATION}:{workload.workspace}"
        with self.steps.step(f"Create the {workload.name} workload and its EdgePlacement in {path}"):
            await self.workspace(ORGANIZATION)
            await self.workspace(path)
            client = self.hub.workspace(path)
            for binding in workload.bindings(PROVIDER):
                await self.make(client, API_BINDINGS, binding)
            await self.make(client, NAMESPACES, workload.home())
            await self.make(client, CONFIG_MAPS, workload.content())
            await self.make(client, DEPLOYMENTS, workload.server())
            await self.make(client, EDGE_PLACEMENTS, workload.edge_placement())

    async def _wait_for_slices(self) -> None:
        with self.steps.step("Resolve placements: common on florin and guilder, special on guilder"):
            for workload, wanted in ((COMMON, {"location-f", "location-g"}), (SPECIAL, {"location-g"})):
                client = self.hub.workspace(f"{ORGANIZATION}:{workload.workspace}")

                async def resolved(
                    client: Client = client, workload: DemoWorkload = workload, wanted: set[str] = wanted
                ) -> bool:
                    found = await client.get(SINGLE_PLACEMENT_SLICES, workload.placement)
                    return {one["locationName"] for one in found.get("destinations") or ()} == wanted

                await self.until(resolved, f"the SinglePlacementSlice {workload.placement}")

    async def _connect(self, cluster: DemoCluster) -> None:
        with self.steps.step(f"Connect {cluster.name}: start its syncer"):
            said: list[str] = []
            wanted = RegistrationRequest(cluster.target, PROVIDER, LIFETIME, TIMEOUT)
            registered = await register(self.hub.workspace(INVENTORY), wanted, said.append, time.time)
            server = server_of(ServerOptions(kubeconfig=str(self.where.hub / KUBECONFIG), context="base"), "")
            mailbox = MailboxServer(f"{server.url}/clusters/{registered.cluster}", server.authority)
            path = self.where.directory / f"{cluster.name}-syncer.kubeconfig"
            write_private(path, kubeconfig(mailbox, {"token": registered.token}).encode())
            words = ["syncer", "--from-kubeconfig", str(path), "--to-kubeconfig", str(self.where.edges)]
            words += ["--to-context", f"kind-{cluster.name}", "--sync-target-name", cluster.target]
            words += ["--sync-target-uid", registered.uid, "-v", "2"]
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
            return text if b" 200 " in head[:20] and workload.sentence in text else ""

        return await self.until(fetched, f"the page at port {port}")

    async def _wait_for_summary(self, workload: DemoWorkload) -> None:
        path, wanted = f"{ORGANIZATION}:{workload.workspace}", sum(one is workload for _, one in PAGES)
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
            path = f"{ORGANIZATION}:{workload.workspace}"

            async def traced() -> str:
                said = await self.command(command, path)
                return said if "are up to date" in said else ""

            self.outputs.append((f"farflung {command}    # in {path}", await self.until(traced, "the trace")))
