"""A disk that refuses some of what a new workspace consists of: there is no Workspace without its cluster."""

from __future__ import annotations

import pytest
from memory_store import MemoryStore
from platform_harness import OPERATOR, TENANCY, PlatformHub, platform_hub

from farflung.hub.catalog import objects
from farflung.store.base import Entry, Revision, Unavailable

WORKSPACES = f"/clusters/root{TENANCY}/workspaces"
SPEC = {"type": {"name": "universal", "path": "root"}}


class Refusing(MemoryStore):
    """Refuses one write of a kind, as a disk that is full for a moment, and does the others."""

    def __init__(self) -> None:
        super().__init__(stamp=objects.stamp)
        self.refused = ""

    async def put(self, key: str, value: bytes, *, expect: Revision) -> Entry:
        if self.refused and key.startswith(self.refused):
            self.refused = ""
            raise Unavailable("the disk is full")
        return await super().put(key, value, expect=expect)


async def made(hub: PlatformHub, name: str) -> int:
    return (await hub.of(OPERATOR, "POST", WORKSPACES, {"metadata": {"name": name}, "spec": SPEC})).status


@pytest.mark.parametrize(
    "refused",
    [
        "/core.kcp.io/logicalclusters/",
        "/core/namespaces/",
        "/rbac.authorization.k8s.io/clusterrolebindings/",
        "/apis.kcp.io/apibindings/",
        "/tenancy.kcp.io/workspaces/",
    ],
)
async def test_what_a_workspace_needs_and_cannot_be_written_leaves_nothing_behind(refused: str) -> None:
    store = Refusing()
    hub = await platform_hub(store)
    async with hub.running_controllers() as controllers:
        await controllers.finished()
        before = hub.stored().keys()
        store.refused = refused
        assert await made(hub, "shop") == 503
        assert store.refused == ""
        assert (await hub.of(OPERATOR, "GET", f"{WORKSPACES}/shop")).status == 404
        await controllers.finished()
        assert hub.stored().keys() == before
        assert await made(hub, "shop") == 201
