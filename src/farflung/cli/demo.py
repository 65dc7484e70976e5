"""`farflung demo`: the whole story, from nothing to web pages served at two edges."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

import click
import orjson
import yaml

from farflung.cli.background import Background, Process
from farflung.cli.connection import PROVIDER, Asking
from farflung.cli.credentials import KUBECONFIG
from farflung.cli.demo_objects import CLUSTERS, COMMON, PAGES, SPECIAL, Cluster, Workload
from farflung.cli.printing import table
from farflung.cli.progress import Steps, shown
from farflung.cli.registration import Wanted, register
from farflung.cli.syncer_gen import server_of
from farflung.client.errors import AlreadyExists, ClientError, KubeconfigError, NotFound, Unreachable
from farflung.client.kubeconfig import load
from farflung.client.resource import Collection
from farflung.client.rest import Client
from farflung.edge.ports_taken import PortTaken, check
from farflung.lib.files import write_private
from farflung.machinery.errors import Obj
from farflung.syncer.manifest import Server, kubeconfig

T = TypeVar("T")

PATIENCE: Final = 120.0  #: seconds until we give up on one thing
POLL: Final = 0.05
LIFETIME: Final = 30 * 24 * 3600  #: seconds, of a syncer's token
WORKSPACES: Final = Collection("tenancy.kcp.io", "v1alpha1", "workspaces", "Workspace")
LOCATIONS: Final = Collection("scheduling.kcp.io", "v1alpha1", "locations", "Location")
TARGETS: Final = Collection("workload.kcp.io", "v1alpha1", "synctargets", "SyncTarget")
BINDINGS: Final = Collection("apis.kcp.io", "v1alpha1", "apibindings", "APIBinding")
PLACEMENTS: Final = Collection("edge.kcp.io", "v1alpha1", "edgeplacements", "EdgePlacement")
SLICES: Final = Collection("edge.kcp.io", "v1alpha1", "singleplacementslices", "SinglePlacementSlice")
NAMESPACES: Final = Collection("", "v1", "namespaces", "Namespace")
MAPS: Final = Collection("", "v1", "configmaps", "ConfigMap")
DEPLOYMENTS: Final = Collection("apps", "v1", "deployments", "Deployment")
SUMMARIES: Final = Collection("edge.kcp.io", "v1alpha1", "statussummaries", "StatusSummary")
AS_TABLE: Final = "application/json;as=Table;v=v1;g=meta.k8s.io"
INVENTORY: Final = "root:imw-1"
ORGANIZATION: Final = "root:my-org"
ENDING: Final = (signal.SIGTERM, signal.SIGHUP)  #: beside ^C
EDGES: Final = "edges.kubeconfig"  #: the contexts of the clusters


class DemoError(Exception):
    """A sentence that says what to do."""


@dataclass(frozen=True, slots=True)
class Place:
    """Everything that the demo makes is in one directory."""

    directory: Path

    @property
    def hub(self) -> Path:
        return self.directory / "hub"

    @property
    def edges(self) -> Path:
        return self.directory / EDGES

    def log(self, name: str) -> Path:
        return self.directory / f"{name}.log"

    @property
    def background(self) -> Background:
        return Background(self.directory / "processes.json")

    @property
    def environment(self) -> dict[str, str]:
        """Its edges are none of the user's others."""
        kept = {name: value for name, value in os.environ.items() if name != "KUBECONFIG"}
        return {**kept, "FARFLUNG_HOME": str(self.directory / "home")}


def place() -> Place:
    home = os.environ.get("FARFLUNG_HOME")
    return Place((Path(home) if home else Path.home() / ".farflung") / "demo")


def farflung(*words: str) -> list[str]:
    return [sys.executable, "-m", "farflung", *words]


# --- beginning and end ----------------------------------------------------------------------------


def run(*, keep: bool, runtime: str) -> None:
    """Shows everything, and leaves nothing behind unless it is to be kept.  Raises click.ClickException."""
    where = place()
    if clean(where):
        click.echo("An earlier demo was still running; it is stopped.", err=True)
    kept = False
    try:
        where.directory.mkdir(mode=0o700, parents=True)
        asyncio.run(_play(where, runtime))
        kept = keep
    except (DemoError, PortTaken, ClientError, OSError) as error:
        raise click.ClickException(f"{error}{_logs(where)}") from None
    except KeyboardInterrupt:
        raise click.Abort from None
    finally:
        if not kept:
            with _undisturbed():
                if where.background.processes():
                    with contextlib.suppress(OSError):  # the terminal may be gone
                        click.echo("Stopping it …", err=True)
                clean(where)
    if keep:
        _advise(where)
    else:
        click.echo(f"All of it is stopped and gone. `{_called()} demo --keep` leaves it running.", err=True)


