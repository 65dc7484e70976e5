"""Containers: defaults and validation, with their ports, environment, probes and mounts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Final

from farflung.apis.core.resources import PodContext, check_requirements, round_amounts
from farflung.apis.core.security import CONTAINER_SECURITY
from farflung.apis.core.volumes import (
    DEFAULT_REFERENCES,
    PULL_POLICIES,
    check_field_reference,
    check_resource_reference,
    pull_policy,
)
from farflung.apis.rows import (
    ITSELF,
    Always,
    Check,
    CheckFunction,
    ContextCheck,
    Default,
    Defaults,
    Each,
    Enum,
    ForbiddenField,
    Format,
    IfPresent,
    InvalidIf,
    Optional,
    Pointer,
    Positive,
    Refused,
    Required,
    Row,
    Struct,
    Table,
    Unique,
    Unless,
    When,
    not_negative,
)
from farflung.apis.validation import PROTOCOLS, Errors, check_choice, check_descending, check_port, check_supported
from farflung.machinery import names
from farflung.machinery.errors import Obj, duplicate, field_forbidden, field_not_found, invalid_value, required

PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")
HOOKS: Final = ("postStart", "preStop")
ENVIRONMENT_FIELDS: Final = (
    "metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName",
    "status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs",
)  # fmt: skip
#: what an ephemeral container may not have
NOT_EPHEMERAL: Final = (
    "ports", "resources", "resizePolicy", "restartPolicy", "restartPolicyRules", "livenessProbe", "readinessProbe",
    "startupProbe", "lifecycle",
)  # fmt: skip
TWICE: Final = "may not have more than one field specified at a time"


# --- defaults -------------------------------------------------------------------------------------


def default_pull_policy(container: Obj) -> None:
    if "imagePullPolicy" not in container:
        container["imagePullPolicy"] = pull_policy(container.get("image", ""))


DEFAULT_HTTP: Final[tuple[Row, ...]] = (Default("path", "/"), Default("scheme", "HTTP"))
DEFAULT_PROBE: Final[tuple[Row, ...]] = (
    Default("timeoutSeconds", 1),
    Default("periodSeconds", 10),
    Default("successThreshold", 1),
    Default("failureThreshold", 3),
    Struct("httpGet", *DEFAULT_HTTP),
    Struct("grpc", Default("service", "")),
)
default_container: Final = Defaults(
    default_pull_policy,
    Default("terminationMessagePath", "/dev/termination-log"),
    Default("terminationMessagePolicy", "File"),
    Default("resources", {}),
    Optional("resources", round_amounts),
    Each("ports", Default("protocol", "TCP")),
    Each("env", Struct("valueFrom", *DEFAULT_REFERENCES)),
    *(Struct(probe, *DEFAULT_PROBE) for probe in PROBES),
    Struct("lifecycle", *(Struct(f"{hook}.httpGet", *DEFAULT_HTTP) for hook in HOOKS)),
)


# --- environment ----------------------------------------------------------------------------------


def check_pod_field(selector: Obj, path: str, errors: Errors) -> None:
    check_field_reference(selector, ENVIRONMENT_FIELDS, path, errors)


KEY: Final = Table(Always("name", Format(names.dns_subdomain)), Required("key", Format(names.config_key)))
VALUE_SOURCES: Final[Mapping[str, CheckFunction]] = {
    "fieldRef": check_pod_field,
    "resourceFieldRef": partial(check_resource_reference, in_volume=False),
    "configMapKeyRef": KEY,
    "secretKeyRef": KEY,
}


def check_value_source(variable: Obj, path: str, errors: Errors) -> None:
    source, field = variable["valueFrom"], f"{path}.valueFrom"
    found = [member for member in VALUE_SOURCES if source.get(member) is not None]
    for member in found:
        VALUE_SOURCES[member](source[member], f"{field}.{member}", errors)
    if not found:
        why = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`"
        errors.append(invalid_value(field, "", why))
    elif variable.get("value"):
        errors.append(invalid_value(field, "", "may not be specified when `value` is not empty"))
    elif len(found) > 1:
        errors.append(invalid_value(field, "", TWICE))


NAME: Final = Required("name", Format(names.dns_subdomain))
SOURCE: Final = Table(
    Optional("prefix", Format(names.environment_variable)), Struct("configMapRef", NAME), Struct("secretRef", NAME)
)


def check_sources(sources: Iterable[Obj], path: str, errors: Errors) -> None:
    for at, source in enumerate(sources):
        SOURCE(source, f"{path}[{at}]", errors)
        found = [source.get("configMapRef"), source.get("secretRef")]
        if found == [None, None]:
            errors.append(invalid_value(path, "", "must specify one of: `configMapRef` or `secretRef`"))
        elif None not in found:
            errors.append(invalid_value(path, "", TWICE))


# --- mounts ---------------------------------------------------------------------------------------


def check_mounts(container: Obj, path: str, errors: Errors, pod: PodContext) -> None:
    devices = container.get("volumeDevices") or ()
    device_names = {device.get("name", "") for device in devices}
    device_paths = _last_paths(devices, "devicePath")
    seen: set[str] = set()
    for at, mount in enumerate(container["volumeMounts"]):
        where, name, target = f"{path}.volumeMounts[{at}]", mount.get("name", ""), mount.get("mountPath", "")
        if not name:
            errors.append(required(f"{where}.name"))
        if name not in pod.volumes:
            errors.append(field_not_found(f"{where}.name", name))
        if not target:
            errors.append(required(f"{where}.mountPath"))
        if target in seen:
            errors.append(invalid_value(f"{where}.mountPath", target, "must be unique"))
        seen.add(target)
        if name in device_names:
            errors.append(invalid_value(f"{where}.name", name, "must not already exist in volumeDevices"))
        if target in device_paths:
            why = "must not already exist as a path in volumeDevices"
            errors.append(invalid_value(f"{where}.mountPath", target, why))
        check_sub_path(mount, f"{path}.volumeMounts", where, errors)
        MOUNT(mount, f"{path}.volumeMounts", errors, container)


def _last_paths(entries: Iterable[Obj], member: str) -> set[str]:
    """Of entries with the same name, only the path of the last one counts."""
    return set({entry.get("name", ""): entry.get(member, "") for entry in entries}.values())


def check_sub_path(mount: Obj, path: str, where: str, errors: Errors) -> None:
    below, expression = mount.get("subPath"), mount.get("subPathExpr")
    if below:
        check_descending(below, f"{path}.subPath", errors)
    if expression:
        if below:
            why = "subPathExpr and subPath are mutually exclusive"
            errors.append(invalid_value(f"{where}.subPathExpr", expression, why))
        check_descending(expression, f"{path}.subPathExpr", errors)


def check_privileged(propagation: str, field: str, errors: Errors, container: Obj) -> None:
    if propagation == "Bidirectional" and not (container.get("securityContext") or {}).get("privileged"):
        why = "Bidirectional mount propagation is available only to privileged containers"
        errors.append(field_forbidden(field, why))


ONLY_READ: Final = ForbiddenField("may only be specified when readOnly is true")
ONLY_UNPROPAGATED: Final = ForbiddenField("may only be specified when mountPropagation is None or not specified")
#: its context is the container, and its errors do not name the mount
MOUNT: Final = Table(
    Pointer("mountPropagation", Enum("Bidirectional", "HostToContainer", "None"), ContextCheck(check_privileged)),
    When(
        "recursiveReadOnly",
        ("Enabled", "IfPossible"),
        Unless("readOnly", True, Pointer("recursiveReadOnly", ONLY_READ)),
        IfPresent(
            "mountPropagation", Unless("mountPropagation", "None", Pointer("recursiveReadOnly", ONLY_UNPROPAGATED))
        ),
    ),
    Pointer("recursiveReadOnly", Enum("Disabled", "IfPossible", "Enabled")),
)


def check_devices(container: Obj, path: str, errors: Errors, pod: PodContext) -> None:
    mounts = container.get("volumeMounts") or ()
    mount_names, mount_paths = {mount.get("name", "") for mount in mounts}, _last_paths(mounts, "mountPath")
    seen_names: set[str] = set()
    seen_paths: set[str] = set()
    for at, device in enumerate(container["volumeDevices"]):
        where, name, target = f"{path}.volumeDevices[{at}]", device.get("name", ""), device.get("devicePath", "")
        DEVICE(device, where, errors, pod)
        if name in seen_names:
            errors.append(invalid_value(f"{where}.name", name, "must be unique"))
        if target in seen_paths:
            errors.append(invalid_value(f"{where}.devicePath", target, "must be unique"))
        if name in mount_names:
            errors.append(invalid_value(f"{where}.name", name, "must not already exist in volumeMounts"))
        if target in mount_paths:
            why = "must not already exist as a path in volumeMounts"
            errors.append(invalid_value(f"{where}.devicePath", target, why))
        seen_names.add(name)
        seen_paths.add(target)


def check_block_volume(name: str, field: str, errors: Errors, pod: PodContext) -> None:
    volume = pod.volumes.get(name)
    if volume is None:
        errors.append(field_not_found(field, name))
    elif "persistentVolumeClaim" not in volume and "ephemeral" not in volume:
        why = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"
        errors.append(invalid_value(field, name, why))


DEVICE: Final = Table(
    Required("name"),
    Always("name", ContextCheck(check_block_volume)),
    Required("devicePath", InvalidIf("'..' in {v}.split('/')", "can not contain backsteps ('..')")),
)


# --- probes and hooks -----------------------------------------------------------------------------

PORT: Final = Always("port", check_port, zero=0)
HANDLERS: Final[Mapping[str, CheckFunction]] = {
    "exec": Table(Required("command")),
    "httpGet": Table(
        Required("path"),
        PORT,
        Always("scheme", Enum("HTTP", "HTTPS")),
        Each("httpHeaders", Always("name", Format(names.http_header), named=ITSELF), indexed=False),
    ),
    "tcpSocket": Table(PORT),
    "grpc": Table(PORT),
}


def check_handler(handler: Obj, path: str, errors: Errors) -> None:
    first, *others = [member for member in HANDLERS if handler.get(member) is not None] or [""]
    if first:
        HANDLERS[first](handler[first], f"{path}.{first}", errors)
    for member in others:
        errors.append(field_forbidden(f"{path}.{member}", "may not specify more than 1 handler type"))
    if not first and handler.get("sleep") is None:
        errors.append(required(path, "must specify a handler type"))


def check_sleep(sleep: Obj, path: str, errors: Errors, pod: PodContext) -> None:
    if pod.grace is not None and not 0 <= sleep.get("seconds", 0) <= pod.grace:
        why = f"must be non-negative and less than terminationGracePeriodSeconds ({pod.grace})"
        errors.append(invalid_value(path, sleep.get("seconds", 0), why))


PROBE: Final = Table(
    Check(check_handler),
    not_negative("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"),
    Pointer("terminationGracePeriodSeconds", Positive),
)
ONCE: Final = Pointer("successThreshold", InvalidIf("{v} != 1", "must be 1"))
NO_GRACE: Final = Refused("must not be set for readinessProbes")
LIFE: Final = Table(
    Struct(
        "lifecycle",
        *(Struct(hook, check_handler, Struct("sleep", ContextCheck(check_sleep))) for hook in HOOKS),
    ),
    Struct("livenessProbe", PROBE, ONCE),
    Struct("readinessProbe", PROBE, Pointer("terminationGracePeriodSeconds", NO_GRACE)),
    Struct("startupProbe", PROBE, ONCE),
)


# --- one container --------------------------------------------------------------------------------


def check_resizing(policies: Iterable[Obj], path: str, errors: Errors, pod: PodContext) -> None:
    seen: set[str] = set()
    for at, policy in enumerate(policies):
        resource, action = policy.get("resourceName", ""), policy.get("restartPolicy", "")
        if resource in seen:
            errors.append(duplicate(f"{path}[{at}]", resource))
        seen.add(resource)
        check_choice(resource, ("cpu", "memory"), path, errors)
        check_choice(action, ("NotRequired", "RestartContainer"), path, errors)
        if pod.restart == "Never" and action != "NotRequired":
            errors.append(invalid_value(path, action, "must be 'NotRequired' when `restartPolicy` is 'Never'"))


CONTAINER: Final = Table(
    Required("name", Format(names.dns_label)),
    Required("image"),
    Required("terminationMessagePolicy", Enum("File", "FallbackToLogsOnError")),
    Each(
        "ports",
        Optional("name", Format(names.port_name, Unique())),
        Required("containerPort", check_port),
        Optional("hostPort", check_port),
        Required("protocol", Enum(*PROTOCOLS)),
    ),
    Each(
        "env", Required("name", Format(names.environment_variable)), IfPresent("valueFrom", Check(check_value_source))
    ),
    Optional("envFrom", check_sources),
    IfPresent("volumeMounts", ContextCheck(check_mounts)),
    IfPresent("volumeDevices", ContextCheck(check_devices)),
    Required("imagePullPolicy", Enum(*PULL_POLICIES)),
    Optional("resources", ContextCheck(check_requirements)),
    Optional("resizePolicy", ContextCheck(check_resizing)),
    Optional("securityContext", CONTAINER_SECURITY),
)
IMAGE_PADDING: Final = Table(
    Optional("image", InvalidIf("{v} != {v}.strip()", "must not have leading or trailing whitespace"))
)


# --- lists of containers --------------------------------------------------------------------------


def check_host_ports(containers: Iterable[Obj], path: str, errors: Errors) -> None:
    seen: set[str] = set()
    for at, container in enumerate(containers):
        for index, port in enumerate(container.get("ports") or ()):
            number = port.get("hostPort")
            if number:
                key = f"{port.get('protocol', '')}/{port.get('hostIP', '')}/{number}"
                if key in seen:
                    errors.append(duplicate(f"{path}[{at}].ports[{index}].hostPort", key))
                seen.add(key)


CONTAINERS: Final = Table(
    Required("containers"),
    Each(
        "containers",
        CONTAINER,
        Always("name", Unique()),
        LIFE,
        Pointer("restartPolicy", ForbiddenField("may not be set for non-init containers")),
    ),
    Optional("containers", check_host_ports),
)

ENDING: Final = ForbiddenField("may not be set for init containers without restartPolicy=Always")
ENDING_CONTAINER: Final = Table(*(Pointer(member, ENDING) for member in ("lifecycle", *PROBES)))


def check_init_containers(spec: Obj, path: str, errors: Errors, pod: PodContext) -> None:
    seen = {container.get("name", "") for container in spec.get("containers") or ()}
    for at, container in enumerate(spec.get("initContainers") or ()):
        where, name = f"{path}.initContainers[{at}]", container.get("name", "")
        CONTAINER(container, where, errors, pod)
        policy = container.get("restartPolicy")
        if policy is not None:
            check_supported(policy, ("Always",), f"{where}.restartPolicy", errors)
        if name in seen:
            errors.append(duplicate(f"{where}.name", name))
        elif name:
            seen.add(name)
        check_host_ports([container], f"{path}.initContainers", errors)
        (LIFE if policy == "Always" else ENDING_CONTAINER)(container, where, errors, pod)


OF_LASTING_CONTAINERS: Final = ForbiddenField("cannot be set for an Ephemeral Container")
EPHEMERAL_CONTAINER: Final = Table(
    *(Optional(member, OF_LASTING_CONTAINERS) for member in NOT_EPHEMERAL),
    Each("volumeMounts", Optional("subPath", OF_LASTING_CONTAINERS), Optional("subPathExpr", OF_LASTING_CONTAINERS)),
)


def check_ephemeral_containers(spec: Obj, path: str, errors: Errors, pod: PodContext) -> None:
    known = {c.get("name", "") for member in ("containers", "initContainers") for c in spec.get(member) or ()}
    seen = set(known)
    for at, container in enumerate(spec.get("ephemeralContainers") or ()):
        where, name = f"{path}.ephemeralContainers[{at}]", container.get("name", "")
        CONTAINER(container, where, errors, pod)
        IMAGE_PADDING(container, where, errors)
        if name in seen:
            errors.append(duplicate(f"{where}.name", name))
        seen.add(name)
        target = container.get("targetContainerName", "")
        if target and target not in known:
            errors.append(field_not_found(f"{where}.targetContainerName", target))
        EPHEMERAL_CONTAINER(container, where, errors)
