"""Stacks of virtual machines that are asked for, with their fields in snake_case, as their users always wrote them."""

from __future__ import annotations

from typing import Final

from farflung.apis.described import Described
from farflung.apis.fragments import (
    AGE,
    column,
    flag,
    keyed,
    listing,
    mapping,
    number,
    of_condition,
    record,
    text,
    texts,
    whole,
)
from farflung.apis.globalscheduler.observed import EFFECTS, GROUP, INT64, MOST_TAINTS, conditions
from farflung.apis.globalscheduler.selection import (
    AFFINITY,
    ANTIAFFINITY,
    CLUSTER_AFFINITY,
    GEO_LOCATION,
    LOCAL_STRATEGY,
    LONGEST_TEXT,
    MOST_CLUSTERS,
    MOST_COPIES,
    MOST_FLAVORS,
    MOST_RESOURCES,
    NEAR,
    OPERATOR,
    SITE,
    cluster_count,
    name,
    regions,
    zones,
)

_SPOT = record(
    "That the machines may be such as are taken away again, for less money.",
    {
        "max_price": {
            "description": "The most that one may cost in an hour, as a number or a text; anything if it is 0.",
            "x-kubernetes-preserve-unknown-fields": True,
        },
        "spot_duration_hours": whole("For how many hours in a row one is wanted; open-ended if it is 0.", minimum=0),
        "spot_duration_count": whole("How many times in a row.", minimum=0),
        "interruption_policy": text(
            "Whether one ends at once when it is taken away, or after a while.", enum=["", "immediate", "delay"]
        ),
    },
)
_MACHINE = record(
    "What the machines are made of.",
    {
        "image": text("What they boot.", maxLength=LONGEST_TEXT),
        "security_group_id": name("The security group that they are in."),
        "nic_name": name("Their network."),
        "key_pair_name": name("The key pair that opens them."),
        "cluster_instances": listing(
            "The machines that there are.",
            record(
                "One machine.",
                {
                    "cluster_name": name("The Cluster that it is in."),
                    "instance_id": name("What the cluster calls it."),
                },
            ),
            maxItems=MOST_COPIES,
        ),
    },
)
#: what they take of a Cluster
_NEEDS = {
    "flavors": listing(
        "The sizes that will do, the best liked first.",
        record(
            "One size.",
            {"flavor_id": text("Its name in the catalogue.", minLength=1, maxLength=253), "spot": _SPOT},
            required=("flavor_id",),
        ),
        minItems=1,
        maxItems=MOST_FLAVORS,
    ),
    "storage": mapping(
        "Types of storage, such as sata, sas or ssd, and how much each machine needs of them.",
        whole("GiB.", **INT64),
        maxProperties=16,
    ),
    "need_eip": flag("Whether each machine needs a public address of its own."),
    "count": whole("How many machines; one if it is left out.", minimum=1, maximum=MOST_COPIES),
}
_RESOURCE = record(
    "Some machines that are alike.",
    {
        "name": name("What they are called."),
        "resource_type": text("What they are.", enum=["", "vm"]),
        **_NEEDS,
        "virtual_machine": _MACHINE,
    },
    required=("flavors",),
)
_SELECTOR = record(
    "Where the stacks may go.",
    {
        "geo_location": GEO_LOCATION,
        "regions": regions({"availability_zone": zones()}),
        "operator": OPERATOR,
        "site_id": SITE,
        "strategy": record(
            "How to choose.",
            {
                "location_strategy": LOCAL_STRATEGY,
                "region_strategy": text("alone if all replicas are to be in one region.", enum=["", "alone"]),
            },
        ),
        "stack_affinity": AFFINITY,
        "stack_antiaffinity": ANTIAFFINITY,
        "cluster_affinity": CLUSTER_AFFINITY,
        "min_clusters": cluster_count("How many clusters are used at least."),
        "max_clusters": cluster_count("How many clusters are used at most."),
        "near": NEAR,
    },
)
_TOLERATIONS = listing(
    "Taints of Clusters that do not keep the stacks away, as Pods have them.",
    record(
        "Taints that do not matter.",
        {
            "key": text("What they are called; any if it is empty, for which the operator is Exists.", maxLength=317),
            "operator": text("Whether the value has to be equal, too.", enum=["", "Equal", "Exists"]),
            "value": text("The value, if the operator is Equal.", maxLength=63),
            "effect": text("The effect; any if it is empty.", enum=["", *EFFECTS]),
            "toleration_seconds": whole(
                "For how long NoExecute does not matter; for ever if left out.", format="int64"
            ),
        },
    ),
    maxItems=MOST_TAINTS,
)
_PLACEMENT = record(
    "One replica, placed.",
    {
        "replica": whole("Its number, from 0.", minimum=0, maximum=MOST_COPIES),
        "cluster": record(
            "The Cluster that it is bound to.",
            {
                "workspace": name("The logical cluster that the Cluster is in."),
                "namespace": name("The namespace of the Cluster."),
                "name": name("The name of the Cluster."),
            },
            required=("name",),
        ),
        "flavors": texts("The flavor of each resource of the group, in order.", "A flavor.", maxItems=MOST_RESOURCES),
        "score": number("How good the Cluster was for it, from 0 to 100."),
    },
    required=("replica", "cluster"),
)

ALLOCATION: Final = Described(
    GROUP,
    "allocations",
    "Allocation",
    "Stacks of virtual machines that are asked for. A stack lands in one Cluster as a whole; its replicas may land in "
    "several.",
    {
        "spec": record(
            "What is asked for.",
            {
                "resource_group": record(
                    "The stack.",
                    {
                        "name": name("What it is called."),
                        "labels": mapping(
                            "Its labels, beside those of the Allocation.",
                            text("A value.", maxLength=63),
                            maxProperties=64,
                        ),
                        "resources": listing("What is in it.", _RESOURCE, minItems=1, maxItems=MOST_RESOURCES),
                    },
                    required=("resources",),
                ),
                "selector": _SELECTOR,
                "replicas": whole("How many such stacks.", minimum=1, maximum=MOST_COPIES, default=1),
                "priority": whole("Who is placed first: the higher it is, the sooner."),
                "tolerations": _TOLERATIONS,
            },
            required=("resource_group",),
        ),
        "status": record(
            "What came of it.",
            {
                "phase": name("Empty at first; Bound when every replica has a Cluster, and what becomes of them then."),
                "scheduler_name": name("The scheduler that looks after it."),
                "distributor_name": name("The distributor that it came through."),
                "dispatcher_name": name("The dispatcher that it came through."),
                "cluster_names": texts(
                    "The names of the Clusters, in the order of the replicas.", "A name.", maxItems=MOST_CLUSTERS
                ),
                "placements": keyed("Which replica is where.", _PLACEMENT, ["replica"], maxItems=MOST_COPIES),
                "resources": listing(
                    "What was placed, which a newer spec does not change.",
                    record("Some machines that are alike.", _NEEDS, required=("flavors",)),
                    maxItems=MOST_RESOURCES,
                ),
                "conditions": conditions("What was observed of it."),
                "observedGeneration": whole("The generation of the spec that this is about.", **INT64),
            },
        ),
    },
    required=("spec",),
    columns=(
        column("Phase", ".status.phase", "What came of it"),
        column("Scheduled", of_condition("Scheduled"), "Whether what it asks for now is what is bound"),
        column("Clusters", ".status.cluster_names", "Where its replicas are"),
        column("Replicas", ".spec.replicas", "How many stacks are asked for", "integer"),
        AGE,
    ),
    namespaced=True,
    short_names=("alloc",),
    categories=(),
    version="v1",
)
