"""What each workspace has bound, kept in step with its APIBindings.

A commit is heard here before its writer is answered, so whoever created a binding can use its API at once.  The schema
of what is bound is kept beside the bindings, by identity and uid: what a provider deletes stays served where it is
bound.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple
from weakref import WeakValueDictionary

import msgspec

from farflung.apis.kcp import kinds as kcp
from farflung.hub.catalog import objects
from farflung.hub.catalog.kinds import NEVER, Kind
from farflung.hub.catalog.objects import cluster_in
from farflung.hub.catalog.served import Kinds
from farflung.hub.request.target import Target
from farflung.hub.tenancy.api_bindings import BINDINGS, EXPORT_VALID, UP_TO_DATE, Claim, claim_of
from farflung.hub.tenancy.api_exports import ExportKey, ExportReference, schema_key
from farflung.hub.tenancy.bound_definitions import BoundDefinition, Form
from farflung.hub.tenancy.paths import ROOT
from farflung.hub.tenancy.resource_schemas import group_resource, resource_name
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
    def place(self) -> tuple[str, str]:
        return self.group, self.resource


class BindingState(NamedTuple):
    """What others must know of a binding."""

    reference: ExportReference
    export: ExportKey | None  #: None until it was found once
    valid: bool  #: whether it is there now
    bound: tuple[BoundResource, ...]
    applied: tuple[Claim, ...]
    ends: bool
    created: str
    clashes: bool  #: whether others have names that it wants


class DeletedBinding(NamedTuple):
    """A binding that is gone."""

    revision: Revision  #: since when
    facts: BindingState


Listener = Callable[
    [BindingState | None, BindingState | None, Revision], None
]  #: what a binding said, what it says, since when


def stored_identity(export: ExportKey | None, identity: str) -> str:
    """Under which objects are stored: what root exports by itself is at home in every workspace."""
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
    read = _decode(entry.value)
    status = read.status or _Status()
    said = (read.spec.reference.export if read.spec and read.spec.reference else None) or _Export()
    bound = tuple(
        BoundResource(one.group, one.resource, one.schema.name, one.schema.UID, one.schema.identityHash)
        for one in status.boundResources or ()
    )
    return BindingState(
        ExportReference(said.path, said.name),
        ExportKey(status.apiExportClusterName, said.name) if status.apiExportClusterName else None,
        any(one.type == EXPORT_VALID and one.status == "True" for one in status.conditions or ()),
        bound,
        tuple(claim_of(claim) for claim in status.appliedPermissionClaims or ()),
        read.metadata.deletionTimestamp is not None,
        read.metadata.creationTimestamp,
        any(one.type == UP_TO_DATE and one.status == "False" for one in status.conditions or ()),
    )


def identities_of(facts: BindingState) -> set[str]:
    return {one.identity for one in facts.bound}


# --- the schemas of what is bound -------------------------------------------------------------------


def copy_key(identity: str, uid: str) -> str:
    return f"{COPIES}{identity}/{uid}"


def must_relist(before: BoundDefinition | None, after: BoundDefinition | None) -> bool:
    """Whether whoever listens to a resource must listen anew: that no more can be created does not matter to them."""
    if before is None or after is None:
        return before is not after
    return before.identity != after.identity or not before.says_the_same(after)


class _Copy(NamedTuple):
    identity: str
    resource: str  #: `widgets.ex.test`


def _copy_of(identity: str, entry: Entry) -> _Copy:
    return _Copy(identity, resource_name(objects.decode(entry)["spec"]))


class BoundApis:
    """Follows APIBindings.  Nothing here is told that the store does not say."""

    def __init__(self, store: Store, kinds: Kinds) -> None:
        self._store = store
        self._kinds = kinds
        self._builtin = frozenset((one.group, one.plural) for one in kinds.builtin.catalog)
        self._bindings: dict[str, dict[str, BindingState]] = {}  #: cluster → key of a binding → what it says
        self._exports: dict[ExportKey, dict[str, BindingState]] = {}  #: export → the bindings that found it
        self._lost: dict[str, set[str]] = {}  #: name of an export → the bindings that miss it
        #: group, plural, identity → how it was bound last
        self._identified: dict[tuple[str, str, str], tuple[BoundResource, ExportKey]] = {}
        self._served: dict[str, tuple[BoundDefinition, ...]] = {}
        self._copies: dict[tuple[str, str], _Copy] = {}  #: identity, uid → of which resource the schema is
        self._uids: dict[_Copy, set[str]] = {}  #: a resource of an export → its schemas, of all times
        self._compiled: WeakValueDictionary[tuple[str, str, Form, int], BoundDefinition] = WeakValueDictionary()
        self._shared: dict[object, object] = {}  #: equal values that many bindings have, once
        self._uses: Counter[str] = Counter()  #: identity → how many bindings have bound it
        self._departed: dict[tuple[ExportKey, str], DeletedBinding] = {}
        self._listeners: list[Listener] = []

    def start(self) -> None:
        """Serve what is bound, and follow from now on."""
        self._store.subscribe(COPIES, self._hear_copies)
        self._store.subscribe(BINDINGS, self._hear)
        for entry in self._store.list(COPIES).entries:
            self._follow_copy(entry)
        self._follow((entry.key, entry) for entry in self._store.list(BINDINGS).entries)

    # --- what is known ----------------------------------------------------------------------------

    def in_cluster(self, cluster: str) -> Mapping[str, BindingState]:
        """The bindings of a cluster, by key."""
        return self._bindings.get(cluster, {})

    def of_export(self, export: ExportKey) -> Mapping[str, BindingState]:
        """The bindings that found an export once, by key."""
        return self._exports.get(export, {})

    def missing(self, name: str) -> Iterable[str]:
        """The keys of bindings that wait for an export of a name."""
        return tuple(self._lost.get(name, ()))

    def all_keys(self) -> Iterator[str]:
        for bindings in self._bindings.values():
            yield from bindings

    def bound_to(self, export: ExportKey, cluster: str) -> Iterator[BindingState]:
        """The bindings of a cluster that found an export."""
        return (facts for facts in self.in_cluster(cluster).values() if facts.export == export)

    def is_bound(self, identity: str) -> bool:
        """Whether any workspace has bound what has an identity."""
        return identity in self._uses

    def departed(self, export: ExportKey, cluster: str) -> DeletedBinding | None:
        """A binding that went with the last batch of changes, parts of which others have yet to hear of."""
        return self._departed.get((export, cluster))

    def subscribe(self, listener: Listener) -> None:
        """Hear of changes after they are known here."""
        self._listeners.append(listener)

    def identified(self, group: str, plural: str, identity: str, form: Form = "bound") -> BoundDefinition | None:
        """A resource by the identity of the export that it is from, if it was bound anywhere."""
        found = self._identified.get((group, plural, identity))
        return None if found is None else self.definition(*found, form)

    def definition(self, one: BoundResource, export: ExportKey | None, form: Form = "bound") -> BoundDefinition | None:
        """What is served of a resource that is bound."""
        copy = self._copies.get((one.identity, one.uid))
        if copy is None:
            entry = self._exported(one, export)
            if entry is None:
                return None
            seen = form == "viewed"  # which may be of what nobody has bound
            copy = _copy_of(one.identity, entry) if seen else self._note_copy(one.identity, one.uid, entry)
        # with one schema of all times, there is nothing that was written under another
        settled = 0 if self._uids.get(copy, set()) <= {one.uid} else NEVER
        key = (one.uid, stored_identity(export, one.identity), form, settled)
        found = self._compiled.get(key)
        if found is None:
            entry = self._store.get(copy_key(one.identity, one.uid)) or self._exported(one, export)
            if entry is None:
                return None
            found = self._compiled[key] = BoundDefinition(objects.decode(entry), key[1], settled, form)
        return found

    def _exported(self, one: BoundResource, export: ExportKey | None) -> Entry | None:
        """The schema itself, while there is no copy of it."""
        entry = None if export is None else self._store.get(schema_key(export.cluster, one.schema))
        is_that = entry is not None and objects.decode(entry)["metadata"]["uid"] == one.uid
        return entry if is_that else None

    def kind(self, target: Target) -> Kind | None:
        """The kind of `widgets:<identity>`, in a cluster that has bound it or in all of them."""
        plural, _, identity = target.plural.partition(":")
        if target.cluster == objects.EVERY_CLUSTER:
            definition = self.identified(target.group, plural, identity)
            is_served = definition is not None and any(one.version == target.version for one in definition.resources)
            return definition.kind(target.version) if definition is not None and is_served else None
        bound = (one for facts in self.in_cluster(target.cluster).values() for one in facts.bound)
        if not any((one.group, one.resource, one.identity) == (target.group, plural, identity) for one in bound):
            return None
        return self._kinds.of(target.cluster).find(target.group, target.version, plural)

    # --- following --------------------------------------------------------------------------------

    def _hear_copies(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if change.entry is not None:
                self._follow_copy(change.entry)
            else:
                self._forget_copy(*change.key[len(COPIES) :].split("/"))

    def _follow_copy(self, entry: Entry) -> None:
        identity, uid = entry.key[len(COPIES) :].split("/")
        self._note_copy(identity, uid, entry)

    def _note_copy(self, identity: str, uid: str, entry: Entry) -> _Copy:
        copy = self._copies[identity, uid] = _copy_of(identity, entry)
        self._uids.setdefault(copy, set()).add(uid)
        return copy

    def _forget_copy(self, identity: str, uid: str) -> None:
        copy = self._copies.pop((identity, uid))
        self._uids[copy].discard(uid)
        if not self._uids[copy]:
            del self._uids[copy]
        place = (*group_resource(copy.resource), identity)
        if place in self._identified and self._identified[place][0].uid == uid:
            del self._identified[place]

    def _hear(self, changes: Sequence[Change]) -> None:
        before = [self._known(change.key) for change in changes]
        self._follow((change.key, change.entry) for change in changes)
        self._departed = {
            (facts.export, cluster_in(change.key)): DeletedBinding(change.revision, facts)
            for change, facts in zip(changes, before, strict=True)
            if change.entry is None and facts is not None and facts.export is not None
        }
        for change, facts in zip(changes, before, strict=True):
            for listener in self._listeners:
                listener(facts, self._known(change.key), change.revision)

    def _known(self, key: str) -> BindingState | None:
        return self._bindings.get(cluster_in(key), {}).get(key)

    def _follow(self, entries: Iterable[tuple[str, Entry | None]]) -> None:
        clusters: dict[str, None] = {}
        for key, entry in entries:
            clusters[cluster_in(key)] = None
            self._forget(key)
            if entry is not None:
                self._note(key, self._once(binding_state(entry)))
        for cluster in clusters:
            self._serve(cluster)

    def _once(self, facts: BindingState) -> BindingState:
        """Most bindings say what thousands of others say too."""
        shared = self._shared
        if len(shared) > 10_000:
            shared.clear()
        return BindingState._make(shared.setdefault((type(value), value), value) for value in facts)

    def _note(self, key: str, facts: BindingState) -> None:
        self._bindings.setdefault(cluster_in(key), {})[key] = facts
        if facts.export is not None:
            self._exports.setdefault(facts.export, {})[key] = facts
            for one in facts.bound:
                self._identified[one.group, one.resource, one.identity] = (one, facts.export)
        self._uses.update(identities_of(facts))
        if not facts.valid:
            self._lost.setdefault(facts.reference.name, set()).add(key)

    def _forget(self, key: str) -> None:
        cluster = cluster_in(key)
        facts = self._bindings.get(cluster, {}).pop(key, None)
        if facts is None:
            return
        if not self._bindings[cluster]:
            del self._bindings[cluster]
        if facts.export is not None:
            found = self._exports[facts.export]
            del found[key]
            if not found:
                del self._exports[facts.export]
        for identity in identities_of(facts):
            self._uses[identity] -= 1
            if not self._uses[identity]:
                del self._uses[identity]
        lost = self._lost.get(facts.reference.name, set())
        lost.discard(key)
        if not lost:
            self._lost.pop(facts.reference.name, None)

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
        """Of two bindings of the same resource, the older one has it."""
        found: dict[tuple[str, str], BoundDefinition] = {}
        bindings = sorted(self.in_cluster(cluster).items(), key=lambda item: (item[1].created, item[0]))
        for _, facts in bindings:
            for one in facts.bound:
                if one.place in self._builtin or one.place in found:
                    continue
                definition = self.definition(one, facts.export, "ending" if facts.ends else "bound")
                if definition is not None:
                    found[one.place] = definition
        return found