def _called() -> str:
    """What to type for this program: `make demo` works without it on the PATH."""
    typed = Path(sys.argv[0])
    return str(typed) if typed.name == "farflung" and not shutil.which("farflung") else "farflung"


def stop() -> None:
    there = clean(place())
    click.echo("The demo is stopped and gone." if there else "No demo is running.")


def clean(where: Place) -> bool:
    """Stop and remove all that is there; whether something was."""
    if not where.directory.exists():
        return False
    where.background.stop()
    if (where.directory / "home").exists():
        _call(farflung("edge", "delete", "--all"), where.environment)
    shutil.rmtree(where.directory, ignore_errors=True)
    return True


def _call(command: list[str], environment: dict[str, str]) -> None:
    subprocess.run(  # noqa: S603
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        check=False,
    )


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Who presses ^C again wants it to end, and it does, but in order."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, *ENDING)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _logs(where: Place) -> str:
    """The last words of whatever failed."""
    said = []
    for file in sorted(where.directory.glob("*.log")):
        lines = file.read_text(errors="replace").splitlines()
        worth = [line for line in lines if line[:1] in ("E", "W") or "rror" in line]
        said += [f"\n  {file.stem}: {line[:300]}" for line in worth[-2:]]
    return "".join(said)


def _advise(where: Place) -> None:
    click.echo(
        f"""
It goes on running. To look around:

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
  curl http://localhost:8081

`{_called()} demo --stop` ends it and removes {where.directory}."""
    )


# --- the story ------------------------------------------------------------------------------------


async def _play(where: Place, runtime: str) -> None:
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    for number in ENDING:
        loop.add_signal_handler(number, task.cancel)
    check(("127.0.0.1", port) for port, _, _ in PAGES)
    began = time.monotonic()
    try:
        with shown(sys.stderr) as steps:
            async with Story(where, runtime, steps).opened() as story:
                await story.tell()
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    except ExceptionGroup as errors:
        raise _first(errors) from None
    click.echo(f"\n{len(PAGES)} pages from 2 clusters, {time.monotonic() - began:.1f} s after the start.\n")
    for port, cluster, workload in PAGES:
        click.secho(f"$ curl http://localhost:{port}    # {workload.name} on {cluster}", bold=True)
        click.echo(story.pages[port])
    for command, answer in story.told:
        click.secho(f"$ {command}", bold=True)
        click.echo(f"{answer}\n")


async def _listed(client: Client, collection: Collection) -> str:
    """As kubectl shows it."""
    answer = orjson.loads(await client.raw(f"{collection.path()}?includeObject=Metadata", accept=AS_TABLE))
    shown = [at for at, column in enumerate(answer["columnDefinitions"]) if not column.get("priority")]
    rows = [["NAMESPACE", *(answer["columnDefinitions"][at]["name"].upper() for at in shown)]]
    for row in answer["rows"]:
        rows.append([row["object"]["metadata"]["namespace"], *(str(row["cells"][at]) for at in shown)])
    return table(rows)


