"""Dry runs of `kubectl apply` and `kubectl delete`."""

from __future__ import annotations

from collections.abc import Mapping, Set
from copy import deepcopy
from typing import Any, Final, NamedTuple

import orjson

from farflung.apis.edge.names import EDGE_PLACEMENTS
from farflung.apis.names import LAST_APPLIED, Collection
from farflung.cli.connection import HubClient, get_placement
from farflung.client.errors import ClientError, NotFound, UpdateConflict
from farflung.machinery.errors import Obj
from farflung.machinery.patch import merge

ATTEMPTS: Final = 3  #: after conflicts
NEW, CHANGED, SAME, GONE = "new", "changed", "unchanged", "deleted"


class DryRunRefused(Exception):
    """Why an object cannot be planned."""


class DryRunResult(NamedTuple):
    """The result of a dry run."""

    spec: str  #: NEW, CHANGED, SAME, GONE
    document: Obj


async def dry_run_placement(hub: HubClient, wanted: Obj) -> tuple[str, Obj]:
    """What would be stored, and whether that is new, changed or unchanged."""
    name = wanted["metadata"]["name"]
    for attempt in range(ATTEMPTS):
        live = await get_placement(hub, name)
        try:
            if live is None:
                return NEW, await hub.workspace.create(EDGE_PLACEMENTS, wanted)
            if live["metadata"].get("deletionTimestamp"):
                raise DryRunRefused("it is being deleted")
            after = await hub.workspace.update(EDGE_PLACEMENTS, applied(live, wanted))
            return SAME if after.get("spec") == live.get("spec") else CHANGED, after
        except UpdateConflict:
            if attempt == ATTEMPTS - 1:
                raise
    raise ClientError("too many conflicts with other writers")


def applied(live: Obj, wanted: Obj) -> Obj:
    """The result of `kubectl apply`: the file's fields, without those that only the last applied file had; other fields
    stay."""
    annotations = live["metadata"].get("annotations") or {}
    try:
        last = orjson.loads(annotations.get(LAST_APPLIED) or "{}")
    except orjson.JSONDecodeError:
        last = {}
    given = {**wanted, "metadata": {"annotations": {}, **(wanted.get("metadata") or {})}}  # where kubectl stores it
    after: Obj = merge.apply(deepcopy(live), _patch(last if isinstance(last, dict) else {}, given))
    return after


def _patch(last: Mapping[str, Any], wanted: Mapping[str, Any]) -> Obj:
    dropped = {key: None for key in last if key not in wanted}
    return dropped | {
        key: _patch(last[key], value) if isinstance(value, dict) and isinstance(last.get(key), dict) else value
        for key, value in wanted.items()
    }


async def dry_run_object(
    hub: HubClient, collection: Collection, wanted: Obj, new: Set[str], *, delete: bool
) -> DryRunResult:
    name, namespace = wanted["metadata"]["name"], wanted["metadata"].get("namespace") or ""
    if delete:
        live = await hub.workspace.get(collection, name, namespace)
        await hub.workspace.delete(collection, name, namespace)
        return DryRunResult(GONE, live)
    try:
        live = await hub.workspace.get(collection, name, namespace)
    except NotFound:
        try:
            return DryRunResult(NEW, await hub.workspace.create(collection, wanted, namespace))
        except NotFound:
            if namespace not in new:
                raise
            return DryRunResult(NEW, wanted)
    if live["metadata"].get("deletionTimestamp"):
        raise DryRunRefused("it is being deleted")
    after = await hub.workspace.update(collection, applied(live, wanted))
    return DryRunResult(SAME if _content(after) == _content(live) else CHANGED, after)


def _content(obj: Obj) -> Obj:
    annotations = {key: text for key, text in (obj["metadata"].get("annotations") or {}).items() if key != LAST_APPLIED}
    metadata = {"labels": obj["metadata"].get("labels"), "annotations": annotations}
    return {**{key: value for key, value in obj.items() if key not in ("metadata", "status")}, "metadata": metadata}
