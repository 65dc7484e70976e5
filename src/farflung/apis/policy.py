"""PodDisruptionBudgets: the resource, its validation and its printer columns."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from farflung.apis.printers import age_of, name_of, part
from farflung.apis.resource import Group, status
from farflung.apis.validation import (
    Errors,
    Rules,
    check_at_most_everything,
    check_count_or_percent,
    check_not_negative,
    check_selector,
    check_supported,
    keep_spec,
    keep_status,
    spec_of,
)
from farflung.machinery import names
from farflung.machinery.errors import Obj, invalid_value
from farflung.machinery.table import AGE, NAME, Column, Printer


def budget_cells(obj: Obj, now: datetime) -> list[Any]:
    spec = part(obj, "spec")
    return [
        name_of(obj),
        str(spec.get("minAvailable", "N/A")),
        str(spec.get("maxUnavailable", "N/A")),
        part(obj, "status").get("disruptionsAllowed", 0),
        age_of(obj, now),
    ]


POD_DISRUPTION_BUDGETS: Final = Printer(
    (
        NAME,
        Column("Min Available", description="The minimum number of pods that must be available."),
        Column("Max Unavailable", description="The maximum number of pods that may be unavailable."),
        Column(
            "Allowed Disruptions",
            "integer",
            description="Calculated number of pods that may be disrupted at this time.",
        ),
        AGE,
    ),
    budget_cells,
)


# --- Disruption budgets ---------------------------------------------------------------------------

POLICY: Final = Group("policy", "v1", "io.k8s.api.policy.v1.")

RESOURCES: Final = (
    POLICY.stored(
        "poddisruptionbudgets",
        "PodDisruptionBudget",
        printer=POD_DISRUPTION_BUDGETS,
        short_names=("pdb",),
        subresources=(status("PodDisruptionBudget"),),
    ),
)


# --- PodDisruptionBudgets -------------------------------------------------------------------------

COUNTS: Final = ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")


def _default(budget: Obj) -> None:
    budget.setdefault("spec", {})
    status = budget.setdefault("status", {})
    for member in COUNTS:
        status.setdefault(member, 0)


def _prepare_create(budget: Obj) -> None:
    budget["status"] = dict.fromkeys(COUNTS, 0)


def _validate(budget: Obj) -> Errors:
    errors: Errors = []
    spec = spec_of(budget)
    least, most = spec.get("minAvailable"), spec.get("maxUnavailable")
    policy = spec.get("unhealthyPodEvictionPolicy")
    if least is not None and most is not None:
        shown = {
            "MinAvailable": least,
            "Selector": spec.get("selector"),
            "MaxUnavailable": most,
            "UnhealthyPodEvictionPolicy": policy,
        }
        errors.append(invalid_value("spec", shown, "minAvailable and maxUnavailable cannot be both set"))
    for member, value in (("minAvailable", least), ("maxUnavailable", most)):
        if value is not None:
            check_count_or_percent(value, f"spec.{member}", errors)
            check_at_most_everything(value, f"spec.{member}", errors)
    if policy is not None:
        choices = ("AlwaysAllow", "IfHealthyBudget")
        check_supported(policy, choices, "spec.unhealthyPodEvictionPolicy", errors)
    check_selector(spec.get("selector"), "spec.selector", errors)
    return errors


def _validate_status(new: Obj, old: Obj) -> Errors:
    errors: Errors = []
    check_not_negative(new.get("status") or {}, COUNTS, "status", errors)
    return errors


BUDGET_RULES: Final = Rules(
    name=names.dns_subdomain,
    default=_default,
    prepare_create=_prepare_create,
    prepare_update=keep_status,
    prepare_status=keep_spec,
    validate=_validate,
    validate_status=_validate_status,
    unconditional_update=False,
    generation=True,
)

RULES: Final[Mapping[tuple[str, str], Rules]] = {("policy", "PodDisruptionBudget"): BUDGET_RULES}