def _first(error: Exception) -> Exception:
    """What went wrong, of several things that did; mostly it is the same one."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


@dataclass(slots=True)
class Story:
    where: Place
    runtime: str
    steps: Steps
    pages: dict[int, str] = field(default_factory=dict)
    told: list[tuple[str, str]] = field(default_factory=list)  #: commands, and what they say of it
    _hub: Client | None = None
    _stack: contextlib.AsyncExitStack = field(default_factory=contextlib.AsyncExitStack)

    @contextlib.asynccontextmanager
    async def opened(self) -> AsyncIterator[Story]:
        async with self._stack:
            yield self

    async def tell(self) -> None:
        async with asyncio.TaskGroup() as group:
            edges = [group.create_task(self._make_edge(cluster)) for cluster in CLUSTERS]
            await self._start_hub()
            await self._fill_inventory()
            for workload in (COMMON, SPECIAL):
                await self._make_workload(workload)
            await self._see_slices()
            await asyncio.gather(*edges)
            await asyncio.gather(*(self._connect(cluster) for cluster in CLUSTERS))
            await asyncio.gather(*(self._see_running(name) for name in ("florin", "guilder")))
        for port, cluster, workload in PAGES:
            with self.steps.step(f"Fetch http://localhost:{port}: {workload.name} on {cluster}"):
                self.pages[port] = await self._page(port, workload)
        for workload in (COMMON, SPECIAL):
            await self._see_summary(workload)
        await self._trace(COMMON)

    @property
    def hub(self) -> Client:
        assert self._hub is not None
        return self._hub

    # --- the parts --------------------------------------------------------------------------------

    async def _start_hub(self) -> None:
        with self.steps.step("Start the hub and its controllers"):
            process = self._start("hub", "start", "--root-directory", str(self.where.hub), "--port", "0")
            path = self.where.hub / KUBECONFIG

            async def connected() -> Client | None:
                if not process.is_alive:
                    raise DemoError("the hub ended")
                if not path.exists():
                    return None
                client = self._hub or await self._client(path, "base")
                await client.raw("/readyz")
                return client

            self._hub = await self._until(connected, "the hub")

    def _start(self, name: str, *words: str) -> Process:
        where = self.where
        return where.background.start(name, farflung(*words), where.log(name), where.environment)

    async def _client(self, path: Path, context: str = "") -> Client:
        access = load(str(path), context=context)
        return Client(await self._stack.enter_async_context(access.transport()), access.prefix, "farflung-demo")

    async def _make_edge(self, cluster: Cluster) -> None:
        with self.steps.step(f"Make the cluster {cluster.name}"):
            config = self.where.directory / f"{cluster.name}-config.yaml"
            config.write_text(yaml.safe_dump(cluster.kind_config(), sort_keys=False))
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
                    process.send_signal(signal.SIGINT)  # it cleans up
                await process.wait()
                raise
            if process.returncode:
                why = said.decode(errors="replace").rpartition("Error: ")[2].strip()
                raise DemoError(f"the cluster {cluster.name} could not be made: {why}")

    async def _fill_inventory(self) -> None:
        with self.steps.step("Describe the clusters in the inventory: SyncTargets and Locations"):
            await self._workspace(INVENTORY)
            inventory = self.hub.workspace(INVENTORY)
            for cluster in CLUSTERS:
                await self._make(inventory, TARGETS, cluster.sync_target())
                await self._make(inventory, LOCATIONS, cluster.place())
            await self._until(lambda: self._delete_default(inventory), "the Location default")

    async def _delete_default(self, inventory: Client) -> bool:
        """It stands for every cluster, so each workload would go everywhere."""
        await inventory.delete(LOCATIONS, "default")
        return True

    async def _make_workload(self, workload: Workload) -> None:
        path = f"{ORGANIZATION}:{workload.workspace}"
        with self.steps.step(f"Describe the {workload.name} workload in {path}, and where it goes"):
            await self._workspace(ORGANIZATION)
            await self._workspace(path)
            client = self.hub.workspace(path)
            for binding in workload.bindings(PROVIDER):
                await self._make(client, BINDINGS, binding)
            await self._make(client, NAMESPACES, workload.home())
            await self._make(client, MAPS, workload.content())
            await self._make(client, DEPLOYMENTS, workload.server())
            await self._make(client, PLACEMENTS, workload.edge_placement())

    async def _see_slices(self) -> None:
        with self.steps.step("Resolve placements: common on florin and guilder, special on guilder"):
            for workload, wanted in ((COMMON, {"location-f", "location-g"}), (SPECIAL, {"location-g"})):
                client = self.hub.workspace(f"{ORGANIZATION}:{workload.workspace}")

                async def resolved(
                    client: Client = client, workload: Workload = workload, wanted: set[str] = wanted
                ) -> bool:
                    found = await client.get(SLICES, workload.placement)
                    return {one["locationName"] for one in found.get("destinations") or ()} == wanted

                await self._until(resolved, f"the SinglePlacementSlice {workload.placement}")

    async def _connect(self, cluster: Cluster) -> None:
        with self.steps.step(f"Connect {cluster.name}: a syncer between it and its mailbox"):
            said: list[str] = []
            wanted = Wanted(cluster.target, PROVIDER, LIFETIME, PATIENCE)
            registered = await register(self.hub.workspace(INVENTORY), wanted, said.append, time.time)
            server = server_of(Asking(str(self.where.hub / KUBECONFIG), "base"), "")
            mailbox = Server(f"{server.url}/clusters/{registered.cluster}", server.authority)
            path = self.where.directory / f"{cluster.name}-syncer.kubeconfig"
            write_private(path, kubeconfig(mailbox, {"token": registered.token}).encode())
            words = ["syncer", "--from-kubeconfig", str(path), "--to-kubeconfig", str(self.where.edges)]
            words += ["--to-context", f"kind-{cluster.name}", "--sync-target-name", cluster.target]
            words += ["--sync-target-uid", registered.uid, "-v", "2"]
            words += ["--state-directory", str(self.where.directory / f"{cluster.name}-syncer")]
            self._start(f"{cluster.name}-syncer", *words)

    async def _see_running(self, name: str) -> None:
        workloads = [COMMON, SPECIAL] if name == "guilder" else [COMMON]
        with self.steps.step(f"See {' and '.join(one.deployment for one in workloads)} run on {name}"):
            client = await self._client(self.where.edges, f"kind-{name}")
            for workload in workloads:

                async def available(workload: Workload = workload) -> bool:
                    found = await client.get(DEPLOYMENTS, workload.deployment, workload.namespace)
                    return bool((found.get("status") or {}).get("availableReplicas"))

                await self._until(available, f"the Deployment {workload.deployment} on {name}")

    async def _page(self, port: int, workload: Workload) -> str:
        async def fetched() -> str:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                writer.write(f"GET / HTTP/1.0\r\nHost: localhost:{port}\r\n\r\n".encode())
                head, _, body = (await reader.read(1_000_000)).partition(b"\r\n\r\n")
            finally:
                writer.close()
            text = body.decode(errors="replace")
            return text if b" 200 " in head[:20] and workload.sentence in text else ""

        return await self._until(fetched, f"the page at port {port}")

    async def _see_summary(self, workload: Workload) -> None:
        path, wanted = f"{ORGANIZATION}:{workload.workspace}", sum(one is workload for _, _, one in PAGES)
        with self.steps.step(f"Summarize {workload.deployment}: {wanted} of {wanted} report"):
            client = self.hub.workspace(path)

            async def summarized() -> bool:
                found = [one["destinations"] for one in await client.list(SUMMARIES)]
                good = {"expected": wanted, "reporting": wanted, "missing": 0, "stale": 0, "broken": 0}
                return good in found

            await self._until(summarized, f"a StatusSummary of {workload.deployment}")
            self.told.append((f"kubectl get ssum -A    # in {path}", await _listed(client, SUMMARIES)))

    async def _trace(self, workload: Workload) -> None:
        with self.steps.step(f"Trace {workload.deployment} to its clusters and back"):
            command = f"trace deployment/{workload.deployment} -n {workload.namespace}"
            path = f"{ORGANIZATION}:{workload.workspace}"
            where = ["--kubeconfig", str(self.where.hub / KUBECONFIG), "--context", "base", "--workspace", path]

            async def traced() -> str:
                process = await asyncio.create_subprocess_exec(
                    *farflung(*command.split(), *where),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.DEVNULL,
                    env=self.where.environment,
                )
                said, _ = await process.communicate()
                return said.decode().rstrip() if b"are up to date" in said else ""

            self.told.append((f"farflung {command}    # in {path}", await self._until(traced, "the trace")))

    # --- words ------------------------------------------------------------------------------------

    async def _workspace(self, path: str) -> None:
        parent, _, name = path.rpartition(":")
        body = {"apiVersion": WORKSPACES.api_version, "kind": "Workspace", "metadata": {"name": name}}
        with contextlib.suppress(AlreadyExists):
            await self.hub.workspace(parent).create(WORKSPACES, body)

        async def ready() -> bool:
            found = await self.hub.workspace(parent).get(WORKSPACES, name)
            return (found.get("status") or {}).get("phase") == "Ready"

        await self._until(ready, f"the workspace {path}")

    async def _make(self, client: Client, collection: Collection, obj: Obj) -> None:
        """As soon as it is served: a binding takes a moment."""

        async def made() -> bool:
            with contextlib.suppress(AlreadyExists):
                await client.create(collection, obj, obj["metadata"].get("namespace", ""))
            return True

        await self._until(made, f"{obj['kind']} {obj['metadata']['name']}")

    async def _until(self, look: Callable[[], Awaitable[T | None]], what: str) -> T:
        """What it finds, once it does; what is not there yet, and servers that do not answer yet, are waited for."""
        deadline, reason = time.monotonic() + PATIENCE, ""
        while time.monotonic() < deadline:
            try:
                found = await look()
                if found:
                    return found
            except (NotFound, Unreachable, KubeconfigError, OSError) as error:
                reason = f": {error}"
            await asyncio.sleep(POLL)
        raise DemoError(f"{what} is not there after {PATIENCE:.0f} s{reason}")
