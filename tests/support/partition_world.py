"""A mailbox, an edge and a syncer, and all that can happen to them and between them."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import orjson
from fleet import PROVIDER, TENANCY, FaultyTransport, Fleet
from house import TOKEN, House
from lying_line import LyingTransport
from partition_laws import EDGE, Laws, is_going, is_in, origin_of
from partition_menu import BORN, COLLECTIONS, REFS, SPECS, edited, made
from platform_harness import MASTER, OPERATOR, PlatformHub
from simulated_time import simulated_environment
from syncing import (
    CONFIGS,
    MAPS,
    NAMESPACES,
    Link,
    furnished_mailbox,
)
from translated import config_map, namespace
from watched_store import SYNCER, WatchedStore, signed

from farflung.apis.edge.names import CREATE_ONLY, DOWNSYNCED, PROJECTED, RELEASE_ORPHANS, SYNCER_FINALIZER
from farflung.apis.names import Collection
from farflung.client.errors import ClientError
from farflung.machinery.errors import Obj
from farflung.placement.names import GroupResource, ObjectRef
from farflung.syncer.context import HEARTBEAT_INTERVAL, REPORT_INTERVAL
from farflung.syncer.conversion import is_downsynced, is_upsynced
from farflung.syncer.decide import PATIENT

LONGER = 70.0  #: seconds; longer than a syncer pauses before it checks what no event announces
THE_ONE = ObjectRef(GroupResource("edge.kcp.io", "syncerconfigs"), "", "the-one")
ACCOUNTS = Collection("", "v1", "serviceaccounts", "ServiceAccount")


@dataclass
class World:
    link: Link
    laws: Laws
    numbers: Any  #: of which uids in the hub are made
    saved: WatchedStore | None = None
    lied: set[str] = field(default_factory=set)  #: sides of which less was said than there is
    forgot: bool = False  #: what was remembered was lost
    unreported: set[ObjectRef] = field(
        default_factory=set
    )  #: parts that were remembered alone, and not reported, at that time
    edits: dict[ObjectRef, int] = field(default_factory=dict)
    _count: Any = field(default_factory=lambda: itertools.count(1))

    @property
    def hub_store(self) -> WatchedStore:
        store = self.link.fleet.hub.store
        assert isinstance(store, WatchedStore)
        return store

    @property
    def edge_store(self) -> WatchedStore:
        store = self.link.edge.store
        assert isinstance(store, WatchedStore)
        return store

    def line(self, side: str) -> LyingTransport:
        line = self.link.up if side == "hub" else self.link.down
        assert isinstance(line, LyingTransport)
        return line

    # --- what there is ----------------------------------------------------------------------------

    def mailbox_cluster(self) -> str:
        """Empty if there is none."""
        for entry in self.hub_store.list("/core.kcp.io/logicalclusters/").entries:
            found = orjson.loads(entry.value)
            annotations = found["metadata"].get("annotations") or {}
            if annotations.get("kcp.io/path") == self.link.path and not is_going(found):
                return entry.key.split("/")[3]
        return ""

    def copies(self) -> dict[ObjectRef, Obj]:
        """In the mailbox: of the kinds that are brought there and back."""
        found = self.hub_store.held(self.mailbox_cluster() or "nowhere")
        return {ref: obj for ref, obj in found.items() if origin_of(obj) or is_upsynced(obj)}

    def objects(self) -> dict[ObjectRef, Obj]:
        """At the edge."""
        return self.edge_store.held(EDGE)

    def asked(self) -> list[str]:
        """What the syncer wrote, or tried to, its reports aside."""
        return [
            f"{one.method} {one.target}"
            for line in (self.link.up, self.link.down)
            for one in line.writes
            if not one.target.partition("?")[0].endswith("/syncerconfigs/the-one/status")
        ]

    def essence(self) -> dict[str, Obj]:
        """All that is on both sides, reports aside."""
        mailbox = {f"mailbox: {ref}": obj for ref, obj in self.hub_store.held(self.mailbox_cluster()).items()}
        edge = {f"edge: {ref}": obj for ref, obj in self.objects().items()}
        return {what: obj for what, obj in {**mailbox, **edge}.items() if "syncerconfigs" not in what}

    # --- what users do ----------------------------------------------------------------------------

    async def put(self, ref: ObjectRef, **annotations: str) -> None:
        """A copy is made, or changed."""
        number = next(self._count)
        obj = made(ref, number, **annotations)
        obj["metadata"].setdefault("labels", {})[PROJECTED] = "yes"
        collection = COLLECTIONS[ref.resource]
        with contextlib.suppress(ClientError):
            if ref not in self.copies():
                await self.link.mailbox.create(collection, obj, ref.namespace)
                return
            if ref.resource == GroupResource("", "configmaps"):
                obj["data"][f"k{(number + 1) % 2}"] = None
            obj["metadata"]["annotations"].setdefault(CREATE_ONLY, None)
            await self.link.mailbox.patch(collection, ref.name, obj, ref.namespace)

    async def withdraw(self, ref: ObjectRef) -> None:
        with contextlib.suppress(ClientError):
            await self.link.mailbox.delete(COLLECTIONS[ref.resource], ref.name, ref.namespace)

    async def configure(self, number: int) -> None:
        with contextlib.suppress(ClientError):
            await self.link.configure(SPECS[number])

    async def release(self) -> None:
        """An operator counts what is at the edge without a copy.  If the syncer has as many orphans, it deletes them,
        be they the same ones or objects that it brings back only now."""
        found = [
            obj
            for ref, obj in self.objects().items()
            if is_downsynced(obj) and origin_of(obj) and ref not in self.copies()
        ]
        with contextlib.suppress(ClientError):
            self.laws.released.update(
                *(origins for ref, origins in self.laws.origins.items() if ref not in self.copies())
            )
            patch = {"metadata": {"annotations": {RELEASE_ORPHANS: str(len(found))}}}
            await self.link.mailbox.patch(CONFIGS, "the-one", patch)

    # --- what happens at the edge -----------------------------------------------------------------

    async def at_edge(self, what: str, ref: ObjectRef) -> None:
        client, collection = self.link.cluster, COLLECTIONS[ref.resource]
        live = self.objects().get(ref)
        ours = live is not None and is_downsynced(live)
        with contextlib.suppress(ClientError):
            match what:
                case "edit" if ours and self._may_edit(ref):
                    await client.patch(collection, ref.name, edited(ref), ref.namespace)
                case "add" if ours:
                    added = {"metadata": {"annotations": {"local": str(next(self._count))}}}
                    await client.patch(collection, ref.name, added, ref.namespace)
                case "delete" if ours and self._may_edit(ref):
                    await client.delete(collection, ref.name, ref.namespace)
                case "unmark" if ours:
                    unmarked = {"metadata": {"annotations": {DOWNSYNCED: None}}}
                    await client.patch(collection, ref.name, unmarked, ref.namespace)
                case "say" if ours and ref.resource.resource in ("deployments", "widgets"):
                    status = {"status": {"replicas": next(self._count) % 10}}
                    within = "status" if ref.resource.resource == "deployments" else ""
                    await client.patch(collection, ref.name, status, ref.namespace, within)
                case "stranger" if live is None:
                    obj = made(ref, 0)
                    obj["metadata"]["annotations"] = {DOWNSYNCED: "Deployment/shop/other"}  # as controllers hand it on
                    await client.create(collection, obj, ref.namespace)
                case "twin" if live is None and (copy := self.copies().get(ref)) is not None:
                    obj = made(ref, int(origin_of(copy)))
                    await client.create(collection, obj, ref.namespace)
                case "end" if live is not None and not ours:
                    await client.delete(collection, ref.name, ref.namespace)

    def _may_edit(self, *refs: ObjectRef) -> bool:
        """Those who correct each other too often have to wait, and nobody has so much time here."""
        touched = {inner for inner in REFS if inner in refs or any(is_in(inner, ref) for ref in refs)}
        if any(self.edits.get(ref, 0) >= PATIENT for ref in touched):
            return False
        self.edits.update({ref: self.edits.get(ref, 0) + 1 for ref in touched})
        return True

    async def born(self, what: str, ref: ObjectRef) -> None:
        client = self.link.cluster
        data = {"n": str(next(self._count))}
        with contextlib.suppress(ClientError):
            if what == "end":
                await client.delete(MAPS, ref.name, ref.namespace)
            elif ref in self.objects():
                await client.patch(MAPS, ref.name, {"data": data}, ref.namespace)
            else:
                await client.create(MAPS, config_map(ref.name, data), ref.namespace)

    async def furnish(self) -> None:
        """All that there can be, wherever it is."""
        await self.furnish_edge()
        await self.configure(0)
        for ref in REFS:
            await self.put(ref)
        for ref in BORN:
            await self.born("put", ref)

    # --- what goes wrong --------------------------------------------------------------------------

    async def forget_history(self, side: str) -> None:
        """Who listens has to list anew."""
        store = self.hub_store if side == "hub" else self.edge_store
        client = self.link.mailbox if side == "hub" else self.link.cluster
        with contextlib.suppress(ClientError):  # a change that nobody listens to, so that everybody lags behind
            await client.patch(ACCOUNTS, "default", {"metadata": {"labels": {"n": self._next()}}}, "default")
        await store.compact(store.revision)
        self.line(side).cut()

    def _next(self) -> str:
        return str(next(self._count))

    async def lie(self, side: str, how: str, times: int) -> None:
        if how in ("empty", "half"):
            self.lied.add(side)
            self.laws.deceived = self.laws.deceived or side == "edge"
        self.line(side).tell(how, times)
        await self.forget_history(side)

    async def restart(self, *, forgetting: bool = False, journal: str = "") -> None:
        """`journal`: "lost" or "damaged"."""
        await self.link.stop(forgetting=forgetting)
        if journal and self.link.journal.exists():
            self.forgot = True
            self.unreported |= self._unreported()
            for file in self.link.journal.parent.glob(f"{self.link.journal.name}*"):
                file.write_bytes(b"not a database") if journal == "damaged" else file.unlink()
        await self.link.start()

    def _unreported(self) -> set[ObjectRef]:
        """Copies with a finalizer, of kinds that the syncer's last report does not name."""
        held = self.hub_store.held(self.mailbox_cluster() or "nowhere")
        report = next((obj.get("status") or {} for ref, obj in held.items() if ref == THE_ONE), {})
        named = {GroupResource(one["group"], one["resource"]) for one in report.get("syncedThrough") or ()}
        return {
            ref
            for ref, copy in held.items()
            if SYNCER_FINALIZER in (copy["metadata"].get("finalizers") or ()) and ref.resource not in named
        }

    def save_hub(self) -> None:
        """As it is now; after that, time passes."""
        self.saved = self.hub_store.copied()
        self.jump(1)

    async def restart_hub(self, store: WatchedStore | None = None) -> None:
        """With what it had, or with another store."""
        up, self.link.up.up = self.link.up.up, False
        if store is not None:
            self.laws.forgive()
        fleet = self.link.fleet
        await fleet.crash()
        with contextlib.suppress(TimeoutError):
            await fleet.hub.controllers.stop()
        hub = PlatformHub((store or self.hub_store).reopened(), numbers=self.numbers)
        fleet.hub = hub
        self.listen()
        for line in (fleet.transport, fleet.masters):
            line.function = hub.function
        self.link.up.function = signed(hub.function, SYNCER)
        self.link.up.cut()
        await hub.controllers.start()
        await fleet.start(scheduler=False, mailboxes=True)
        self.link.up.up = up

    async def restart_edge(self, *, empty: bool = False) -> None:
        empty = empty and self._may_edit(*REFS)
        store = WatchedStore() if empty else self.edge_store.reopened()
        up, self.link.down.up = self.link.down.up, False
        await self.link.edge.stop()
        self.link.edge = House(store)
        self.listen()
        self.link.down.function = signed(self.link.edge.hub, SYNCER)
        self.link.down.cut()
        await self.link.edge.start()
        if empty:
            await self.furnish_edge()
        self.link.down.up = up

    def listen(self) -> None:
        self.hub_store.told = self.laws.see_hub
        self.edge_store.told = self.laws.see_edge

    async def furnish_edge(self) -> None:
        await self.link.edge.settle()
        with contextlib.suppress(ClientError):
            await self.link.cluster.create(NAMESPACES, namespace("local"))

    async def renew_mailbox(self) -> None:
        """Somebody deletes it, and the controller makes another one in its place."""
        fleet, before = self.link.fleet, self.mailbox_cluster()
        name = self.link.path.rpartition(":")[2]
        await fleet.do("DELETE", f"/clusters/{PROVIDER}{TENANCY}/workspaces/{name}")
        await fleet.eventually(lambda: self.mailbox_cluster() not in ("", before), "another mailbox")
        assert await furnished_mailbox(fleet) == self.link.path

    async def heal(self) -> None:
        """From now on nothing goes wrong.  Who was told less than there is has to be told again: nobody knows when
        that was a lie."""
        for side in ("hub", "edge"):
            self.line(side).be_true()
        for side in sorted(self.lied):
            await self.forget_history(side)

    def jump(self, hours: int) -> None:
        self.link.jump += timedelta(hours=hours)

    async def turns(self, number: int) -> None:
        for _ in range(number):
            await asyncio.sleep(0)


