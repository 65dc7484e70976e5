"""Conditions as Deployments, ReplicaSets, Jobs and Pods have them.  Pure."""

from __future__ import annotations

from collections.abc import Iterable

from farflung.machinery.errors import Obj


def found(status: Obj | None, type: str) -> Obj | None:
    for condition in (status or {}).get("conditions") or ():
        if condition.get("type") == type:
            return condition  # type: ignore[no-any-return]
    return None


def is_true(status: Obj | None, type: str) -> bool:
    condition = found(status, type)
    return condition is not None and condition.get("status") == "True"


def without(conditions: Iterable[Obj], type: str) -> list[Obj]:
    return [one for one in conditions if one.get("type") != type]


def put(conditions: Iterable[Obj], new: Obj) -> list[Obj]:
    """With `new` at the end, unless one of the same status and reason is there.  What did not change its status keeps
    the time at which it did."""
    conditions = list(conditions)
    old = found({"conditions": conditions}, new["type"])
    if old is not None and old.get("status") == new["status"] and old.get("reason") == new.get("reason"):
        return conditions
    if old is not None and old.get("status") == new["status"] and "lastTransitionTime" in old:
        new = {**new, "lastTransitionTime": old["lastTransitionTime"]}
    return [*without(conditions, new["type"]), new]
