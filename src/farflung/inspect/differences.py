"""Differences between two objects, by path.  Values of Secrets are never included."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import orjson
from msgspec import UNSET, UnsetType

from farflung.apis.edge.names import PROJECTION
from farflung.apis.names import LAST_APPLIED
from farflung.inspect.results import Result
from farflung.machinery.errors import Obj
from farflung.placement.names import Category, category
from farflung.placement.syncer_config import SyncerSpec, parse_syncer_spec


class Difference(Result, frozen=True):
    """A field that differs.  A field that was added has no value before; one that was removed has none after."""

    path: str
    before: Any = UNSET
    after: Any = UNSET
    change: str | UnsetType = UNSET  #: of the content of a Secret, instead of values
    keys: list[str] | UnsetType = UNSET


class SyncerConfigChange(Result, frozen=True):
    path: str
    what: str
    change: str  #: added or removed


PLAIN: Final = re.compile(r"[A-Za-z_][\w-]*").fullmatch
DEEPEST: Final = 64  #: deeper levels are compared as a whole
SHOWN: Final = ("name", "namespace", "labels", "annotations")  #: metadata fields
HIDDEN: Final = ("data", "stringData")  #: fields of Secrets


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Difference]:
    """The content of a Secret is concealed."""
    secret = (after.get("apiVersion"), after.get("kind")) == ("v1", "Secret")
    compared = _differences((), _comparable(before), _comparable(after))
    found = [Difference(_written(path), was, will_be) for path, was, will_be in compared]
    if not secret:
        return found
    return [one if one.path.startswith("metadata.") else _concealed(one) for one in found]


def _comparable(obj: Mapping[str, Any]) -> Obj:
    """Without server-set fields and bookkeeping."""
    left = {name: value for name, value in obj.items() if name not in ("metadata", "status")}
    metadata = {name: value for name, value in obj.get("metadata", {}).items() if name in SHOWN}
    annotations = metadata.get("annotations") or {}
    annotations = {key: value for key, value in annotations.items() if key not in (PROJECTION, LAST_APPLIED)}
    return {**left, "metadata": {**metadata, "annotations": annotations}}


def _differences(path: tuple[str | int, ...], before: Any, after: Any) -> Iterator[tuple[Any, Any, Any]]:
    """Compares types too, because True equals 1 in Python."""
    if isinstance(before, dict) and isinstance(after, dict) and len(path) < DEEPEST:
        for key in sorted({*before, *after}):
            yield from _differences((*path, key), before.get(key, UNSET), after.get(key, UNSET))
    elif isinstance(before, list) and isinstance(after, list) and len(path) < DEEPEST:
        for at in range(max(len(before), len(after))):
            one = before[at] if at < len(before) else UNSET
            other = after[at] if at < len(after) else UNSET
            yield from _differences((*path, at), one, other)
    elif before != after or type(before) is not type(after):
        yield path, before, after


def _written(path: tuple[str | int, ...]) -> str:
    text = ""
    for step in path:
        if isinstance(step, str) and PLAIN(step):
            text += f".{step}" if text else step
        else:
            text += f"[{orjson.dumps(step).decode()}]"
    return text


def _concealed(one: Difference) -> Difference:
    change = "added" if one.before is UNSET else "removed" if one.after is UNSET else "changed"
    keys = [key for side in (one.before, one.after) if isinstance(side, dict) for key in side]
    return Difference(one.path, change=change, keys=sorted(keys) if keys and one.path in HIDDEN else UNSET)


def syncer_config_changes(before: SyncerSpec, after: SyncerSpec) -> list[SyncerConfigChange]:
    was, will = _entries(parse_syncer_spec(before.spec())), _entries(parse_syncer_spec(after.spec()))
    return [
        SyncerConfigChange(path, what, change)
        for path in will
        for some, others, change in ((will, was, "added"), (was, will, "removed"))
        for what in sorted(some[path] - others[path])
    ]


def _entries(spec: SyncerSpec) -> dict[str, set[str]]:
    downsynced = [ref for ref in spec.refs if category(ref.resource) is Category.EDGE]
    upsync = spec.spec().get("upsync") or ()
    return {
        "spec.namespaceScope.namespaces": set(spec.namespaces),
        "spec.namespaceScope.resources": {
            f"{resource} {spec.versions.get(resource, '')}".rstrip() for resource in spec.resources
        },
        "spec.namespacedObjects": {str(ref) for ref in downsynced if ref.namespace},
        "spec.clusterScope": {str(ref) for ref in downsynced if not ref.namespace},
        "spec.upsync": {orjson.dumps(one).decode() for one in upsync},
    }
