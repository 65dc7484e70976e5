"""A hub with workspaces, without sockets and controllers, and a client that calls it as a function."""

from __future__ import annotations

from typing import Any

from hub_harness import ADMIN_TOKEN, USER_TOKEN
from platform_harness import PlatformHub

from farflung.hub.request.user import ADMINISTRATORS, User
from farflung.hub.tenancy.workspace_authorizer import OPERATORS
from farflung.lib import ids
from farflung.machinery.errors import Obj
from farflung.store.base import Store

OPERATOR_TOKEN = "the-token-of-the-operator"
USERS = {
    ADMIN_TOKEN: User("shard-admin", (ADMINISTRATORS, "system:authenticated")),
    OPERATOR_TOKEN: User("kcp-admin", (OPERATORS, "system:authenticated"), uid="1"),
    USER_TOKEN: User("somebody", ("system:authenticated",)),
}
TENANCY = "apis/tenancy.kcp.io/v1alpha1"


def workspaces_of(cluster: str, name: str = "") -> str:
    path = f"/clusters/{cluster}/{TENANCY}/workspaces"
    return f"{path}/{name}" if name else path


def types_of(cluster: str, name: str = "") -> str:
    path = f"/clusters/{cluster}/{TENANCY}/workspacetypes"
    return f"{path}/{name}" if name else path


def workspace(name: str = "", **spec: Any) -> Obj:
    """To be created."""
    return _tenancy("Workspace", name, spec)


def workspace_type(name: str, **spec: Any) -> Obj:
    """To be created."""
    return _tenancy("WorkspaceType", name, spec)


def _tenancy(kind: str, name: str, spec: Obj) -> Obj:
    metadata = {"name": name} if name else {}
    return {"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec}


class LocalWorkspaces(PlatformHub):
    """Requests are those of kcp-admin, unless `token` is set."""

    def __init__(self, store: Store | None = None) -> None:
        super().__init__(store, users=USERS)
        self.suffix = ids.random_suffix
        self.token = OPERATOR_TOKEN

    @classmethod
    async def started(cls, store: Store | None = None, *, bare: bool = True) -> LocalWorkspaces:
        hub = cls(store)
        await hub.platform.bootstrap.start(bare=bare)
        return hub

    async def new_workspace(self, parent: str, name: str, **spec: Any) -> Obj:
        """One that certainly can be, as its creation answers it."""
        return await self.create(workspaces_of(parent), workspace(name, **spec))
