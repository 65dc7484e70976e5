"""Problems of placements and of their copies.  Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from farflung.apis.edge.names import CONFIRM_WITHDRAWAL, EDGE_PLACEMENTS, SUMMARY_PLACEMENT, WORKLOAD_PROJECTED
from farflung.controllers.edge_scheduler.decide import READY
from farflung.inspect import fields
from farflung.inspect.results import Result
from farflung.machinery.errors import Obj

BEHIND: Final = "NotLookedAt"
_CONFIRMATION: Final = re.compile(re.escape(CONFIRM_WITHDRAWAL) + r': "([0-9]{1,10}/[0-9]{1,10})"')


class ConditionProblem(Result, frozen=True):
    """A condition that is False, or that a controller has not written yet."""

    type: str
    severity: str
    reason: str
    message: str
    since: str


class PlacementHealth(Result, frozen=True):
    name: str
    cluster: str
    matching_locations: int
    problems: list[ConditionProblem]
    confirmation: str  #: of a held withdrawal
    workspace: str = ""
    confirm_with: str = ""  #: the command that confirms it


class BrokenCopy(Result, frozen=True):
    cluster: str
    location_name: str
    sync_target_name: str
    reason: str
    message: str
    since: str


class CopiesHealth(Result, frozen=True):
    """A StatusSummary: numbers of copies of one object."""

    name: str
    cluster: str
    namespace: str
    placement: str
    kind: str
    object: str
    expected: int
    reporting: int
    broken: int
    missing: int
    stale: int
    first: BrokenCopy | None
    workspace: str = ""

    @property
    def has_problems(self) -> bool:
        return bool(self.broken or self.missing or self.stale)


# --- placements -----------------------------------------------------------------------------------


def placements(documents: Iterable[Obj]) -> list[PlacementHealth]:
    """Held withdrawals first, then other problems."""
    return sorted(
        map(_placement, documents), key=lambda one: (not one.confirmation, not one.problems, one.cluster, one.name)
    )


def _placement(document: Obj) -> PlacementHealth:
    problems = list(_problems(document))
    held = (_CONFIRMATION.search(one.message) for one in problems)
    return PlacementHealth(
        fields.name_of(document),
        fields.cluster_of(document),
        fields.number(document, "status", "matchingLocationCount"),
        problems,
        next((one[1] for one in held if one), ""),
    )


def _problems(document: Obj) -> Iterator[ConditionProblem]:
    for one in fields.objects(document, "status", "conditions"):
        if one.get("status") == "False":
            severity = fields.text(one, "severity") or "Error"
            reason, message = fields.text(one, "reason"), fields.text(one, "message")
            yield ConditionProblem(
                fields.text(one, "type"), severity, reason, message, fields.text(one, "lastTransitionTime")
            )
    if fields.text(document, "metadata", "deletionTimestamp"):
        return
    seen = fields.number(document, "status", "specGeneration")
    if not fields.condition(document, READY) or seen != fields.number(document, "metadata", "generation"):
        message = "the scheduler has not processed it yet; is it running?"
        yield ConditionProblem(READY, "Warning", BEHIND, message, "")
    elif not fields.condition(document, WORKLOAD_PROJECTED):
        message = "the placement translator has not processed it yet; is it running?"
        yield ConditionProblem(WORKLOAD_PROJECTED, "Warning", BEHIND, message, "")


# --- copies ---------------------------------------------------------------------------------------


def summaries(documents: Iterable[Obj]) -> list[CopiesHealth]:
    """The worst first."""
    return sorted(
        map(_summary, documents),
        key=lambda one: (-one.broken, -one.missing, -one.stale, one.cluster, one.namespace, one.name),
    )


def _summary(document: Obj) -> CopiesHealth:
    names = ("expected", "reporting", "broken", "missing", "stale")
    expected, reporting, broken, missing, stale = (fields.number(document, "destinations", name) for name in names)
    return CopiesHealth(
        fields.name_of(document),
        fields.cluster_of(document),
        fields.text(document, "metadata", "namespace"),
        _owner(document),
        fields.text(document, "subject", "kind"),
        "/".join(filter(None, (fields.text(document, "subject", key) for key in ("namespace", "name")))),
        expected,
        reporting,
        broken,
        missing,
        stale,
        next(map(_copy, fields.objects(document, "broken")), None),
    )


def _owner(summary: Obj) -> str:
    """The placement.  The label may truncate its name; the owner reference does not."""
    named = (
        fields.text(one, "name")
        for one in fields.objects(summary, "metadata", "ownerReferences")
        if one.get("kind") == EDGE_PLACEMENTS.kind
    )
    return next(named, "") or fields.texts(summary, "metadata", "labels").get(SUMMARY_PLACEMENT, "")


def _copy(broken: Obj) -> BrokenCopy:
    keys = ("cluster", "locationName", "syncTargetName", "reason", "message", "since")
    return BrokenCopy(*(fields.text(broken, key) for key in keys))
