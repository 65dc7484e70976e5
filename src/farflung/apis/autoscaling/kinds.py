"""HorizontalPodAutoscalers (v1 and v2) and Scales: resources and printer columns."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from farflung.apis.printers import NOTHING, UNKNOWN, UNSET, age_of, described, name_of, part
from farflung.apis.resource import Group, status
from farflung.machinery.errors import Obj
from farflung.machinery.table import AGE, NAME, Column, Printer

SHOWN_METRICS: Final = 2

#: type of a metric → the field that describes it, and whether its resource is named
SOURCES: Final = {
    "External": ("external", False),
    "Object": ("object", False),
    "Pods": ("pods", False),
    "Resource": ("resource", True),
    "ContainerResource": ("containerResource", True),
}


def autoscaler_cells(obj: Obj, now: datetime) -> list[Any]:
    spec, status = part(obj, "spec"), part(obj, "status")
    target = part(spec, "scaleTargetRef")
    least = spec.get("minReplicas")
    return [
        name_of(obj),
        f"{target.get('kind', '')}/{target.get('name', '')}",
        metrics_text(spec, status),
        UNSET if least is None else str(least),
        spec.get("maxReplicas", 0),
        status.get("currentReplicas", 0),
        age_of(obj, now),
    ]


def metrics_text(spec: Obj, status: Obj) -> str:
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


AUTOSCALERS: Final = Printer(
    (
        NAME,
        described("Reference", "autoscaling.v2.HorizontalPodAutoscalerSpec.scaleTargetRef"),
        described("Targets", "autoscaling.v2.HorizontalPodAutoscalerSpec.metrics"),
        described("MinPods", "autoscaling.v2.HorizontalPodAutoscalerSpec.minReplicas"),
        described("MaxPods", "autoscaling.v2.HorizontalPodAutoscalerSpec.maxReplicas"),
        described("Replicas", "autoscaling.v2.HorizontalPodAutoscalerStatus.currentReplicas"),
        AGE,
    ),
    autoscaler_cells,
)


def scale_cells(obj: Obj, now: datetime) -> list[Any]:
    return [
        name_of(obj),
        part(obj, "spec").get("replicas", 0),
        part(obj, "status").get("replicas", 0),
        age_of(obj, now),
    ]


#: of the subresource `scale`
SCALES: Final = Printer(
    (
        Column("Name", description=NAME.description),
        described("Desired", "autoscaling.v1.ScaleSpec.replicas", "integer"),
        described("Available", "autoscaling.v1.ScaleStatus.replicas", "integer"),
        AGE,
    ),
    scale_cells,
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
