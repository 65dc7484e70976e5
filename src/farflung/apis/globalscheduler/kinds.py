"""globalscheduler.com/v1: Clusters and Allocations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from farflung.apis.custom_kinds import (
    AGE,
    Described,
    column,
    flag,
    keyed,
    listing,
    mapping,
    moment,
    number,
    of_condition,
    record,
    text,
    texts,
    whole,
)
from farflung.apis.globalscheduler.names import GLOBALSCHEDULER_GROUP
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
    near,
    regions,
    zones,
)
from farflung.apis.names import NO_EXECUTE, NO_SCHEDULE
from farflung.machinery.errors import Obj

EFFECTS: Final = [NO_SCHEDULE, "PreferNoSchedule", NO_EXECUTE]
MOST_TAINTS: Final = 64
INT64: Final = {"format": "int64", "minimum": 0, "maximum": 2**53}


def conditions(description: str) -> Obj:
    condition = record(
        "One thing that was observed.",
        {
            "type": name("What was observed, in CamelCase."),
            "status": text("Whether it is so.", enum=["True", "False", "Unknown"]),
            "reason": text("Why it is so, as one CamelCase word for programs.", maxLength=LONGEST_TEXT),
            "message": text("Why it is so, for people.", maxLength=32_768),
            "lastTransitionTime": moment("When the status last became another."),
            "observedGeneration": whole("The generation of the object that this is about.", **INT64),
        },
        required=("type", "status"),
    )
    return keyed(description, condition, ["type"], maxItems=32)


# --- Clusters that virtual machines can be bound to, with their fields in lower case, as thei------

MOST_OFFERED: Final = 1024  #: flavors of one Cluster
MOST_TENANTS: Final = 1024
MOST_NOTED: Final = 16  #: machines that a Cluster did not take

_TAINTS = listing(
    "Marks that keep stacks away which do not tolerate them, like those of Nodes.",
    record(
        "One mark.",
        {
            "key": text("What the mark is called, like a label.", minLength=1, maxLength=317),
            "value": text("A value of it, if one is needed.", maxLength=63),
            "effect": text(
                "What becomes of stacks that do not tolerate it: NoSchedule keeps new ones away, PreferNoSchedule "
                "takes them when there is nothing better, and NoExecute drives out those that are there as well.",
                enum=EFFECTS,
            ),
            "timeAdded": moment("Since when NoExecute counts."),
        },
        required=("key", "effect"),
    ),
    maxItems=MOST_TAINTS,
)
_USED = record(
    "What the stacks that are bound to it take.",
    {
        "flavors": mapping("Flavors, and how many of each.", whole("How many.", **INT64), maxProperties=MOST_OFFERED),
        "vcpus": whole("Virtual processors.", **INT64),
        "memory": whole("Memory, in MiB.", **INT64),
        "storage": mapping("Types of storage, and GiB of each.", whole("GiB.", **INT64), maxProperties=64),
        "eips": whole("Public addresses.", **INT64),
    },
)

_REFUSALS = record(
    "Of the last virtual machines that were bound to it, if its SyncTarget took none of them.",
    {
        "machines": texts("The last of them.", "A logical cluster, a slash and a uid.", maxItems=MOST_NOTED),
        "times": whole(
            "How often it was seen that it takes none; the more often, the later it is tried again.", **INT64
        ),
        "lastTime": moment("When one of them was refused last."),
        "observedGeneration": whole("The generation of the spec at that time: another one forgives all.", **INT64),
    },
)

CLUSTER: Final = Described(
    GLOBALSCHEDULER_GROUP,
    "clusters",
    "Cluster",
    "A cluster that virtual machines can be bound to: where it is, and what it has.",
    {
        "spec": record(
            "Where it is, and what it has.",
            {
                "ipaddress": name("Where it is reached."),
                "geolocation": GEO_LOCATION,
                "region": record(
                    "The region and the zone that it is.",
                    {
                        "region": text("The region.", minLength=1, maxLength=253),
                        "availabilityzone": text("The zone.", minLength=1, maxLength=253),
                    },
                    required=("region", "availabilityzone"),
                ),
                "operator": record("Whose network it is in.", {"operator": OPERATOR}),
                "flavors": listing(
                    "The sizes of machines that it offers; there is no other.",
                    record(
                        "One size.",
                        {
                            "flavorid": text("Its name in the catalogue.", minLength=1, maxLength=253),
                            "totalcapacity": whole("How many of them there can be, in all.", **INT64),
                        },
                        required=("flavorid",),
                    ),
                    maxItems=MOST_OFFERED,
                ),
                "storage": listing(
                    "The storage that it has, in all.",
                    record(
                        "One type of storage.",
                        {
                            "typeid": text("The type, such as sata, sas or ssd.", minLength=1, maxLength=253),
                            "storagecapacity": whole("GiB.", **INT64),
                        },
                        required=("typeid",),
                    ),
                    maxItems=64,
                ),
                "eipcapacity": whole("How many public addresses it has; no limit if it is left out.", **INT64),
                "cpucapacity": whole("How many virtual processors it has; no limit if it is 0 or left out.", **INT64),
                "memcapacity": whole("How much memory it has, in MiB; no limit if it is 0 or left out.", **INT64),
                "serverprice": whole("What a server costs there, beside other clusters.", **INT64),
                "homescheduler": name("Not used any more."),
                "homedispatcher": name("Not used any more."),
                "unschedulable": flag("Whether it takes nothing new; what is there stays."),
                "taints": _TAINTS,
                "exclusivetenants": texts(
                    "The logical clusters of the workspaces whose stacks may go there; all if there are none.",
                    "The name of a logical cluster.",
                    maxItems=MOST_TENANTS,
                ),
                "coordinates": near("Where exactly it is."),
                "synctarget": record(
                    "The SyncTarget that stands for it. What is bound to the Cluster is delivered there; without one, "
                    "the Cluster is nothing but an entry in an inventory.",
                    {
                        "workspace": name("The workspace of the SyncTarget, as a path or a logical cluster."),
                        "name": name("The name of the SyncTarget."),
                    },
                    required=("name",),
                ),
            },
            required=("region",),
        ),
        "status": record(
            "How it is.",
            {
                "phase": text(
                    "Ready, also if it has no SyncTarget and nobody says how it is; Sellout if it takes nothing new; "
                    "Offline, Down or Unreachable if it cannot be used; Unknown, which is used as well, if it has a "
                    "SyncTarget whose syncer was never heard.",
                    enum=["Ready", "Sellout", "Offline", "Down", "Unreachable", "Unknown"],
                ),
                "conditions": conditions("What was observed of it."),
                "stacks": whole("How many stacks are bound to it.", **INT64),
                "used": _USED,
                "refusals": _REFUSALS,
                "observedGeneration": whole("The generation of the spec that this is about.", **INT64),
            },
        ),
    },
    required=("spec",),
    columns=(
        column("Region", ".spec.region.region", "The region"),
        column("Zone", ".spec.region.availabilityzone", "The zone"),
        column("Phase", ".status.phase", "How it is"),
        column("Stacks", ".status.stacks", "How many stacks are bound to it", "integer"),
        column("Operator", ".spec.operator.operator", "Whose network it is in", priority=1),
        column("Cordoned", ".spec.unschedulable", "Whether it takes nothing new", "boolean", 1),
        AGE,
    ),
    namespaced=True,
    categories=(),
    version="v1",
)


# --- Stacks of virtual machines that are asked for, with their fields in snake_case, as their------

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
    GLOBALSCHEDULER_GROUP,
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


# --- globalscheduler.com/v1: clusters that virtual machines can be bound to, and stacks of th------

KINDS: Final[Mapping[str, Described]] = {one.kind: one for one in (ALLOCATION, CLUSTER)}


def resource_schemas() -> list[Obj]:
    return [one.resource_schema() for one in KINDS.values()]


def api_export() -> Obj:
    """The APIExport of all kinds, to be created where their APIResourceSchemas are."""
    return {
        "apiVersion": "apis.kcp.io/v1alpha1",
        "kind": "APIExport",
        "metadata": {"name": GLOBALSCHEDULER_GROUP},
        "spec": {
            "latestResourceSchemas": [one.resource_schema_name for one in KINDS.values()],
            "maximalPermissionPolicy": {"local": {}},
        },
    }


def api_binding(provider: str) -> Obj:
    """The APIBinding of the export, when `provider` is the path of its workspace."""
    return {
        "apiVersion": "apis.kcp.io/v1alpha1",
        "kind": "APIBinding",
        "metadata": {"name": GLOBALSCHEDULER_GROUP},
        "spec": {"reference": {"export": {"path": provider, "name": GLOBALSCHEDULER_GROUP}}},
    }
