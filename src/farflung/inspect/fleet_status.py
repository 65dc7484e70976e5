"""`farflung status`: reads the objects of a fleet that a user may see, and reports its state and problems."""

from __future__ import annotations

import asyncio
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import orjson
from msgspec.structs import replace

from farflung.apis.edge.names import CONFIRM_WITHDRAWAL, EDGE_PLACEMENTS, STATUS_SUMMARIES, SYNCER_CONFIGS
from farflung.apis.globalscheduler.names import ALLOCATIONS, CLUSTERS
from farflung.apis.kcp.names import COMPUTE, COMPUTE_EXPORT, LOCATIONS, LOGICAL_CLUSTERS, PATH_ANNOTATION, SYNC_TARGETS
from farflung.apis.names import PODS, Collection
from farflung.client.errors import ClientError, Forbidden, NotFound
from farflung.client.rest import Client
from farflung.inspect import fields, fleet_health, scheduler_model
from farflung.inspect.fleet_health import CopiesHealth, Edge, EdgeHealth, PlacementHealth, SchedulingHealth
from farflung.inspect.hub import HiddenError, HubClient, everywhere, workspace_name
from farflung.inspect.results import InspectError, Result
from farflung.machinery.errors import Obj
from farflung.placement.names import THE_ONE

THE_CLUSTER: Final = "cluster"  #: name of the LogicalCluster of a workspace
AT_ONCE: Final = 8  #: concurrent requests


@dataclass(slots=True)
class Fleet:
    """None: not visible."""

    targets: list[Obj] | None = None
    locations: list[Obj] | None = None
    placements: list[Obj] | None = None
    summaries: list[Obj] | None = None
    mailboxes: dict[str, str] | None = None  #: name → logical cluster
    reports: dict[str, Obj] | None = None  #: SyncerConfigs by the logical cluster of their mailbox
    clusters: list[Obj] = field(default_factory=list)  #: of the global scheduler
    pods: list[Obj] = field(default_factory=list)  #: outside of mailboxes, if there are Clusters
    allocations: list[Obj] = field(default_factory=list)  #: if there are Clusters
    lease: Obj | None = None  #: of the global scheduler; empty: none
    remarks: list[str] = field(default_factory=list)  #: what is not visible, and why

    @property
    def is_hidden(self) -> bool:
        return all(one is None for one in (self.targets, self.locations, self.placements, self.summaries))


async def read(hub: HubClient, *, only: bool = False) -> Fleet:
    """`only`: the workspace of `hub`.  Raises InspectError if nothing is visible."""
    return await _FleetReader(hub, only=only).fleet()


class _FleetReader:
    def __init__(self, hub: HubClient, *, only: bool) -> None:
        self._hub = hub
        self._only = only
        self._provider = hub.root.workspace(hub.provider)
        self._hidden: dict[str, str] = {}  #: export → why its view is not accessible
        self._forbidden: list[str] = []  #: kinds that the user may not list in the workspace

    async def fleet(self) -> Fleet:
        fleet = Fleet()
        fleet.targets, fleet.locations, fleet.placements, fleet.summaries, fleet.mailboxes = await asyncio.gather(
            self._listed(self._hub.root, SYNC_TARGETS),
            self._listed(self._hub.root, LOCATIONS),
            self._listed(self._provider, EDGE_PLACEMENTS),
            self._listed(self._provider, STATUS_SUMMARIES),
            self._mailboxes(),
        )
        configs = await self._everywhere(self._provider, SYNCER_CONFIGS)
        if configs is not None:
            fleet.reports = {fields.cluster_of(one): one for one in configs if fields.name_of(one) == THE_ONE}
        await self._read_machines(fleet)
        fleet.remarks = list(self._remarks())
        if fleet.is_hidden:
            hint = "" if self._only else "; `--workspace PATH` shows one workspace that you may access"
            head = f"no access to any part of the fleet at {self._hub.server}{hint}"
            raise InspectError("\n".join([head, *fleet.remarks]))
        return fleet

    async def _read_machines(self, fleet: Fleet) -> None:
        """Reads Pods and Allocations only if there are Clusters or files with sites.  What the user may not see is
        omitted."""
        compute = self._hub.root.workspace(COMPUTE)
        fleet.clusters = await self._visible(compute, CLUSTERS)
        fleet.lease = None if self._only else await scheduler_model.lease_of(self._hub.root)
        if self._only or fleet.clusters or scheduler_model.has_sites(fleet.lease):
            fleet.allocations = await self._visible(compute, ALLOCATIONS)
            copies = set((fleet.mailboxes or {}).values())
            pods = await self._visible(compute, PODS, export=COMPUTE_EXPORT)
            fleet.pods = [one for one in pods if fields.cluster_of(one) not in copies]

    async def _visible(self, exporting: Client, collection: Collection, *, export: str = "") -> list[Obj]:
        """Of all workspaces or of one; empty if not visible."""
        try:
            if self._only:
                return await self._hub.workspace.list(collection)
            return list(await everywhere(exporting, collection, orjson.loads, export=export))
        except (HiddenError, NotFound, Forbidden):
            return []

    async def _listed(self, exporting: Client, collection: Collection) -> list[Obj] | None:
        """Of all workspaces, through the view of an export of `exporting`, or of one workspace."""
        if self._only:
            return await self._in_workspace(collection)
        found = await self._everywhere(exporting, collection)
        return (
            found if found is not None else await self._in_workspace(collection) or None
        )  # other workspaces may have some

    async def _everywhere(self, exporting: Client, collection: Collection) -> list[Obj] | None:
        try:
            return list(await everywhere(exporting, collection, orjson.loads))
        except HiddenError as error:
            known = self._hidden.get(collection.group, error.sentence)
            self._hidden[collection.group] = min(known, error.sentence)
            return None

    async def _in_workspace(self, collection: Collection) -> list[Obj] | None:
        try:
            return await self._hub.workspace.list(collection)
        except NotFound:
            return []
        except Forbidden:
            self._forbidden.append(collection.plural)
            return None

    async def _mailboxes(self) -> dict[str, str] | None:
        found = await self._hub.mailboxes()
        if found is None:
            self._hidden["mailboxes"] = f"you may not list the workspaces in {self._hub.provider}, which are mailboxes"
        return found

    def _remarks(self) -> Iterator[str]:
        yield from (self._hidden[name] for name in sorted(self._hidden))
        if self._forbidden:
            where = f"in the workspace {workspace_name(self._hub)}, if there is one"
            yield f"you may not list {', '.join(sorted(self._forbidden))} {where}"


