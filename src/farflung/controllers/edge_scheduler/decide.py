"""What the controller asks for, as functions of values.

    placement = parse_placement(bytes)
    resolution = engine.resolve(placement.key, previous(placement, observed))
    plan(placement, desired(placement, resolution), observed)       writes of slices
    plan_status(placement, obj, resolution, now)                    the write of the status, if there is one

With a problem (`resolution.problem`) nothing is desired: the slices that are there stay, and the status says why.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from farflung.controllers.edge_scheduler import slices
from farflung.controllers.edge_scheduler.reading import parse_location, parse_placement, parse_target
from farflung.controllers.edge_scheduler.slices import LIMIT, PLACEMENTS, SLICES, placements_of, previous
from farflung.controllers.edge_scheduler.values import Placement, Resolution
from farflung.lib.words import count
from farflung.machinery.errors import Obj
from farflung.runtime.plan import UpdateStatus, Write

__all__ = [
    "LIMIT",
    "PLACEMENTS",
    "SLICES",
    "desired",
    "parse_location",
    "parse_placement",
    "parse_target",
    "placements_of",
    "plan",
    "plan_status",
    "previous",
    "status",
]

READY: Final = "Ready"


def desired(placement: Placement, resolution: Resolution, limit: int = LIMIT) -> list[Obj] | None:
    """The slices that should be there; None if nobody knows, and those that are there should stay."""
    return None if resolution.problem else slices.sliced(placement, resolution.destinations, limit)


def plan(placement: Placement, wanted: Sequence[Obj] | None, observed: Iterable[Mapping[str, Any]]) -> list[Write]:
    """`observed`: the slice that is called like the placement, and those that it owns; others do no harm."""
    return [] if wanted is None else slices.plan(placement, wanted, observed)


def status(placement: Placement, resolution: Resolution, observed: Mapping[str, Any] | None, now: str) -> Obj | None:
    """The status that the placement should have; None if it has it.  `now` is a time of the API."""
    before = observed or {}
    conditions = [dict(one) for one in before.get("conditions") or () if isinstance(one, dict)]
    ready = _ready(placement, resolution)
    at = next((at for at, one in enumerate(conditions) if one.get("type") == READY), None)
    if at is None:
        conditions.append({**ready, "lastTransitionTime": now})
    elif {key: value for key, value in conditions[at].items() if key != "lastTransitionTime"} != ready:
        conditions[at] = {**ready, "lastTransitionTime": now}
    matching = before.get("matchingLocationCount") or 0 if resolution.problem else resolution.matching
    after = {
        **before,
        "specGeneration": placement.generation,
        "matchingLocationCount": matching,
        "conditions": conditions,
    }
    return None if after == before else after


def _ready(placement: Placement, resolution: Resolution) -> Obj:
    if resolution.problem:
        return _condition("False", "Error", "InvalidSpec", resolution.problem)
    matching = resolution.matching
    match = "matches" if matching == 1 else "match"
    if placement.number is not None and resolution.chosen < placement.number:
        found = f"{resolution.chosen} of {count(placement.number, 'Location')} can be used; {matching} {match}"
        return _condition("False", "Warning", "NotEnoughLocations", found)
    if not resolution.destinations:
        nothing = "has no" if matching == 1 else "none of them has a"
        found = f"{count(matching, 'Location')} {match}, and {nothing} SyncTarget that can be used"
        nowhere = found if matching else "no Location matches"
        return {"type": READY, "status": "True", "reason": "LeadsNowhere", "message": nowhere}
    return {"type": READY, "status": "True", "reason": "Resolved"}


def _condition(status: str, severity: str, reason: str, message: str) -> Obj:
    return {"type": READY, "status": status, "severity": severity, "reason": reason, "message": message}


def plan_status(placement: Placement, obj: Mapping[str, Any], resolution: Resolution, now: str) -> list[Write]:
    """`obj`: the EdgePlacement as it was read."""
    after = status(placement, resolution, obj.get("status"), now)
    if after is None:
        return []
    cluster, name = placement.key
    return [UpdateStatus(cluster, PLACEMENTS, "", name, {**obj, "status": after})]
