"""The health of one copy: its problem, and the age of its status.  Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
import orjson

from farflung.apis.edge.names import PODS_STUCK, TRANSLATES_GENERATIONS
from farflung.apis.names import POD_SCHEDULED, REPLICA_FAILURE
from farflung.machinery import times
from farflung.placement.names import PODS, GroupResource, ObjectRef, PlacementKey
from farflung.placement.syncer_config import ANY, parse_heartbeat
from farflung.placement.types import CopyDestination


class SummarySubject(NamedTuple):
    """The subject of a summary: an object and one of its placements."""

    placement: PlacementKey
    ref: ObjectRef


class CopyProblem(NamedTuple):
    """A problem of a copy.  Its texts do not change while the problem lasts."""

    reason: str  #: one CamelCase word
    message: str = ""
    since: str = ""  #: RFC 3339 in UTC with seconds; empty: unknown


@dataclass(frozen=True, slots=True)
class CopyStatus:
    """The relevant values of a copy's document."""

    reporting: bool = False  #: it has a status
    observed: str = ""  #: when the status was written, RFC 3339 in UTC with seconds; empty: unknown
    numbers: Mapping[str, int | float] = field(default_factory=dict)  #: by their paths in the status
    conditions: Mapping[str, str] = field(default_factory=dict)  #: type → True, False or Unknown
    texts: Mapping[str, str] = field(default_factory=dict)  #: short ones, by their paths in the status
    problem: CopyProblem | None = None  #: in its status
    rollout: CopyProblem | None = None  #: the state of a rollout that did not finish yet
    is_observed: bool = True  #: the status is not about an earlier generation, if the syncer translates generations


@dataclass(frozen=True, slots=True)
class CopyReport:
    """The state of one destination."""

    destination: CopyDestination
    copy_status: CopyStatus | None = None  #: None: there is no copy
    refused: CopyProblem | None = None  #: why its syncer cannot apply it
    stale: CopyProblem | None = None  #: why the status is stale
    progress: CopyProblem | None = None  #: why its cluster does not run the current generation yet


class DestinationRow(NamedTuple):
    """One destination, for expressions."""

    destination: CopyDestination
    given: Mapping[str, Any]  #: `inventory`, `obj`, `returned`, `propagation`


MAX_MESSAGE: Final = 256  #: characters of a message
MAX_REASON: Final = 63  #: and of a reason
CLAIMS: Final = GroupResource("", "persistentvolumeclaims")
DAEMON_SETS: Final = GroupResource("apps", "daemonsets")
DEPLOYMENTS: Final = GroupResource("apps", "deployments")
STATEFUL_SETS: Final = GroupResource("apps", "statefulsets")
JOBS: Final = GroupResource("batch", "jobs")
_REPLICATED: Final = frozenset(
    {
        GroupResource("", "replicationcontrollers"),
        DEPLOYMENTS,
        GroupResource("apps", "replicasets"),
        STATEFUL_SETS,
    }
)
CRASH_LOOP: Final = "CrashLoopBackOff"
_NO_IMAGE: Final = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull")
_NOT_CREATED: Final = ("CreateContainerConfigError", "CreateContainerError", "RunContainerError")
_MANY_RESTARTS: Final = 3  #: of a container that is not ready
ROLLED_OUT: Final = frozenset({DAEMON_SETS, DEPLOYMENTS, STATEFUL_SETS})  #: kinds with rollouts
ROLLING_OUT: Final = "RollingOut"
UNOBSERVED: Final = CopyProblem("NotObserved", "its cluster has not observed the last change yet")
_MANUAL: Final = "OnDelete"  #: of an update strategy without rollouts


_GOOD: Final = ("Available", "Ready", "Complete")  #: types of conditions that should not be False
_GOOD_OF: Final = {JOBS: (), PODS: ("Ready", POD_SCHEDULED)}  #: a Job takes its time
_BAD: Final = (PODS_STUCK, "Failed", REPLICA_FAILURE, "Stalled")  #: types of conditions that should not be True
_BAD_PHASES: Final = {CLAIMS: "Lost", PODS: "Failed"}
_WORD: Final = re.compile(rf"[A-Z][A-Za-z0-9]{{0,{MAX_REASON - 1}}}")
_PIECES: Final = re.compile(r"[A-Za-z0-9]+")
_LONGEST_TIME: Final = 64
Conditions = Mapping[str, Mapping[str, Any]]  #: by their types


