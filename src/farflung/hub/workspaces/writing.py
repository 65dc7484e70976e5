"""Objects that the hub itself writes: encoded straight to the store, several to a commit."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from typing import Final

from farflung.apis.resource import Resource
from farflung.hub import objects
from farflung.machinery.errors import Obj
from farflung.store.base import ABSENT, Conflict, Store

CLUSTER: Final = "kcp.io/cluster"  #: the annotation that tells every object's cluster

Written = tuple[str, bytes]  #: a key, and the encoded object that is to be there


def kind(group: str, version: str, plural: str, name: str, *, namespaced: bool = False) -> Resource:
    """As much of a resource as is needed to write its objects."""
    return Resource(group, version, plural, name, namespaced, "")


LOGICAL_CLUSTER: Final = kind("core.kcp.io", "v1alpha1", "logicalclusters", "LogicalCluster")
SHARD: Final = kind("core.kcp.io", "v1alpha1", "shards", "Shard")
WORKSPACE: Final = kind("tenancy.kcp.io", "v1alpha1", "workspaces", "Workspace")
WORKSPACE_TYPE: Final = kind("tenancy.kcp.io", "v1alpha1", "workspacetypes", "WorkspaceType")
NAMESPACE: Final = kind("", "v1", "namespaces", "Namespace")
ACCOUNT: Final = kind("", "v1", "serviceaccounts", "ServiceAccount", namespaced=True)
CONFIG_MAP: Final = kind("", "v1", "configmaps", "ConfigMap", namespaced=True)
ROLE: Final = kind("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole")
ROLE_BINDING: Final = kind("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding")


def written(resource: Resource, cluster: str, obj: Obj, *, uid: str, now: str) -> Written:
    """A new object of a cluster.  The object gets what the server sets, and is the caller's no more."""
    metadata = obj["metadata"]
    metadata["uid"] = uid
    metadata["creationTimestamp"] = now
    metadata.setdefault("annotations", {})[CLUSTER] = cluster
    key = objects.key(resource, cluster, metadata.get("namespace", ""), metadata["name"])
    return key, objects.encode(resource, obj)


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
