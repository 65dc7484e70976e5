"""Home workspaces: created at a user's first request for it."""

from __future__ import annotations

import asyncio

from farflung.apis.kcp.names import OWNER_ANNOTATION, TENANCY_GROUP
from farflung.hub.catalog import objects
from farflung.hub.request.user import User
from farflung.hub.tenancy import workspace_types as types
from farflung.hub.tenancy.hashes import home_cluster_name
from farflung.hub.tenancy.paths import ROOT, home_path, logical_cluster_key
from farflung.hub.tenancy.workspaces import NewCluster, Tenancy, owner_name, owner_text
from farflung.machinery.errors import Obj, forbidden
from farflung.store.base import Store

NAME = "~"  #: the name of every user's home in root
TYPE = "home"


class HomeWorkspaces:
    """Concurrent requests create a home once."""

    def __init__(self, store: Store, tenancy: Tenancy) -> None:
        self._store = store
        self._tenancy = tenancy
        self._creating: dict[str, asyncio.Task[Obj]] = {}

    def exists(self, user: User) -> bool:
        return self._tenancy.clusters.exists(home_cluster_name(user.name))

    async def workspace(self, user: User) -> Obj:
        """The response to `GET …/workspaces/~`, which is not stored.  The caller has checked permissions.  Raises 403
        for users of a single cluster."""
        name = owner_name(owner_text(user))
        if not name:
            raise forbidden(TENANCY_GROUP, "workspaces", NAME, "users of a single workspace have no home workspace")
        cluster = home_cluster_name(name)
        entry = self._store.get(logical_cluster_key(cluster))
        return home_workspace(
            cluster, await self._create_once(cluster, name) if entry is None else objects.decode(entry)
        )

    async def _create_once(self, cluster: str, user: str) -> Obj:
        creating = self._creating.get(cluster)
        if creating is None:
            creating = self._creating[cluster] = asyncio.create_task(self._create(cluster, user))
            creating.add_done_callback(lambda task: self._creating.pop(cluster, None))
        return await asyncio.shield(creating)

    async def _create(self, cluster: str, user: str) -> Obj:
        try:
            lineage = self._tenancy.lineage_of(ROOT, TYPE)
        except types.WorkspaceTypeRefused as refused:
            raise forbidden(TENANCY_GROUP, "workspaces", NAME, str(refused)) from None
        new = NewCluster(
            cluster,
            home_path(user),
            lineage[-1].qualified,
            types.initializers(lineage),
            types.bindings(lineage),
            {OWNER_ANNOTATION: owner_text(User(user))},
            admin=user,
        )
        return await self._tenancy.create_missing(new)


def home_workspace(cluster: str, logical_cluster: Obj) -> Obj:
    """The Workspace of a home, which is not stored."""
    status = logical_cluster["status"]
    shown = {"phase": status["phase"], "conditions": status.get("conditions", [])}
    if status.get("initializers"):
        shown["initializers"] = status["initializers"]
    return {
        "kind": "Workspace",
        "apiVersion": "tenancy.kcp.io/v1alpha1",
        "metadata": {"name": "cluster", "creationTimestamp": logical_cluster["metadata"]["creationTimestamp"]},
        "spec": {"type": {"name": ""}, "cluster": cluster, "URL": status["URL"]},
        "status": shown,
    }
