"""Objects that the hub writes to the store without a request, several per commit."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from farflung.apis.kcp.names import CLUSTER_ANNOTATION, CORE_GROUP, TENANCY_GROUP
from farflung.apis.names import RBAC_GROUP
from farflung.apis.resource import Resource
from farflung.hub.catalog import objects
from farflung.machinery.errors import Obj
from farflung.machinery.times import format_seconds
from farflung.store.base import ABSENT, Conflict, Store

MANAGER: Final = "farflung"  #: manager in managedFields
OWNED: Final = ("labels", "annotations")  #: metadata fields with field owners

EncodedObject = tuple[str, bytes]  #: key and encoded object


@dataclass(frozen=True, slots=True)
class CreationContext:
    """The parts of a hub on which objects that it creates depend."""

    url: str  #: the hub's URL for clients
    clock: Callable[[], datetime]
    new_uid: Callable[[], str]
    random_bytes: Callable[[int], bytes]
    #: the hub's authorities in PEM, for new namespaces; empty: a controller adds them later
    authority: Callable[[], str] = str
    home_workspaces: int = 100  #: that a user may have below the home workspace

    def now(self) -> str:
        return format_seconds(self.clock())


def minimal_resource(group: str, version: str, plural: str, name: str, *, namespaced: bool = False) -> Resource:
    """A resource with only the fields that are needed to write its objects."""
    return Resource(group, version, plural, name, namespaced, "")


LOGICAL_CLUSTER: Final = minimal_resource(CORE_GROUP, "v1alpha1", "logicalclusters", "LogicalCluster")
SHARD: Final = minimal_resource(CORE_GROUP, "v1alpha1", "shards", "Shard")
WORKSPACE: Final = minimal_resource(TENANCY_GROUP, "v1alpha1", "workspaces", "Workspace")
WORKSPACE_TYPE: Final = minimal_resource(TENANCY_GROUP, "v1alpha1", "workspacetypes", "WorkspaceType")
NAMESPACE: Final = minimal_resource("", "v1", "namespaces", "Namespace")
ACCOUNT: Final = minimal_resource("", "v1", "serviceaccounts", "ServiceAccount", namespaced=True)
CONFIG_MAP: Final = minimal_resource("", "v1", "configmaps", "ConfigMap", namespaced=True)
ROLE: Final = minimal_resource(RBAC_GROUP, "v1", "clusterroles", "ClusterRole")
ROLE_BINDING: Final = minimal_resource(RBAC_GROUP, "v1", "clusterrolebindings", "ClusterRoleBinding")


def encode_new(resource: Resource, cluster: str, obj: Obj, *, uid: str, now: str) -> EncodedObject:
    """Encode a new object of a cluster, with the fields that the server sets.  Changes the object."""
    metadata = obj["metadata"]
    metadata["uid"] = uid
    metadata["creationTimestamp"] = now
    if resource is not ACCOUNT:
        metadata.setdefault("managedFields", [managed_fields(resource, obj, now)])
    metadata.setdefault("annotations", {})[CLUSTER_ANNOTATION] = cluster
    key = objects.key(resource, cluster, metadata.get("namespace", ""), metadata["name"])
    return key, objects.encode(resource, obj)


def managed_fields(resource: Resource, obj: Obj, now: str) -> Obj:
    """The managedFields entry of the hub for an object."""
    fields: Obj = {}
    for name, value in obj.items():
        if name == "metadata":
            value = {part: value[part] for part in OWNED if value.get(part)}
            fields["f:metadata"] = {f"f:{part}": {".": {}, **field_set(value[part])} for part in value}
        elif name not in ("kind", "apiVersion"):
            fields[f"f:{name}"] = field_set(value) if name in ("spec", "status", "data") else {}
    return {
        "manager": MANAGER,
        "operation": "Update",
        "apiVersion": resource.api_version,
        "time": now,
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
    }


def field_set(value: Obj) -> Obj:
    return {f"f:{name}": {} for name in value}


async def put_all(store: Store, writes: Iterable[EncodedObject]) -> None:
    """Create objects in order: after a failure, a first part of the list exists, unless the disk is full.  No write is
    pending when it returns or raises."""
    await gather_writes([store.put(key, value, expect=ABSENT) for key, value in writes])


async def put_missing(store: Store, writes: Iterable[EncodedObject]) -> None:
    """As `put_all`, but existing objects are kept."""
    missing = [(key, value) for key, value in writes if store.get(key) is None]
    await gather_writes([_put_unless_there(store, key, value) for key, value in missing])


async def _put_unless_there(store: Store, key: str, value: bytes) -> None:
    try:
        await store.put(key, value, expect=ABSENT)
    except Conflict:
        return


async def gather_writes(writes: Iterable[Awaitable[object]]) -> None:
    """Wait for all writes, then raise the first failure."""
    outcomes = await asyncio.gather(*writes, return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome


def encode_stored(obj: Obj) -> bytes:
    """Encode an existing object that the hub changed."""
    group, _, version = obj["apiVersion"].rpartition("/")
    return objects.encode(minimal_resource(group, version, "", obj["kind"]), obj)
