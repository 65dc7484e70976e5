"""How far an object is on its way to one destination and back, from what was read of it.  Pure.

find      placed → mailbox → copied → edge → status of one destination: how far it is at each of them
conclude  the first thing that is stuck, of all destinations
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final, NamedTuple

from farflung.apis.edge.names import SYNCER_FINALIZER
from farflung.cli import fields, syncer_report
from farflung.cli.output import TABLE, machine_readable
from farflung.cli.plan_copies import THEIRS
from farflung.cli.syncer_report import Report
from farflung.controllers.status_summarizer.health import Digest
from farflung.lib.words import count
from farflung.machinery import times
from farflung.machinery.errors import Obj
from farflung.placement import project
from farflung.placement.names import Part
from farflung.placement.project import NOTHING, Desired
from farflung.placement.syncer_config import moment
from farflung.placement.types import Route
from farflung.syncer.types import MANAGER

PATIENCE: Final = timedelta(seconds=30)  #: what takes longer is stuck
BRIEF: Final = 3  #: conditions and numbers of a status that are told
TELLING: Final = (
    "readyReplicas",
    "availableReplicas",
    "numberReady",
    "succeeded",
    "failed",
)  #: numbers, the best first


class State(StrEnum):
    """The first that one of several has is that of all."""

    STUCK = "stuck"
    UNKNOWN = "unknown"
    WAITING = "waiting"
    DONE = "done"


ORDER: Final = list(State)


class Step(NamedTuple):
    name: str
    state: State
    message: str
    time: str = ""  #: RFC 3339; empty: nobody knows
    advice: str = ""  #: what to do about it


@dataclass(frozen=True, slots=True)
class Hidden:
    """Something that could not be read."""

    why: str


@dataclass(frozen=True, slots=True)
class Subject:
    part: Part
    goes_on: bool = True  #: from the mailbox to the edge
    has_status: bool = True


@dataclass(frozen=True, slots=True)
class Facts:
    """What was read of one destination."""

    place: Route
    mailbox: str
    placements: tuple[str, ...] = ()  #: those that bring it there; empty: none does, any more
    slices: Mapping[str, str] | None = None  #: those that say so, and when they were written
    changed: str = ""  #: when what all this follows from was last changed
    workspace: Obj | Hidden | None = None
    copy: Obj | Hidden | None = None
    served: bool = True  #: whether the mailbox has the kind
    desired: Desired = NOTHING
    doubt: str = ""  #: why nobody knows whether the copy is as it should be
    along: bool = False  #: it is there for what needs it, which nobody looked at
    needed: bool = False  #: nothing selects it, but something that is selected needs it
    complaints: tuple[str, ...] = ()  #: what the placements' conditions say of the copy
    held: str = ""  #: why it is not withdrawn, though no placement wants it
    config: Obj | Hidden | None = None  #: `the-one`, where the syncer reports
    conditions: Sequence[Mapping[str, Any]] | None = None  #: of the SyncTarget; None: nobody knows
    digest: Digest | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    place: Route
    mailbox: str
    placements: tuple[str, ...]
    steps: tuple[Step, ...]

    @property
    def culprit(self) -> Step:
        """The first step that makes the whole what it is."""
        return min(self.steps, key=lambda step: ORDER.index(step.state))

    @property
    def state(self) -> State:
        return self.culprit.state

    @property
    def name(self) -> str:
        return " / ".join(filter(None, [", ".join(filter(None, self.place.locations)), self.place.target]))

    @property
    def rank(self) -> tuple[int, str, str, str]:
        return ORDER.index(self.state), self.place.location, self.place.target, self.mailbox


def find(subject: Subject, facts: Facts, now: datetime) -> Finding:
    return Finding(facts.place, facts.mailbox, facts.placements, tuple(_steps(subject, facts, now)))


def _steps(subject: Subject, facts: Facts, now: datetime) -> Iterator[Step]:
    yield _placed(facts, now)
    there = isinstance(facts.copy, dict)
    if not facts.slices and facts.placements and not there:
        return
    mailbox = _mailbox(facts, now)
    yield mailbox
    if mailbox.state is not State.DONE:
        return
    yield _copied(facts, now)
    if not isinstance(facts.copy, dict) or not (project.is_ours(facts.copy) or facts.needed):
        return
    if subject.goes_on:
        report = facts.config if isinstance(facts.config, Hidden) else syncer_report.read(facts.config or {})
        yield _at_edge(subject, facts, facts.copy, report, now)
        if subject.has_status and not _is_going(facts.copy) and (isinstance(report, Hidden) or report.heard):
            yield _status(subject, facts, facts.copy, report, now)


def _overdue(since: str, now: datetime) -> State:
    then = moment(since)
    return State.WAITING if then is not None and now - then <= PATIENCE else State.STUCK


def age(since: str, now: datetime) -> str:
    """Empty if nobody knows."""
    return fields.ago(moment(since), now)


# --- from the placement to the mailbox ------------------------------------------------------------


def _placed(facts: Facts, now: datetime) -> Step:
    if facts.slices:
        names = ", ".join(sorted(facts.slices))
        return Step("placed", State.DONE, f"slice {names}", min(facts.slices.values()))
    if not facts.placements:
        return Step("placed", State.DONE, "no EdgePlacement brings it here any more")
    return Step(
        "placed",
        _overdue(facts.changed, now),
        "the edge scheduler has not placed it here yet",
        facts.changed,
        f"is the scheduler running? `farflung explain placement {facts.placements[0]}` says what it has still to do",
    )


def _mailbox(facts: Facts, now: datetime) -> Step:
    if isinstance(facts.workspace, Hidden):
        if not isinstance(facts.copy, Hidden):
            return Step("mailbox", State.DONE, facts.mailbox)
        return Step("mailbox", State.UNKNOWN, f"mailboxes cannot be seen: {facts.workspace.why}")
    running = "is the mailbox controller running?"
    if facts.workspace is None:
        since = max((facts.slices or {}).values(), default=facts.changed)
        return Step("mailbox", _overdue(since, now), "there is no mailbox yet", "", running)
    metadata, status = facts.workspace["metadata"], facts.workspace.get("status") or {}
    if _is_going(facts.workspace):
        since = metadata["deletionTimestamp"]
        return Step("mailbox", _overdue(since, now), "the mailbox is being deleted", since, "is its SyncTarget gone?")
    since = metadata.get("creationTimestamp") or ""
    if status.get("phase") != "Ready":
        return Step("mailbox", _overdue(since, now), "the mailbox is being made", since, running)
    return Step("mailbox", State.DONE, facts.mailbox, since)


# --- in the mailbox -------------------------------------------------------------------------------


def _copied(facts: Facts, now: datetime) -> Step:
    copy, complaints = facts.copy, "; ".join(facts.complaints)
    if isinstance(copy, Hidden):
        return Step("copied", State.UNKNOWN, f"the copy cannot be seen: {copy.why}")
    if copy is None:
        return _missing(facts, complaints, now)
    if not project.is_ours(copy):
        if facts.needed:
            return Step("copied", State.DONE, "there is one already, which will do", _created(copy))
        return Step("copied", State.STUCK, THEIRS, _created(copy), "delete or rename one of the two")
    if _is_going(copy):
        return _withdrawn(facts, copy)
    version, written = f"resourceVersion {copy['metadata'].get('resourceVersion', '')}", written_to(copy)
    if complaints:
        return Step("copied", State.STUCK, complaints, written)
    if facts.along:
        return Step("copied", State.DONE, f"goes along with what needs it, {version}", written)
    if facts.doubt:
        return Step("copied", State.UNKNOWN, f"{version}; {facts.doubt}", written)
    if not facts.placements and facts.held:
        return Step("copied", State.STUCK, f"its withdrawal is held, {version}", written, facts.held)
    if not facts.placements:
        message = f"it is to be withdrawn, and is still there, {version}"
        return Step("copied", _overdue(facts.changed, now), message, written, _TRANSLATOR)
    if facts.desired.problem:
        return Step("copied", State.STUCK, facts.desired.problem, written)
    if facts.desired.obj is not None and project.updated(copy, facts.desired.obj) is not None:
        since = max(facts.changed, written)
        return Step("copied", _overdue(since, now), f"not as it is described now, {version}", written, _TRANSLATOR)
    return Step("copied", State.DONE, f"current, {version}", written)


_TRANSLATOR: Final = "is the placement translator running?"


def _missing(facts: Facts, complaints: str, now: datetime) -> Step:
    if problem := complaints or facts.desired.problem:
        return Step("copied", State.STUCK, problem)
    since = max([facts.changed, *(facts.slices or {}).values()])
    if not facts.served:
        return Step("copied", _overdue(since, now), "the mailbox does not have the kind", "", _TRANSLATOR)
    return Step("copied", _overdue(since, now), "there is no copy yet", "", _TRANSLATOR)


def _withdrawn(facts: Facts, copy: Obj) -> Step:
    since, held = copy["metadata"]["deletionTimestamp"], copy["metadata"].get("finalizers") or []
    others = ", ".join(sorted(str(one) for one in held if one != SYNCER_FINALIZER))
    anew = ", and made anew when it is gone" if facts.placements else ""
    if others and SYNCER_FINALIZER not in held:
        message = f"being withdrawn{anew}; held by the finalizers {others}"
        return Step("copied", State.STUCK, message, since, "whoever put them there has to take them off")
    return Step("copied", State.WAITING, f"being withdrawn{anew}", since)


def _is_going(obj: Mapping[str, Any]) -> bool:
    return bool(obj["metadata"].get("deletionTimestamp"))


def _created(obj: Mapping[str, Any]) -> str:
    return str(obj["metadata"].get("creationTimestamp") or "")


def written_to(obj: Mapping[str, Any]) -> str:
    """When somebody other than a syncer last wrote something other than the status."""
    entries = obj["metadata"].get("managedFields") or ()
    kept = [one for one in entries if not one.get("subresource") and one.get("manager") != MANAGER]
    return max([one["time"] for one in kept if one.get("time")], default=_created(obj))


def _is_untouched(copy: Mapping[str, Any]) -> bool:
    """Whether no syncer wrote since: then its version says all."""
    entries = copy["metadata"].get("managedFields") or ()
    theirs = [one.get("time") or "" for one in entries if one.get("subresource") or one.get("manager") == MANAGER]
    return max(theirs, default="") < written_to(copy)


# --- at the edge ----------------------------------------------------------------------------------


def _at_edge(subject: Subject, facts: Facts, copy: Obj, report: Report | Hidden, now: datetime) -> Step:
    if isinstance(report, Hidden):
        return Step("edge", State.UNKNOWN, f"what the syncer reports cannot be seen: {report.why}")
    if report.heard is None:
        return Step("edge", State.STUCK, "no syncer has ever reported", "", _connect(facts.place.target))
    heard = times.format_seconds(report.heard)
    ago = f"syncer heard {age(heard, now)} ago"
    if not syncer_report.is_alive(report, facts.conditions, now):
        advice = f"is the syncer of {facts.place.target} running, and does it reach the hub?"
        return Step("edge", State.STUCK, f"the syncer was last heard {age(heard, now)} ago", heard, advice)
    if report.unreachable is not None:
        advice = "look at the cluster, and at the syncer's way to it"
        message = f"the syncer does not reach its cluster: {report.unreachable}; {ago}"
        return Step("edge", State.STUCK, message, heard, advice)
    if problem := report.problem(subject.part, "down"):
        return Step("edge", State.STUCK, f"{problem.sentence}; {ago}", heard, problem.advice)
    if _is_going(copy):
        since = copy["metadata"]["deletionTimestamp"]
        return Step("edge", _overdue(since, now), f"the syncer has still to remove it; {ago}", heard, _LOG)
    version = copy["metadata"].get("resourceVersion")
    written = None if _is_untouched(copy) else moment(written_to(copy))
    if report.has_brought(subject.part, version, written, now):
        return Step("edge", State.DONE, f"applied; {ago}", heard)
    pending = f", with {count(report.pending, 'change')} to bring" if report.pending else ""
    message = f"the syncer has still to bring it; {ago}{pending}"
    return Step("edge", _overdue(written_to(copy), now), message, heard, _LOG)


_LOG: Final = "the syncer's log says what it does"


def _connect(target: str) -> str:
    return (
        f"`farflung syncer-gen {target}`, in the workspace of the SyncTarget, prints what makes one run in its cluster"
    )


def _status(subject: Subject, facts: Facts, copy: Obj, report: Report | Hidden, now: datetime) -> Step:
    digest = facts.digest or Digest()
    problem = None if isinstance(report, Hidden) else report.problem(subject.part, "status")
    if problem is not None:
        return Step("status", State.STUCK, problem.sentence, digest.observed, problem.advice)
    if not digest.reporting:
        return Step("status", State.WAITING, "no status yet")
    if digest.verdict is not None:
        reason, message, since = digest.verdict
        said = fields.line(f"{reason}: {message}" if message else reason)
        lasting = f", for {age(since, now)}" if age(since, now) else ""
        state = _overdue(max(since, written_to(copy)), now)  # what was just changed may need a moment
        return Step("status", state, f"{said}{lasting}", digest.observed, "look at it in its cluster")
    return Step("status", State.DONE, _brief(digest) or "nothing is wrong", digest.observed)


def _brief(digest: Digest) -> str:
    good = sorted(name for name, status in digest.conditions.items() if status == "True")
    phases = [digest.texts[name] for name in ("phase",) if name in digest.texts]
    numbers = [f"{name} {digest.numbers[name]:g}" for name in TELLING if name in digest.numbers]
    return "; ".join(filter(None, [", ".join([*phases, *good][:BRIEF]), ", ".join(numbers[:BRIEF])]))


# --- all of them ----------------------------------------------------------------------------------


def conclude(findings: Sequence[Finding]) -> tuple[State, str, str]:
    """Of all destinations together: how it is, a sentence, and what to do about it."""
    number = len(findings)
    counts = {state: sum(one.state is state for one in findings) for state in State}
    first = min(findings, key=lambda one: one.rank)
    state = first.state
    if state is State.DONE:
        return state, f"{_all(number)} up to date.", ""
    sentence = f"{_HEADS[state]} {first.name}: {first.culprit.message}."
    if number > 1:
        verb = "is" if counts[state] == 1 else "are"
        sentence += f" {counts[state]} of {number} destinations {verb} {state.value}."
    return state, sentence, first.culprit.advice if state is State.STUCK else ""


_HEADS: Final = {State.STUCK: "Stuck at", State.UNKNOWN: "Not all is known of", State.WAITING: "Under way to"}


def _all(number: int) -> str:
    return "The only destination is" if number == 1 else f"All {number} destinations are"


LONGEST: Final = 500  #: characters of what a condition says


def printed(answer: Obj, output: str, now: datetime) -> str:
    if output != TABLE:
        return machine_readable(answer, output)
    return "\n".join(_lines(answer, now))


def _lines(answer: Obj, now: datetime) -> Iterator[str]:
    yield _object(answer["object"], now)
    for one in answer["placements"]:
        yield from _placement(one, now)
    for one in answer["destinations"]:
        yield from _destination(one, now)
    if more := _left_out(answer["leftOut"]):
        yield more
    yield from (f"remark: {remark}" for remark in answer["remarks"])
    conclusion = answer["conclusion"]
    yield fields.line(conclusion["message"], LONGEST)
    if advice := fields.line(conclusion["advice"], LONGEST):
        yield f"What to do: {advice}{'' if advice.endswith('?') else '.'}"


def _object(one: Obj, now: datetime) -> str:
    name = f"{one['kind']} {one['namespace']}/{one['name']}" if one["namespace"] else f"{one['kind']} {one['name']}"
    if not one["exists"]:
        return f"{name} is gone"
    generation = f", generation {one['generation']}" if one["generation"] else ""
    deleted = f", deleted {age(one['deleted'], now)} ago" if "deleted" in one else ""
    return f"{name}{generation}, changed {age(one['changed'], now)} ago{deleted}"


def _placement(one: Obj, now: datetime) -> Iterator[str]:
    head = f"EdgePlacement {one['name']}"
    if "problem" in one:
        yield f"{head} cannot be understood: {fields.line(one['problem'], LONGEST)}"
        return
    by = f" by {' and '.join(one['clauses'])}" if one["clauses"] else ""
    yield f"{head} selects it{by}, and leads to {count(one['destinations'], 'destination')}"
    for problem in one["problems"]:
        since = f", for {age(problem['since'], now)}" if age(problem["since"], now) else ""
        message = fields.line(problem["message"], LONGEST) if problem["concerns"] else "because of other objects"
        yield f"  {problem['type']} is False ({problem['reason']}){since}: {message}"


def _destination(one: Obj, now: datetime) -> Iterator[str]:
    locations = ", ".join(filter(None, [one["locationName"], *one.get("furtherLocationNames", ())]))
    yield f"  {' / '.join(filter(None, [locations, one['syncTargetName']]))}"
    for step in one["steps"]:
        if step["step"] == "mailbox" and step["state"] == State.DONE:
            continue
        state = "" if step["state"] == State.DONE else f"{step['state']}: "
        yield f"    {step['step']:<8} {age(step['time'] or '', now):>5}  {state}{fields.line(step['message'], LONGEST)}"


def _left_out(counts: Obj) -> str:
    number = counts["destinations"]
    if not number:
        return ""
    others = [f"{counts[state]} {state}" for state in State if state is not State.DONE and counts[state]]
    return f"  … and {number} more, {', '.join(others) if others else 'all well'}"
