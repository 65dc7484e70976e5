"""An edge that lists kinds in its discovery later than it establishes their definitions, as kube-apiserver does."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import orjson
import pytest
from edge_objects import definition, obj, upsync
from fleet import FaultyTransport
from local_transport import LocalReply, once
from syncing import DEFINITIONS, DEPLOYMENTS, NAMESPACES, Link, linked, scope
from translated import deployment, namespace

from farflung.apis.names import Collection
from farflung.client.transport import OutgoingRequest, Reply
from farflung.machinery.errors import Obj

KINDS = [Collection("ex.test", "v1", f"{name}s", name.title()) for name in ("widget", "gadget", "sprocket", "gizmo")]


@dataclass
class LateDiscovery(FaultyTransport):
    """Each discovery lists one more of the hidden kinds.  None of them while it is `held`."""

    hidden: list[str] = field(default_factory=list)
    held: bool = False

    @asynccontextmanager
    async def open(self, request: OutgoingRequest) -> AsyncIterator[Reply]:
        async with super().open(request) as reply:
            if request.target == "/apis":
                shown = orjson.dumps(self._without_hidden(orjson.loads(await reply.read())))
                reply = LocalReply(200, {}, partial(once, shown))
            yield reply

    def _without_hidden(self, document: Obj) -> Obj:
        for version in (version for group in document["items"] for version in group["versions"]):
            version["resources"] = [one for one in version["resources"] if one["resource"] not in self.hidden]
        if self.hidden and not self.held:
            self.hidden.pop()
        return document


@asynccontextmanager
async def late_link(directory: Path) -> AsyncIterator[tuple[Link, LateDiscovery]]:
    async with linked(directory, starts=False) as link:
        link.down = late = LateDiscovery(link.down.function, link.down.token)
        yield link, late


async def define_at_once(link: Link, kinds: Iterable[Collection]) -> None:
    for kind in kinds:
        await link.cluster.create(DEFINITIONS, definition(kind))


@pytest.mark.parametrize("resources", [["*"], [kind.plural for kind in KINDS]])
async def test_objects_of_kinds_that_discovery_lists_one_after_the_other_are_upsynced(
    tmp_path: Path, resources: list[str]
) -> None:
    async with late_link(tmp_path) as (link, late):
        await link.configure(scope("shop", upsync=[upsync("ex.test", resources, ["*"], ["*"])]))
        await link.start()
        await link.settled()
        late.hidden = [kind.plural for kind in KINDS]
        await define_at_once(link, KINDS)
        await link.cluster.create(NAMESPACES, namespace("local"))
        for kind in KINDS:
            await link.cluster.create(kind, obj(kind, "born"), "local")
        for kind in KINDS:
            await link.eventually(lambda kind=kind: link.mailbox.get(kind, "born", "local"), kind.plural)


async def test_a_kind_that_discovery_does_not_list_is_reported_and_upsynced_when_it_does(tmp_path: Path) -> None:
    async with late_link(tmp_path) as (link, late):
        widgets = KINDS[0]
        late.hidden, late.held = ["widgets"], True
        await link.configure(scope("shop", upsync=[upsync("ex.test", ["*"], ["*"], ["*"])]))
        await link.start()
        await define_at_once(link, KINDS[:2])
        await link.cluster.create(NAMESPACES, namespace("local"))
        await link.cluster.create(widgets, obj(widgets, "born"), "local")

        async def reported() -> list[Obj]:
            return [one for one in (await link.report())["problems"] if one["resource"] == "widgets"]

        [problem] = await link.eventually(reported, "the problem")
        assert (problem["direction"], problem["reason"]) == ("up", "NotServed")
        assert problem["message"].startswith("the edge defines widgets, but does not list it in its discovery")
        late.held = False
        await link.eventually(lambda: link.mailbox.get(widgets, "born", "local"), "the object in the mailbox")

        async def clear() -> bool:
            return not await reported()

        await link.eventually(clear, "the end of the problem")


async def test_objects_of_a_configured_kind_without_a_definition_are_upsynced_when_discovery_lists_it(
    tmp_path: Path,
) -> None:
    """As kinds of an aggregated API server have it."""
    async with late_link(tmp_path) as (link, late):
        late.hidden, late.held = ["deployments"], True
        await link.configure(scope("shop", resources=(), upsync=[upsync("apps", ["deployments"], ["*"], ["*"])]))
        await link.start()
        await link.cluster.create(NAMESPACES, namespace("local"))
        await link.cluster.create(DEPLOYMENTS, deployment("born", "httpd"), "local")
        await link.settled()
        assert (await link.report())["problems"] == []
        late.held = False
        await link.eventually(lambda: link.mailbox.get(DEPLOYMENTS, "born", "local"), "the object in the mailbox")
