"""Problems of an EdgePlacement, and the condition that reports them.  Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from farflung.apis.edge.names import SELECTED_COUNT, WORKLOAD_PROJECTED
from farflung.lib.groups import discard_from
from farflung.machinery.errors import Obj
from farflung.placement.names import HARMLESS, REASONS, SEPARATOR, PlacementKey

SHOWN_PROBLEMS: Final = 3  #: problems in the message of a condition
MAX_MESSAGE: Final = 500  #: characters of a message
_RANKS: Final = {reason: rank for rank, reason in enumerate(REASONS)}


class PlacementProblem(NamedTuple):
    reason: str  #: one of REASONS
    message: str  #: without values of Secrets

    @property
    def rank(self) -> tuple[int, str]:
        return _RANKS[self.reason], self.message


class PlacementProblems:
    """Problems by placement and subject: a copy, the spec or a withdrawal."""

    def __init__(self) -> None:
        self._of: dict[PlacementKey, dict[object, tuple[PlacementProblem, ...]]] = {}
        self._about: dict[object, set[PlacementKey]] = {}

    def put(
        self, key: PlacementKey, about: object, problems: Iterable[PlacementProblem]
    ) -> list[PlacementProblem] | None:
        """The new problems; None if nothing changed."""
        found = tuple(sorted({PlacementProblem(one.reason, one.message[:MAX_MESSAGE]) for one in problems}))
        before = self._of.get(key, {}).get(about, ())
        if found == before:
            return None
        if found:
            self._of.setdefault(key, {})[about] = found
            self._about.setdefault(about, set()).add(key)
        else:
            self._remove(key, about)
        return [one for one in found if one not in before]

    def _remove(self, key: PlacementKey, about: object) -> None:
        del self._of[key][about]
        if not self._of[key]:
            del self._of[key]
        discard_from(self._about, about, key)

    def about(self, about: object) -> list[PlacementKey]:
        """The placements with problems about a subject."""
        return sorted(self._about.get(about, ()))

    def forget(self, key: PlacementKey) -> None:
        for about in list(self._of.get(key, ())):
            self._remove(key, about)

    def of(self, key: PlacementKey) -> list[PlacementProblem]:
        """The worst first."""
        return sorted({one for some in self._of.get(key, {}).values() for one in some}, key=lambda one: one.rank)


def condition(problems: list[PlacementProblem]) -> Obj:
    """The condition for sorted problems, without lastTransitionTime."""
    if not problems:
        return {"type": WORKLOAD_PROJECTED, "status": "True", "reason": "Projected"}
    shown = SEPARATOR.join(problem.message for problem in problems[:SHOWN_PROBLEMS])
    more = f"{SEPARATOR}and {len(problems) - SHOWN_PROBLEMS} more" if len(problems) > SHOWN_PROBLEMS else ""
    return {
        "type": WORKLOAD_PROJECTED,
        "status": "False",
        "severity": "Warning" if problems[0].reason in HARMLESS else "Error",
        "reason": problems[0].reason,
        "message": f"{shown}{more}",
    }


def with_count(status: Obj | None, selected: int | None) -> Obj | None:
    """The status with the number of selected objects; None if it has it, or the number is not known."""
    if selected is None or (status or {}).get(SELECTED_COUNT) == selected:
        return None
    return {"matchingLocationCount": 0, **(status or {}), SELECTED_COUNT: selected}


def with_condition(status: Mapping[str, Any] | None, wanted: Obj, now: str) -> Obj | None:
    """The status with the condition; None if it has it.  Other conditions are kept, and so is lastTransitionTime while
    the status of the condition is the same."""
    before = dict(status or {})
    conditions = [one for one in before.get("conditions") or () if isinstance(one, dict)]
    at = next((at for at, one in enumerate(conditions) if one.get("type") == wanted["type"]), len(conditions))
    there = conditions[at] if at < len(conditions) else {}
    since = there.get("lastTransitionTime", now) if there.get("status") == wanted["status"] else now
    renewed = {**wanted, "lastTransitionTime": since}
    if renewed == there:
        return None
    return {"matchingLocationCount": 0, **before, "conditions": [*conditions[:at], renewed, *conditions[at + 1 :]]}
