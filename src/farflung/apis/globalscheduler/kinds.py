"""globalscheduler.com/v1: Clusters and Allocations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from farflung.apis.custom_kinds import (
    AGE,
    CustomKind,
    array,
    boolean,
    column,
    date_time,
    integer,
    map_list,
    mapping,
    number,
    object_,
    of_condition,
    text,
    texts,
)
from farflung.apis.globalscheduler.names import GLOBALSCHEDULER_GROUP
from farflung.apis.globalscheduler.selection import (
    AFFINITY,
    ANTIAFFINITY,
    CLUSTER_AFFINITY,
    GEO_LOCATION,
    LOCAL_STRATEGY,
    LONGEST_TEXT,
    MAX_CLUSTERS,
    MAX_COPIES,
    MAX_FLAVORS,
    MAX_RESOURCES,
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
MAX_TAINTS: Final = 64
INT64: Final = {"format": "int64", "minimum": 0, "maximum": 2**53}


def conditions(description: str) -> Obj:
    condition = object_(
        "One condition.",
        type=name("The type, in CamelCase."),
        status=text("The status.", enum=["True", "False", "Unknown"]),
        reason=text("The cause of the status, as one CamelCase word for programs.", maxLength=LONGEST_TEXT),
        message=text("The cause of the status, for people.", maxLength=32_768),
        lastTransitionTime=date_time("When the status last changed."),
        observedGeneration=integer("The observed generation of the object.", **INT64),
        requires=("type", "status"),
    )
    return map_list(description, condition, ["type"], maxItems=32)


# --- Cluster: fields in lower case, as in the original --------------------------------------------

MAX_OFFERED: Final = 1024  #: flavors of one Cluster
MAX_TENANTS: Final = 1024
MAX_NOTED: Final = 16  #: machines that a Cluster did not take

_TAINTS = array(
    "Taints, as Nodes have them: stacks that do not tolerate them are not bound to the Cluster.",
    object_(
        "One taint.",
        key=text("The key.", minLength=1, maxLength=317),
        value=text("The value.", maxLength=63),
        effect=text(
            "The effect on stacks that do not tolerate it: NoSchedule binds no new ones, PreferNoSchedule binds "
            "them if no other Cluster fits, NoExecute also evicts bound ones.",
            enum=EFFECTS,
        ),
        timeAdded=date_time("When the taint was added, for NoExecute."),
        requires=("key", "effect"),
    ),
    maxItems=MAX_TAINTS,
)
_USED = object_(
    "The resources of all bound stacks.",
    flavors=mapping("The number of machines by flavor.", integer("The number.", **INT64), maxProperties=MAX_OFFERED),
    vcpus=integer("Virtual processors.", **INT64),
    memory=integer("Memory, in MiB.", **INT64),
    storage=mapping("GiB by type of storage.", integer("GiB.", **INT64), maxProperties=64),
    eips=integer("Public addresses.", **INT64),
)

_REFUSALS = object_(
    "Set if the SyncTarget refused all of the last bound virtual machines.",
    machines=texts("The last refused machines.", "A logical cluster, a slash and a uid.", maxItems=MAX_NOTED),
    times=integer("How often this was observed; the pause before the next try grows with it.", **INT64),
    lastTime=date_time("The time of the last refusal."),
    observedGeneration=integer("The generation of the spec then; a new generation ends the pause.", **INT64),
)

CLUSTER: Final = CustomKind(
    GLOBALSCHEDULER_GROUP,
    "clusters",
    "Cluster",
    "A cluster to which virtual machines can be bound, with its location and capacity.",
    {
        "spec": object_(
            "Its location and capacity.",
            ipaddress=name("Its address."),
            geolocation=GEO_LOCATION,
            region=object_(
                "Its region and zone.",
                region=text("The region.", minLength=1, maxLength=253),
                availabilityzone=text("The zone.", minLength=1, maxLength=253),
                requires=("region", "availabilityzone"),
            ),
            operator=object_("The network operator.", operator=OPERATOR),
            flavors=array(
                "The flavors of machines that it offers.",
                object_(
                    "One flavor.",
                    flavorid=text("The id in the catalogue.", minLength=1, maxLength=253),
                    totalcapacity=integer("The maximal number of its machines.", **INT64),
                    requires=("flavorid",),
                ),
                maxItems=MAX_OFFERED,
            ),
            storage=array(
                "The capacity of its storage.",
                object_(
                    "One type of storage.",
                    typeid=text("The type, such as sata, sas or ssd.", minLength=1, maxLength=253),
                    storagecapacity=integer("GiB.", **INT64),
                    requires=("typeid",),
                ),
                maxItems=64,
            ),
            eipcapacity=integer("The number of public addresses; no limit if omitted.", **INT64),
            cpucapacity=integer("The number of virtual processors; no limit if 0 or omitted.", **INT64),
            memcapacity=integer("The memory in MiB; no limit if 0 or omitted.", **INT64),
            serverprice=integer("The relative price of a server.", **INT64),
            homescheduler=name("Deprecated: ignored."),
            homedispatcher=name("Deprecated: ignored."),
            unschedulable=boolean("Whether the Cluster is cordoned: no new machines are bound to it."),
            taints=_TAINTS,
            exclusivetenants=texts(
                "The logical clusters whose stacks may be bound to it; all if empty.",
                "The name of a logical cluster.",
                maxItems=MAX_TENANTS,
            ),
            coordinates=near("Its coordinates."),
            synctarget=object_(
                "The SyncTarget of the cluster. Machines that are bound to the Cluster are delivered to it; "
                "without a SyncTarget they are only bound.",
                workspace=name("The workspace of the SyncTarget, as a path or a logical cluster."),
                name=name("The name of the SyncTarget."),
                requires=("name",),
            ),
            requires=("region",),
        ),
        "status": object_(
            "The observed state.",
            phase=text(
                "Ready, also without a SyncTarget; Sellout if no new machines are bound to it; Offline, Down or "
                "Unreachable if it cannot be used; Unknown if the syncer of its SyncTarget never reported, which "
                "counts as Ready.",
                enum=["Ready", "Sellout", "Offline", "Down", "Unreachable", "Unknown"],
            ),
            conditions=conditions("Its conditions."),
            stacks=integer("The number of bound stacks.", **INT64),
            used=_USED,
            refusals=_REFUSALS,
            observedGeneration=integer("The observed generation of the spec.", **INT64),
        ),
    },
    required=("spec",),
    columns=(
        column("Region", ".spec.region.region", "The region"),
        column("Zone", ".spec.region.availabilityzone", "The zone"),
        column("Phase", ".status.phase", "The phase"),
        column("Stacks", ".status.stacks", "Number of bound stacks", "integer"),
        column("Operator", ".spec.operator.operator", "The network operator", priority=1),
        column("Cordoned", ".spec.unschedulable", "Whether no new machines are bound to it", "boolean", 1),
        AGE,
    ),
    namespaced=True,
    categories=(),
    version="v1",
)


# --- Allocation: fields in snake_case, as in the original -----------------------------------------

_SPOT = object_(
    "Spot instances are allowed: cheaper machines that may be reclaimed.",
    max_price={
        "description": "The maximal price per hour, as a number or a text; no limit if 0.",
        "x-kubernetes-preserve-unknown-fields": True,
    },
    spot_duration_hours=integer("The duration in hours; unlimited if 0.", minimum=0),
    spot_duration_count=integer("The number of consecutive durations.", minimum=0),
    interruption_policy=text(
        "Whether a reclaimed machine ends at once or after a delay.", enum=["", "immediate", "delay"]
    ),
)
_MACHINE = object_(
    "The machines' configuration.",
    image=text("The image.", maxLength=LONGEST_TEXT),
    security_group_id=name("The security group."),
    nic_name=name("The network interface."),
    key_pair_name=name("The key pair for logins."),
    cluster_instances=array(
        "The existing machines.",
        object_("One machine.", cluster_name=name("Its Cluster."), instance_id=name("Its id in the cluster.")),
        maxItems=MAX_COPIES,
    ),
)
#: the resources that machines request
_NEEDS = {
    "flavors": array(
        "The acceptable flavors, in order of preference.",
        object_(
            "One flavor.",
            flavor_id=text("The id in the catalogue.", minLength=1, maxLength=253),
            spot=_SPOT,
            requires=("flavor_id",),
        ),
        minItems=1,
        maxItems=MAX_FLAVORS,
    ),
    "storage": mapping(
        "GiB per machine by type of storage, such as sata, sas or ssd.",
        integer("GiB.", **INT64),
        maxProperties=16,
    ),
    "need_eip": boolean("Whether each machine needs a public address of its own."),
    "count": integer("The number of machines.", minimum=1, maximum=MAX_COPIES),
}
_RESOURCE = object_(
    "Machines with the same requests.",
    name=name("The name."),
    resource_type=text("The type of resource.", enum=["", "vm"]),
    **_NEEDS,
    virtual_machine=_MACHINE,
    requires=("flavors",),
)
_SELECTOR = object_(
    "Selects Clusters.",
    geo_location=GEO_LOCATION,
    regions=regions({"availability_zone": zones()}),
    operator=OPERATOR,
    site_id=SITE,
    strategy=object_(
        "The strategies.",
        location_strategy=LOCAL_STRATEGY,
        region_strategy=text("alone: all replicas in one region.", enum=["", "alone"]),
    ),
    stack_affinity=AFFINITY,
    stack_antiaffinity=ANTIAFFINITY,
    cluster_affinity=CLUSTER_AFFINITY,
    min_clusters=cluster_count("The minimal number of Clusters."),
    max_clusters=cluster_count("The maximal number of Clusters."),
    near=NEAR,
)
_TOLERATIONS = array(
    "Tolerated taints of Clusters, as Pods have them.",
    object_(
        "One toleration.",
        key=text("The key; empty with the operator Exists for all keys.", maxLength=317),
        operator=text("Equal compares the value, Exists does not.", enum=["", "Equal", "Exists"]),
        value=text("The value, if the operator is Equal.", maxLength=63),
        effect=text("The effect; empty for all.", enum=["", *EFFECTS]),
        toleration_seconds=integer("Seconds for which NoExecute is tolerated; for ever if omitted.", format="int64"),
    ),
    maxItems=MAX_TAINTS,
)
_PLACEMENT = object_(
    "The placement of one replica.",
    replica=integer("Its number, from 0.", minimum=0, maximum=MAX_COPIES),
    cluster=object_(
        "Its Cluster.",
        workspace=name("The logical cluster of the Cluster."),
        namespace=name("The namespace of the Cluster."),
        name=name("The name of the Cluster."),
        requires=("name",),
    ),
    flavors=texts("The flavor of each resource of the group, in order.", "A flavor.", maxItems=MAX_RESOURCES),
    score=number("The score of the Cluster, from 0 to 100."),
    requires=("replica", "cluster"),
)

ALLOCATION: Final = CustomKind(
    GLOBALSCHEDULER_GROUP,
    "allocations",
    "Allocation",
    "Requests stacks of virtual machines. A stack is bound to one Cluster as a whole; replicas may be bound to "
    "several.",
    {
        "spec": object_(
            "The request.",
            resource_group=object_(
                "The stack.",
                name=name("The name."),
                labels=mapping(
                    "Labels in addition to those of the Allocation.",
                    text("A value.", maxLength=63),
                    maxProperties=64,
                ),
                resources=array("Its machines.", _RESOURCE, minItems=1, maxItems=MAX_RESOURCES),
                requires=("resources",),
            ),
            selector=_SELECTOR,
            replicas=integer("The number of stacks.", minimum=1, maximum=MAX_COPIES, default=1),
            priority=integer("The priority; higher ones are scheduled first."),
            tolerations=_TOLERATIONS,
            requires=("resource_group",),
        ),
        "status": object_(
            "The observed state.",
            phase=name("The phase: empty, then Bound when every replica has a Cluster."),
            scheduler_name=name("The scheduler."),
            distributor_name=name("Deprecated."),
            dispatcher_name=name("Deprecated."),
            cluster_names=texts(
                "The names of the Clusters, in the order of the replicas.", "A name.", maxItems=MAX_CLUSTERS
            ),
            placements=map_list("The placements of the replicas.", _PLACEMENT, ["replica"], maxItems=MAX_COPIES),
            resources=array(
                "The bound resources, which a later spec does not change.",
                object_("Machines with the same requests.", **_NEEDS, requires=("flavors",)),
                maxItems=MAX_RESOURCES,
            ),
            conditions=conditions("Its conditions."),
            observedGeneration=integer("The observed generation of the spec.", **INT64),
        ),
    },
    required=("spec",),
    columns=(
        column("Phase", ".status.phase", "The phase"),
        column("Scheduled", of_condition("Scheduled"), "Whether the current spec is bound"),
        column("Clusters", ".status.cluster_names", "The Clusters of its replicas"),
        column("Replicas", ".spec.replicas", "Number of requested stacks", "integer"),
        AGE,
    ),
    namespaced=True,
    short_names=("alloc",),
    categories=(),
    version="v1",
)


# --- the group ------------------------------------------------------------------------------------

KINDS: Final[Mapping[str, CustomKind]] = {one.kind: one for one in (ALLOCATION, CLUSTER)}


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
