"""The state of an object on its way to one destination and back, also as its syncer reports it.  Pure.

find      the steps placed, mailbox, copied, edge and status of one destination

conclude  the first stuck step of all destinations"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final, NamedTuple

import msgspec
import orjson
from msgspec import UNSET, UnsetType

from farflung.apis.edge.names import (
    EDGE_REACHABLE,
    STALE_AFTER,
    SYNCER_FINALIZER,
    SYNCER_MANAGER,
    TRANSLATES_GENERATIONS,
)
from farflung.apis.kcp.names import HEARTBEAT_HEALTHY
from farflung.controllers.status_summarizer.health import CopyStatus, progress_of
from farflung.inspect import fields
from farflung.inspect.results import Result
from farflung.lib.words import count
from farflung.machinery import times
from farflung.machinery.errors import Obj
from farflung.placement import project
from farflung.placement.names import FOREIGN, ObjectRef
from farflung.placement.project import NOTHING, Desired
from farflung.placement.syncer_config import ANY, moment, parse_heartbeat
from farflung.placement.types import CopyDestination
from farflung.syncer.report import MAX_MESSAGE

SILENCE: Final = timedelta(seconds=STALE_AFTER)  #: without a heartbeat, if the hub does not tell
NEWS: Final = timedelta(seconds=3)  #: until a live syncer reports a change
ADVICE: Final = {
    "NotManaged": "delete or rename one of the two, or let the syncer adopt existing objects (--adopt)",
    "Forbidden": "allow it: run `farflung syncer-gen` with --allow and apply the manifest",
    "Contested": "find the other writer in the cluster",
    "NotServedError": "install its definition in the cluster",
}


class ReportedProblem(NamedTuple):
    reason: str
    message: str
    tries: int

    @property
    def sentence(self) -> str:
        tried = f", tried {self.tries} times" if self.tries > 1 else ""
        return f"{self.reason}{tried}: {self.message}" if self.message else f"{self.reason}{tried}"

    @property
    def advice(self) -> str:
        return ADVICE.get(self.reason, "correct what the message names; the syncer tries again by itself")


@dataclass(frozen=True, slots=True)
class EdgeReport:
    last_heartbeat: datetime | None = None  #: time of the last heartbeat; None: never
    unreachable: str | None = None  #: why the syncer does not reach its cluster; None: it does, or unknown
    pending: int = 0
    omitted: int = 0  #: problems that are not listed
    problems: tuple[tuple[tuple[str, ...], str, ReportedProblem], ...] = ()  #: (object, direction, problem)
    translates: bool = False  #: generations in statuses are those of the copies
    through: Mapping[tuple[str, str], int] | None = (
        None  #: (group, resource) → all copies up to this resourceVersion are applied
    )

    def problem(self, ref: ObjectRef, direction: str) -> ReportedProblem | None:
        """Of the object, or of its whole kind."""
        (group, resource), namespace, name = ref
        about = ((group, resource, namespace, name), (group, resource, "", ANY))
        return next((one for what, way, one in self.problems if what in about and way == direction), None)

    def has_brought(self, ref: ObjectRef, version: Any, written: datetime | None, now: datetime) -> bool:
        """Whether the current version of a copy without problems is applied at the edge.  `written`: when it was last
        written; None: decide by its resourceVersion only.

        Writes of the syncer itself increase the resourceVersion and are not reported.  Then an idle syncer counts,
        whose last heartbeat is late enough after the write: timestamps have whole seconds, and a report may be older
        than its heartbeat.
        """
        through = (self.through or {}).get((ref.resource.group, ref.resource.resource))
        if through is None:
            return False
        if 0 < _whole(version) <= through:
            return True
        failing = len({what for what, way, _ in self.problems if way == "down"})
        idle = self.pending == 0 or (self.omitted == 0 and self.pending <= failing)
        if not idle or self.last_heartbeat is None or written is None:
            return False
        return self.last_heartbeat >= written and max(now, self.last_heartbeat) - written >= NEWS


def read_report(config: Obj) -> EdgeReport:
    """`config`: `the-one`, or empty."""
    edge = fields.condition(config, EDGE_REACHABLE)
    text = fields.text(edge, "message") or fields.text(edge, "reason")
    return EdgeReport(
        _heard(config),
        fields.line(text) if edge.get("status") == "False" else None,
        fields.number(config, "status", "objects", "pending"),
        fields.number(config, "status", "problemsOmitted"),
        tuple(map(_problem, fields.objects(config, "status", "problems"))),
        fields.at(config, "status", "syncer", TRANSLATES_GENERATIONS) is True,
        {
            (fields.text(one, "group"), fields.text(one, "resource")): _whole(one.get("resourceVersion"))
            for one in fields.objects(config, "status", "syncedThrough")
        },
    )


def is_alive(report: EdgeReport, conditions: Sequence[Mapping[str, Any]] | None, now: datetime) -> bool:
    """As the hub determined it with its own clock and limit, unless the heartbeat is newer; else by ours."""
    if report.last_heartbeat is None:
        return False
    for one in conditions or ():
        if one.get("type") == HEARTBEAT_HEALTHY:
            since = moment(fields.text(one, "lastTransitionTime"))
            return one.get("status") == "True" or (since is not None and report.last_heartbeat > since)
    return now - report.last_heartbeat <= SILENCE


def _heard(config: Obj) -> datetime | None:
    if "metadata" not in config:
        return None
    try:
        return parse_heartbeat(orjson.dumps({"metadata": config["metadata"]})).beat
    except msgspec.MsgspecError:
        return None


def _problem(one: Obj) -> tuple[tuple[str, ...], str, ReportedProblem]:
    what = tuple(fields.text(one, name) for name in ("group", "resource", "namespace", "name"))
    problem = ReportedProblem(
        fields.line(fields.text(one, "reason")) or "Failing",
        fields.line(fields.text(one, "message"), MAX_MESSAGE),
        fields.number(one, "tries"),
    )
    return what, fields.text(one, "direction"), problem


def _whole(value: Any) -> int:
    """Of a string of digits; else 0."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
        return int(value)
    return 0


