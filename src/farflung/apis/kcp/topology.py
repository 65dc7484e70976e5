"""topology.kcp.io: Partitions and PartitionSets.  There is one shard, so no controller uses them."""

from __future__ import annotations

from typing import Final

from farflung.apis.custom_kinds import AGE, CustomKind, column, conditions, integer, label_selector, object_, texts
from farflung.apis.kcp.names import TOPOLOGY_GROUP

_SHARDS = label_selector("Selects shards; empty: all.")

PARTITION: Final = CustomKind(
    TOPOLOGY_GROUP,
    "partitions",
    "Partition",
    "A set of shards.",
    {"spec": object_("The set.", selector=_SHARDS)},
    columns=(column("Owner", ".metadata.ownerReferences[*].name"), AGE),
    status=False,
    snapshot="v221115-9b370eb8",
)

PARTITION_SET: Final = CustomKind(
    TOPOLOGY_GROUP,
    "partitionsets",
    "PartitionSet",
    "Sets of shards, one for each combination of values of the dimensions.",
    {
        "spec": object_(
            "The shards and the dimensions.",
            dimensions=texts("Label keys of shards.", "A label key."),
            shardSelector=_SHARDS,
        ),
        "status": object_(
            "The observed state.",
            count=integer("The number of partitions."),
            conditions=conditions("Conditions of the PartitionSet."),
        ),
    },
    columns=(column("Count", ".status.count", "Count of the partitions belonging the PartitionSet"), AGE),
    snapshot="v230202-eee1a845",
)
