"""Containers: defaults and validation, with their ports, environment, probes and mounts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from farflung.apis.core.images import pull_policy
from farflung.apis.core.resources import check_requirements, round_amounts
from farflung.apis.core.security import check_container_security
from farflung.apis.core.volumes import (
    PULL_POLICIES,
    Volumes,
    check_field_reference,
    check_resource_reference,
)
from farflung.apis.validation import (
    PROTOCOLS,
    Errors,
    check_choice,
    check_descending,
    check_name,
    check_not_negative,
    check_port,
    check_present,
    check_required_name,
    check_supported,
)
from farflung.machinery import names
from farflung.machinery.errors import (
    Obj,
    duplicate,
    field_forbidden,
    field_not_found,
    invalid_value,
    not_supported,
    required,
)

PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")
HOOKS: Final = ("postStart", "preStop")
PROBE_NUMBERS: Final = (
    "initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold",
)  # fmt: skip
ENVIRONMENT_FIELDS: Final = (
    "metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName",
    "status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs",
)  # fmt: skip
TERMINATION_POLICIES: Final = ("File", "FallbackToLogsOnError")
#: what an ephemeral container may not have
NOT_EPHEMERAL: Final = (
    "ports", "resources", "resizePolicy", "restartPolicy", "restartPolicyRules", "livenessProbe", "readinessProbe",
    "startupProbe", "lifecycle",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class PodContext:
    """Facts about the pod for the validation of its containers."""

    volumes: Volumes
    claims: frozenset[str]  #: names of resource claims
    grace: int | None  #: terminationGracePeriodSeconds
    restart: str
    host_users: bool


# --- defaults -------------------------------------------------------------------------------------


def default_container(container: Obj) -> None:
    if "imagePullPolicy" not in container:
        container["imagePullPolicy"] = pull_policy(container.get("image", ""))
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    round_amounts(container.setdefault("resources", {}))
    for port in container.get("ports") or ():
        port.setdefault("protocol", "TCP")
    for variable in container.get("env") or ():
        if "valueFrom" in variable:
            source = variable["valueFrom"]
            if (selector := source.get("fieldRef")) is not None:
                selector.setdefault("apiVersion", "v1")
            if (selector := source.get("resourceFieldRef")) is not None:
                selector.setdefault("divisor", "0")
    for member in PROBES:
        if member in container:
            _default_probe(container[member])
    if "lifecycle" in container:
        for hook in HOOKS:
            _default_http((container["lifecycle"].get(hook) or {}).get("httpGet"))


def _default_probe(probe: Obj) -> None:
    probe.setdefault("timeoutSeconds", 1)
    probe.setdefault("periodSeconds", 10)
    probe.setdefault("successThreshold", 1)
    probe.setdefault("failureThreshold", 3)
    _default_http(probe.get("httpGet"))
    if (grpc := probe.get("grpc")) is not None:
        grpc.setdefault("service", "")


def _default_http(action: Obj | None) -> None:
    if action is not None:
        action.setdefault("path", "/")
        action.setdefault("scheme", "HTTP")


# --- lists of containers --------------------------------------------------------------------------


def check_containers(containers: Sequence[Obj], around: PodContext, path: str, errors: Errors) -> None:
    if not containers:
        errors.append(required(path))
    seen: set[str] = set()
    for at, container in enumerate(containers):
        where, name = f"{path}[{at}]", container.get("name", "")
        _check_container(container, around, where, errors)
        if name in seen:
            errors.append(duplicate(f"{where}.name", name))
        seen.add(name)
        _check_life(container, around.grace, where, errors)
        if "restartPolicy" in container:
            errors.append(field_forbidden(f"{where}.restartPolicy", "may not be set for non-init containers"))
    _check_host_ports(containers, path, errors)


def check_init_containers(
    containers: Sequence[Obj], regular: Iterable[Obj], around: PodContext, path: str, errors: Errors
) -> None:
    seen = {container.get("name", "") for container in regular}
    for at, container in enumerate(containers):
        where, name = f"{path}[{at}]", container.get("name", "")
        _check_container(container, around, where, errors)
        policy = container.get("restartPolicy")
        if policy is not None:
            check_supported(policy, ("Always",), f"{where}.restartPolicy", errors)
        if name in seen:
            errors.append(duplicate(f"{where}.name", name))
        elif name:
            seen.add(name)
        _check_host_ports([container], path, errors)
        if policy == "Always":
            _check_life(container, around.grace, where, errors)
            continue
        for member in ("lifecycle", *PROBES):
            if member in container:
                why = "may not be set for init containers without restartPolicy=Always"
                errors.append(field_forbidden(f"{where}.{member}", why))


def check_ephemeral_containers(
    containers: Sequence[Obj], others: Iterable[Obj], around: PodContext, path: str, errors: Errors
) -> None:
    known = {container.get("name", "") for container in others}
    seen = set(known)
    why = "cannot be set for an Ephemeral Container"
    for at, container in enumerate(containers):
        where, name = f"{path}[{at}]", container.get("name", "")
        _check_container(container, around, where, errors)
        check_image_padding(container, where, errors)
        if name in seen:
            errors.append(duplicate(f"{where}.name", name))
        seen.add(name)
        target = container.get("targetContainerName", "")
        if target and target not in known:
            errors.append(field_not_found(f"{where}.targetContainerName", target))
        for member in NOT_EPHEMERAL:
            if container.get(member):
                errors.append(field_forbidden(f"{where}.{member}", why))
        for index, mount in enumerate(container.get("volumeMounts") or ()):
            for member in ("subPath", "subPathExpr"):
                if mount.get(member):
                    errors.append(field_forbidden(f"{where}.volumeMounts[{index}].{member}", why))


def check_image_padding(container: Obj, path: str, errors: Errors) -> None:
    image = container.get("image", "")
    if image != image.strip():
        errors.append(invalid_value(f"{path}.image", image, "must not have leading or trailing whitespace"))


def _check_host_ports(containers: Iterable[Obj], path: str, errors: Errors) -> None:
    seen: set[str] = set()
    for at, container in enumerate(containers):
        for index, port in enumerate(container.get("ports") or ()):
            number = port.get("hostPort")
            if number:
                key = f"{port.get('protocol', '')}/{port.get('hostIP', '')}/{number}"
                if key in seen:
                    errors.append(duplicate(f"{path}[{at}].ports[{index}].hostPort", key))
                seen.add(key)


# --- one container --------------------------------------------------------------------------------


def _check_container(container: Obj, around: PodContext, path: str, errors: Errors) -> None:
    check_required_name(names.dns_label, container.get("name", ""), f"{path}.name", errors)
    check_present(container, "image", path, errors)
    policy = container.get("terminationMessagePolicy", "")
    if policy not in TERMINATION_POLICIES:
        check_choice(policy, TERMINATION_POLICIES, f"{path}.terminationMessagePolicy", errors)
    if ports := container.get("ports"):
        _check_ports(ports, f"{path}.ports", errors)
    if variables := container.get("env"):
        _check_environment(variables, f"{path}.env", errors)
    if sources := container.get("envFrom"):
        _check_environment_sources(sources, f"{path}.envFrom", errors)
    if container.get("volumeMounts") or container.get("volumeDevices"):
        _check_mounts(container, around.volumes, f"{path}.volumeMounts", errors)
        _check_devices(container, around.volumes, f"{path}.volumeDevices", errors)
    if container.get("imagePullPolicy") not in PULL_POLICIES:
        check_choice(container.get("imagePullPolicy", ""), PULL_POLICIES, f"{path}.imagePullPolicy", errors)
    if resources := container.get("resources"):
        check_requirements(resources, around.claims, f"{path}.resources", errors)
    if policies := container.get("resizePolicy"):
        _check_resizing(policies, around.restart, f"{path}.resizePolicy", errors)
    if context := container.get("securityContext"):
        check_container_security(context, f"{path}.securityContext", host_users=around.host_users, errors=errors)


def _check_ports(ports: Iterable[Obj], path: str, errors: Errors) -> None:
    seen: set[str] = set()
    for at, port in enumerate(ports):
        where, name = f"{path}[{at}]", port.get("name", "")
        if name:
            if wrong := names.port_name(name):
                errors.extend(invalid_value(f"{where}.name", name, message) for message in wrong)
            elif name in seen:
                errors.append(duplicate(f"{where}.name", name))
            seen.add(name)
        number = port.get("containerPort", 0)
        if number == 0:
            errors.append(required(f"{where}.containerPort"))
        else:
            check_port(number, f"{where}.containerPort", errors)
        if port.get("hostPort"):
            check_port(port["hostPort"], f"{where}.hostPort", errors)
        check_choice(port.get("protocol", ""), PROTOCOLS, f"{where}.protocol", errors)


def _check_resizing(policies: Iterable[Obj], restart: str, path: str, errors: Errors) -> None:
    seen: set[str] = set()
    for at, policy in enumerate(policies):
        resource, action = policy.get("resourceName", ""), policy.get("restartPolicy", "")
        if resource in seen:
            errors.append(duplicate(f"{path}[{at}]", resource))
        seen.add(resource)
        check_choice(resource, ("cpu", "memory"), path, errors)
        check_choice(action, ("NotRequired", "RestartContainer"), path, errors)
        if restart == "Never" and action != "NotRequired":
            errors.append(invalid_value(path, action, "must be 'NotRequired' when `restartPolicy` is 'Never'"))


# --- environment ----------------------------------------------------------------------------------


def _check_environment(variables: Iterable[Obj], path: str, errors: Errors) -> None:
    for at, variable in enumerate(variables):
        check_required_name(names.environment_variable, variable.get("name", ""), f"{path}[{at}].name", errors)
        if (source := variable.get("valueFrom")) is not None:
            _check_value_source(source, variable.get("value", ""), f"{path}[{at}].valueFrom", errors)


def _check_value_source(source: Obj, value: str, path: str, errors: Errors) -> None:
    found = 0
    for member, check in VALUE_SOURCES.items():
        if (selector := source.get(member)) is not None:
            check(selector, f"{path}.{member}", errors)
            found += 1
    if not found:
        why = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`"
        errors.append(invalid_value(path, "", why))
    elif value:
        errors.append(invalid_value(path, "", "may not be specified when `value` is not empty"))
    elif found > 1:
        errors.append(invalid_value(path, "", "may not have more than one field specified at a time"))


def _check_pod_field(selector: Obj, path: str, errors: Errors) -> None:
    check_field_reference(selector, ENVIRONMENT_FIELDS, path, errors)


def _check_pod_resource(selector: Obj, path: str, errors: Errors) -> None:
    check_resource_reference(selector, path, errors, in_volume=False)


def _check_key(selector: Obj, path: str, errors: Errors) -> None:
    check_name(names.dns_subdomain, selector.get("name", ""), f"{path}.name", errors)
    check_required_name(names.config_key, selector.get("key", ""), f"{path}.key", errors)


VALUE_SOURCES: Final[Mapping[str, Callable[[Obj, str, Errors], None]]] = {
    "fieldRef": _check_pod_field,
    "resourceFieldRef": _check_pod_resource,
    "configMapKeyRef": _check_key,
    "secretKeyRef": _check_key,
}


def _check_environment_sources(sources: Iterable[Obj], path: str, errors: Errors) -> None:
    for at, source in enumerate(sources):
        where, found = f"{path}[{at}]", 0
        if prefix := source.get("prefix"):
            check_name(names.environment_variable, prefix, f"{where}.prefix", errors)
        for member in ("configMapRef", "secretRef"):
            if (reference := source.get(member)) is not None:
                name = reference.get("name", "")
                check_required_name(names.dns_subdomain, name, f"{where}.{member}.name", errors)
                found += 1
        if not found:
            errors.append(invalid_value(path, "", "must specify one of: `configMapRef` or `secretRef`"))
        elif found > 1:
            errors.append(invalid_value(path, "", "may not have more than one field specified at a time"))


# --- mounts ---------------------------------------------------------------------------------------


def _check_mounts(container: Obj, volumes: Volumes, path: str, errors: Errors) -> None:
    devices = {device.get("name", ""): device.get("devicePath", "") for device in container.get("volumeDevices") or ()}
    device_paths = set(devices.values())
    seen: set[str] = set()
    for at, mount in enumerate(container.get("volumeMounts") or ()):
        where, name, target = f"{path}[{at}]", mount.get("name", ""), mount.get("mountPath", "")
        if not name:
            errors.append(required(f"{where}.name"))
        if name not in volumes:
            errors.append(field_not_found(f"{where}.name", name))
        if not target:
            errors.append(required(f"{where}.mountPath"))
        if target in seen:
            errors.append(invalid_value(f"{where}.mountPath", target, "must be unique"))
        seen.add(target)
        if name in devices:
            errors.append(invalid_value(f"{where}.name", name, "must not already exist in volumeDevices"))
        if target in device_paths:
            why = "must not already exist as a path in volumeDevices"
            errors.append(invalid_value(f"{where}.mountPath", target, why))
        _check_sub_path(mount, path, where, errors)
        if (propagation := mount.get("mountPropagation")) is not None:
            _check_propagation(propagation, container, f"{path}.mountPropagation", errors)
        _check_recursive_read_only(mount, f"{path}.recursiveReadOnly", errors)


def _check_sub_path(mount: Obj, path: str, where: str, errors: Errors) -> None:
    below, expression = mount.get("subPath"), mount.get("subPathExpr")
    if below:
        check_descending(below, f"{path}.subPath", errors)
    if expression:
        if below:
            why = "subPathExpr and subPath are mutually exclusive"
            errors.append(invalid_value(f"{where}.subPathExpr", expression, why))
        check_descending(expression, f"{path}.subPathExpr", errors)


def _check_propagation(propagation: str, container: Obj, field: str, errors: Errors) -> None:
    choices = ("Bidirectional", "HostToContainer", "None")
    check_supported(propagation, choices, field, errors)
    if propagation == "Bidirectional" and not (container.get("securityContext") or {}).get("privileged"):
        why = "Bidirectional mount propagation is available only to privileged containers"
        errors.append(field_forbidden(field, why))


def _check_recursive_read_only(mount: Obj, field: str, errors: Errors) -> None:
    match mount.get("recursiveReadOnly"):
        case None | "Disabled":
            pass
        case "Enabled" | "IfPossible":
            if not mount.get("readOnly"):
                errors.append(field_forbidden(field, "may only be specified when readOnly is true"))
            if mount.get("mountPropagation") not in (None, "None"):
                why = "may only be specified when mountPropagation is None or not specified"
                errors.append(field_forbidden(field, why))
        case other:
            errors.append(not_supported(field, other, ("Disabled", "IfPossible", "Enabled")))


def _check_devices(container: Obj, volumes: Volumes, path: str, errors: Errors) -> None:
    mounts = {mount.get("name", ""): mount.get("mountPath", "") for mount in container.get("volumeMounts") or ()}
    mount_paths = set(mounts.values())
    seen_names: set[str] = set()
    seen_paths: set[str] = set()
    for at, device in enumerate(container.get("volumeDevices") or ()):
        where, name, target = f"{path}[{at}]", device.get("name", ""), device.get("devicePath", "")
        _check_device(where, name, target, volumes, errors)
        if name in seen_names:
            errors.append(invalid_value(f"{where}.name", name, "must be unique"))
        if target in seen_paths:
            errors.append(invalid_value(f"{where}.devicePath", target, "must be unique"))
        if name in mounts:
            errors.append(invalid_value(f"{where}.name", name, "must not already exist in volumeMounts"))
        if target in mount_paths:
            why = "must not already exist as a path in volumeMounts"
            errors.append(invalid_value(f"{where}.devicePath", target, why))
        seen_names.add(name)
        seen_paths.add(target)


def _check_device(path: str, name: str, target: str, volumes: Volumes, errors: Errors) -> None:
    volume = volumes.get(name)
    if not name:
        errors.append(required(f"{path}.name"))
    if volume is None:
        errors.append(field_not_found(f"{path}.name", name))
    elif "persistentVolumeClaim" not in volume and "ephemeral" not in volume:
        why = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"
        errors.append(invalid_value(f"{path}.name", name, why))
    if not target:
        errors.append(required(f"{path}.devicePath"))
    if ".." in target.split("/"):
        errors.append(invalid_value(f"{path}.devicePath", target, "can not contain backsteps ('..')"))


# --- probes and hooks -----------------------------------------------------------------------------


def _check_life(container: Obj, grace: int | None, path: str, errors: Errors) -> None:
    if (lifecycle := container.get("lifecycle")) is not None:
        for hook in HOOKS:
            if (handler := lifecycle.get(hook)) is not None:
                _check_handler(handler, grace, f"{path}.lifecycle.{hook}", errors)
    for member in PROBES:
        if (probe := container.get(member)) is not None:
            _check_probe(member, probe, f"{path}.{member}", errors)


def _check_probe(kind: str, probe: Obj, path: str, errors: Errors) -> None:
    _check_handler(probe, None, path, errors)
    check_not_negative(probe, PROBE_NUMBERS, path, errors)
    grace = probe.get("terminationGracePeriodSeconds")
    if grace is not None and grace <= 0:
        errors.append(invalid_value(f"{path}.terminationGracePeriodSeconds", grace, "must be greater than 0"))
    if kind == "readinessProbe":
        if grace is not None:
            why = "must not be set for readinessProbes"
            errors.append(invalid_value(f"{path}.terminationGracePeriodSeconds", grace, why))
    elif probe.get("successThreshold", 1) != 1:
        errors.append(invalid_value(f"{path}.successThreshold", probe["successThreshold"], "must be 1"))


def _check_handler(handler: Obj, grace: int | None, path: str, errors: Errors) -> None:
    found = 0
    for member, check in HANDLERS.items():
        if (action := handler.get(member)) is None:
            continue
        if found:
            errors.append(field_forbidden(f"{path}.{member}", "may not specify more than 1 handler type"))
        else:
            check(action, f"{path}.{member}", errors)
        found += 1
    if (sleep := handler.get("sleep")) is not None:
        found += 1
        seconds = sleep.get("seconds", 0)
        if grace is not None and not 0 <= seconds <= grace:
            why = f"must be non-negative and less than terminationGracePeriodSeconds ({grace})"
            errors.append(invalid_value(f"{path}.sleep", seconds, why))
    if not found:
        errors.append(required(path, "must specify a handler type"))


def _check_command(action: Obj, path: str, errors: Errors) -> None:
    check_present(action, "command", path, errors)


def _check_http(action: Obj, path: str, errors: Errors) -> None:
    check_present(action, "path", path, errors)
    check_port(action.get("port", 0), f"{path}.port", errors)
    check_supported(action.get("scheme", ""), ("HTTP", "HTTPS"), f"{path}.scheme", errors)
    for header in action.get("httpHeaders") or ():
        check_name(names.http_header, header.get("name", ""), f"{path}.httpHeaders", errors)


def _check_socket(action: Obj, path: str, errors: Errors) -> None:
    check_port(action.get("port", 0), f"{path}.port", errors)


HANDLERS: Final[Mapping[str, Callable[[Obj, str, Errors], None]]] = {
    "exec": _check_command,
    "httpGet": _check_http,
    "tcpSocket": _check_socket,
    "grpc": _check_socket,
}
