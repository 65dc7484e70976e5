"""The output of `farflung status`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import islice
from typing import Final

from farflung.cli.output import NONE, TABLE, machine_readable, table
from farflung.inspect import fields, fleet_edges, scheduler_lease
from farflung.inspect.fleet_edges import EdgeHealth
from farflung.lib.words import count
from farflung.machinery.errors import Obj

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


def printed(answer: Obj, output: str, now: datetime, *, everything: bool = False) -> str:
    if output != TABLE:
        return machine_readable(answer, output)
    within = "" if answer["workspace"] == "*" else f", workspace {answer['workspace']}"
    parts = [f"Hub {answer['server']}{within}", *_edges(answer, now, everything), *_placements(answer, everything)]
    parts += _summaries(answer, now, everything)
    parts += machine_lines(answer["machines"], everything=everything) if answer["machines"] else []
    parts += [f"remark: {fields.line(one, 1000)}" for one in answer["remarks"]]
    return "\n".join(parts)


def _edges(answer: Obj, now: datetime, everything: bool) -> Iterator[str]:
    counts = answer["counts"]["edges"]
    if counts is None:
        yield "Edges: no access."
        return
    if not counts["all"]:
        yield NO_EDGES if answer["workspace"] == "*" else "No edges in this workspace."
        return
    states = ", ".join(f"{number} {state}" for state, number in counts["states"].items() if number)
    problems = counts["withProblems"] - (counts["all"] - counts["states"][EdgeHealth.READY])
    more = f", {problems} of the ready ones with problems" if problems else ""
    yield f"{count(counts['all'], 'edge')}: {states}{more}"
    head = ["NAME", "WORKSPACE", "LOCATIONS", "STATE", "HEARD", "OBJECTS", "PROBLEMS"]
    yield from _listed(head, (_edge(one, now) for one in answer["edges"]), everything, LISTED)


def _edge(one: Obj, now: datetime) -> list[str]:
    locations, objects = one["locations"], one["objects"]
    heard = fields.ago(fields.moment(one, "heard"), now)
    at_edge = "?" if objects is None else _share(objects)
    problems = "; ".join([*one["problems"], *one["remarks"]])
    return [
        one["name"],
        one["workspace"],
        "?" if locations is None else _some(locations),
        one["state"],
        heard or "never",
        at_edge,
        problems or NONE,
    ]


def _share(objects: Obj) -> str:
    """`11/12`: synced of all."""
    return f"{objects['synced']}/{sum(objects[key] for key in ('synced', 'pending', 'failing'))}"


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - LOCATIONS_NAMED} more" if len(names) > LOCATIONS_NAMED else ""
    return f"{','.join(names[:LOCATIONS_NAMED])}{more}" or NONE


def _placements(answer: Obj, everything: bool) -> Iterator[str]:
    counts = answer["counts"]["placements"]
    if counts is None:
        yield "Placements: no access."
        return
    if not counts["all"]:
        yield NO_PLACEMENTS if answer["workspace"] == "*" else "No placements in this workspace."
        return
    held = f", {count(counts['held'], 'withdrawal')} held" if counts["held"] else ""
    yield f"{count(counts['all'], 'placement')}: {counts['withProblems'] or 'none'} with problems{held}"
    rows = (row for one in answer["placements"] for row in _placement(one))
    yield from _listed(["NAME", "WORKSPACE", "PROBLEM", "MESSAGE"], rows, everything, LISTED)
    for one in islice((one for one in answer["placements"] if one["confirmWith"]), None if everything else LISTED):
        yield f"  To confirm the withdrawal of {one['name']}: {one['confirmWith']}"


def _placement(one: Obj) -> Iterator[list[str]]:
    for problem in one["problems"] or [{"reason": NONE, "message": ""}]:
        yield [one["name"], one["workspace"], fields.line(problem["reason"]), fields.line(problem["message"])]


def _summaries(answer: Obj, now: datetime, everything: bool) -> Iterator[str]:
    counts = answer["counts"]["summaries"]
    if not counts or not counts["all"]:
        return
    number = counts["all"]
    wrong = f"{counts['withProblems'] or 'none'} with broken, missing or stale copies"
    yield f"{number} StatusSummar{'y' if number == 1 else 'ies'}: {wrong} (kubectl get ssum -A)"
    head = ["OBJECT", "WORKSPACE", "PLACEMENT", "COPIES", "BROKEN", "MISSING", "STALE", "FIRST"]
    yield from _listed(head, (_summary(one, now) for one in answer["summaries"]), everything, SUMMARIES_LISTED)


def _summary(one: Obj, now: datetime) -> list[str]:
    numbers = [str(one[key]) for key in ("expected", "broken", "missing", "stale")]
    return [
        fields.line(f"{one['kind']} {one['object']}"),
        one["workspace"],
        one["placement"],
        *numbers,
        _first(one, now),
    ]


def _first(one: Obj, now: datetime) -> str:
    first = one["first"]
    if first is None:
        return NONE
    since = fields.ago(fields.moment(first, "since"), now)
    return fields.line(
        f"{first['syncTargetName']}: {fleet_edges.describe(first)}{f' (since {since})' if since else ''}"
    )


def _listed(head: list[str], rows: Iterable[list[str]], everything: bool, most: int) -> Iterator[str]:
    found = list(rows)
    if not found:
        return
    shown = found if everything else found[:most]
    yield from (f"  {line}" for line in table([head, *shown]).splitlines())
    if len(shown) < len(found):
        yield f"  … and {len(found) - len(shown)} more; --all lists them"


# --- the global scheduler ----------------------------------------------------------------------


def machine_lines(found: Obj, *, everything: bool = False) -> Iterator[str]:
    """`everything`: with tables."""
    clusters, machines = found["clusters"], found["machines"]
    if clusters["all"]:
        phases = ", ".join(f"{number} {fields.line(phase)}" for phase, number in clusters["phases"].items())
        yield f"{count(clusters['all'], 'Cluster')}: {phases}{_unhealthy(clusters['unwell'])}"
        yield from _cluster_table(clusters["listed"]) if everything else _troubles(clusters["listed"])
    if found["scheduler"] is not None:
        yield from _scheduler(found["scheduler"])
    if number := machines["all"]:
        what = "virtual machine or stack" if number == 1 else "virtual machines and stacks"
        states = ", ".join(f"{number} {state}" for state, number in machines["states"].items() if number)
        yield f"{number} {what}: {states}"
        yield from _machine_table(machines["listed"]) if everything else _reasons(found["reasons"])


def _troubles(clusters: list[Obj]) -> Iterator[str]:
    for one in [one for one in clusters if one["why"]][:NAMED]:
        yield f"  {fields.line(one['name'])}: {one['why']}"


def _reasons(reasons: list[Obj]) -> Iterator[str]:
    for one in reasons[:REASONS]:
        yield f"  {one['number']} {one['state']}: {one['message']}"
    if more := sum(one["number"] for one in reasons[REASONS:]):
        yield f"  … and {more} for other reasons; --all lists them"


def _names(one: Obj) -> list[str]:
    return [fields.line(f"{one['namespace']}/{one['name']}"), fields.line(one["workspace"])]


def _cluster_table(clusters: list[Obj]) -> Iterator[str]:
    rows = [[*_names(one), fields.line(one["phase"]), str(one["stacks"]), one["why"] or NONE] for one in clusters]
    return _table(["NAME", "WORKSPACE", "PHASE", "STACKS", "REASON"], rows)


def _machine_table(machines: list[Obj]) -> Iterator[str]:
    rows = [[one["kind"], *_names(one), one["state"], _bound(one["boundTo"]), one["why"] or NONE] for one in machines]
    return _table(["KIND", "NAME", "WORKSPACE", "STATE", "BOUND TO", "REASON"], rows)


def _bound(places: list[str]) -> str:
    numbers = Counter(map(fields.line, places)).items()
    said = [name if number == 1 else f"{name} ({number} times)" for name, number in numbers]
    more = f" and {len(said) - NAMED} more" if len(said) > NAMED else ""
    return f"{', '.join(said[:NAMED])}{more}" or NONE


def _table(head: list[str], rows: list[list[str]]) -> Iterator[str]:
    yield from (f"  {line}" for line in table([head, *rows]).splitlines()) if rows else ()


def _unhealthy(names: list[str]) -> str:
    if not names:
        return ""
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f" (unhealthy: {', '.join(fields.line(name) for name in names[:NAMED])}{more})"


def _scheduler(lease: Obj) -> Iterator[str]:
    if not lease["works"]:
        last = f"; the last renewal was at {lease['heard']}" if lease["heard"] else ""
        yield f"No global scheduler is running{last}"
    if (files := lease["files"]) is None:
        return
    if number := files["sites"]:
        yield f"{count(number, 'site')} from files ({fields.line(' '.join(files['options']))})"
    if files["problem"]:
        why = scheduler_lease.describe_problem(files)
        yield f"The files of the global scheduler are invalid since {fields.line(files['since'])}: {why}"
