"""The writes that a decision asks for, and their Events.  Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from farflung.apis.names import Collection
from farflung.machinery.errors import Obj
from farflung.runtime.plan import Create, Delete, Update, UpdateStatus, Write

NORMAL: Final = "Normal"
WARNING: Final = "Warning"


@dataclass(frozen=True, slots=True)
class EventText:
    """An Event about the owner."""

    type: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class WriteStep:
    """One write.  `done`: the Event after success; `failed`: the Event after a failure, followed by the error."""

    write: Write
    done: EventText | None = None
    failed: EventText | None = None
    propagation: str = ""  #: of a deletion


@dataclass(frozen=True, slots=True)
class WorkloadPlan:
    """Ordered steps.  If one fails, the later ones are left to the next reconcile."""

    steps: tuple[WriteStep, ...] = ()
    requeue_after: float | None = None  #: seconds


NO_WRITES: Final = WorkloadPlan()


def create(collection: Collection, obj: Obj) -> Create:
    metadata = obj["metadata"]
    return Create("", collection, metadata["namespace"], metadata["name"], obj)


def update(collection: Collection, obj: Obj) -> Update:
    metadata = obj["metadata"]
    return Update("", collection, metadata["namespace"], metadata["name"], obj)


def update_status(collection: Collection, obj: Obj, status: Mapping[str, Any]) -> UpdateStatus:
    metadata = obj["metadata"]
    changed = {**obj, "status": dict(status)}
    return UpdateStatus("", collection, metadata["namespace"], metadata["name"], changed)


def status_plan(
    collection: Collection, owner: Obj, status: Obj, requeue_after: float | None = None, event: EventText | None = None
) -> WorkloadPlan:
    """Write the status if it changed.  `event`: after the write."""
    if status == owner.get("status"):
        return WorkloadPlan((), requeue_after)
    return WorkloadPlan((WriteStep(update_status(collection, owner, status), event),), requeue_after)


def delete(collection: Collection, obj: Obj) -> Delete:
    metadata = obj["metadata"]
    return Delete("", collection, metadata["namespace"], metadata["name"], metadata["uid"])


def count_collision(collection: Collection, owner: Obj) -> WriteStep:
    """Another object has the hashed name: the next hash differs."""
    status: Obj = owner.get("status") or {}
    counted = {**status, "collisionCount": (status.get("collisionCount") or 0) + 1}
    return WriteStep(update_status(collection, owner, counted))


def soonest(*pauses: float | None) -> float | None:
    return min((pause for pause in pauses if pause is not None), default=None)
