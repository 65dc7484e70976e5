"""Reads the objects of a fleet that a user may see: a few lists over all workspaces, or those of one workspace."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

import orjson

from farflung.apis.edge.names import EDGE_PLACEMENTS, STATUS_SUMMARIES, SYNCER_CONFIGS
from farflung.apis.globalscheduler.names import ALLOCATIONS, CLUSTERS
from farflung.apis.kcp.names import (
    COMPUTE,
    COMPUTE_EXPORT,
    LOCATIONS,
    LOGICAL_CLUSTERS,
    PATH_ANNOTATION,
    SYNC_TARGETS,
)
from farflung.apis.names import PODS, Collection
from farflung.client.errors import ClientError, Forbidden, NotFound
from farflung.client.rest import Client
from farflung.inspect import fields, scheduler_lease
from farflung.inspect.errors import InspectError
from farflung.inspect.hub import HubClient, workspace_name
from farflung.inspect.inventory import HiddenError, everywhere
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
        fleet.lease = None if self._only else await scheduler_lease.lease_of(self._hub.root)
        if self._only or fleet.clusters or scheduler_lease.has_sites(fleet.lease):
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
