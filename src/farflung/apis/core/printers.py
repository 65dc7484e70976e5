"""Printer columns of the core group."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from farflung.apis.names import BETA_STORAGE_CLASS, POD_SCHEDULED
from farflung.apis.printers import (
    CONTAINERS,
    IMAGES,
    NOTHING,
    UNKNOWN,
    UNSET,
    age_of,
    condition_status,
    container_cells,
    deleting,
    described,
    labels_text,
    load_balancer_text,
    moment,
    name_of,
    part,
    replica_cells,
    shortened,
)
from farflung.machinery import times
from farflung.machinery.errors import Obj
from farflung.machinery.table import AGE, NAME, Column, Printer

# --- small kinds ---------------------------------------------------------------------------------


def component_status_cells(obj: Obj, now: datetime) -> list[Any]:
    healthy: Obj = next((one for one in obj.get("conditions") or () if one.get("type") == "Healthy"), {})
    word = "Unknown" if not healthy else "Healthy" if healthy.get("status") == "True" else "Unhealthy"
    return [name_of(obj), word, healthy.get("message", ""), healthy.get("error", "")]


COMPONENT_STATUSES: Final = Printer(
    (
        NAME,
        Column("Status", description="Status of the component conditions"),
        Column("Message", description="Message of the component conditions"),
        Column("Error", description="Error of the component conditions"),
    ),
    component_status_cells,
)


def config_map_cells(obj: Obj, now: datetime) -> list[Any]:
    return [name_of(obj), len(obj.get("data") or ()) + len(obj.get("binaryData") or ()), age_of(obj, now)]


CONFIG_MAPS: Final = Printer((NAME, described("Data", "core.v1.ConfigMap.data"), AGE), config_map_cells)


def secret_cells(obj: Obj, now: datetime) -> list[Any]:
    return [name_of(obj), obj.get("type", ""), len(obj.get("data") or ()), age_of(obj, now)]


SECRETS: Final = Printer(
    (NAME, described("Type", "core.v1.Secret.type"), described("Data", "core.v1.Secret.data"), AGE), secret_cells
)


def service_account_cells(obj: Obj, now: datetime) -> list[Any]:
    return [name_of(obj), len(obj.get("secrets") or ()), age_of(obj, now)]


SERVICE_ACCOUNTS: Final = Printer(
    (NAME, described("Secrets", "core.v1.ServiceAccount.secrets"), AGE), service_account_cells
)


def namespace_cells(obj: Obj, now: datetime) -> list[Any]:
    return [name_of(obj), part(obj, "status").get("phase", ""), age_of(obj, now)]


NAMESPACES: Final = Printer((NAME, Column("Status", description="The status of the namespace"), AGE), namespace_cells)


def resource_quota_cells(obj: Obj, now: datetime) -> list[Any]:
    hard, used = part(obj, "status", "hard"), part(obj, "status", "used")
    requests: list[str] = []
    limits: list[str] = []
    for resource in sorted(hard):
        shown = limits if resource.startswith("limits.") else requests
        shown.append(f"{resource}: {used.get(resource, 0)}/{hard[resource]}")
    return [name_of(obj), ", ".join(requests), ", ".join(limits), age_of(obj, now)]


RESOURCE_QUOTAS: Final = Printer(
    (
        NAME,
        Column(
            "Request",
            description="Request represents a minimum amount of cpu/memory that a container may consume.",
        ),
        Column(
            "Limit",
            description=(
                "Limits control the maximum amount of cpu/memory that a container may use independent of contention "
                "on the node."
            ),
        ),
        AGE,
    ),
    resource_quota_cells,
)

# --- events --------------------------------------------------------------------------------------


def event_cells(event: Obj, now: datetime) -> list[Any]:
    """The cells of an Event of the core group."""
    series = event.get("series")
    first = times.age(event.get("firstTimestamp") or event.get("eventTime"), now)
    last = times.age(event["lastTimestamp"], now) if event.get("lastTimestamp") else first
    if series:
        last = times.age(series.get("lastObservedTime"), now)
    involved = part(event, "involvedObject")
    return [
        last,
        event.get("type", ""),
        event.get("reason", ""),
        event_target(involved),
        involved.get("fieldPath", ""),
        event_source_text(event),
        event.get("message", "").strip(),
        first,
        series.get("count", 0) if series else event.get("count") or 1,
        name_of(event),
    ]


def event_target(involved: Obj) -> str:
    kind, name = involved.get("kind", "").lower(), involved.get("name", "")
    return f"{kind}/{name}" if name else kind


def event_source_text(event: Obj) -> str:
    source = part(event, "source")
    component: str = source.get("component") or event.get("reportingComponent") or ""
    instance = source.get("host") or event.get("reportingInstance")
    return f"{component}, {instance}" if instance else component


EVENTS: Final = Printer(
    (
        described("Last Seen", "core.v1.Event.lastTimestamp"),
        described("Type", "core.v1.Event.type"),
        described("Reason", "core.v1.Event.reason"),
        described("Object", "core.v1.Event.involvedObject"),
        described("Subobject", "core.v1.ObjectReference.fieldPath", priority=1),
        described("Source", "core.v1.Event.source", priority=1),
        described("Message", "core.v1.Event.message"),
        described("First Seen", "core.v1.Event.firstTimestamp", priority=1),
        described("Count", "core.v1.Event.count", priority=1),
        Column("Name", format="name", description=NAME.description, priority=1),
    ),
    event_cells,
)

# --- services ------------------------------------------------------------------------------------


def endpoints_cells(obj: Obj, now: datetime) -> list[Any]:
    return [name_of(obj), endpoints_text(obj.get("subsets") or ()), age_of(obj, now)]


def endpoints_text(subsets: Any) -> str:
    shown = []
    for subset in subsets:
        addresses = [address.get("ip", "") for address in subset.get("addresses") or ()]
        ports = subset.get("ports")
        if ports:
            shown += [joined(address, port.get("port", 0)) for port in ports for address in addresses]
        else:
            shown += addresses
    return shortened(shown, empty="" if subsets else NOTHING)


def joined(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


ENDPOINTS: Final = Printer((NAME, described("Endpoints", "core.v1.Endpoints.subsets"), AGE), endpoints_cells)


def service_cells(obj: Obj, now: datetime) -> list[Any]:
    spec = part(obj, "spec")
    addresses = spec.get("clusterIPs") or [spec.get("clusterIP") or NOTHING]
    ports = ",".join(map(service_port_text, spec.get("ports") or ()))
    return [
        name_of(obj),
        spec.get("type", ""),
        addresses[0],
        external_address(obj),
        ports or NOTHING,
        age_of(obj, now),
        labels_text(spec.get("selector")),
    ]


def service_port_text(port: Obj) -> str:
    node_port = port.get("nodePort")
    number = f"{port.get('port', 0)}:{node_port}" if node_port else port.get("port", 0)
    return f"{number}/{port.get('protocol', '')}"


def external_address(service: Obj) -> str:
    spec = part(service, "spec")
    external = ",".join(spec.get("externalIPs") or ())
    match spec.get("type"):
        case "ClusterIP" | "NodePort":
            return external or NOTHING
        case "LoadBalancer":
            balancer = load_balancer_text(part(service, "status"))
            return ",".join(filter(None, (balancer, external))) or "<pending>"
        case "ExternalName":
            name: str = spec.get("externalName", "")
            return name
        case _:
            return UNKNOWN


SERVICES: Final = Printer(
    (
        NAME,
        described("Type", "core.v1.ServiceSpec.type"),
        described("Cluster-IP", "core.v1.ServiceSpec.clusterIP"),
        described("External-IP", "core.v1.ServiceSpec.externalIPs"),
        described("Port(s)", "core.v1.ServiceSpec.ports"),
        AGE,
        described("Selector", "core.v1.ServiceSpec.selector", priority=1),
    ),
    service_cells,
)

# --- nodes ---------------------------------------------------------------------------------------

ROLE_PREFIX: Final = "node-role.kubernetes.io/"
ROLE_LABEL: Final = "kubernetes.io/role"


def node_cells(obj: Obj, now: datetime) -> list[Any]:
    info = part(obj, "status", "nodeInfo")
    return [
        name_of(obj),
        node_status(obj),
        ",".join(node_roles(part(obj, "metadata", "labels"))) or NOTHING,
        age_of(obj, now),
        info.get("kubeletVersion", ""),
        node_address(obj, "InternalIP"),
        node_address(obj, "ExternalIP"),
        info.get("osImage") or UNKNOWN,
        info.get("kernelVersion") or UNKNOWN,
        info.get("containerRuntimeVersion") or UNKNOWN,
    ]


def node_status(node: Obj) -> str:
    ready = condition_status(part(node, "status").get("conditions"), "Ready")
    word = "Unknown" if not ready else "Ready" if ready == "True" else "NotReady"
    return f"{word},SchedulingDisabled" if part(node, "spec").get("unschedulable") else word


def node_roles(labels: Obj) -> list[str]:
    roles = {key.removeprefix(ROLE_PREFIX) for key in labels if key.startswith(ROLE_PREFIX)}
    return sorted(filter(None, roles | {labels.get(ROLE_LABEL, "")}))


def node_address(node: Obj, type: str) -> str:
    addresses = part(node, "status").get("addresses") or ()
    return next((one.get("address", "") for one in addresses if one.get("type") == type), NOTHING)


NODES: Final = Printer(
    (
        NAME,
        Column("Status", description="The status of the node"),
        Column("Roles", description="The roles of the node"),
        AGE,
        described("Version", "core.v1.NodeSystemInfo.kubeletVersion"),
        described("Internal-IP", "core.v1.NodeStatus.addresses", priority=1),
        described("External-IP", "core.v1.NodeStatus.addresses", priority=1),
        described("OS-Image", "core.v1.NodeSystemInfo.osImage", priority=1),
        described("Kernel-Version", "core.v1.NodeSystemInfo.kernelVersion", priority=1),
        described("Container-Runtime", "core.v1.NodeSystemInfo.containerRuntimeVersion", priority=1),
    ),
    node_cells,
)

# --- volumes -------------------------------------------------------------------------------------

ACCESS_MODES: Final = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}


def access_modes_text(modes: Any) -> str:
    return ",".join(short for mode, short in ACCESS_MODES.items() if mode in (modes or ()))


def storage_class(obj: Obj) -> str:
    """The beta annotation has precedence over the field."""
    annotated: str | None = part(obj, "metadata", "annotations").get(BETA_STORAGE_CLASS)
    return annotated if annotated is not None else part(obj, "spec").get("storageClassName") or ""


def volume_phase(obj: Obj) -> str:
    return "Terminating" if deleting(obj) else part(obj, "status").get("phase", "")


def volume_cells(obj: Obj, now: datetime) -> list[Any]:
    spec, status = part(obj, "spec"), part(obj, "status")
    claim = spec.get("claimRef")
    return [
        name_of(obj),
        str(part(spec, "capacity").get("storage", "0")),
        access_modes_text(spec.get("accessModes")),
        spec.get("persistentVolumeReclaimPolicy", ""),
        volume_phase(obj),
        f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim else "",
        storage_class(obj),
        spec.get("volumeAttributesClassName", UNSET),
        status.get("reason", ""),
        age_of(obj, now),
        spec.get("volumeMode", UNSET),
    ]


PERSISTENT_VOLUMES: Final = Printer(
    (
        NAME,
        described("Capacity", "core.v1.PersistentVolumeSpec.capacity"),
        described("Access Modes", "core.v1.PersistentVolumeSpec.accessModes"),
        described("Reclaim Policy", "core.v1.PersistentVolumeSpec.persistentVolumeReclaimPolicy"),
        described("Status", "core.v1.PersistentVolumeStatus.phase"),
        described("Claim", "core.v1.PersistentVolumeSpec.claimRef"),
        Column("StorageClass", description="StorageClass of the pv"),
        Column("VolumeAttributesClass", description="VolumeAttributesClass of the pv"),
        described("Reason", "core.v1.PersistentVolumeStatus.reason"),
        AGE,
        described("VolumeMode", "core.v1.PersistentVolumeSpec.volumeMode", priority=1),
    ),
    volume_cells,
)


def claim_cells(obj: Obj, now: datetime) -> list[Any]:
    spec, status = part(obj, "spec"), part(obj, "status")
    volume = spec.get("volumeName", "")
    return [
        name_of(obj),
        volume_phase(obj),
        volume,
        str(part(status, "capacity").get("storage", "0")) if volume else "",
        access_modes_text(status.get("accessModes")) if volume else "",
        storage_class(obj),
        spec.get("volumeAttributesClassName", UNSET),
        age_of(obj, now),
        spec.get("volumeMode", UNSET),
    ]


PERSISTENT_VOLUME_CLAIMS: Final = Printer(
    (
        NAME,
        described("Status", "core.v1.PersistentVolumeClaimStatus.phase"),
        described("Volume", "core.v1.PersistentVolumeClaimSpec.volumeName"),
        described("Capacity", "core.v1.PersistentVolumeClaimStatus.capacity"),
        described("Access Modes", "core.v1.PersistentVolumeClaimStatus.accessModes"),
        Column("StorageClass", description="StorageClass of the pvc"),
        Column("VolumeAttributesClass", description="VolumeAttributesClass of the pvc"),
        AGE,
        described("VolumeMode", "core.v1.PersistentVolumeClaimSpec.volumeMode", priority=1),
    ),
    claim_cells,
)

# --- templates and controllers -------------------------------------------------------------------


def pod_template_cells(obj: Obj, now: datetime) -> list[Any]:
    labels = part(obj, "template", "metadata").get("labels")
    return [name_of(obj), *container_cells(part(obj, "template", "spec")), labels_text(labels)]


POD_TEMPLATES: Final = Printer(
    (
        NAME,
        Column("Containers", description=CONTAINERS.description),
        Column("Images", description=IMAGES.description),
        Column("Pod Labels", description="The labels for the pod template."),
    ),
    pod_template_cells,
)


def replication_controller_cells(obj: Obj, now: datetime) -> list[Any]:
    return [*replica_cells(obj, now), labels_text(part(obj, "spec").get("selector"))]


REPLICATION_CONTROLLERS: Final = Printer(
    (
        NAME,
        described("Desired", "core.v1.ReplicationControllerSpec.replicas", "integer"),
        described("Current", "core.v1.ReplicationControllerStatus.replicas", "integer"),
        described("Ready", "core.v1.ReplicationControllerStatus.readyReplicas", "integer"),
        AGE,
        CONTAINERS,
        IMAGES,
        described("Selector", "core.v1.ReplicationControllerSpec.selector", priority=1),
    ),
    replication_controller_cells,
)


# --- Pods: the status column follows phase, conditions and containers -----------------------------

FINISHED: Final = {
    "Succeeded": [
        {
            "type": "Completed",
            "status": "True",
            "reason": "Succeeded",
            "message": "The pod has completed successfully.",
        }
    ],
    "Failed": [{"type": "Completed", "status": "True", "reason": "Failed", "message": "The pod failed."}],
}


@dataclass(slots=True)
class ContainerSummary:
    """The sums over the containers of a pod, and its displayed status."""

    reason: str
    ready: int = 0
    restarts: int = 0
    last_restart: datetime | None = None

    def count_restarts(self, container: Obj) -> None:
        self.restarts += container.get("restartCount", 0)
        finished = moment(part(container, "lastState", "terminated").get("finishedAt"))
        if finished and (self.last_restart is None or finished > self.last_restart):
            self.last_restart = finished

    def restarts_text(self, now: datetime) -> str:
        if self.restarts and self.last_restart:
            return f"{self.restarts} ({times.human(now - self.last_restart)} ago)"
        return str(self.restarts)


def pod_cells(pod: Obj, now: datetime) -> list[Any]:
    spec, status = part(pod, "spec"), part(pod, "status")
    sidecars = sidecar_names(spec)
    summary = summarize(pod, sidecars)
    addresses = status.get("podIPs") or [{"ip": status.get("podIP")}]
    return [
        name_of(pod),
        f"{summary.ready}/{len(spec.get('containers') or ()) + len(sidecars)}",
        summary.reason,
        summary.restarts_text(now),
        age_of(pod, now),
        addresses[0].get("ip") or NOTHING,
        spec.get("nodeName") or NOTHING,
        status.get("nominatedNodeName") or NOTHING,
        readiness_gates(spec, status),
    ]


def sidecar_names(spec: Obj) -> frozenset[str]:
    """The init containers that keep running."""
    containers = spec.get("initContainers") or ()
    return frozenset(one.get("name", "") for one in containers if one.get("restartPolicy") == "Always")


def summarize(pod: Obj, sidecars: frozenset[str]) -> ContainerSummary:
    status = part(pod, "status")
    summary = initialization(pod, sidecars)
    if not summary.reason or condition_status(status.get("conditions"), "Initialized") == "True":
        started = summary.ready
        summary = running(status, summary.reason or phase_reason(status), sidecars)
        summary.ready += started
    if deleting(pod):
        if status.get("reason") == "NodeLost":
            summary.reason = "Unknown"
        elif status.get("phase") not in FINISHED:
            summary.reason = "Terminating"
    return summary


def phase_reason(status: Obj) -> str:
    for condition in status.get("conditions") or ():
        if condition.get("type") == POD_SCHEDULED and condition.get("reason") == "SchedulingGated":
            return "SchedulingGated"
    reason: str = status.get("reason") or status.get("phase", "")
    return reason


def initialization(pod: Obj, sidecars: frozenset[str]) -> ContainerSummary:
    """The summary of the init containers; without a reason if all are finished."""
    summary = ContainerSummary("")
    for index, container in enumerate(part(pod, "status").get("initContainerStatuses") or ()):
        summary.count_restarts(container)
        state = part(container, "state")
        terminated = state.get("terminated")
        if terminated is not None and terminated.get("exitCode", 0) == 0:
            continue
        if container.get("name") in sidecars and container.get("started"):
            summary.ready += bool(container.get("ready"))
            continue
        waiting = part(state, "waiting").get("reason")
        if terminated is not None:
            summary.reason = f"Init:{end_of(terminated)}"
        elif waiting and waiting != "PodInitializing":
            summary.reason = f"Init:{waiting}"
        else:
            summary.reason = f"Init:{index}/{len(part(pod, 'spec').get('initContainers') or ())}"
        break
    return summary


def end_of(terminated: Obj) -> str:
    reason: str = terminated.get("reason", "")
    if reason:
        return reason
    signal = terminated.get("signal")
    return f"Signal:{signal}" if signal else f"ExitCode:{terminated.get('exitCode', 0)}"


def running(status: Obj, reason: str, sidecars: frozenset[str]) -> ContainerSummary:
    """The summary of the containers of an initialized pod; the first container's reason wins."""
    summary = ContainerSummary(reason)
    count_all_restarts(summary, status.get("initContainerStatuses") or (), sidecars)
    for container in reversed(status.get("containerStatuses") or ()):
        summary.count_restarts(container)
        state = part(container, "state")
        waiting, terminated = part(state, "waiting").get("reason"), state.get("terminated")
        if waiting:
            summary.reason = waiting
        elif terminated is not None:
            summary.reason = end_of(terminated)
        elif container.get("ready") and state.get("running") is not None:
            summary.ready += 1
    if summary.reason == "Completed" and summary.ready:
        ready = condition_status(status.get("conditions"), "Ready") == "True"
        summary.reason = "Running" if ready else "NotReady"
    return summary


