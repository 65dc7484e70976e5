"""PriorityClasses: the resource, its validation and its printer columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from farflung.apis.printers import AGE, NAME, field, printer
from farflung.apis.resource import Group
from farflung.apis.rows import Always, Check, Default, Defaults, Enum, Validation, immutable
from farflung.apis.validation import Errors, Rules
from farflung.machinery import names
from farflung.machinery.errors import Obj, field_forbidden

PRIORITY_CLASSES: Final = printer(
    "scheduling.v1.PriorityClass",
    NAME,
    field("Value", "value", 0, type="integer"),
    field("Global-Default", "globalDefault", False, type="boolean"),
    AGE,
    field("PreemptionPolicy", "preemptionPolicy"),
)


# --- Priority classes -----------------------------------------------------------------------------

SCHEDULING: Final = Group("scheduling.k8s.io", "v1", "io.k8s.api.scheduling.v1.")

RESOURCES: Final = (
    SCHEDULING.stored(
        "priorityclasses", "PriorityClass", printer=PRIORITY_CLASSES, namespaced=False, short_names=("pc",)
    ),
)


# --- Rules of PriorityClasses ---------------------------------------------------------------------

HIGHEST_OF_USERS: Final = 1_000_000_000
SYSTEM: Final = "system-"
SYSTEM_VALUES: Final[Mapping[str, int]] = {
    "system-cluster-critical": 2_000_000_000,
    "system-node-critical": 2_000_001_000,
}


def check_value(obj: Obj, path: str, errors: Errors) -> None:
    if obj["metadata"].get("name", "").startswith(SYSTEM):
        if wrong := _not_of_the_system(obj):
            detail = f"priority class names with '{SYSTEM}' prefix are reserved for system use only. error: {wrong}"
            errors.append(field_forbidden("metadata.name", detail))
    elif obj.get("value", 0) > HIGHEST_OF_USERS:
        detail = f"maximum allowed value of a user defined priority is {HIGHEST_OF_USERS}"
        errors.append(field_forbidden("value", detail))


def _not_of_the_system(obj: Obj) -> str:
    name = obj["metadata"]["name"]
    if name not in SYSTEM_VALUES:
        return f"{name} is not a known system priority class"
    if obj.get("value", 0) != SYSTEM_VALUES[name]:
        return f"value of {name} PriorityClass must be {SYSTEM_VALUES[name]}"
    return f"globalDefault of {name} PriorityClass must be false" if obj.get("globalDefault") else ""


def prepare_priority_class(obj: Obj) -> None:
    """The generation is 1 and never increases."""
    obj["metadata"]["generation"] = 1


def validate_priority_class_update(new: Obj, old: Obj) -> Errors:
    errors: Errors = []
    if new.get("value", 0) != old.get("value", 0):
        errors.append(field_forbidden("value", "may not be changed in an update."))
    return errors + immutable("preemptionPolicy")(new, old)


RULES: Final[Mapping[tuple[str, str], Rules]] = {
    (SCHEDULING.name, "PriorityClass"): Rules(
        name=names.dns_subdomain,
        default=Defaults(Default("value", 0), Default("preemptionPolicy", "PreemptLowerPriority", empty=True)),
        prepare_create=prepare_priority_class,
        validate=Validation(
            Check(check_value),
            Always("preemptionPolicy", Enum("Never", "PreemptLowerPriority")),
        ),
        validate_update=validate_priority_class_update,
    ),
}
