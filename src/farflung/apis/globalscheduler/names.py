"""Names of the global scheduler's API: its group, collections, labels, annotations, conditions."""

from __future__ import annotations

from typing import Final

from farflung.apis.names import Collection

GLOBALSCHEDULER_GROUP: Final = "globalscheduler.com"

ALLOCATIONS: Final = Collection(GLOBALSCHEDULER_GROUP, "v1", "allocations", "Allocation")
CLUSTERS: Final = Collection(GLOBALSCHEDULER_GROUP, "v1", "clusters", "Cluster")

CLUSTER_LABEL: Final = "globalscheduler.com/cluster"  #: of virtual machines: the Cluster they are bound to
DELIVERY_PREFIX: Final = "global-scheduler-"  #: of the names of the scheduler's EdgePlacements; the label follows
DELIVERS_TO: Final = "globalscheduler.com/delivers-to"  #: annotation of the scheduler's EdgePlacements: their Cluster
FILES_ANNOTATION: Final = "globalscheduler.com/files"  #: of the Lease: the files that its holder reads

DELIVERED: Final = "Delivered"  #: condition of a Pod: its copy is at the Cluster it is bound to
TAKES_MACHINES: Final = "TakesMachines"  #: condition of a Cluster
