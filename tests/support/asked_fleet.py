"""A hub with an inventory, mailboxes and placements, without sockets and controllers: tests write what those would."""

from __future__ import annotations

from datetime import UTC, datetime

from asked_hub import BINDINGS, AskedHub, custom

from farflung.apis.edge.names import EDGE_PLACEMENTS
from farflung.apis.kcp.names import SYNC_TARGETS
from farflung.apis.names import Collection
from farflung.client.rest import Client
from farflung.machinery.errors import Obj

PROVIDER = "root:espw"
WORKSPACES = Collection("tenancy.kcp.io", "v1alpha1", "workspaces", "Workspace")
CONFIGS = Collection("edge.kcp.io", "v1alpha1", "syncerconfigs", "SyncerConfig")
SUMMARIES = Collection("edge.kcp.io", "v1alpha1", "statussummaries", "StatusSummary")
DEFINITIONS = Collection("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition")
NAMESPACES = Collection("", "v1", "namespaces", "Namespace")
NOW = datetime(2024, 5, 1, 12, tzinfo=UTC)
BEAT = "2024-05-01T11:59:50Z"


class AskedFleet(AskedHub):
    async def edge(self, name: str, *, mailbox: bool = True) -> Client:
        """A SyncTarget with a Location of its name.  Its mailbox."""
        target = await self.target(name, id=name)
        await self.location(name, {"id": name})
        box = f"{self.cluster}-mb-{target['metadata']['uid']}"
        if mailbox:
            await self._make(box)
        return self.client.workspace(f"{PROVIDER}:{box}")

    async def _make(self, box: str) -> None:
        spec = {"type": {"name": "universal", "path": "root"}}
        await self.client.workspace(PROVIDER).create(WORKSPACES, custom(WORKSPACES, box, **spec))
        client = self.client.workspace(f"{PROVIDER}:{box}")
        export = {"export": {"path": PROVIDER, "name": "edge.kcp.io"}}
        await client.create(BINDINGS, custom(BINDINGS, "edge", reference=export))
        await client.create(CONFIGS, custom(CONFIGS, "the-one"))

    async def judge(self, name: str, heard: str = BEAT, /, **conditions: str) -> None:
        """What the hub says of a SyncTarget: type of condition = status."""
        said = [
            {"type": type, "status": status, "reason": f"{type}Said", "lastTransitionTime": BEAT}
            for type, status in conditions.items()
        ]
        status = {"lastSyncerHeartbeatTime": heard or None, "conditions": said}
        await self.inventory.patch(SYNC_TARGETS, name, {"status": status}, subresource="status")

    async def told(self, name: str, *conditions: Obj) -> None:
        """What controllers say of a placement, of its present generation."""
        generation = (await self.client.get(EDGE_PLACEMENTS, name))["metadata"]["generation"]
        said = [{"lastTransitionTime": BEAT, **one} for one in conditions]
        status = {"matchingLocationCount": 1, "specGeneration": generation, "conditions": said}
        await self.client.patch(EDGE_PLACEMENTS, name, {"status": status}, subresource="status")


async def report(mailbox: Client, **status: object) -> None:
    await mailbox.patch(CONFIGS, "the-one", {"status": status}, subresource="status")
