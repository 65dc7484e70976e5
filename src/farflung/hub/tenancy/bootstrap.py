"""The workspaces that exist after the start: root with its types and exports, `root:compute`, and the provider of the
edge API.

Missing objects are created, so an interrupted start is completed by the next one.  Existing objects are kept, because
users may have changed them.  Exports that only the hub wrote are updated to what this version exports.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Final

from farflung.apis.apiextensions.conditions import CLEANUP, with_status
from farflung.apis.apiextensions.validation import default
from farflung.apis.custom_kinds import schema_hash
from farflung.apis.edge import kinds as edge
from farflung.apis.edge.names import EDGE_GROUP
from farflung.apis.globalscheduler import kinds as globalscheduler
from farflung.apis.globalscheduler.names import GLOBALSCHEDULER_GROUP
from farflung.apis.kcp import compute, kinds
from farflung.apis.kcp.names import APIS_GROUP, BATTERY, CREATE_ONLY, REPLICATE, ExportReference
from farflung.apis.resource import Resource
from farflung.hub.catalog import objects
from farflung.hub.tenancy import guards
from farflung.hub.tenancy.api_exports import Exporter, export_key, schema_key, schema_names
from farflung.hub.tenancy.binding_strategy import Binder
from farflung.hub.tenancy.builtin_objects import builtin_types, compute_roles, root_roles
from farflung.hub.tenancy.direct_writes import (
    MANAGER,
    NAMESPACE,
    ROLE,
    ROLE_BINDING,
    WORKSPACE,
    WORKSPACE_TYPE,
    encode_new,
    encode_stored,
    managed_fields,
    minimal_resource,
    put_missing,
)
from farflung.hub.tenancy.direct_writes import SHARD as SHARDS
from farflung.hub.tenancy.paths import PROVIDER, ROOT, workspace_key
from farflung.hub.tenancy.workspaces import BOOTSTRAPPER, NO_ANNOTATIONS, SHARD, NewCluster, Tenancy, default_namespace
from farflung.machinery.errors import Obj
from farflung.store.base import Store

COMPUTE: Final = "compute"
SCHEMA: Final = minimal_resource(APIS_GROUP, "v1alpha1", "apiresourceschemas", "APIResourceSchema")
EXPORT: Final = minimal_resource(APIS_GROUP, "v1alpha1", "apiexports", "APIExport")
DEFINITION: Final = minimal_resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition"
)
ROOT_CLUSTER: Final = NewCluster(ROOT, ROOT, "root:root", (), (), {REPLICATE: "apis.kcp.io,tenancy.kcp.io"})
AT_ROOT_SHARD: Final[Obj] = {"selector": {"matchLabels": {"name": SHARD}}}

Roles = Iterable[tuple[Obj, Obj]]


class Bootstrap:
    def __init__(self, store: Store, tenancy: Tenancy, exporter: Exporter, binder: Binder) -> None:
        self._store = store
        self._tenancy = tenancy
        self._exporter = exporter
        self._binder = binder
        self._context = tenancy.context

    async def start(self, *, bare: bool) -> None:
        """`bare`: without the provider of the edge API."""
        await self._root()
        await self._compute()
        if not bare:
            await self._provider()

    async def _root(self) -> None:
        await self._tenancy.create_missing(ROOT_CLUSTER)
        await self._put(NAMESPACE, ROOT, [default_namespace()])
        await self._put(SHARDS, ROOT, [shard(self._context.url)])
        await self._put(WORKSPACE_TYPE, ROOT, self._types())
        await self._grant(ROOT, root_roles())
        for name, described in kinds.EXPORTS.items():
            await self._export(
                ROOT, name, partial(map, kinds.resource_schema, described), partial(kinds.api_export, name)
            )
        await self._bind_in_root()

    def _types(self) -> Iterator[Obj]:
        for obj in builtin_types():
            guards.finish_type(obj, ROOT, ROOT, self._context.url, self._context.now())
            yield obj

    async def _bind_in_root(self) -> None:
        """In root, bindings have the names of their exports."""
        await self._binder.keep_schemas(ExportReference(ROOT, name) for name in kinds.EXPORTS)
        now = self._context.now()
        await put_missing(self._store, [self._binder.binding(ROOT, name, ROOT, name, now) for name in kinds.EXPORTS])

    async def _compute(self) -> None:
        annotations = {BATTERY: "root-compute-workspace", CREATE_ONLY: "true"}
        spec = {"type": {"name": "universal", "path": ROOT}, "location": AT_ROOT_SHARD}
        cluster = await self._workspace(COMPUTE, annotations, spec, {REPLICATE: APIS_GROUP})
        if cluster:
            await self._grant(cluster, compute_roles())
            for name in compute.EXPORTED:
                await self._export(
                    cluster, name, partial(compute.resource_schemas, name), partial(compute.api_export, name)
                )
            await self._export(
                cluster, GLOBALSCHEDULER_GROUP, globalscheduler.resource_schemas, globalscheduler.api_export
            )

    async def _provider(self) -> None:
        cluster = await self._workspace(PROVIDER, {}, {})
        if cluster:
            await self._put(DEFINITION, cluster, map(self._definition, edge.KINDS))
            await self._export(cluster, EDGE_GROUP, edge_schemas, edge.api_export)

    def _definition(self, name: str) -> Obj:
        obj = edge.KINDS[name].definition()
        obj["metadata"] |= {"generation": 1, "finalizers": [CLEANUP]}
        default(obj)
        obj["status"] = with_status(obj, (), self._context.now())
        return obj

    # --- missing objects --------------------------------------------------------------------------

    async def _put(self, resource: Resource, cluster: str, wanted: Iterable[Obj]) -> None:
        now = self._context.now()
        await put_missing(
            self._store, [encode_new(resource, cluster, obj, uid=self._context.new_uid(), now=now) for obj in wanted]
        )

    async def _grant(self, cluster: str, roles: Roles) -> None:
        for role, binding in roles:
            await self._put(ROLE, cluster, [role])
            await self._put(ROLE_BINDING, cluster, [binding])

    async def _export(
        self, cluster: str, name: str, schemas: Callable[[], Iterable[Obj]], export: Callable[[], Obj]
    ) -> None:
        """Write an export after its schemas."""
        entry, wanted, now = self._store.get(export_key(cluster, name)), with_generation(export()), self._context.now()
        offered = {one["metadata"]["name"]: self._apart(cluster, with_generation(one)) for one in schemas()}
        wanted["spec"]["latestResourceSchemas"] = [
            offered[one]["metadata"]["name"] for one in wanted["spec"]["latestResourceSchemas"]
        ]
        old = {} if entry is None else objects.decode(entry)
        is_new = entry is None or is_outdated(old, wanted["spec"])
        if is_new or not all(self._store.get(schema_key(cluster, one)) for one in schema_names(old)):
            await self._put(SCHEMA, cluster, offered.values())
        if entry is None:
            await self._exporter.finish_export(cluster, wanted, None, now)
            await self._put(EXPORT, cluster, [wanted])
        elif is_new:
            new = updated_export(old, wanted["spec"], now)
            await self._exporter.finish_export(cluster, new, old, now)
            await self._store.put(entry.key, encode_stored(new), expect=entry.revision)

    def _apart(self, cluster: str, schema: Obj) -> Obj:
        """The schema under another name, if an earlier version of the hub wrote a different one: schemas are
        immutable."""
        name = schema["metadata"]["name"]
        entry = self._store.get(schema_key(cluster, name))
        if entry is None or objects.decode(entry)["spec"] == schema["spec"]:
            return schema
        version, _, resource = name.partition(".")
        unique = f"{version}-{schema_hash(schema['spec'])}.{resource}"
        return {**schema, "metadata": {**schema["metadata"], "name": unique}}

    async def _workspace(
        self, name: str, annotations: Obj, spec: Obj, replicated: Mapping[str, str] = NO_ANNOTATIONS
    ) -> str:
        """Create a workspace in root.  Returns its cluster, or "" if it is being deleted.  `replicated`: annotations of
        its LogicalCluster."""
        if self._store.get(workspace_key(ROOT, name)) is None:
            uid, now = self._context.new_uid(), self._context.now()
            obj: Obj = {"metadata": {"name": name, "annotations": annotations}, "spec": spec}
            self._tenancy.admit(ROOT, BOOTSTRAPPER, obj, lambda cluster, name: True)
            obj["metadata"] |= {"uid": uid, "generation": 1}
            await self._tenancy.create_cluster(ROOT, obj, replicated)
            await put_missing(self._store, [encode_new(WORKSPACE, ROOT, obj, uid=uid, now=now)])
        cluster = self._tenancy.clusters.child(ROOT, name)
        found = self._tenancy.clusters.read(cluster) if cluster else None
        return "" if found is None or found.deleting else cluster


def is_outdated(export: Obj, spec: Obj) -> bool:
    """Whether only the hub wrote the export, and its spec differs."""
    owners = {one.get("manager") for one in export["metadata"].get("managedFields") or ()}
    return owners == {MANAGER} and any(export["spec"].get(name) != value for name, value in spec.items())


def updated_export(export: Obj, spec: Obj, now: str) -> Obj:
    new = {**export, "spec": {**export["spec"], **spec}}
    metadata = {**export["metadata"], "generation": export["metadata"].get("generation", 1) + 1}
    new["metadata"] = {**metadata, "managedFields": [managed_fields(EXPORT, new, now)]}
    return new


def edge_schemas() -> list[Obj]:
    return [one.resource_schema() for one in edge.KINDS.values()]


def with_generation(obj: Obj) -> Obj:
    """Add the generation of a new object."""
    obj["metadata"].setdefault("generation", 1)
    return obj


def shard(url: str) -> Obj:
    return {
        "metadata": {"name": SHARD, "generation": 1, "labels": {"name": SHARD}},
        "spec": {"baseURL": url, "externalURL": url, "virtualWorkspaceURL": url},
    }
