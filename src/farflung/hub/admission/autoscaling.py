"""HorizontalPodAutoscalers.

Objects arrive in v1 or v2 and are told apart by their apiVersion.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from farflung.hub.admission.fields import (
    POSITIVE,
    Errors,
    check_choice,
    check_present,
    check_required_name,
    check_selector,
    check_supported,
    keep_spec,
    keep_status,
    spec_of,
)
from farflung.hub.admission.rules import Rules
from farflung.machinery import names
from farflung.machinery.errors import Obj, field_forbidden, invalid_value, not_supported, required
from farflung.machinery.quantity import parse

V1: Final = "autoscaling/v1"
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
        target = {"type": "Utilization", "averageUtilization": UTILIZATION}
        spec["metrics"] = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]
    if (behavior := spec.get("behavior")) is not None:
        _default_behavior(behavior)
    status.setdefault("desiredReplicas", 0)
    status.setdefault("currentMetrics", None)


def _default_behavior(behavior: Obj) -> None:
    up, down = behavior.setdefault("scaleUp", {}), behavior.setdefault("scaleDown", {})
    up.setdefault("stabilizationWindowSeconds", 0)
    everything = {"type": "Percent", "value": 100, "periodSeconds": 15}
    if up.get("policies") is None:
        up["policies"] = [{"type": "Pods", "value": 4, "periodSeconds": 15}, dict(everything)]
    if down.get("policies") is None:
        down["policies"] = [everything]
    for rules in (up, down):
        rules.setdefault("selectPolicy", "Max")


def _prepare_create(autoscaler: Obj) -> None:
    if autoscaler.get("apiVersion") == V1:
        autoscaler["status"] = {"currentReplicas": 0, "desiredReplicas": 0}
    else:
        autoscaler["status"] = {"desiredReplicas": 0, "currentMetrics": None}


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
    if version.count("/") > 1:
        errors.append(invalid_value(f"{path}.apiVersion", version, f"unexpected GroupVersion string: {version}"))
    elif "/" not in version and target.get("kind") != "ReplicationController":
        errors.append(invalid_value(f"{path}.apiVersion", version, "apiVersion must specify API group"))


def _check_reference(reference: Obj, path: str, errors: Errors) -> None:
    check_required_name(names.path_segment, reference.get("kind", ""), f"{path}.kind", errors)
    check_required_name(names.path_segment, reference.get("name", ""), f"{path}.name", errors)


def _check_metric(metric: Obj, path: str, errors: Errors) -> None:
    type_ = metric.get("type", "")
    if not type_:
        errors.append(required(f"{path}.type", "must specify a metric source type"))
    elif type_ not in METRIC_TYPES:
        errors.append(not_supported(f"{path}.type", type_, METRIC_TYPES))
    expected = METRIC_MEMBERS.get(type_, "")
    for member in METRIC_MEMBERS.values():
        if metric.get(member) is not None and expected and member != expected:
            why = "must populate the given metric source only"
            errors.append(field_forbidden(f"{path}.{member}", why))
    if not expected:
        return
    source = metric.get(expected)
    if source is None:
        errors.append(required(f"{path}.{expected}", "must populate information for the given metric source"))
        return
    _check_source(expected, source, f"{path}.{expected}", errors)


def _check_source(member: str, source: Obj, path: str, errors: Errors) -> None:
    if member in ("resource", "containerResource"):
        check_present(source, "name", path, errors)
    if member == "containerResource":
        check_present(source, "container", path, errors)
    if member == "object":
        _check_reference(source.get("describedObject") or {}, f"{path}.describedObject", errors)
    if member in ("object", "pods", "external"):
        identifier = source.get("metric") or {}
        check_required_name(names.path_segment, identifier.get("name", ""), f"{path}.metric.name", errors)
        check_selector(identifier.get("selector"), f"{path}.metric.selector", errors)
    _check_metric_target(source.get("target") or {}, f"{path}.target", errors)


def _check_metric_target(target: Obj, path: str, errors: Errors) -> None:
    type_ = target.get("type", "")
    if not type_:
        errors.append(required(f"{path}.type", "must specify a metric target type"))
    elif type_ not in TARGET_TYPES:
        errors.append(invalid_value(f"{path}.type", type_, "must be either Utilization, Value, or AverageValue"))
    for member in ("value", "averageValue"):
        amount = target.get(member)
        if amount is not None and parse(amount).nanos <= 0:
            errors.append(invalid_value(f"{path}.{member}", amount, "must be positive"))
    utilization = target.get("averageUtilization")
    if utilization is not None and utilization < 1:
        errors.append(invalid_value(f"{path}.averageUtilization", utilization, POSITIVE))
    if all(target.get(member) is None for member in ("value", "averageValue", "averageUtilization")):
        errors.append(required(path, "must set either a target value, an average value or a utilization"))


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
