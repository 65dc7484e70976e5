"""PodDisruptionBudgets."""

from __future__ import annotations

from typing import Final

from farflung.apis.checks import (
    Errors,
    check_at_most_everything,
    check_count_or_percent,
    check_not_negative,
    check_selector,
    check_supported,
    keep_spec,
    keep_status,
    spec_of,
)
from farflung.apis.rules import Rules
from farflung.machinery import names
from farflung.machinery.errors import Obj, invalid_value

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
