"""The output of `farflung status`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import islice
from typing import Final

from farflung.cli.output import NONE, named, printer, remark_lines, table
from farflung.inspect import fields, fleet_health
from farflung.inspect.fleet_health import (
    BrokenCopy,
    ClusterSummary,
    CommonReason,
    CopiesHealth,
    Edge,
    EdgeHealth,
    MachineHealth,
    PlacementHealth,
    SchedulingHealth,
)
from farflung.inspect.fleet_status import FleetStatus
from farflung.inspect.scheduler_model import SchedulerStatus, describe_problem
from farflung.lib.words import count

LISTED: Final = 20  #: edges and placements without --all
SUMMARIES_LISTED: Final = 10
LOCATIONS_NAMED: Final = 3  #: per edge
NO_EDGES: Final = (
    "No edges: create a SyncTarget and a Location for a cluster; `farflung syncer-gen NAME` prints the manifest of "
    "its syncer."
)
NO_PLACEMENTS: Final = "No placements: an EdgePlacement selects objects and Locations."
NAMED: Final = 5  #: unhealthy Clusters in one line
REASONS: Final = 3  #: in a summary


@printer
def printed(answer: FleetStatus, now: datetime, *, everything: bool = False) -> Iterator[str]:
    within = "" if answer.workspace == "*" else f", workspace {answer.workspace}"
    yield f"Hub {answer.server}{within}"
    yield from _edges(answer, now, everything)
    yield from _placements(answer, everything)
    yield from _summaries(answer, now, everything)
    yield from machine_lines(answer.machines, everything=everything) if answer.machines else ()
    yield from remark_lines(answer.remarks)


def _edges(answer: FleetStatus, now: datetime, everything: bool) -> Iterator[str]:
    counts = answer.counts.edges
    if counts is None:
        yield "Edges: no access."
        return
    if not counts.all:
        yield NO_EDGES if answer.workspace == "*" else "No edges in this workspace."
        return
    states = ", ".join(f"{number} {state}" for state, number in counts.states.items() if number)
    problems = counts.with_problems - (counts.all - counts.states[EdgeHealth.READY])
    more = f", {problems} of the ready ones with problems" if problems else ""
    yield f"{count(counts.all, 'edge')}: {states}{more}"
    head = ["NAME", "WORKSPACE", "LOCATIONS", "STATE", "HEARD", "OBJECTS", "PROBLEMS"]
    yield from _listed(head, (_edge(one, now) for one in answer.edges or ()), None if everything else LISTED)


def _edge(one: Edge, now: datetime) -> list[str]:
    objects = one.objects
    return [
        one.name,
        one.workspace,
        "?" if one.locations is None else named(one.locations, LOCATIONS_NAMED, ",") or NONE,
        one.state,
        _ago(one.heard, now) or "never",
        "?" if objects is None else f"{objects.synced}/{objects.synced + objects.pending + objects.failing}",
        "; ".join([*one.problems, *one.remarks]) or NONE,
    ]


def _placements(answer: FleetStatus, everything: bool) -> Iterator[str]:
    counts, placements = answer.counts.placements, answer.placements or []
    if counts is None:
        yield "Placements: no access."
        return
    if not counts.all:
        yield NO_PLACEMENTS if answer.workspace == "*" else "No placements in this workspace."
        return
    held = f", {count(counts.held, 'withdrawal')} held" if counts.held else ""
    left_out = f", {counts.left_out} without some matching Locations" if counts.left_out else ""
    yield f"{count(counts.all, 'placement')}: {counts.with_problems or 'none'} with problems{held}{left_out}"
    most = None if everything else LISTED
    rows = (row for one in placements for row in _placement(one))
    yield from _listed(["NAME", "WORKSPACE", "OBJECTS", "PROBLEM", "MESSAGE"], rows, most)
    for one in islice((one for one in placements if one.confirm_with), most):
        yield f"  To confirm the withdrawal of {one.name}: {one.confirm_with}"


def _placement(one: PlacementHealth) -> Iterator[list[str]]:
    head = [one.name, one.workspace, "?" if one.selected_objects is None else str(one.selected_objects)]
    for problem in one.problems:
        yield [*head, fields.line(problem.reason), fields.line(problem.message)]
    if not one.problems:
        yield [*head, NONE, fields.line(one.left_out)]


def _summaries(answer: FleetStatus, now: datetime, everything: bool) -> Iterator[str]:
    counts = answer.counts.summaries
    if not counts or not counts.all:
        return
    wrong = f"{counts.with_problems or 'none'} with broken, missing or stale copies"
    number = sum(bool(one.progressing) for one in answer.summaries or ())
    progressing = f", {number} with copies that are being rolled out" if number else ""
    yield f"{counts.all} StatusSummar{'y' if counts.all == 1 else 'ies'}: {wrong}{progressing} (kubectl get ssum -A)"
    head = ["OBJECT", "WORKSPACE", "PLACEMENT", "COPIES", "BROKEN", "MISSING", "STALE", "PROGRESSING", "FIRST"]
    rows = (_summary(one, now) for one in answer.summaries or ())
    yield from _listed(head, rows, None if everything else SUMMARIES_LISTED)


def _summary(one: CopiesHealth, now: datetime) -> list[str]:
    numbers = map(str, (one.expected, one.broken, one.missing, one.stale, one.progressing))
    first = NONE if one.first is None else _first(one.first, now)
    return [fields.line(f"{one.kind} {one.object}"), one.workspace, one.placement, *numbers, first]


def _first(first: BrokenCopy, now: datetime) -> str:
    since = _ago(first.since, now)
    reason = fleet_health.describe_reason(first.reason, first.message)
    return fields.line(f"{first.sync_target_name}: {reason}{f' (since {since})' if since else ''}")


def _ago(time: str | None, now: datetime) -> str:
    return fields.ago(fields.moment({"time": time}, "time"), now)


def _listed(head: list[str], rows: Iterable[list[str]], most: int | None = None) -> Iterator[str]:
    """`most`: rows; None: all."""
    found = list(rows)
    if not found:
        return
    yield from (f"  {line}" for line in table([head, *found[:most]]).splitlines())
    if more := len(found) - len(found[:most]):
        yield f"  … and {more} more; --all lists them"


# --- the global scheduler -------------------------------------------------------------------------


def machine_lines(found: SchedulingHealth, *, everything: bool = False) -> Iterator[str]:
    """`everything`: with tables."""
    clusters, machines = found.clusters, found.machines
    if clusters.all:
        phases = ", ".join(f"{number} {fields.line(phase)}" for phase, number in clusters.phases.items())
        unwell = named([fields.line(name) for name in clusters.unwell], NAMED)
        yield f"{count(clusters.all, 'Cluster')}: {phases}{f' (unhealthy: {unwell})' if unwell else ''}"
        if everything:
            rows = ([*_names(one), fields.line(one.phase), str(one.stacks), one.why or NONE] for one in clusters.listed)
            yield from _listed(["NAME", "WORKSPACE", "PHASE", "STACKS", "REASON"], rows)
        else:
            troubles = (one for one in clusters.listed if one.why)
            yield from (f"  {fields.line(one.name)}: {one.why}" for one in islice(troubles, NAMED))
    if found.scheduler is not None:
        yield from _scheduler(found.scheduler)
    if machines.all:
        what = "virtual machine or stack" if machines.all == 1 else "virtual machines and stacks"
        states = ", ".join(f"{number} {state}" for state, number in machines.states.items() if number)
        yield f"{machines.all} {what}: {states}"
        yield from _machine_table(machines.listed) if everything else _reasons(found.reasons)


def _reasons(reasons: Sequence[CommonReason]) -> Iterator[str]:
    for one in reasons[:REASONS]:
        yield f"  {one.number} {one.state}: {one.message}"
    if more := sum(one.number for one in reasons[REASONS:]):
        yield f"  … and {more} for other reasons; --all lists them"


def _names(one: ClusterSummary | MachineHealth) -> list[str]:
    return [fields.line(f"{one.namespace}/{one.name}"), fields.line(one.workspace)]


def _machine_table(machines: Iterable[MachineHealth]) -> Iterator[str]:
    rows = ([one.kind, *_names(one), one.state, _bound(one.bound_to), one.why or NONE] for one in machines)
    yield from _listed(["KIND", "NAME", "WORKSPACE", "STATE", "BOUND TO", "REASON"], rows)


def _bound(places: Iterable[str]) -> str:
    numbers = Counter(map(fields.line, places)).items()
    return named([name if number == 1 else f"{name} ({number} times)" for name, number in numbers], NAMED) or NONE


def _scheduler(state: SchedulerStatus) -> Iterator[str]:
    if not state.works:
        last = f"; the last renewal was at {state.heard}" if state.heard else ""
        yield f"No global scheduler is running{last}"
    if (files := state.files) is None:
        return
    if files.sites:
        yield f"{count(files.sites, 'site')} from files ({fields.line(' '.join(files.options))})"
    if files.problem:
        why = describe_problem(files)
        yield f"The files of the global scheduler are invalid since {fields.line(files.since)}: {why}"
