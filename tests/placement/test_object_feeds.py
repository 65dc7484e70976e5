"""The feed of objects of all workspaces: sources start and stop at any time."""

from __future__ import annotations

import asyncio
import io
from typing import Any

import orjson
from hub_harness import ADMIN_TOKEN, LocalHub
from local_transport import LocalTransport

from farflung.apis.names import Collection
from farflung.client.rest import Client
from farflung.lib.backoff import Backoff
from farflung.lib.klog import Logger
from farflung.placement.feeds import ObjectFeeds
from farflung.placement.names import GroupResource, ObjectRef, WatchedCollection
from farflung.runtime.environment import Environment
from farflung.runtime.informer import SharedInformers
from farflung.runtime.rebuilder import Rebuilder

MAPS = WatchedCollection(GroupResource("", "configmaps"), "v1")
PATIENCE = 60.0


async def soon(seconds: float) -> None:
    await asyncio.sleep(0)


ENV = Environment(lambda: 0.0, soon, lambda: 0.5, Backoff(1, 30, lambda: 1.0))


def fail(what: str, error: Exception) -> None:
    raise error


async def test_a_stopped_source_delivers_no_objects_of_a_watch_that_others_still_use() -> None:
    hub = await LocalHub.in_memory().furnish()
    await hub.config_map("before")
    client = Client(LocalTransport(hub.function, ADMIN_TOKEN))
    shared = SharedInformers(ENV)
    other = shared.informer(client, Collection("", "v1", "configmaps", "ConfigMap"), orjson.loads, fail)
    known: set[str] = set()

    def heard(cluster: str, ref: ObjectRef, after: Any) -> None:
        (known.discard if after is None else known.add)(ref.name)

    rebuilder = Rebuilder("test", lambda: None, ENV, Logger(io.StringIO()))
    feeds = ObjectFeeds(client, heard, lambda source: None, shared, rebuilder, fail)

    def stop(change: Any) -> None:
        if change.key.name == "after":
            feeds.want(group, [])

    other.subscribe(stop)
    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
        running = group.create_task(other.run())
        feeds.want(group, [MAPS])
        await feeds.synced([MAPS])
        assert known == {"before"}
        await hub.config_map("after")
        while "after" not in {key.name for key in other.cache}:
            await asyncio.sleep(0)
        assert known == set()
        feeds.want(group, [MAPS])
        feeds.want(group, [])  # before it runs
        await hub.config_map("last")
        while "last" not in {key.name for key in other.cache}:
            await asyncio.sleep(0)
        running.cancel()
    assert known == set()