async def paths_of(server: Client, clusters: Iterable[str]) -> dict[str, str]:
    """Paths of workspaces by logical cluster; those that the user may not see are omitted."""
    turns = asyncio.Semaphore(AT_ONCE)

    async def path_of(cluster: str) -> str:
        async with turns:
            try:
                found = await server.workspace(cluster).get(LOGICAL_CLUSTERS, THE_CLUSTER)
            except ClientError:
                return ""
        return fields.texts(found, "metadata", "annotations").get(PATH_ANNOTATION, "")

    wanted = sorted(set(clusters) - {""})
    found = await asyncio.gather(*map(path_of, wanted))
    return {cluster: path for cluster, path in zip(wanted, found, strict=True) if path}


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
    left_out: int  #: ready without some matching Locations, on which their authors may not place


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
        edges = fleet_health.edges(fleet.targets, fleet.locations, fleet.mailboxes, fleet.reports, now)
    if fleet.placements is not None:
        placements = fleet_health.placements(fleet.placements)
    if fleet.summaries is not None:
        summaries = fleet_health.summaries(fleet.summaries)
    scheduler = None if fleet.lease is None else scheduler_model.read_lease(fleet.lease, now)
    machines = fleet_health.machines(fleet.clusters, fleet.pods, fleet.allocations, scheduler)
    states = Counter(one.state for one in edges or ())
    bad_edges = [one for one in edges or () if not one.is_well]
    bad_placements = [one for one in placements or () if one.problems]
    noted = [one for one in summaries or () if one.has_problems or one.progressing]
    bad_summaries = [one for one in summaries or () if one.has_problems]
    is_well = not (bad_edges or bad_placements or bad_summaries) and (machines is None or machines.is_well)
    counts = FleetCounts(
        None
        if edges is None
        else EdgeCounts(len(edges), len(bad_edges), {one: states[one] for one in reversed(EdgeHealth)}),
        None if placements is None else _count_placements(placements),
        None if summaries is None else Counts(len(summaries), len(bad_summaries)),
    )
    if not everything:
        edges, placements, summaries = edges and bad_edges, placements and bad_placements, summaries and noted
        machines = machines and machines.without_healthy()
    return FleetStatus("", "*", is_well, counts, edges, placements, summaries, machines, fleet.remarks)


def _count_placements(placements: Sequence[PlacementHealth]) -> PlacementCounts:
    return PlacementCounts(
        len(placements),
        sum(bool(one.problems) for one in placements),
        sum(bool(one.confirmation) for one in placements),
        sum(bool(one.left_out) for one in placements),
    )


def _confirmation(hub: HubClient, placement: PlacementHealth) -> str:
    """The command that confirms a held withdrawal; empty if none is held."""
    if not placement.confirmation:
        return ""
    server = f"--server={hub.server}/clusters/{placement.workspace}"
    annotation = f"{CONFIRM_WITHDRAWAL}={placement.confirmation}"
    return shlex.join(["kubectl", server, "annotate", "--overwrite", "edgeplacement", placement.name, annotation])
