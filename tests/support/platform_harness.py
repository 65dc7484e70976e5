"""A whole hub with workspaces, without sockets; its clock, names and chance can be foretold."""

from __future__ import annotations

import contextlib
import itertools
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

from hub_harness import ADMIN_TOKEN, Answer, LocalHub, Query
from memory_store import MemoryStore

from farflung.hub.admission.placement_specs import SpecProblem
from farflung.hub.assembly import Options
from farflung.hub.catalog import objects
from farflung.hub.catalog.served import Kinds
from farflung.hub.controllers.manager import ControllerManager
from farflung.hub.request.user import ADMINISTRATORS, AUTHENTICATED, User
from farflung.hub.tenancy.controller_roles import CONTROLLERS, user_of
from farflung.hub.tenancy.workspace_authorizer import OPERATORS
from farflung.machinery.errors import Obj
from farflung.store.base import Store

URL = "https://hub:6443"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
APIS = "/apis/apis.kcp.io/v1alpha1"
TENANCY = "/apis/tenancy.kcp.io/v1alpha1"
MAPS = "/api/v1/namespaces/default/configmaps"
#: kinds of custom resources, which bodies must name
KINDS = {
    "workspaces": "Workspace",
    "workspacetypes": "WorkspaceType",
    "apiresourceschemas": "APIResourceSchema",
    "apiexports": "APIExport",
    "apibindings": "APIBinding",
    "apiexportendpointslices": "APIExportEndpointSlice",
    "widgets": "Widget",
}
OPERATOR, MASTER, ALICE, BOB = "operator", "master", "alice", "bob"
USERS = {
    OPERATOR: User("kcp-admin", (OPERATORS, AUTHENTICATED)),
    MASTER: User("shard-admin", (ADMINISTRATORS, AUTHENTICATED)),
    ALICE: User("alice", (AUTHENTICATED,)),
    BOB: User("bob", (AUTHENTICATED,)),
    ADMIN_TOKEN: User("system:kube-controller-manager", (ADMINISTRATORS,)),
    **{user: User(user, (AUTHENTICATED,)) for user in map(user_of, CONTROLLERS)},
}

#: what the last hubs serve: the next ones have the same schemas, and need not compile them
RECENT: deque[Kinds] = deque(maxlen=4)


