"""HorizontalPodAutoscalers, in v1 or v2 by their apiVersion, and Scales: resources, validation and printer columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final, Protocol

from farflung.apis.printers import AGE, NAME, NOTHING, UNKNOWN, UNSET, described, field, part, printer
from farflung.apis.resource import Group, status
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
from farflung.apis.validation import NOT_NEGATIVE, Errors, Rules, keep_spec, keep_status
from farflung.machinery import names
from farflung.machinery.errors import Obj, field_forbidden, invalid, invalid_value, required
from farflung.machinery.fields.sets import Fields, path
from farflung.machinery.quantity import parse

SHOWN_METRICS: Final = 2

#: type of a metric → the field that describes it, and whether its resource is named
METRIC_FIELDS: Final = {
    "External": ("external", False),
    "Object": ("object", False),
    "Pods": ("pods", False),
    "Resource": ("resource", True),
    "ContainerResource": ("containerResource", True),
}


def target_text(target: Obj | None) -> str:
    return f"{(target or {}).get('kind', '')}/{(target or {}).get('name', '')}"


def metrics_text(autoscaler: Obj) -> str:
    spec, status = part(autoscaler, "spec"), part(autoscaler, "status")
    metrics, current = spec.get("metrics"), status.get("currentMetrics") or []
    if metrics is None and spec.get("targetCPUUtilizationPercentage") is not None:
        return processor_text(spec, status)
    if not metrics:
        return NOTHING
    shown = [
        metric_text(metric, current[index] if index < len(current) else {})
        for index, metric in enumerate(metrics[:SHOWN_METRICS])
    ]
    more = len(metrics) - len(shown)
    return ", ".join(shown) + (f" + {more} more..." if more else "")


def processor_text(spec: Obj, status: Obj) -> str:
    """The one metric of autoscaling/v1."""
    current = status.get("currentCPUUtilizationPercentage")
    seen = UNKNOWN if current is None else f"{current}%"
    return f"cpu: {seen}/{spec['targetCPUUtilizationPercentage']}%"


def metric_text(metric: Obj, status: Obj) -> str:
    source, named = METRIC_FIELDS.get(metric.get("type", ""), ("", False))
    if not source:
        return "<unknown type>"
    target, current = part(metric, source, "target"), part(status, source, "current")
    text = resource_text(target, current) if named else value_text(source, target, current)
    return f"{part(metric, source).get('name', '')}: {text}" if named else text


def value_text(source: str, target: Obj, current: Obj) -> str:
    averaged = target.get("averageValue") is not None or source == "pods"
    field = "averageValue" if averaged else "value"
    suffix = " (avg)" if averaged and source != "pods" else ""
    return f"{current.get(field, UNKNOWN)}/{target.get(field, 0)}{suffix}"


def resource_text(target: Obj, current: Obj) -> str:
    if target.get("averageValue") is not None:
        return f"{current.get('averageValue', UNKNOWN)}/{target['averageValue']}"
    return f"{percent(current, UNKNOWN)}/{percent(target, '<auto>')}"


def percent(value: Obj, absent: str) -> str:
    utilization = value.get("averageUtilization")
    return absent if utilization is None else f"{utilization}%"


AUTOSCALERS: Final = printer(
    "autoscaling.v2.HorizontalPodAutoscaler",
    NAME,
    field("Reference", "spec.scaleTargetRef", show=target_text),
    described("Targets", "spec.metrics", metrics_text),
    field("MinPods", "spec.minReplicas", None, lambda least: UNSET if least is None else str(least)),
    field("MaxPods", "spec.maxReplicas", 0),
    field("Replicas", "status.currentReplicas", 0),
    AGE,
)
#: of the subresource `scale`
SCALES: Final = printer(
    "autoscaling.v1.Scale",
    replace(NAME, format=""),
    field("Desired", "spec.replicas", 0, type="integer"),
    field("Available", "status.replicas", 0, type="integer"),
    AGE,
)


# --- the versions ----------------------------------------------------------------------------------

VERSIONS: Final = (
    Group("autoscaling", "v2", "io.k8s.api.autoscaling.v2."),
    Group("autoscaling", "v1", "io.k8s.api.autoscaling.v1."),
)

RESOURCES: Final = tuple(
    version.stored(
        "horizontalpodautoscalers",
        "HorizontalPodAutoscaler",
        printer=AUTOSCALERS,
        short_names=("hpa",),
        categories=("all",),
        subresources=(status("HorizontalPodAutoscaler"),),
        stored_as=("autoscaling", "v2"),
    )
    for version in VERSIONS
)


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


POSITIVE_AMOUNT: Final = InvalidIf(lambda amount: parse(amount).nanos <= 0, "must be positive")
REFERENCE: Final = Table(
    Required("kind", Format(names.path_segment)),
    Required("name", Format(names.path_segment)),
    Always("apiVersion", _check_version),
)
TARGET: Final = Table(
    Required("type", detail="must specify a metric target type"),
    Always("type", InvalidIf(f"{{v}} not in {TARGET_TYPES!r}", "must be either Utilization, Value, or AverageValue")),
    *(Pointer(member, POSITIVE_AMOUNT) for member in ("value", "averageValue")),
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


API_VERSION: Final = "autoscaling/v1"
KIND: Final = "Scale"
SHARED_METADATA: Final = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


class Scaling(Protocol):
    """Reads and writes the Scale of objects of a kind."""

    replicas: Fields  #: where the wanted number is

    def scale(self, obj: Obj) -> Obj:
        """An object's Scale."""

    def apply(self, obj: Obj, scale: Obj) -> None:
        """Give an object the replicas of a Scale; its resourceVersion is for the caller to compare.
        Raises a 422 for a number of replicas that cannot be."""


