"""Names of the edge API: its group, collections, labels, annotations, finalizers, conditions."""

from __future__ import annotations

from typing import Final

from farflung.apis.names import Collection

EDGE_GROUP: Final = "edge.kcp.io"

CUSTOMIZERS: Final = Collection(EDGE_GROUP, "v1alpha1", "customizers", "Customizer")
EDGE_PLACEMENTS: Final = Collection(EDGE_GROUP, "v1alpha1", "edgeplacements", "EdgePlacement")
EDGE_SYNC_CONFIGS: Final = Collection(EDGE_GROUP, "v1alpha1", "edgesyncconfigs", "EdgeSyncConfig")
SINGLE_PLACEMENT_SLICES: Final = Collection(EDGE_GROUP, "v1alpha1", "singleplacementslices", "SinglePlacementSlice")
STATUS_COLLECTORS: Final = Collection(EDGE_GROUP, "v1alpha1", "statuscollectors", "StatusCollector")
STATUS_SUMMARIES: Final = Collection(EDGE_GROUP, "v1alpha1", "statussummaries", "StatusSummary")
SYNCER_CONFIGS: Final = Collection(EDGE_GROUP, "v1alpha1", "syncerconfigs", "SyncerConfig")

# --- labels ---------------------------------------------------------------------------------------

EXECUTING_COUNT: Final = "kubestellar.io/executing-count"  #: label: the number of clusters with a copy
PROJECTED: Final = "edge.kcp.io/projected"  #: `yes`: copies in a mailbox, and the objects made of them at the edge
SOURCE_PLACEMENT: Final = "edge.kcp.io/source-placement"  #: of slices of a placement that has more than one
SUMMARY_GROUP: Final = "edge.kcp.io/summary-group"
SUMMARY_NAME: Final = "edge.kcp.io/summary-name"
SUMMARY_PLACEMENT: Final = "edge.kcp.io/summary-placement"
SUMMARY_RESOURCE: Final = "edge.kcp.io/summary-resource"

# --- annotations ----------------------------------------------------------------------------------

ALLOW_SHARING: Final = (
    "edge.kcp.io/allow-sharing"  #: of Locations: `true`: workspaces with different parents share names
)
ALLOW_SYSTEM_NAMESPACES: Final = "edge.kcp.io/allow-system-namespaces"  #: of Locations: `true`: also `kube-system`
AUTHOR: Final = "edge.kcp.io/author"  #: of EdgePlacements and machines: the user who last wrote the spec
CONFIRM_WITHDRAWAL: Final = "edge.kcp.io/confirm-withdrawal"  #: of an EdgePlacement: GENERATION/DESTINATIONS
DOWNSYNC_OVERWRITE: Final = "edge.kcp.io/downsync-overwrite"  #: `false`: created at the edge, never updated
CREATE_ONLY: Final = "edge.kubestellar.io/downsync-overwrite"  #: the same, set by the user of the object
DOWNSYNCED: Final = "edge.kcp.io/downsynced"  #: of objects at the edge: their own `Kind/namespace/name`
UPSYNCED: Final = "edge.kcp.io/upsynced"  #: of objects in a mailbox that come from the edge: the same
PROJECTION: Final = "edge.kcp.io/projection"  #: of copies: the fields that the translator wrote
STATUS_RETURNED_FROM: Final = "edge.kcp.io/status-returned-from"  #: the destination whose status an object has
SUMMARIZE: Final = "edge.kcp.io/summarize"  #: of EdgePlacements
SYNC_TARGET_NAME: Final = "edge.kcp.io/sync-target-name"  #: of Workspaces that are mailboxes
RELEASE_ORPHANS: Final = "edge.kcp.io/release-orphans"  #: of the SyncerConfig: how many orphans may be deleted
SERVED_BY: Final = "edge.kcp.io/served-by"  #: of the SyncerConfig: uid of the cluster whose syncer takes over at once
KUBECONFIG_CHECKSUM: Final = "edge.kcp.io/kubeconfig-checksum"  #: of the syncer's Pod, which restarts when it changes

# --- finalizers, conditions and status fields -----------------------------------------------------

SYNCER_FINALIZER: Final = "edge.kcp.io/syncer"  #: of copies in a mailbox, until the syncer deleted them at the edge
WORKLOAD_PROJECTED: Final = "WorkloadProjected"  #: of EdgePlacements
SELECTED_COUNT: Final = "selectedObjectCount"  #: in the status of EdgePlacements; absent: not known yet
PODS_STUCK: Final = "edge.kcp.io/PodsStuck"  #: condition that syncers add to the returned status of workloads
TRANSLATES_GENERATIONS: Final = "translatesGenerations"  #: in the report of a syncer
ORPHANS_PRESENT: Final = "OrphansPresent"  #: of SyncerConfigs
EDGE_REACHABLE: Final = "EdgeReachable"  #: of SyncTargets
CAPACITY_KNOWN: Final = "CapacityKnown"  #: of SyncTargets

# --- permissions ----------------------------------------------------------------------------------

PLACE: Final = "place"  #: verb on Locations, in their workspace
RECORDS_AUTHORS: Final = "recordsPlacementAuthors"  #: in /version of servers that record authors

# --- field managers -------------------------------------------------------------------------------

SYNCER_MANAGER: Final = "farflung-syncer"

STALE_AFTER: Final = 60.0  #: seconds without a heartbeat, after which copies are stale and SyncTargets not ready
