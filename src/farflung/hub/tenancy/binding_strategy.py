"""Bindings as they are written: the export that each needs, and whether it may have its names.

Whoever creates a binding gets it back bound.  Copies of the schemas come first, because nobody misses them if the
binding never comes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from farflung.apis.kcp import kinds as kcp
from farflung.apis.kcp.names import API_BINDING_FINALIZER, APIS_GROUP, EXPORT_LABEL
from farflung.hub.catalog import objects
from farflung.hub.catalog.served import Kinds
from farflung.hub.request.attributes import Attributes, Authorization
from farflung.hub.request.user import User
from farflung.hub.tenancy import api_bindings as bindings
from farflung.hub.tenancy import api_exports as exports
from farflung.hub.tenancy.api_bindings import BINDINGS, ExportedResource, ExportOffer, ResourceNames, TakenNames
from farflung.hub.tenancy.api_exports import ExportKey, ExportReference, schema_key
from farflung.hub.tenancy.bound_apis import BindingState, BoundApis, copy_key
from farflung.hub.tenancy.direct_writes import EncodedObject, encode_new, managed_fields, minimal_resource, put_missing
from farflung.hub.tenancy.hashes import default_binding_name
from farflung.hub.tenancy.paths import ROOT, LogicalClusters
from farflung.hub.tenancy.resource_schemas import stored_versions
from farflung.hub.tenancy.workspace_authorizer import is_operator, is_privileged
from farflung.machinery.errors import Obj, forbidden
from farflung.store.base import Change, Entry, Store

DEFINITIONS: Final = "/apiextensions.k8s.io/customresourcedefinitions/"
API_BINDING: Final = minimal_resource(APIS_GROUP, "v1alpha1", "apibindings", "APIBinding")
API_VERSION: Final = f"{APIS_GROUP}/v1alpha1"
MOULDS: Final = 1_000  #: of bindings that workspaces have by their types; more than that are made anew


class Binder:
    def __init__(
        self,
        store: Store,
        kinds: Kinds,
        clusters: LogicalClusters,
        apis: BoundApis,
        new_uid: Callable[[], str],
    ) -> None:
        self._store = store
        self._clusters = clusters
        self._apis = apis
        self._new_uid = new_uid
        self._offers: dict[
            ExportKey, tuple[tuple[Entry, ...], ExportOffer]
        ] = {}  #: what was found where, while that is there
        #: path and name of an export → what it offered and when, and the binding that was made of that
        self._moulds: dict[tuple[str, str], tuple[ExportOffer, str, Obj]] = {}
        self._builtin = [bindings.taken_by_hub(names) for names in _names_of_builtin(kinds)]
        store.subscribe(exports.EXPORTS, self._forget)

    def _forget(self, changes: Sequence[Change]) -> None:
        """What exports offered that are no more."""
        for change in changes:
            if change.entry is None:
                self._offers.pop(ExportKey(objects.cluster_in(change.key), objects.name_in(change.key)[1]), None)

    # --- who may bind -----------------------------------------------------------------------------

    def check_may_bind(
        self,
        cluster: str,
        user: User,
        authorizer: Authorization,
        name: str,
        reference: ExportReference,
        verb: str,
        what: str,
    ) -> None:
        """Raises 403, and does not tell whether there is such an export.  One of the own workspace or of root may come
        later than its bindings; what root exports by itself is for everybody."""
        export = self._bindable(cluster, user, authorizer, reference)
        if export is not None:
            may_come_later = reference.path in ("", ROOT)
            if may_come_later or exports.exists(self._store, *export):
                return
        plural = "apibindings" if what == "APIBinding" else "apiexportendpointslices"
        full = f"{reference.path}:{reference.name}" if reference.path else reference.name
        raise forbidden(APIS_GROUP, plural, name, f"unable to {verb} {what}: no permission to bind to export {full}")

    def may_hand_on(self, cluster: str, user: User, authorizer: Authorization, reference: ExportReference) -> bool:
        """Whether somebody may let others bind an export, by a type of workspaces that binds it: who may bind it, be it
        there or not."""
        if is_operator(user) or is_privileged(user):
            return True
        return self._bindable(cluster, user, authorizer, reference) is not None

    def _bindable(
        self, cluster: str, user: User, authorizer: Authorization, reference: ExportReference
    ) -> ExportKey | None:
        home = self._home(cluster, reference)
        export = None if home is None else ExportKey(home, reference.name)
        asked = Attributes("bind", APIS_GROUP, "apiexports", name=reference.name)
        if export is not None and (is_for_all(export) or authorizer.decide(export.cluster, user, asked).allowed):
            return export
        return None

    def _home(self, cluster: str, reference: ExportReference) -> str | None:
        return self._clusters.resolve(reference.path) if reference.path else cluster

    # --- bindings ---------------------------------------------------------------------------------

    def admit_binding(self, cluster: str, binding: Obj) -> None:
        """A new or changed binding, before it is validated: what no client decides."""
        metadata = binding["metadata"]
        reference = bindings.binding_reference(binding)
        if reference is not None:
            home = self._home(cluster, reference) or reference.path
            labels = metadata.get("labels") or {}
            metadata["labels"] = {**labels, EXPORT_LABEL: bindings.label_of(home, reference.name)}
        finalizers = metadata.get("finalizers") or []
        if API_BINDING_FINALIZER not in finalizers and "deletionTimestamp" not in metadata:
            metadata["finalizers"] = [*finalizers, API_BINDING_FINALIZER]
        bindings.omit_core_group(binding)

    async def finish_binding(self, cluster: str, binding: Obj, now: str) -> Obj:
        """A valid binding as it is to be written: bound, or with the reason why not."""
        offer = self.offer(cluster, binding)
        if offer is not None and offer.resources:
            await self._keep_schemas(offer)
        return self.bound_binding(cluster, binding, offer, now)

    async def _keep_schemas(self, offer: ExportOffer) -> None:
        missing = [one for one in offer.resources or () if self._store.get(copy_key(offer.identity, one.uid)) is None]
        if missing and offer.identity:
            await put_missing(self._store, self._copies(offer, missing))

    def _copies(self, offer: ExportOffer, resources: Iterable[ExportedResource]) -> Iterator[EncodedObject]:
        for one in resources:
            entry = self._store.get(schema_key(offer.cluster, one.schema))
            if entry is not None:
                yield copy_key(offer.identity, one.uid), entry.value

    def bound_binding(self, cluster: str, binding: Obj, offer: ExportOffer | None, now: str) -> Obj:
        reference = bindings.binding_reference(binding) or ExportReference("", "")
        missing = f"{reference.path or cluster}|{reference.name}"
        clash = ""
        if offer is not None and offer.resources and offer.identity:
            key = f"{BINDINGS}{cluster}/{binding['metadata']['name']}"
            wanted = [one.names for one in offer.resources]
            clash = bindings.name_conflict(wanted, self._taken(cluster, key, binding, {one.group for one in wanted}))
        return bindings.bound_binding(binding, offer, missing, clash, now)

    def offer(self, cluster: str, binding: Obj) -> ExportOffer | None:
        """What a binding's export offers; None if there is no such export.  Once it was found, it is that one, whatever
        comes to its path."""
        reference = bindings.binding_reference(binding)
        if reference is None:
            return None
        known = (binding.get("status") or {}).get("apiExportClusterName")
        home = known or self._home(cluster, reference)
        return None if home is None else self.offered(ExportKey(home, reference.name))

    def offered(self, export: ExportKey) -> ExportOffer | None:
        """What an export offers, from memory as long as the export and its schemas are what they were."""
        found, offer = self._offers.get(export, ((), None))
        if offer is not None and all(self._store.get(entry.key) is entry for entry in found):
            return offer
        entry = exports.entry_of(self._store, *export)
        if entry is None:
            return None
        described = objects.decode(entry)
        schemas = [self._schema(export.cluster, name) for name in exports.schema_names(described)]
        there = tuple(schema for schema in schemas if schema is not None)
        identity = (described.get("status") or {}).get("identityHash", "")
        extras = exports.extras(described["metadata"].get("annotations") or {})
        resources = None if len(there) < len(schemas) else _resources(there)
        offer = ExportOffer(*export, identity, resources, bindings.permission_claims(described), extras)
        if resources is not None:
            self._offers[export] = ((entry, *there), offer)
        return offer

    def _schema(self, cluster: str, name: str) -> Entry | None:
        return self._store.get(schema_key(cluster, name)) if name and "/" not in name else None

    # --- names ------------------------------------------------------------------------------------

    def _taken(self, cluster: str, own: str, binding: Obj, groups: set[str]) -> Iterator[TakenNames]:
        """The names of some groups that a binding cannot have."""
        yield from (one for one in self._builtin if one.names.group in groups)
        created = (binding["metadata"].get("creationTimestamp", ""), own)
        has = {(one["group"], one["resource"]) for one in (binding.get("status") or {}).get("boundResources") or ()}
        for key, facts in self._apis.in_cluster(cluster).items():
            if key != own:
                yield from self._taken_by(cluster, key, facts, groups, has if created < (facts.created, key) else set())
        for entry in self._store.list(f"{DEFINITIONS}{cluster}/").entries:
            yield from _taken_by_definition(cluster, entry, groups)

    def _taken_by(
        self, cluster: str, key: str, facts: BindingState, groups: set[str], has: set[tuple[str, str]]
    ) -> Iterator[TakenNames]:
        """`has`: what a binding that is older has already, whatever this one says."""
        for one in facts.bound:
            if one.group not in groups or one.place in has:
                continue
            definition = self._apis.definition(one, facts.export)
            if definition is not None:
                names = bindings.names_of(one.group, definition.named["status"]["acceptedNames"])
                path = facts.reference.path or self._clusters.path_of(cluster)
                yield bindings.taken_by_binding(names, objects.name_in(key)[1], path, facts.reference.name)

    # --- default bindings -------------------------------------------------------------------------

    def bind(self, cluster: str, wanted: Sequence[ExportReference], now: str) -> list[EncodedObject]:
        """APIBindings of a new workspace, as they are to be written.  Copies of schemas that nobody bound before are
        made by housekeeping, or by `keep_offers`."""
        make = self._moulded if self._is_empty(cluster) else self.binding
        return [
            make(cluster, default_binding_name(cluster, one.path, one.name), one.path, one.name, now) for one in wanted
        ]

    def _is_empty(self, cluster: str) -> bool:
        """Whether all names are free there, but those that every workspace has."""
        return not self._apis.in_cluster(cluster) and not self._store.list(f"{DEFINITIONS}{cluster}/", limit=1).entries

    def _moulded(self, cluster: str, name: str, path: str, export: str, now: str) -> EncodedObject:
        """A binding in an empty cluster: in all of them it is the same, but for its name."""
        home = self._clusters.resolve(path) if path else None
        offer = None if home is None else self.offered(ExportKey(home, export))
        if offer is None:
            return self.binding(cluster, name, path, export, now)
        made_of, made, mould = self._moulds.get((path, export), (None, "", {}))
        if made_of is not offer or made != now:
            mould = self._new(cluster, name, path, export, now)
            mould["metadata"]["managedFields"] = [managed_fields(API_BINDING, mould, now)]
            if len(self._moulds) >= MOULDS:
                self._moulds.clear()
            self._moulds[path, export] = (offer, now, mould)
        metadata = {**mould["metadata"], "name": name, "annotations": dict(mould["metadata"].get("annotations") or {})}
        return encode_new(API_BINDING, cluster, {**mould, "metadata": metadata}, uid=self._new_uid(), now=now)

    def binding(self, cluster: str, name: str, path: str, export: str, now: str) -> EncodedObject:
        """One APIBinding as it is to be written, bound if its export's schemas are known."""
        made = self._new(cluster, name, path, export, now)
        return encode_new(API_BINDING, cluster, made, uid=self._new_uid(), now=now)

    def _new(self, cluster: str, name: str, path: str, export: str, now: str) -> Obj:
        metadata: Obj = {"name": name, "generation": 1, "creationTimestamp": now}
        reference = {"export": {"name": export, "path": path}}
        obj: Obj = {
            "apiVersion": API_VERSION,
            "kind": "APIBinding",
            "metadata": metadata,
            "spec": {"reference": reference},
        }
        self.admit_binding(cluster, obj)
        return self.bound_binding(cluster, obj, self.offer(cluster, obj), now)

    async def keep_offers(self, wanted: Iterable[ExportReference]) -> None:
        """Before their first bindings: keep the schemas of exports."""
        for one in wanted:
            home = self._clusters.resolve(one.path)
            offer = None if home is None else self.offered(ExportKey(home, one.name))
            if offer is not None:
                await self._keep_schemas(offer)