def find_problem(
    resource: GroupResource, spec: Mapping[str, Any], status: Mapping[str, Any], conditions: Conditions
) -> CopyProblem | None:
    """The first problem: a condition with the wrong status, fewer ready than desired replicas, or a failed phase."""
    if resource == PODS and status.get("phase") == "Succeeded":
        return None
    if resource == PODS and (stuck := find_stuck_cause(status)) is not None:
        return stuck
    missing = None if _is_rolling_out(resource, conditions) else _by_count(resource, spec, status)
    return _by_condition(resource, conditions) or missing or _by_phase(resource, status)


def find_stuck_cause(status: Mapping[str, Any]) -> CopyProblem | None:
    """Why a Pod does not start: no node fits, a container cannot be created, or it ends again and again."""
    placed = _conditions(status.get("conditions")).get(POD_SCHEDULED, {})
    if placed.get("status") == "False" and placed.get("reason") == "Unschedulable":
        return _condition_problem(placed, "Unschedulable")
    for listed in ("initContainerStatuses", "containerStatuses"):
        for container in map(_object, _list(status.get(listed))[:_ENTRIES]):
            if (found := _container_problem(container)) is not None:
                return found
    return None


def _container_problem(container: Mapping[str, Any]) -> CopyProblem | None:
    """Without numbers that change at every attempt."""
    name, reason = container.get("name"), _object(_object(container.get("state")).get("waiting")).get("reason")
    ended = _object(_object(container.get("lastState")).get("terminated"))
    restarts = _whole(container.get("restartCount"), 0)
    if reason in _NO_IMAGE:
        return CopyProblem("ImagePullBackOff", sentence(f"container {name}: cannot pull {container.get('image')}"))
    if reason == CRASH_LOOP or (container.get("ready") is False and ended and restarts >= _MANY_RESTARTS):
        code = f", with code {ended['exitCode']}" if "exitCode" in ended else ""
        return CopyProblem(CRASH_LOOP, sentence(f"container {name} ends again and again{code}"))
    if reason in _NOT_CREATED:
        why = _object(_object(container.get("state")).get("waiting")).get("message")
        return CopyProblem(reason, sentence(f"container {name}: {why or 'it cannot be created'}"))
    return None


def find_stuck_pod(pods: Iterable[Mapping[str, Any]]) -> CopyProblem | None:
    """The first Pod, by name, that does not start."""
    alive = (pod for pod in pods if "deletionTimestamp" not in pod["metadata"])
    for pod in sorted(alive, key=lambda pod: str(pod["metadata"].get("name"))):
        if (found := find_stuck_cause(_object(pod.get("status")))) is not None:
            since = found.since or moment(pod["metadata"].get("creationTimestamp"))
            return CopyProblem(found.reason, sentence(f"Pod {pod['metadata'].get('name')}: {found.message}"), since)
    return None


def _is_rolling_out(resource: GroupResource, conditions: Conditions) -> bool:
    """Whether a Deployment has a rollout within its deadline (`progressDeadlineSeconds`)."""
    found = conditions.get("Progressing", {}) if resource == DEPLOYMENTS else {}
    return found.get("status") == "True" and found.get("reason") != "NewReplicaSetAvailable"


def find_rollout(resource: GroupResource, spec: Mapping[str, Any], status: Mapping[str, Any]) -> CopyProblem | None:
    """The state of a rollout that did not finish, in the words of `kubectl rollout status`."""
    updated, ready = (_whole(status.get(name), 0) for name in ("updatedReplicas", "readyReplicas"))
    if resource == DEPLOYMENTS and spec.get("paused") is not True:
        desired, available = _whole(spec.get("replicas"), 1), _whole(status.get("availableReplicas"), 0)
        old = _whole(status.get("replicas"), 0) - updated
    elif resource == DAEMON_SETS and _strategy(spec, "updateStrategy") != _MANUAL:
        desired, updated = (
            _whole(status.get(name), 0) for name in ("desiredNumberScheduled", "updatedNumberScheduled")
        )
        available, old = _whole(status.get("numberAvailable"), 0), 0
    elif resource == STATEFUL_SETS and _strategy(spec, "updateStrategy") != _MANUAL:
        partition = _whole(_object(_object(spec.get("updateStrategy")).get("rollingUpdate")).get("partition"), 0)
        desired, available, old = max(0, _whole(spec.get("replicas"), 1) - partition), ready, 0
        if not partition and status.get("currentRevision") == status.get("updateRevision"):
            updated = desired  # the controller counts no updated replicas after a rollout
    else:
        return None
    if updated < desired:
        return CopyProblem(ROLLING_OUT, f"{updated} of {desired} replicas are updated")
    if old > 0:
        return CopyProblem(ROLLING_OUT, f"{old} old {'replica is' if old == 1 else 'replicas are'} not terminated yet")
    if available < desired:
        return CopyProblem(ROLLING_OUT, f"{available} of {desired} updated replicas are available")
    return None


