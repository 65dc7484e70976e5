"""The status of the only copy, where the object is described.  Pure.

Asked for by placements with `wantSingletonReportedState`.  As long as one asks, a label of the object says how many
clusters have a copy because of those that ask.  If that is one, and its status came back, the object has that status,
and an annotation says from where.  Without the annotation nothing of its status is ours, so it is written before the
status, and goes after it.

Of a virtual machine, who places it has a say, too: that it is placed, and whether it gets there.  That stays.  One that
has ended stays so, whatever becomes of the copy: otherwise it would be run again.  And as long as one is bound, nobody
tells how it is but the copy where it was brought to: anybody may lead another copy to another cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from farflung.controllers.placement_translator.kinds import Category, category
from farflung.controllers.placement_translator.projecting import COUNT, RETURNED
from farflung.controllers.placement_translator.values import Kind
from farflung.controllers.placement_translator.world import DEFINITIONS, NAMESPACES
from farflung.machinery.errors import Obj

MARKS: Final = (COUNT, RETURNED)
DELIVERED: Final = "Delivered"  #: condition of virtual machines about which no copy has a say
OWN: Final = ("PodScheduled", DELIVERED)  #: conditions of who places virtual machines
ENDED: Final = ("Failed", "Succeeded")
PODS: Final = Kind("", "pods")
BROUGHT: Final = "globalscheduler.com/cluster"  #: label of machines that are brought to the clusters they are bound to
BRINGS: Final = "global-scheduler-"  #: the name of the placement that does it, followed by the value of the label
_NEVER: Final = frozenset({NAMESPACES, DEFINITIONS, Kind("", "resourcequotas")})  #: their own servers say how they are


class Returned(NamedTuple):
    """What came back from one cluster."""

    target: str  #: the name of its SyncTarget
    status: Mapping[str, Any]


class Asked(NamedTuple):
    """What placements ask of an object."""

    clusters: int  #: how many have a copy because of them
    only: Returned | None = None  #: what came back, if that is one
    placements: frozenset[str] = frozenset()  #: their names


class Step(NamedTuple):
    """What to write next: either a label and an annotation (None: away), or the status."""

    executing: str | None = None
    returned: str | None = None
    status: Obj | None = None


def is_given_back(kind: Kind) -> bool:
    """Whether the status of such objects is ever ours, whatever marks somebody puts on them."""
    return category(kind) is Category.EDGE and kind not in _NEVER


def is_marked(document: bytes) -> bool:
    """Whether an object may have one of the marks."""
    return any(mark.encode() in document for mark in MARKS)


def step(kind: Kind, obj: Mapping[str, Any], asked: Asked | None) -> Step | None:
    """`asked`: None if nobody asks.  None: it is as it should be."""
    metadata = obj.get("metadata") or {}
    there = (metadata.get("labels") or {}).get(COUNT), (metadata.get("annotations") or {}).get(RETURNED)
    only = asked.only if asked is not None and asked.clusters == 1 and _is_told_by_copy(kind, obj, asked) else None
    if only is None and there[1] is not None and is_given_back(kind):
        left = _without_copy(kind, obj)
        if (obj.get("status") or {}) != left:
            return Step(status=left)
    wanted = None if asked is None else str(asked.clusters), None if only is None else only.target
    if there != wanted:
        return Step(*wanted)
    if only is None:
        return None
    status = {**only.status, **_with_own(kind, obj, only.status)}
    return None if obj.get("status") == status else Step(*wanted, status)


# --- virtual machines -----------------------------------------------------------------------------


def _machine(kind: Kind, obj: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The spec of a virtual machine."""
    spec = obj.get("spec")
    is_machine = kind == PODS and isinstance(spec, dict) and spec.get("virtualMachine") is not None
    return spec if is_machine else None


def _is_told_by_copy(kind: Kind, obj: Mapping[str, Any], asked: Asked) -> bool:
    spec, labels = _machine(kind, obj), (obj.get("metadata") or {}).get("labels") or {}
    is_bound = spec is not None and bool(spec.get("nodeName") or spec.get("clusterName"))
    return is_given_back(kind) and (not is_bound or f"{BRINGS}{labels.get(BROUGHT)}" in asked.placements)


def _own_conditions(kind: Kind, obj: Mapping[str, Any]) -> list[Obj]:
    """What is said of a virtual machine by who places it."""
    if _machine(kind, obj) is None:
        return []
    return [one for one in _conditions(obj.get("status")) if one.get("type") in OWN]


def _conditions(status: object) -> list[Obj]:
    found = status.get("conditions") if isinstance(status, dict) else None
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _with_own(kind: Kind, obj: Mapping[str, Any], returned: Mapping[str, Any]) -> Obj:
    """The conditions, if they are not just those that came back."""
    if _machine(kind, obj) is None:
        return {}
    said = _conditions(returned)
    theirs = [one for one in said if one.get("type") != DELIVERED]
    told = [one.get("type") for one in theirs]
    kept = [one for one in _own_conditions(kind, obj) if one.get("type") not in told]
    return {"conditions": [*theirs, *kept]} if kept or theirs != said else {}


def _without_copy(kind: Kind, obj: Mapping[str, Any]) -> Obj:
    """The status of what has no copy, or not one that counts."""
    own, status = _own_conditions(kind, obj), obj.get("status")
    if own and isinstance(status, dict) and status.get("phase") in ENDED:
        return status
    return {"phase": "Pending", "conditions": own} if own else {}
