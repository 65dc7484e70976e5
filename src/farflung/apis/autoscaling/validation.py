"""Defaults and validation of HorizontalPodAutoscalers, in v1 or v2 by their apiVersion."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from farflung.apis.validation import (
    POSITIVE,
    Errors,
    Rules,
    check_choice,
    check_name,
    check_required_name,
    check_supported,
    keep_spec,
    keep_status,
    spec_of,
)
from farflung.machinery import names
from farflung.machinery.errors import Obj, field_forbidden, invalid_value, not_supported, required
from farflung.machinery.quantity import parse

V1: Final = "autoscaling/v1"
V2: Final = "autoscaling/v2"
UTILIZATION: Final = 80
LONGEST_WINDOW: Final = 3600
LONGEST_PERIOD: Final = 1800
METRIC_TYPES: Final = ("ContainerResource", "External", "Object", "Pods", "Resource")
#: type of a metric → the member that describes it
METRIC_MEMBERS: Final[Mapping[str, str]] = {
    "Object": "object",
    "Pods": "pods",
    "Resource": "resource",
    "ContainerResource": "containerResource",
    "External": "external",
}
TARGET_TYPES: Final = ("AverageValue", "Utilization", "Value")


# --- defaults -------------------------------------------------------------------------------------


def _default(autoscaler: Obj) -> None:
    spec = autoscaler.setdefault("spec", {})
    spec.setdefault("minReplicas", 1)
    status = autoscaler.setdefault("status", {})
    if autoscaler.get("apiVersion") == V1:
        spec.setdefault("targetCPUUtilizationPercentage", UTILIZATION)
        status.setdefault("currentReplicas", 0)
        status.setdefault("desiredReplicas", 0)
        return
    if not spec.get("metrics"):
        spec["metrics"] = [_cpu("target", {"type": "Utilization", "averageUtilization": UTILIZATION})]
    if (behavior := spec.get("behavior")) is not None:
        up, down = behavior.setdefault("scaleUp", {}), behavior.setdefault("scaleDown", {})
        up.setdefault("stabilizationWindowSeconds", 0)
        everything = {"type": "Percent", "value": 100, "periodSeconds": 15}
        if up.get("policies") is None:
            up["policies"] = [{"type": "Pods", "value": 4, "periodSeconds": 15}, dict(everything)]
        if down.get("policies") is None:
            down["policies"] = [everything]
        for rules in (up, down):
            rules.setdefault("selectPolicy", "Max")
    status.setdefault("desiredReplicas", 0)
    status.setdefault("currentMetrics", None)


def _prepare_create(autoscaler: Obj) -> None:
    if autoscaler.get("apiVersion") == V1:
        autoscaler["status"] = {"currentReplicas": 0, "desiredReplicas": 0}
    else:
        autoscaler["status"] = {"desiredReplicas": 0, "currentMetrics": None}


# --- versions -------------------------------------------------------------------------------------


def to_v2(autoscaler: Obj) -> Obj:
    """An autoscaler of v1 in the shape of v2, in which they are stored; one of v2 is left alone."""
    if autoscaler.get("apiVersion") != V1:
        return autoscaler
    spec, status = dict(autoscaler.get("spec") or {}), dict(autoscaler.get("status") or {})
    utilization = spec.pop("targetCPUUtilizationPercentage", None)
    if utilization is not None:
        spec["metrics"] = [_cpu("target", {"type": "Utilization", "averageUtilization": utilization})]
    current = status.pop("currentCPUUtilizationPercentage", None)
    status["currentMetrics"] = None
    if current is not None:
        status["currentMetrics"] = [_cpu("current", {"averageUtilization": current})]
    if not status.get("currentReplicas"):
        status.pop("currentReplicas", None)
    return {**autoscaler, "apiVersion": V2, "spec": spec, "status": status}


def to_v1(autoscaler: Obj) -> Obj:
    """The other way.  What v1 has no words for, other metrics and the behavior, it does not show."""
    if autoscaler.get("apiVersion") == V1:
        return autoscaler
    spec, status = dict(autoscaler.get("spec") or {}), dict(autoscaler.get("status") or {})
    spec.pop("behavior", None)
    utilization = _cpu_utilization(spec.pop("metrics", None), "target")
    if utilization is not None:
        spec["targetCPUUtilizationPercentage"] = utilization
    current = _cpu_utilization(status.pop("currentMetrics", None), "current")
    if current is not None:
        status["currentCPUUtilizationPercentage"] = current
    status.pop("conditions", None)
    status.setdefault("currentReplicas", 0)
    return {**autoscaler, "apiVersion": V1, "spec": spec, "status": status}


def _cpu(member: str, value: Obj) -> Obj:
    return {"type": "Resource", "resource": {"name": "cpu", member: value}}


def _cpu_utilization(metrics: Iterable[Obj] | None, member: str) -> int | None:
    for metric in metrics or ():
        resource = metric.get("resource") or {}
        if resource.get("name") == "cpu":
            utilization: int | None = (resource.get(member) or {}).get("averageUtilization")
            return utilization
    return None


# --- checks ---------------------------------------------------------------------------------------


def _validate(autoscaler: Obj) -> Errors:
    errors: Errors = []
    spec = spec_of(autoscaler)
    least, most = spec.get("minReplicas"), spec.get("maxReplicas", 0)
    if least is not None and least < 1:
        errors.append(invalid_value("spec.minReplicas", least, "must be greater than or equal to 1"))
    if most < 1:
        errors.append(invalid_value("spec.maxReplicas", most, POSITIVE))
    if least is not None and most < least:
        errors.append(invalid_value("spec.maxReplicas", most, "must be greater than or equal to `minReplicas`"))
    _check_target(spec.get("scaleTargetRef") or {}, "spec.scaleTargetRef", errors)
    for at, metric in enumerate(spec.get("metrics") or ()):
        _check_metric(metric, f"spec.metrics[{at}]", errors)
    utilization = spec.get("targetCPUUtilizationPercentage")
    if utilization is not None and utilization < 1:
        errors.append(invalid_value("spec.targetCPUUtilizationPercentage", utilization, POSITIVE))
    if (behavior := spec.get("behavior")) is not None:
        for direction in ("scaleUp", "scaleDown"):
            if (rules := behavior.get(direction)) is not None:
                _check_scaling(rules, f"spec.behavior.{direction}", errors)
    return errors


def _check_target(target: Obj, path: str, errors: Errors) -> None:
    _check_reference(target, path, errors)
    version = target.get("apiVersion", "")
    if "/" not in version and target.get("kind") != "ReplicationController":
        errors.append(invalid_value(f"{path}.apiVersion", version, "apiVersion must specify API group"))


def _check_reference(reference: Obj, path: str, errors: Errors) -> None:
    check_required_name(names.path_segment, reference.get("kind", ""), f"{path}.kind", errors)
    check_required_name(names.path_segment, reference.get("name", ""), f"{path}.name", errors)
    version = reference.get("apiVersion", "")
    if version.count("/") > 1:
        errors.append(invalid_value(f"{path}.apiVersion", version, f"unexpected GroupVersion string: {version}"))


def _check_metric(metric: Obj, path: str, errors: Errors) -> None:
    type_ = metric.get("type", "")
    if not type_:
        errors.append(required(f"{path}.type", "must specify a metric source type"))
    if type_ not in METRIC_TYPES:
        errors.append(not_supported(f"{path}.type", type_, METRIC_TYPES))
    present = [member for member in SOURCES if metric.get(member) is not None]
    if present:
        SOURCES[present[0]](metric[present[0]], f"{path}.{present[0]}", errors)
    expected = METRIC_MEMBERS.get(type_, "")
    if expected and expected not in present:
        errors.append(required(f"{path}.{expected}", "must populate information for the given metric source"))
    for member in present if len(present) > 1 else ():
        if member != expected:
            errors.append(field_forbidden(f"{path}.{member}", "must populate the given metric source only"))


def _check_object(source: Obj, path: str, errors: Errors) -> None:
    target = source.get("target") or {}
    _check_reference(source.get("describedObject") or {}, f"{path}.describedObject", errors)
    _check_identifier(source, path, errors)
    if target.get("value") is None and target.get("averageValue") is None:
        why = "must set either a target value or averageValue"
        errors.append(required(f"{path}.target.averageValue", why))


def _check_external(source: Obj, path: str, errors: Errors) -> None:
    target = source.get("target") or {}
    _check_identifier(source, path, errors)
    whole, each = target.get("value"), target.get("averageValue")
    if whole is None and each is None:
        why = "must set either a target value for metric or a per-pod target"
        errors.append(required(f"{path}.target.averageValue", why))
    if whole is not None and each is not None:
        why = "may not set both a target value for metric and a per-pod target"
        errors.append(field_forbidden(f"{path}.target.value", why))


def _check_pods(source: Obj, path: str, errors: Errors) -> None:
    _check_identifier(source, path, errors)
    if (source.get("target") or {}).get("averageValue") is None:
        errors.append(required(f"{path}.target.averageValue", "must specify a positive target averageValue"))


def _check_identifier(source: Obj, path: str, errors: Errors) -> None:
    identifier = source.get("metric") or {}
    if not identifier.get("name"):
        errors.append(required(f"{path}.metric.name", "must specify a metric name"))
    else:
        check_name(names.path_segment, identifier["name"], f"{path}.metric.name", errors)
    _check_metric_target(source.get("target") or {}, f"{path}.target", errors)


def _check_resource(source: Obj, path: str, errors: Errors) -> None:
    if not source.get("name"):
        errors.append(required(f"{path}.name", "must specify a resource name"))
    _check_resource_target(source.get("target") or {}, f"{path}.target", errors)


def _check_container_resource(source: Obj, path: str, errors: Errors) -> None:
    if not source.get("name"):
        errors.append(required(f"{path}.name", "must specify a resource name"))
    if not source.get("container"):
        errors.append(required(f"{path}.container", "must specify a container"))
    else:
        check_name(names.dns_label, source["container"], f"{path}.container", errors)
    _check_resource_target(source.get("target") or {}, f"{path}.target", errors)


def _check_resource_target(target: Obj, path: str, errors: Errors) -> None:
    _check_metric_target(target, path, errors)
    share, amount = target.get("averageUtilization"), target.get("averageValue")
    if share is None and amount is None:
        why = "must set either a target raw value or a target utilization"
        errors.append(required(f"{path}.averageUtilization", why))
    if share is not None and amount is not None:
        why = "may not set both a target raw value and a target utilization"
        errors.append(field_forbidden(f"{path}.averageValue", why))


#: in the order of validation
SOURCES: Final[Mapping[str, Callable[[Obj, str, Errors], None]]] = {
    "object": _check_object,
    "external": _check_external,
    "pods": _check_pods,
    "resource": _check_resource,
    "containerResource": _check_container_resource,
}


def _check_metric_target(target: Obj, path: str, errors: Errors) -> None:
    type_ = target.get("type", "")
    if not type_:
        errors.append(required(f"{path}.type", "must specify a metric target type"))
    if type_ not in TARGET_TYPES:
        errors.append(invalid_value(f"{path}.type", type_, "must be either Utilization, Value, or AverageValue"))
    for member in ("value", "averageValue"):
        amount = target.get(member)
        if amount is not None and parse(amount).nanos <= 0:
            errors.append(invalid_value(f"{path}.{member}", amount, "must be positive"))
    utilization = target.get("averageUtilization")
    if utilization is not None and utilization < 1:
        errors.append(invalid_value(f"{path}.averageUtilization", utilization, POSITIVE))


def _check_scaling(rules: Obj, path: str, errors: Errors) -> None:
    window = rules.get("stabilizationWindowSeconds")
    if window is not None and window < 0:
        errors.append(
            invalid_value(f"{path}.stabilizationWindowSeconds", window, "must be greater than or equal to zero")
        )
    if window is not None and window > LONGEST_WINDOW:
        why = f"must be less than or equal to {LONGEST_WINDOW}"
        errors.append(invalid_value(f"{path}.stabilizationWindowSeconds", window, why))
    if (select := rules.get("selectPolicy")) is not None:
        check_supported(select, ("Disabled", "Max", "Min"), f"{path}.selectPolicy", errors)
    policies = rules.get("policies") or ()
    if not policies:
        errors.append(required(f"{path}.policies", "must specify at least one Policy"))
    for at, policy in enumerate(policies):
        _check_scaling_policy(policy, f"{path}.policies[{at}]", errors)


def _check_scaling_policy(policy: Obj, path: str, errors: Errors) -> None:
    type_, value, period = policy.get("type", ""), policy.get("value", 0), policy.get("periodSeconds", 0)
    check_choice(type_, ("Percent", "Pods"), f"{path}.type", errors)
    if value <= 0:
        errors.append(invalid_value(f"{path}.value", value, "must be greater than zero"))
    if period <= 0:
        errors.append(invalid_value(f"{path}.periodSeconds", period, "must be greater than zero"))
    if period > LONGEST_PERIOD:
        why = f"must be less than or equal to {LONGEST_PERIOD}"
        errors.append(invalid_value(f"{path}.periodSeconds", period, why))


def _validate_status(new: Obj, old: Obj) -> Errors:
    errors: Errors = []
    status = new.get("status") or {}
    for member in ("currentReplicas", "desiredReplicas"):
        if status.get(member, 0) < 0:
            why = "must be greater than or equal to 0"
            errors.append(invalid_value(f"status.{member}", status[member], why))
    return errors


AUTOSCALER_RULES: Final = Rules(
    name=names.dns_subdomain,
    default=_default,
    prepare_create=_prepare_create,
    prepare_update=keep_status,
    prepare_status=keep_spec,
    validate=_validate,
    validate_status=_validate_status,
)

RULES: Final[Mapping[tuple[str, str], Rules]] = {("autoscaling", "HorizontalPodAutoscaler"): AUTOSCALER_RULES}
