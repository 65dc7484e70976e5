"""What a decision wants done, and what is said of it.  Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from farflung.client.resource import Collection
from farflung.machinery.errors import Obj
from farflung.runtime.plan import Create, Delete, Update, UpdateStatus, Write

NORMAL: Final = "Normal"
WARNING: Final = "Warning"


@dataclass(frozen=True, slots=True)
class Said:
    """An Event about the owner."""

    type: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Step:
    """One write.  `done` is said when it succeeded; `failed`, followed by what the server answered, when it did not."""

    write: Write
    done: Said | None = None
    failed: Said | None = None
    propagation: str = ""  #: of a deletion


@dataclass(frozen=True, slots=True)
class Plan:
    """Steps in their order; if one fails, those behind it are left for the next look."""

    steps: tuple[Step, ...] = ()
    again: float | None = None  #: seconds after which time alone may have changed something


NOTHING: Final = Plan()


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


def delete(collection: Collection, obj: Obj) -> Delete:
    metadata = obj["metadata"]
    return Delete("", collection, metadata["namespace"], metadata["name"], metadata["uid"])


def collided(collection: Collection, owner: Obj) -> Step:
    """Somebody else has the name that was made of a hash: another one is to be made."""
    status: Obj = owner.get("status") or {}
    counted = {**status, "collisionCount": (status.get("collisionCount") or 0) + 1}
    return Step(update_status(collection, owner, counted))


def sooner(*pauses: float | None) -> float | None:
    """The first of several moments to look again."""
    return min((pause for pause in pauses if pause is not None), default=None)