def _strategy(spec: Mapping[str, Any], name: str) -> object:
    return _object(spec.get(name)).get("type")


def progress_of(copy_status: CopyStatus, *, translates: bool) -> CopyProblem | None:
    """Why the cluster of a copy does not run its current generation yet.  `translates`: whether the syncer translates
    generations."""
    return UNOBSERVED if translates and not copy_status.is_observed else copy_status.rollout


def _by_condition(resource: GroupResource, conditions: Conditions) -> CopyProblem | None:
    for good in _GOOD_OF.get(resource, _GOOD):
        found = conditions.get(good)
        if found is not None and found.get("status") == "False" and found.get("reason") != "PodCompleted":
            return _condition_problem(found, f"Not{good}")
    for bad in _BAD:
        found = conditions.get(bad)
        if found is not None and found.get("status") == "True":
            return _condition_problem(found, bad)
    found = conditions.get("Progressing") if resource == DEPLOYMENTS else None
    if found is None or found.get("status") != "False" or found.get("reason") != "ProgressDeadlineExceeded":
        return None
    return _condition_problem(found, "NotProgressing")


def _condition_problem(condition: Mapping[str, Any], otherwise: str) -> CopyProblem:
    return CopyProblem(
        word(condition.get("reason")) or otherwise,
        sentence(condition.get("message")),
        moment(condition.get("lastTransitionTime")),
    )


def _by_count(resource: GroupResource, spec: Mapping[str, Any], status: Mapping[str, Any]) -> CopyProblem | None:
    if resource == DAEMON_SETS:
        return _short("Pods", _whole(status.get("numberReady"), 0), _whole(status.get("desiredNumberScheduled"), 0))
    if resource not in _REPLICATED:
        return None
    decided_there = _whole(status.get("replicas"), 1)
    return _short("Replicas", _whole(status.get("readyReplicas"), 0), _whole(spec.get("replicas"), decided_there))


def _short(what: str, ready: int, desired: int) -> CopyProblem | None:
    if ready >= desired:
        return None
    return CopyProblem(f"{what}NotReady", f"{ready} of {desired} {what.lower()} are ready")


def _by_phase(resource: GroupResource, status: Mapping[str, Any]) -> CopyProblem | None:
    bad = _BAD_PHASES.get(resource)
    if bad is None or status.get("phase") != bad:
        return None
    return CopyProblem(word(status.get("reason")) or bad, sentence(status.get("message")))


# --- conversion of untrusted values ---------------------------------------------------------------


def _whole(value: object, otherwise: int) -> int:
    return value if type(value) is int else otherwise


def word(value: object) -> str:
    """One CamelCase word, or empty."""
    if type(value) is not str:
        return ""
    if _WORD.fullmatch(value):
        return value
    pieces = "".join(piece[0].upper() + piece[1:] for piece in _PIECES.findall(value[:MAX_MESSAGE])).lstrip(
        "0123456789"
    )
    return (pieces[:1].upper() + pieces[1:])[:MAX_REASON]


def sentence(value: object) -> str:
    """One line of limited length without control characters."""
    if type(value) is not str:
        return ""
    printable = (char if char.isprintable() else " " for char in value[: 2 * MAX_MESSAGE])
    line = " ".join("".join(printable).split())
    return line if len(line) <= MAX_MESSAGE else f"{line[: MAX_MESSAGE - 1]}…"


def moment(value: object) -> str:
    """A time in UTC with seconds; empty if it is invalid."""
    if type(value) is not str or len(value) > _LONGEST_TIME:
        return ""
    try:
        return times.canonical_seconds(value) or ""
    except times.TimeError:
        return ""


