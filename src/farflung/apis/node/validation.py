"""Rules of RuntimeClasses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from farflung.apis.checks import Errors, check_immutable, check_labels, check_name
from farflung.apis.core.resources import check_container_resource, check_quantity
from farflung.apis.rules import Rules
from farflung.machinery import names
from farflung.machinery.errors import FieldError, Obj

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
