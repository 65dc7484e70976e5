"""The status of the only copy, where the object is described.  Pure.

Asked for by placements with `wantSingletonReportedState`.  As long as one asks, the object says in an annotation how
many clusters have a copy because of those that ask.  If that is one, and its status came back, the object has that
status, and another annotation says from where.  Without that annotation nothing of its status is ours, so it is written
before the status, and goes after it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from farflung.controllers.placement_translator.projecting import COUNT, RETURNED
from farflung.controllers.placement_translator.values import Kind
from farflung.controllers.placement_translator.world import DEFINITIONS, NAMESPACES
from farflung.machinery.errors import Obj

MARKS: Final = (COUNT, RETURNED)
_NEVER: Final = frozenset({NAMESPACES, DEFINITIONS})  #: their own servers say how they are


class Returned(NamedTuple):
    """What came back from one cluster."""

    target: str  #: the name of its SyncTarget
    status: Mapping[str, Any]


class Asked(NamedTuple):
    """What placements ask of an object."""

    clusters: int  #: how many have a copy because of them
    only: Returned | None = None  #: what came back, if that is one


class Step(NamedTuple):
    """What to write next: either annotations (None: away), or the status."""

    annotations: Mapping[str, str | None] = {}
    status: Obj | None = None


def is_marked(document: bytes) -> bool:
    """Whether an object may have one of the annotations."""
    return any(mark.encode() in document for mark in MARKS)


def step(kind: Kind, obj: Mapping[str, Any], asked: Asked | None) -> Step | None:
    """`asked`: None if nobody asks.  None: it is as it should be."""
    if kind in _NEVER:
        asked = None if asked is None else Asked(asked.clusters)
    annotations = (obj.get("metadata") or {}).get("annotations") or {}
    count = None if asked is None else str(asked.clusters)
    only = None if asked is None or asked.clusters != 1 else asked.only
    has = annotations.get(RETURNED)
    if only is None:
        if has is not None and obj.get("status"):
            return Step(status={})
        return _marking(annotations, {COUNT: count, RETURNED: None})
    if marking := _marking(annotations, {COUNT: count, RETURNED: only.target}):
        return marking
    return None if obj.get("status") == only.status else Step(status=dict(only.status))


def _marking(annotations: Mapping[str, str], wanted: Mapping[str, str | None]) -> Step | None:
    changes = {name: value for name, value in wanted.items() if annotations.get(name) != value}
    return Step(annotations=changes) if changes else None
