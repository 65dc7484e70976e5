"""HorizontalPodAutoscalers (v1 and v2) and Scales: resources and printer columns."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from farflung.apis.printers import AGE, NAME, NOTHING, UNKNOWN, UNSET, described, field, part, printer
from farflung.apis.resource import Group, status
from farflung.machinery.errors import Obj

SHOWN_METRICS: Final = 2

#: type of a metric → the field that describes it, and whether its resource is named
SOURCES: Final = {
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
    source, named = SOURCES.get(metric.get("type", ""), ("", False))
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
