"""What differs between two objects, by paths, for people and for programs.  Values of Secrets are never in it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import orjson

from farflung.apis.edge.names import PROJECTION
from farflung.apis.names import LAST_APPLIED
from farflung.lib.words import count
from farflung.machinery.errors import Obj
from farflung.placement.names import Category, Kind, category
from farflung.placement.syncer_config import SyncerSpec, parse_syncer_spec

MISSING: Final = object()
PLAIN: Final = re.compile(r"[A-Za-z_][\w-]*").fullmatch
LONGEST: Final = 100  #: characters of a value that people are shown
DEEPEST: Final = 64  #: levels; what is below is compared as a whole
SHOWN: Final = ("name", "namespace", "labels", "annotations")  #: of the metadata
HIDDEN: Final = ("data", "stringData")  #: of Secrets


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Obj]:
    """Each with a `path` and what is there `before` and `after`; without the one if it is added, and without the other
    if it is removed.  Of the content of a Secret it is only said what became of it: `change`."""
    secret = (after.get("apiVersion"), after.get("kind")) == ("v1", "Secret")
    found = [_entry(*one) for one in _differences((), _comparable(before), _comparable(after))]
    if not secret:
        return found
    return [one if one["path"].startswith("metadata.") else _concealed(one) for one in found]


def _comparable(obj: Mapping[str, Any]) -> Obj:
    """Without what says nothing of the content."""
    left = {name: value for name, value in obj.items() if name not in ("metadata", "status")}
    metadata = {name: value for name, value in obj.get("metadata", {}).items() if name in SHOWN}
    annotations = metadata.get("annotations") or {}
    annotations = {key: value for key, value in annotations.items() if key not in (PROJECTION, LAST_APPLIED)}
    return {**left, "metadata": {**metadata, "annotations": annotations}}


def _differences(path: tuple[str | int, ...], before: Any, after: Any) -> Iterator[tuple[Any, Any, Any]]:
    """To Python, true is 1 in whatever contains it: only what contains nothing is compared as it is."""
    if isinstance(before, dict) and isinstance(after, dict) and len(path) < DEEPEST:
        for key in sorted({*before, *after}):
            yield from _differences((*path, key), before.get(key, MISSING), after.get(key, MISSING))
    elif isinstance(before, list) and isinstance(after, list) and len(path) < DEEPEST:
        for at in range(max(len(before), len(after))):
            one = before[at] if at < len(before) else MISSING
            other = after[at] if at < len(after) else MISSING
            yield from _differences((*path, at), one, other)
    elif before != after or type(before) is not type(after):
        yield path, before, after


def _entry(path: tuple[str | int, ...], before: Any, after: Any) -> Obj:
    said: Obj = {"path": _written(path)}
    if before is not MISSING:
        said["before"] = before
    if after is not MISSING:
        said["after"] = after
    return said


def _written(path: tuple[str | int, ...]) -> str:
    text = ""
    for step in path:
        if isinstance(step, str) and PLAIN(step):
            text += f".{step}" if text else step
        else:
            text += f"[{orjson.dumps(step).decode()}]"
    return text


def _concealed(one: Obj) -> Obj:
    change = "changed" if "before" in one and "after" in one else "added" if "after" in one else "removed"
    return {"path": one["path"], "change": change} | (
        {"keys": sorted(keys)} if (keys := _keys(one)) and one["path"] in HIDDEN else {}
    )


def _keys(one: Obj) -> list[str]:
    return [key for side in ("before", "after") if isinstance(one.get(side), dict) for key in one[side]]


def line(one: Obj) -> str:
    """`spec.replicas: 1 → 3`"""
    if "change" in one:
        return f"{one['path']} {one['change']}"
    if "before" not in one:
        return f"{one['path']}: {_shown(one['after'])} added"
    if "after" not in one:
        return f"{one['path']}: {_shown(one['before'])} removed"
    return f"{one['path']}: {_shown(one['before'])} → {_shown(one['after'])}"


def _shown(value: Any) -> str:
    text = orjson.dumps(value).decode()
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


NAMED: Final = 3  #: kinds that are named where several come or go


def syncer_config_changes(before: SyncerSpec, after: SyncerSpec) -> list[Obj]:
    """Each with a `path` of the SyncerConfig, `what` is different there, and whether it is `added` or `removed`."""
    was, will = _sayings(parse_syncer_spec(before.spec())), _sayings(parse_syncer_spec(after.spec()))
    return [
        {"path": path, "what": what, "change": change}
        for path in will
        for some, others, change in ((will, was, "added"), (was, will, "removed"))
        for what in sorted(some[path] - others[path])
    ]


def _sayings(told: SyncerSpec) -> dict[str, set[str]]:
    going = [part for part in told.parts if category(part.kind) is Category.EDGE]
    upsync = told.spec().get("upsync") or ()
    return {
        "spec.namespaceScope.namespaces": set(told.namespaces),
        "spec.namespaceScope.resources": {_versioned(kind, told) for kind in told.kinds},
        "spec.namespacedObjects": {str(part) for part in going if part.namespace},
        "spec.clusterScope": {str(part) for part in going if not part.namespace},
        "spec.upsync": {orjson.dumps(one).decode() for one in upsync},
    }


def _versioned(kind: Kind, told: SyncerSpec) -> str:
    return f"{kind} {told.versions.get(kind, '')}".rstrip()


def syncer_config_lines(found: Iterable[Obj]) -> Iterator[str]:
    """`spec.clusterScope: clusterroles.rbac.authorization.k8s.io r added`; of many kinds only the first are named."""
    together: dict[tuple[str, str], list[str]] = {}
    for one in found:
        together.setdefault((one["path"], one["change"]), []).append(one["what"])
    for (path, change), some in together.items():
        if path.endswith(".resources") and len(some) > NAMED:
            yield f"{path}: {count(len(some), 'kind')} {change}"
        else:
            yield from (f"{path}: {what} {change}" for what in some)
