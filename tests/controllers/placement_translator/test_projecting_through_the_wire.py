"""Copies on a server: what it makes of them is no difference, and what changes at the source reaches them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from hub_harness import MERGE_PATCH, LocalHub
from platform_harness import MASTER, PlatformHub
from workload import BUILTIN, COMPUTE, EVERYWHERE, Example, example

from farflung.apis.edge.names import PROJECTED
from farflung.machinery.errors import Obj
from farflung.placement.project import make_copy, strip, update_of

BINDING = example(
    "/apis/apis.kcp.io/v1alpha1/apibindings",
    "APIBinding",
    "kubernetes",
    spec={"reference": {"export": {"path": "root:compute", "name": "kubernetes"}}},
)


class Place:
    """A workspace, or a whole hub."""

    def __init__(self, hub: LocalHub, prefix: str = "") -> None:
        self.hub = hub
        self.prefix = prefix

    async def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Obj:
        answer = await self.hub.request(method, self.prefix + path, body, **headers)
        assert answer.status < 300, (method, path, answer.body)
        found: Obj = answer.json
        return found

    async def get(self, path: str) -> Obj:
        return await self.ask("GET", path)


@asynccontextmanager
async def workspaces() -> AsyncIterator[tuple[Place, Place]]:
    hub = PlatformHub()
    await hub.platform.bootstrap.start(bare=False)
    async with hub.running_controllers():
        places = [Place(hub, f"/clusters/{await hub.workspace(name)}") for name in ("wmw", "mailbox")]
        hub.token = MASTER
        yield places[0], places[1]


async def wanted_of(source: Place, example: Example) -> Obj:
    found = await source.get(example.path)
    bare = strip(found)
    assert strip(bare) == bare
    return make_copy(bare, placements=["wmw"])


async def travels(source: Place, mailbox: Place, example: Example) -> None:
    """Created, then changed at the source, then touched by others, it is always as it is wanted, after one write."""
    await source.ask("POST", example.collection, example.obj)
    wanted = await wanted_of(source, example)
    await mailbox.ask("POST", example.collection, wanted)
    assert update_of(await mailbox.get(example.path), wanted) is None, "what the server made of it is no difference"
    await source.ask("PATCH", example.path, example.change, content_type=MERGE_PATCH)
    await follows(source, mailbox, example)
    copy = await mailbox.get(example.path)
    assert copy["metadata"]["labels"].get("app") is None
    assert copy["metadata"]["labels"]["tier"] == "back"
    others = {"metadata": {"labels": {PROJECTED: "no", "theirs": "x"}, "annotations": {"theirs": "y", "note": "z"}}}
    await mailbox.ask("PATCH", example.path, others, content_type=MERGE_PATCH)
    await source.ask("PATCH", example.path, {"metadata": {"annotations": None}}, content_type=MERGE_PATCH)
    await follows(source, mailbox, example)
    metadata = (await mailbox.get(example.path))["metadata"]
    assert metadata["labels"]["theirs"] == "x"
    assert metadata["annotations"]["theirs"] == "y"
    assert "note" not in metadata["annotations"]


async def follows(source: Place, mailbox: Place, example: Example) -> None:
    wanted = await wanted_of(source, example)
    put = update_of(await mailbox.get(example.path), wanted)
    assert put is not None
    await mailbox.ask("PUT", example.path, put)
    assert update_of(await mailbox.get(example.path), wanted) is None


async def test_workloads_travel_from_workspace_to_workspace() -> None:
    async with workspaces() as (source, mailbox):
        for one in [BINDING, *EVERYWHERE, *COMPUTE]:
            await travels(source, mailbox, one)


async def test_every_built_in_kind_travels_from_server_to_server() -> None:
    source, mailbox = await builtin_place(), await builtin_place()
    for one in BUILTIN:
        await travels(source, mailbox, one)


async def builtin_place() -> Place:
    return Place(await LocalHub.in_memory().furnish())
