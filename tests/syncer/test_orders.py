"""What is heard late changes nothing: cases that only some orders of events bring about."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from partition_end import agreed, at_rest
from partition_menu import BORN, SPECS
from partition_world import World

from farflung.client.resource import Collection
from farflung.client.transport import Request
from farflung.machinery.errors import Obj

OLD_CONFIGS = Collection("edge.kcp.io", "v1alpha1", "edgesyncconfigs", "EdgeSyncConfig")
MANY = 2000  #: turns of the loop, after which everybody has done what could be done


def born(world: World) -> dict[str, str]:
    """The uids of what came from the edge."""
    copies = world.copies()
    return {part.name: copies[part]["metadata"]["uid"] for part in BORN if part in copies}


def old_config(*names: str) -> Obj:
    up = [{"group": "", "version": "v1", "kind": "ConfigMap", "namespace": "local", "name": name} for name in names]
    return {
        "apiVersion": "edge.kcp.io/v1alpha1",
        "kind": OLD_CONFIGS.kind,
        "metadata": {"name": "old"},
        "spec": {"upSyncedResources": up},
    }


@pytest.mark.parametrize("late", ["syncerconfigs", "edgesyncconfigs"])
async def test_what_came_from_the_edge_stays_in_the_mailbox_until_it_is_known_what_is_wanted(
    tmp_path: Path, late: str
) -> None:
    heard = asyncio.Event()

    async def gate(request: Request) -> None:
        if f"/{late}?" in request.target:
            await heard.wait()

    async with at_rest(tmp_path) as world:
        await world.link.mailbox.create(OLD_CONFIGS, old_config(*(part.name for part in BORN)))
        if late == "edgesyncconfigs":
            await world.link.configure({**SPECS[0], "upsync": []})
        await world.link.settled()
        before = born(world)
        await world.link.stop()
        world.link.up.gate = gate
        await world.link.start()
        await world.turns(MANY)
        heard.set()
        await world.link.settled()
        assert born(world) == before
        await world.configure(0)
        await agreed(world)
        assert born(world) == before
