"""Exports and bindings on a store, without the rest of a hub."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from typing import Any

from memory_store import MemoryStore

from farflung.apis.builtin.kinds import BUILTIN
from farflung.apis.kcp import kinds as kcp
from farflung.hub.catalog import objects
from farflung.hub.catalog.custom_kinds import Definition
from farflung.hub.catalog.served import ClusterKinds, kinds_in
from farflung.hub.tenancy.api_exports import Exporter
from farflung.hub.tenancy.binding_strategy import API_BINDING as API_BINDING
from farflung.hub.tenancy.binding_strategy import Binder
from farflung.hub.tenancy.bound_apis import BoundApis
from farflung.hub.tenancy.direct_writes import (
    LOGICAL_CLUSTER,
    WORKSPACE,
    CreationContext,
    encode_new,
    encode_stored,
    minimal_resource,
)
from farflung.hub.tenancy.paths import LogicalClusters
from farflung.machinery.errors import Obj
from farflung.store.base import ABSENT, Store

URL = "https://hub:6443"
NOW = "2024-05-01T12:00:00Z"
LATER = "2024-05-01T12:00:07Z"
SCHEMA = minimal_resource("apis.kcp.io", "v1alpha1", "apiresourceschemas", "APIResourceSchema")
EXPORT = minimal_resource("apis.kcp.io", "v1alpha1", "apiexports", "APIExport")
DEFINITION = minimal_resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition")
NATIVE = frozenset({"configmaps", "secrets", "namespaces", "serviceaccounts", "events", "customresourcedefinitions"})


@cache
def workspace_kinds() -> ClusterKinds:
    """A few kinds of Kubernetes, and those of kcp that every workspace has."""
    system = [Definition(kcp.definition(resource), 0) for resource in kcp.SYSTEM]
    return ClusterKinds([one for one in BUILTIN if one.plural in NATIVE], system)


def widget_schema(name: str = "v1.widgets.ex.test", **spec: Any) -> Obj:
    schema = {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "properties": {"size": {"type": "integer"}, "colour": {"type": "string", "default": "red"}},
            }
        },
    }
    said = {
        "group": "ex.test",
        "names": {
            "kind": "Widget",
            "listKind": "WidgetList",
            "plural": "widgets",
            "singular": "widget",
            "shortNames": ["wi"],
        },
        "scope": "Cluster",
        "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
    }
    return {"metadata": {"name": name}, "spec": {**said, **spec}}


class LocalApis:
    """Clusters with exports and bindings; names and times can be foretold."""

    def __init__(self, store: Store | None = None) -> None:
        self.store = store or MemoryStore(stamp=objects.stamp)
        numbers = itertools.count()
        self.new_uid: Callable[[], str] = lambda: f"uid-{next(numbers)}"
        self.clusters = LogicalClusters(self.store)
        self.kinds = kinds_in(self.store, workspace_kinds())
        self.apis = BoundApis(self.store, self.kinds)
        self.apis.start()

        def random(size: int) -> bytes:
            return hashlib.sha256(f"chance {next(numbers)}".encode()).digest()[:size]

        self.exporter = Exporter(
            self.store,
            self.clusters,
            CreationContext(URL, lambda: datetime(2024, 5, 1, 12, 0, 0, tzinfo=UTC), self.new_uid, random),
        )
        self.binder = Binder(self.store, self.kinds, self.clusters, self.apis, self.new_uid)

    async def cluster(self, name: str, parent: str = "root", cluster: str = "") -> str:
        """A workspace below another one; its cluster's name."""
        cluster = cluster or f"c-{name}"
        owner = {"cluster": parent, "name": name, "uid": "u"}
        logical: Obj = {"metadata": {"name": "cluster"}, "spec": {"owner": owner}, "status": {"phase": "Ready"}}
        await self._put(LOGICAL_CLUSTER, cluster, logical)
        await self._put(WORKSPACE, parent, {"metadata": {"name": name}, "spec": {"cluster": cluster}})
        return cluster

    async def root(self) -> str:
        logical: Obj = {"metadata": {"name": "cluster"}, "status": {"phase": "Ready"}}
        await self._put(LOGICAL_CLUSTER, "root", logical)
        return "root"

    async def schema(self, cluster: str, schema: Obj) -> str:
        """As the write path makes one; its uid."""
        return await self._put(SCHEMA, cluster, schema)

    async def export(self, cluster: str, name: str, *schemas: str, **spec: Any) -> Obj:
        export: Obj = {"metadata": {"name": name}, "spec": {"latestResourceSchemas": list(schemas), **spec}}
        await self.exporter.finish_export(cluster, export, None, NOW)
        await self._put(EXPORT, cluster, export)
        return self.read(EXPORT, cluster, name)

    async def change_export(self, cluster: str, name: str, **spec: Any) -> Obj:
        old = self.read(EXPORT, cluster, name)
        new = {**old, "spec": {**old["spec"], **spec}}
        await self.exporter.finish_export(cluster, new, old, LATER)
        await self.write(EXPORT, cluster, new)
        return self.read(EXPORT, cluster, name)

    async def bind(self, cluster: str, name: str, path: str, export: str, **spec: Any) -> Obj:
        reference = {"export": {"name": export} | ({"path": path} if path else {})}
        binding: Obj = {"metadata": {"name": name, "creationTimestamp": NOW}, "spec": {"reference": reference, **spec}}
        self.binder.admit_binding(cluster, binding)
        await self._put(API_BINDING, cluster, await self.binder.finish_binding(cluster, binding, NOW))
        return self.read(API_BINDING, cluster, name)

    async def change_binding(self, cluster: str, name: str, **spec: Any) -> Obj:
        old = self.read(API_BINDING, cluster, name)
        new = await self.binder.finish_binding(cluster, {**old, "spec": {**old["spec"], **spec}}, LATER)
        await self.write(API_BINDING, cluster, new)
        return self.read(API_BINDING, cluster, name)

    async def definition(self, cluster: str, plural: str, group: str, kind_name: str) -> None:
        """A CustomResourceDefinition that is established."""
        names = {"plural": plural, "singular": kind_name.lower(), "kind": kind_name, "listKind": f"{kind_name}List"}
        versions = [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}]
        spec = {"group": group, "names": names, "scope": "Cluster", "versions": versions}
        status = {"acceptedNames": names, "conditions": [{"type": "Established", "status": "True"}]}
        obj: Obj = {"metadata": {"name": f"{plural}.{group}"}, "spec": spec, "status": status}
        await self._put(DEFINITION, cluster, obj)

    def read(self, resource: Any, cluster: str, name: str, namespace: str = "") -> Obj:
        entry = self.store.get(objects.key(resource, cluster, namespace, name))
        assert entry is not None, f"there is no {resource.plural}/{name} in {cluster}"
        return objects.decode(entry)

    async def write(self, resource: Any, cluster: str, obj: Obj) -> None:
        key = objects.key(resource, cluster, obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
        entry = self.store.get(key)
        assert entry is not None, key
        await self.store.put(key, encode_stored(obj), expect=entry.revision)

    async def remove(self, resource: Any, cluster: str, name: str) -> None:
        key = objects.key(resource, cluster, "", name)
        entry = self.store.get(key)
        assert entry is not None, key
        await self.store.delete(key, expect=entry.revision)

    async def _put(self, resource: Any, cluster: str, obj: Obj) -> str:
        uid = self.new_uid()
        key, value = encode_new(resource, cluster, obj, uid=uid, now=NOW)
        await self.store.put(key, value, expect=ABSENT)
        return uid


def condition(obj: Obj, type_: str) -> Obj:
    return next((one for one in obj["status"]["conditions"] if one["type"] == type_), {})
