"""What each mailbox should have, for the real or a changed state of a workspace, by the translator's engine and
rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import orjson

from farflung.apis.kcp.names import PATH_ANNOTATION
from farflung.machinery.errors import Obj
from farflung.placement import project
from farflung.placement.customize import Customizer, parse_customizer
from farflung.placement.index import AffectedKey, CopyKey, ObjectIndex, PlacementIndex, ServedKinds, by_mailbox
from farflung.placement.name_owners import NameOwners, parse_parent
from farflung.placement.names import BINDINGS, DEFINITIONS, GroupResource, ObjectRef, PlacementKey, mailbox_name
from farflung.placement.project import Desired, SourceObject, compute_copy
from farflung.placement.select import parse_workload_selector
from farflung.placement.syncer_config import MailboxNames, SyncerSpec, combine_specs
from farflung.placement.types import (
    CopyDestination,
    Destination,
    Location,
    ObservedObject,
    Placement,
    owners,
    parse_object,
    parse_placement,
)

NEWEST: Final = str(2**62)  #: resourceVersion of unwritten objects
Locations = Mapping[tuple[str, str], Location]  #: by cluster and name


def mailbox_of(destination: Destination) -> str:
    return mailbox_name(destination.cluster, destination.uid)


def destinations_by_mailbox(destinations: Iterable[Destination]) -> dict[str, CopyDestination]:
    return by_mailbox((mailbox_of(one), CopyDestination(one.cluster, one.location, one.target)) for one in destinations)


def locations_of(known: Iterable[Location]) -> dict[tuple[str, str], Location]:
    return {(one.key.cluster, one.key.name): one for one in known}


def slices_by_owner(slices: Iterable[Obj]) -> dict[str, list[Obj]]:
    """Slices by the uid of their placement."""
    found: dict[str, list[Obj]] = {}
    for one in slices:
        for owner in owners(one):
            found.setdefault(str(owner.get("uid")), []).append(one)
    return found


def ref_of(resource: GroupResource, obj: Obj) -> ObjectRef:
    return ObjectRef(resource, obj["metadata"].get("namespace") or "", obj["metadata"]["name"])


def paths_of(known: Iterable[Location]) -> dict[str, str]:
    """The paths of the workspaces of Locations, by logical cluster."""
    found = ((one.key.cluster, one.annotations.get(PATH_ANNOTATION)) for one in known)
    return {cluster: path for cluster, path in found if path}


def observed_object(resource: GroupResource, obj: Obj) -> ObservedObject:
    """`obj`: with apiVersion."""
    metadata = {**obj["metadata"], "resourceVersion": obj["metadata"].get("resourceVersion") or NEWEST}
    version = obj["apiVersion"].rpartition("/")[2]
    return parse_object(resource, version, orjson.dumps({**obj, "metadata": metadata}))


class PlacementModel:
    def __init__(self, locations: Locations) -> None:
        self._objects = ObjectIndex()
        self._served_kinds = ServedKinds({})
        self.selections = PlacementIndex(
            self._objects, self._served_kinds, lambda *asked: not self._name_owners.refusal(*asked)
        )
        self._customizers: dict[tuple[str, str], Customizer] = {}
        self._locations = locations
        self.placements: dict[PlacementKey, Placement] = {}
        self._mailboxes: dict[str, str] = {}
        self._name_owners = NameOwners(
            self._objects, self.selections, self._served_kinds, self.placements, locations, self._mailboxes
        )

    # --- objects --------------------------------------------------------------------------------------

    def put_object(self, cluster: str, ref: ObjectRef, after: ObservedObject | None) -> set[AffectedKey]:
        """The affected keys."""
        before = self._objects.remove(cluster, ref) if after is None else self._objects.put(cluster, ref, after)
        keys = self.selections.object_changed(cluster, ref, before, after)
        if ref.resource in (BINDINGS, DEFINITIONS) and self._served_kinds.changed(cluster, ref, after):
            keys |= self.selections.served_kinds_changed(cluster)
        return keys

    def put_placement(self, key: PlacementKey, document: Obj | None) -> set[AffectedKey]:
        """None: deleted.  An invalid one changes nothing."""
        if document is None:
            self.placements.pop(key, None)
            return self.selections.remove_placement(key) | self.put_destinations(key, ())
        self.placements[key] = parse_placement(document, key.cluster)
        what = parse_workload_selector(document)
        return set() if what.problem else self.selections.put_placement(key, what)

    def put_destinations(self, key: PlacementKey, destinations: Iterable[Destination]) -> set[AffectedKey]:
        before, after = self.selections.destinations(key), destinations_by_mailbox(destinations)
        affected = self.selections.put_destinations(key, after)
        for mailbox in {*before, *after}:
            self._name_owners.destinations_changed(mailbox)
        return affected

    def put_customizer(self, cluster: str, name: str, document: Obj | None) -> set[AffectedKey]:
        """`name`: namespace/name."""
        self._customizers.pop((cluster, name), None)
        if document is not None:
            self._customizers[cluster, name] = parse_customizer(document)
        concerned = [ref for ref, one in self._objects.refs(cluster).items() if one.customizer == name]
        return {
            CopyKey(mailbox, ref)
            for ref in concerned
            for key in self.placements
            if key.cluster == cluster and ref in self.selections.selected(key)
            for mailbox in self.selections.destinations(key)
        }

    def get(self, cluster: str, ref: ObjectRef) -> ObservedObject | None:
        return self._objects.get(cluster, ref)

    def syncer_spec(self, mailbox: str, namespaced: Callable[[str], Mapping[GroupResource, str]]) -> SyncerSpec:
        """The spec of its SyncerConfig, without versions of single objects."""
        keys = [key for key in self.selections.placements_at(mailbox) if self.selections.workload(key) is not None]
        known = all(self._name_owners.tenant(key.cluster) is not None for key in keys)
        is_shared = known and self._name_owners.is_contested(mailbox)
        names = MailboxNames(self._name_owners, mailbox) if is_shared else None
        return combine_specs(self.selections, self._objects, keys, namespaced, names)

    # --- mailboxes ------------------------------------------------------------------------------------

    def put_parent(self, cluster: str, logical_cluster: Obj) -> None:
        """The parent of a workspace, by which its tenant is known.  Until then no copy is refused."""
        self._name_owners.set_parent(cluster, parse_parent(orjson.dumps(logical_cluster)))

    def put_copy(self, copy: CopyKey, cluster: str, observed: ObservedObject) -> None:
        """`cluster`: of the mailbox."""
        self._mailboxes[copy.mailbox] = cluster
        self._objects.put(cluster, copy.ref, observed)
        self._name_owners.on_copy(*copy, observed)

    def refused(self, copy: CopyKey, cluster: str) -> tuple[str, CopyDestination] | None:
        """The reason and a destination, if no placement of a workspace that selects or needs the object may copy it."""
        requests = [one for one in self.selections.requests(*copy) if one.placement.cluster == cluster]
        reasons = [self._name_owners.refusal(*copy, one.placement) for one in requests]
        return (reasons[0], requests[0].destination) if reasons and all(reasons) else None

    def compute_copy(self, copy: CopyKey) -> Desired:
        wanted = self.selections.reasons(*copy)
        clusters = sorted({one.placement.cluster for one in wanted})
        return compute_copy(
            copy.ref,
            wanted,
            self._sources(copy.ref, clusters),
            self._customizers,
            self._locations,
        )

    def _sources(self, ref: ObjectRef, clusters: Sequence[str]) -> list[SourceObject]:
        found = [(cluster, one) for cluster in clusters if (one := self._objects.get(cluster, ref)) is not None]
        return [
            SourceObject(cluster, one.version, project.strip(orjson.loads(one.document)))
            for cluster, one in found
            if not one.is_terminating and not one.ours and not one.system
        ]
