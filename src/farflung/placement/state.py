"""Everything that placement observes, and the keys that each event affects."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Final, NamedTuple, TypeAlias

from farflung.apis.edge.names import CONFIRM_WITHDRAWAL
from farflung.lib.groups import discard_from
from farflung.placement import guard
from farflung.placement.customize import Customizer
from farflung.placement.guard import GuardedIndexes, Withdrawals
from farflung.placement.index import (
    AffectedKey,
    ConfigKey,
    CopyIndex,
    CopyKey,
    ObjectIndex,
    PlacementIndex,
    SelectionKey,
    ServedKinds,
    by_mailbox,
    pending_since,
)
from farflung.placement.name_owners import SHARED_KINDS, NameOwners, owned_scope, permissions_of
from farflung.placement.names import (
    BINDINGS,
    DEFINITIONS,
    NAMESPACES,
    GroupResource,
    ObjectRef,
    PlacementKey,
    WatchedCollection,
    is_mailbox_name,
)
from farflung.placement.project import CopyState, contributing_clusters
from farflung.placement.types import CopyDestination, Location, ObservedObject, Placement, PlacementSlice, Workspace

SERVING_TIMEOUT: Final = 10.0  #: seconds that a binding or definition has to serve its kind before that is reported


class Dependencies:
    def __init__(self, objects: ObjectIndex, selections: PlacementIndex, served_kinds: ServedKinds) -> None:
        self._objects = objects
        self._selections = selections
        self._served_kinds = served_kinds

    def of(self, cluster: str, ref: ObjectRef) -> Iterator[ObjectRef]:
        """The namespace of an object and the objects that serve its kind: they may be unneeded after its deletion."""
        if ref.namespace:
            yield ObjectRef(NAMESPACES, "", ref.namespace)
        yield from self._served_kinds.serving(cluster, ref.resource)

    def is_closing(self, cluster: str, ref: ObjectRef) -> bool:
        """Whether the object cannot be created: its namespace or the object that serves its kind is terminating."""
        if ref.namespace:
            namespace = self._objects.get(cluster, ObjectRef(NAMESPACES, "", ref.namespace))
            if namespace is not None and namespace.is_terminating:
                return True
        serving = [self._objects.get(cluster, one) for one in self._served_kinds.serving(cluster, ref.resource)]
        return bool(serving) and not any(seen is not None and not seen.is_terminating for seen in serving)

    def waiting(self, mailbox: str, cluster: str, ref: ObjectRef) -> Iterator[ObjectRef]:
        """Missing copies that may have waited for the deletion of a namespace, a binding or a definition."""
        if ref.resource == NAMESPACES:
            wanted = (
                one
                for key in self._selections.placements_at(mailbox)
                for one in self._objects.inside(key.cluster, ref.name)
                if self._selections.is_desired_by(key, mailbox, one)
            )
        else:
            wanted = (one for one in self._selections.refs_at(mailbox))
        yield from (one for one in wanted if self._objects.get(cluster, one) is None)

    def serving_delay(
        self, mailbox: str, cluster: str, resource: GroupResource, sources: Iterable[str], now: datetime
    ) -> float:
        """Seconds until it is reported that a mailbox does not serve a kind, because a binding or definition of one of
        `sources` may still serve it; infinite: until an event."""
        serving = (one for source in sources for one in self._served_kinds.serving(source, resource))
        wanted = (one for one in serving if self._selections.is_desired(mailbox, one))
        return max((_left(one, self._objects.get(cluster, one), now) for one in wanted), default=0.0)


def _left(serving_object: ObjectRef, there: ObservedObject | None, now: datetime) -> float:
    if there is None or there.is_terminating:
        return math.inf
    since = pending_since(serving_object, there)
    return 0.0 if since is None else max(0.0, SERVING_TIMEOUT - max(0.0, (now - since).total_seconds()))


class DiscoveryKey(NamedTuple):
    """Read the discovery of a workspace."""

    cluster: str


class StatusKey(NamedTuple):
    """Write the status of a placement."""

    placement: PlacementKey


CONTAINER_KINDS: Final = frozenset({NAMESPACES, DEFINITIONS, BINDINGS})  #: kinds whose deletion deletes other objects
WorkKey: TypeAlias = CopyKey | ConfigKey | DiscoveryKey | SelectionKey | StatusKey
PlacementMailbox: TypeAlias = tuple[PlacementKey, str]  #: a placement and one of its mailboxes


class PlacementState:
    """Each `on_…` applies an event, and returns the keys to reconcile."""

    def __init__(
        self,
        builtin: Mapping[GroupResource, str],
        limits: guard.WithdrawalLimits,
        is_listed: Callable[[WatchedCollection], bool] = lambda _: True,
    ) -> None:
        """`is_listed`: whether the informer of a collection has a list."""
        self.objects = ObjectIndex()
        self.served_kinds = ServedKinds(builtin)
        self.selections = PlacementIndex(
            self.objects, self.served_kinds, lambda *asked: self.name_owners.permits(*asked)
        )
        self.dependencies = Dependencies(self.objects, self.selections, self.served_kinds)
        self.copies = CopyIndex()
        self.mailboxes: dict[str, str] = {}  #: logical cluster of each ready mailbox
        self.customizers: dict[tuple[str, str], Customizer] = {}  #: by cluster and `namespace/name`
        self.locations: dict[tuple[str, str], Location] = {}
        self.placements: dict[PlacementKey, Placement] = {}
        self.name_owners = NameOwners(
            self.objects, self.selections, self.served_kinds, self.placements, self.locations, self.mailboxes
        )
        self.collections: Counter[WatchedCollection] = Counter()  #: how many workspaces need each, except builtin ones
        indexes = GuardedIndexes(self.objects, self.selections, self.served_kinds, self.copies, self.placements)
        self.withdrawals = Withdrawals(indexes, limits, is_listed, self.is_unresolved)
        self._is_listed = is_listed
        self._tracked: set[str] = set()  #: workspaces with placements, and mailboxes
        self._names: dict[str, str] = {}  #: the mailbox of a cluster
        self._slices: dict[PlacementKey, dict[str, PlacementSlice]] = {}
        self._placements_through: dict[tuple[str, str], set[PlacementMailbox]] = {}  #: by Location
        self._customized: dict[str, set[ObjectRef]] = {}  #: objects with a Customizer or parameters, by cluster
        self._complete = False

    def begin(self) -> set[WorkKey]:
        """The state is complete.  Withdrawals are decided only from now on."""
        self._complete = True
        affected: set[WorkKey] = set()
        for mailbox, cluster in self.mailboxes.items():
            for ref, seen in self.objects.refs(cluster).items():
                if _made_for(seen) and not self.selections.is_desired(mailbox, ref):
                    affected |= self._recheck(mailbox, ref)
        return affected

    # --- objects ----------------------------------------------------------------------------------

    def on_object(self, cluster: str, ref: ObjectRef, after: ObservedObject | None) -> set[WorkKey]:
        before = self.objects.remove(cluster, ref) if after is None else self.objects.put(cluster, ref, after)
        affected = self._with_withdrawals(self.selections.object_changed(cluster, ref, before, after))
        if self._complete and cluster in self.selections.source_workspaces() and _is_alive(before) != _is_alive(after):
            affected |= self._source_changed(cluster, ref)
        if ref.resource in (BINDINGS, DEFINITIONS):
            affected |= self._on_serving_object(cluster, ref, after)
        self._track_customized(cluster, ref, after)
        name = self._names.get(cluster)
        if name is not None:
            affected |= self._on_copy(name, ref, before, after)
        return affected

    def _on_copy(
        self, mailbox: str, ref: ObjectRef, before: ObservedObject | None, after: ObservedObject | None
    ) -> set[WorkKey]:
        """A copy changed."""
        were, are = _made_for(before), _made_for(after)
        self.copies.put(mailbox, ref, were, are)
        affected: set[WorkKey] = {CopyKey(mailbox, ref)}
        was_contested = self.name_owners.is_contested(mailbox)
        if self.name_owners.on_copy(mailbox, ref, after) and (was_contested or self.name_owners.is_contested(mailbox)):
            affected |= self.owner_changed(mailbox, owned_scope(ref))
        cluster = self.mailboxes[mailbox]
        if not _is_alive(after):
            affected |= {CopyKey(mailbox, one) for one in self.dependencies.of(cluster, ref)}
        if (
            ref.resource in CONTAINER_KINDS
            and before is not None
            and (after is None or before.is_terminating > after.is_terminating)
        ):
            affected |= {CopyKey(mailbox, one) for one in self.dependencies.waiting(mailbox, cluster, ref)}
        return affected | self._recheck(mailbox, ref) | self._review(were - are)

    def owner_changed(self, mailbox: str, scope: ObjectRef) -> set[WorkKey]:
        """Another tenant may have a scope now, or none."""
        affected: set[WorkKey] = {ConfigKey(mailbox)}
        cluster = self.mailboxes.get(mailbox, "")
        refs = {scope, *(self.objects.inside(cluster, scope.name) if scope.resource == NAMESPACES else ())}
        for key in [key for key in self.selections.holders(scope) if mailbox in self.selections.destinations(key)]:
            refs.update(self.objects.inside(key.cluster, scope.name) if scope.resource == NAMESPACES else ())
        for ref in refs:
            affected |= {CopyKey(mailbox, ref)} | self._recheck(mailbox, ref)
        return affected

    def _owners_changed(self, mailbox: str) -> set[WorkKey]:
        """The tenants in a mailbox changed, or whether they may share names."""
        refs = self.selections.refs_at(mailbox)
        refs |= {ref for ref, seen in self.objects.refs(self.mailboxes.get(mailbox, "")).items() if seen.ours}
        affected: set[WorkKey] = {ConfigKey(mailbox)}
        for ref in refs:
            affected |= {CopyKey(mailbox, ref)} | self._recheck(mailbox, ref)
        return affected

    def on_logical_cluster(self, cluster: str, parent: str | None) -> set[WorkKey]:
        """`parent`: by `parse_parent`; None: the workspace was deleted."""
        affected: set[WorkKey] = set()
        if self.name_owners.set_parent(cluster, parent):
            for key in [key for key in self.placements if key.cluster == cluster]:
                for mailbox in self.selections.destinations(key):
                    affected |= self._owners_changed(mailbox)
        return affected

    def _on_serving_object(self, cluster: str, ref: ObjectRef, after: ObservedObject | None) -> set[WorkKey]:
        """A binding or a definition changed."""
        before = set(self.served_kinds.of(cluster))
        if not self.served_kinds.changed(cluster, ref, after):
            return set()
        if cluster in self._tracked:
            for watched in before ^ set(self.served_kinds.of(cluster)):
                self._count(watched, -1 if watched in before else 1)
        affected: set[WorkKey] = {DiscoveryKey(cluster)} if cluster in self.selections.source_workspaces() else set()
        affected |= self._with_withdrawals(self.selections.served_kinds_changed(cluster))
        name = self._names.get(cluster)
        return affected if name is None else affected | self._owners_changed(name)

    def _track_customized(self, cluster: str, ref: ObjectRef, seen: ObservedObject | None) -> None:
        if seen is not None and (seen.customizer or seen.expands):
            self._customized.setdefault(cluster, set()).add(ref)
        elif ref in self._customized.get(cluster, ()):
            self._customized[cluster].discard(ref)

    # --- placements and slices --------------------------------------------------------------------

    def on_placement(self, key: PlacementKey, seen: Placement | None) -> set[WorkKey]:
        if seen is not None and seen.is_terminating:
            seen = None
        before = self.placements.pop(key, None)
        affected: set[WorkKey] = {StatusKey(key)}
        if seen is None:
            affected |= self._with_withdrawals(self.selections.remove_placement(key))
        else:
            self.placements[key] = seen
            if key.cluster not in self.selections.source_workspaces():
                affected.add(DiscoveryKey(key.cluster))
            if not seen.workload.problem:
                affected |= self._with_withdrawals(self.selections.put_placement(key, seen.workload))
        self._track_collections(key.cluster)
        if _decisive(before) != _decisive(seen):
            affected |= self._update_destinations(key) | self._unwanted(key)
        return affected

    def on_slice(
        self, cluster: str, name: str, before: PlacementSlice | None, after: PlacementSlice | None
    ) -> set[WorkKey]:
        keys = {PlacementKey(cluster, one.placement) for one in (before, after) if one is not None}
        for key in keys & self._slices.keys():
            self._slices[key].pop(name, None)
            if not self._slices[key]:
                del self._slices[key]
        if after is not None:
            self._slices.setdefault(PlacementKey(cluster, after.placement), {})[name] = after
        affected: set[WorkKey] = set()
        for key in keys:
            affected |= self._update_destinations(key) | self._unwanted(key)
        return affected

    def _own_slices(self, key: PlacementKey) -> list[PlacementSlice]:
        seen = self.placements.get(key)
        return [one for one in self._slices.get(key, {}).values() if seen is not None and one.owner == seen.uid]

    def _update_destinations(self, key: PlacementKey) -> set[WorkKey]:
        """Update the destinations of a placement from its slices.  A placement without slices is not resolved yet, and
        keeps its last destinations."""
        own = self._own_slices(key)
        if key in self.placements and not own:
            return set()
        destinations = by_mailbox(pair for one in own for pair in one.destinations)
        before = self.selections.destinations(key)
        moved = {mailbox for mailbox in {*before, *destinations} if before.get(mailbox) != destinations.get(mailbox)}
        contested = {mailbox for mailbox in moved if self.name_owners.is_contested(mailbox)}
        for location, pair in _by_location(key, before):
            discard_from(self._placements_through, location, pair)
        for location, pair in _by_location(key, destinations):
            self._placements_through.setdefault(location, set()).add(pair)
        changed = self.selections.put_destinations(key, destinations)
        for mailbox in moved:
            self.name_owners.destinations_changed(mailbox)
        affected = self._with_withdrawals(changed)
        for mailbox in moved:
            if mailbox in contested or self.name_owners.is_contested(mailbox):
                affected |= self._owners_changed(mailbox)
        return affected

    def is_unresolved(self, key: PlacementKey) -> bool:
        """Whether the objects or destinations of a placement are not known yet: then its copies are not withdrawn."""
        if key not in self.placements:
            return False
        if self.selections.workload(key) is None or not (self.selections.destinations(key) or self._own_slices(key)):
            return True
        return self.name_owners.tenant(key.cluster) is None or not self._lists_all(key.cluster)

    def _lists_all(self, cluster: str) -> bool:
        """Whether the informers of all kinds that a workspace serves have a list."""
        return all(self._is_listed(watched) for watched in self.served_kinds.of(cluster))

    def selected_count(self, key: PlacementKey) -> int | None:
        """The number of objects that a placement selects; None: not known yet."""
        if self.selections.workload(key) is None or not self._lists_all(key.cluster):
            return None
        return len(self.selections.selected(key))

    # --- mailboxes, Locations, Customizers --------------------------------------------------------

    def on_workspace(self, name: str, workspace: Workspace | None) -> set[WorkKey]:
        if not is_mailbox_name(name):
            return set()
        usable = (
            workspace is not None and not workspace.is_terminating and workspace.ready and bool(workspace.target_name)
        )
        cluster = workspace.cluster if workspace is not None and usable else ""
        before = self.mailboxes.get(name, "")
        if cluster == before:
            return set()
        affected: set[WorkKey] = set()
        if before:
            self.name_owners.forget_mailbox(name, before)
            del self.mailboxes[name], self._names[before]
            self._track_collections(before)
            affected |= self._review(self.copies.forget_mailbox(name))
        affected |= {CopyKey(name, ref) for ref in self.selections.refs_at(name)}
        if cluster:
            self.mailboxes[name], self._names[cluster] = cluster, name
            self._track_collections(cluster)
            affected.add(ConfigKey(name))
            for ref, seen in self.objects.refs(cluster).items():
                affected |= self._on_copy(name, ref, None, seen)
        return affected

    def mailbox_of(self, cluster: str) -> str | None:
        return self._names.get(cluster)

    def on_location(self, cluster: str, name: str, seen: Location | None) -> set[WorkKey]:
        before = self.locations.pop((cluster, name), None)
        if seen is not None:
            self.locations[cluster, name] = seen
        if _parameters(before) == _parameters(seen):
            return set()
        affected: set[WorkKey] = {
            CopyKey(mailbox, ref)
            for key, mailbox in self.placements_through(cluster, name)
            for ref in self._customized.get(key.cluster, ())
            if self.selections.is_desired_by(key, mailbox, ref)
        }
        if permissions_of(before) != permissions_of(seen):
            for mailbox in {mailbox for _, mailbox in self.placements_through(cluster, name)}:
                affected |= self._owners_changed(mailbox)
        return affected

    def placements_through(self, cluster: str, location: str) -> Iterable[PlacementMailbox]:
        """Placements and mailboxes that a Location connects."""
        return self._placements_through.get((cluster, location), ())

    def on_customizer(self, cluster: str, name: str, customizer: Customizer | None) -> set[WorkKey]:
        """`name`: `namespace/name`."""
        self.customizers.pop((cluster, name), None)
        if customizer is not None:
            self.customizers[cluster, name] = customizer
        customized = [
            ref
            for ref in self._customized.get(cluster, ())
            if (seen := self.objects.get(cluster, ref)) is not None and seen.customizer == name
        ]
        return {
            CopyKey(mailbox, ref)
            for key in self.placements
            if key.cluster == cluster
            for ref in customized
            for mailbox in self.selections.destinations(key)
            if self.selections.is_desired_by(key, mailbox, ref)
        }

    # --- copies -----------------------------------------------------------------------------------

    def copy_state(self, copy: CopyKey) -> CopyState | None:
        """None if there is no such mailbox."""
        cluster = self.mailboxes.get(copy.mailbox)
        if cluster is None:
            return None
        ref = copy.ref
        requests, observed = self.selections.requests(*copy), self.objects.get(cluster, ref)
        reasons = [one for one in requests if self.name_owners.permits(copy.mailbox, ref, one.placement)]
        served, placements = (
            self.served_kinds.collection(cluster, ref.resource),
            frozenset(one.placement for one in reasons),
        )
        others = observed.placements - placements if observed is not None else ()
        kept = sorted(key for key in others if self.is_unresolved(key))
        found = [(one, self.objects.get(one, ref)) for one in contributing_clusters(ref, reasons, kept)]
        sources = [
            (one, seen) for one, seen in found if seen and not seen.is_terminating and not seen.ours and not seen.system
        ]
        if ref.resource in SHARED_KINDS and self.name_owners.is_contested(copy.mailbox):
            owner = self.name_owners.owner(copy.mailbox, ref)  # the others have the same content, or had
            sources = [one for one in sources if self.name_owners.tenant(one[0]) == owner] or sources
        tenants = self.name_owners.tenants([*placements, *kept])
        asked = [(one.placement, self.name_owners.refusal(copy.mailbox, ref, one.placement)) for one in requests]
        refused = tuple((key, reason) for key, reason in asked if reason)
        return CopyState(ref, cluster, reasons, served, observed, placements, kept, sources, tenants, refused)

    def is_occupied(self, copy: CopyKey, cluster: str) -> bool:
        """Whether the deletion of a namespace, definition or binding would delete other objects."""
        return not self._lists_all(cluster) or any(True for _ in self._within(copy, cluster))

    def is_being_emptied(self, copy: CopyKey, cluster: str) -> bool:
        """Whether there are copies to delete in it first."""
        return any(seen.ours and not seen.is_terminating for seen in self._within(copy, cluster))

    def _within(self, copy: CopyKey, cluster: str) -> Iterator[ObservedObject]:
        """Objects in a namespace, or of the kinds of a definition or binding."""
        ref = copy.ref
        if ref.resource == NAMESPACES:
            inside = (self.objects.get(cluster, one) for one in self.objects.inside(cluster, ref.name))
            yield from (seen for seen in inside if seen is not None and not seen.system)
            return
        served = {watched.resource for watched in self.served_kinds.served_by(cluster, ref)}
        for one, seen in self.objects.refs(cluster).items():
            if one.resource in served:
                yield seen

    # --- withdrawals ------------------------------------------------------------------------------

    def has_unresolved_copies(self, mailbox: str) -> bool:
        """Whether a mailbox has copies that are held, or whose placement is unresolved."""
        for key in self.placements:
            if mailbox in self.copies.withdrawals(key) and self.withdrawals.is_held(key):
                return True
            reached = mailbox in self.copies.mailboxes(key) or mailbox in self.selections.destinations(key)
            if reached and self.is_unresolved(key):
                return True
        return False

    def _with_withdrawals(self, changed: set[AffectedKey]) -> set[WorkKey]:
        """The changed copies, and the keys affected by their withdrawals."""
        affected: set[WorkKey] = set(changed)
        for one in changed if self._complete else ():
            if isinstance(one, CopyKey):
                affected |= self._recheck(*one)
                if one.ref == owned_scope(one.ref) and self.name_owners.is_contested(one.mailbox):
                    affected |= self.owner_changed(*one)
        return affected

    def _recheck(self, mailbox: str, ref: ObjectRef) -> set[WorkKey]:
        """A copy may have become wanted or unwanted."""
        keys = _made_for(self.objects.get(self.mailboxes.get(mailbox, ""), ref)) if self._complete else None
        if not keys:
            return set()
        self.withdrawals.update(mailbox, ref, keys)
        return self._review(keys)

    def _review(self, keys: Iterable[PlacementKey]) -> set[WorkKey]:
        """If the withdrawals of a placement are held from now on, or no longer, reconcile all of them."""
        affected: set[WorkKey] = set()
        for key in keys if self._complete else ():
            if self.withdrawals.needs_status_update(key):
                affected.add(StatusKey(key))
            if self.withdrawals.held_changed(key):
                affected |= {
                    CopyKey(mailbox, ref) for mailbox, refs in self.copies.withdrawals(key).items() for ref in refs
                }
                affected |= {ConfigKey(mailbox) for mailbox in self.copies.mailboxes(key)}
        return affected

    def _source_changed(self, cluster: str, ref: ObjectRef) -> set[WorkKey]:
        """The deletion of the source confirms the withdrawal of its copies."""
        affected: set[WorkKey] = set()
        for key in self.placements:
            for mailbox in self.copies.mailboxes_with(key, ref) if key.cluster == cluster else ():
                affected |= {CopyKey(mailbox, ref)} | self._recheck(mailbox, ref)
        return affected

    def _unwanted(self, key: PlacementKey) -> set[WorkKey]:
        """Unwanted copies of a placement, and the SyncerConfigs of its mailboxes."""
        affected: set[WorkKey] = {StatusKey(key)}
        affected |= {
            ConfigKey(mailbox) for mailbox in {*self.copies.mailboxes(key), *self.selections.destinations(key)}
        }
        for mailbox, ref in list(self.copies.copies(key)):
            if not self.selections.is_desired_by(key, mailbox, ref):
                affected |= {CopyKey(mailbox, ref)} | self._recheck(mailbox, ref)
        return affected

    # --- collections -------------------------------------------------------------------------------

    def _track_collections(self, cluster: str) -> None:
        """Count the collections of a workspace if it has placements or is a mailbox."""
        matters = cluster in self.selections.source_workspaces() or cluster in self._names
        if matters == (cluster in self._tracked):
            return
        (self._tracked.add if matters else self._tracked.discard)(cluster)
        for watched in self.served_kinds.of(cluster):
            self._count(watched, 1 if matters else -1)

    def _count(self, watched: WatchedCollection, more: int) -> None:
        self.collections[watched] += more
        if not self.collections[watched]:
            del self.collections[watched]

    def on_collection(self, watched: WatchedCollection) -> set[WorkKey]:
        """A collection has its first list, or was stopped."""
        clusters = [watched.cluster] if watched.cluster else [*self._tracked]
        affected: set[WorkKey] = set()
        for cluster in clusters:
            if self.served_kinds.collection(cluster, watched.resource) in (watched, None):
                affected |= self._all_of(cluster, watched.resource)
        return affected

    def is_unlisted(self, cluster: str, resource: GroupResource) -> bool:
        """Whether the first list of a kind of this workspace is missing."""
        watched = self.served_kinds.collection(cluster, resource)
        if watched is None or self._is_listed(watched):
            return False
        return watched in self.collections or watched in self.served_kinds.builtin()

    def _all_of(self, cluster: str, resource: GroupResource) -> set[WorkKey]:
        affected: set[WorkKey] = set()
        for key in self.placements if cluster in self.selections.source_workspaces() else ():
            if key.cluster == cluster:
                affected |= self._unwanted(key)
        name = self._names.get(cluster)
        if name is not None:
            ours = (ref for ref, seen in self.objects.refs(cluster).items() if seen.ours)
            affected |= {CopyKey(name, ref) for ref in ours if not self.selections.is_desired(name, ref)}
            affected |= {CopyKey(name, ref) for ref in self.selections.refs_at(name) if ref.resource == resource}
        return affected


def _by_location(
    key: PlacementKey, destinations: Mapping[str, CopyDestination]
) -> Iterator[tuple[tuple[str, str], PlacementMailbox]]:
    """Each Location with the placement and mailbox that it connects."""
    for mailbox, destination in destinations.items():
        for location in destination.locations:
            yield (destination.cluster, location), (key, mailbox)


def _is_alive(seen: ObservedObject | None) -> bool:
    return seen is not None and not seen.is_terminating


def _made_for(seen: ObservedObject | None) -> frozenset[PlacementKey]:
    """The placements of a copy; none if it is being deleted."""
    return seen.placements if seen is not None and not seen.is_terminating else frozenset()


def _decisive(seen: Placement | None) -> object:
    """The part of a placement that decides about withdrawals."""
    return (
        None if seen is None else (seen.workload, seen.uid, seen.generation, seen.annotations.get(CONFIRM_WITHDRAWAL))
    )


def _parameters(seen: Location | None) -> object:
    """The part of a Location that decides about customization."""
    return None if seen is None else (seen.labels, seen.annotations)
