"""Informers of several kinds: kinds start and stop at any time."""

from __future__ import annotations

import asyncio

import orjson
from scripted_server import Scripted, ScriptedServer, failure, said

from farflung.apis.names import Collection
from farflung.client.rest import Client
from farflung.client.transport import OutgoingRequest
from farflung.lib.backoff import Backoff
from farflung.machinery.errors import Obj
from farflung.placement.names import GroupResource, ObjectRef
from farflung.runtime.environment import Environment
from farflung.syncer.informers import InformerHandlers, KindInformers

WIDGETS = GroupResource("acme.io", "widgets")
V1, V2 = (Collection("acme.io", version, "widgets", "Widget") for version in ("v1", "v2"))


async def test_an_informer_that_was_replaced_delivers_no_more_objects() -> None:
    """In the middle of its list: the rest would never be removed if the new list lacks it."""

    def answer(request: OutgoingRequest) -> Scripted:
        if "watch=" in request.target:
            return failure(500)
        names = ("a", "b") if "/v1/" in request.target else ("a",)
        items = [{"metadata": {"name": name, "resourceVersion": "3"}} for name in names]
        return said({"metadata": {"resourceVersion": "5"}, "items": items})

    async def sleep(seconds: float) -> None:
        await asyncio.sleep(0)

    changes: list[str] = []

    def changed(ref: ObjectRef, cluster: str, obj: Obj | None) -> None:
        changes.append(ref.name)
        informers.watch(group, {WIDGETS: V2})

    def decode(resource: GroupResource, document: bytes) -> Obj:
        found: Obj = orjson.loads(document)
        return found

    env = Environment(lambda: 0.0, sleep, lambda: 0.5, Backoff(1, 30, lambda: 1.0))
    handlers: InformerHandlers[Obj] = InformerHandlers(changed, lambda resource, error: None)
    informers: KindInformers[Obj] = KindInformers(Client(ScriptedServer(answer)), env, decode, handlers)
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        informers.watch(group, {WIDGETS: V1})
        while not informers.is_listed(WIDGETS) or informers.collection(WIDGETS) != V2:
            await asyncio.sleep(0)
        assert changes == ["a", "a"]
        assert [ref.name for ref in informers.of(WIDGETS)] == ["a"]
        informers.stop_all()
