"""Copies of every kind, applied by a server: what it makes of them is no drift, and what others do to them is."""

from __future__ import annotations

from dataclasses import replace

from hub_harness import APPLY_PATCH, MERGE_PATCH, LocalHub
from workload import BUILTIN, Example

from farflung.apis.edge.names import SYNCER_MANAGER
from farflung.machinery.errors import Obj
from farflung.placement.names import GroupResource, ObjectRef
from farflung.placement.project import make_copy, strip
from farflung.syncer.conversion import (
    encoded,
    for_edge,
    for_mailbox,
    hash_of,
    identical,
    is_downsynced,
    owned_fields,
    updated_upsync,
)
from farflung.syncer.decide import Adopt, ApplyObject, ApplyReason, NoChange, decide
from farflung.syncer.journal import JournalEntry


class Side:
    """A whole hub: a mailbox, or an edge."""

    def __init__(self, hub: LocalHub) -> None:
        self.hub = hub

    async def get(self, path: str) -> Obj:
        return await self.ask("GET", path)

    async def apply(self, path: str, obj: Obj) -> Obj:
        return await self.ask("PATCH", f"{path}?fieldManager={SYNCER_MANAGER}&force=true", obj, APPLY_PATCH)

    async def patch(self, path: str, patch: Obj) -> Obj:
        return await self.ask("PATCH", f"{path}?fieldManager=somebody", patch, MERGE_PATCH)

    async def ask(self, method: str, path: str, body: Obj | None = None, content_type: str = "application/json") -> Obj:
        path, _, query = path.partition("?")
        answer = await self.hub.request(method, path, body, query=query, content_type=content_type)
        assert answer.status < 300, (method, path, answer.body)
        found: Obj = answer.json
        return found


async def side() -> Side:
    return Side(await LocalHub.in_memory().furnish())


def entry_of(desired: Obj) -> JournalEntry:
    metadata = desired["metadata"]
    return JournalEntry(
        ref=ObjectRef(GroupResource("x", "x"), metadata.get("namespace", ""), metadata["name"]),
        version="v1",
        kind=desired["kind"],
        namespaced="namespace" in metadata,
        uid="u",
        revision=1,
        incarnation="m",
        desired=encoded(desired),
    )


def noted(entry: JournalEntry, live: Obj) -> JournalEntry:
    return replace(
        entry,
        applied=hash_of(entry.desired),
        owned=owned_fields(live, SYNCER_MANAGER),
        edge_uid=live["metadata"]["uid"],
    )


async def goes_down(mailbox: Side, edge: Side, example: Example) -> None:
    copy = await mailbox.ask("POST", example.collection, make_copy(strip(example.obj)))
    desired = for_edge(copy)
    live = await edge.apply(example.path, desired)
    assert is_downsynced(live)
    assert identical(desired, live), "what the server made of it is no difference"
    entry = noted(entry_of(desired), live)
    assert decide(entry, live, Adopt.NEVER) == NoChange()
    again = await edge.apply(example.path, desired)
    assert again["metadata"]["resourceVersion"] == live["metadata"]["resourceVersion"]
    await edge.patch(example.path, {"metadata": {"labels": {"theirs": "x"}}})
    live = await edge.get(example.path)
    assert decide(entry, live, Adopt.NEVER) == NoChange(), "others may add what is theirs"
    live = await edge.patch(example.path, {"metadata": {"labels": {"app": "changed"}}})
    assert decide(entry, live, Adopt.NEVER) == ApplyObject(ApplyReason.DRIFT, entry.edge_uid)
    live = await edge.apply(example.path, desired)
    assert decide(noted(entry, live), live, Adopt.NEVER) == NoChange()
    await changes(mailbox, edge, example, entry)


async def changes(mailbox: Side, edge: Side, example: Example, entry: JournalEntry) -> None:
    copy = await mailbox.patch(example.path, example.change)
    desired = for_edge(copy)
    changed = replace(entry, desired=encoded(desired))
    live = await edge.get(example.path)
    assert decide(changed, live, Adopt.NEVER) == ApplyObject(ApplyReason.CHANGED, entry.edge_uid)
    live = await edge.apply(example.path, desired)
    assert "app" not in live["metadata"]["labels"], "what has gone at the source goes at the edge"
    assert live["metadata"]["labels"]["theirs"] == "x"
    assert decide(noted(changed, live), live, Adopt.NEVER) == NoChange()


async def test_every_built_in_kind_is_downsynced() -> None:
    mailbox, edge = await side(), await side()
    for one in BUILTIN:
        await goes_down(mailbox, edge, one)


async def goes_up(edge: Side, mailbox: Side, example: Example) -> None:
    wanted = for_mailbox(await edge.ask("POST", example.collection, example.obj))
    there = await mailbox.ask("POST", example.collection, wanted)
    assert updated_upsync(there, wanted) is None, "what the server made of it is no difference"
    wanted = for_mailbox(await edge.patch(example.path, example.change))
    put = updated_upsync(there, wanted)
    assert put is not None
    there = await mailbox.ask("PUT", example.path, put)
    assert updated_upsync(there, wanted) is None
    assert "app" not in there["metadata"]["labels"]


async def test_every_built_in_kind_is_upsynced() -> None:
    edge, mailbox = await side(), await side()
    for one in BUILTIN:
        await goes_up(edge, mailbox, one)
