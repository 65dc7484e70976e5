"""Views of exports: the objects of an export's kinds and of its accepted claims in all bound workspaces, and the
bindings.

    /services/apiexport/<cluster>/<export>/clusters/<cluster or *>/…

A kind is in a view if the export exports or claims it.  An object is in a view if its workspace has bound the export,
or has accepted the claim.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from farflung.apis.kcp.names import APIS_GROUP
from farflung.apis.resource import Resource
from farflung.hub.catalog import objects
from farflung.hub.catalog.objects import cluster_in, name_in
from farflung.hub.catalog.served import ClusterKinds, Definitions, Kinds
from farflung.hub.tenancy.api_bindings import Claim, ExportOffer, claim_of, permission_claims
from farflung.hub.tenancy.api_exports import EXPORTS, ExportKey, exists, schema_names
from farflung.hub.tenancy.binding_strategy import Binder
from farflung.hub.tenancy.bound_apis import BindingState, BoundApis, BoundResource, binding_state, stored_identity
from farflung.hub.tenancy.bound_definitions import BoundDefinition, view_subresources
from farflung.machinery.errors import not_found
from farflung.store.base import Change, Entry, Revision, Store

BINDINGS: Final = (APIS_GROUP, "apibindings")
READ_VERBS: Final = ("get", "list", "watch")

Sees = Callable[[str], bool]  #: whether the object at a key is visible
Shows = Callable[[Entry], bool]  #: whether a state of an object is visible


class _Made(NamedTuple):
    definitions: Definitions
    claims: tuple[Claim, ...]
    served: ClusterKinds


def export_of(view: str) -> ExportKey:
    """The name of a view is `<cluster>/<export>`."""
    cluster, _, name = view.partition("/")
    return ExportKey(cluster, name)


class ExportViews:
    def __init__(self, store: Store, kinds: Kinds, apis: BoundApis, binder: Binder) -> None:
        self._kinds = kinds
        self._apis = apis
        self._binder = binder
        self._builtin = frozenset((one.group, one.plural) for one in kinds.builtin.catalog)
        self._made: dict[str, _Made] = {}
        self._visibility = ViewVisibility(store, apis)
        self._visibility.subscribe(self._forget)

    # --- kinds ------------------------------------------------------------------------------------

    def served(self, view: str) -> ClusterKinds:
        """The kinds of a view.  Raises 404 if the export does not exist."""
        offer = self._offer(view)
        wanted = tuple(claim_of(claim) for claim in offer.claims)
        definitions: Definitions = (*self._exported(offer), *self._claimed_elsewhere(offer, wanted))
        made = self._made.get(view)
        if made is None or (made.definitions, made.claims) != (definitions, wanted):
            served = ClusterKinds(self._claimed_here(wanted), definitions, self._kinds.builtin)
            made = self._made[view] = _Made(definitions, wanted, served)
        return made.served

    def _forget(self, view: str, kinds: object) -> None:
        """Drop the kinds of a deleted or changed export."""
        if kinds is None:
            self._made.pop(view, None)

    def _offer(self, view: str) -> ExportOffer:
        export = export_of(view)
        offer = self._binder.offered(export)
        if offer is None:
            raise not_found(APIS_GROUP, "apiexports", export.name)
        return offer

    def _exported(self, offer: ExportOffer) -> Iterator[BoundDefinition]:
        for one in offer.resources or ():
            names = one.names
            if (names.group, names.plural) in self._builtin:
                continue
            bound = BoundResource(names.group, names.plural, one.schema, one.uid, offer.identity)
            definition = self._apis.definition(bound, ExportKey(offer.cluster, offer.name), "viewed")
            if definition is not None:
                yield definition

    def _claimed_elsewhere(self, offer: ExportOffer, wanted: tuple[Claim, ...]) -> Iterator[BoundDefinition]:
        """Claimed kinds of other exports."""
        own = {(one.names.group, one.names.plural) for one in offer.resources or ()}
        for claim in wanted:
            if claim.identity and (claim.group, claim.resource) not in own:
                definition = self._apis.identified(claim.group, claim.resource, claim.identity, "viewed")
                if definition is not None:
                    yield definition

    def _claimed_here(self, wanted: tuple[Claim, ...]) -> Iterator[Resource]:
        """Claimed built-in kinds.  Custom kinds of a workspace cannot be claimed."""
        claimed = {
            (claim.group, claim.resource) for claim in wanted if not claim.identity and claim.group != APIS_GROUP
        }
        for one in self._kinds.builtin.catalog:
            if (one.group, one.plural) == BINDINGS:
                yield replace(one, verbs=READ_VERBS, subresources=())
            elif (one.group, one.plural) in claimed:
                yield replace(one, subresources=view_subresources(one))

    # --- objects ----------------------------------------------------------------------------------

    def reaches(self, view: str, resource: Resource, cluster: str) -> bool:
        """Whether a cluster serves a kind in a view."""
        export = export_of(view)
        bound = tuple(self._apis.bound_to(export, cluster))
        if (resource.group, resource.plural) == BINDINGS:
            return bool(bound)
        return any(
            _has(state, resource) or any(True for _ in self._accepted(view, resource, cluster, state))
            for state in bound
        )

    def sees(self, view: str, resource: Resource) -> Sees:
        """A function that tells whether an object of a kind is currently visible in a view."""
        export = export_of(view)
        if (resource.group, resource.plural) == BINDINGS:
            return lambda key: key in self._apis.of_export(export)

        def seen(key: str) -> bool:
            bound = self._apis.bound_to(export, cluster_in(key))
            return any(self._is_seen(view, resource, key, state) for state in bound)

        return seen

    def _is_seen(self, view: str, resource: Resource, key: str, state: BindingState) -> bool:
        """Whether a binding of its cluster makes an object visible."""
        if _has(state, resource):
            return True
        namespace, name = name_in(key)
        accepted = self._accepted(view, resource, cluster_in(key), state)
        return any(claim.admits(namespace, name) for claim in accepted)

    def shows(self, view: str, resource: Resource) -> Shows:
        """A function that tells whether a state of an object is visible.  A binding is visible while it references the
        export.  Other objects are visible in all their states."""
        export = export_of(view)
        if (resource.group, resource.plural) == BINDINGS:
            return lambda entry: binding_state(entry).export == export
        seen = self.sees(view, resource)
        return lambda entry: seen(entry.key)

    def showed(self, view: str, resource: Resource) -> Shows:
        """As `shows`, but also for objects whose binding was deleted in the same commit, so that watches get their
        DELETED events."""
        shows, export = self.shows(view, resource), export_of(view)

        def showed(entry: Entry) -> bool:
            if shows(entry):
                return True
            deleted = self._apis.deleted_binding(export, cluster_in(entry.key))
            return (
                deleted is not None
                and entry.revision < deleted.revision
                and self._is_seen(view, resource, entry.key, deleted.state)
            )

        return showed

    def steady_since(self, view: str, resource: Resource) -> Revision:
        """The revision since which visibility changed only with writes of the objects themselves."""
        is_binding = (resource.group, resource.plural) == BINDINGS
        return 0 if is_binding else self._visibility.steady_since(export_of(view))

    def subscribe(self, listener: Listener) -> None:
        """Call a listener when visibility in a view changes without a write."""
        self._visibility.subscribe(listener)

    def admits(self, view: str, resource: Resource, cluster: str, namespace: str, name: str) -> bool:
        """Whether an object of one cluster may be read or written through a view."""
        key = objects.key(resource, cluster, namespace, name)
        return cluster != objects.EVERY_CLUSTER and self.sees(view, resource)(key)

    def _accepted(self, view: str, resource: Resource, cluster: str, state: BindingState) -> Iterator[Claim]:
        """The claims for a kind that a workspace has accepted and that the export still makes."""
        offer = self._binder.offered(export_of(view))
        made = {claim_of(claim) for claim in offer.claims} if offer is not None else set()
        for claim in state.applied:
            if claim not in made or (claim.group, claim.resource) != (resource.group, resource.plural):
                continue
            if not claim.identity:
                if not resource.identity and claim.group != APIS_GROUP and self._is_builtin(resource):
                    yield claim
            elif any(_is_claimed(claim, one) for one in self._apis.in_cluster(cluster).values()):
                yield claim

    def _is_builtin(self, resource: Resource) -> bool:
        return self._kinds.builtin.catalog.find(resource.group, resource.version, resource.plural) is not None


def _has(state: BindingState, resource: Resource) -> bool:
    """Whether a binding has bound the kind of a view."""
    return any(
        one.group_resource == (resource.group, resource.plural)
        and stored_identity(state.export, one.identity) == resource.identity
        for one in state.bound
    )


def _is_claimed(claim: Claim, state: BindingState) -> bool:
    return any(
        one.group_resource == (claim.group, claim.resource) and one.identity == claim.identity for one in state.bound
    )


GroupResource = tuple[str, str]  #: group and plural
#: called with a view and the affected kinds; None: all kinds
Listener = Callable[[str, Collection[GroupResource] | None], None]


class ViewContent(NamedTuple):
    """The fields of an export on which its view depends."""

    schemas: tuple[str, ...]
    claims: tuple[Claim, ...]
    identity: str


def view_content(entry: Entry | None) -> ViewContent | None:
    if entry is None:
        return None
    export = objects.decode(entry)
    identity = (export.get("status") or {}).get("identityHash", "")
    return ViewContent(tuple(schema_names(export)), tuple(map(claim_of, permission_claims(export))), identity)


class ViewVisibility:
    def __init__(self, store: Store, apis: BoundApis) -> None:
        self._began = store.revision
        self._store = store
        self._changed: dict[ExportKey, Revision] = {}  #: of existing exports
        self._listeners: list[Listener] = []
        apis.subscribe(self._on_binding)
        store.subscribe(EXPORTS, self._on_exports)

    def subscribe(self, listener: Listener) -> None:
        self._listeners.append(listener)

    def steady_since(self, export: ExportKey) -> Revision:
        """The revision since which visibility is unchanged.  Older history would lack changes of visibility."""
        return self._changed.get(export, self._began)

    def _on_binding(self, before: BindingState | None, after: BindingState | None, revision: Revision) -> None:
        for export in {state.export for state in (before, after) if state is not None and state.export is not None}:
            old, new = _applied(before, export), _applied(after, export)
            if (after is None or old != new) and exists(self._store, *export):
                self._changed[export] = revision
            if old != new:
                self._notify(export, {(claim.group, claim.resource) for claim in old ^ new})

    def _on_exports(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if change.previous is not None and view_content(change.previous) == view_content(change.entry):
                continue
            export = ExportKey(cluster_in(change.key), name_in(change.key)[1])
            if change.entry is not None:
                self._changed[export] = change.revision
            else:
                self._changed.pop(export, None)  # a new export of that name starts again
            if change.previous is not None:
                self._notify(export, None)

    def _notify(self, export: ExportKey, kinds: Collection[GroupResource] | None) -> None:
        for listener in self._listeners:
            listener(f"{export.cluster}/{export.name}", kinds)


def _applied(state: BindingState | None, export: ExportKey) -> frozenset[Claim]:
    return frozenset(state.applied) if state is not None and state.export == export else frozenset()
