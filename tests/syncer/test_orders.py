"""What is heard late changes nothing: cases that only some orders of events bring about."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from fleet import PROVIDER, TENANCY
from partition_end import agreed, at_rest
from partition_laws import is_going
from partition_menu import BORN, PARTS, SPECS
from partition_world import World
from syncing import MAPS

from farflung.client.resource import Collection
from farflung.client.transport import Request
from farflung.machinery.errors import Obj
from farflung.syncer.values import FINALIZER

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


async def test_what_an_edge_lost_comes_back_although_its_mailbox_ends_at_that_moment(tmp_path: Path) -> None:
    async with at_rest(tmp_path) as world:
        fleet, before = world.link.fleet, world.mailbox_cluster()
        world.line("edge").go_down()
        await world.restart_edge(empty=True)
        await fleet.crash()  # nobody lets go of what is in the mailbox
        name = world.link.path.rpartition(":")[2]
        await fleet.do("DELETE", f"/clusters/{PROVIDER}{TENANCY}/workspaces/{name}")

        def ends() -> bool:
            held = world.hub_store.held(before)
            return all(is_going(held[part]) for part in PARTS)

        await world.link.eventually(ends, "the end of all copies")
        await world.turns(MANY)
        world.line("edge").up = True
        await world.turns(MANY)
        await fleet.start(scheduler=False, mailboxes=True)
        await fleet.eventually(lambda: world.mailbox_cluster() not in ("", before), "another mailbox")
        await world.link.eventually(lambda: set(PARTS) <= set(world.objects()), "all that was there")


async def test_a_copy_that_somebody_lets_go_in_our_place_is_held_again(tmp_path: Path) -> None:
    """As in a hub that was restored from a backup of before we held it."""
    async with at_rest(tmp_path) as world:
        await world.link.mailbox.patch(MAPS, "a", {"metadata": {"finalizers": None}}, "shop")

        async def held() -> bool:
            return FINALIZER in (await world.link.mailbox.get(MAPS, "a", "shop"))["metadata"].get("finalizers", ())

        await world.link.eventually(held, "our finalizer")
