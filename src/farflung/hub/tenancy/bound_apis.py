"""An index of APIBindings: the resources that each workspace has bound.

It is updated before the writer of a binding gets a response, so that the bound API can be used at once.  Copies of the
bound schemas are stored by identity and uid, so that a bound resource is served even after its provider deleted the
schema.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple
from weakref import WeakValueDictionary

import msgspec

from farflung.apis.kcp import kinds as kcp
from farflung.apis.kcp.names import ExportReference
from farflung.hub.catalog import objects
from farflung.hub.catalog.kinds import NEVER, Kind
from farflung.hub.catalog.objects import cluster_in
from farflung.hub.catalog.served import Kinds
from farflung.hub.request.target import Target
from farflung.hub.tenancy.api_bindings import BINDINGS, EXPORT_VALID, UP_TO_DATE, Claim, claim_of
from farflung.hub.tenancy.api_exports import ExportKey, schema_key
from farflung.hub.tenancy.bound_definitions import BoundDefinition, Form, bound_definition
from farflung.hub.tenancy.paths import ROOT
from farflung.hub.tenancy.resource_schemas import group_resource, resource_name
from farflung.lib.groups import discard_from, subtract_one
from farflung.machinery.errors import Obj
from farflung.store.base import Change, Entry, Revision, Store

COPIES: Final = "/apis.kcp.io/apiresourceschemas:bound/"  #: followed by identity and uid


class BoundResource(NamedTuple):
    group: str
    resource: str
    schema: str  #: its name
    uid: str  #: of the schema
    identity: str  #: the hash

    @property
    def group_resource(self) -> tuple[str, str]:
        return self.group, self.resource


class BindingState(NamedTuple):
    """The fields of a binding that other parts of the hub need."""

    reference: ExportReference
    export: ExportKey | None  #: None until it was found
    valid: bool  #: whether the export exists
    bound: tuple[BoundResource, ...]
    applied: tuple[Claim, ...]
    ends: bool
    created: str
    clashes: bool  #: whether names that it needs are in use


class DeletedBinding(NamedTuple):
    revision: Revision  #: of the deletion
    state: BindingState


Listener = Callable[[BindingState | None, BindingState | None, Revision], None]  #: old state, new state, revision


def stored_identity(export: ExportKey | None, identity: str) -> str:
    """The identity under which objects are stored.  Resources that the hub exports from root are stored without one."""
    return "" if export is not None and export.cluster == ROOT and export.name in kcp.EXPORTS else identity


# --- reading bindings -------------------------------------------------------------------------------


class _Schema(msgspec.Struct, gc=False):
    name: str = ""
    UID: str = ""
    identityHash: str = ""


class _Bound(msgspec.Struct, gc=False):
    resource: str
    schema: _Schema
    group: str = ""


class _Condition(msgspec.Struct, gc=False):
    type: str = ""
    status: str = ""


class _Status(msgspec.Struct, gc=False):
    apiExportClusterName: str = ""
    boundResources: list[_Bound] | None = None
    appliedPermissionClaims: list[Obj] | None = None
    conditions: list[_Condition] | None = None


class _Export(msgspec.Struct, gc=False):
    name: str = ""
    path: str = ""


class _Reference(msgspec.Struct, gc=False):
    export: _Export | None = None


class _Spec(msgspec.Struct, gc=False):
    reference: _Reference | None = None


class _Metadata(msgspec.Struct, gc=False):
    creationTimestamp: str = ""
    deletionTimestamp: str | None = None


class _Binding(msgspec.Struct, gc=False):
    metadata: _Metadata
    spec: _Spec | None = None
    status: _Status | None = None


_decode = msgspec.json.Decoder(_Binding).decode


def binding_state(entry: Entry) -> BindingState:
    """A copy in a mailbox accepts no claims, because other tenants have copies there too."""
    read = _decode(entry.value)
    status = read.status or _Status()
    export = (read.spec.reference.export if read.spec and read.spec.reference else None) or _Export()
    bound = tuple(
        BoundResource(one.group, one.resource, one.schema.name, one.schema.UID, one.schema.identityHash)
        for one in status.boundResources or ()
    )
    return BindingState(
        ExportReference(export.path, export.name),
        ExportKey(status.apiExportClusterName, export.name) if status.apiExportClusterName else None,
        any(one.type == EXPORT_VALID and one.status == "True" for one in status.conditions or ()),
        bound,
        () if objects.is_copy(entry) else tuple(map(claim_of, status.appliedPermissionClaims or ())),
        read.metadata.deletionTimestamp is not None,
        read.metadata.creationTimestamp,
        any(one.type == UP_TO_DATE and one.status == "False" for one in status.conditions or ()),
    )


def identities_of(state: BindingState) -> set[str]:
    return {one.identity for one in state.bound}


# --- copies of schemas ----------------------------------------------------------------------------


def copy_key(identity: str, uid: str) -> str:
    return f"{COPIES}{identity}/{uid}"


def must_relist(before: BoundDefinition | None, after: BoundDefinition | None) -> bool:
    """Whether clients that watch a resource must list again.  A change of the `create` verb does not matter to them."""
    if before is None or after is None:
        return before is not after
    return before.identity != after.identity or not before.has_same_source(after)


class _Copy(NamedTuple):
    identity: str
    resource: str  #: `widgets.ex.test`


def _copy_of(identity: str, entry: Entry) -> _Copy:
    return _Copy(identity, resource_name(objects.decode(entry)["spec"]))


class BoundApis:
    """Follows the APIBindings in the store."""

    def __init__(self, store: Store, kinds: Kinds) -> None:
        self._store = store
        self._kinds = kinds
        self._builtin = frozenset((one.group, one.plural) for one in kinds.builtin.catalog)
        self._bindings: dict[str, dict[str, BindingState]] = {}  #: cluster → key of a binding → state
        self._exports: dict[ExportKey, dict[str, BindingState]] = {}  #: export → its bindings
        self._waiting: dict[str, set[str]] = {}  #: name of an export → bindings that wait for it
        #: group, plural, identity → last binding of the resource
        self._identified: dict[tuple[str, str, str], tuple[BoundResource, ExportKey]] = {}
        self._served: dict[str, tuple[BoundDefinition, ...]] = {}
        self._copies: dict[tuple[str, str], _Copy] = {}  #: identity, uid → resource of the schema
        self._uids: dict[_Copy, set[str]] = {}  #: resource of an export → uids of all its schemas
        self._compiled: WeakValueDictionary[tuple[str, str, Form, int], BoundDefinition] = WeakValueDictionary()
        self._shared: dict[object, object] = {}  #: equal values of many bindings, shared
        self._uses: Counter[str] = Counter()  #: identity → number of bindings
        self._deleted_bindings: dict[tuple[ExportKey, str], DeletedBinding] = {}
        self._listeners: list[Listener] = []

    def start(self) -> None:
        """Serve the bound resources, and follow changes."""
        self._store.subscribe(COPIES, self._on_copies)
        self._store.subscribe(BINDINGS, self._on_bindings)
        for entry in self._store.list(COPIES).entries:
            self._add_copy(entry)
        self._update((entry.key, entry) for entry in self._store.list(BINDINGS).entries)

    # --- queries ----------------------------------------------------------------------------------

    def in_cluster(self, cluster: str) -> Mapping[str, BindingState]:
        """The bindings of a cluster, by key."""
        return self._bindings.get(cluster, {})

    def of_export(self, export: ExportKey) -> Mapping[str, BindingState]:
        """The bindings of an export, by key."""
        return self._exports.get(export, {})

    def missing(self, name: str) -> Iterable[str]:
        """The keys of bindings that wait for an export of this name."""
        return tuple(self._waiting.get(name, ()))

    def all_keys(self) -> Iterator[str]:
        for bindings in self._bindings.values():
            yield from bindings

    def bound_to(self, export: ExportKey, cluster: str) -> Iterator[BindingState]:
        """The bindings of a cluster to an export."""
        return (state for state in self.in_cluster(cluster).values() if state.export == export)

    def is_bound(self, identity: str) -> bool:
        """Whether any workspace has bound a resource with this identity."""
        return identity in self._uses

    def deleted_binding(self, export: ExportKey, cluster: str) -> DeletedBinding | None:
        """A binding that the last commit deleted, other changes of which may not be published yet."""
        return self._deleted_bindings.get((export, cluster))

    def subscribe(self, listener: Listener) -> None:
        """Call a listener after each change."""
        self._listeners.append(listener)

    def identified(self, group: str, plural: str, identity: str, form: Form = "bound") -> BoundDefinition | None:
        """A resource by the identity of its export, if any workspace has bound it."""
        found = self._identified.get((group, plural, identity))
        return None if found is None else self.definition(*found, form)

    def definition(self, one: BoundResource, export: ExportKey | None, form: Form = "bound") -> BoundDefinition | None:
        """The definition with which a bound resource is served."""
        copy = self._copies.get((one.identity, one.uid))
        if copy is None:
            entry = self._exported(one, export)
            if entry is None:
                return None
            seen = form == "viewed"  # a view also shows resources that no workspace has bound
            copy = _copy_of(one.identity, entry) if seen else self._note_copy(one.identity, one.uid, entry)
        # with a single schema, no object was written under another one
        settled = 0 if self._uids.get(copy, set()) <= {one.uid} else NEVER
        key = (one.uid, stored_identity(export, one.identity), form, settled)
        found = self._compiled.get(key)
        if found is None:
            entry = self._store.get(copy_key(one.identity, one.uid)) or self._exported(one, export)
            if entry is None:
                return None
            found = self._compiled[key] = bound_definition(entry.value, key[1], settled, form)
        return found

    def _exported(self, one: BoundResource, export: ExportKey | None) -> Entry | None:
        """The exported schema, if there is no copy."""
        entry = None if export is None else self._store.get(schema_key(export.cluster, one.schema))
        is_that = entry is not None and objects.decode(entry)["metadata"]["uid"] == one.uid
        return entry if is_that else None

    def kind(self, target: Target) -> Kind | None:
        """The kind of `widgets:<identity>`, in a cluster that has bound it or in all clusters."""
        plural, _, identity = target.plural.partition(":")
        if target.cluster == objects.EVERY_CLUSTER:
            definition = self.identified(target.group, plural, identity)
            is_served = definition is not None and any(one.version == target.version for one in definition.resources)
            return definition.kind(target.version) if definition is not None and is_served else None
        bound = (one for state in self.in_cluster(target.cluster).values() for one in state.bound)
        if not any((one.group, one.resource, one.identity) == (target.group, plural, identity) for one in bound):
            return None
        return self._kinds.of(target.cluster).find(target.group, target.version, plural)

    # --- updates ----------------------------------------------------------------------------------

    def _on_copies(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if change.entry is not None:
                self._add_copy(change.entry)
            else:
                self._forget_copy(*change.key[len(COPIES) :].split("/"))

    def _add_copy(self, entry: Entry) -> None:
        identity, uid = entry.key[len(COPIES) :].split("/")
        self._note_copy(identity, uid, entry)

    def _note_copy(self, identity: str, uid: str, entry: Entry) -> _Copy:
        copy = self._copies[identity, uid] = _copy_of(identity, entry)
        self._uids.setdefault(copy, set()).add(uid)
        return copy

    def _forget_copy(self, identity: str, uid: str) -> None:
        copy = self._copies.pop((identity, uid))
        discard_from(self._uids, copy, uid)
        place = (*group_resource(copy.resource), identity)
        if place in self._identified and self._identified[place][0].uid == uid:
            del self._identified[place]

    def _on_bindings(self, changes: Sequence[Change]) -> None:
        before = [self._known(change.key) for change in changes]
        self._update((change.key, change.entry) for change in changes)
        self._deleted_bindings = {
            (state.export, cluster_in(change.key)): DeletedBinding(change.revision, state)
            for change, state in zip(changes, before, strict=True)
            if change.entry is None and state is not None and state.export is not None
        }
        for change, state in zip(changes, before, strict=True):
            for listener in self._listeners:
                listener(state, self._known(change.key), change.revision)

    def _known(self, key: str) -> BindingState | None:
        return self._bindings.get(cluster_in(key), {}).get(key)

    def _update(self, entries: Iterable[tuple[str, Entry | None]]) -> None:
        clusters: dict[str, None] = {}
        for key, entry in entries:
            clusters[cluster_in(key)] = None
            self._forget(key)
            if entry is not None:
                self._add(key, self._share(binding_state(entry)))
        for cluster in clusters:
            self._serve(cluster)

    def _share(self, state: BindingState) -> BindingState:
        """Share equal values, because thousands of bindings are alike."""
        shared = self._shared
        if len(shared) > 10_000:
            shared.clear()
        return BindingState._make(shared.setdefault((type(value), value), value) for value in state)

    def _add(self, key: str, state: BindingState) -> None:
        self._bindings.setdefault(cluster_in(key), {})[key] = state
        if state.export is not None:
            self._exports.setdefault(state.export, {})[key] = state
            for one in state.bound:
                self._identified[one.group, one.resource, one.identity] = (one, state.export)
        self._uses.update(identities_of(state))
        if not state.valid:
            self._waiting.setdefault(state.reference.name, set()).add(key)

    def _forget(self, key: str) -> None:
        cluster = cluster_in(key)
        state = self._bindings.get(cluster, {}).pop(key, None)
        if state is None:
            return
        if not self._bindings[cluster]:
            del self._bindings[cluster]
        if state.export is not None:
            found = self._exports[state.export]
            del found[key]
            if not found:
                del self._exports[state.export]
        for identity in identities_of(state):
            subtract_one(self._uses, identity)
        lost = self._waiting.get(state.reference.name, set())
        lost.discard(key)
        if not lost:
            self._waiting.pop(state.reference.name, None)

    def _serve(self, cluster: str) -> None:
        before = {(one.group, one.plural): one for one in self._served.get(cluster, ())}
        after = self._wanted(cluster)
        if before == after:
            return
        changed = [place for place in before.keys() | after.keys() if must_relist(before.get(place), after.get(place))]
        definitions = tuple(after[place] for place in sorted(after))
        if definitions:
            self._served[cluster] = definitions
        else:
            self._served.pop(cluster, None)
        self._kinds.bind(cluster, definitions, [(cluster, *place) for place in changed])

    def _wanted(self, cluster: str) -> dict[tuple[str, str], BoundDefinition]:
        """If two bindings have the same resource, the older one serves it."""
        found: dict[tuple[str, str], BoundDefinition] = {}
        bindings = sorted(self.in_cluster(cluster).items(), key=lambda item: (item[1].created, item[0]))
        for _, state in bindings:
            for one in state.bound:
                if one.group_resource in self._builtin or one.group_resource in found:
                    continue
                definition = self.definition(one, state.export, "ending" if state.ends else "bound")
                if definition is not None:
                    found[one.group_resource] = definition
        return found
