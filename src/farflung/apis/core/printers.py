"""Printer columns of the core group."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from farflung.apis.names import BETA_STORAGE_CLASS, POD_SCHEDULED
from farflung.apis.printers import (
    AGE,
    NAME,
    NOTHING,
    REPLICAS,
    TEMPLATE_CONTAINERS,
    UNKNOWN,
    UNSET,
    PrinterRow,
    age_of,
    column,
    columns,
    condition_status,
    containers,
    deleting,
    described,
    field,
    labels_text,
    load_balancer_text,
    moment,
    name_of,
    part,
    printer,
    shortened,
)
from farflung.machinery import times
from farflung.machinery.errors import Obj
from farflung.machinery.table import Printer

# --- small kinds ---------------------------------------------------------------------------------


def healthy(status: Obj) -> Obj:
    found: Obj = next((one for one in status.get("conditions") or () if one.get("type") == "Healthy"), {})
    return found


def health_text(status: Obj) -> str:
    found = healthy(status)
    return "Unknown" if not found else "Healthy" if found.get("status") == "True" else "Unhealthy"


COMPONENT_STATUSES: Final = printer(
    "core.v1.ComponentStatus",
    NAME,
    column("Status", "Status of the component conditions", health_text),
    column("Message", "Message of the component conditions", lambda obj: healthy(obj).get("message", "")),
    column("Error", "Error of the component conditions", lambda obj: healthy(obj).get("error", "")),
)
CONFIG_MAPS: Final = printer(
    "core.v1.ConfigMap",
    NAME,
    described("Data", "data", lambda obj: len(obj.get("data") or ()) + len(obj.get("binaryData") or ())),
    AGE,
)
SECRETS: Final = printer(
    "core.v1.Secret", NAME, field("Type", "type"), field("Data", "data", None, lambda data: len(data or ())), AGE
)
SERVICE_ACCOUNTS: Final = printer(
    "core.v1.ServiceAccount", NAME, field("Secrets", "secrets", None, lambda secrets: len(secrets or ())), AGE
)
NAMESPACES: Final = printer(
    "core.v1.Namespace", NAME, field("Status", "status.phase", description="The status of the namespace"), AGE
)


def amounts_text(quota: Obj, *, limits: bool) -> str:
    """The used and the hard amounts of limits, or of everything else."""
    hard, used = part(quota, "status", "hard"), part(quota, "status", "used")
    shown = [name for name in sorted(hard) if name.startswith("limits.") == limits]
    return ", ".join(f"{name}: {used.get(name, 0)}/{hard[name]}" for name in shown)


RESOURCE_QUOTAS: Final = printer(
    "core.v1.ResourceQuota",
    NAME,
    column(
        "Request",
        "Request represents a minimum amount of cpu/memory that a container may consume.",
        lambda quota: amounts_text(quota, limits=False),
    ),
    column(
        "Limit",
        "Limits control the maximum amount of cpu/memory that a container may use independent of contention on the "
        "node.",
        lambda quota: amounts_text(quota, limits=True),
    ),
    AGE,
)

# --- events --------------------------------------------------------------------------------------


def first_seen(event: Obj, now: datetime) -> str:
    return times.age(event.get("firstTimestamp") or event.get("eventTime"), now)


def last_seen(event: Obj, now: datetime) -> str:
    if series := event.get("series"):
        return times.age(series.get("lastObservedTime"), now)
    return times.age(event["lastTimestamp"], now) if event.get("lastTimestamp") else first_seen(event, now)


def event_count(event: Obj) -> int:
    series = event.get("series")
    count: int = series.get("count", 0) if series else event.get("count") or 1
    return count


def event_target(event: Obj) -> str:
    involved = part(event, "involvedObject")
    kind, name = involved.get("kind", "").lower(), involved.get("name", "")
    return f"{kind}/{name}" if name else kind


def event_source_text(event: Obj) -> str:
    source = part(event, "source")
    component: str = source.get("component") or event.get("reportingComponent") or ""
    instance = source.get("host") or event.get("reportingInstance")
    return f"{component}, {instance}" if instance else component


EVENTS: Final = printer(
    "core.v1.Event",
    PrinterRow("Last Seen", last_seen, "lastTimestamp"),
    field("Type", "type"),
    field("Reason", "reason"),
    described("Object", "involvedObject", event_target),
    field("Subobject", "involvedObject.fieldPath", priority=1),
    described("Source", "source", event_source_text, priority=1),
    field("Message", "message", show=str.strip),
    PrinterRow("First Seen", first_seen, "firstTimestamp", priority=1),
    described("Count", "count", event_count, priority=1),
    replace(NAME, priority=1),
)

# --- services ------------------------------------------------------------------------------------


def endpoints_text(subsets: Any) -> str:
    shown = []
    for subset in subsets or ():
        addresses = [address.get("ip", "") for address in subset.get("addresses") or ()]
        ports = subset.get("ports")
        if ports:
            shown += [joined(address, port.get("port", 0)) for port in ports for address in addresses]
        else:
            shown += addresses
    return shortened(shown, empty="" if subsets else NOTHING)


def joined(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


ENDPOINTS: Final = printer("core.v1.Endpoints", NAME, field("Endpoints", "subsets", None, endpoints_text), AGE)


def cluster_address(service: Obj) -> str:
    spec = part(service, "spec")
    address: str = (spec.get("clusterIPs") or [spec.get("clusterIP") or NOTHING])[0]
    return address


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
            balancer = load_balancer_text(service)
            return ",".join(filter(None, (balancer, external))) or "<pending>"
        case "ExternalName":
            name: str = spec.get("externalName", "")
            return name
        case _:
            return UNKNOWN


SERVICES: Final = printer(
    "core.v1.Service",
    NAME,
    field("Type", "spec.type"),
    described("Cluster-IP", "spec.clusterIP", cluster_address),
    described("External-IP", "spec.externalIPs", external_address),
    field("Port(s)", "spec.ports", None, lambda ports: ",".join(map(service_port_text, ports or ())) or NOTHING),
    AGE,
    field("Selector", "spec.selector", None, labels_text, priority=1),
)

# --- nodes ---------------------------------------------------------------------------------------

ROLE_PREFIX: Final = "node-role.kubernetes.io/"
ROLE_LABEL: Final = "kubernetes.io/role"


def node_status(node: Obj) -> str:
    ready = condition_status(part(node, "status").get("conditions"), "Ready")
    word = "Unknown" if not ready else "Ready" if ready == "True" else "NotReady"
    return f"{word},SchedulingDisabled" if part(node, "spec").get("unschedulable") else word


def node_roles(node: Obj) -> str:
    labels = part(node, "metadata", "labels")
    roles = {key.removeprefix(ROLE_PREFIX) for key in labels if key.startswith(ROLE_PREFIX)}
    return ",".join(sorted(filter(None, roles | {labels.get(ROLE_LABEL, "")}))) or NOTHING


def node_address(node: Obj, type: str) -> str:
    addresses = part(node, "status").get("addresses") or ()
    return next((one.get("address", "") for one in addresses if one.get("type") == type), NOTHING)


def node_fact(name: str, member: str) -> PrinterRow:
    return field(name, f"status.nodeInfo.{member}", show=lambda found: found or UNKNOWN, priority=1)


NODES: Final = printer(
    "core.v1.Node",
    NAME,
    column("Status", "The status of the node", node_status),
    column("Roles", "The roles of the node", node_roles),
    AGE,
    field("Version", "status.nodeInfo.kubeletVersion"),
    described("Internal-IP", "status.addresses", lambda node: node_address(node, "InternalIP"), priority=1),
    described("External-IP", "status.addresses", lambda node: node_address(node, "ExternalIP"), priority=1),
    node_fact("OS-Image", "osImage"),
    node_fact("Kernel-Version", "kernelVersion"),
    node_fact("Container-Runtime", "containerRuntimeVersion"),
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


def is_bound(claim: Obj) -> bool:
    return bool(part(claim, "spec").get("volumeName"))


def claim_reference(volume: Obj) -> str:
    claim = part(volume, "spec").get("claimRef")
    return f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim else ""


ATTRIBUTES_CLASS: Final = "spec.volumeAttributesClassName"
MODE: Final = field("VolumeMode", "spec.volumeMode", UNSET, priority=1)
PERSISTENT_VOLUMES: Final = printer(
    "core.v1.PersistentVolume",
    NAME,
    described("Capacity", "spec.capacity", lambda obj: str(part(obj, "spec", "capacity").get("storage", "0"))),
    field("Access Modes", "spec.accessModes", None, access_modes_text),
    field("Reclaim Policy", "spec.persistentVolumeReclaimPolicy"),
    described("Status", "status.phase", volume_phase),
    described("Claim", "spec.claimRef", claim_reference),
    column("StorageClass", "StorageClass of the pv", storage_class),
    field("VolumeAttributesClass", ATTRIBUTES_CLASS, UNSET, description="VolumeAttributesClass of the pv"),
    field("Reason", "status.reason"),
    AGE,
    MODE,
)
PERSISTENT_VOLUME_CLAIMS: Final = printer(
    "core.v1.PersistentVolumeClaim",
    NAME,
    described("Status", "status.phase", volume_phase),
    field("Volume", "spec.volumeName"),
    described(
        "Capacity",
        "status.capacity",
        lambda obj: str(part(obj, "status", "capacity").get("storage", "0")) if is_bound(obj) else "",
    ),
    described(
        "Access Modes",
        "status.accessModes",
        lambda obj: access_modes_text(part(obj, "status").get("accessModes")) if is_bound(obj) else "",
    ),
    column("StorageClass", "StorageClass of the pvc", storage_class),
    field("VolumeAttributesClass", ATTRIBUTES_CLASS, UNSET, description="VolumeAttributesClass of the pvc"),
    AGE,
    MODE,
)

# --- templates and controllers -------------------------------------------------------------------

POD_TEMPLATES: Final = printer(
    "core.v1.PodTemplate",
    NAME,
    *containers("template.spec", priority=0),
    column(
        "Pod Labels",
        "The labels for the pod template.",
        lambda obj: labels_text(part(obj, "template", "metadata").get("labels")),
    ),
)
REPLICATION_CONTROLLERS: Final = printer(
    "core.v1.ReplicationController",
    NAME,
    *REPLICAS,
    AGE,
    *TEMPLATE_CONTAINERS,
    field("Selector", "spec.selector", None, labels_text, priority=1),
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
    columns(
        "core.v1.Pod",
        NAME,
        column("Ready", "The aggregate readiness state of this pod for accepting traffic."),
        column("Status", "The aggregate status of the containers in this pod."),
        column(
            "Restarts",
            "The number of times the containers in this pod have been restarted and when the last container in this "
            "pod has restarted.",
        ),
        AGE,
        described("IP", "status.podIP", priority=1),
        described("Node", "spec.nodeName", priority=1),
        described("Nominated Node", "status.nominatedNodeName", priority=1),
        described("Readiness Gates", "spec.readinessGates", priority=1),
    ),
    pod_cells,  # several columns are sums over the same containers
    finished,
)