class PlatformHub(LocalHub):
    """`token` is whose requests are sent; `of` sends one of somebody else."""

    def __init__(
        self,
        store: Store | None = None,
        *,
        users: dict[str, User] | None = None,
        numbers: Iterator[int] | None = None,
        options: Options = Options(URL),  # noqa: B008  immutable
        placement_problem: SpecProblem | None = None,
    ) -> None:
        """`numbers`: what uids are made of; who goes on with the store of another hub hands on those of that one."""
        numbers, suffixes = numbers or itertools.count(1), itertools.count(1)
        self.new_uid: Callable[[], str] = lambda: f"00000000-0000-4000-8000-{next(numbers):012x}"
        super().__init__(
            MemoryStore(stamp=objects.stamp) if store is None else store,
            options=options,
            users=USERS | (users or {}),
            new_uid=self.new_uid,
            placement_problem=placement_problem,
        )
        self.suffix = lambda: f"{next(suffixes):05x}"
        self.token = OPERATOR
        assert self.assembly.workspaces is not None
        self.platform, self.kinds = self.assembly.workspaces, self.assembly.kinds
        RECENT.append(self.kinds)

    @property
    def controllers(self) -> ControllerManager:
        return self.assembly.controllers

    async def of(
        self, token: str | None, method: str, path: str, body: Any = None, query: Query | str = "", **headers: str
    ) -> Answer:
        """Somebody's request; nobody's without a token."""
        before, self.token = self.token, token
        try:
            return await self.request(method, path, typed(path, body), query=query, **headers)
        finally:
            self.token = before

    async def made(self, token: str, path: str, obj: Obj) -> Obj:
        """What somebody certainly can create."""
        answer = await self.of(token, "POST", path, obj)
        assert answer.status == 201, answer.body
        created: Obj = answer.json
        return created

    # --- workspaces ---------------------------------------------------------------------------------

    async def workspace(self, name: str, owner: str = "", *, parent: str = "root", by: str = OPERATOR) -> str:
        """A workspace and somebody who may do everything in it; its cluster."""
        spec = {"type": {"name": "universal", "path": "root"}}
        made = await self.made(
            by, f"/clusters/{parent}{TENANCY}/workspaces", {"metadata": {"name": name}, "spec": spec}
        )
        cluster: str = made["spec"]["cluster"]
        if owner:
            await self.made(
                by, f"/clusters/{cluster}{RBAC}/clusterrolebindings", binding("owner", owner, "cluster-admin")
            )
        return cluster

    async def grant(self, cluster: str, name: str, user: str, *rules: Obj) -> None:
        """What somebody may do in a workspace, beside what they may do already."""
        at = f"/clusters/{cluster}{RBAC}"
        await self.made(OPERATOR, f"{at}/clusterroles", {"metadata": {"name": name}, "rules": list(rules)})
        await self.made(OPERATOR, f"{at}/clusterrolebindings", binding(name, user, name))

    async def robot(self, cluster: str, *, role: str = "cluster-admin", namespace: str = "default") -> str:
        """A token of a workspace's ServiceAccount."""
        at = f"/clusters/{cluster}/api/v1/namespaces/{namespace}/serviceaccounts"
        await self.of(OPERATOR, "POST", at, {"metadata": {"name": "robot"}})
        subject = {"kind": "ServiceAccount", "name": "robot", "namespace": namespace}
        bound = {**binding("robot", "", role), "subjects": [subject]}
        await self.of(OPERATOR, "POST", f"/clusters/{cluster}{RBAC}/clusterrolebindings", bound)
        review: Obj = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        return str((await self.made(OPERATOR, f"{at}/robot/token", review))["status"]["token"])

    # --- exports ------------------------------------------------------------------------------------

    async def export(self, cluster: str, name: str, schema: Obj, by: str = OPERATOR, **spec: Any) -> Obj:
        await self.made(by, f"/clusters/{cluster}{APIS}/apiresourceschemas", schema)
        wanted = {"latestResourceSchemas": [schema["metadata"]["name"]], **spec}
        return await self.made(
            by, f"/clusters/{cluster}{APIS}/apiexports", {"metadata": {"name": name}, "spec": wanted}
        )

    async def bind(self, cluster: str, name: str, path: str, export: str, by: str = OPERATOR, **spec: Any) -> Obj:
        return await self.made(by, f"/clusters/{cluster}{APIS}/apibindings", api_binding(name, path, export, **spec))

    # --- what there is ------------------------------------------------------------------------------

    def stored(self, cluster: str = "") -> dict[str, bytes]:
        """Everything, or everything of one cluster."""
        return {
            entry.key: entry.value
            for home in sorted(self.store.storage_prefixes())
            for entry in self.store.list(f"{home}{cluster}/" if cluster else home).entries
        }

    @asynccontextmanager
    async def running_controllers(self) -> AsyncIterator[ControllerManager]:
        """With running controllers."""
        await self.controllers.start()
        try:
            yield self.controllers
        finally:
            with contextlib.suppress(TimeoutError):
                await self.controllers.stop()


async def platform_hub(store: Store | None = None, *, users: dict[str, User] | None = None) -> PlatformHub:
    hub = PlatformHub(store, users=users)
    await hub.platform.bootstrap.start(bare=True)
    async with hub.running_controllers():
        pass  # the default roles
    return hub


def typed(path: str, body: Any) -> Any:
    """A body that says what it is, if it is a custom object and does not yet."""
    *_, group, version, plural = path.split("/") if "/apis/" in path else ("", "", "")
    if not isinstance(body, dict) or "kind" in body or plural not in KINDS:
        return body
    return {"apiVersion": f"{group}/{version}", "kind": KINDS[plural], **body}


def binding(name: str, user: str, role: str) -> Obj:
    group = "rbac.authorization.k8s.io"
    return {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
    }


def api_binding(name: str, path: str, export: str, **spec: Any) -> Obj:
    return {"metadata": {"name": name}, "spec": {"reference": {"export": {"path": path, "name": export}}, **spec}}
