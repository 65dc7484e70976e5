"""`farflung status`: the state and the problems of the fleet."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from msgspec.structs import replace

from farflung.apis.edge.names import CONFIRM_WITHDRAWAL
from farflung.inspect import fleet_edges, fleet_machines, fleet_placements, scheduler_lease
from farflung.inspect.fleet_edges import Edge, EdgeHealth
from farflung.inspect.fleet_machines import SchedulingHealth
from farflung.inspect.fleet_placements import CopiesHealth, PlacementHealth
from farflung.inspect.fleet_reader import Fleet, paths_of, read
from farflung.inspect.hub import HubClient, workspace_name
from farflung.inspect.results import Result

PATHS: Final = 100  #: most workspaces whose path is looked up; others are shown by logical cluster


class Counts(Result, frozen=True):
    all: int
    with_problems: int


class EdgeCounts(Result, frozen=True):
    all: int
    with_problems: int
    states: dict[EdgeHealth, int]


class PlacementCounts(Result, frozen=True):
    all: int
    with_problems: int
    held: int  #: withdrawals


class FleetCounts(Result, frozen=True):
    edges: EdgeCounts | None
    placements: PlacementCounts | None
    summaries: Counts | None


class FleetStatus(Result, frozen=True):
    """None: not visible."""

    server: str
    workspace: str  #: `*`: all
    well: bool
    counts: FleetCounts
    edges: list[Edge] | None
    placements: list[PlacementHealth] | None
    summaries: list[CopiesHealth] | None
    machines: SchedulingHealth | None  #: None: the fleet has none
    remarks: list[str]


async def status(hub: HubClient, now: datetime, *, only: bool = False, everything: bool = False) -> FleetStatus:
    """`only`: the workspace of `hub`; `everything`: also healthy entries."""
    found = summarize(await read(hub, only=only), now, everything=everything)
    sections: list[Sequence[Any]] = [found.edges or (), found.placements or (), found.summaries or ()]
    if found.machines is not None:
        sections += [found.machines.clusters.listed, found.machines.machines.listed]
    clusters = list(dict.fromkeys(one.cluster for some in sections for one in some))
    paths = await paths_of(hub.root, clusters if everything else clusters[:PATHS])
    found = with_paths(found, paths)
    if found.placements is not None:
        placements = [replace(one, confirm_with=_confirmation(hub, one)) for one in found.placements]
        found = replace(found, placements=placements)
    return replace(found, server=hub.server, workspace=workspace_name(hub) if only else "*")


def with_paths(found: FleetStatus, paths: Mapping[str, str]) -> FleetStatus:
    """With the paths of workspaces by logical cluster."""
    machines = found.machines
    if machines is not None:
        machines = replace(
            machines,
            clusters=replace(machines.clusters, listed=_located(machines.clusters.listed, paths)),
            machines=replace(machines.machines, listed=_located(machines.machines.listed, paths)),
        )
    return replace(
        found,
        edges=_located(found.edges, paths),
        placements=_located(found.placements, paths),
        summaries=_located(found.summaries, paths),
        machines=machines,
    )


def _located(entries: Any, paths: Mapping[str, str]) -> Any:
    return entries and [replace(one, workspace=paths.get(one.cluster, one.cluster)) for one in entries]


def summarize(fleet: Fleet, now: datetime, *, everything: bool = False) -> FleetStatus:
    """Without the server and the paths of workspaces.  Pure."""
    edges = placements = summaries = None
    if fleet.targets is not None:
        edges = fleet_edges.edges(fleet.targets, fleet.locations, fleet.mailboxes, fleet.reports, now)
    if fleet.placements is not None:
        placements = fleet_placements.placements(fleet.placements)
    if fleet.summaries is not None:
        summaries = fleet_placements.summaries(fleet.summaries)
    scheduler = None if fleet.lease is None else scheduler_lease.read_lease(fleet.lease, now)
    machines = fleet_machines.machines(fleet.clusters, fleet.pods, fleet.allocations, scheduler)
    bad_edges = [one for one in edges or () if not one.is_well]
    bad_placements = [one for one in placements or () if one.problems]
    bad_summaries = [one for one in summaries or () if one.has_problems]
    is_well = not (bad_edges or bad_placements or bad_summaries) and (machines is None or machines.is_well)
    counts = FleetCounts(
        None if edges is None else EdgeCounts(len(edges), len(bad_edges), _states(edges)),
        None
        if placements is None
        else PlacementCounts(len(placements), len(bad_placements), sum(bool(one.confirmation) for one in placements)),
        None if summaries is None else Counts(len(summaries), len(bad_summaries)),
    )
    if not everything:
        edges, placements, summaries = edges and bad_edges, placements and bad_placements, summaries and bad_summaries
        machines = machines and machines.without_healthy()
    return FleetStatus("", "*", is_well, counts, edges, placements, summaries, machines, fleet.remarks)


def _states(edges: Iterable[Edge]) -> dict[EdgeHealth, int]:
    states = Counter(one.state for one in edges)
    return {one: states[one] for one in reversed(EdgeHealth)}


def _confirmation(hub: HubClient, placement: PlacementHealth) -> str:
    """The command that confirms a held withdrawal; empty if none is held."""
    if not placement.confirmation:
        return ""
    server = f"--server={hub.server}/clusters/{placement.workspace}"
    annotation = f"{CONFIRM_WITHDRAWAL}={placement.confirmation}"
    return shlex.join(["kubectl", server, "annotate", "--overwrite", "edgeplacement", placement.name, annotation])
