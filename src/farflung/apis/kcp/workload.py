"""workload.kcp.io: SyncTargets."""

from __future__ import annotations

from typing import Final

from farflung.apis.custom_kinds import (
    AGE,
    CustomKind,
    array,
    boolean,
    column,
    conditions,
    date_time,
    mapping,
    object_,
    quantity,
    taints,
    text,
    texts,
)
from farflung.apis.kcp.names import WORKLOAD_GROUP
from farflung.apis.kcp.references import group, named_export, resource

_SYNCED = object_(
    "A resource.",
    group=group("Its API group; empty for the core group."),
    resource=resource("Its plural name."),
    identityHash=text("The identity of its APIExport."),
    versions=texts("Usable versions, the preferred one first.", "A version.", minItems=1),
    state=text(
        "Whether the cluster serves it with a compatible schema.",
        enum=["Pending", "Accepted", "Incompatible"],
        default="Pending",
    ),
    message=text("Why it is not compatible."),
    requires=("resource", "versions"),
)

SYNC_TARGET: Final = CustomKind(
    WORKLOAD_GROUP,
    "synctargets",
    "SyncTarget",
    "A cluster that runs workloads.",
    {
        "spec": object_(
            "The configuration of the cluster.",
            unschedulable=boolean("Whether placements get no new destination at the cluster.", default=False),
            taints=taints("Taints, which exclude placements that do not tolerate them."),
            evictAfter=date_time("The time of the eviction of all workloads; empty: never."),
            supportedAPIExports=array(
                "The APIExports whose resources are synced.",
                named_export("An export."),
                default=[{"export": "kubernetes"}],
            ),
            cells=mapping(
                "Labels of the cell: SyncTargets with equal cells count as one cluster.",
                text("The value."),
            ),
        ),
        "status": object_(
            "The observed state of the cluster.",
            allocatable=mapping("The resources that are available for pods.", quantity("An amount.")),
            capacity=mapping("The resources of all Nodes.", quantity("An amount.")),
            conditions=conditions("The health of the cluster and of its syncer."),
            syncedResources=array("The resources that can be synced.", _SYNCED),
            lastSyncerHeartbeatTime=date_time("The time of the last heartbeat of the syncer."),
            virtualWorkspaces=array(
                "The URLs for the syncer.",
                object_(
                    "A pair of URLs.",
                    syncerURL=text("The URL for downsync.", minLength=1),
                    upsyncerURL=text("The URL for upsync.", minLength=1),
                    requires=("syncerURL", "upsyncerURL"),
                ),
            ),
        ),
    },
    name={"minLength": 1, "maxLength": 234},
    columns=(
        column("Location", ".metadata.name", priority=1),
        column("Ready", '.status.conditions[?(@.type=="Ready")].status', priority=2),
        column("Synced API resources", ".status.syncedResources", priority=3),
        column("Key", r".metadata.labels['internal\.workload\.kcp\.dev/key']", priority=4),
        AGE,
    ),
    snapshot="v230109-773b219c",
)
