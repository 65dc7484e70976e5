"""A mailbox in a real hub, any cluster at all, and a syncer between them with the rights that its manifest gives it.

Nothing is assumed of the cluster but that it is a Kubernetes with its controllers: what a test makes there has names of
its own, and goes with it.
"""

from __future__ import annotations

import asyncio
import base64
import io
import os
import random
import re
import secrets
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from asked_hub import BINDINGS, custom
from edge_objects import CONFIGS, DEFINITIONS, MAPS, NAMESPACES, OLD_CONFIGS, POLICIES, POLICY_BINDINGS, obj, resource
from hub_process import FARFLUNG, HubProcess
from translated import binding

from farflung.apis.edge.names import SYNCER_FINALIZER, SYNCER_MANAGER
from farflung.apis.kcp.names import SYNC_TARGETS
from farflung.apis.names import SERVICE_ACCOUNTS, Collection
from farflung.client.errors import ClientError, NotFound, UpdateConflict
from farflung.client.kubeconfig import load, merge
from farflung.client.rest import Client
from farflung.client.transport import OutgoingRequest, Reply, Transport
from farflung.lib.backoff import Backoff
from farflung.lib.klog import Logger
from farflung.machinery.errors import Obj
from farflung.placement.names import GroupResource
from farflung.runtime.environment import Environment
from farflung.syncer.context import SyncerOptions
from farflung.syncer.decide import Adopt
from farflung.syncer.journal import Journal
from farflung.syncer.manifest import MailboxServer, edge_objects, kubeconfig
from farflung.syncer.manifest import SyncerInstallation as Manifest
from farflung.syncer.rbac import edge_rules
from farflung.syncer.registration import COLLECTIONS, Registered, RegistrationRequest, register
from farflung.syncer.syncer import Syncer, is_idle

PATIENCE = 60.0
INVENTORY, PROVIDER = "root:compute", "root:espw"
ROLES, ROLE_BINDINGS = COLLECTIONS["ClusterRole"], COLLECTIONS["ClusterRoleBinding"]
MISTAKE = re.compile(r"Error at \S+\.py:\d+ in ")  #: how a controller logs one of ours
REPORT = "/syncerconfigs/the-one/status?"

Write = tuple[str, str]  #: method and path


# --- both sides -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Grounds:
    """What all tests share."""

    hub: HubProcess
    edge: Path  #: the kubeconfig of somebody who may do everything at the edge

    def edge_kubeconfig(self, token: str, place: Path) -> Path:
        """The same cluster for somebody else."""
        merged = merge([self.edge])
        cluster = dict(merged.clusters[str(merged.contexts[merged.current]["cluster"])])
        beside = cluster.pop("")
        if file := cluster.pop("certificate-authority", ""):
            content = (Path(beside) / file).read_bytes()
            cluster["certificate-authority-data"] = base64.b64encode(content).decode()
        context = {"cluster": "edge", "user": "syncer"}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "edge", "cluster": cluster}],
            "users": [{"name": "syncer", "user": {"token": token}}],
            "contexts": [{"name": "edge", "context": context}],
            "current-context": "edge",
        }
        place.write_text(yaml.safe_dump(config))
        return place


