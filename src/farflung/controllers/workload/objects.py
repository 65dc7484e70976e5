"""Conditions as Deployments, ReplicaSets, Jobs and Pods have them.  Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

from farflung.client.resource import Collection
from farflung.machinery import times
from farflung.machinery.errors import Obj

PODS: Final = Collection("", "v1", "pods", "Pod")
NODES: Final = Collection("", "v1", "nodes", "Node")
CLAIMS: Final = Collection("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
REPLICA_SETS: Final = Collection("apps", "v1", "replicasets", "ReplicaSet")
DEPLOYMENTS: Final = Collection("apps", "v1", "deployments", "Deployment")
STATEFUL_SETS: Final = Collection("apps", "v1", "statefulsets", "StatefulSet")
DAEMON_SETS: Final = Collection("apps", "v1", "daemonsets", "DaemonSet")
REVISIONS: Final = Collection("apps", "v1", "controllerrevisions", "ControllerRevision")
JOBS: Final = Collection("batch", "v1", "jobs", "Job")


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


LONG_AGO: Final = datetime(1, 1, 1, tzinfo=UTC)


def is_terminating(obj: Obj) -> bool:
    return "deletionTimestamp" in obj["metadata"]


def labels(obj: Obj) -> dict[str, str]:
    return obj["metadata"].get("labels") or {}


def notes(obj: Obj) -> dict[str, str]:
    return obj["metadata"].get("annotations") or {}


def moment(text: str | None) -> datetime:
    """LONG_AGO if nobody says."""
    return times.parse(text) if text else LONG_AGO


def created(obj: Obj) -> datetime:
    return moment(obj["metadata"].get("creationTimestamp"))


def oldest_first(objects: Iterable[Obj]) -> list[Obj]:
    return sorted(objects, key=lambda obj: (created(obj), obj["metadata"]["name"]))


def portion(value: int | str | None, total: int, *, round_up: bool) -> int:
    if value is None:
        return 0
    if isinstance(value, int):
        return value
    percent = int(value.removesuffix("%"))
    return -(-percent * total // 100) if round_up else percent * total // 100


def fence(surge: int | str | None, unavailable: int | str | None, desired: int) -> tuple[int, int]:
    """How many more there may be than desired, and how many fewer may be available; never both none."""
    more = portion(surge, desired, round_up=True)
    fewer = portion(unavailable, desired, round_up=False)
    return more, 1 if more == 0 and fewer == 0 else fewer