OVERDUE_AFTER: Final = timedelta(seconds=30)  #: a step that takes longer is stuck
BRIEF: Final = 3  #: conditions and numbers of a status in the output
STATUS_NUMBERS: Final = (
    "readyReplicas",
    "availableReplicas",
    "numberReady",
    "succeeded",
    "failed",
)  #: numbers of a status, the most useful first


class StepState(StrEnum):
    """The worst first; the worst state of several is the state of all."""

    STUCK = "stuck"
    UNKNOWN = "unknown"
    WAITING = "waiting"
    DONE = "done"


ORDER: Final = list(StepState)


class Conclusion(Result, frozen=True):
    """The state of all destinations together."""

    state: StepState
    destination: str | UnsetType = UNSET  #: the first one with this state, unless everything is done
    step: str | UnsetType = UNSET
    message: str = ""
    advice: str = ""


class TraceStep(Result, frozen=True):
    name: str = msgspec.field(name="step")
    state: StepState
    time: str | None  #: RFC 3339; None: unknown
    message: str
    advice: str | UnsetType = UNSET  #: what to do about a stuck or unknown step


class TracedDestination(Result, frozen=True):
    cluster: str
    location_name: str
    sync_target_name: str
    uid: str = msgspec.field(name="syncTargetUID")
    further_location_names: list[str] | UnsetType
    mailbox: str
    placements: list[str]
    state: StepState
    steps: list[TraceStep]

    @property
    def name(self) -> str:
        """Its Locations and its SyncTarget."""
        locations = ", ".join(filter(None, [self.location_name, *(self.further_location_names or ())]))
        return " / ".join(filter(None, [locations, self.sync_target_name]))

    @property
    def culprit(self) -> TraceStep:
        """The first step with the worst state."""
        return next(step for step in self.steps if step.state is self.state)

    @property
    def rank(self) -> tuple[int, str, str, str]:
        return ORDER.index(self.state), self.location_name, self.sync_target_name, self.mailbox


@dataclass(frozen=True, slots=True)
class HiddenObject:
    """It could not be read."""

    why: str


@dataclass(frozen=True, slots=True)
class TracedObject:
    ref: ObjectRef
    is_applied: bool = True  #: it is applied at the edge, not only copied to the mailbox
    has_status: bool = True


@dataclass(frozen=True, slots=True)
class ObservedDestination:
    """The objects of one destination."""

    destination: CopyDestination
    mailbox: str
    placements: tuple[str, ...] = ()  #: that select it for this destination; empty: none any more
    slices: Mapping[str, str] | None = None  #: with this destination → when they were written
    changed: str = ""  #: when the source, its namespace or a placement last changed
    workspace: Obj | HiddenObject | None = None
    copy: Obj | HiddenObject | None = None
    served: bool = True  #: whether the mailbox serves the kind
    desired: Desired = NOTHING
    doubt: str = ""  #: why it is unknown whether the copy is current
    along: bool = False  #: a namespace or definition that was copied for other objects
    needed: bool = False  #: not selected, but a namespace or definition of selected objects
    complaints: tuple[str, ...] = ()  #: of the copy, in conditions of placements
    unlisted: str = ""  #: a placement with more problems than its condition lists
    held: str = ""  #: why the copy is not withdrawn although no placement selects it
    config: Obj | HiddenObject | None = None  #: `the-one`
    conditions: Sequence[Mapping[str, Any]] | None = None  #: of the SyncTarget; None: unknown
    copy_status: CopyStatus | None = None

    @property
    def target_uid(self) -> str:
        return self.mailbox.rpartition("-mb-")[2]