class Counting:
    """A line that remembers what was written by it, signs of life aside, and how many of those there were."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.writes: list[Write] = []
        self.reports = 0

    @asynccontextmanager
    async def open(self, request: OutgoingRequest) -> AsyncIterator[Reply]:
        if REPORT in request.target:
            self.reports += 1
        elif request.method != "GET":
            self.writes.append((request.method, request.target.partition("?")[0]))
        async with self._transport.open(request) as reply:
            yield reply


def environment() -> Environment:
    return Environment(time.monotonic, asyncio.sleep, random.random, Backoff(0.02, 1.0, random.random))


# --- one mailbox, one syncer ----------------------------------------------------------------------


@dataclass
class Link:
    grounds: Grounds
    directory: Path
    name: str  #: that everything has in its name which the test makes at the edge
    mailbox: Client  #: as an operator has it
    cluster: Client  #: the edge, for whoever may do everything there
    inventory: Client
    adopt: Adopt = Adopt.IF_IDENTICAL
    log: io.StringIO = field(default_factory=io.StringIO)
    up: Counting | None = None
    down: Counting | None = None
    syncer: Syncer | None = None
    registered: Registered | None = None
    _running: asyncio.Task[None] | None = None
    _stack: AsyncExitStack | None = None

    # --- names ------------------------------------------------------------------------------------

    def called(self, what: str) -> str:
        """A name that nobody else has."""
        return f"{self.name}-{what}"

    def kind(self, plural: str, kind: str, version: str = "v1") -> Collection:
        """One that nobody else has."""
        return Collection(f"{self.name}.example.com", version, plural, kind)

    # --- the syncer -------------------------------------------------------------------------------

    async def register(
        self, *, down: Iterable[Collection] = (), up: Iterable[Collection] = (), withheld: Iterable[Collection] = ()
    ) -> None:
        """Give it the rights that `syncer-gen` would give it at this moment, and for these kinds; at the edge, without
        those that are withheld."""
        wanted = RegistrationRequest(
            self.name, PROVIDER, 3600, PATIENCE, frozenset(map(resource, down)), frozenset(map(resource, up))
        )
        self.registered = await register(self.inventory, wanted, lambda sentence: None, time.time)
        address = self.grounds.hub.address
        url = f"{address.scheme}://{address.netloc}/clusters/{self.registered.cluster}"
        server = MailboxServer(url, (self.grounds.hub.directory / "ca.crt").read_bytes())
        self.hub_kubeconfig.write_text(kubeconfig(server, {"token": self.registered.token}))
        hidden = set(map(resource, withheld))
        rules = [_without(rule, hidden) for rule in edge_rules(self.registered.kinds)]
        manifest = Manifest(self.name, self.registered.uid, server, "", rules, "none")
        for one in edge_objects(manifest):
            if one["kind"] in COLLECTIONS:
                await self.cluster.apply(COLLECTIONS[one["kind"]], one, force=True)
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        asked: Obj = {**request, "metadata": {"name": manifest.name}}
        answer = await self.cluster.create(SERVICE_ACCOUNTS, asked, manifest.home, "token")
        self.grounds.edge_kubeconfig(answer["status"]["token"], self.edge_kubeconfig)

    @property
    def hub_kubeconfig(self) -> Path:
        return self.directory / "mailbox.kubeconfig"

    @property
    def edge_kubeconfig(self) -> Path:
        return self.directory / "edge.kubeconfig"

    @property
    def state(self) -> Path:
        return self.directory / "state"

    async def start(self) -> None:
        """In this process.  Registered, if it is not yet."""
        if self.registered is None:
            await self.register()
        self._stack = stack = AsyncExitStack()
        hub_access, edge_access = load(str(self.hub_kubeconfig)), load(str(self.edge_kubeconfig))
        self.up = Counting(await stack.enter_async_context(hub_access.transport()))
        self.down = Counting(await stack.enter_async_context(edge_access.transport()))
        self.state.mkdir(exist_ok=True)
        journal = Journal.open(self.state / "journal.sqlite")
        stack.callback(journal.close)
        mailbox = Client(self.up, hub_access.prefix, SYNCER_MANAGER)
        edge = Client(self.down, edge_access.prefix, SYNCER_MANAGER)
        assert self.registered is not None
        uid = self.registered.uid
        options = SyncerOptions(
            mailbox, edge, self.name, uid, lambda: datetime.now(UTC), self.adopt, beat=2.0, pause=0.05
        )
        self.syncer = Syncer(options, journal, environment(), Logger(self.log, 5))
        self._running = asyncio.create_task(self.syncer.run())

    async def stop(self) -> None:
        if self._running is None or self._stack is None:
            return
        self._running.cancel()
        ended = (await asyncio.gather(self._running, return_exceptions=True))[0]
        await self._stack.aclose()
        self._running = self._stack = self.syncer = None
        assert isinstance(ended, asyncio.CancelledError), ended
        assert not MISTAKE.search(self.log.getvalue()), self.log.getvalue()

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    def command(self) -> list[str]:
        """The same as a process of its own."""
        assert self.registered is not None
        return [
            FARFLUNG,
            "syncer",
            f"--from-kubeconfig={self.hub_kubeconfig}",
            f"--to-kubeconfig={self.edge_kubeconfig}",
            f"--sync-target-name={self.name}",
            f"--sync-target-uid={self.registered.uid}",
            f"--state-directory={self.state}",
            f"--adopt={self.adopt.value}",
            "-v5",
        ]

    @property
    def writes(self) -> list[Write]:
        """Since the syncer was started, on both sides."""
        assert self.up is not None
        assert self.down is not None
        return self.up.writes + self.down.writes

    async def settled(self) -> list[Write]:
        """Until it has said how it is, has nothing to do, and did nothing for a while.  What it wrote so far."""
        quiet_since, known = time.monotonic(), -1

        def quiet() -> bool:
            nonlocal quiet_since, known
            assert self.syncer is not None
            assert self.up is not None
            if len(self.writes) != known or not is_idle(self.syncer) or not self.up.reports:
                quiet_since, known = time.monotonic(), len(self.writes)
            return time.monotonic() - quiet_since > 0.2

        await self.eventually(quiet, "rest")
        return self.writes

    # --- what is wanted ---------------------------------------------------------------------------

    async def configure(self, **spec: Any) -> None:
        """All that `the-one` says."""
        patch = {"spec": {"namespaceScope": None, "namespacedObjects": None, "clusterScope": None, "upsync": None}}
        patch["spec"].update(spec)
        await self.mailbox.patch(CONFIGS, "the-one", patch)

    async def configure_old(self, **spec: Any) -> None:
        """All that the EdgeSyncConfig says."""
        config = obj(OLD_CONFIGS, self.name, {"spec": spec})
        try:
            version = (await self.mailbox.get(OLD_CONFIGS, self.name))["metadata"]["resourceVersion"]
        except NotFound:
            await self.mailbox.create(OLD_CONFIGS, config)
        else:
            config["metadata"]["resourceVersion"] = version
            await self.mailbox.update(OLD_CONFIGS, config)

    async def put(self, collection: Collection, one: Obj, namespace: str = "") -> Obj:
        """A copy in the mailbox, as the translator marks it."""
        metadata = {**one["metadata"]}
        metadata["labels"] = {**metadata.get("labels", {}), "edge.kcp.io/projected": "yes"}
        found: Obj = await self.eventually(
            lambda: self.mailbox.create(collection, {**one, "metadata": metadata}, namespace), "creation"
        )
        return found

    async def put_namespace(self, what: str) -> str:
        """Its name."""
        name = self.called(what)
        await self.put(NAMESPACES, obj(NAMESPACES, name))
        return name

    async def put_map(self, namespace: str, name: str, **data: str) -> Obj:
        return await self.put(MAPS, obj(MAPS, name, {"data": data}), namespace)

    async def at_edge_already(self, collection: Collection, one: Obj, namespace: str = "") -> Obj:
        """Something that somebody at the edge made.  Its namespace is made if there is none."""
        if namespace:
            with suppress(ClientError):
                await self.cluster.create(NAMESPACES, obj(NAMESPACES, namespace))
        found: Obj = await self.eventually(lambda: self.cluster.create(collection, one, namespace), "creation")
        return found

    async def define(self, *clients: Client, **definitions: Obj) -> None:
        """On these sides, and wait until they serve it."""
        for client in clients:
            for one in definitions.values():
                await client.create(DEFINITIONS, one)
        for client in clients:
            for one in definitions.values():
                await self.established(client, one["metadata"]["name"])

    async def established(self, client: Client, name: str) -> None:
        async def is_served() -> bool:
            conditions = (await client.get(DEFINITIONS, name))["status"].get("conditions") or ()
            return any(one["type"] == "Established" and one["status"] == "True" for one in conditions)

        await self.eventually(is_served, f"{name} being served")

    # --- what comes of it -------------------------------------------------------------------------

    async def eventually(self, condition: Callable[[], Any], what: str = "the condition") -> Any:
        """What it comes to.  It may be a coroutine function, and raise that something is not there yet."""
        deadline = time.monotonic() + PATIENCE
        error: Exception | None = None
        while True:
            try:
                found = condition()
                if asyncio.iscoroutine(found):
                    found = await found
            except (ClientError, KeyError, IndexError) as raised:
                found, error = None, raised
            if found:
                return found
            if self._running is not None and self._running.done():
                self._running.result()
            assert time.monotonic() < deadline, f"{what} did not come true: {error}\n{self.log.getvalue()[-6000:]}"
            await asyncio.sleep(0.03)

    async def _until(
        self, client: Client, where: str, collection: Collection, name: str, namespace: str, holds: Callable[[Obj], Any]
    ) -> Obj:
        last: Obj = {}

        async def look() -> Obj | None:
            nonlocal last
            last = await client.get(collection, name, namespace)
            return last if holds(last) else None

        try:
            found: Obj = await self.eventually(look, f"{collection.kind} {namespace}/{name} {where}")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{last}") from None
        return found

    async def at_edge(
        self, collection: Collection, name: str, namespace: str = "", holds: Callable[[Obj], Any] = lambda one: True
    ) -> Obj:
        """As soon as it is there, and as it should be."""
        return await self._until(self.cluster, "at the edge", collection, name, namespace, holds)

    async def in_mailbox(
        self, collection: Collection, name: str, namespace: str = "", holds: Callable[[Obj], Any] = lambda one: True
    ) -> Obj:
        return await self._until(self.mailbox, "in the mailbox", collection, name, namespace, holds)

    async def gone_at_edge(self, collection: Collection, name: str, namespace: str = "") -> None:
        await self.eventually(lambda: is_gone(self.cluster, collection, name, namespace), f"end of {name} at the edge")

    async def gone_in_mailbox(self, collection: Collection, name: str, namespace: str = "") -> None:
        await self.eventually(
            lambda: is_gone(self.mailbox, collection, name, namespace), f"end of {name} in the mailbox"
        )

    async def released(self, collection: Collection, name: str, namespace: str = "") -> None:
        """A copy that is being deleted does not wait for the syncer any more."""

        async def looked() -> bool:
            try:
                found = await self.mailbox.get(collection, name, namespace)
            except NotFound:
                return True
            return SYNCER_FINALIZER not in found["metadata"].get("finalizers", [])

        await self.eventually(looked, f"release of {name}")

    async def report(self) -> Obj:
        found: Obj = (await self.mailbox.get(CONFIGS, "the-one")).get("status") or {}
        return found

    async def told(self, holds: Callable[[Obj], Any]) -> Obj:
        """What the syncer says of itself, as soon as that holds."""
        last: Obj = {}

        async def look() -> Obj | None:
            nonlocal last
            last = await self.report()
            return last if holds(last) else None

        try:
            found: Obj = await self.eventually(look, "a report")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{last}") from None
        return found

    async def problem(self, name: str, reason: str = "") -> Obj:
        """What the syncer says about an object, as soon as it does."""

        def found(report: Obj) -> list[Obj]:
            return [one for one in report["problems"] if one["name"] == name and reason in one["reason"]]

        return found(await self.told(found))[0]

    async def no_problem(self) -> Obj:
        return await self.told(lambda report: report["problems"] == [] and report["objects"]["pending"] == 0)

    # --- the end ----------------------------------------------------------------------------------

    async def clean_up(self) -> None:
        """Whatever has our name at the edge goes."""
        for collection in (POLICY_BINDINGS, POLICIES, DEFINITIONS, ROLE_BINDINGS, ROLES, NAMESPACES):
            found: list[Obj] = []
            with suppress(NotFound):  # a cluster that is too old for policies
                found = await self.cluster.list(collection)
            for one in found:
                name = one["metadata"]["name"]
                if self.name in name and "deletionTimestamp" not in one["metadata"]:
                    with suppress(NotFound, UpdateConflict):
                        await self.cluster.delete(collection, name)


def _without(rule: Obj, hidden: set[GroupResource]) -> Obj:
    (group,) = rule["apiGroups"]
    kept = [one for one in rule["resources"] if GroupResource(group, one) not in hidden]
    return {**rule, "resources": kept}


async def is_gone(client: Client, collection: Collection, name: str, namespace: str = "") -> bool:
    try:
        await client.get(collection, name, namespace)
    except NotFound:
        return True
    return False


@asynccontextmanager
async def linked(grounds: Grounds, directory: Path) -> AsyncIterator[Link]:
    """A mailbox of its own that serves Deployments too, and a syncer that does not run yet."""
    async with AsyncExitStack() as stack:
        hub_access, edge_access = load(str(grounds.hub.kubeconfig)), load(str(grounds.edge))
        operator = Client(await stack.enter_async_context(hub_access.transport()), manager="test")
        cluster = Client(await stack.enter_async_context(edge_access.transport()), edge_access.prefix, "test")
        name, inventory = f"contract-{secrets.token_hex(4)}", operator.workspace(INVENTORY)
        target = await inventory.create(SYNC_TARGETS, custom(SYNC_TARGETS, name))
        metadata = target["metadata"]
        path = f"{PROVIDER}:{metadata['annotations']['kcp.io/cluster']}-mb-{metadata['uid']}"
        link = Link(grounds, directory, name, operator.workspace(path), cluster, inventory)
        stack.push_async_callback(link.clean_up)
        stack.push_async_callback(link.stop)
        await link.eventually(lambda: link.mailbox.get(CONFIGS, "the-one"), "the mailbox")
        await link.mailbox.create(BINDINGS, binding("kube"))
        await link.in_mailbox(BINDINGS, "kube", holds=lambda one: one["status"]["phase"] == "Bound")
        yield link


def mailbox_controller(hub: HubProcess) -> subprocess.Popen[bytes]:
    """That of a hub without controllers."""
    words = [FARFLUNG, "mailbox-controller", "--kubeconfig", str(hub.kubeconfig), "--provider-path", PROVIDER]
    return subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=os.environ)
