"""Indexes of objects, served kinds, selections and copies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from datetime import datetime
from typing import Final, NamedTuple, TypeAlias

import msgspec

from farflung.lib.groups import discard_from
from farflung.placement.names import (
    BINDINGS,
    DEFINITIONS,
    NAMESPACES,
    Category,
    GroupResource,
    ObjectRef,
    PlacementKey,
    WatchedCollection,
    category,
)
from farflung.placement.select import Selected, WorkloadSelector
from farflung.placement.types import CopyDestination, ObservedObject


class ObjectIndex:
    def __init__(self) -> None:
        self._objects: dict[str, dict[ObjectRef, ObservedObject]] = {}
        self._inside: dict[tuple[str, str], set[ObjectRef]] = {}  #: (cluster, namespace) → objects

    def get(self, cluster: str, ref: ObjectRef) -> ObservedObject | None:
        return self._objects.get(cluster, _NOTHING).get(ref)

    def refs(self, cluster: str) -> Mapping[ObjectRef, ObservedObject]:
        return self._objects.get(cluster, _NOTHING)

    def inside(self, cluster: str, namespace: str) -> Iterator[ObjectRef]:
        yield from self._inside.get((cluster, namespace), ())

    def put(self, cluster: str, ref: ObjectRef, seen: ObservedObject) -> ObservedObject | None:
        """Returns the previous version."""
        objects = self._objects.setdefault(cluster, {})
        before = objects.get(ref)
        objects[ref] = seen
        if before is None and ref.namespace:
            self._inside.setdefault((cluster, ref.namespace), set()).add(ref)
        return before

    def remove(self, cluster: str, ref: ObjectRef) -> ObservedObject | None:
        """Returns the previous version."""
        objects = self._objects.get(cluster)
        before = objects.pop(ref, None) if objects is not None else None
        if before is None:
            return None
        if not objects:
            del self._objects[cluster]
        if ref.namespace:
            inside = self._inside[cluster, ref.namespace]
            inside.discard(ref)
            if not inside:
                del self._inside[cluster, ref.namespace]
        return before


_NOTHING: Final[dict[ObjectRef, ObservedObject]] = {}


class CopyKey(NamedTuple):
    """The key of one object of one mailbox."""

    mailbox: str
    ref: ObjectRef


class ConfigKey(NamedTuple):
    """The key of the SyncerConfig of a mailbox."""

    mailbox: str


class SelectionKey(msgspec.Struct, frozen=True):
    """A placement whose number of selected objects changed.  No tuple: it is unequal to other keys of the placement."""

    placement: PlacementKey


AffectedKey: TypeAlias = CopyKey | ConfigKey | SelectionKey


def by_mailbox(pairs: Iterable[tuple[str, CopyDestination]]) -> dict[str, CopyDestination]:
    """Of several Locations that select the SyncTarget, the one with the smallest name is used."""
    destinations: dict[str, CopyDestination] = {}
    for mailbox, destination in sorted(set(pairs)):
        first = destinations.setdefault(mailbox, destination)
        if first is not destination:
            destinations[mailbox] = first._replace(others=(*first.others, destination.location))
    return destinations


class CopyReason(NamedTuple):
    """Why an object belongs in a mailbox.  `selected is None`: only because another object needs it."""

    placement: PlacementKey
    selected: Selected | None
    destination: CopyDestination


class _Placement:
    """One placement with its selected objects and destinations."""

    __slots__ = ("bindings", "destinations", "needed", "resources", "selected", "whole", "workload")

    def __init__(self) -> None:
        self.workload: WorkloadSelector | None = None  #: None: it does not exist, or is invalid
        self.destinations: Mapping[str, CopyDestination] = {}  #: by mailbox
        self.selected: dict[ObjectRef, Selected] = {}
        self.whole: set[str] = set()  #: namespaces whose contents are selected as a whole
        self.needed: Counter[ObjectRef] = Counter()  #: the number of objects, or kinds, that need it to exist
        self.resources: Counter[GroupResource] = Counter()  #: of the selected objects
        self.bindings: dict[GroupResource, ObjectRef] = {}  #: which of `needed` serve these kinds

    def refs(self) -> set[ObjectRef]:
        return {*self.selected, *self.needed}


def permit_all(mailbox: str, ref: ObjectRef, key: PlacementKey) -> bool:
    return True


class PlacementIndex:
    def __init__(
        self,
        objects: ObjectIndex,
        served_kinds: ServedKinds,
        permits: Callable[[str, ObjectRef, PlacementKey], bool] = permit_all,
    ) -> None:
        """`objects`: all objects, `served_kinds`: the kinds of all workspaces; the caller updates them before it calls
        `object_changed` or `served_kinds_changed`.  `permits`: whether a placement that selects or needs an object may
        have it in a mailbox."""
        self._objects = objects
        self._served_kinds = served_kinds
        self._permits = permits
        self._placements: dict[PlacementKey, _Placement] = {}
        self._in_cluster: dict[str, set[PlacementKey]] = {}  #: placements of the workspace
        self._holders: dict[ObjectRef, set[PlacementKey]] = {}  #: placements that select or need an object
        self._at: dict[str, set[PlacementKey]] = {}  #: placements with this destination

    # --- queries ----------------------------------------------------------------------------------

    def reasons(self, mailbox: str, ref: ObjectRef) -> list[CopyReason]:
        """Why an object belongs in a mailbox, sorted; empty: it does not."""
        return [one for one in self.requests(mailbox, ref) if self._permits(mailbox, ref, one.placement)]

    def requests(self, mailbox: str, ref: ObjectRef) -> list[CopyReason]:
        """Likewise, with those that are not permitted."""
        found = []
        for key in sorted(self._holders.get(ref, ())):
            placement = self._placements[key]
            destination = placement.destinations.get(mailbox)
            if destination is not None:
                found.append(CopyReason(key, placement.selected.get(ref), destination))
        return found

    def is_desired(self, mailbox: str, ref: ObjectRef) -> bool:
        """Whether a placement selects or needs an object in a mailbox."""
        return any(self.is_desired_by(key, mailbox, ref) for key in self._holders.get(ref, ()))

    def is_desired_by(self, key: PlacementKey, mailbox: str, ref: ObjectRef) -> bool:
        placement = self._placements.get(key)
        return (
            placement is not None
            and mailbox in placement.destinations
            and key in self._holders.get(ref, ())
            and self._permits(mailbox, ref, key)
        )

    def holders(self, ref: ObjectRef) -> Iterable[PlacementKey]:
        """The placements that select or need an object."""
        return self._holders.get(ref, ())

    def refs_at(self, mailbox: str) -> set[ObjectRef]:
        """All objects that belong in a mailbox."""
        return {ref for key in self._at.get(mailbox, ()) for ref in self._placements[key].refs()}

    def placements_at(self, mailbox: str) -> list[PlacementKey]:
        return sorted(self._at.get(mailbox, ()))

    def workload(self, key: PlacementKey) -> WorkloadSelector | None:
        placement = self._placements.get(key)
        return None if placement is None else placement.workload

    def destinations(self, key: PlacementKey) -> Mapping[str, CopyDestination]:
        placement = self._placements.get(key)
        return {} if placement is None else placement.destinations

    def selected(self, key: PlacementKey) -> Mapping[ObjectRef, Selected]:
        placement = self._placements.get(key)
        return {} if placement is None else placement.selected

    def whole_namespaces(self, key: PlacementKey) -> frozenset[str]:
        """Namespaces whose contents are selected as a whole."""
        placement = self._placements.get(key)
        return frozenset() if placement is None else frozenset(placement.whole)

    def source_workspaces(self) -> Iterable[str]:
        """Clusters that have placements."""
        return self._in_cluster.keys()

    # --- placements -------------------------------------------------------------------------------

    def put_placement(self, key: PlacementKey, workload: WorkloadSelector) -> set[AffectedKey]:
        placement = self._placements.setdefault(key, _Placement())
        before, placement.workload = placement.workload, workload
        self._in_cluster.setdefault(key.cluster, set()).add(key)
        if before == workload:
            return set()
        return self._select_all(key, placement) | _configs(placement)

    def remove_placement(self, key: PlacementKey) -> set[AffectedKey]:
        placement = self._placements.get(key)
        if placement is None or placement.workload is None:
            return set()
        placement.workload = None
        keys = self._select_all(key, placement) | _configs(placement)
        discard_from(self._in_cluster, key.cluster, key)
        self._forget(key, placement)
        return keys

    def put_destinations(self, key: PlacementKey, destinations: Mapping[str, CopyDestination]) -> set[AffectedKey]:
        """Set the destinations of a placement, by mailbox."""
        placement = self._placements.setdefault(key, _Placement())
        before, placement.destinations = placement.destinations, dict(destinations)
        moved = {mailbox for mailbox in {*before, *destinations} if before.get(mailbox) != destinations.get(mailbox)}
        for mailbox in moved:
            if mailbox in destinations:
                self._at.setdefault(mailbox, set()).add(key)
            else:
                discard_from(self._at, mailbox, key)
        refs = placement.refs() if moved else set()
        keys: set[AffectedKey] = {CopyKey(mailbox, ref) for mailbox in moved for ref in refs}
        keys |= {ConfigKey(mailbox) for mailbox in moved}
        self._forget(key, placement)
        return keys

    def _forget(self, key: PlacementKey, placement: _Placement) -> None:
        """Remove the entry once both the placement and its slices are deleted."""
        if placement.workload is None and not placement.destinations:
            del self._placements[key]

    def _select_all(self, key: PlacementKey, placement: _Placement) -> set[AffectedKey]:
        keys: set[AffectedKey] = set()
        refs = self._objects.refs(key.cluster)
        for ref in [ref for ref in placement.selected if ref not in refs]:
            keys |= self._select(key, placement, ref, None)
        for ref, seen in refs.items():
            keys |= self._select(key, placement, ref, seen)
        for name in [name for name in placement.whole if ObjectRef(NAMESPACES, "", name) not in refs]:
            keys |= self._set_whole(key, placement, name, whole=False)
        return keys

    # --- objects ----------------------------------------------------------------------------------

    def object_changed(
        self, cluster: str, ref: ObjectRef, before: ObservedObject | None, after: ObservedObject | None
    ) -> set[AffectedKey]:
        """`objects` has `after` already."""
        keys: set[AffectedKey] = set()
        for key in self._in_cluster.get(cluster, ()):
            placement = self._placements[key]
            keys |= self._select(key, placement, ref, after)
            if ref in placement.selected or ref in placement.needed:
                keys |= _copies(placement, ref)
            if ref.resource == DEFINITIONS and ref in placement.needed and (before is None) != (after is None):
                keys |= _configs(placement)
            if ref.resource == NAMESPACES and _labels(before) != _labels(after):
                for inside in list(self._objects.inside(cluster, ref.name)):
                    keys |= self._select(key, placement, inside, self._objects.get(cluster, inside))
        return keys

    def served_kinds_changed(self, cluster: str) -> set[AffectedKey]:
        """`served_kinds` has the change already."""
        keys: set[AffectedKey] = set()
        for key in self._in_cluster.get(cluster, ()):
            placement = self._placements[key]
            for resource in list(placement.resources):
                keys |= self._bind(key, placement, resource)
        return keys

    def _select(
        self, key: PlacementKey, placement: _Placement, ref: ObjectRef, seen: ObservedObject | None
    ) -> set[AffectedKey]:
        """Update the selection of one object."""
        keys: set[AffectedKey] = set()
        if ref.resource == NAMESPACES:
            labels = _labels(seen)
            workload = placement.workload
            whole = workload is not None and labels is not None and workload.selects_namespace(labels)
            keys |= self._set_whole(key, placement, ref.name, whole=whole)
        before, after = placement.selected.get(ref), self._chosen(key, placement, ref, seen)
        if before == after:
            return keys
        if after is None:
            del placement.selected[ref]
        else:
            placement.selected[ref] = after
        keys |= _copies(placement, ref)
        if not (_is_unlisted(before) and _is_unlisted(after)):
            keys |= _configs(placement)
        self._hold(key, placement, ref)
        if (before is None) != (after is None):
            more = 1 if before is None else -1
            for needed in _needs(ref):
                keys |= self._need(key, placement, needed, more)
            placement.resources[ref.resource] += more
            if not placement.resources[ref.resource]:
                del placement.resources[ref.resource]
            keys |= self._bind(key, placement, ref.resource)
            keys.add(SelectionKey(key))
        return keys

    def _chosen(
        self, key: PlacementKey, placement: _Placement, ref: ObjectRef, seen: ObservedObject | None
    ) -> Selected | None:
        """None also for objects that are deleted, terminating, copies, system objects, or of a kind that is not
        copied."""
        if placement.workload is None or seen is None or seen.is_terminating or seen.ours or seen.system:
            return None
        if category(ref.resource) is Category.NOWHERE:
            return None
        namespace = self._objects.get(key.cluster, ObjectRef(NAMESPACES, "", ref.namespace)) if ref.namespace else None
        return placement.workload.selects(ref, seen.labels, _labels(namespace))

    def _set_whole(self, key: PlacementKey, placement: _Placement, name: str, *, whole: bool) -> set[AffectedKey]:
        if whole == (name in placement.whole):
            return set()
        (placement.whole.add if whole else placement.whole.discard)(name)
        return self._need(key, placement, ObjectRef(NAMESPACES, "", name), 1 if whole else -1) | _configs(placement)

    def _bind(self, key: PlacementKey, placement: _Placement, resource: GroupResource) -> set[AffectedKey]:
        """Need the binding of a kind of the selected objects."""
        before = placement.bindings.pop(resource, None)
        after = self._served_kinds.binding(key.cluster, resource) if resource in placement.resources else None
        if after is not None:
            placement.bindings[resource] = after
        if before == after:
            return set()
        keys = self._need(key, placement, after, 1) if after is not None else set()
        return keys | self._need(key, placement, before, -1) if before is not None else keys

    def _need(self, key: PlacementKey, placement: _Placement, ref: ObjectRef, more: int) -> set[AffectedKey]:
        placement.needed[ref] += more
        if placement.needed[ref] == 0:
            del placement.needed[ref]
        elif placement.needed[ref] > 1 or more < 0:
            return set()
        self._hold(key, placement, ref)
        return _copies(placement, ref) | (_configs(placement) if ref.resource == DEFINITIONS else set())

    def _hold(self, key: PlacementKey, placement: _Placement, ref: ObjectRef) -> None:
        if ref in placement.selected or ref in placement.needed:
            self._holders.setdefault(ref, set()).add(key)
        elif ref in self._holders:
            discard_from(self._holders, ref, key)


def _labels(seen: ObservedObject | None) -> Mapping[str, str] | None:
    """None if the object is deleted, terminating or a system object."""
    return seen.labels if seen is not None and not seen.is_terminating and not seen.system else None


def _is_unlisted(selected: Selected | None) -> bool:
    """Whether the SyncerConfig does not list the object: it is not selected, or with its whole namespace."""
    return selected is None or selected.whole_namespace


def _needs(ref: ObjectRef) -> Iterator[ObjectRef]:
    """Objects that must exist first.  The definition may not exist."""
    if ref.namespace:
        yield ObjectRef(NAMESPACES, "", ref.namespace)
    if "." in ref.resource.group:
        yield ObjectRef(DEFINITIONS, "", f"{ref.resource.resource}.{ref.resource.group}")


def _copies(placement: _Placement, ref: ObjectRef) -> set[AffectedKey]:
    return {CopyKey(mailbox, ref) for mailbox in placement.destinations}


def _configs(placement: _Placement) -> set[AffectedKey]:
    return {ConfigKey(mailbox) for mailbox in placement.destinations}


class _Schema(msgspec.Struct, frozen=True, rename="camel"):
    identity_hash: str = ""


class _Bound(msgspec.Struct, frozen=True, rename="camel"):
    resource: str
    group: str = ""
    schema: _Schema = _Schema()
    storage_versions: list[str] | None = None


class _BindingStatus(msgspec.Struct, frozen=True, rename="camel"):
    phase: str = ""
    bound_resources: list[_Bound] | None = None


class _Binding(msgspec.Struct, frozen=True):
    status: _BindingStatus | None = None


class _Names(msgspec.Struct, frozen=True):
    plural: str


class _Version(msgspec.Struct, frozen=True):
    name: str
    served: bool = True
    storage: bool = False


class _DefinitionSpec(msgspec.Struct, frozen=True):
    group: str
    names: _Names
    versions: list[_Version]


class _Condition(msgspec.Struct, frozen=True):
    type: str
    status: str = ""


class _DefinitionStatus(msgspec.Struct, frozen=True):
    conditions: list[_Condition] | None = None


class _Definition(msgspec.Struct, frozen=True):
    spec: _DefinitionSpec
    status: _DefinitionStatus | None = None


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    creation_timestamp: datetime


class _Made(msgspec.Struct, frozen=True):
    metadata: _Metadata


_made: Final = msgspec.json.Decoder(_Made)
_binding: Final = msgspec.json.Decoder(_Binding)
_definition: Final = msgspec.json.Decoder(_Definition)
_NO_COLLECTIONS: Final[dict[GroupResource, WatchedCollection]] = {}


class ServedKinds:
    """`builtin`: the kinds that every workspace serves, and their versions."""

    def __init__(self, builtin: Mapping[GroupResource, str]) -> None:
        self._builtin = {resource: WatchedCollection(resource, version) for resource, version in builtin.items()}
        self._of: dict[
            str, dict[ObjectRef, frozenset[WatchedCollection]]
        ] = {}  #: cluster → binding or definition → its kinds
        self._found: dict[str, dict[GroupResource, WatchedCollection]] = {}  #: the same by kind

    def builtin(self) -> Iterable[WatchedCollection]:
        return self._builtin.values()

    def everything(self) -> set[WatchedCollection]:
        """The kinds of all workspaces."""
        return {*self._builtin.values(), *(watched for found in self._found.values() for watched in found.values())}

    def collection(self, cluster: str, resource: GroupResource) -> WatchedCollection | None:
        """None if the workspace does not serve the kind."""
        return self._builtin.get(resource) or self._found.get(cluster, _NO_COLLECTIONS).get(resource)

    def of(self, cluster: str) -> Iterable[WatchedCollection]:
        """The kinds of its bindings and definitions."""
        return self._found.get(cluster, _NO_COLLECTIONS).values()

    def served_by(self, cluster: str, ref: ObjectRef) -> frozenset[WatchedCollection]:
        """The kinds of one binding or definition."""
        return self._of.get(cluster, {}).get(ref, frozenset())

    def serving(self, cluster: str, resource: GroupResource) -> Iterator[ObjectRef]:
        """The bindings and definitions that serve a kind."""
        for ref, served in self._of.get(cluster, {}).items():
            if any(watched.resource == resource for watched in served):
                yield ref

    def binding(self, cluster: str, resource: GroupResource) -> ObjectRef | None:
        """The binding that serves a kind; None for kinds of definitions and of all workspaces."""
        if resource in self._builtin:
            return None
        return min((ref for ref in self.serving(cluster, resource) if ref.resource == BINDINGS), default=None)

    def changed(self, cluster: str, ref: ObjectRef, seen: ObservedObject | None) -> bool:
        """Apply a change of a binding or a definition.  Whether it changes the served kinds."""
        served = frozenset[WatchedCollection]() if seen is None else kinds_from(cluster, ref, seen)
        if served == self.served_by(cluster, ref):
            return False
        by_ref = self._of.setdefault(cluster, {})
        if served:
            by_ref[ref] = served
        else:
            del by_ref[ref]
        self._found[cluster] = {
            watched.resource: watched
            for watched in sorted({one for collections in by_ref.values() for one in collections}, reverse=True)
        }
        if not by_ref:
            del self._of[cluster], self._found[cluster]
        return True


def kinds_from(cluster: str, ref: ObjectRef, seen: ObservedObject) -> frozenset[WatchedCollection]:
    try:
        if ref.resource == BINDINGS:
            return frozenset(_bound(_binding.decode(seen.document)))
        if ref.resource == DEFINITIONS:
            return frozenset(_defined(cluster, _definition.decode(seen.document)))
    except msgspec.ValidationError:
        pass  # an invalid object serves nothing
    return frozenset()


def _bound(binding: _Binding) -> Iterator[WatchedCollection]:
    for one in (binding.status.bound_resources if binding.status is not None else None) or ():
        resource = GroupResource(one.group, one.resource)
        if category(resource) is not Category.NOWHERE and one.storage_versions:
            yield WatchedCollection(resource, one.storage_versions[-1], one.schema.identity_hash)


def _defined(cluster: str, definition: _Definition) -> Iterator[WatchedCollection]:
    """In the storage version, if it is served."""
    conditions = (definition.status.conditions if definition.status is not None else None) or ()
    if not any(one.type == "Established" and one.status == "True" for one in conditions):
        return
    resource = GroupResource(definition.spec.group, definition.spec.names.plural)
    served = sorted((not one.storage, one.name) for one in definition.spec.versions if one.served)
    if served and category(resource) is not Category.NOWHERE:
        yield WatchedCollection(resource, served[0][1], "", cluster)


def pending_since(ref: ObjectRef, seen: ObservedObject) -> datetime | None:
    """The creation of a binding or definition that may still serve its kinds; None: it does, or was refused."""
    try:
        pending = _is_unbound(seen.document) if ref.resource == BINDINGS else _is_unestablished(seen.document)
        return _made.decode(seen.document).metadata.creation_timestamp if pending else None
    except msgspec.ValidationError:
        return None


def _is_unbound(document: bytes) -> bool:
    status = _binding.decode(document).status
    return status is None or status.phase != "Bound"


def _is_unestablished(document: bytes) -> bool:
    status = _definition.decode(document).status
    conditions = {one.type: one.status for one in (status.conditions if status is not None else None) or ()}
    return conditions.get("Established") != "True" and conditions.get("NamesAccepted") != "False"


MailboxRefs = dict[str, set[ObjectRef]]  #: by mailbox; none of the sets is empty
_NONE: Final[MailboxRefs] = {}


class CopyIndex:
    def __init__(self) -> None:
        self._copies: dict[PlacementKey, MailboxRefs] = {}
        self._withdrawals: dict[PlacementKey, MailboxRefs] = {}

    def put(self, mailbox: str, ref: ObjectRef, before: Set[PlacementKey], after: Set[PlacementKey]) -> None:
        """Set the placements of a copy."""
        for key in before - after:
            _discard(self._copies, key, mailbox, ref)
            _discard(self._withdrawals, key, mailbox, ref)
        for key in after - before:
            self._copies.setdefault(key, {}).setdefault(mailbox, set()).add(ref)

    def set_withdrawal(self, key: PlacementKey, mailbox: str, ref: ObjectRef, *, withdrawn: bool) -> None:
        """Set whether the copy is withdrawn unless it is held."""
        if withdrawn:
            self._withdrawals.setdefault(key, {}).setdefault(mailbox, set()).add(ref)
        else:
            _discard(self._withdrawals, key, mailbox, ref)

    def forget_mailbox(self, mailbox: str) -> set[PlacementKey]:
        """Remove a deleted mailbox.  Returns the placements that had copies there."""
        concerned = {key for key, refs in self._copies.items() if mailbox in refs}
        for relation in (self._copies, self._withdrawals):
            for key in concerned & relation.keys():
                relation[key].pop(mailbox, None)
                if not relation[key]:
                    del relation[key]
        return concerned

    def copies(self, key: PlacementKey) -> Iterator[tuple[str, ObjectRef]]:
        for mailbox, refs in self._copies.get(key, _NONE).items():
            for ref in refs:
                yield mailbox, ref

    def mailboxes(self, key: PlacementKey) -> Set[str]:
        """Mailboxes with copies of a placement."""
        return self._copies.get(key, _NONE).keys()

    def mailboxes_with(self, key: PlacementKey, ref: ObjectRef) -> list[str]:
        """Mailboxes with a copy of this object for a placement."""
        return [mailbox for mailbox, refs in self._copies.get(key, _NONE).items() if ref in refs]

    def withdrawals(self, key: PlacementKey) -> Mapping[str, Set[ObjectRef]]:
        return self._withdrawals.get(key, _NONE)


def _discard(relation: dict[PlacementKey, MailboxRefs], key: PlacementKey, mailbox: str, ref: ObjectRef) -> None:
    refs = relation.get(key, _NONE)
    if ref not in refs.get(mailbox, ()):
        return
    discard_from(refs, mailbox, ref)
    if not refs:
        del relation[key]
