"""Changes of the copies in mailboxes, if objects of a workspace with placements changed.

`CopyPlan` gets the current state, then the changes.  It reads the affected copies and decides like the translator.  It
writes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, TypeVar

import msgspec
import orjson
from msgspec import UNSET, UnsetType

from farflung.apis.edge.names import (
    CUSTOMIZERS,
    DOWNSYNC_OVERWRITE,
    EDGE_PLACEMENTS,
    PROJECTED,
    SINGLE_PLACEMENT_SLICES,
)
from farflung.apis.kcp.names import LOGICAL_CLUSTERS, WORKSPACES
from farflung.apis.names import Collection
from farflung.client.discovery import DiscoveredResource, ServedResources, discover
from farflung.client.errors import ClientError, Forbidden, NotFound
from farflung.client.rest import Client
from farflung.inspect.differences import Difference, SyncerConfigChange, differences, syncer_config_changes
from farflung.inspect.placement_model import (
    Locations,
    PlacementModel,
    observed_object,
    paths_of,
    ref_of,
    slices_by_owner,
)
from farflung.inspect.results import Result
from farflung.machinery.errors import Obj
from farflung.placement import guard, project, types
from farflung.placement.feeds import copied_kinds
from farflung.placement.index import AffectedKey, CopyKey, SelectionKey
from farflung.placement.name_owners import refusal_message
from farflung.placement.names import FOREIGN, NAMESPACES, GroupResource, ObjectRef, PlacementKey
from farflung.placement.project import Desired
from farflung.placement.syncer_config import SyncerSpec
from farflung.placement.types import CopyDestination, Destination, ObservedObject, destinations_of

T = TypeVar("T")

AT_ONCE: Final = 8  #: concurrent requests
CREATED, CHANGED, DELETED, WITHDRAWN = "created", "changed", "deleted", "beingWithdrawn"
DEFAULT: Final = ObjectRef(NAMESPACES, "", "default")  #: exists in every workspace


class PlannedCopy(Result, frozen=True):
    group: str
    resource: str
    namespace: str
    name: str
    differences: list[Difference] | UnsetType = UNSET  #: of a changed copy
    held: bool | UnsetType = UNSET  #: a deletion that must be confirmed
    anew: bool | UnsetType = UNSET  #: a withdrawn copy that is created again


class PlannedDestination(Result, frozen=True):
    """The changes of one mailbox."""

    cluster: str
    location_name: str
    sync_target_name: str
    uid: str = msgspec.field(name="syncTargetUID")
    mailbox: str
    created: list[PlannedCopy]
    changed: list[PlannedCopy]
    deleted: list[PlannedCopy]
    being_withdrawn: list[PlannedCopy]
    problems: list[str]
    syncer_config: list[SyncerConfigChange]


@dataclass(slots=True)
class CopyChange:
    """The change of one copy."""

    ref: ObjectRef
    what: str = ""  #: CREATED, CHANGED, DELETED, WITHDRAWN (already deleted, kept by a syncer's finalizer) or empty
    differences: list[Difference] = field(default_factory=list)
    problem: str = ""  #: why it is not as desired
    is_refused: bool = False  #: by another tenant's right to the name; then `problem` names the object or its namespace
    held: bool = False  #: until the withdrawal is confirmed
    anew: bool = False  #: it is created again after the deletion

    @property
    def sentence(self) -> str:
        return self.problem if self.is_refused else f"{self.ref}: {self.problem}"

    def result(self) -> PlannedCopy:
        resource, namespace, name = self.ref
        return PlannedCopy(
            resource.group,
            resource.resource,
            namespace,
            name,
            self.differences if self.what == CHANGED else UNSET,
            self.held if self.what == DELETED else UNSET,
            self.anew if self.what == WITHDRAWN else UNSET,
        )


class CopyPlan:
    def __init__(self, locations: Locations, server: Client, provider: str, cluster: str) -> None:
        """`server`: of any workspace; `cluster`: the workspace that changes."""
        self.before = PlacementModel(locations)
        self.after = PlacementModel(locations)
        self.paths = paths_of(locations.values())  #: of workspaces with Locations, by logical cluster
        self._server = server
        self._provider = provider
        self.cluster = cluster
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._affected: set[AffectedKey] = set()
        self._observed: dict[CopyKey, ObservedObject] = {}
        self._guessed = False  #: mailboxes are not visible: assume that they have what they should
        self._documents: dict[PlacementKey, Obj] = {}  #: after the change
        self._served: dict[str, dict[GroupResource, DiscoveredResource]] = {}  #: by workspace: kinds that are placed
        self.remarks: list[str] = []

    # --- current state ----------------------------------------------------------------------------

    async def read(self, client: Client, served: ServedResources, cluster: str) -> None:
        """Read a workspace with placements."""
        self._served[cluster] = copied_kinds(served.resources())
        with suppress(NotFound, Forbidden):
            logical_cluster = await client.get(LOGICAL_CLUSTERS, "cluster")
            for world in (self.before, self.after):
                world.put_parent(cluster, logical_cluster)
        resources = {
            resource: one.collection
            for resource, one in self._served[cluster].items()
            if one.collection not in (EDGE_PLACEMENTS, SINGLE_PLACEMENT_SLICES)
        }
        lists = await asyncio.gather(*(self._listed(client, one) for one in resources.values()))
        for resource, objs in zip(resources, lists, strict=True):
            for obj in objs:
                for world in (self.before, self.after):
                    world.put_object(cluster, ref_of(resource, obj), observed_object(resource, obj))
        for obj in await self._listed(client, CUSTOMIZERS):
            name = f"{obj['metadata'].get('namespace', '')}/{obj['metadata']['name']}"
            for world in (self.before, self.after):
                world.put_customizer(cluster, name, obj)
        slices = slices_by_owner(await self._listed(client, SINGLE_PLACEMENT_SLICES))
        for obj in await self._listed(client, EDGE_PLACEMENTS):
            key = PlacementKey(cluster, obj["metadata"]["name"])
            self._documents[key] = obj
            own = slices.get(obj["metadata"]["uid"], ())
            destinations = [one for some in own for one in destinations_of(some)]
            for world in (self.before, self.after):
                world.put_placement(key, obj)
                world.put_destinations(key, destinations)

    async def _listed(self, client: Client, collection: Collection) -> list[Obj]:
        """Empty if not visible, with a remark."""
        try:
            async with self._turns:
                return await client.list(collection)
        except NotFound:
            return []
        except Forbidden as error:
            self.remarks.append(f"{collection.plural} cannot be listed and are ignored: {error}")
            return []

    # --- changes ----------------------------------------------------------------------------------

    def place(self, name: str, document: Obj | None, destinations: Iterable[Destination]) -> None:
        """A placement with its new destinations; None: deleted."""
        key = PlacementKey(self.cluster, name)
        self._affected |= self.after.put_placement(key, document)
        if document is not None:
            self._documents[key] = document
            self._affected |= self.after.put_destinations(key, destinations)

    def change(self, collection: Collection, obj: Obj, *, deleted: bool) -> ObjectRef:
        resource = GroupResource(collection.group, collection.plural)
        ref = ref_of(resource, obj)
        if (collection.group, collection.plural) == (CUSTOMIZERS.group, CUSTOMIZERS.plural):
            name = f"{ref.namespace}/{ref.name}"
            self._affected |= self.after.put_customizer(self.cluster, name, None if deleted else obj)
        else:
            self._affected |= self.after.put_object(
                self.cluster, ref, None if deleted else observed_object(resource, obj)
            )
        return ref

    def goes_to(self, ref: ObjectRef) -> list[str]:
        """Mailboxes that get it."""
        selections = self.after.selections
        pairs = ((key, mailbox) for key in self.after.placements for mailbox in selections.destinations(key))
        return sorted({mailbox for key, mailbox in pairs if selections.is_desired_by(key, mailbox, ref)})

    def selected_by(self, ref: ObjectRef) -> list[str]:
        """The placements of the workspace that select it or need it, also those without destinations."""
        return sorted(key.name for key in self.after.selections.holders(ref) if key.cluster == self.cluster)

    def count_selected(self, name: str) -> int:
        """The number of objects that a placement selects."""
        return len(self.after.selections.selected(PlacementKey(self.cluster, name)))

    def destination(
        self, mailbox: str, copy_changes: list[CopyChange], syncer_config: list[SyncerConfigChange]
    ) -> PlannedDestination:
        destination = self._destination(mailbox)
        created, changed, deleted, withdrawn = (
            [change.result() for change in copy_changes if change.what == what]
            for what in (CREATED, CHANGED, DELETED, WITHDRAWN)
        )
        return PlannedDestination(
            destination.cluster if destination else "",
            destination.location if destination else "",
            destination.target if destination else "",
            mailbox.rpartition("-mb-")[2] if destination else "",
            mailbox,
            created,
            changed,
            deleted,
            withdrawn,
            list(dict.fromkeys(change.sentence for change in copy_changes if change.problem)),
            syncer_config,
        )

    def _destination(self, mailbox: str) -> CopyDestination | None:
        """The first destination with this mailbox."""
        for world in (self.after, self.before):
            for key in sorted(world.placements):
                if (destination := world.selections.destinations(key).get(mailbox)) is not None:
                    return destination
        return None

    # --- result -----------------------------------------------------------------------------------

    async def copy_changes(self) -> dict[str, list[CopyChange]]:
        """Changed copies by mailbox."""
        copies = sorted(one for one in self._affected if isinstance(one, CopyKey))
        await self._observe(copies)
        decided = {copy: self._fate(copy) for copy in copies}
        self._hold(decided)
        found: dict[str, list[CopyChange]] = {}
        for copy, change in decided.items():
            if change.what or change.problem:
                found.setdefault(copy.mailbox, []).append(change)
        return found

    def changed_syncer_configs(self, copy_changes: dict[str, list[CopyChange]]) -> dict[str, list[SyncerConfigChange]]:
        """Changes of SyncerConfigs by mailbox.  Held copies stay in them."""
        mailboxes = {one.mailbox for one in self._affected if not isinstance(one, SelectionKey)} | copy_changes.keys()
        found = {
            mailbox: self._changed_syncer_config(mailbox, copy_changes.get(mailbox, []))
            for mailbox in sorted(mailboxes)
        }
        return {mailbox: changes for mailbox, changes in found.items() if changes}

    def _changed_syncer_config(self, mailbox: str, copy_changes: list[CopyChange]) -> list[SyncerConfigChange]:
        before, after = (
            self._in_versions(one.syncer_spec(mailbox, self._namespaced)) for one in (self.before, self.after)
        )
        if any(change.held for change in copy_changes):
            after = before.joined(after)
        return syncer_config_changes(before, after)

    def _namespaced(self, cluster: str) -> dict[GroupResource, str]:
        return {resource: one.collection.version for resource, one in self._served[cluster].items() if one.namespaced}

    def _in_versions(self, spec: SyncerSpec) -> SyncerSpec:
        """With the versions of the workspaces, which mailboxes share."""
        versions = {
            resource: one.collection.version for served in self._served.values() for resource, one in served.items()
        }
        return spec._replace(versions={**versions, **spec.versions})

    async def _observe(self, copies: list[CopyKey]) -> None:
        try:
            found = await self._server.workspace(self._provider).list(WORKSPACES)
        except ClientError as error:
            self._guessed = True
            self.remarks.append(f"mailboxes are not visible; the plan assumes that they are up to date: {error}")
            return
        clusters = {one["metadata"]["name"]: one["spec"].get("cluster", "") for one in found}
        kinds = {(copy.mailbox, copy.ref.resource, self._version(copy)) for copy in copies}
        kinds |= {(copy.mailbox, NAMESPACES, "v1") for copy in copies if copy.ref.namespace}
        await asyncio.gather(
            *(
                self._read_copies(mailbox, clusters[mailbox], resource, version)
                for mailbox, resource, version in sorted(kinds)
                if version and clusters.get(mailbox)
            )
        )
        await self._read_others()

    def _version(self, copy: CopyKey) -> str:
        """Version of the API in which the copy is written."""
        for world in (self.after, self.before):
            obj = world.compute_copy(copy).obj
            if obj is not None:
                return str(obj["apiVersion"].rpartition("/")[2])
        return ""

    async def _read_copies(self, mailbox: str, cluster: str, resource: GroupResource, version: str) -> None:
        client = self._server.workspace(f"{self._provider}:{mailbox}")
        for obj in await self._listed(client, Collection(resource.group, version, resource.resource, "")):
            copy, observed = CopyKey(mailbox, ref_of(resource, obj)), observed_object(resource, obj)
            self._observed[copy] = observed
            for world in (self.before, self.after):
                world.put_copy(copy, cluster, observed)

    async def _read_others(self) -> None:
        """Read other workspaces with sources of the same copies."""
        others = {key.cluster for one in self._observed.values() for key in one.placements} - {self.cluster}
        for cluster in sorted(others):
            client = self._server.workspace(cluster)
            try:
                await self.read(client, await discover(client), cluster)
            except ClientError as error:
                self.remarks.append(
                    f"placements of {cluster} select some of these objects, and are not visible: {error}"
                )

    def _fate(self, copy: CopyKey) -> CopyChange:
        before, after = self.before.compute_copy(copy), self.after.compute_copy(copy)
        observed = self._observed_copy(copy, before)
        change = CopyChange(copy.ref)
        if (refused := self.after.refused(copy, self.cluster)) is not None:
            change.problem = refusal_message(copy, *refused).replace(f" in {copy.mailbox}: ", ": ", 1)
            change.is_refused = True
            return change
        if after.problem:
            change.problem = after.problem
        elif observed is not None and observed.ours and observed.is_terminating:
            change.what, change.anew = WITHDRAWN, after.obj is not None
        elif after.obj is None:
            if observed is not None and self._would_be_deleted(copy, observed):
                change.what = DELETED
        elif self._is_needed(copy) and (copy.ref == DEFAULT or (observed is not None and not observed.ours)):
            pass  # it exists already
        elif observed is None:
            change.what = CREATED
        elif not observed.ours:
            change.problem = FOREIGN
        else:
            change.differences = _changes(orjson.loads(observed.document), before.obj, after.obj)
            change.what = CHANGED if change.differences else ""
        if not change.problem:
            change.problem = "; ".join([*map(str, after.conflicts), *filter(None, [after.ambiguity])])
        return change

    def _is_needed(self, copy: CopyKey) -> bool:
        """Whether no placement selects it: it is only the namespace or definition of others."""
        return all(one.selected is None for one in self.after.selections.reasons(*copy))

    def _observed_copy(self, copy: CopyKey, before: Desired) -> ObservedObject | None:
        if not self._guessed:
            return self._observed.get(copy)
        return None if before.obj is None else observed_object(copy.ref.resource, before.obj)

    def _would_be_deleted(self, copy: CopyKey, observed: ObservedObject) -> bool:
        """Whether an undesired copy would be deleted."""
        unknown = observed.placements - self.before.placements.keys()
        if not observed.ours or any(key.cluster != self.cluster for key in unknown):
            return False
        if copy.ref.resource != NAMESPACES:
            return True
        inside = (one for one in self._observed.items() if one[0].mailbox == copy.mailbox)
        return not any(
            other.ref.namespace == copy.ref.name and not one.ours and not one.system for other, one in inside
        )

    def _hold(self, decided: dict[CopyKey, CopyChange]) -> None:
        """Mark the deletions that the translator would hold with the default limits.  Deletions of sources are not
        held."""
        for key in sorted(self.after.placements):
            losses: dict[str, set[ObjectRef]] = {}
            for copy, change in decided.items():
                was = self.before.selections.is_desired_by(key, *copy)
                stays = self.after.get(key.cluster, copy.ref) is not None
                if change.what == DELETED and was and stays:
                    losses.setdefault(copy.mailbox, set()).add(copy.ref)
            metadata = self._documents[key]["metadata"]
            generation = metadata.get("generation") or 0
            confirmed = guard.is_confirmed(metadata.get("annotations") or {}, generation, len(losses))
            verdict = guard.check_withdrawal(losses, len(self.before.selections.destinations(key)), confirmed=confirmed)
            for mailbox, refs in verdict.held.items():
                for ref in refs:
                    decided[CopyKey(mailbox, ref)].held = True


def _changes(observed: Obj, before: Obj | None, after: Obj) -> list[Difference]:
    """The changed fields of a copy.  An up-to-date copy is compared as the translator writes it, without fields of its
    server."""
    changed = project.update_of(observed, after)
    if changed is None:
        return []
    if after["metadata"]["annotations"].get(DOWNSYNC_OVERWRITE) == project.NEVER:
        return differences(observed, changed)
    if before is not None and project.update_of(observed, before) is None:
        return differences(before, after)
    return differences(_marked(observed), after)


def _marked(observed: Obj) -> Obj:
    """The fields of a copy that the translator writes."""
    bare = project.strip(observed)
    labels = {**(bare["metadata"].get("labels") or {}), PROJECTED: types.YES}
    return {**bare, "metadata": {**bare["metadata"], "labels": labels}}
