"""RuntimeClasses: the resource, its validation and its printer columns."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from farflung.apis.core.resources import check_container_resource, check_quantity
from farflung.apis.printers import age_of, name_of
from farflung.apis.resource import Group
from farflung.apis.validation import Errors, Rules, check_immutable, check_labels, check_name
from farflung.machinery import names
from farflung.machinery.errors import FieldError, Obj
from farflung.machinery.table import AGE, NAME, Column, Printer


def runtime_class_cells(obj: Obj, now: datetime) -> list[Any]:
    return [name_of(obj), obj.get("handler", ""), age_of(obj, now)]


RUNTIME_CLASSES: Final = Printer((NAME, Column("Handler"), AGE), runtime_class_cells)


# --- Runtime classes ------------------------------------------------------------------------------

NODE: Final = Group("node.k8s.io", "v1", "io.k8s.api.node.v1.")

RESOURCES: Final = (NODE.stored("runtimeclasses", "RuntimeClass", printer=RUNTIME_CLASSES, namespaced=False),)


# --- Rules of RuntimeClasses ----------------------------------------------------------------------

GROUP: Final = "node.k8s.io"


def default_runtime_class(obj: Obj) -> None:
    for toleration in (obj.get("scheduling") or {}).get("tolerations") or ():
        if not toleration.get("operator"):
            toleration["operator"] = "Equal"


def validate_runtime_class(obj: Obj) -> list[FieldError]:
    errors: Errors = []
    check_name(names.dns_label, obj.get("handler", ""), "handler", errors)
    for resource, amount in ((obj.get("overhead") or {}).get("podFixed") or {}).items():
        field = f"overhead.podFixed[{resource}]"
        check_container_resource(resource, field, errors)
        check_quantity(resource, amount, field, errors)
    check_labels((obj.get("scheduling") or {}).get("nodeSelector"), "scheduling.nodeSelector", errors)
    return errors


def validate_runtime_class_update(new: Obj, old: Obj) -> list[FieldError]:
    errors: Errors = []
    check_immutable(new.get("handler"), old.get("handler"), "handler", errors)
    return errors


RULES: Final[Mapping[tuple[str, str], Rules]] = {
    (GROUP, "RuntimeClass"): Rules(
        name=names.dns_subdomain,
        default=default_runtime_class,
        validate=validate_runtime_class,
        validate_update=validate_runtime_class_update,
        unconditional_update=False,
    ),
}
