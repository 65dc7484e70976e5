"""What `kubectl apply` or `kubectl delete` would make of objects: the server is asked, and does nothing."""

from __future__ import annotations

from collections.abc import Mapping, Set
from copy import deepcopy
from typing import Any, Final, NamedTuple

import orjson

from farflung.apis.edge.names import EDGE_PLACEMENTS
from farflung.apis.names import LAST_APPLIED, Collection
from farflung.cli.connection import Hub, placement_of
from farflung.client.errors import ClientError, Conflict, NotFound
from farflung.machinery.errors import Obj
from farflung.machinery.patch import merge

ATTEMPTS: Final = 3  #: while others write
NEW, CHANGED, SAME, GONE = "new", "changed", "unchanged", "deleted"


class RefusedError(Exception):
    """Why there is no plan for a placement."""


class Applied(NamedTuple):
    """What would become of one object of a file."""

    spec: str  #: NEW, CHANGED, SAME, GONE
    document: Obj


async def rehearsed_placement(hub: Hub, wanted: Obj) -> tuple[str, Obj]:
    """What would be stored, and what that is to what is there."""
    name = wanted["metadata"]["name"]
    for attempt in range(ATTEMPTS):
        live = await placement_of(hub, name)
        try:
            if live is None:
                return NEW, await hub.workspace.create(EDGE_PLACEMENTS, wanted)
            if live["metadata"].get("deletionTimestamp"):
                raise RefusedError("it is being deleted")
            after = await hub.workspace.update(EDGE_PLACEMENTS, applied(live, wanted))
            return SAME if after.get("spec") == live.get("spec") else CHANGED, after
        except Conflict:
            if attempt == ATTEMPTS - 1:
                raise
    raise ClientError("others write it all the time")


def applied(live: Obj, wanted: Obj) -> Obj:
    """What `kubectl apply` makes of an object: what the file says, without what the file said last time and says no
    more; what others said besides stays."""
    annotations = live["metadata"].get("annotations") or {}
    try:
        last = orjson.loads(annotations.get(LAST_APPLIED) or "{}")
    except orjson.JSONDecodeError:
        last = {}
    said = {**wanted, "metadata": {"annotations": {}, **(wanted.get("metadata") or {})}}  # where kubectl notes it
    after: Obj = merge.apply(deepcopy(live), _patch(last if isinstance(last, dict) else {}, said))
    return after


def _patch(last: Mapping[str, Any], wanted: Mapping[str, Any]) -> Obj:
    dropped = {key: None for key in last if key not in wanted}
    return dropped | {
        key: _patch(last[key], value) if isinstance(value, dict) and isinstance(last.get(key), dict) else value
        for key, value in wanted.items()
    }


async def rehearsed_object(hub: Hub, collection: Collection, wanted: Obj, new: Set[str], *, delete: bool) -> Applied:
    name, namespace = wanted["metadata"]["name"], wanted["metadata"].get("namespace") or ""
    if delete:
        live = await hub.workspace.get(collection, name, namespace)
        await hub.workspace.delete(collection, name, namespace)
        return Applied(GONE, live)
    try:
        live = await hub.workspace.get(collection, name, namespace)
    except NotFound:
        try:
            return Applied(NEW, await hub.workspace.create(collection, wanted, namespace))
        except NotFound:
            if namespace not in new:
                raise
            return Applied(NEW, wanted)
    if live["metadata"].get("deletionTimestamp"):
        raise RefusedError("it is being deleted")
    after = await hub.workspace.update(collection, applied(live, wanted))
    return Applied(SAME if _content(after) == _content(live) else CHANGED, after)


def _content(obj: Obj) -> Obj:
    annotations = {key: text for key, text in (obj["metadata"].get("annotations") or {}).items() if key != LAST_APPLIED}
    metadata = {"labels": obj["metadata"].get("labels"), "annotations": annotations}
    return {**{key: value for key, value in obj.items() if key not in ("metadata", "status")}, "metadata": metadata}
