"""APIBindings: the permission to bind an export, conflicts of names, and the binding to write.

A binding is bound when its creation returns.  Copies of the schemas are written before it.  If the binding is not
written after all, the copies do no harm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

from farflung.apis.kcp import kinds as kcp
from farflung.apis.kcp.names import API_BINDING_FINALIZER, APIS_GROUP, EXPORT_LABEL, ExportReference
from farflung.hub.catalog import objects
from farflung.hub.catalog.served import Kinds
from farflung.hub.request.attributes import Attributes, Authorization
from farflung.hub.request.user import User
from farflung.hub.tenancy import api_bindings as bindings
from farflung.hub.tenancy import api_exports as exports
from farflung.hub.tenancy.api_bindings import BINDINGS, ExportedResource, ExportOffer, ResourceNames, TakenNames
from farflung.hub.tenancy.api_exports import ExportKey, schema_key
from farflung.hub.tenancy.bound_apis import BindingState, BoundApis, copy_key
from farflung.hub.tenancy.direct_writes import EncodedObject, encode_new, managed_fields, minimal_resource, put_missing
from farflung.hub.tenancy.hashes import default_binding_name
from farflung.hub.tenancy.paths import ROOT, LogicalClusters, workspace_key
from farflung.hub.tenancy.resource_schemas import stored_versions
from farflung.hub.tenancy.workspace_authorizer import is_operator, is_privileged
from farflung.hub.tenancy.workspaces import is_of_administrator
from farflung.machinery.errors import FieldError, Obj, forbidden, required
from farflung.store.base import Change, Entry, Store

DEFINITIONS: Final = "/apiextensions.k8s.io/customresourcedefinitions/"
API_BINDING: Final = minimal_resource(APIS_GROUP, "v1alpha1", "apibindings", "APIBinding")
API_VERSION: Final = f"{APIS_GROUP}/v1alpha1"
MAX_TEMPLATES: Final = 1_000  #: cached bindings of workspace types
MAX_CONSIDERED: Final = 1_000  #: exports, for a reference without a path
OR_MISSING: Final = (
    ", or it does not exist: check the path and the name, or ask an administrator of that workspace for the verb bind "
    "on its apiexports"
)
MAX_LISTED: Final = 10  #: exports in a message


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
        ] = {}  #: export → entries that the offer was made from, and the offer
        #: path and name of an export → its offer, the time, and the binding made from them
        self._templates: dict[tuple[str, str], tuple[ExportOffer, str, Obj]] = {}
        self._builtin = [bindings.taken_by_hub(names) for names in _names_of_builtin(kinds)]
        store.subscribe(exports.EXPORTS, self._forget)

    def _forget(self, changes: Sequence[Change]) -> None:
        """Drop the offers of deleted exports."""
        for change in changes:
            if change.entry is None:
                self._offers.pop(ExportKey(objects.cluster_in(change.key), objects.name_in(change.key)[1]), None)

    # --- permissions ------------------------------------------------------------------------------

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
        """Raises 403, which tells only administrators whether the export exists.  A binding may precede its export in
        its own workspace or in root.  All users may bind the exports that the hub creates in root."""
        export = self._bindable(cluster, user, authorizer, reference)
        if export is not None:
            may_come_later = reference.path in ("", ROOT)
            if may_come_later or exports.exists(self._store, *export):
                return
        plural = "apibindings" if what == "APIBinding" else "apiexportendpointslices"
        why = self._why_not_bindable(user, reference)
        raise forbidden(APIS_GROUP, plural, name, f"unable to {verb} {what}: {why}")

    def _why_not_bindable(self, user: User, reference: ExportReference) -> str:
        path, name = reference.path, reference.name
        if name and (is_operator(user) or is_privileged(user)):
            cluster = self._clusters.resolve(path) if path else None
            if path and cluster is None:
                return f"the workspace {path} does not exist"
            if cluster is not None and not exports.exists(self._store, cluster, name):
                return f"the APIExport {name} does not exist in the workspace {path}"
        return f"no permission to bind to export {f'{path}:{name}' if path else name}{OR_MISSING}"

    def may_add_default_binding(
        self, cluster: str, user: User, authorizer: Authorization, reference: ExportReference
    ) -> bool:
        """Whether a user may add an export to the default bindings of a WorkspaceType.  The export need not exist."""
        if is_operator(user) or is_privileged(user):
            return True
        return self._bindable(cluster, user, authorizer, reference) is not None

    def _bindable(
        self, cluster: str, user: User, authorizer: Authorization, reference: ExportReference
    ) -> ExportKey | None:
        cluster_of_export = self._export_cluster(cluster, reference)
        export = None if cluster_of_export is None else ExportKey(cluster_of_export, reference.name)
        return export if export is not None and self._may_bind(user, authorizer, export) else None

    def _may_bind(self, user: User, authorizer: Authorization, export: ExportKey) -> bool:
        attributes = Attributes("bind", APIS_GROUP, "apiexports", name=export.name)
        return is_hub_export(export) or authorizer.decide(export.cluster, user, attributes).allowed

    def _export_cluster(self, cluster: str, reference: ExportReference) -> str | None:
        return self._clusters.resolve(reference.path) if reference.path else cluster

    # --- references without a path ----------------------------------------------------------------

    def find_export(self, cluster: str, user: User, authorizer: Authorization, name: str) -> ExportKey | FieldError:
        """The export of a new binding that names no path: that of its own workspace, else the only one of that name in
        root and in the children of root that an administrator created.  There, tenants cannot offer one instead.
        Exports that the user may not bind count, so that the owner of another one cannot replace them."""
        if exports.exists(self._store, cluster, name):
            return ExportKey(cluster, name)
        of_name = self._common_exports(name)
        found = [one for one in of_name if self._may_bind(user, authorizer, one)]
        if len(of_name) == len(found) == 1:
            return found[0]
        if found:
            why = f"several workspaces offer the APIExport {name}; name one of them"
        else:
            why = (
                f"no APIExport {name} in this workspace, in root, or in a workspace below root that an administrator "
                "created; name the workspace that has it"
            )
            found = [one for one in self._common_exports() if self._may_bind(user, authorizer, one)]
        listed = sorted(f"{self._clusters.path_of(one.cluster)}:{one.name}" for one in found)
        if listed:
            omitted = f" and {len(listed) - MAX_LISTED} more" if len(listed) > MAX_LISTED else ""
            why += f". You may bind {', '.join(listed[:MAX_LISTED])}{omitted}"
        return required("spec.reference.export.path", why)

    def _common_exports(self, name: str = "") -> list[ExportKey]:
        """The exports of root and of its children that an administrator created; without a name all but those of the
        hub itself, which every workspace has bound."""
        entries = self._store.list(exports.EXPORTS).entries
        keys = (ExportKey(objects.cluster_in(one.key), objects.name_in(one.key)[1]) for one in entries)
        wanted = (one for one in keys if (one.name == name if name else not is_hub_export(one)))
        return [one for one in islice(wanted, MAX_CONSIDERED) if self._is_common(one.cluster)]

    def _is_common(self, cluster: str) -> bool:
        if cluster == ROOT:
            return True
        owner = self._clusters.owner_of(cluster)
        if owner is None or owner.cluster != ROOT:
            return False
        entry = self._store.get(workspace_key(ROOT, owner.name))
        return entry is not None and is_of_administrator(objects.decode(entry)["metadata"].get("annotations") or {})

    # --- bindings ---------------------------------------------------------------------------------

    def admit_binding(self, cluster: str, binding: Obj) -> None:
        """Set the fields of a new or changed binding that only the server sets, before validation."""
        metadata = binding["metadata"]
        reference = bindings.binding_reference(binding)
        if reference is not None:
            known = bindings.bound_cluster(binding)
            cluster_of_export = known or self._export_cluster(cluster, reference) or reference.path
            labels = metadata.get("labels") or {}
            metadata["labels"] = {**labels, EXPORT_LABEL: bindings.label_of(cluster_of_export, reference.name)}
        finalizers = metadata.get("finalizers") or []
        if API_BINDING_FINALIZER not in finalizers and "deletionTimestamp" not in metadata:
            metadata["finalizers"] = [*finalizers, API_BINDING_FINALIZER]
        bindings.omit_core_group(binding)

    async def finish_binding(self, cluster: str, binding: Obj, now: str) -> Obj:
        """A valid binding as it is written: bound, or with the reason why not."""
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
        missing = f"{reference.path or bindings.found_path(binding) or cluster}|{reference.name}"
        clash = ""
        if offer is not None and offer.resources and offer.identity:
            key = f"{BINDINGS}{cluster}/{binding['metadata']['name']}"
            wanted = [one.names for one in offer.resources]
            clash = bindings.name_conflict(wanted, self._taken(cluster, key, binding, {one.group for one in wanted}))
        return bindings.bound_binding(binding, offer, missing, clash, now)

    def offer(self, cluster: str, binding: Obj) -> ExportOffer | None:
        """The offer of a binding's export; None if it does not exist.  A binding keeps its first export, even if
        another one gets that path."""
        reference = bindings.binding_reference(binding)
        if reference is None:
            return None
        cluster_of_export = bindings.bound_cluster(binding) or self._export_cluster(cluster, reference)
        return None if cluster_of_export is None else self.offered(ExportKey(cluster_of_export, reference.name))

    def offered(self, export: ExportKey) -> ExportOffer | None:
        """The offer of an export, cached until the export or its schemas change."""
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
        """The names of some groups that are in use for a binding."""
        yield from (one for one in self._builtin if one.names.group in groups)
        created = (binding["metadata"].get("creationTimestamp", ""), own)
        has = {(one["group"], one["resource"]) for one in (binding.get("status") or {}).get("boundResources") or ()}
        for key, state in self._apis.in_cluster(cluster).items():
            if key != own:
                yield from self._taken_by(cluster, key, state, groups, has if created < (state.created, key) else set())
        for entry in self._store.list(f"{DEFINITIONS}{cluster}/").entries:
            yield from _taken_by_definition(cluster, entry, groups)

    def _taken_by(
        self, cluster: str, key: str, state: BindingState, groups: set[str], has: set[tuple[str, str]]
    ) -> Iterator[TakenNames]:
        """`has`: resources that the binding has already, and that a newer binding cannot take."""
        for one in state.bound:
            if one.group not in groups or one.group_resource in has:
                continue
            definition = self._apis.definition(one, state.export)
            if definition is not None:
                names = bindings.names_of(one.group, definition.named["status"]["acceptedNames"])
                path = state.reference.path or self._clusters.path_of(state.export.cluster if state.export else cluster)
                yield bindings.taken_by_binding(names, objects.name_in(key)[1], path, state.reference.name)

    # --- default bindings -------------------------------------------------------------------------

    def bind(self, cluster: str, wanted: Sequence[ExportReference], now: str) -> list[EncodedObject]:
        """The APIBindings of a new workspace, encoded.  `keep_schemas` or a controller writes the copies of their
        schemas."""
        make = self._from_template if self._is_empty(cluster) else self.binding
        return [
            make(cluster, default_binding_name(cluster, one.path, one.name), one.path, one.name, now) for one in wanted
        ]

    def _is_empty(self, cluster: str) -> bool:
        """Whether only built-in kinds have names there."""
        return not self._apis.in_cluster(cluster) and not self._store.list(f"{DEFINITIONS}{cluster}/", limit=1).entries

    def _from_template(self, cluster: str, name: str, path: str, export: str, now: str) -> EncodedObject:
        """A binding in an empty cluster, which differs from others only in its name."""
        cluster_of_export = self._clusters.resolve(path) if path else None
        offer = None if cluster_of_export is None else self.offered(ExportKey(cluster_of_export, export))
        if offer is None:
            return self.binding(cluster, name, path, export, now)
        made_of, made, template = self._templates.get((path, export), (None, "", {}))
        if made_of is not offer or made != now:
            template = self._new(cluster, name, path, export, now)
            template["metadata"]["managedFields"] = [managed_fields(API_BINDING, template, now)]
            if len(self._templates) >= MAX_TEMPLATES:
                self._templates.clear()
            self._templates[path, export] = (offer, now, template)
        metadata = {
            **template["metadata"],
            "name": name,
            "annotations": dict(template["metadata"].get("annotations") or {}),
        }
        return encode_new(API_BINDING, cluster, {**template, "metadata": metadata}, uid=self._new_uid(), now=now)

    def binding(self, cluster: str, name: str, path: str, export: str, now: str) -> EncodedObject:
        """An encoded APIBinding, bound if the schemas of its export exist."""
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

    async def keep_schemas(self, wanted: Iterable[ExportReference]) -> None:
        """Write the copies of the exports' schemas, before their first bindings."""
        for one in wanted:
            cluster_of_export = self._clusters.resolve(one.path)
            offer = None if cluster_of_export is None else self.offered(ExportKey(cluster_of_export, one.name))
            if offer is not None:
                await self._keep_schemas(offer)


def is_hub_export(export: ExportKey) -> bool:
    """Whether the hub created the export in root."""
    return export.cluster == ROOT and export.name in kcp.EXPORTS


def _resources(schemas: Sequence[Entry]) -> tuple[ExportedResource, ...] | None:
    """None if two schemas define one resource."""
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