def find(subject: TracedObject, facts: ObservedDestination, now: datetime) -> TracedDestination:
    destination, steps = facts.destination, list(_steps(subject, facts, now))
    return TracedDestination(
        destination.cluster,
        destination.location,
        destination.target,
        facts.target_uid,
        list(destination.others) or UNSET,
        facts.mailbox,
        list(facts.placements),
        min((step.state for step in steps), key=ORDER.index),
        steps,
    )


def _steps(subject: TracedObject, facts: ObservedDestination, now: datetime) -> Iterator[TraceStep]:
    yield _placed(facts, now)
    there = isinstance(facts.copy, dict)
    if not facts.slices and facts.placements and not there:
        return
    mailbox = _mailbox(facts, now)
    yield mailbox
    if mailbox.state is not StepState.DONE:
        return
    yield _copied(facts, now)
    if not isinstance(facts.copy, dict) or not (project.is_ours(facts.copy) or facts.needed):
        return
    if subject.is_applied:
        report = facts.config if isinstance(facts.config, HiddenObject) else read_report(facts.config or {})
        yield _at_edge(subject, facts, facts.copy, report, now)
        if (
            subject.has_status
            and not _is_terminating(facts.copy)
            and (isinstance(report, HiddenObject) or report.last_heartbeat)
        ):
            yield _status(subject, facts, facts.copy, report, now)


def _step(name: str, state: StepState, message: str, time: str = "", advice: str = "") -> TraceStep:
    """`advice`: if it is stuck or unknown."""
    is_problem = state in (StepState.STUCK, StepState.UNKNOWN)
    return TraceStep(name, state, time or None, message, advice if advice and is_problem else UNSET)


def _overdue(since: str, now: datetime) -> StepState:
    then = moment(since)
    return StepState.WAITING if then is not None and now - then <= OVERDUE_AFTER else StepState.STUCK


def age(since: str, now: datetime) -> str:
    """Empty if unknown."""
    return fields.ago(moment(since), now)


# --- from the placement to the mailbox ------------------------------------------------------------


def _placed(facts: ObservedDestination, now: datetime) -> TraceStep:
    if facts.slices:
        names = ", ".join(sorted(facts.slices))
        return _step("placed", StepState.DONE, f"slice {names}", min(facts.slices.values()))
    if not facts.placements:
        return _step("placed", StepState.DONE, "no EdgePlacement selects this destination any more")
    return _step(
        "placed",
        _overdue(facts.changed, now),
        "the edge scheduler has not placed it here yet",
        facts.changed,
        f"is the scheduler running? `farflung explain placement {facts.placements[0]}` shows its pending changes",
    )


def _mailbox(facts: ObservedDestination, now: datetime) -> TraceStep:
    if isinstance(facts.workspace, HiddenObject):
        if not isinstance(facts.copy, HiddenObject):
            return _step("mailbox", StepState.DONE, facts.mailbox)
        return _step("mailbox", StepState.UNKNOWN, f"mailboxes are not visible: {facts.workspace.why}", "", _ASK)
    running = "is the mailbox controller running?"
    if facts.workspace is None:
        since = max((facts.slices or {}).values(), default=facts.changed)
        return _step("mailbox", _overdue(since, now), "no mailbox yet", "", running)
    metadata, status = facts.workspace["metadata"], facts.workspace.get("status") or {}
    if _is_terminating(facts.workspace):
        since = metadata["deletionTimestamp"]
        return _step(
            "mailbox", _overdue(since, now), "the mailbox is being deleted", since, "was its SyncTarget deleted?"
        )
    since = metadata.get("creationTimestamp") or ""
    if status.get("phase") != "Ready":
        return _step("mailbox", _overdue(since, now), "the mailbox is being created", since, running)
    return _step("mailbox", StepState.DONE, facts.mailbox, since)


# --- in the mailbox -------------------------------------------------------------------------------


