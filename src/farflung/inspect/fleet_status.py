"""`farflung status`: the state and the problems of the fleet."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from farflung.apis.edge.names import CONFIRM_WITHDRAWAL
from farflung.inspect import fleet_edges, fleet_machines, fleet_placements, scheduler_lease
from farflung.inspect.fleet_edges import EdgeHealth
from farflung.inspect.fleet_reader import Fleet, paths_of, read
from farflung.inspect.hub import HubClient, workspace_name
from farflung.machinery.errors import Obj

PATHS: Final = 100  #: most workspaces whose path is looked up; others are shown by logical cluster


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
