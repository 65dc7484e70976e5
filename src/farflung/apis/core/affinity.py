"""Validation of pod placement: node selectors, affinity, tolerations, taints, topology spread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from farflung.apis.names import NO_EXECUTE, NO_SCHEDULE
from farflung.apis.rows import (
    Always,
    Check,
    CheckFunction,
    Each,
    Enum,
    ForbiddenField,
    Format,
    IfAbsent,
    IfPresent,
    Optional,
    Pointer,
    Positive,
    Range,
    Refused,
    Required,
    Struct,
    Table,
    Unless,
    When,
)
from farflung.apis.validation import Errors, check_name, check_selector
from farflung.machinery import names
from farflung.machinery.errors import Obj, duplicate, invalid_value, required

EFFECTS: Final = (NO_SCHEDULE, "PreferNoSchedule", NO_EXECUTE)
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
NO_OPERATOR: Final = Refused("not a valid selector operator")
NO_SELECTOR: Final = ForbiddenField("must not be specified when labelSelector is not set")


# --- taints and tolerations -----------------------------------------------------------------------


def check_label_value(value: str, field: str, errors: Errors) -> None:
    """Reports all that is wrong as one error."""
    if wrong := names.label_value(value):
        errors.append(invalid_value(field, value, ";".join(wrong)))


NO_KEY: Final = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
NOT_EVICTING: Final = "effect must be 'NoExecute' when `tolerationSeconds` is set"
HAS_VALUE: Final = "value must be empty when `operator` is 'Exists'"

TOLERATION: Final = Table(
    Optional("key", Format(names.qualified_name)),
    When("key", "", Unless("operator", "Exists", Always("operator", Refused(NO_KEY)))),
    IfPresent("tolerationSeconds", Unless("effect", NO_EXECUTE, Always("effect", Refused(NOT_EVICTING)))),
    When("operator", ("", "Equal"), Optional("value", check_label_value, named="operator")),
    When("operator", "Exists", Optional("value", Refused(HAS_VALUE), named="operator")),
    Optional("operator", Enum("Equal", "Exists")),
    Optional("effect", Enum(*EFFECTS)),
)
TAINT: Final = Table(
    Always("key", Format(names.qualified_name)),
    Optional("value", check_label_value),
    Required("effect", Enum(*EFFECTS)),
)


# --- node selectors -------------------------------------------------------------------------------


def check_single(detail: str) -> CheckFunction:
    def check(values: Sequence[str] | None, field: str, errors: Errors) -> None:
        if len(values or ()) != 1:
            errors.append(required(field, detail))

    return check


NODE_LABELS: Final = Table(
    When(
        "operator", ("In", "NotIn"), Required("values", detail="must be specified when `operator` is 'In' or 'NotIn'")
    ),
    When(
        "operator",
        ("Exists", "DoesNotExist"),
        Optional("values", ForbiddenField("may not be specified when `operator` is 'Exists' or 'DoesNotExist'")),
    ),
    When(
        "operator",
        ("Gt", "Lt"),
        Always("values", check_single("must be specified single value when `operator` is 'Lt' or 'Gt'")),
    ),
    Unless("operator", ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"), Always("operator", NO_OPERATOR)),
    Always("key", Format(names.qualified_name)),
)
ONE_VALUE: Final = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
NODE_FIELDS: Final = Table(
    When("operator", ("In", "NotIn"), Always("values", check_single(ONE_VALUE))),
    Unless("operator", ("In", "NotIn"), Always("operator", NO_OPERATOR)),
    When("key", "metadata.name", Each("values", Format(names.dns_subdomain))),
    Unless("key", "metadata.name", Always("key", Refused("not a valid field selector key"))),
)
NODE_SELECTOR: Final = Table(
    Required("nodeSelectorTerms", detail="must have at least one node selector term"),
    Each(
        "nodeSelectorTerms",
        Each("matchExpressions", NODE_LABELS, Each("values", Format(names.label_value))),
        Each("matchFields", NODE_FIELDS),
    ),
)


# --- affinity -------------------------------------------------------------------------------------


def check_label_keys(term: Obj, path: str, errors: Errors) -> None:
    both = set(term.get("mismatchLabelKeys") or ())
    for at, key in enumerate(term.get("matchLabelKeys") or ()):
        if key in both:
            why = "exists in both matchLabelKeys and mismatchLabelKeys"
            errors.append(invalid_value(f"{path}.matchLabelKeys[{at}]", key, why))


POD_TERM: Final = Table(
    Optional("labelSelector", check_selector),
    Optional("namespaceSelector", check_selector),
    Each("namespaces", Format(names.dns_label), named="namespace", indexed=False),
    IfAbsent("labelSelector", Optional("matchLabelKeys", NO_SELECTOR), Optional("mismatchLabelKeys", NO_SELECTOR)),
    IfPresent(
        "labelSelector",
        Each("matchLabelKeys", Format(names.qualified_name)),
        Each("mismatchLabelKeys", Format(names.qualified_name)),
    ),
    Check(check_label_keys),
    Required("topologyKey", detail="can not be empty"),
    Always("topologyKey", Format(names.qualified_name)),
)
WEIGHT: Final = Always("weight", Range(1, 100, "must be in the range 1-100"), zero=0)
POD_TERMS: Final = Table(
    Each(REQUIRED, POD_TERM),
    Each(PREFERRED, WEIGHT, Always("podAffinityTerm", POD_TERM, zero={})),
)
AFFINITY: Final = Table(
    Struct(
        "nodeAffinity",
        Pointer(REQUIRED, NODE_SELECTOR),
        Each(
            PREFERRED,
            WEIGHT,
            Struct("preference", Each("matchExpressions", NODE_LABELS), Each("matchFields", NODE_FIELDS)),
        ),
    ),
    Struct("podAffinity", POD_TERMS),
    Struct("podAntiAffinity", POD_TERMS),
)


# --- topology spread ------------------------------------------------------------------------------


def check_domains(constraint: Obj, path: str, errors: Errors) -> None:
    domains, action = constraint.get("minDomains"), constraint.get("whenUnsatisfiable", "")
    if domains is not None and action != "DoNotSchedule":
        why = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}"
        errors.append(invalid_value(f"{path}.minDomains", domains, why))


def check_selected_keys(constraint: Obj, path: str, errors: Errors) -> None:
    selector = constraint.get("labelSelector") or {}
    selected = set(selector.get("matchLabels") or ())
    selected.update(expression.get("key", "") for expression in selector.get("matchExpressions") or ())
    for at, key in enumerate(constraint.get("matchLabelKeys") or ()):
        field = f"{path}.matchLabelKeys[{at}]"
        check_name(names.qualified_name, key, field, errors)
        if key in selected:
            errors.append(invalid_value(field, key, "exists in both matchLabelKeys and labelSelector"))


SPREAD_KEY: Final = Table(
    Always("maxSkew", Positive, zero=0),
    Required("topologyKey", detail="can not be empty"),
    Always("whenUnsatisfiable", Enum("DoNotSchedule", "ScheduleAnyway")),
)
SPREAD_OPTIONS: Final = Table(
    Pointer("minDomains", Positive),
    Check(check_domains),
    Pointer("nodeAffinityPolicy", Enum("Honor", "Ignore")),
    Pointer("nodeTaintsPolicy", Enum("Honor", "Ignore")),
    IfAbsent("labelSelector", Optional("matchLabelKeys", NO_SELECTOR)),
    Check(check_selected_keys),
    Optional("labelSelector", check_selector),
)


def check_spread(constraints: Sequence[Obj], path: str, errors: Errors) -> None:
    """Reports each constraint that a later one repeats."""
    keys = [(constraint.get("topologyKey", ""), constraint.get("whenUnsatisfiable", "")) for constraint in constraints]
    last = {key: at for at, key in enumerate(keys)}
    for at, (constraint, key) in enumerate(zip(constraints, keys, strict=True)):
        SPREAD_KEY(constraint, f"{path}[{at}]", errors)
        if last[key] != at:
            errors.append(duplicate(f"{path}[{at}].{{topologyKey, whenUnsatisfiable}}", f"{{{key[0]}, {key[1]}}}"))
        SPREAD_OPTIONS(constraint, f"{path}[{at}]", errors)
