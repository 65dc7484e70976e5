"""What there is of a fleet, as far as somebody may see it: by a few lists over all workspaces, however many edges there
are; or else by those of one workspace."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import click
import orjson

from farflung.cli import fields
from farflung.cli.connection import Hub, workspace_name
from farflung.client.errors import ClientError, Forbidden, NotFound
from farflung.client.resource import Collection
from farflung.client.rest import Client
from farflung.controllers.edge_scheduler.controller import LOCATIONS, SYNC_TARGETS
from farflung.controllers.edge_scheduler.decide import PLACEMENTS
from farflung.controllers.edge_scheduler.inventory import HiddenError, everywhere
from farflung.controllers.mailbox.controller import CONFIGS, WORKSPACES
from farflung.controllers.mailbox.decide import CONFIG
from farflung.machinery.errors import Obj

SUMMARIES: Final = Collection("edge.kcp.io", "v1alpha1", "statussummaries", "StatusSummary")
LOGICAL_CLUSTERS: Final = Collection("core.kcp.io", "v1alpha1", "logicalclusters", "LogicalCluster")
THE_CLUSTER: Final = "cluster"  #: the name of the one that a workspace has
PATH: Final = "kcp.io/path"  #: annotation of a LogicalCluster: where its workspace is; `root` has none
AT_ONCE: Final = 8  #: requests


@dataclass(slots=True)
class Fleet:
    """None: they cannot be seen."""

    targets: list[Obj] | None = None
    locations: list[Obj] | None = None
    placements: list[Obj] | None = None
    summaries: list[Obj] | None = None
    mailboxes: dict[str, str] | None = None  #: name → its cluster
    reports: dict[str, Obj] | None = None  #: cluster of a mailbox → what its syncer is told, and reports
    remarks: list[str] = field(default_factory=list)  #: what could not be seen, and why

    @property
    def is_hidden(self) -> bool:
        return all(one is None for one in (self.targets, self.locations, self.placements, self.summaries))


async def read(hub: Hub, *, only: bool = False) -> Fleet:
    """`only`: what is in the workspace of `hub`.  click.ClickException if nothing can be seen."""
    fleet = Fleet()
    provider = hub.root.workspace(hub.provider)
    (fleet.targets,), (fleet.locations,), (fleet.placements, fleet.summaries), _, _ = await asyncio.gather(
        _listed(hub, hub.root, (SYNC_TARGETS,), fleet, only=only),
        _listed(hub, hub.root, (LOCATIONS,), fleet, only=only),
        _listed(hub, provider, (PLACEMENTS, SUMMARIES), fleet, only=only),
        _read_mailboxes(provider, fleet),
        _read_reports(provider, fleet),
    )
    fleet.remarks = sorted(set(fleet.remarks))
    if fleet.is_hidden:
        raise click.ClickException("\n".join([f"nothing of a fleet can be seen at {hub.server}", *fleet.remarks]))
    return fleet


async def _listed(
    hub: Hub, exporting: Client, collections: Sequence[Collection], fleet: Fleet, *, only: bool
) -> list[list[Obj] | None]:
    """Of all workspaces, by the view of their export, which `exporting` has; or of one."""
    if only:
        return [await _here(hub, one, fleet) for one in collections]
    try:
        return [list(await everywhere(exporting, one, orjson.loads)) for one in collections]
    except HiddenError as error:
        fleet.remarks.append(str(error))
    return [await _here(hub, one, fleet) or None for one in collections]  # none here says nothing of others


async def _here(hub: Hub, collection: Collection, fleet: Fleet) -> list[Obj] | None:
    try:
        return await hub.workspace.list(collection)
    except NotFound:
        return []
    except Forbidden as error:
        fleet.remarks.append(f"you may not see {collection.plural} of the workspace {workspace_name(hub)}: {error}")
        return None


async def _read_mailboxes(provider: Client, fleet: Fleet) -> None:
    try:
        found = await provider.list(WORKSPACES)
    except (NotFound, Forbidden) as error:
        fleet.remarks.append(f"mailboxes cannot be seen, and so not what syncers report: {error}")
        return
    fleet.mailboxes = {fields.name_of(one): fields.text(one, "spec", "cluster") for one in found}


async def _read_reports(provider: Client, fleet: Fleet) -> None:
    try:
        found: tuple[Obj, ...] = await everywhere(provider, CONFIGS, orjson.loads)
    except HiddenError as error:
        fleet.remarks.append(str(error))
        return
    fleet.reports = {fields.cluster_of(one): one for one in found if fields.name_of(one) == CONFIG}


async def paths_of(server: Client, clusters: Iterable[str]) -> dict[str, str]:
    """Where workspaces are, by their clusters; those of which somebody may not know that are left out."""
    turns = asyncio.Semaphore(AT_ONCE)

    async def path_of(cluster: str) -> str:
        async with turns:
            try:
                found = await server.workspace(cluster).get(LOGICAL_CLUSTERS, THE_CLUSTER)
            except ClientError:
                return ""
        return fields.texts(found, "metadata", "annotations").get(PATH, "")

    wanted = sorted(set(clusters) - {""})
    found = await asyncio.gather(*map(path_of, wanted))
    return {cluster: path for cluster, path in zip(wanted, found, strict=True) if path}
