"""A hub with controllers and without sockets, for tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import datetime, timedelta
from typing import Any, Self

from hub_harness import NEW_UID, authority, hashed
from memory_store import MemoryStore
from simulated_time import now

from farflung.http.certificates import CertificateHolder
from farflung.hub.assembly import Assembly, HubDependencies, Options, TimeAndRandomness
from farflung.hub.auth.signing_keys import SigningKeys
from farflung.hub.catalog import objects
from farflung.hub.controllers.loopback import LoopbackClient
from farflung.hub.controllers.namespaces import Pace
from farflung.hub.endpoints.logs import LogOptions, Nodes
from farflung.hub.request.user import ADMINISTRATORS, User
from farflung.machinery.errors import ApiError, Obj

TOKEN = "a-token"
AT_ONCE = Pace(grace=0, again=0, gather=0)
KINDS = {
    "persistentvolumeclaims": "/api/v1/namespaces/{}/persistentvolumeclaims",
    "persistentvolumes": "/api/v1/persistentvolumes",
    "configmaps": "/api/v1/namespaces/{}/configmaps",
    "secrets": "/api/v1/namespaces/{}/secrets",
    "pods": "/api/v1/namespaces/{}/pods",
    "serviceaccounts": "/api/v1/namespaces/{}/serviceaccounts",
    "deployments": "/apis/apps/v1/namespaces/{}/deployments",
    "namespaces": "/api/v1/namespaces",
    "clusterroles": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
}


class SilentNodes:
    """Nodes whose pods write no logs."""

    async def logs(self, node: str, wanted: LogOptions, ended: Callable[[], bool]) -> AsyncIterator[bytes]:
        return
        yield b""


class House:
    """The store outlives the hub: `restart` is a crash and a new start."""

    def __init__(self, store: MemoryStore | None = None, pace: Pace = AT_ONCE, nodes: Nodes | None = None) -> None:
        """`nodes`: of a cluster that runs pods, and so no virtual machines."""
        self.store = store or MemoryStore(stamp=objects.stamp)
        self.keys = SigningKeys.new()
        self.ahead = timedelta(0)  #: of the real time
        self._pace = pace
        self._nodes = nodes
        self._build()

    def _build(self) -> None:
        users = hashed({TOKEN: User("admin", (ADMINISTRATORS,))})
        options, sources = Options(pace=self._pace), TimeAndRandomness(clock=self.clock, new_uid=NEW_UID)
        self.certificates = CertificateHolder(authority())
        dependencies = HubDependencies(self.store, self.keys, self.certificates, users, nodes=self._nodes)
        self.assembly = Assembly(dependencies, options, sources)
        self.hub, self.controllers = self.assembly.hub, self.assembly.controllers
        self.client = LoopbackClient(self.hub, f"Bearer {TOKEN}", "test/1.0")

    def clock(self) -> datetime:
        return now() + self.ahead

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        await self.assembly.start()

    async def stop(self) -> None:
        await self.assembly.stop()

    async def restart(self, after: int = 0) -> None:
        """Crash after so many turns of the loop, and start anew on what is in the store."""
        for _ in range(after):
            await asyncio.sleep(0)
        await self.stop()
        self._build()
        await self.start()

    async def settle(self) -> None:
        async with asyncio.timeout(60):
            await self.controllers.finished()

    # --- what a client does -----------------------------------------------------------------------

    def path(self, kind: str, name: str = "", namespace: str = "default") -> str:
        return KINDS[kind].format(namespace) + (f"/{name}" if name else "")

    async def create(self, kind: str, name: str, namespace: str = "default", **metadata: Any) -> Obj:
        obj: Obj = {"metadata": {"name": name, **metadata}}
        if kind == "pods":
            obj["spec"] = {"containers": [{"name": "c", "image": "nginx"}]}
        created: Obj = await self.client.request("POST", self.path(kind, namespace=namespace), obj)
        return created

    async def find(self, kind: str, name: str, namespace: str = "default") -> Obj | None:
        try:
            found: Obj = await self.client.request("GET", self.path(kind, name, namespace))
        except ApiError as error:
            assert error.code == 404
            return None
        return found

    async def get(self, kind: str, name: str, namespace: str = "default") -> Obj:
        found = await self.find(kind, name, namespace)
        assert found is not None, f"{kind} {name} in {namespace}"
        return found

    async def names(self, kind: str, namespace: str = "default") -> list[str]:
        listed = await self.client.request("GET", self.path(kind, namespace=namespace))
        return [item["metadata"]["name"] for item in listed["items"]]

    async def patch(self, kind: str, name: str, change: Obj, namespace: str = "default") -> None:
        media = "application/merge-patch+json"
        await self.client.request("PATCH", self.path(kind, name, namespace), change, media=media)

    async def delete(self, kind: str, name: str, namespace: str = "default", policy: str = "Background") -> None:
        await self.client.request("DELETE", self.path(kind, name, namespace), query=f"propagationPolicy={policy}")


def owned_by(owner: Obj, *, block: bool | None = None) -> Obj:
    metadata = owner["metadata"]
    reference = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": metadata["name"],
        "uid": metadata["uid"],
    }
    return reference if block is None else reference | {"blockOwnerDeletion": block}