@asynccontextmanager
async def separated(directory: Path) -> AsyncIterator[World]:
    """With an empty edge, a mailbox that serves the kinds of workloads, and a syncer that has not started."""
    numbers = itertools.count(1)
    hub, edge = PlatformHub(WatchedStore(), numbers=numbers), House(WatchedStore())
    await hub.platform.bootstrap.start(bare=False)
    fleet = Fleet(hub, FaultyTransport(hub.function, OPERATOR), FaultyTransport(hub.function, MASTER))
    link = Link(
        fleet,
        edge,
        "",
        directory / "journal" / "syncer.sqlite",
        beat=HEARTBEAT_INTERVAL,
        pause=REPORT_INTERVAL,
        env=simulated_environment(),
    )
    try:
        await hub.controllers.start()
        await edge.start()
        await fleet.target("root:compute", "florin", {})
        await fleet.start(scheduler=False, mailboxes=True)
        link.path = await furnished_mailbox(fleet)
        link.up = LyingTransport(signed(hub.function, SYNCER), MASTER)
        link.down = LyingTransport(signed(edge.hub, SYNCER), TOKEN)
        world = World(link, Laws(link), numbers)
        world.listen()
        yield world
    finally:
        await link.stop()
        await fleet.crash()
        await link.edge.stop()
        with contextlib.suppress(TimeoutError):
            await fleet.hub.controllers.stop()
    assert fleet.refusals == [], "a controller lacks a permission"
