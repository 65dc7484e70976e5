"""workload.kcp.io: SyncTargets."""

from __future__ import annotations

from typing import Final

from farflung.apis.custom_kinds import (
    AGE,
    Described,
    column,
    conditions,
    flag,
    listing,
    mapping,
    moment,
    quantity,
    record,
    taints,
    text,
    texts,
)
from farflung.apis.kcp.names import WORKLOAD_GROUP
from farflung.apis.kcp.references import group, named_export, resource

_SYNCED = record(
    "One resource.",
    {
        "group": group("Its API group; empty for the core group."),
        "resource": resource("Its plural name."),
        "identityHash": text("The identity of the export it comes from."),
        "versions": texts("Versions that may be used, the best first.", "A version.", minItems=1),
        "state": text(
            "Whether the cluster serves it in a form that fits.",
            enum=["Pending", "Accepted", "Incompatible"],
            default="Pending",
        ),
        "message": text("Why it does not fit."),
    },
    required=("resource", "versions"),
)

SYNC_TARGET: Final = Described(
    WORKLOAD_GROUP,
    "synctargets",
    "SyncTarget",
    "A cluster that runs workloads.",
    {
        "spec": record(
            "What the cluster may be used for.",
            {
                "unschedulable": flag("Whether new work keeps away from the cluster.", default=False),
                "taints": taints("Marks that keep placements away that do not tolerate them."),
                "evictAfter": moment("When the work that is at the cluster leaves it; never if it is not said."),
                "supportedAPIExports": listing(
                    "Exports whose resources the cluster takes.",
                    named_export("An export."),
                    default=[{"export": "kubernetes"}],
                ),
                "cells": mapping(
                    "What the cluster shares with others: those with equal cells count as one cluster.",
                    text("The value."),
                ),
            },
        ),
        "status": record(
            "What was observed of the cluster.",
            {
                "allocatable": mapping("What is there for work.", quantity("An amount.")),
                "capacity": mapping("What is there.", quantity("An amount.")),
                "conditions": conditions("The health of the cluster and of its syncer."),
                "syncedResources": listing("Resources that can be brought to the cluster.", _SYNCED),
                "lastSyncerHeartbeatTime": moment("The time of the last heartbeat of the syncer."),
                "virtualWorkspaces": listing(
                    "Where a syncer finds its work.",
                    record(
                        "A pair of addresses.",
                        {
                            "syncerURL": text("What goes to the cluster.", minLength=1),
                            "upsyncerURL": text("What comes back from it.", minLength=1),
                        },
                        required=("syncerURL", "upsyncerURL"),
                    ),
                ),
            },
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
