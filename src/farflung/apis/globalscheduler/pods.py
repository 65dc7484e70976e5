"""Fields and printer columns of Pods that are virtual machines instead of containers."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from farflung.apis.core.printers import pod_cells
from farflung.apis.custom_kinds import (
    array,
    boolean,
    date_time,
    integer,
    mapping,
    number,
    object_,
    quantity,
    text,
    texts,
)
from farflung.apis.globalscheduler.selection import (
    AFFINITY,
    ANTIAFFINITY,
    CLUSTER_AFFINITY,
    GEO_LOCATION,
    LOCAL_STRATEGY,
    LONGEST_TEXT,
    MAX_COPIES,
    MAX_FLAVORS,
    NEAR,
    OPERATOR,
    SITE,
    cluster_count,
    name,
    regions,
    zones,
)
from farflung.machinery.errors import Obj

MAX_DEVICES: Final = 64
LONGEST_USER_DATA: Final = 65_536
ANY: Final = "x-kubernetes-preserve-unknown-fields"

_SPOT = object_(
    "A spot instance is allowed: a cheaper machine that may be reclaimed.",
    maxPrice=number("The maximal price per hour; no limit if 0.", minimum=0),
    spotDurationHours=integer("The duration in hours; unlimited if 0.", minimum=0),
    spotDurationCount=integer("The number of consecutive durations.", minimum=0),
    interruptionPolicy=text(
        "Whether a reclaimed machine ends at once or after a delay.", enum=["", "immediate", "delay"]
    ),
)
_FLAVORS = array(
    "The acceptable flavors, in order of preference.",
    object_(
        "One flavor.",
        flavorID=text("The id in the catalogue.", minLength=1, maxLength=253),
        spot=_SPOT,
        requires=("flavorID",),
    ),
    maxItems=MAX_FLAVORS,
    minItems=1,
)
_SELECTOR = object_(
    "Selects Clusters.",
    geoLocation=GEO_LOCATION,
    regions=regions(
        {
            "availablityZone": zones(" Deprecated spelling of availabilityZone."),
            "availabilityZone": zones(),
        }
    ),
    operator=OPERATOR,
    strategy=object_("The strategies.", localStrategy=LOCAL_STRATEGY),
    siteID=SITE,
    minClusters=cluster_count("The minimal number of Clusters."),
    maxClusters=cluster_count("The maximal number of Clusters."),
    clusterAffinity=CLUSTER_AFFINITY,
    stackAffinity=AFFINITY,
    stackAntiAffinity=ANTIAFFINITY,
    near=NEAR,
)
_RESIZE_POLICY = object_(
    "The policy for resizing one resource.",
    resourceName=name("The resource."),
    policy=name("The policy."),
)


def virtual_machine(resources: Obj, volume_mount: Obj, volume_device: Obj) -> Obj:
    """The schema of `spec.virtualMachine`.  The arguments are schemas of the fields that containers have, too."""
    return object_(
        "A virtual machine instead of containers. The global scheduler binds it to a Cluster.",
        name=name("The name of the machine in its cluster."),
        image=text("The image.", maxLength=LONGEST_TEXT),
        imagePullPolicy=text(
            "When the image is pulled: Always, Never or IfNotPresent.",
            enum=["", "Always", "Never", "IfNotPresent"],
        ),
        flavors=_FLAVORS,
        resourceCommonInfo=object_(
            "The number of machines, and their Clusters.",
            count=integer("The number of machines, all in one cluster.", minimum=1, maximum=MAX_COPIES),
            selector=_SELECTOR,
        ),
        needEIP=boolean("Whether each machine needs a public address of its own."),
        securityGroupId=name("The security group."),
        keyPairName=name("The key pair for logins."),
        publicKey=text("The public key for logins.", maxLength=LONGEST_USER_DATA),
        userData=text("User data of cloud-init, in base64.", format="byte", maxLength=LONGEST_USER_DATA),
        cloudInitUserDataScript=text("A script that cloud-init runs.", maxLength=LONGEST_USER_DATA),
        trustedImageCertificate=texts(
            "Certificates that are trusted to sign the image.", "A certificate.", maxItems=MAX_DEVICES
        ),
        shutdownBehavior=name("Whether a shutdown from within stops or deletes the machine."),
        powerSpec={"description": "The desired power state.", ANY: True},
        bootVolume={"description": "The boot volume.", ANY: True},
        volumeMounts=array("Volumes that are mounted as directories.", volume_mount, maxItems=MAX_DEVICES),
        volumeDevices=array("Volumes that are attached as devices.", volume_device, maxItems=MAX_DEVICES),
        resources=resources,
        resourcesAllocated=mapping("The allocated resources.", quantity("An amount.")),
        resizePolicy=array("Policies for resizing.", _RESIZE_POLICY, maxItems=MAX_DEVICES),
        requires=("flavors",),
    )


SPEC: Final[dict[str, Obj]] = {
    "resourceType": name("The type of the Pod: vm for a virtual machine."),
    "clusterName": name("The Cluster to which the virtual machine is bound; set by the scheduler."),
    "nics": array(
        "The networks of the virtual machine.",
        object_(
            "One network interface.",
            name=name("The network, by its name or id."),
            subnetName=name("The subnet."),
            portId=name("An existing port."),
            ipAddress=name("The desired address."),
            tag=name("A tag."),
        ),
        maxItems=MAX_DEVICES,
    ),
}
STATUS: Final[dict[str, Obj]] = {
    "assignedScheduler": object_(
        "The scheduler of the Pod.",
        name=name("Its name."),
        tag=name("A tag."),
        startTime=date_time("When it was assigned."),
    ),
    "clusterInstanceId": name("The id of the machine in its cluster."),
    "distributorName": name("Deprecated."),
    "dispatcherName": name("Deprecated."),
}
#: a Pod has containers or is a virtual machine
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
