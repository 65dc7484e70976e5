"""Workspaces on a store, without the rest of a hub."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime
from typing import Any

from memory_store import MemoryStore

from farflung.apis.kcp.names import ExportReference
from farflung.apis.resource import Resource
from farflung.hub.catalog import objects
from farflung.hub.controllers.workspaces import WorkspaceController
from farflung.hub.request.user import User
from farflung.hub.tenancy.bootstrap import ROOT_CLUSTER, shard
from farflung.hub.tenancy.builtin_objects import builtin_types
from farflung.hub.tenancy.direct_writes import (
    SHARD,
    WORKSPACE,
    WORKSPACE_TYPE,
    CreationContext,
    EncodedObject,
    encode_new,
    encode_stored,
    minimal_resource,
)
from farflung.hub.tenancy.hashes import default_binding_name
from farflung.hub.tenancy.paths import WORKSPACES, logical_cluster_key, workspace_key
from farflung.hub.tenancy.status import mark_deleted
from farflung.hub.tenancy.workspaces import Tenancy
from farflung.machinery.errors import Obj
from farflung.store.base import ABSENT, Store

URL = "https://hub:6443"
ADMIN = User("kcp-admin", ("system:kcp:admin", "system:authenticated"), uid="1")
SHARD_ADMIN = User("shard-admin", ("system:masters", "system:authenticated"))
API_BINDING = minimal_resource("apis.kcp.io", "v1alpha1", "apibindings", "APIBinding")
CONFIG_MAP = minimal_resource("", "v1", "configmaps", "ConfigMap", namespaced=True)
NOW = "2024-05-01T12:00:00Z"


def everybody(cluster: str, name: str) -> bool:
    return True


class LocalTenancy:
    """A tenancy whose names and times can be foretold."""

    def __init__(self, store: Store, seed: str = "") -> None:
        self.store = store
        self._seed = seed
        self._numbers = itertools.count()
        self.tenancy = Tenancy(
            store,
            CreationContext(
                URL,
                clock=lambda: datetime(2024, 5, 1, 12, 0, 0, tzinfo=UTC),
                new_uid=self._new_uid,
                random_bytes=lambda size: hashlib.sha256(self._new_uid().encode()).digest()[:size],
            ),
        )
        self.tenancy.bind = self.bind
        self.clusters = self.tenancy.clusters

    def _new_uid(self) -> str:
        return f"uid-{self._seed}{next(self._numbers)}"

    @classmethod
    async def in_memory(cls) -> LocalTenancy:
        return await cls(MemoryStore(stamp=objects.stamp)).furnish()

    async def furnish(self) -> LocalTenancy:
        """A root without exports."""
        await self.tenancy.create_missing(ROOT_CLUSTER)
        await self.put(SHARD, "root", shard(URL))
        for obj in builtin_types():
            await self.put(WORKSPACE_TYPE, "root", obj)
        return self

    def bind(self, cluster: str, exports: Sequence[ExportReference], now: str) -> Iterable[EncodedObject]:
        for export in exports:
            name = default_binding_name(cluster, export.path, export.name)
            metadata = {"name": name, "finalizers": ["apis.kcp.io/apibinding-finalizer"]}
            yield encode_new(API_BINDING, cluster, {"metadata": metadata}, uid=self._new_uid(), now=now)

    # --- as requests would -------------------------------------------------------------------------

    async def create(self, cluster: str, name: str, user: User = ADMIN, /, **spec: Any) -> Obj:
        """A Workspace, as the write path makes one."""
        workspace: Obj = {"metadata": {"name": name}, "spec": dict(spec)}
        self.tenancy.admit(cluster, user, workspace, everybody)
        self.tenancy.check_new(cluster, user, workspace, everybody)
        workspace["metadata"] |= {"uid": self._new_uid(), "generation": 1}
        await self.tenancy.create_cluster(cluster, workspace)
        uid = workspace["metadata"]["uid"]
        key, value = encode_new(WORKSPACE, cluster, workspace, uid=uid, now=NOW)
        try:
            await self.store.put(key, value, expect=ABSENT)
        except BaseException:
            self.tenancy.abandon(workspace)
            raise
        return self.workspace(cluster, name)

    async def delete(self, cluster: str, name: str) -> None:
        """A Workspace, as the write path marks one."""
        key = workspace_key(cluster, name)
        entry = self.store.get(key)
        assert entry is not None
        obj = objects.decode(entry)
        if "deletionTimestamp" in obj["metadata"]:
            return
        mark_deleted(obj, NOW)
        await self.store.put(key, encode_stored(obj), expect=entry.revision)

    async def put(self, resource: Resource, cluster: str, obj: Obj) -> str:
        key, value = encode_new(resource, cluster, obj, uid=self._new_uid(), now=NOW)
        await self.store.put(key, value, expect=ABSENT)
        return key

    async def config_map(self, cluster: str, name: str, namespace: str = "default", **metadata: Any) -> str:
        return await self.put(
            CONFIG_MAP, cluster, {"metadata": {"name": name, "namespace": namespace, **metadata}, "data": {}}
        )

    async def release(self, key: str) -> None:
        """An object without its finalizers, as a patch leaves it; gone, if it was deleted."""
        entry = self.store.get(key)
        assert entry is not None
        obj = objects.decode(entry)
        obj["metadata"].pop("finalizers")
        if "deletionTimestamp" in obj["metadata"]:
            await self.store.delete(key, expect=entry.revision)
        else:
            await self.store.put(key, encode_stored(obj), expect=entry.revision)

    # --- what there is -----------------------------------------------------------------------------

    def workspace(self, cluster: str, name: str) -> Obj:
        return self.object(workspace_key(cluster, name))

    def logical_cluster(self, cluster: str) -> Obj:
        return self.object(logical_cluster_key(cluster))

    def object(self, key: str) -> Obj:
        entry = self.store.get(key)
        assert entry is not None, f"{key} is not there"
        return objects.decode(entry)

    def keys(self, cluster: str) -> list[str]:
        """Everything of a cluster."""
        return [
            entry.key
            for home in sorted(self.store.storage_prefixes())
            for entry in self.store.list(f"{home}{cluster}/").entries
        ]

    def stored(self) -> set[str]:
        return {entry.key for home in self.store.storage_prefixes() for entry in self.store.list(home).entries}

    def walked(self, text: str) -> str | None:
        """What a path means, looked up the slow way."""
        first, *names = text.split(":")
        cluster = first
        for name in names:
            present = (objects.decode(entry) for entry in self.store.list(WORKSPACES).entries)
            cluster = next(
                (
                    one["spec"].get("cluster", "")
                    for one in present
                    if one["metadata"]["annotations"]["kcp.io/cluster"] == cluster and one["metadata"]["name"] == name
                ),
                "",
            )
        return cluster if self.store.get(logical_cluster_key(cluster or "-")) else None


def workspace_controller(local: LocalTenancy) -> AbstractAsyncContextManager[WorkspaceController]:
    return running(local.store, local.tenancy)


@asynccontextmanager
async def running(store: Store, tenancy: Tenancy) -> AsyncIterator[WorkspaceController]:
    """A running workspace controller."""
    controller = WorkspaceController(store, tenancy)
    controller.start()

    async def run() -> None:
        async with asyncio.TaskGroup() as group:
            controller.queue.start(group)

    running = asyncio.create_task(run())
    try:
        yield controller
    finally:
        controller.stop()
        running.cancel()
        await asyncio.wait([running])