def count_all_restarts(summary: ContainerSummary, containers: Iterable[Obj], names: frozenset[str]) -> None:
    for container in containers:
        if container.get("name") in names:
            summary.count_restarts(container)


def readiness_gates(spec: Obj, status: Obj) -> str:
    gates = spec.get("readinessGates")
    if not gates:
        return NOTHING
    conditions = status.get("conditions")
    passed = [gate for gate in gates if condition_status(conditions, gate.get("conditionType", "")) == "True"]
    return f"{len(passed)}/{len(gates)}"


def finished(pod: Obj) -> list[Obj] | None:
    return FINISHED.get(part(pod, "status").get("phase", ""))


PODS: Final = Printer(
    (
        NAME,
        Column("Ready", description="The aggregate readiness state of this pod for accepting traffic."),
        Column("Status", description="The aggregate status of the containers in this pod."),
        Column(
            "Restarts",
            description=(
                "The number of times the containers in this pod have been restarted and when the last container in "
                "this pod has restarted."
            ),
        ),
        AGE,
        described("IP", "core.v1.PodStatus.podIP", priority=1),
        described("Node", "core.v1.PodSpec.nodeName", priority=1),
        described("Nominated Node", "core.v1.PodStatus.nominatedNodeName", priority=1),
        described("Readiness Gates", "core.v1.PodSpec.readinessGates", priority=1),
    ),
    pod_cells,
    finished,
)
