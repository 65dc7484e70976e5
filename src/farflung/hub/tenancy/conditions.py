"""Conditions as kcp writes them: Ready first, the others by name, with a severity when they are not met."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from farflung.machinery.errors import Obj

READY: Final = "Ready"


class Verdict(NamedTuple):
    """A condition without its time.  One that is met says nothing more."""

    type: str
    reason: str = ""
    message: str = ""
    severity: str = "Error"

    @property
    def is_met(self) -> bool:
        return not self.reason

    def condition(self, now: str) -> Obj:
        if self.is_met:
            return {"type": self.type, "status": "True", "lastTransitionTime": now}
        return {
            "type": self.type,
            "status": "False",
            "severity": self.severity,
            "reason": self.reason,
            "message": self.message,
            "lastTransitionTime": now,
        }


def merged(present: Iterable[Obj], verdicts: Iterable[Verdict], now: str) -> list[Obj]:
    """The present conditions with new ones in their places.  One that says what it said keeps its time."""
    found = {one.get("type", ""): one for one in present}
    for verdict in verdicts:
        fresh, before = verdict.condition(now), found.get(verdict.type)
        if before is None or {**before, "lastTransitionTime": now} != fresh:
            found[verdict.type] = fresh
    return sorted(found.values(), key=lambda one: (one["type"] != READY, one["type"]))


def is_met(obj: Obj, type: str) -> bool:
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return any(one.get("type") == type and one.get("status") == "True" for one in conditions)