def _copied(facts: ObservedDestination, now: datetime) -> TraceStep:
    copy, complaints = facts.copy, "; ".join(facts.complaints)
    if isinstance(copy, HiddenObject):
        return _step("copied", StepState.UNKNOWN, f"the copy is not visible: {copy.why}", "", _ASK)
    if copy is None:
        return _missing(facts, complaints, now)
    if not project.is_ours(copy):
        if facts.needed:
            return _step("copied", StepState.DONE, "it exists already", _created(copy))
        return _step("copied", StepState.STUCK, FOREIGN, _created(copy), "delete or rename one of the two")
    if _is_terminating(copy):
        return _withdrawn(facts, copy)
    version, written = f"resourceVersion {copy['metadata'].get('resourceVersion', '')}", written_to(copy)
    if complaints:
        return _step("copied", StepState.STUCK, complaints, written, _CORRECT)
    if facts.along:
        return _step("copied", StepState.DONE, f"copied for other objects, {version}", written)
    if facts.doubt:
        return _step("copied", StepState.UNKNOWN, f"{version}; {facts.doubt}", written, _ASK)
    if not facts.placements and facts.held:
        return _step("copied", StepState.STUCK, f"its withdrawal is held, {version}", written, facts.held)
    if not facts.placements:
        message = f"not withdrawn yet, {version}"
        return _step("copied", _overdue(facts.changed, now), message, written, _TRANSLATOR)
    if facts.desired.problem:
        return _step("copied", StepState.STUCK, facts.desired.problem, written, _CORRECT)
    if facts.desired.obj is not None and project.update_of(copy, facts.desired.obj) is not None:
        since = max(facts.changed, written)
        return _step("copied", _overdue(since, now), f"outdated, {version}", written, _TRANSLATOR)
    return _step("copied", StepState.DONE, f"current, {version}", written)


_ASK: Final = "ask an administrator of that workspace for permission to read it"
_CORRECT: Final = (
    "correct the object, its Customizer or the EdgePlacement as the message says; it is copied again at once"
)
_TRANSLATOR: Final = "is the placement translator running?"


def _missing(facts: ObservedDestination, complaints: str, now: datetime) -> TraceStep:
    if problem := complaints or facts.desired.problem:
        return _step("copied", StepState.STUCK, problem, "", _CORRECT)
    since = max([facts.changed, *(facts.slices or {}).values()])
    if not facts.served:
        return _step("copied", _overdue(since, now), "the mailbox does not serve the kind", "", _TRANSLATOR)
    if facts.unlisted:
        message = f"no copy yet, and EdgePlacement {facts.unlisted} has more problems than its condition lists"
        advice = f"`kubectl get events --field-selector involvedObject.name={facts.unlisted}` lists them"
        return _step("copied", _overdue(since, now), message, "", advice)
    return _step("copied", _overdue(since, now), "no copy yet", "", _TRANSLATOR)


def _withdrawn(facts: ObservedDestination, copy: Obj) -> TraceStep:
    since, held = copy["metadata"]["deletionTimestamp"], copy["metadata"].get("finalizers") or []
    others = ", ".join(sorted(str(one) for one in held if one != SYNCER_FINALIZER))
    anew = ", then created again" if facts.placements else ""
    if others and SYNCER_FINALIZER not in held:
        message = f"being withdrawn{anew}; held by the finalizers {others}"
        return _step("copied", StepState.STUCK, message, since, "their owners must remove them")
    return _step("copied", StepState.WAITING, f"being withdrawn{anew}", since)


def _is_terminating(obj: Mapping[str, Any]) -> bool:
    return bool(obj["metadata"].get("deletionTimestamp"))


def _created(obj: Mapping[str, Any]) -> str:
    return str(obj["metadata"].get("creationTimestamp") or "")


def written_to(obj: Mapping[str, Any]) -> str:
    """The last write to anything but the status, by anyone but a syncer."""
    entries = obj["metadata"].get("managedFields") or ()
    kept = [one for one in entries if not one.get("subresource") and one.get("manager") != SYNCER_MANAGER]
    return max([one["time"] for one in kept if one.get("time")], default=_created(obj))


def _is_untouched(copy: Mapping[str, Any]) -> bool:
    """Whether no syncer wrote since: then the resourceVersion is decisive."""
    entries = copy["metadata"].get("managedFields") or ()
    theirs = [
        one.get("time") or "" for one in entries if one.get("subresource") or one.get("manager") == SYNCER_MANAGER
    ]
    return max(theirs, default="") < written_to(copy)


# --- at the edge ----------------------------------------------------------------------------------


