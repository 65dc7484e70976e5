"""Copies in mailboxes that are being withdrawn: they are deleted, and held until they are gone at their edge."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from farflung.cli.connection import Hub
from farflung.cli.imagining import seen
from farflung.client.discovery import discover
from farflung.client.errors import Forbidden, NotFound
from farflung.client.resource import Collection
from farflung.client.rest import Client, Selection
from farflung.controllers.placement_translator.projecting import PROJECTED, YES
from farflung.controllers.placement_translator.serving import travelling
from farflung.controllers.placement_translator.values import Part
from farflung.controllers.placement_translator.world import PlacementKey
from farflung.machinery.errors import Obj

WORKSPACES: Final = Collection("tenancy.kcp.io", "v1alpha1", "workspaces", "Workspace")
COPIES: Final = Selection(labels=f"{PROJECTED}={YES}")


async def being_withdrawn(hub: Hub, mailboxes: Iterable[str], key: PlacementKey) -> dict[str, list[Part]]:
    """Of what was made for a placement, sorted, by mailbox; nothing of mailboxes that the asker may not see."""
    try:
        there = {one["metadata"]["name"] for one in await hub.root.workspace(hub.provider).list(WORKSPACES)}
    except (NotFound, Forbidden):
        return {}
    found = {name: await _going(hub.root.workspace(f"{hub.provider}:{name}"), key) for name in {*mailboxes} & there}
    return {name: found[name] for name in sorted(found) if found[name]}


async def _going(mailbox: Client, key: PlacementKey) -> list[Part]:
    try:
        kinds = travelling((await discover(mailbox)).resources())
    except (NotFound, Forbidden):
        return []
    found: list[Part] = []
    for kind, resource in kinds.items():
        for obj in await _listed(mailbox, resource.collection):
            metadata = obj["metadata"]
            if metadata.get("deletionTimestamp") and key in seen(kind, obj).placements:
                found.append(Part(kind, metadata.get("namespace") or "", metadata["name"]))
    return sorted(found)


async def _listed(mailbox: Client, collection: Collection) -> list[Obj]:
    try:
        return await mailbox.list(collection, COPIES)
    except (NotFound, Forbidden):
        return []
