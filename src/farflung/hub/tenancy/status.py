"""The status of Workspaces and LogicalClusters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import orjson

from farflung.apis.kcp.names import (
    INITIALIZER_LABELS,
    OWNER_ANNOTATION,
    PHASE_LABEL,
    WITHIN_QUOTA,
    WORKSPACE_INITIALIZED,
    WORKSPACE_SCHEDULED,
)
from farflung.hub.tenancy.hashes import initializer_label
from farflung.machinery.errors import Obj

SCHEDULING: Final = "Scheduling"
INITIALIZING: Final = "Initializing"
READY: Final = "Ready"
DELETING: Final = "Deleting"  #: only as a label value


TRUE: Final[Obj] = {"status": "True"}
UNSCHEDULABLE: Final[Obj] = {
    "status": "False",
    "severity": "Error",
    "reason": "Unschedulable",
    "message": "No available shards to schedule the workspace",
}
READY_CONDITION: Final = "Ready"


def set_condition(status: Obj, name: str, verdict: Obj, now: str) -> None:
    """Conditions are sorted by type, `Ready` first.  An unchanged condition keeps its time."""
    conditions: list[Obj] = status.get("conditions") or []
    old = next((one for one in conditions if one.get("type") == name), None)
    if old is not None and {**verdict, "type": name} == {k: v for k, v in old.items() if k != "lastTransitionTime"}:
        return
    others = [one for one in conditions if one.get("type") != name]
    conditions = [*others, {"type": name, "lastTransitionTime": now, **verdict}]
    status["conditions"] = sorted(conditions, key=lambda one: (one.get("type") != "Ready", one.get("type", "")))


def set_condition_message(status: Obj, name: str, verdict: Obj, now: str) -> None:
    """A condition whose status is the same keeps its time, whatever its message."""
    conditions: list[Obj] = status.get("conditions") or []
    old: Obj = next((one for one in conditions if one.get("type") == name), {})
    is_same = old.get("status") == verdict["status"]
    set_condition(status, name, verdict, old.get("lastTransitionTime", now) if is_same else now)


def initializing_condition(initializers: Sequence[str]) -> Obj:
    return {
        "status": "False",
        "severity": "Info",
        "reason": "InitializerExists",
        "message": f"Initializers still exist: [{' '.join(initializers)}]",
    }


def remaining_condition(counts: Mapping[tuple[str, str], int]) -> Obj:
    """`counts`: (plural, group) → number of remaining objects."""
    counted = sorted(f"{plural}.{group} has {count} resource instances" for (plural, group), count in counts.items())
    return {
        "status": "False",
        "severity": "Info",
        "reason": "SomeResourcesRemain",
        "message": "Some resources are remaining: " + ", ".join(counted),
    }


def set_phase_label(obj: Obj) -> None:
    deleting = "deletionTimestamp" in obj["metadata"]
    phase = DELETING if deleting else (obj.get("status") or {}).get("phase") or SCHEDULING
    labels = obj["metadata"].setdefault("labels", {})
    labels[PHASE_LABEL] = phase


def drop_owner_details(obj: Obj) -> None:
    """When a workspace is ready, only the owner's name is kept."""
    annotations = obj["metadata"].get("annotations") or {}
    owner = annotations.get(OWNER_ANNOTATION)
    if owner is None:
        return
    try:
        name = orjson.loads(owner).get("username")
    except (orjson.JSONDecodeError, AttributeError):
        return
    if isinstance(name, str):
        annotations[OWNER_ANNOTATION] = orjson.dumps({"username": name}).decode()


def update_cluster_status(cluster: Obj, now: str) -> None:
    """A LogicalCluster is ready when no initializer is left."""
    status = cluster.setdefault("status", {})
    waiting: list[str] = status.get("initializers") or []
    if status.get("phase") in (None, "", SCHEDULING, INITIALIZING):
        status["phase"] = INITIALIZING if waiting else READY
    if status["phase"] == READY:
        set_condition(status, WORKSPACE_INITIALIZED, TRUE, now)
        drop_owner_details(cluster)
    else:
        set_condition(status, WORKSPACE_INITIALIZED, initializing_condition(waiting), now)
    labels = cluster["metadata"].setdefault("labels", {})
    wanted = dict(map(initializer_label, waiting)) if status["phase"] == INITIALIZING else {}
    for name in [name for name in labels if name.startswith(INITIALIZER_LABELS) and name not in wanted]:
        del labels[name]
    labels.update(wanted)
    set_phase_label(cluster)


def update_workspace_status(workspace: Obj, cluster: Obj, now: str) -> None:
    """Copy phase, initializers and used quota of the LogicalCluster to its Workspace."""
    status = workspace.setdefault("status", {})
    of_cluster: Obj = cluster.get("status") or {}
    status["phase"] = of_cluster.get("phase") or INITIALIZING
    waiting: list[str] = of_cluster.get("initializers") or []
    if waiting and status["phase"] == INITIALIZING:
        status["initializers"] = waiting
        set_condition(status, WORKSPACE_INITIALIZED, initializing_condition(waiting), now)
    else:
        status.pop("initializers", None)
        set_condition(status, WORKSPACE_INITIALIZED, TRUE, now)
    set_condition(status, WORKSPACE_SCHEDULED, TRUE, now)
    for one in of_cluster.get("conditions") or ():
        if one.get("type") == WITHIN_QUOTA:
            verdict = {name: value for name, value in one.items() if name not in ("type", "lastTransitionTime")}
            set_condition(status, WITHIN_QUOTA, verdict, one.get("lastTransitionTime", now))
    if status["phase"] == READY:
        drop_owner_details(workspace)
    set_phase_label(workspace)


def mark_unscheduled(workspace: Obj, now: str) -> None:
    """No shard matches the Workspace."""
    status = workspace.setdefault("status", {})
    status["phase"] = SCHEDULING
    set_condition(status, WORKSPACE_SCHEDULED, UNSCHEDULABLE, now)
    set_phase_label(workspace)


def mark_deleted(obj: Obj, now: str) -> None:
    """As a DELETE request does for an object with finalizers."""
    metadata = obj["metadata"]
    metadata["deletionTimestamp"] = now
    metadata["deletionGracePeriodSeconds"] = 0
    if "generation" in metadata:
        metadata["generation"] += 1


class ConditionState(NamedTuple):
    """A condition without its time.  Without a reason it is True."""

    type: str
    reason: str = ""
    message: str = ""
    severity: str = "Error"

    @property
    def is_true(self) -> bool:
        return not self.reason

    def condition(self, now: str) -> Obj:
        if self.is_true:
            return {"type": self.type, "status": "True", "lastTransitionTime": now}
        return {
            "type": self.type,
            "status": "False",
            "severity": self.severity,
            "reason": self.reason,
            "message": self.message,
            "lastTransitionTime": now,
        }


def merge_conditions(present: Iterable[Obj], verdicts: Iterable[ConditionState], now: str) -> list[Obj]:
    """The present conditions, updated.  An unchanged condition keeps its time."""
    found = {one.get("type", ""): one for one in present}
    for verdict in verdicts:
        fresh, before = verdict.condition(now), found.get(verdict.type)
        if before is None or {**before, "lastTransitionTime": now} != fresh:
            found[verdict.type] = fresh
    return sorted(found.values(), key=lambda one: (one["type"] != READY_CONDITION, one["type"]))


def is_condition_true(obj: Obj, type: str) -> bool:
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return any(one.get("type") == type and one.get("status") == "True" for one in conditions)
