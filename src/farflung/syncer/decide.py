"""What is to be done at the edge about one object.

step = about(entry, live, adopt)

`entry` is what the hub last said, `live` what is at the edge.  Whatever happens, nothing that has not our mark is
changed, unless it is adopted, or deleted; and nothing is deleted unless the hub withdrew it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import orjson

from farflung.syncer.conversion import digest, identical, is_create_only, is_downsynced, owned_fields
from farflung.syncer.journal import JournalEntry
from farflung.syncer.types import MANAGER, Adopt, Part, Resource
from farflung.syncer.wanted import NAMESPACES

DEFINITIONS: Final = Resource("apiextensions.k8s.io", "customresourcedefinitions")


class ApplyReason(StrEnum):
    """Why something is applied."""

    NEW = "New"
    CHANGED = "Changed"
    DRIFT = "Drift"  #: somebody changed or deleted it at the edge
    ADOPTED = "Adopted"
    PROTECTED = "Protected"  #: for the last time, to say that it is left alone from now on


class LeaveReason(StrEnum):
    """Why something is left alone."""

    NOT_OURS = "NotOurs"
    CREATE_ONLY = "CreateOnly"
    ORPHANED = "Orphaned"


@dataclass(frozen=True, slots=True)
class ApplyObject:
    """Apply `entry.desired`.

    With a uid: forced, to the object that has it.  Without: not forced, so that what somebody else makes at the same
    moment is not overwritten.  With a version as well: only if it has not changed since."""

    why: ApplyReason
    uid: str = ""
    version: str = ""  #: the resourceVersion


@dataclass(frozen=True, slots=True)
class DeleteObject:
    """Delete the object that has this uid.  `container`: others are in it and go with it, so it may be deleted only if
    all of them are ours."""

    uid: str
    container: bool = False


@dataclass(frozen=True, slots=True)
class LeaveObject:
    reason: LeaveReason
    sentence: str = ""  #: for people, if this is a problem


@dataclass(frozen=True, slots=True)
class AwaitDeletion:
    """It is being deleted: when it has gone, decide again."""


@dataclass(frozen=True, slots=True)
class ReleaseCopy:
    """It was withdrawn, and nothing of it is left that we may delete: the finalizer goes, and the entry with it."""


@dataclass(frozen=True, slots=True)
class NoChange:
    """All is as it is to be."""


Action = ApplyObject | DeleteObject | LeaveObject | AwaitDeletion | ReleaseCopy | NoChange


def decide(entry: JournalEntry | None, live: Mapping[str, Any] | None, adopt: Adopt) -> Action:
    """What is to be done."""
    if entry is None:
        return _forgotten(live)
    if entry.withdrawn and not entry.orphaned:
        return _withdraw(entry, live)
    if live is None:
        return ApplyObject(ApplyReason.DRIFT if entry.applied else ApplyReason.NEW)
    if "deletionTimestamp" in live["metadata"]:
        return AwaitDeletion()
    if not is_downsynced(live):
        return _meet(entry, live, adopt)
    if entry.create_only:
        return _protect(entry, live)
    return _keep(entry, live)


def _forgotten(live: Mapping[str, Any] | None) -> Action:
    if live is None or not is_downsynced(live):
        return NoChange()
    return LeaveObject(LeaveReason.CREATE_ONLY if is_create_only(live) else LeaveReason.ORPHANED)


def _withdraw(entry: JournalEntry, live: Mapping[str, Any] | None) -> Action:
    """What either side knows as made only once stays."""
    if live is None or not is_downsynced(live) or entry.create_only or is_create_only(live):
        return ReleaseCopy()
    if "deletionTimestamp" in live["metadata"]:
        return AwaitDeletion()
    return DeleteObject(_uid(live), container=entry.part.resource in (NAMESPACES, DEFINITIONS))


def _meet(entry: JournalEntry, live: Mapping[str, Any], adopt: Adopt) -> Action:
    """What is there is not ours."""
    if entry.orphaned:
        return LeaveObject(LeaveReason.ORPHANED)
    if entry.create_only:
        return LeaveObject(LeaveReason.CREATE_ONLY)
    if entry.part.resource == NAMESPACES:
        return NoChange()
    if adopt is Adopt.ALWAYS or (adopt is Adopt.IF_IDENTICAL and identical(orjson.loads(entry.desired), live)):
        return ApplyObject(ApplyReason.ADOPTED, _uid(live), live["metadata"].get("resourceVersion") or "")
    return LeaveObject(LeaveReason.NOT_OURS, _refusal(entry.part, adopt))


def _refusal(part: Part, adopt: Adopt) -> str:
    different = " and differs from what is wanted" if adopt is Adopt.IF_IDENTICAL else ""
    return (
        f"{part} is at the edge already, is not ours{different}: it is left as it is; delete or rename one of the two, "
        f"or let the syncer adopt what it finds (--adopt {Adopt.ALWAYS})"
    )


def _protect(entry: JournalEntry, live: Mapping[str, Any]) -> Action:
    if is_create_only(live) or entry.applied == digest(entry.desired):
        return LeaveObject(LeaveReason.CREATE_ONLY)
    return ApplyObject(ApplyReason.PROTECTED, _uid(live))


def _keep(entry: JournalEntry, live: Mapping[str, Any]) -> Action:
    if entry.applied != digest(entry.desired):
        return ApplyObject(ApplyReason.CHANGED, _uid(live))
    if _has_drifted(entry, live):
        return ApplyObject(ApplyReason.DRIFT, _uid(live))
    return LeaveObject(LeaveReason.ORPHANED) if entry.orphaned else NoChange()


def _has_drifted(entry: JournalEntry, live: Mapping[str, Any]) -> bool:
    if _uid(live) != entry.edge_uid:
        return True
    if not entry.owned:  # a server that does not say who owns what
        return not identical(orjson.loads(entry.desired), live)
    return owned_fields(live, MANAGER) != entry.owned


def _uid(live: Mapping[str, Any]) -> str:
    return str(live["metadata"].get("uid") or "")


PATIENT: Final = 3  #: corrections that are done at once
QUIET: Final = 300.0  #: seconds after which a contest is over, and the longest pause in one


@dataclass(slots=True)
class DriftHistory:
    rounds: int  #: of corrections
    until: float  #: when it is our turn


class DriftBackoff:
    def __init__(self) -> None:
        self._known: dict[Part, DriftHistory] = {}

    def pause(self, part: Part, now: float) -> float:
        """Seconds until it is our turn to correct it once more."""
        contest = self._known.get(part)
        if contest is not None and now > contest.until + QUIET:
            del self._known[part]
            return 0.0
        return 0.0 if contest is None else max(0.0, contest.until - now)

    def corrected(self, part: Part, now: float) -> str:
        """It was.  What is to be told of that; empty if it has not happened often."""
        contest = self._known.setdefault(part, DriftHistory(0, now))
        contest.rounds += 1
        contest.until = now
        if contest.rounds <= PATIENT:
            return ""
        pause = min(2.0 ** (contest.rounds - PATIENT), QUIET)
        contest.until += pause
        return f"somebody at the edge has changed it {contest.rounds} times: it is corrected in {pause:.0f} s again"
