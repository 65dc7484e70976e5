"""Problems of placements and of their copies.  Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from farflung.apis.edge.names import CONFIRM_WITHDRAWAL, EDGE_PLACEMENTS, SUMMARY_PLACEMENT, WORKLOAD_PROJECTED
from farflung.controllers.edge_scheduler.decide import READY
from farflung.inspect import fields
from farflung.machinery.errors import Obj

BEHIND: Final = "NotLookedAt"
COPIES: Final = ("expected", "reporting", "broken", "missing", "stale")
WRONG: Final = ("broken", "missing", "stale")
_CONFIRMATION: Final = re.compile(re.escape(CONFIRM_WITHDRAWAL) + r': "([0-9]{1,10}/[0-9]{1,10})"')

# --- placements -----------------------------------------------------------------------------------


def placements(documents: Iterable[Obj]) -> list[Obj]:
    """For JSON and YAML: held withdrawals first, then other problems."""
    found = [_placement(one) for one in documents]
    return sorted(found, key=lambda one: (not one["confirmation"], not one["problems"], one["cluster"], one["name"]))


def _placement(document: Obj) -> Obj:
    problems = list(_problems(document))
    held = (_CONFIRMATION.search(one["message"]) for one in problems)
    return {
        "name": fields.name_of(document),
        "cluster": fields.cluster_of(document),
        "matchingLocations": fields.number(document, "status", "matchingLocationCount"),
        "problems": problems,
        "confirmation": next((one[1] for one in held if one), ""),  # of a held withdrawal
    }


def _problems(document: Obj) -> Iterator[Obj]:
    for one in fields.objects(document, "status", "conditions"):
        if one.get("status") == "False":
            yield _problem(one)
    if fields.text(document, "metadata", "deletionTimestamp"):
        return
    generation, seen = (fields.number(document, *path) for path in (("metadata", "generation"), _SEEN))
    if not fields.condition(document, READY) or seen != generation:
        yield _behind(READY, "the scheduler has not processed it yet; is it running?")
    elif not fields.condition(document, WORKLOAD_PROJECTED):
        yield _behind(WORKLOAD_PROJECTED, "the placement translator has not processed it yet; is it running?")


_SEEN: Final = ("status", "specGeneration")


def _problem(condition: Obj) -> Obj:
    severity = fields.text(condition, "severity") or "Error"
    return {
        "type": fields.text(condition, "type"),
        "severity": severity,
        "reason": fields.text(condition, "reason"),
        "message": fields.text(condition, "message"),
        "since": fields.text(condition, "lastTransitionTime"),
    }


def _behind(type: str, message: str) -> Obj:
    return {"type": type, "severity": "Warning", "reason": BEHIND, "message": message, "since": ""}


# --- copies ---------------------------------------------------------------------------------------


def summaries(documents: Iterable[Obj]) -> list[Obj]:
    """The worst first, for JSON and YAML."""
    return sorted(map(_summary, documents), key=_badness)


def _badness(one: Obj) -> tuple[list[int], str, str, str]:
    return [-one[key] for key in WRONG], one["cluster"], one["namespace"], one["name"]


def _summary(document: Obj) -> Obj:
    return {
        "name": fields.name_of(document),
        "cluster": fields.cluster_of(document),
        "namespace": fields.text(document, "metadata", "namespace"),
        "placement": _owner(document),
        "kind": fields.text(document, "subject", "kind"),
        "object": "/".join(filter(None, (fields.text(document, "subject", key) for key in ("namespace", "name")))),
        **{key: fields.number(document, "destinations", key) for key in COPIES},
        "first": next(map(_copy, fields.objects(document, "broken")), None),  # broken copy
    }


def _owner(summary: Obj) -> str:
    """The placement.  The label may truncate its name; the owner reference does not."""
    named = (
        fields.text(one, "name")
        for one in fields.objects(summary, "metadata", "ownerReferences")
        if one.get("kind") == EDGE_PLACEMENTS.kind
    )
    return next(named, "") or fields.texts(summary, "metadata", "labels").get(SUMMARY_PLACEMENT, "")


def _copy(broken: Obj) -> Obj:
    keys = ("cluster", "locationName", "syncTargetName", "reason", "message", "since")
    return {key: fields.text(broken, key) for key in keys}


def has_problems(summary: Obj) -> bool:
    return any(summary[key] for key in WRONG)
