"""Defaults and validation of HorizontalPodAutoscalers, in v1 or v2 by their apiVersion."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from farflung.apis.rows import (
    Always,
    Check,
    Default,
    Defaults,
    Each,
    Enum,
    ForbiddenField,
    Format,
    IfAbsent,
    IfPresent,
    InvalidIf,
    Maximum,
    Minimum,
    Pointer,
    Positive,
    Required,
    RequiredPointer,
    Struct,
    Table,
    Unless,
    Validation,
    When,
    not_negative,
)
from farflung.apis.validation import Errors, Rules, keep_spec, keep_status
from farflung.machinery import names
from farflung.machinery.errors import Obj, field_forbidden, invalid_value, required
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


def _cpu(member: str, value: Obj) -> Obj:
    return {"type": "Resource", "resource": {"name": "cpu", member: value}}


EVERYTHING: Final = {"type": "Percent", "value": 100, "periodSeconds": 15}
DEFAULTS: Final = Defaults(
    Default("spec.minReplicas", 1),
    When(
        "apiVersion",
        V1,
        Default("spec.targetCPUUtilizationPercentage", UTILIZATION),
        Default("status.currentReplicas", 0),
        Default("status.desiredReplicas", 0),
    ),
    Unless(
        "apiVersion",
        V1,
        Default(
            "spec.metrics", [_cpu("target", {"type": "Utilization", "averageUtilization": UTILIZATION})], empty=True
        ),
        Struct(
            "spec.behavior",
            Default("scaleUp", {}),
            Default("scaleDown", {}),
            Default("scaleUp.stabilizationWindowSeconds", 0),
            Default("scaleUp.policies", [{"type": "Pods", "value": 4, "periodSeconds": 15}, EVERYTHING]),
            Default("scaleDown.policies", [EVERYTHING]),
            Default("scaleUp.selectPolicy", "Max"),
            Default("scaleDown.selectPolicy", "Max"),
        ),
        Default("status.desiredReplicas", 0),
        Default("status.currentMetrics", None),
    ),
)


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


def _cpu_utilization(metrics: Iterable[Obj] | None, member: str) -> int | None:
    for metric in metrics or ():
        resource = metric.get("resource") or {}
        if resource.get("name") == "cpu":
            utilization: int | None = (resource.get(member) or {}).get("averageUtilization")
            return utilization
    return None


# --- validation -----------------------------------------------------------------------------------


def _check_least(spec: Obj, path: str, errors: Errors) -> None:
    least, most = spec.get("minReplicas"), spec.get("maxReplicas", 0)
    if least is not None and most < least:
        errors.append(invalid_value(f"{path}.maxReplicas", most, "must be greater than or equal to `minReplicas`"))


def _check_version(version: str, field: str, errors: Errors) -> None:
    if version.count("/") > 1:
        errors.append(invalid_value(field, version, f"unexpected GroupVersion string: {version}"))


def _check_positive(amount: Any, field: str, errors: Errors) -> None:
    if parse(amount).nanos <= 0:
        errors.append(invalid_value(field, amount, "must be positive"))


REFERENCE: Final = Table(
    Required("kind", Format(names.path_segment)),
    Required("name", Format(names.path_segment)),
    Always("apiVersion", _check_version),
)
TARGET: Final = Table(
    Required("type", detail="must specify a metric target type"),
    Always("type", InvalidIf(f"{{v}} not in {TARGET_TYPES!r}", "must be either Utilization, Value, or AverageValue")),
    Pointer("value", _check_positive),
    Pointer("averageValue", _check_positive),
    Pointer("averageUtilization", Positive),
)
RESOURCE_TARGET: Final = Always(
    "target",
    TARGET,
    IfAbsent(
        "averageUtilization",
        IfAbsent(
            "averageValue",
            RequiredPointer("averageUtilization", detail="must set either a target raw value or a target utilization"),
        ),
    ),
    IfPresent(
        "averageUtilization",
        Pointer("averageValue", ForbiddenField("may not set both a target raw value and a target utilization")),
    ),
    zero={},
)
METRIC: Final = Table(
    Required("metric.name", Format(names.path_segment), detail="must specify a metric name"),
    Always("target", TARGET, zero={}),
)


def a_value(detail: str) -> IfAbsent:
    """One of two targets must be set."""
    return IfAbsent("target.value", RequiredPointer("target.averageValue", detail=detail))


#: the rules of each source, in the order of validation
SOURCES: Final[Mapping[str, Table]] = {
    "object": Table(
        Always("describedObject", REFERENCE, zero={}),
        METRIC,
        a_value("must set either a target value or averageValue"),
    ),
    "external": Table(
        METRIC,
        a_value("must set either a target value for metric or a per-pod target"),
        IfPresent(
            "target.averageValue",
            Pointer("target.value", ForbiddenField("may not set both a target value for metric and a per-pod target")),
        ),
    ),
    "pods": Table(METRIC, RequiredPointer("target.averageValue", detail="must specify a positive target averageValue")),
    "resource": Table(Required("name", detail="must specify a resource name"), RESOURCE_TARGET),
    "containerResource": Table(
        Required("name", detail="must specify a resource name"),
        Required("container", Format(names.dns_label), detail="must specify a container"),
        RESOURCE_TARGET,
    ),
}


def _check_source(metric: Obj, path: str, errors: Errors) -> None:
    """Only the first source is validated."""
    present = [member for member in SOURCES if metric.get(member) is not None]
    if present:
        SOURCES[present[0]](metric[present[0]], f"{path}.{present[0]}", errors)
    expected = METRIC_MEMBERS.get(metric.get("type", ""), "")
    if expected and expected not in present:
        errors.append(required(f"{path}.{expected}", "must populate information for the given metric source"))
    for member in present if len(present) > 1 else ():
        if member != expected:
            errors.append(field_forbidden(f"{path}.{member}", "must populate the given metric source only"))


SCALING: Final = Table(
    Pointer(
        "stabilizationWindowSeconds",
        Minimum(0, "must be greater than or equal to zero"),
        Maximum(LONGEST_WINDOW, f"must be less than or equal to {LONGEST_WINDOW}"),
    ),
    Pointer("selectPolicy", Enum("Disabled", "Max", "Min")),
    Required("policies", detail="must specify at least one Policy"),
    Each(
        "policies",
        Required("type", Enum("Percent", "Pods")),
        Always("value", Minimum(1, "must be greater than zero"), zero=0),
        Always(
            "periodSeconds",
            Minimum(1, "must be greater than zero"),
            Maximum(LONGEST_PERIOD, f"must be less than or equal to {LONGEST_PERIOD}"),
            zero=0,
        ),
    ),
)
AUTOSCALER: Final = Validation(
    Pointer("spec.minReplicas", Minimum(1, "must be greater than or equal to 1")),
    Always("spec.maxReplicas", Positive, zero=0),
    Struct("spec", _check_least),
    Always(
        "spec.scaleTargetRef",
        REFERENCE,
        Unless(
            "kind",
            "ReplicationController",
            Always("apiVersion", InvalidIf("'/' not in {v}", "apiVersion must specify API group")),
        ),
        zero={},
    ),
    Each(
        "spec.metrics",
        Required("type", detail="must specify a metric source type"),
        Always("type", Enum(*METRIC_TYPES)),
        Check(_check_source),
    ),
    Pointer("spec.targetCPUUtilizationPercentage", Positive),
    Struct("spec.behavior.scaleUp", SCALING),
    Struct("spec.behavior.scaleDown", SCALING),
)

AUTOSCALER_RULES: Final = Rules(
    name=names.dns_subdomain,
    default=DEFAULTS,
    prepare_create=_prepare_create,
    prepare_update=keep_status,
    prepare_status=keep_spec,
    validate=AUTOSCALER,
    validate_status=Validation(not_negative("status.currentReplicas", "status.desiredReplicas")),
)

RULES: Final[Mapping[tuple[str, str], Rules]] = {("autoscaling", "HorizontalPodAutoscaler"): AUTOSCALER_RULES}
