"""`farflung status`: the state and the problems of the fleet."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import islice
from typing import Final

from farflung.apis.edge.names import CONFIRM_WITHDRAWAL
from farflung.cli import fields, fleet_edges, fleet_machines, fleet_placements, scheduler_lease
from farflung.cli.connection import HubClient, workspace_name
from farflung.cli.fleet_edges import EdgeHealth
from farflung.cli.fleet_reader import Fleet, paths_of, read
from farflung.cli.output import NONE, TABLE, machine_readable, table
from farflung.lib.words import count
from farflung.machinery.errors import Obj

LISTED: Final = 20  #: edges and placements without --all
SUMMARIES_LISTED: Final = 10
PATHS: Final = 100  #: most workspaces whose path is looked up; others are shown by logical cluster
LOCATIONS_NAMED: Final = 3  #: per edge
NO_EDGES: Final = (
    "No edges: create a SyncTarget and a Location for a cluster; `farflung syncer-gen NAME` prints the manifest of "
    "its syncer."
)
NO_PLACEMENTS: Final = "No placements: an EdgePlacement selects objects and Locations."


async def status(hub: HubClient, now: datetime, *, only: bool = False, everything: bool = False) -> Obj:
    """The result for JSON and YAML.  `only`: the workspace of `hub`; `everything`: also healthy entries."""
    answer = summarize(await read(hub, only=only), now, everything=everything)
    sections = [answer[key] or () for key in ("edges", "placements", "summaries")]
    if answer["machines"] is not None:
        sections += [answer["machines"][key]["listed"] for key in ("clusters", "machines")]
    clusters = list(dict.fromkeys(one["cluster"] for some in sections for one in some))
    paths = await paths_of(hub.root, clusters if everything else clusters[:PATHS])
    for one in (one for some in sections for one in some):
        one["workspace"] = paths.get(one["cluster"], one["cluster"])
    for one in answer["placements"] or ():
        one["confirmWith"] = _confirmation(hub, one)
    return {"server": hub.server, "workspace": workspace_name(hub) if only else "*", **answer}


def summarize(fleet: Fleet, now: datetime, *, everything: bool = False) -> Obj:
    """Without workspace paths.  Pure."""
    edges = placements = summaries = None
    if fleet.targets is not None:
        edges = fleet_edges.edges(fleet.targets, fleet.locations, fleet.mailboxes, fleet.reports, now)
    if fleet.placements is not None:
        placements = fleet_placements.placements(fleet.placements)
    if fleet.summaries is not None:
        summaries = fleet_placements.summaries(fleet.summaries)
    unwell = {
        "edges": [one for one in edges or () if not fleet_edges.is_well(one)],
        "placements": [one for one in placements or () if one["problems"]],
        "summaries": [one for one in summaries or () if fleet_placements.has_problems(one)],
    }
    every = {"edges": edges, "placements": placements, "summaries": summaries}
    scheduler = None if fleet.lease is None else scheduler_lease.read_lease(fleet.lease, now)
    machines = fleet_machines.machines(fleet.clusters, fleet.pods, fleet.allocations, scheduler)
    if machines is not None and not everything:
        machines = fleet_machines.without_healthy(machines)
    return {
        "well": not any(unwell.values()) and (machines is None or fleet_machines.is_well(machines)),
        "counts": {
            "edges": None if edges is None else _edge_counts(edges, len(unwell["edges"])),
            "placements": None if placements is None else _placement_counts(placements, len(unwell["placements"])),
            "summaries": None if summaries is None else _counted(summaries, len(unwell["summaries"])),
        },
        **(every if everything else {key: None if every[key] is None else some for key, some in unwell.items()}),
        "machines": machines,
        "remarks": fleet.remarks,
    }


def _counted(some: Sequence[Obj], unwell: int) -> Obj:
    return {"all": len(some), "withProblems": unwell}


def _edge_counts(edges: Sequence[Obj], unwell: int) -> Obj:
    states = Counter(one["state"] for one in edges)
    return {**_counted(edges, unwell), "states": {one.value: states[one.value] for one in reversed(EdgeHealth)}}


def _placement_counts(placements: Sequence[Obj], unwell: int) -> Obj:
    return {**_counted(placements, unwell), "held": sum(bool(one["confirmation"]) for one in placements)}


def _confirmation(hub: HubClient, placement: Obj) -> str:
    """The command that confirms a held withdrawal; empty if none is held."""
    if not placement["confirmation"]:
        return ""
    server = f"--server={hub.server}/clusters/{placement['workspace']}"
    annotation = f"{CONFIRM_WITHDRAWAL}={placement['confirmation']}"
    return shlex.join(["kubectl", server, "annotate", "--overwrite", "edgeplacement", placement["name"], annotation])


# --- output ---------------------------------------------------------------------------------------


def printed(answer: Obj, output: str, now: datetime, *, everything: bool = False) -> str:
    if output != TABLE:
        return machine_readable(answer, output)
    within = "" if answer["workspace"] == "*" else f", workspace {answer['workspace']}"
    parts = [f"Hub {answer['server']}{within}", *_edges(answer, now, everything), *_placements(answer, everything)]
    parts += _summaries(answer, now, everything)
    parts += fleet_machines.lines(answer["machines"], everything=everything) if answer["machines"] else []
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
