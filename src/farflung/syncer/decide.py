"""The decision about one object at the edge, and the pauses between corrections of drift.

action = decide(entry, live, adopt)

`entry` is the journal entry of the copy, `live` the object at the edge.  An object without our mark is never deleted,
and changed only if it is adopted.  An object is deleted only if its copy was withdrawn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import orjson

from farflung.apis.edge.names import SYNCER_MANAGER
from farflung.placement.names import DEFINITIONS, NAMESPACES, ObjectRef
from farflung.syncer.conversion import hash_of, identical, is_create_only, is_downsynced, owned_fields
from farflung.syncer.journal import JournalEntry


class Adopt(StrEnum):
    """Which objects that exist at the edge and were not applied by a syncer may be taken over."""

    NEVER = "never"
    IF_IDENTICAL = "if-identical"
    ALWAYS = "always"


class ApplyReason(StrEnum):
    NEW = "New"
    CHANGED = "Changed"
    DRIFT = "Drift"  #: another client changed or deleted it at the edge
    ADOPTED = "Adopted"
    PROTECTED = "Protected"  #: for the last time, to mark it as created only once


class LeaveReason(StrEnum):
    NOT_MANAGED = "NotManaged"
    CREATE_ONLY = "CreateOnly"
    ORPHANED = "Orphaned"


@dataclass(frozen=True, slots=True)
class ApplyObject:
    """Apply `entry.desired`.

    With a uid: forced, to the object with this uid.  Without: not forced, so that an object that another client creates
    at the same moment is not overwritten.  With a version as well: only if the object did not change since."""

    why: ApplyReason
    uid: str = ""
    version: str = ""  #: the resourceVersion


@dataclass(frozen=True, slots=True)
class DeleteObject:
    """Delete the object with this uid.  `container`: a namespace or definition, which may be deleted only if all
    objects in it are ours."""

    uid: str
    container: bool = False


@dataclass(frozen=True, slots=True)
class LeaveObject:
    reason: LeaveReason
    sentence: str = ""  #: to be reported, if this is a problem


@dataclass(frozen=True, slots=True)
class AwaitDeletion:
    """The object is being deleted: decide again afterwards."""


@dataclass(frozen=True, slots=True)
class ReleaseCopy:
    """The copy was withdrawn, and nothing is left to delete: remove the finalizer and the entry."""


@dataclass(frozen=True, slots=True)
class NoChange:
    """The object is as desired."""


Action = ApplyObject | DeleteObject | LeaveObject | AwaitDeletion | ReleaseCopy | NoChange


def decide(entry: JournalEntry | None, live: Mapping[str, Any] | None, adopt: Adopt) -> Action:
    if entry is None:
        return _forgotten(live)
    if entry.withdrawn and not entry.orphaned:
        return _withdraw(entry, live)
    if live is None:
        return ApplyObject(ApplyReason.DRIFT if entry.applied else ApplyReason.NEW)
    if "deletionTimestamp" in live["metadata"]:
        return AwaitDeletion()
    if not is_downsynced(live):
        return _consider_adoption(entry, live, adopt)
    if entry.create_only:
        return _protect(entry, live)
    return _keep(entry, live)


def _forgotten(live: Mapping[str, Any] | None) -> Action:
    if live is None or not is_downsynced(live):
        return NoChange()
    return LeaveObject(LeaveReason.CREATE_ONLY if is_create_only(live) else LeaveReason.ORPHANED)


def _withdraw(entry: JournalEntry, live: Mapping[str, Any] | None) -> Action:
    """An object that either side marks as created only once stays."""
    if live is None or not is_downsynced(live) or entry.create_only or is_create_only(live):
        return ReleaseCopy()
    if "deletionTimestamp" in live["metadata"]:
        return AwaitDeletion()
    return DeleteObject(_uid(live), container=entry.ref.resource in (NAMESPACES, DEFINITIONS))


def _consider_adoption(entry: JournalEntry, live: Mapping[str, Any], adopt: Adopt) -> Action:
    """The object at the edge does not have our mark."""
    if entry.orphaned:
        return LeaveObject(LeaveReason.ORPHANED)
    if entry.create_only:
        return LeaveObject(LeaveReason.CREATE_ONLY)
    if entry.ref.resource == NAMESPACES:
        return NoChange()
    if adopt is Adopt.ALWAYS or (adopt is Adopt.IF_IDENTICAL and identical(orjson.loads(entry.desired), live)):
        return ApplyObject(ApplyReason.ADOPTED, _uid(live), live["metadata"].get("resourceVersion") or "")
    return LeaveObject(LeaveReason.NOT_MANAGED, _refusal(entry.ref, adopt))


def _refusal(ref: ObjectRef, adopt: Adopt) -> str:
    different = " and differs from the copy" if adopt is Adopt.IF_IDENTICAL else ""
    return (
        f"{ref} already exists at the edge, is not managed by the syncer{different}: it stays unchanged; delete or "
        f"rename one of the two, or let the syncer adopt existing objects (--adopt {Adopt.ALWAYS})"
    )


def _protect(entry: JournalEntry, live: Mapping[str, Any]) -> Action:
    if is_create_only(live) or entry.applied == hash_of(entry.desired):
        return LeaveObject(LeaveReason.CREATE_ONLY)
    return ApplyObject(ApplyReason.PROTECTED, _uid(live))


def _keep(entry: JournalEntry, live: Mapping[str, Any]) -> Action:
    if entry.applied != hash_of(entry.desired):
        return ApplyObject(ApplyReason.CHANGED, _uid(live))
    if _has_drifted(entry, live):
        return ApplyObject(ApplyReason.DRIFT, _uid(live))
    return LeaveObject(LeaveReason.ORPHANED) if entry.orphaned else NoChange()


def _has_drifted(entry: JournalEntry, live: Mapping[str, Any]) -> bool:
    if _uid(live) != entry.edge_uid:
        return True
    if not entry.owned:  # a server without managedFields
        return not identical(orjson.loads(entry.desired), live)
    return owned_fields(live, SYNCER_MANAGER) != entry.owned


def _uid(live: Mapping[str, Any]) -> str:
    return str(live["metadata"].get("uid") or "")


PATIENT: Final = 3  #: corrections without a pause
QUIET_SECONDS: Final = 300.0  #: seconds without drift after which corrections start anew, and the longest pause


@dataclass(slots=True)
class DriftHistory:
    rounds: int  #: number of corrections
    until: float  #: when the next correction is due


class DriftBackoff:
    """Growing pauses between corrections of an object that another client changes again and again."""

    def __init__(self) -> None:
        self._known: dict[ObjectRef, DriftHistory] = {}

    def pause(self, ref: ObjectRef, now: float) -> float:
        """Seconds until the next correction."""
        history = self._known.get(ref)
        if history is not None and now > history.until + QUIET_SECONDS:
            del self._known[ref]
            return 0.0
        return 0.0 if history is None else max(0.0, history.until - now)

    def record_correction(self, ref: ObjectRef, now: float) -> str:
        """Count a correction.  Returns a message to report, or an empty one after few corrections."""
        history = self._known.setdefault(ref, DriftHistory(0, now))
        history.rounds += 1
        history.until = now
        if history.rounds <= PATIENT:
            return ""
        pause = min(2.0 ** (history.rounds - PATIENT), QUIET_SECONDS)
        history.until += pause
        return f"another client at the edge changed it {history.rounds} times; the next correction is in {pause:.0f} s"
