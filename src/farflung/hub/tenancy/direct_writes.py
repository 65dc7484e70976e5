"""Objects that the hub itself writes: encoded straight to the store, several to a commit."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from typing import Final

from farflung.apis.kcp.names import CLUSTER_ANNOTATION, CORE_GROUP, TENANCY_GROUP
from farflung.apis.names import RBAC_GROUP
from farflung.apis.resource import Resource
from farflung.hub.catalog import objects
from farflung.machinery.errors import Obj
from farflung.store.base import ABSENT, Conflict, Store

MANAGER: Final = "farflung"  #: who managedFields say it was
OWNED: Final = ("labels", "annotations")  #: parts of the metadata that have owners

Written = tuple[str, bytes]  #: a key, and the encoded object that is to be there


def kind(group: str, version: str, plural: str, name: str, *, namespaced: bool = False) -> Resource:
    """As much of a resource as is needed to write its objects."""
    return Resource(group, version, plural, name, namespaced, "")


LOGICAL_CLUSTER: Final = kind(CORE_GROUP, "v1alpha1", "logicalclusters", "LogicalCluster")
SHARD: Final = kind(CORE_GROUP, "v1alpha1", "shards", "Shard")
WORKSPACE: Final = kind(TENANCY_GROUP, "v1alpha1", "workspaces", "Workspace")
WORKSPACE_TYPE: Final = kind(TENANCY_GROUP, "v1alpha1", "workspacetypes", "WorkspaceType")
NAMESPACE: Final = kind("", "v1", "namespaces", "Namespace")
ACCOUNT: Final = kind("", "v1", "serviceaccounts", "ServiceAccount", namespaced=True)
CONFIG_MAP: Final = kind("", "v1", "configmaps", "ConfigMap", namespaced=True)
ROLE: Final = kind(RBAC_GROUP, "v1", "clusterroles", "ClusterRole")
ROLE_BINDING: Final = kind(RBAC_GROUP, "v1", "clusterrolebindings", "ClusterRoleBinding")


def written(resource: Resource, cluster: str, obj: Obj, *, uid: str, now: str) -> Written:
    """A new object of a cluster.  The object gets what the server sets, and is the caller's no more."""
    metadata = obj["metadata"]
    metadata["uid"] = uid
    metadata["creationTimestamp"] = now
    if resource is not ACCOUNT:
        metadata.setdefault("managedFields", [managed(resource, obj, now)])
    metadata.setdefault("annotations", {})[CLUSTER_ANNOTATION] = cluster
    key = objects.key(resource, cluster, metadata.get("namespace", ""), metadata["name"])
    return key, objects.encode(resource, obj)


def managed(resource: Resource, obj: Obj, now: str) -> Obj:
    """That the hub set the fields of an object: those of its spec and status, labels and annotations one by one."""
    fields: Obj = {}
    for name, value in obj.items():
        if name == "metadata":
            value = {part: value[part] for part in OWNED if value.get(part)}
            fields["f:metadata"] = {f"f:{part}": {".": {}, **owned(value[part])} for part in value}
        elif name not in ("kind", "apiVersion"):
            fields[f"f:{name}"] = owned(value) if name in ("spec", "status", "data") else {}
    return {
        "manager": MANAGER,
        "operation": "Update",
        "apiVersion": resource.api_version,
        "time": now,
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
    }


def owned(value: Obj) -> Obj:
    return {f"f:{name}": {} for name in value}


async def put_all(store: Store, writes: Iterable[Written]) -> None:
    """Create objects, in their order: whatever happens, what is there is a beginning of the list, unless the disk is
    full.  When it returns or raises, nothing is under way."""
    await all_of([store.put(key, value, expect=ABSENT) for key, value in writes])


async def put_missing(store: Store, writes: Iterable[Written]) -> None:
    """The same, but objects that are there already stay as they are."""
    missing = [(key, value) for key, value in writes if store.get(key) is None]
    await all_of([_put_unless_there(store, key, value) for key, value in missing])


async def _put_unless_there(store: Store, key: str, value: bytes) -> None:
    try:
        await store.put(key, value, expect=ABSENT)
    except Conflict:
        return


async def all_of(writes: Iterable[Awaitable[object]]) -> None:
    """Until all are done, in whatever way; then the first failure is raised."""
    outcomes = await asyncio.gather(*writes, return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome


def rewritten(obj: Obj) -> bytes:
    """A stored object that the hub changed."""
    group, _, version = obj["apiVersion"].rpartition("/")
    return objects.encode(kind(group, version, "", obj["kind"]), obj)