def _at_edge(
    subject: TracedObject, facts: ObservedDestination, copy: Obj, report: EdgeReport | HiddenObject, now: datetime
) -> TraceStep:
    if isinstance(report, HiddenObject):
        return _step("edge", StepState.UNKNOWN, f"the syncer's report is not visible: {report.why}", "", _ASK)
    if report.last_heartbeat is None:
        target, cluster = facts.destination.target, facts.destination.cluster
        advice = f"`farflung syncer-gen {target} --workspace {cluster}` prints its manifest"
        return _step("edge", StepState.STUCK, "no syncer has ever reported", "", advice)
    last_heartbeat = times.format_seconds(report.last_heartbeat)
    ago = f"heartbeat {age(last_heartbeat, now)} ago"
    if not is_alive(report, facts.conditions, now):
        advice = f"is the syncer of {facts.destination.target} running and connected to the hub?"
        return _step(
            "edge",
            StepState.STUCK,
            f"the last heartbeat of the syncer was {age(last_heartbeat, now)} ago",
            last_heartbeat,
            advice,
        )
    if report.unreachable is not None:
        advice = "check the cluster and the syncer's connection to it"
        message = f"the syncer does not reach its cluster: {report.unreachable}; {ago}"
        return _step("edge", StepState.STUCK, message, last_heartbeat, advice)
    if problem := report.problem(subject.ref, "down"):
        return _step("edge", StepState.STUCK, f"{problem.sentence}; {ago}", last_heartbeat, problem.advice)
    if _is_terminating(copy):
        since = copy["metadata"]["deletionTimestamp"]
        return _step("edge", _overdue(since, now), f"the syncer has not deleted it yet; {ago}", last_heartbeat, _LOG)
    version = copy["metadata"].get("resourceVersion")
    written = None if _is_untouched(copy) else moment(written_to(copy))
    if report.has_brought(subject.ref, version, written, now):
        return _step("edge", StepState.DONE, f"applied; {ago}", last_heartbeat)
    pending = f", {count(report.pending, 'change')} pending" if report.pending else ""
    message = f"the syncer has not applied it yet; {ago}{pending}"
    return _step("edge", _overdue(written_to(copy), now), message, last_heartbeat, _LOG)


_LOG: Final = "see the syncer's log"


def _status(
    subject: TracedObject, facts: ObservedDestination, copy: Obj, report: EdgeReport | HiddenObject, now: datetime
) -> TraceStep:
    copy_status = facts.copy_status or CopyStatus()
    problem = None if isinstance(report, HiddenObject) else report.problem(subject.ref, "status")
    if problem is not None:
        return _step("status", StepState.STUCK, problem.sentence, copy_status.observed, problem.advice)
    if not copy_status.reporting:
        return _step("status", StepState.WAITING, "no status yet")
    if copy_status.problem is not None:
        reason, message, since = copy_status.problem
        text = fields.line(f"{reason}: {message}" if message else reason)
        lasting = f", for {age(since, now)}" if age(since, now) else ""
        state = _overdue(max(since, written_to(copy)), now)  # a recent change may need a moment
        return _step("status", state, f"{text}{lasting}", copy_status.observed, "inspect it in its cluster")
    translates = not isinstance(report, HiddenObject) and report.translates
    if progress := progress_of(copy_status, translates=translates):
        return _step("status", StepState.WAITING, f"rolling out: {progress.message}", copy_status.observed)
    return _step("status", StepState.DONE, _brief(copy_status) or "no problem", copy_status.observed)


def _brief(copy_status: CopyStatus) -> str:
    good = sorted(name for name, status in copy_status.conditions.items() if status == "True")
    phases = [copy_status.texts[name] for name in ("phase",) if name in copy_status.texts]
    numbers = [f"{name} {copy_status.numbers[name]:g}" for name in STATUS_NUMBERS if name in copy_status.numbers]
    return "; ".join(filter(None, [", ".join([*phases, *good][:BRIEF]), ", ".join(numbers[:BRIEF])]))


# --- all of them ----------------------------------------------------------------------------------


def conclude(findings: Sequence[TracedDestination]) -> Conclusion:
    number = len(findings)
    counts = {state: sum(one.state is state for one in findings) for state in StepState}
    first = min(findings, key=lambda one: one.rank)
    state = first.state
    if state is StepState.DONE:
        all_of_them = "The only destination is" if number == 1 else f"All {number} destinations are"
        return Conclusion(state, message=f"{all_of_them} up to date.")
    sentence = f"{_HEADS[state]} {first.name}: {first.culprit.message}."
    if number > 1:
        verb = "is" if counts[state] == 1 else "are"
        sentence += f" {counts[state]} of {number} destinations {verb} {state.value}."
    return Conclusion(state, first.name, first.culprit.name, sentence, first.culprit.advice or "")


_HEADS: Final = {StepState.STUCK: "Stuck at", StepState.UNKNOWN: "Partly unknown at", StepState.WAITING: "Under way to"}