def is_for_all(export: ExportKey) -> bool:
    """What root exports by itself."""
    return export.cluster == ROOT and export.name in kcp.EXPORTS


def _resources(schemas: Sequence[Entry]) -> tuple[ExportedResource, ...] | None:
    """None if one resource is there twice."""
    found: dict[tuple[str, str], ExportedResource] = {}
    for entry in schemas:
        schema = objects.decode(entry)
        names = bindings.names_of(schema["spec"].get("group", ""), schema["spec"]["names"])
        name, uid = schema["metadata"]["name"], schema["metadata"]["uid"]
        found[names.group, names.plural] = ExportedResource(name, uid, names, tuple(stored_versions(schema)))
    return tuple(found.values()) if len(found) == len(schemas) else None


def _names_of_builtin(kinds: Kinds) -> Iterator[ResourceNames]:
    for one in kinds.builtin.catalog:
        yield ResourceNames(
            one.group, one.plural, one.singular, one.short_names, one.kind, one.list_kind or f"{one.kind}List"
        )


def _taken_by_definition(cluster: str, entry: Entry, groups: set[str]) -> Iterator[TakenNames]:
    name = objects.name_in(entry.key)[1]
    group = name.partition(".")[2]
    if group in groups:
        names = (objects.decode(entry).get("status") or {}).get("acceptedNames") or {}
        if names.get("plural"):
            yield bindings.taken_by_definition(bindings.names_of(group, names), name, cluster)
