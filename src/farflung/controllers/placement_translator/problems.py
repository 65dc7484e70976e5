"""What keeps parts of a placement from where they should be.  Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from farflung.controllers.placement_translator.world import PlacementKey
from farflung.machinery.errors import Obj

CONDITION: Final = "WorkloadProjected"
SHOWN: Final = 3  #: problems that a condition shows; it says how many there are


class Problem(NamedTuple):
    """They are sorted as they are, the worst reason first by name of the reason."""

    reason: str  #: InvalidSpec, WithdrawalHeld, Conflict, CustomizationFailed, NotServed, Refused
    message: str


class Problems:
    """By placement and by what they are about."""

    def __init__(self) -> None:
        self._of: dict[PlacementKey, dict[object, tuple[Problem, ...]]] = {}

    def put(self, key: PlacementKey, about: object, problems: Iterable[Problem]) -> list[Problem] | None:
        """Those that are new; None if nothing is different."""
        found = tuple(sorted(set(problems)))
        before = self._of.get(key, {}).get(about, ())
        if found == before:
            return None
        if found:
            self._of.setdefault(key, {})[about] = found
        else:
            del self._of[key][about]
            if not self._of[key]:
                del self._of[key]
        return [one for one in found if one not in before]

    def about(self, about: object) -> list[PlacementKey]:
        return [key for key, some in self._of.items() if about in some]

    def forget(self, key: PlacementKey) -> None:
        self._of.pop(key, None)

    def of(self, key: PlacementKey) -> list[Problem]:
        return sorted({problem for some in self._of.get(key, {}).values() for problem in some})


def condition(problems: list[Problem]) -> Obj:
    """Without a time."""
    if not problems:
        return {"type": CONDITION, "status": "True", "reason": "Projected"}
    shown = "; ".join(problem.message for problem in problems[:SHOWN])
    more = f"; and {len(problems) - SHOWN} more" if len(problems) > SHOWN else ""
    return {
        "type": CONDITION,
        "status": "False",
        "severity": "Error",
        "reason": problems[0].reason,
        "message": f"{shown}{more}",
    }


def with_condition(status: Mapping[str, Any] | None, wanted: Obj, now: str) -> Obj | None:
    """A status with the condition; None if it has it.  Other conditions stay as they are."""
    before = dict(status or {})
    conditions = [dict(one) for one in before.get("conditions") or () if isinstance(one, dict)]
    at = next((at for at, one in enumerate(conditions) if one.get("type") == wanted["type"]), None)
    if at is None:
        conditions.append({**wanted, "lastTransitionTime": now})
    elif {key: value for key, value in conditions[at].items() if key != "lastTransitionTime"} != wanted:
        conditions[at] = {**wanted, "lastTransitionTime": now}
    else:
        return None
    return {"matchingLocationCount": 0, **before, "conditions": conditions}
