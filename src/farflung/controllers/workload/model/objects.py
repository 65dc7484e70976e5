"""Collections, metadata, conditions and IntOrString values of workload objects.  Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

from farflung.machinery import times
from farflung.machinery.errors import Obj

ZERO_TIME: Final = datetime(1, 1, 1, tzinfo=UTC)


def find_condition(status: Obj | None, type: str) -> Obj | None:
    for condition in (status or {}).get("conditions") or ():
        if condition.get("type") == type:
            return condition  # type: ignore[no-any-return]
    return None


def is_condition_true(status: Obj | None, type: str) -> bool:
    condition = find_condition(status, type)
    return condition is not None and condition.get("status") == "True"


def without_condition(conditions: Iterable[Obj], type: str) -> list[Obj]:
    return [one for one in conditions if one.get("type") != type]


def set_condition(conditions: Iterable[Obj], new: Obj) -> list[Obj]:
    """Append `new`, unless a condition with the same status and reason exists.  An unchanged status keeps its
    lastTransitionTime."""
    conditions = list(conditions)
    old = find_condition({"conditions": conditions}, new["type"])
    if old is not None and old.get("status") == new["status"] and old.get("reason") == new.get("reason"):
        return conditions
    if old is not None and old.get("status") == new["status"] and "lastTransitionTime" in old:
        new = {**new, "lastTransitionTime": old["lastTransitionTime"]}
    return [*without_condition(conditions, new["type"]), new]


def is_terminating(obj: Obj) -> bool:
    return "deletionTimestamp" in obj["metadata"]


def labels(obj: Obj) -> dict[str, str]:
    return obj["metadata"].get("labels") or {}


def annotations_of(obj: Obj) -> dict[str, str]:
    return obj["metadata"].get("annotations") or {}


def parse_time(text: str | None) -> datetime:
    """ZERO_TIME for an empty text."""
    return times.parse(text) if text else ZERO_TIME


def creation_time(obj: Obj) -> datetime:
    return parse_time(obj["metadata"].get("creationTimestamp"))


def oldest_first(objects: Iterable[Obj]) -> list[Obj]:
    return sorted(objects, key=lambda obj: (creation_time(obj), obj["metadata"]["name"]))


def resolve_int_or_percent(value: int | str | None, total: int, *, round_up: bool) -> int:
    if value is None:
        return 0
    if isinstance(value, int):
        return value
    percent = int(value.removesuffix("%"))
    return -(-percent * total // 100) if round_up else percent * total // 100


def resolve_fenceposts(surge: int | str | None, unavailable: int | str | None, desired: int) -> tuple[int, int]:
    """The numbers for maxSurge and maxUnavailable, at least one of which is positive."""
    more = resolve_int_or_percent(surge, desired, round_up=True)
    fewer = resolve_int_or_percent(unavailable, desired, round_up=False)
    return more, 1 if more == 0 and fewer == 0 else fewer
