"""Fields and printer columns of Pods that are virtual machines instead of containers."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from farflung.apis.core.printers import pod_cells
from farflung.apis.custom_kinds import flag, listing, mapping, moment, number, quantity, record, text, texts, whole
from farflung.apis.globalscheduler.selection import (
    AFFINITY,
    ANTIAFFINITY,
    CLUSTER_AFFINITY,
    GEO_LOCATION,
    LOCAL_STRATEGY,
    LONGEST_TEXT,
    MOST_COPIES,
    MOST_FLAVORS,
    NEAR,
    OPERATOR,
    SITE,
    cluster_count,
    name,
    regions,
    zones,
)
from farflung.machinery.errors import Obj

MOST_DEVICES: Final = 64
LONGEST_USER_DATA: Final = 65_536
ANY: Final = "x-kubernetes-preserve-unknown-fields"

_SPOT = record(
    "That the machine may be one that is taken away again, for less money.",
    {
        "maxPrice": number("The most that it may cost in an hour; anything if it is 0.", minimum=0),
        "spotDurationHours": whole("For how many hours in a row it is wanted; open-ended if it is 0.", minimum=0),
        "spotDurationCount": whole("How many times in a row.", minimum=0),
        "interruptionPolicy": text(
            "Whether it ends at once when it is taken away, or after a while.", enum=["", "immediate", "delay"]
        ),
    },
)
_FLAVORS = listing(
    "The sizes that will do, the best liked first.",
    record(
        "One size.",
        {"flavorID": text("Its name in the catalogue.", minLength=1, maxLength=253), "spot": _SPOT},
        required=("flavorID",),
    ),
    maxItems=MOST_FLAVORS,
    minItems=1,
)
_SELECTOR = record(
    "Where the machines may go.",
    {
        "geoLocation": GEO_LOCATION,
        "regions": regions(
            {
                "availablityZone": zones(" Spelled like this, it is an older name of availabilityZone."),
                "availabilityZone": zones(),
            }
        ),
        "operator": OPERATOR,
        "strategy": record("How to choose.", {"localStrategy": LOCAL_STRATEGY}),
        "siteID": SITE,
        "minClusters": cluster_count("How many clusters are used at least."),
        "maxClusters": cluster_count("How many clusters are used at most."),
        "clusterAffinity": CLUSTER_AFFINITY,
        "stackAffinity": AFFINITY,
        "stackAntiAffinity": ANTIAFFINITY,
        "near": NEAR,
    },
)
_RESIZE_POLICY = record(
    "What becomes of the machine when a resource of it is resized.",
    {"resourceName": name("The resource."), "policy": name("What is done.")},
)


def virtual_machine(resources: Obj, volume_mount: Obj, volume_device: Obj) -> Obj:
    """`spec.virtualMachine`.  What containers have as well is given as containers have it."""
    return record(
        "The virtual machine that this Pod is, instead of containers. The global scheduler binds it to a Cluster.",
        {
            "name": name("What the machine is called where it runs."),
            "image": text("What it boots.", maxLength=LONGEST_TEXT),
            "imagePullPolicy": text(
                "When the image is fetched: Always, Never or IfNotPresent.",
                enum=["", "Always", "Never", "IfNotPresent"],
            ),
            "flavors": _FLAVORS,
            "resourceCommonInfo": record(
                "How many there are, and where.",
                {
                    "count": whole(
                        "How many machines that are alike, all in one cluster.", minimum=1, maximum=MOST_COPIES
                    ),
                    "selector": _SELECTOR,
                },
            ),
            "needEIP": flag("Whether each machine needs a public address of its own."),
            "securityGroupId": name("The security group that it is in."),
            "keyPairName": name("The key pair that opens it."),
            "publicKey": text("The public key that opens it.", maxLength=LONGEST_USER_DATA),
            "userData": text("What its cloud-init reads, in base64.", format="byte", maxLength=LONGEST_USER_DATA),
            "cloudInitUserDataScript": text("What its cloud-init runs.", maxLength=LONGEST_USER_DATA),
            "trustedImageCertificate": texts(
                "Certificates that vouch for the image.", "A certificate.", maxItems=MOST_DEVICES
            ),
            "shutdownBehavior": name("Whether it stops or goes when it is shut down from within."),
            "powerSpec": {"description": "Whether it is to run.", ANY: True},
            "bootVolume": {"description": "The volume that it boots from.", ANY: True},
            "volumeMounts": listing("Volumes that it sees as directories.", volume_mount, maxItems=MOST_DEVICES),
            "volumeDevices": listing("Volumes that it sees as devices.", volume_device, maxItems=MOST_DEVICES),
            "resources": resources,
            "resourcesAllocated": mapping("What it was given.", quantity("How much.")),
            "resizePolicy": listing("How it may be resized.", _RESIZE_POLICY, maxItems=MOST_DEVICES),
        },
        required=("flavors",),
    )


SPEC: Final[dict[str, Obj]] = {
    "resourceType": name("What the Pod is: vm for a virtual machine."),
    "clusterName": name("The Cluster that the virtual machine is bound to; the scheduler sets it."),
    "nics": listing(
        "The networks of the virtual machine.",
        record(
            "One network interface.",
            {
                "name": name("The network, by its name or id."),
                "subnetName": name("The subnet."),
                "portId": name("A port that is there already."),
                "ipAddress": name("The address that it is to have."),
                "tag": name("A mark of it."),
            },
        ),
        maxItems=MOST_DEVICES,
    ),
}
STATUS: Final[dict[str, Obj]] = {
    "assignedScheduler": record(
        "The scheduler that looks after the Pod.",
        {
            "name": name("Its name."),
            "tag": name("A mark of it."),
            "startTime": moment("Since when it does."),
        },
    ),
    "clusterInstanceId": name("What the cluster calls the machine."),
    "distributorName": name("The distributor that the Pod came through."),
    "dispatcherName": name("The dispatcher that the Pod came through."),
}
#: a Pod runs something
RULES: Final[list[Obj]] = [
    {
        "rule": "has(self.containers) || has(self.virtualMachine)",
        "message": "a Pod has containers, or is a virtualMachine",
        "reason": "FieldValueRequired",
        "fieldPath": ".containers",
    }
]


def extended(pod: dict[str, Obj], machine: Obj) -> dict[str, Obj]:
    """The fields of a Pod beside its metadata, with those of virtual machines."""
    spec, status = pod["spec"], pod["status"]
    fields = {**spec["properties"], **SPEC, "virtualMachine": machine}
    required = [one for one in spec.get("required", ()) if one != "containers"]
    extended_spec: Obj = {**spec, "properties": fields, "required": required, "x-kubernetes-validations": RULES}
    if not required:
        del extended_spec["required"]
    return {
        "spec": extended_spec,
        "status": {**status, "properties": {**status["properties"], **STATUS}},
    }


def machine_cells(pod: Obj, now: datetime) -> list[Any]:
    """The cells of a Pod.  A virtual machine has no containers to count, and is Pending until
    its status has another phase."""
    cells = pod_cells(pod, now)
    if isinstance(pod["spec"].get("virtualMachine"), dict):
        _, containers, status, *_ = cells
        cells[1] = "-" if containers == "0/0" else containers
        cells[2] = status or "Pending"
    return cells