MAX_PATH_NAMES: Final = 6  #: names in a path
MAX_NUMBERS: Final = 64
MAX_CONDITIONS: Final = 32  #: of a copy, and of a summary
MAX_TEXTS: Final = 16
TEXT_DEPTH: Final = 2  #: names in the path of a text
_OBJECTS: Final = 64  #: objects of a status that are read
_FIELDS: Final = 256  #: an object with more fields is a map, and is not read
_ENTRIES: Final = 64  #: conditions that are read
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,62}")  #: of a field: without dots, which paths have
_BOOKKEEPING: Final = ("Generation", "collisionCount")  #: suffixes of fields whose sum is meaningless
_TYPE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,62}")  #: of a condition
_STATUSES: Final = ("True", "False", "Unknown")
_TEXT: Final = re.compile(r"[A-Z][A-Za-z]{0,62}")
_STATE: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,62}")
_STATES: Final = frozenset({"health", "phase", "result", "state", "status"})  #: fields whose text may have any form
#: Kinds whose status is zeros after the creation.
_CREATED_WITH_ZEROS: Final = frozenset(
    {
        GroupResource("", "replicationcontrollers"),
        GroupResource("apps", "daemonsets"),
        GroupResource("apps", "replicasets"),
        GroupResource("apps", "statefulsets"),
        GroupResource("policy", "poddisruptionbudgets"),
    }
)


V = TypeVar("V")


def read_copy_status(resource: GroupResource, document: bytes) -> CopyStatus:
    """`document`: the copy in its mailbox, as JSON.

    Numbers are read from nested objects down to MAX_PATH_NAMES, not from lists.  Texts are words such as `Running`, and
    words of any form in fields such as `phase`; addresses and times are skipped.  If there are too many, shorter paths
    are preferred, then the order is by path.  Of two conditions of one type, the first is used.
    """
    copy = _decoded(document)
    status = _object(copy.get("status"))
    observed = _observed(_object(copy.get("metadata")).get("managedFields"))
    if not status or (resource in _CREATED_WITH_ZEROS and not observed and not any(status.values())):
        return CopyStatus()
    conditions, spec = _conditions(status.get("conditions")), _object(copy.get("spec"))
    numbers, texts = _leaves(status)
    return CopyStatus(
        reporting=True,
        observed=observed,
        numbers=numbers,
        conditions=_statuses(conditions),
        texts=texts,
        problem=find_problem(resource, spec, status, conditions),
        rollout=find_rollout(resource, spec, status),
        is_observed=_is_observed(_object(copy.get("metadata")), status),
    )


def _is_observed(metadata: Mapping[str, Any], status: Mapping[str, Any]) -> bool:
    observed = status.get("observedGeneration")
    return type(observed) is not int or observed >= _whole(metadata.get("generation"), 0)


def _decoded(document: bytes) -> Mapping[str, Any]:
    try:
        return _object(orjson.loads(document))
    except orjson.JSONDecodeError:
        return {}  # deeper than the hub allows, or with larger numbers


def _object(value: object) -> Mapping[str, Any]:
    return value if type(value) is dict else {}


def _list(value: object) -> list[Any]:
    return value if type(value) is list else []


def _observed(managed: object) -> str:
    """The time of the last write of the status."""
    newest = ""
    for entry in _list(managed):
        if type(entry) is dict and entry.get("subresource") == "status":
            newest = max(newest, moment(entry.get("time")))
    return newest


# --- conditions -----------------------------------------------------------------------------------


def _conditions(listed: object) -> dict[str, Mapping[str, Any]]:
    """By their types."""
    found: dict[str, Mapping[str, Any]] = {}
    for entry in _list(listed)[:_ENTRIES]:
        name = _object(entry).get("type")
        if type(name) is str and _TYPE.fullmatch(name):
            found.setdefault(name, entry)
    return found


