"""A hub with workspaces, without sockets and housekeeping, and a client that calls it as a function."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from hub_harness import ADMIN_TOKEN, USER_TOKEN, LocalHub

from farflung.hub import objects
from farflung.hub.app import Hub
from farflung.hub.auth.authenticate import Authenticator
from farflung.hub.auth.keys import SigningKeys
from farflung.hub.auth.service_accounts import AccountTokens
from farflung.hub.auth.tokens import StaticTokens, token_hash
from farflung.hub.auth.user import ADMINISTRATORS, User
from farflung.hub.custom.registry import kinds_in
from farflung.hub.policies.registry import Policies
from farflung.hub.pools import Pools
from farflung.hub.quotas import Quotas
from farflung.hub.verbs.call import Tools
from farflung.hub.verbs.watch import Watches
from farflung.hub.workspaces.access import OPERATORS, WorkspaceAuthorizer
from farflung.hub.workspaces.platform import in_every_workspace, platform
from farflung.lib import ids
from farflung.machinery.errors import Obj
from farflung.store.base import Store
from farflung.store.memory import MemoryStore

URL = "https://hub:6443"
OPERATOR_TOKEN = "the-token-of-the-operator"
USERS = {
    token_hash(ADMIN_TOKEN): User("shard-admin", (ADMINISTRATORS, "system:authenticated")),
    token_hash(OPERATOR_TOKEN): User("kcp-admin", (OPERATORS, "system:authenticated"), uid="1"),
    token_hash(USER_TOKEN): User("somebody", ("system:authenticated",)),
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


class LocalWorkspaces(LocalHub):
    """Requests are those of kcp-admin, unless `token` is set."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.now = datetime(2024, 5, 1, 12, 0, 0, tzinfo=UTC)
        self.suffix: Callable[[], str] = ids.random_suffix
        self.token: str | None = OPERATOR_TOKEN
        kinds, uids = kinds_in(store, in_every_workspace()), ids.Uids()
        authorizer = WorkspaceAuthorizer(store)
        self.authorizer, self.quotas, self.policies = authorizer, Quotas(store), Policies(store, kinds)

        def clock() -> datetime:
            return self.now

        def suffix() -> str:
            return self.suffix()

        self.platform = platform(
            store, kinds, authorizer, url=URL, clock=clock, new_uid=uids, random=secrets.token_bytes, authority=""
        )
        self.accounts = AccountTokens(store, SigningKeys.new(), clock, uids)
        tools = Tools(
            store,
            kinds,
            Pools(store),
            self.quotas,
            clock,
            uids,
            suffix,
            authorizer,
            self.accounts,
            self.policies,
        )
        tools = replace(tools, annotates=True, extension=self.platform.writes, views=self.platform.views)
        self.authenticator = Authenticator(StaticTokens(USERS), self.accounts, clock)
        self.watches = Watches(store, longest=lambda: 3600)
        self.function = Hub(kinds, tools, self.authenticator, self.watches, routes=self.platform.routes)

    @classmethod
    async def started(cls, store: Store | None = None, *, bare: bool = True) -> LocalWorkspaces:
        hub = cls(store or MemoryStore(stamp=objects.stamp))
        await hub.platform.bootstrap.start(bare=bare)
        return hub

    async def workspace(self, parent: str, name: str, **spec: Any) -> Obj:
        """A new one that certainly can be, as its creation answers it."""
        return await self.create(workspaces_of(parent), workspace(name, **spec))
