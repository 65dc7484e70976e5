"""What would become of the copies in mailboxes, if something in a workspace with placements were different.

`Plan` is told what there is, then what would be; it reads from mailboxes what that concerns, and decides as the
translator would.  Nothing is written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from dataclasses import dataclass, field
from typing import Final, TypeVar

import orjson

from farflung.apis.edge.names import (
    CUSTOMIZERS,
    DOWNSYNC_OVERWRITE,
    EDGE_PLACEMENTS,
    PROJECTED,
    SINGLE_PLACEMENT_SLICES,
)
from farflung.apis.kcp.names import WORKSPACES
from farflung.apis.names import Collection
from farflung.cli.differences import differences, syncer_config_changes
from farflung.cli.placement_model import Imagined, Locations, seen
from farflung.client.discovery import Resource, Served, discover
from farflung.client.errors import ClientError, Forbidden, NotFound
from farflung.client.rest import Client
from farflung.machinery.errors import Obj
from farflung.placement import guard, project, types
from farflung.placement.feeds import travelling
from farflung.placement.index import Copy, Output
from farflung.placement.names import NAMESPACES, Kind, Part, PlacementKey
from farflung.placement.project import Desired
from farflung.placement.syncer_config import SyncerSpec
from farflung.placement.types import Destination, ObservedObject, destinations_of

T = TypeVar("T")

AT_ONCE: Final = 8  #: requests
CREATED, CHANGED, DELETED, WITHDRAWN = "created", "changed", "deleted", "beingWithdrawn"
DEFAULT: Final = Part(NAMESPACES, "", "default")  #: every workspace has it
THEIRS: Final = "there is one already that no placement brought, and it is left alone"


@dataclass(slots=True)
class Fate:
    """What becomes of one copy."""

    part: Part
    what: str = ""  #: CREATED, CHANGED, DELETED, WITHDRAWN (it is deleted already, and held by a syncer) or nothing
    differences: list[Obj] = field(default_factory=list)
    problem: str = ""  #: why it is not as it should be
    held: bool = False  #: it stays until somebody confirms that it may go
    anew: bool = False  #: it is made again when it is gone

    def shown(self) -> Obj:
        kind, namespace, name = self.part
        head: Obj = {"group": kind.group, "resource": kind.resource, "namespace": namespace, "name": name}
        more: dict[str, Obj] = {
            CHANGED: {"differences": self.differences},
            DELETED: {"held": self.held},
            WITHDRAWN: {"anew": self.anew},
        }
        return head | more.get(self.what, {})


class Plan:
    def __init__(self, locations: Locations, server: Client, provider: str, cluster: str) -> None:
        """`server`: any workspace of it; `cluster`: the one whose placements and objects would change."""
        self.before = Imagined(locations)
        self.after = Imagined(locations)
        self._server = server
        self._provider = provider
        self.cluster = cluster
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._outputs: set[Output] = set()
        self._observed: dict[Copy, ObservedObject] = {}
        self._guessed = False  #: what mailboxes have is not read, but what they should have
        self._documents: dict[PlacementKey, Obj] = {}  #: placements, as they would be
        self._served: dict[str, dict[Kind, Resource]] = {}  #: by workspace: what goes somewhere
        self.remarks: list[str] = []

    # --- what there is ----------------------------------------------------------------------------

    async def read(self, client: Client, served: Served, cluster: str) -> None:
        """A workspace with placements."""
        self._served[cluster] = travelling(served.resources())
        kinds = {
            kind: one.collection
            for kind, one in self._served[cluster].items()
            if one.collection not in (EDGE_PLACEMENTS, SINGLE_PLACEMENT_SLICES)
        }
        lists = await self._gather(self._listed(client, one) for one in kinds.values())
        for kind, objs in zip(kinds, lists, strict=True):
            for obj in objs:
                self._put(cluster, _part(kind, obj), seen(kind, obj))
        for obj in await self._listed(client, CUSTOMIZERS):
            name = f"{obj['metadata'].get('namespace', '')}/{obj['metadata']['name']}"
            for world in (self.before, self.after):
                world.put_customizer(cluster, name, obj)
        slices = await self._listed(client, SINGLE_PLACEMENT_SLICES)
        for obj in await self._listed(client, EDGE_PLACEMENTS):
            key = PlacementKey(cluster, obj["metadata"]["name"])
            self._documents[key] = obj
            places = [one for some in slices if _is_of(some, obj) for one in destinations_of(some)]
            for world in (self.before, self.after):
                world.put_placement(key, obj)
                world.put_places(key, places)

    async def _listed(self, client: Client, collection: Collection) -> list[Obj]:
        """What cannot be seen is not there, and said to be so."""
        try:
            async with self._turns:
                return await client.list(collection)
        except NotFound:
            return []
        except Forbidden as error:
            self.remarks.append(f"{collection.plural} cannot be listed and are left out: {error}")
            return []

    async def _gather(self, some: Iterable[Awaitable[T]]) -> list[T]:
        return list(await asyncio.gather(*some))

    def _put(self, cluster: str, part: Part, one: ObservedObject) -> None:
        self.before.put_object(cluster, part, one)
        self.after.put_object(cluster, part, one)

    # --- what would be ----------------------------------------------------------------------------

    def place(self, name: str, document: Obj | None, destinations: Iterable[Destination]) -> None:
        """A placement, and where it would lead; None: it would be gone."""
        key = PlacementKey(self.cluster, name)
        self._outputs |= self.after.put_placement(key, document)
        if document is not None:
            self._documents[key] = document
            self._outputs |= self.after.put_places(key, destinations)

    def change(self, collection: Collection, obj: Obj, *, gone: bool) -> Part:
        kind = Kind(collection.group, collection.plural)
        part = _part(kind, obj)
        if (collection.group, collection.plural) == (CUSTOMIZERS.group, CUSTOMIZERS.plural):
            name = f"{part.namespace}/{part.name}"
            self._outputs |= self.after.put_customizer(self.cluster, name, None if gone else obj)
        else:
            self._outputs |= self.after.put_object(self.cluster, part, None if gone else seen(kind, obj))
        return part

    def goes_to(self, part: Part) -> list[str]:
        """The mailboxes that should have it then."""
        engine = self.after.engine
        pairs = ((key, mailbox) for key in self.after.placements for mailbox in engine.places(key))
        return sorted({mailbox for key, mailbox in pairs if engine.is_wanted_by(key, mailbox, part)})

    def destination(self, mailbox: str) -> Obj:
        """As slices have it."""
        for world in (self.after, self.before):
            for key in sorted(world.placements):
                if (place := world.engine.places(key).get(mailbox)) is not None:
                    uid = mailbox.rpartition("-mb-")[2]
                    names = {"cluster": place.cluster, "locationName": place.location, "syncTargetName": place.target}
                    return {**names, "syncTargetUID": uid, "mailbox": mailbox}
        return {"cluster": "", "locationName": "", "syncTargetName": "", "syncTargetUID": "", "mailbox": mailbox}

    # --- what becomes of the copies ---------------------------------------------------------------

    async def fates(self) -> dict[str, list[Fate]]:
        """Of those that would be different, by mailbox."""
        copies = sorted(one for one in self._outputs if isinstance(one, Copy))
        await self._observe(copies)
        decided = {copy: self._fate(copy) for copy in copies}
        self._hold(decided)
        found: dict[str, list[Fate]] = {}
        for copy, fate in decided.items():
            if fate.what or fate.problem:
                found.setdefault(copy.mailbox, []).append(fate)
        return found

    def told(self, fates: dict[str, list[Fate]]) -> dict[str, list[Obj]]:
        """What syncers would be told that is different, by mailbox.  What is held stays at their clusters, too."""
        mailboxes = {one.mailbox for one in self._outputs} | fates.keys()
        found = {mailbox: self._told(mailbox, fates.get(mailbox, [])) for mailbox in sorted(mailboxes)}
        return {mailbox: changes for mailbox, changes in found.items() if changes}

    def _told(self, mailbox: str, fates: list[Fate]) -> list[Obj]:
        before, after = (self._in_versions(one.told(mailbox, self._namespaced)) for one in (self.before, self.after))
        if any(fate.held for fate in fates):
            after = before.joined(after)
        return syncer_config_changes(before, after)

    def _namespaced(self, cluster: str) -> dict[Kind, str]:
        return {kind: one.collection.version for kind, one in self._served[cluster].items() if one.namespaced}

    def _in_versions(self, told: SyncerSpec) -> SyncerSpec:
        """Those of the workspaces; mailboxes have the same, or will."""
        versions = {kind: one.collection.version for served in self._served.values() for kind, one in served.items()}
        return told._replace(versions={**versions, **told.versions})

    async def _observe(self, copies: list[Copy]) -> None:
        try:
            known = {one["metadata"]["name"] for one in await self._workspace(self._provider).list(WORKSPACES)}
        except ClientError as error:
            self._guessed = True
            self.remarks.append(f"what mailboxes have cannot be seen, so what they should have is shown: {error}")
            return
        kinds = sorted({(copy.mailbox, copy.part.kind, self._version(copy)) for copy in copies})
        await self._gather(self._look(*one) for one in kinds if one[0] in known and one[2])
        await self._read_others()

    def _workspace(self, path: str) -> Client:
        return self._server.workspace(path)

    def _version(self, copy: Copy) -> str:
        """Of the API in which a copy is written."""
        for world in (self.after, self.before):
            obj = world.desired(copy).obj
            if obj is not None:
                return str(obj["apiVersion"].rpartition("/")[2])
        return ""

    async def _look(self, mailbox: str, kind: Kind, version: str) -> None:
        client = self._workspace(f"{self._provider}:{mailbox}")
        for obj in await self._listed(client, Collection(kind.group, version, kind.resource, "")):
            self._observed[Copy(mailbox, _part(kind, obj))] = seen(kind, obj)

    async def _read_others(self) -> None:
        """Workspaces from which the same objects come."""
        others = {key.cluster for one in self._observed.values() for key in one.placements} - {self.cluster}
        for cluster in sorted(others):
            client = self._workspace(cluster)
            try:
                await self.read(client, await discover(client), cluster)
            except ClientError as error:
                self.remarks.append(f"placements of {cluster} bring some of these objects, and cannot be seen: {error}")

    def _fate(self, copy: Copy) -> Fate:
        before, after = self.before.desired(copy), self.after.desired(copy)
        observed = self._there(copy, before)
        fate = Fate(copy.part)
        if after.problem:
            fate.problem = after.problem
        elif observed is not None and observed.ours and not observed.alive:
            fate.what, fate.anew = WITHDRAWN, after.obj is not None
        elif after.obj is None:
            if observed is not None and self._goes(copy, observed):
                fate.what = DELETED
        elif self._is_needed(copy) and (copy.part == DEFAULT or (observed is not None and not observed.ours)):
            pass  # it is there, whoever made it
        elif observed is None:
            fate.what = CREATED
        elif not observed.ours:
            fate.problem = THEIRS
        else:
            fate.differences = _changes(orjson.loads(observed.document), before.obj, after.obj)
            fate.what = CHANGED if fate.differences else ""
        if not fate.problem:
            fate.problem = "; ".join([*map(str, after.conflicts), *filter(None, [after.ambiguity])])
        return fate

    def _is_needed(self, copy: Copy) -> bool:
        """And nothing more: no placement selects it."""
        return all(one.selected is None for one in self.after.engine.wanted(*copy))

    def _there(self, copy: Copy, before: Desired) -> ObservedObject | None:
        if not self._guessed:
            return self._observed.get(copy)
        return None if before.obj is None else seen(copy.part.kind, before.obj)

    def _goes(self, copy: Copy, observed: ObservedObject) -> bool:
        """Whether a copy that is not wanted by what we know would be deleted."""
        unknown = observed.placements - self.before.placements
        if not observed.ours or any(key.cluster != self.cluster for key in unknown):
            return False
        if copy.part.kind != NAMESPACES:
            return True
        inside = (one for one in self._observed.items() if one[0].mailbox == copy.mailbox)
        return not any(
            other.part.namespace == copy.part.name and not one.ours and not one.system for other, one in inside
        )

    def _hold(self, decided: dict[Copy, Fate]) -> None:
        """What the translator would hold, with its usual limits.  What is deleted by name goes."""
        for key in sorted(self.after.placements):
            losses: dict[str, set[Part]] = {}
            for copy, fate in decided.items():
                was = self.before.engine.is_wanted_by(key, *copy)
                stays = self.after.get(key.cluster, copy.part) is not None
                if fate.what == DELETED and was and stays:
                    losses.setdefault(copy.mailbox, set()).add(copy.part)
            metadata = self._documents[key]["metadata"]
            generation = metadata.get("generation") or 0
            confirmed = guard.is_confirmed(metadata.get("annotations") or {}, generation, len(losses))
            verdict = guard.weigh(losses, len(self.before.engine.places(key)), confirmed=confirmed)
            for mailbox, parts in verdict.held.items():
                for part in parts:
                    decided[Copy(mailbox, part)].held = True


def _changes(observed: Obj, before: Obj | None, after: Obj) -> list[Obj]:
    """What is different in a copy then.  One that is as it should be now is compared as we write it, without what its
    server added."""
    changed = project.updated(observed, after)
    if changed is None:
        return []
    if after["metadata"]["annotations"].get(DOWNSYNC_OVERWRITE) == project.NEVER:
        return differences(observed, changed)
    if before is not None and project.updated(observed, before) is None:
        return differences(before, after)
    return differences(_marked(observed), after)


def _marked(observed: Obj) -> Obj:
    """What of a copy is ours."""
    bare = project.stripped(observed)
    labels = {**(bare["metadata"].get("labels") or {}), PROJECTED: types.YES}
    return {**bare, "metadata": {**bare["metadata"], "labels": labels}}


def _part(kind: Kind, obj: Obj) -> Part:
    metadata = obj["metadata"]
    return Part(kind, metadata.get("namespace") or "", metadata["name"])


def _is_of(one: Obj, placement: Obj) -> bool:
    owners = one["metadata"].get("ownerReferences") or ()
    return any(owner.get("uid") == placement["metadata"]["uid"] for owner in owners)


def shown(fates: list[Fate]) -> Obj:
    """For programs."""
    kinds = (CREATED, CHANGED, DELETED, WITHDRAWN)
    parts = {what: [fate.shown() for fate in fates if fate.what == what] for what in kinds}
    return {**parts, "problems": [f"{fate.part}: {fate.problem}" for fate in fates if fate.problem]}