class BuiltinScaling:
    replicas = path("spec", "replicas")

    def __init__(self, group: str, kind: str) -> None:
        self._group = group
        self._kind = kind

    def scale(self, obj: Obj) -> Obj:
        return scale_of(obj, self._group, self._kind)

    def apply(self, obj: Obj, scale: Obj) -> None:
        apply_scale(obj, scale)


def scale_of(obj: Obj, group: str, kind: str) -> Obj:
    """The Scale of a built-in object."""
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    replicas = spec.get("replicas", 1)
    selector = spec.get("selector")
    shown: Obj = {"replicas": status.get("replicas", 0)}
    text = _labels(selector or {}) if (group, kind) == ("", "ReplicationController") else selector_text(selector)
    if text:
        shown["selector"] = text
    return a_scale(obj, replicas, shown)


def a_scale(obj: Obj, replicas: int, status: Obj) -> Obj:
    metadata = obj.get("metadata") or {}
    return {
        "kind": KIND,
        "apiVersion": API_VERSION,
        "metadata": {member: metadata[member] for member in SHARED_METADATA if member in metadata},
        "spec": {"replicas": replicas} if replicas else {},
        "status": status,
    }


def check_scale(scale: Obj) -> Errors:
    replicas = (scale.get("spec") or {}).get("replicas", 0)
    return [invalid_value("spec.replicas", replicas, NOT_NEGATIVE)] if replicas < 0 else []


def apply_scale(obj: Obj, scale: Obj) -> None:
    """Give an object the replicas of a Scale; its resourceVersion is for the caller to compare.

    Raises a 422 for a number of replicas that cannot be.
    """
    if errors := check_scale(scale):
        raise invalid("autoscaling", KIND, (obj.get("metadata") or {}).get("name", ""), errors)
    obj["spec"] = {**(obj.get("spec") or {}), "replicas": (scale.get("spec") or {}).get("replicas", 0)}


def selector_text(selector: Obj | None) -> str:
    """A label selector in the form of a query: `a=b,c in (d,e),!f`."""
    if selector is None:
        return "<none>"
    parts = [(key, f"{key}={value}") for key, value in (selector.get("matchLabels") or {}).items()]
    parts += [
        (expression.get("key", ""), _expression(expression)) for expression in selector.get("matchExpressions") or ()
    ]
    return ",".join(text for _, text in sorted(parts, key=lambda part: part[0]))


def _labels(labels: Mapping[str, str]) -> str:
    return ",".join(f"{key}={labels[key]}" for key in sorted(labels))


def _expression(expression: Obj) -> str:
    key, values = expression.get("key", ""), ",".join(sorted(expression.get("values") or ()))
    match expression.get("operator"):
        case "In":
            return f"{key} in ({values})"
        case "NotIn":
            return f"{key} notin ({values})"
        case "Exists":
            return str(key)
    return f"!{key}"
