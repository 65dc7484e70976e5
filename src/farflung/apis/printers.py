"""Printers of built-in kinds as rows: a column, its description and its cell.

    LEASES = printer("coordination.v1.Lease", NAME, field("Holder", "spec.holderIdentity"), AGE)

A `field` shows the value at a path, and is described as the API describes that field.  A `described` column shows
another value of the object under that description, a `column` has a description of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from farflung.apis.definitions import definition
from farflung.machinery import table, times
from farflung.machinery.errors import Obj
from farflung.machinery.table import Column, Printer

NOTHING: Final = "<none>"
UNSET: Final = "<unset>"
UNKNOWN: Final = "<unknown>"

API: Final = "io.k8s.api."


@dataclass(frozen=True, slots=True)
class PrinterRow:
    name: str
    cell: Callable[[Obj, datetime], Any]  #: (object, now) → the value
    path: str = ""  #: of the field that has its description
    description: str = ""
    type: str = "string"
    format: str = ""
    priority: int = 0

    def column(self, kind: str) -> Column:
        description = self.description or describe_field(kind, self.path)
        return Column(self.name, self.type, self.format, description, self.priority)


def describe_field(kind: str, path: str) -> str:
    """What the API says of a field: `describe_field("core.v1.Pod", "spec.nodeName")`."""
    name, found = f"{API}{kind}", {}
    for member in filter(None, path.split(".")):
        found = definition(name)["properties"][member]
        name = found.get("$ref", "").rpartition("/")[2]
    return str(found.get("description", ""))


def field(
    name: str, path: str, otherwise: Any = "", show: Callable[[Any], Any] | None = None, **look: Any
) -> PrinterRow:
    """The value at a path, or a function of it; `otherwise`: the value of an absent field.  `look`: type, format,
    priority and description of the column."""
    *holders, last = path.split(".")

    def cell(obj: Obj, now: datetime) -> Any:
        found = part(obj, *holders).get(last, otherwise)
        return found if show is None else show(found)

    return PrinterRow(name, cell, path, **look)


def no_cell(obj: Obj) -> None:
    """Of a row in `columns`: the kind has one function for all cells."""


def described(name: str, path: str, cell: Callable[[Obj], Any] = no_cell, **look: Any) -> PrinterRow:
    return PrinterRow(name, lambda obj, now: cell(obj), path, **look)


def column(name: str, description: str, cell: Callable[[Obj], Any] = no_cell, **look: Any) -> PrinterRow:
    return PrinterRow(name, lambda obj, now: cell(obj), description=description, **look)


def printer(kind: str, *rows: PrinterRow) -> Printer:
    """`kind`: of the API, as `core.v1.ConfigMap`."""
    cells = [row.cell for row in rows]
    return Printer(columns(kind, *rows), lambda obj, now: [cell(obj, now) for cell in cells])


def columns(kind: str, *rows: PrinterRow) -> tuple[Column, ...]:
    return tuple(row.column(kind) for row in rows)


# --- of any object -------------------------------------------------------------------------------


def name_of(obj: Obj) -> str:
    name: str = (obj.get("metadata") or {}).get("name", "")
    return name


def age_of(obj: Obj, now: datetime) -> str:
    return times.age((obj.get("metadata") or {}).get("creationTimestamp"), now)


NAME: Final = column("Name", table.NAME.description, name_of, format="name")
AGE: Final = PrinterRow("Age", age_of, description=table.AGE.description)


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


def containers(path: str, priority: int = 1) -> tuple[PrinterRow, PrinterRow]:
    """The names and the images of the containers of a pod spec."""

    def listed(member: str) -> Callable[[Obj], str]:
        return lambda obj: ",".join(one.get(member, "") for one in part(obj, *path.split(".")).get("containers") or ())

    names, images = "Names of each container in the template.", "Images referenced by each container in the template."
    return (
        column("Containers", names, listed("name"), priority=priority),
        column("Images", images, listed("image"), priority=priority),
    )


def shortened(items: Sequence[Any], limit: int = 3, empty: str = UNSET) -> str:
    """`a,b,c + 2 more...`"""
    text = ",".join(map(str, items[:limit]))
    if len(items) > limit:
        return f"{text} + {len(items) - limit} more..."
    return text or empty


def load_balancer_text(obj: Obj) -> str:
    """The addresses of a Service's or an Ingress's load balancer."""
    points = part(obj, "status", "loadBalancer").get("ingress") or ()
    return ",".join(sorted({address for point in points if (address := point.get("ip") or point.get("hostname"))}))


def boolean_text(value: bool | None) -> str:
    return UNSET if value is None else str(value)


TEMPLATE_CONTAINERS: Final = containers("spec.template.spec")
#: of ReplicaSets and ReplicationControllers
REPLICAS: Final = (
    field("Desired", "spec.replicas", 0, type="integer"),
    field("Current", "status.replicas", 0, type="integer"),
    field("Ready", "status.readyReplicas", 0, type="integer"),
)
