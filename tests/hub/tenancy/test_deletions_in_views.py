"""Whoever watches through a view hears of the end of every object, however its workspace goes."""

from __future__ import annotations

import asyncio

import pytest
from fleet import EDGE, PROVIDER, TENANCY, Fleet, fleet
from hub_harness import Watch
from platform_harness import APIS, OPERATOR

from farflung.machinery.errors import Obj


async def view_of(one: Fleet) -> str:
    export = await one.do("GET", f"/clusters/{PROVIDER}{APIS}/apiexports/edge.kcp.io")
    assert export is not None
    url: str = export["status"]["virtualWorkspaces"][0]["url"]
    return f"/services/{url.partition('/services/')[2]}"


def still_there(watch: Watch) -> set[str]:
    there: set[str] = set()
    for event in watch.events:
        name = event["object"]["metadata"].get("name")
        if event["type"] in ("ADDED", "MODIFIED"):
            there.add(name)
        elif event["type"] == "DELETED":
            there.discard(name)
    return there


@pytest.mark.parametrize("writers", [1, 4])
async def test_an_object_that_is_written_while_its_workspace_goes_is_not_left_to_whoever_watches(writers: int) -> None:
    async with fleet() as one:
        view = await view_of(one)
        cluster = await one.hub.workspace("shop")
        await one.hub.bind(cluster, "edge", PROVIDER, "edge.kcp.io")
        for number in range(writers):
            await one.placement(cluster, f"p{number}", {})
        watch = await one.hub.watch(f"{view}/clusters/*{EDGE}/edgeplacements")
        await watch.next(writers)

        async def write(name: str) -> None:
            path, count = f"{view}/clusters/{cluster}{EDGE}/edgeplacements/{name}", 0
            while True:
                answer = await one.hub.of(OPERATOR, "GET", path)
                if answer.status != 200:
                    return
                obj: Obj = answer.json
                obj["status"] = {"matchingLocationCount": count, "specGeneration": 1}
                count += 1
                await one.hub.of(OPERATOR, "PUT", f"{path}/status", obj)
                await asyncio.sleep(0)  # others take their turn

        writing = [asyncio.create_task(write(f"p{number}")) for number in range(writers)]
        await one.do("DELETE", f"/clusters/root{TENANCY}/workspaces/shop")
        await asyncio.gather(*writing)
        await one.eventually(lambda: not one.hub.stored(cluster), "the end of the workspace")
        await one.eventually(lambda: not still_there(watch), "the end of what was in it")
