"""What is wrong with one copy by its own account.  Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from farflung.controllers.placement_translator.values import Kind
from farflung.controllers.status_summarizer.values import Verdict
from farflung.machinery import times

MESSAGE: Final = 256  #: characters of a message
REASON: Final = 63  #: and of a reason

CLAIMS: Final = Kind("", "persistentvolumeclaims")
DAEMON_SETS: Final = Kind("apps", "daemonsets")
DEPLOYMENTS: Final = Kind("apps", "deployments")
JOBS: Final = Kind("batch", "jobs")
PODS: Final = Kind("", "pods")

_REPLICATED: Final = frozenset(
    {Kind("", "replicationcontrollers"), DEPLOYMENTS, Kind("apps", "replicasets"), Kind("apps", "statefulsets")}
)
_GOOD: Final = ("Available", "Ready", "Complete")  #: types of conditions that should not be False
_GOOD_OF: Final = {JOBS: (), PODS: ("Ready", "PodScheduled")}  #: a Job takes its time
_BAD: Final = ("Failed", "ReplicaFailure", "Stalled")  #: types of conditions that should not be True
_BAD_PHASES: Final = {CLAIMS: "Lost", PODS: "Failed"}

_WORD: Final = re.compile(rf"[A-Z][A-Za-z0-9]{{0,{REASON - 1}}}")
_PIECES: Final = re.compile(r"[A-Za-z0-9]+")
_LONGEST_TIME: Final = 64

Conditions = Mapping[str, Mapping[str, Any]]  #: by their types


def verdict_of(
    kind: Kind, spec: Mapping[str, Any], status: Mapping[str, Any], conditions: Conditions
) -> Verdict | None:
    """The first that applies: a condition that should not be False is, or one that should not be True; less is ready
    than is desired; a phase.  None: nothing is wrong."""
    if kind == PODS and status.get("phase") == "Succeeded":
        return None
    return _by_condition(kind, conditions) or _by_count(kind, spec, status) or _by_phase(kind, status)


def _by_condition(kind: Kind, conditions: Conditions) -> Verdict | None:
    for good in _GOOD_OF.get(kind, _GOOD):
        found = conditions.get(good)
        if found is not None and found.get("status") == "False" and found.get("reason") != "PodCompleted":
            return _told(found, f"Not{good}")
    for bad in _BAD:
        found = conditions.get(bad)
        if found is not None and found.get("status") == "True":
            return _told(found, bad)
    found = conditions.get("Progressing") if kind == DEPLOYMENTS else None
    if found is None or found.get("status") != "False" or found.get("reason") != "ProgressDeadlineExceeded":
        return None
    return _told(found, "NotProgressing")


def _told(condition: Mapping[str, Any], otherwise: str) -> Verdict:
    return Verdict(
        word(condition.get("reason")) or otherwise,
        sentence(condition.get("message")),
        moment(condition.get("lastTransitionTime")),
    )


def _by_count(kind: Kind, spec: Mapping[str, Any], status: Mapping[str, Any]) -> Verdict | None:
    if kind == DAEMON_SETS:
        return _short("Pods", _whole(status.get("numberReady"), 0), _whole(status.get("desiredNumberScheduled"), 0))
    if kind not in _REPLICATED:
        return None
    decided_there = _whole(status.get("replicas"), 1)
    return _short("Replicas", _whole(status.get("readyReplicas"), 0), _whole(spec.get("replicas"), decided_there))


def _short(what: str, ready: int, desired: int) -> Verdict | None:
    if ready >= desired:
        return None
    return Verdict(f"{what}NotReady", f"{ready} of {desired} {what.lower()} are ready")


def _by_phase(kind: Kind, status: Mapping[str, Any]) -> Verdict | None:
    bad = _BAD_PHASES.get(kind)
    if bad is None or status.get("phase") != bad:
        return None
    return Verdict(word(status.get("reason")) or bad, sentence(status.get("message")))


# --- of any type, and as they should be -----------------------------------------------------------


def _whole(value: object, otherwise: int) -> int:
    return value if type(value) is int else otherwise


def word(value: object) -> str:
    """One CamelCase word; empty if nothing can be made of it."""
    if type(value) is not str:
        return ""
    if _WORD.fullmatch(value):
        return value
    pieces = "".join(piece[0].upper() + piece[1:] for piece in _PIECES.findall(value[:MESSAGE])).lstrip("0123456789")
    return (pieces[:1].upper() + pieces[1:])[:REASON]


def sentence(value: object) -> str:
    """One line that is not too long, and does nothing to a terminal."""
    if type(value) is not str:
        return ""
    printable = (char if char.isprintable() else " " for char in value[: 2 * MESSAGE])
    line = " ".join("".join(printable).split())
    return line if len(line) <= MESSAGE else f"{line[: MESSAGE - 1]}…"


def moment(value: object) -> str:
    """A time in UTC with seconds; empty if it is none."""
    if type(value) is not str or len(value) > _LONGEST_TIME:
        return ""
    try:
        return times.canonical_seconds(value) or ""
    except times.TimeError:
        return ""
