"""A mailbox that goes takes along what a syncer held in it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from definitions import DEFINITIONS, definition, version
from examples import examples
from fleet import FAULTS, PROVIDER, TENANCY, WORKLOAD, Fleet, fleet
from hypothesis import given, settings
from hypothesis import strategies as st

from farflung.machinery.errors import Obj

WORKSPACES = f"/clusters/{PROVIDER}{TENANCY}/workspaces"
HELD = "edge.kcp.io/syncer"
JSON = "application/json-patch+json"
MAPS = "api/v1/namespaces/shop/configmaps"


class World:
    def __init__(self, fleet: Fleet, inventory: str) -> None:
        self.fleet = fleet
        self.target = f"/clusters/{inventory}{WORKLOAD}/synctargets/florin"

    async def boxes(self) -> list[Obj]:
        return [one for one in await self.fleet.items(WORKSPACES) if "-mb-" in one["metadata"]["name"]]

    async def ready(self) -> bool:
        boxes = await self.boxes()
        return bool(boxes) and all(
            "deletionTimestamp" not in one["metadata"] and (one.get("status") or {}).get("phase") == "Ready"
            for one in boxes
        )

    async def put(self, path: str, name: str, finalizers: list[str], **parts: Any) -> None:
        [box] = await self.boxes()
        metadata = {"name": name, "finalizers": finalizers, "labels": {"edge.kcp.io/projected": "yes"}}
        made = await self.fleet.do(
            "POST", f"/clusters/{box['spec']['cluster']}/{path}", {"metadata": metadata, **parts}
        )
        assert made is not None, path

    async def fill(self) -> None:
        """With copies of all sorts, as a translator and a syncer leave them."""
        [box] = await self.boxes()
        cluster = box["spec"]["cluster"]
        await self.fleet.hub.bind(cluster, "bind-kube", "root:compute", "kubernetes")
        await self.put("api/v1/namespaces", "shop", [HELD])
        for number in range(3):
            await self.put(MAPS, f"map-{number}", [HELD])
        await self.put("api/v1/namespaces/shop/secrets", "secret", ["example.org/other", HELD])
        await self.put("apis/rbac.authorization.k8s.io/v1/clusterroles", "role", [HELD], rules=[])
        labels = {"app": "x"}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "x", "image": "x"}]}}
        spec = {"selector": {"matchLabels": labels}, "template": template}
        deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "spec": spec}
        await self.put("apis/apps/v1/namespaces/shop/deployments", "deployment", [HELD], **deployment)
        assert await self.fleet.do("POST", f"/clusters/{cluster}{DEFINITIONS}", definition(version())) is not None
        thing = {"apiVersion": "example.com/v1", "kind": "Thing"}
        await self.put("apis/example.com/v1/namespaces/shop/things", "thing", [HELD], **thing)

    async def let_go(self) -> None:
        """What is held by somebody else, once ours is off."""
        [box] = await self.boxes()
        path = f"/clusters/{box['spec']['cluster']}/api/v1/namespaces/shop/secrets/secret"

        async def alone() -> bool:
            found = await self.fleet.do("GET", path)
            return found is not None and found["metadata"]["finalizers"] == ["example.org/other"]

        await self.fleet.eventually(alone, "one finalizer")
        patch = [{"op": "remove", "path": "/metadata/finalizers/0"}]
        assert await self.fleet.do("PATCH", path, patch, content_type=JSON) is not None

    async def gone(self, uid: str) -> bool:
        return all(one["metadata"]["uid"] != uid for one in await self.boxes())


@asynccontextmanager
async def world() -> AsyncIterator[World]:
    async with fleet() as one:
        inventory = await one.hub.workspace("imw")
        await one.target(inventory, "florin", {})
        await one.start(scheduler=False, mailboxes=True)
        found = World(one, inventory)
        await one.eventually(found.ready)
        await found.fill()
        yield found


async def test_a_mailbox_without_sync_target_is_deleted_with_objects_that_have_finalizers() -> None:
    async with world() as one:
        [box] = await one.boxes()
        await one.fleet.do("DELETE", one.target)
        await one.let_go()
        await one.fleet.eventually(lambda: one.gone(box["metadata"]["uid"]), "the end")
        assert not one.fleet.hub.stored(box["spec"]["cluster"])


async def test_a_mailbox_that_another_client_deletes_is_created_again_empty() -> None:
    async with world() as one:
        [box] = await one.boxes()
        await one.fleet.do("DELETE", f"{WORKSPACES}/{box['metadata']['name']}")
        await one.let_go()
        await one.fleet.eventually(lambda: one.gone(box["metadata"]["uid"]), "the end")
        await one.fleet.eventually(one.ready, "another one")
        [other] = await one.boxes()
        assert await one.fleet.items(f"/clusters/{other['spec']['cluster']}/{MAPS}") == []


async def test_nothing_is_released_in_a_mailbox_that_stays_nor_in_what_only_looks_like_one() -> None:
    async with world() as one:
        [box] = await one.boxes()
        alike = f"{box['spec']['cluster']}-mb-00000000-0000-4000-8000-ffffffffffff"
        cluster = await one.fleet.hub.workspace(alike, parent=PROVIDER)
        metadata = {"name": "held", "finalizers": [HELD]}
        path = f"/clusters/{cluster}/api/v1/namespaces/default/configmaps"
        assert await one.fleet.do("POST", path, {"metadata": metadata}) is not None
        await one.fleet.do("DELETE", f"{WORKSPACES}/{alike}")
        await one.fleet.crash()
        await one.fleet.start(scheduler=False, mailboxes=True)
        manager = one.fleet.manager
        assert manager is not None
        releaser = next(each for each in manager.controllers if each.name == "mailbox-releaser")
        await one.fleet.eventually(lambda: releaser.tally.successes and manager.idle)
        [held] = [each for each in await one.fleet.items(path) if each["metadata"]["name"] == "held"]
        assert held["metadata"]["finalizers"] == [HELD]
        maps = await one.fleet.items(f"/clusters/{box['spec']['cluster']}/{MAPS}")
        ours = [each["metadata"] for each in maps if each["metadata"]["name"].startswith("map-")]
        assert [each["finalizers"] for each in ours] == [[HELD]] * 3


@pytest.mark.slow
@settings(max_examples=examples(8))
@given(st.lists(FAULTS, max_size=12), st.booleans())
async def test_a_mailbox_is_deleted_however_often_the_controller_restarts(
    faults: list[tuple[str, Any]], by_hand: bool
) -> None:
    async with world() as one:
        [box] = await one.boxes()
        await one.fleet.do("DELETE", f"{WORKSPACES}/{box['metadata']['name']}" if by_hand else one.target)
        for what, how in faults:
            await one.fleet.suffer(what, how, scheduler=False, mailboxes=True)
        await one.let_go()
        await one.fleet.eventually(lambda: one.gone(box["metadata"]["uid"]), "the end")
        if by_hand:
            await one.fleet.eventually(one.ready, "another one")
