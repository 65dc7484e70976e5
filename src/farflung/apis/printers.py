"""Printer columns that several groups share: columns with the API's descriptions, and cell functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from farflung.apis.definitions import definition
from farflung.machinery import times
from farflung.machinery.errors import Obj
from farflung.machinery.table import Column

NOTHING: Final = "<none>"
UNSET: Final = "<unset>"
UNKNOWN: Final = "<unknown>"

CONTAINERS: Final = Column("Containers", description="Names of each container in the template.", priority=1)
IMAGES: Final = Column("Images", description="Images referenced by each container in the template.", priority=1)


def described(name: str, of: str, type: str = "string", format: str = "", priority: int = 0) -> Column:
    """A column described as a field is: `described("Node", "core.v1.PodSpec.nodeName")`."""
    kind, _, field = of.rpartition(".")
    properties = definition(f"io.k8s.api.{kind}")["properties"]
    return Column(name, type, format, properties[field].get("description", ""), priority)


# --- of any object -------------------------------------------------------------------------------


def name_of(obj: Obj) -> str:
    name: str = (obj.get("metadata") or {}).get("name", "")
    return name


def age_of(obj: Obj, now: datetime) -> str:
    return times.age((obj.get("metadata") or {}).get("creationTimestamp"), now)


def part(obj: Obj, *path: str) -> Obj:
    """The object at a path, empty if anything on the way is absent."""
    for name in path:
        obj = obj.get(name) or {}
    return obj


def deleting(obj: Obj) -> bool:
    return bool((obj.get("metadata") or {}).get("deletionTimestamp"))


def condition_status(conditions: Iterable[Obj] | None, type: str) -> str:
    """The status of the first condition of a type, empty if there is none."""
    for condition in conditions or ():
        if condition.get("type") == type:
            status: str = condition.get("status", "")
            return status
    return ""


def moment(timestamp: str | None) -> datetime | None:
    """A timestamp of an object; None if absent or invalid."""
    try:
        return times.parse(timestamp) if timestamp else None
    except times.TimeError:
        return None


# --- labels, selectors, containers ---------------------------------------------------------------


def labels_text(labels: Mapping[str, str] | None) -> str:
    if not labels:
        return NOTHING
    return ",".join(f"{key}={labels[key]}" for key in sorted(labels))


def requirement(expression: Obj) -> str:
    """One matchExpression; raises KeyError for an operator that is none."""
    key: str = expression.get("key", "")
    operator = expression.get("operator", "")
    values = ",".join(sorted(expression.get("values") or ()))
    shapes = {
        "In": f"{key} in ({values})",
        "NotIn": f"{key} notin ({values})",
        "Exists": key,
        "DoesNotExist": f"!{key}",
    }
    return shapes[operator]


def selector_text(selector: Obj | None, empty: str = NOTHING, invalid: str = "<error>") -> str:
    """A label selector in the one-line form."""
    labels = (selector or {}).get("matchLabels") or {}
    expressions = (selector or {}).get("matchExpressions") or []
    try:
        parts = [(key, f"{key}={value}") for key, value in labels.items()]
        parts += [(expression.get("key", ""), requirement(expression)) for expression in expressions]
    except KeyError:
        return invalid
    return ",".join(text for _, text in sorted(parts, key=lambda part: part[0])) or empty


def container_cells(pod_spec: Obj) -> list[str]:
    """The names and the images of its containers, for the columns CONTAINERS and IMAGES."""
    containers = pod_spec.get("containers") or ()
    return [
        ",".join(container.get("name", "") for container in containers),
        ",".join(container.get("image", "") for container in containers),
    ]


def shortened(items: Sequence[Any], limit: int = 3, empty: str = UNSET) -> str:
    """`a,b,c + 2 more...`"""
    text = ",".join(map(str, items[:limit]))
    if len(items) > limit:
        return f"{text} + {len(items) - limit} more..."
    return text or empty


def load_balancer_text(status: Obj) -> str:
    """The addresses of a Service's or an Ingress's load balancer."""
    points = part(status, "loadBalancer").get("ingress") or ()
    return ",".join(sorted({address for point in points if (address := point.get("ip") or point.get("hostname"))}))


def boolean_text(value: bool | None) -> str:
    return UNSET if value is None else str(value)


def replica_cells(obj: Obj, now: datetime) -> list[Any]:
    """The cells of ReplicaSets and ReplicationControllers, except for the selector."""
    spec, status = part(obj, "spec"), part(obj, "status")
    counts = [spec.get("replicas", 0), status.get("replicas", 0), status.get("readyReplicas", 0)]
    return [name_of(obj), *counts, age_of(obj, now), *container_cells(part(spec, "template", "spec"))]