def _statuses(conditions: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    found = {}
    for name in sorted(conditions)[:MAX_CONDITIONS]:
        status = conditions[name].get("status")
        found[name] = status if status in _STATUSES else "Unknown"
    return found


# --- numbers and texts ----------------------------------------------------------------------------


def _leaves(status: Mapping[str, Any]) -> tuple[dict[str, int | float], dict[str, str]]:
    """By their paths, level by level."""
    numbers: dict[str, int | float] = {}
    texts: dict[str, str] = {}
    level: list[tuple[str, Mapping[str, Any]]] = [("", status)]
    looked_into = 0
    for depth in range(1, MAX_PATH_NAMES + 1):
        deeper: list[tuple[str, Mapping[str, Any]]] = []
        for prefix, fields in level:
            for name, value in fields.items() if len(fields) <= _FIELDS else ():
                form = type(value)
                if form is list or form is bool or value is None or not _NAME.fullmatch(name):
                    continue
                if form is dict:
                    deeper.append((f"{prefix}{name}.", value))
                elif form is not str:
                    if not name.endswith(_BOOKKEEPING):
                        numbers[prefix + name] = value
                elif depth <= TEXT_DEPTH and (_STATE if name in _STATES else _TEXT).fullmatch(value):
                    texts[prefix + name] = value
        looked_into += len(level)
        level = sorted(deeper)[: _OBJECTS - looked_into]
    return _limited(numbers, MAX_NUMBERS), _limited(texts, MAX_TEXTS)


def _limited(found: dict[str, V], limit: int) -> dict[str, V]:
    if len(found) <= limit:
        return found
    return {path: found[path] for path in sorted(found, key=lambda path: (path.count("."), path))[:limit]}


DOWN: Final = "down"  #: problems with applying
STATUS: Final = "status"  #: problems with returning the status
FAILING: Final = "Failing"
HEARTBEAT_MISSING: Final = "HeartbeatMissing"
NOT_RETURNED: Final = "StatusNotReturned"
UNREACHABLE: Final = "EdgeUnreachable"


class SyncerReport(NamedTuple):
    """The last report of a syncer."""

    beat: datetime | None = None  #: the heartbeat, by the clock of the hub; None: no heartbeat yet
    unreachable: CopyProblem | None = None  #: why its cluster is unreachable
    refused: Mapping[ObjectRef, CopyProblem] = {}  #: objects that it cannot apply
    unreturned: Mapping[ObjectRef, CopyProblem] = {}  #: objects whose status it cannot return
    translates: bool = False  #: generations in statuses are those of the copies

    def refusal(self, ref: ObjectRef) -> CopyProblem | None:
        """Why it cannot apply an object, or any object of the kind."""
        return _about(self.refused, ref)

    def delay(self, ref: ObjectRef) -> CopyProblem | None:
        """Why the status of an object is stale although the heartbeat is not."""
        return _about(self.unreturned, ref)

    def differences(self, other: SyncerReport) -> set[ObjectRef]:
        """Objects whose problems differ."""
        both = (self.refused, other.refused), (self.unreturned, other.unreturned)
        return {ref for some, others in both for ref in some.keys() | others.keys() if some.get(ref) != others.get(ref)}


def _about(problems: Mapping[ObjectRef, CopyProblem], ref: ObjectRef) -> CopyProblem | None:
    return problems.get(ref) or problems.get(ObjectRef(ref.resource, "", ANY))


NOTHING: Final = SyncerReport()


def parse_syncer_report(document: bytes) -> SyncerReport:
    """Of a SyncerConfig; invalid fields are ignored."""
    try:
        config = parse_heartbeat(document)
    except msgspec.MsgspecError:
        return NOTHING
    edge = config.edge
    unreachable = None
    if edge is not None and edge.status == "False":
        unreachable = CopyProblem(UNREACHABLE, sentence(edge.message or edge.reason), moment(edge.last_transition_time))
    status = _object(orjson.loads(document).get("status"))
    problems, translates = _problems(status), _object(status.get("syncer")).get(TRANSLATES_GENERATIONS) is True
    unreturned = {ref: _not_returned(problem) for ref, problem in problems[STATUS].items()}
    return SyncerReport(config.beat, unreachable, problems[DOWN], unreturned, translates)


def _not_returned(problem: CopyProblem) -> CopyProblem:
    why = f"{problem.reason}: {problem.message}" if problem.message else problem.reason
    return CopyProblem(NOT_RETURNED, sentence(f"its syncer cannot return its status: {why}"))


def _problems(status: Any) -> dict[str, dict[ObjectRef, CopyProblem]]:
    """By direction."""
    listed = status.get("problems") if isinstance(status, dict) else None
    found: dict[str, dict[ObjectRef, CopyProblem]] = {DOWN: {}, STATUS: {}}
    for one in listed if isinstance(listed, list) else ():
        direction = one.get("direction") if isinstance(one, dict) else None
        if direction not in (DOWN, STATUS):
            continue
        group, resource, namespace, name = (
            str(one.get(field) or "") for field in ("group", "resource", "namespace", "name")
        )
        problem = CopyProblem(word(one.get("reason")) or FAILING, sentence(one.get("message")))
        found[direction][ObjectRef(GroupResource(group, resource), namespace, name)] = problem
    return found


def stale(report: SyncerReport, now: datetime, limit: timedelta) -> tuple[CopyProblem | None, float | None]:
    """The problem of a stale report, and the seconds until the next check; None: at the next heartbeat.  A cluster that
    never reported is not stale."""
    if report.beat is None:
        return None, None
    left = (report.beat + limit - now).total_seconds()
    if left <= 0:
        since = times.format_seconds(report.beat)
        return CopyProblem(HEARTBEAT_MISSING, f"the last heartbeat of its syncer was at {since}", since), None
    return report.unreachable, left
