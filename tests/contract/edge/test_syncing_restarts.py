"""A syncer that is started again goes on where it was, and does nothing that is done already."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from edge_contract import PATIENCE, Link, Write
from edge_objects import DEFINITIONS, DEPLOYMENTS, MAPS, SECRETS, definition, deployment, obj, scope, upsync, whole

from farflung.apis.names import Collection
from farflung.client.rest import ListOptions
from farflung.machinery.errors import Obj


async def furnished(link: Link, count: int = 5) -> tuple[str, Collection]:
    """Something of everything.  A namespace, and a kind of its own."""
    widgets, namespace = link.kind("widgets", "Widget"), await link.put_namespace("shop")
    described = definition(widgets)
    await link.define(link.mailbox, widgets=described)
    for number in range(count):
        await link.put_map(namespace, f"map-{number}", tea="3")
    await link.put(SECRETS, obj(SECRETS, "key", {"stringData": {"a": "b"}}), namespace)
    await link.put(DEPLOYMENTS, deployment("web"), namespace)
    await link.put(widgets, obj(widgets, "placed", {"spec": {"size": 1}}), namespace)
    await link.configure(
        namespaceScope=scope([namespace], MAPS, SECRETS, DEPLOYMENTS, widgets),
        clusterScope=[whole(DEFINITIONS, described["metadata"]["name"])],
        upsync=[upsync(widgets.group, ["widgets"], ["*"], ["*"])],
    )
    await link.register()
    return namespace, widgets


async def busy(link: Link, namespace: str, widgets: Collection) -> None:
    """What comes down is there, with what is born and what is said at the edge."""
    await link.at_edge(DEPLOYMENTS, "web", namespace)
    await link.at_edge(widgets, "placed", namespace)
    await link.at_edge_already(widgets, obj(widgets, "born", {"spec": {"size": 2}}), namespace)
    await link.cluster.patch(widgets, "placed", {"status": {"ready": True}}, namespace, "status")
    await link.in_mailbox(widgets, "born", namespace)
    await link.in_mailbox(widgets, "placed", namespace, lambda one: one["status"] == {"ready": True})


def changes(writes: list[Write]) -> list[Write]:
    """Without what a controller may say of the Deployment at any time."""
    return [one for one in writes if not one[1].endswith("/deployments/web/status")]


async def test_a_restart_writes_nothing_when_nothing_changed(link: Link) -> None:
    namespace, widgets = await furnished(link)
    await link.start()
    await busy(link, namespace, widgets)
    assert len(await link.settled()) > 10
    before = (await link.no_problem())["objects"]
    await link.restart()
    assert changes(await link.settled()) == []
    assert (await link.told(lambda report: report["objects"] == before))["driftCorrected"] == 0


async def test_a_syncer_that_lost_its_journal_changes_nothing_when_nothing_changed(link: Link) -> None:
    namespace, widgets = await furnished(link)
    await link.start()
    await busy(link, namespace, widgets)
    await link.settled()
    objects = (await link.no_problem())["objects"]
    before = await versions(link, namespace, MAPS, SECRETS, widgets)
    await link.stop()
    for file in link.state.iterdir():
        file.unlink()
    await link.start()
    await link.settled()
    assert (await link.told(lambda report: report["objects"] == objects))["driftCorrected"] == 0
    assert await versions(link, namespace, MAPS, SECRETS, widgets) == before


async def test_changes_during_downtime_are_applied_afterwards_and_nothing_else(link: Link) -> None:
    namespace, widgets = await furnished(link)
    await link.start()
    await busy(link, namespace, widgets)
    await link.settled()
    await link.stop()
    await link.mailbox.patch(MAPS, "map-0", {"data": {"tea": "4"}}, namespace)
    await link.mailbox.delete(MAPS, "map-1", namespace)
    await link.put_map(namespace, "new", tea="5")
    await link.cluster.patch(MAPS, "map-2", {"data": {"tea": "999"}}, namespace)
    await link.cluster.delete(MAPS, "map-3", namespace)
    await link.cluster.patch(widgets, "born", {"spec": {"size": 3}}, namespace)
    await link.start()
    await link.at_edge(MAPS, "map-0", namespace, lambda one: one["data"] == {"tea": "4"})
    await link.gone_at_edge(MAPS, "map-1", namespace)
    await link.at_edge(MAPS, "new", namespace)
    await link.at_edge(MAPS, "map-2", namespace, lambda one: one["data"] == {"tea": "3"})
    await link.at_edge(MAPS, "map-3", namespace)
    await link.in_mailbox(widgets, "born", namespace, lambda one: one["spec"] == {"size": 3})
    touched = {path.rpartition("/")[2] for _, path in changes(await link.settled())}
    assert touched == {"map-0", "map-1", "new", "map-2", "map-3", "born"}


# --- as a process ---------------------------------------------------------------------------------


@asynccontextmanager
async def process(link: Link, log: Path) -> AsyncIterator[subprocess.Popen[bytes]]:
    with log.open("ab") as file:
        running = subprocess.Popen(link.command(), stdout=file, stderr=file)
    try:
        yield running
    finally:
        running.kill()
        await asyncio.to_thread(running.wait, PATIENCE)


async def versions(link: Link, namespace: str, *collections: Collection) -> dict[str, str]:
    """Of everything in a namespace on both sides."""
    found: list[tuple[str, Obj]] = []
    for side, client in (("mailbox", link.mailbox), ("edge", link.cluster)):
        for collection in collections:
            found += [
                (f"{side} {collection.kind}", one) for one in await client.list(collection, ListOptions(namespace))
            ]
    return {f"{what} {one['metadata']['name']}": one["metadata"]["resourceVersion"] for what, one in found}


@pytest.mark.slow
async def test_a_process_that_is_killed_at_any_moment_ends_where_one_would_that_was_not(
    link: Link, tmp_path: Path
) -> None:
    namespace, widgets = await furnished(link, count=30)
    log = tmp_path / "syncer.log"
    for number in (0, 10, 20):
        async with process(link, log):
            await link.at_edge(MAPS, f"map-{number}", namespace)
    async with process(link, log) as running:
        await busy(link, namespace, widgets)
        for number in range(30):
            await link.at_edge(MAPS, f"map-{number}", namespace)
        await link.no_problem()
        before = await versions(link, namespace, MAPS, SECRETS, widgets)
        running.terminate()
        assert await asyncio.to_thread(running.wait, PATIENCE) == 0
    async with process(link, log):
        await link.put_map(namespace, "last", tea="3")
        await link.at_edge(MAPS, "last", namespace)
        after = await versions(link, namespace, MAPS, SECRETS, widgets)
    assert {name: version for name, version in after.items() if not name.endswith(" last")} == before
    assert "Traceback" not in log.read_text()
