"""Clusters that virtual machines can be bound to, with their fields in lower case, as their users always wrote them."""

from __future__ import annotations

from typing import Final

from farflung.apis.described import Described
from farflung.apis.fragments import AGE, column, flag, listing, mapping, moment, record, text, texts, whole
from farflung.apis.globalscheduler.observed import EFFECTS, GROUP, INT64, MOST_TAINTS, conditions
from farflung.apis.globalscheduler.selection import GEO_LOCATION, OPERATOR, name, near

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
    GROUP,
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
