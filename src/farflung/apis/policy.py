"""PodDisruptionBudgets: the resource, its validation and its printer columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from farflung.apis.printers import AGE, NAME, field, printer
from farflung.apis.resource import Group, status
from farflung.apis.rows import Check, Default, Defaults, Enum, NotNegative, Optional, Pointer, Validation, new_status
from farflung.apis.validation import (
    Errors,
    Rules,
    check_at_most_everything,
    check_count_or_percent,
    check_selector,
    keep_spec,
    keep_status,
    spec_of,
)
from farflung.machinery import names
from farflung.machinery.errors import Obj, invalid_value

POD_DISRUPTION_BUDGETS: Final = printer(
    "policy.v1.PodDisruptionBudget",
    NAME,
    field(
        "Min Available",
        "spec.minAvailable",
        "N/A",
        str,
        description="The minimum number of pods that must be available.",
    ),
    field(
        "Max Unavailable",
        "spec.maxUnavailable",
        "N/A",
        str,
        description="The maximum number of pods that may be unavailable.",
    ),
    field(
        "Allowed Disruptions",
        "status.disruptionsAllowed",
        0,
        type="integer",
        description="Calculated number of pods that may be disrupted at this time.",
    ),
    AGE,
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


# --- Rules of PodDisruptionBudgets ----------------------------------------------------------------

COUNTS: Final = ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")


def check_one_bound(budget: Obj, path: str, errors: Errors) -> None:
    spec = spec_of(budget)
    least, most = spec.get("minAvailable"), spec.get("maxUnavailable")
    if least is not None and most is not None:
        shown = {
            "MinAvailable": least,
            "Selector": spec.get("selector"),
            "MaxUnavailable": most,
            "UnhealthyPodEvictionPolicy": spec.get("unhealthyPodEvictionPolicy"),
        }
        errors.append(invalid_value("spec", shown, "minAvailable and maxUnavailable cannot be both set"))


RULES: Final[Mapping[tuple[str, str], Rules]] = {
    ("policy", "PodDisruptionBudget"): Rules(
        name=names.dns_subdomain,
        default=Defaults(Default("spec", {}), *(Default(f"status.{member}", 0) for member in COUNTS)),
        prepare_create=new_status(dict.fromkeys(COUNTS, 0)),
        prepare_update=keep_status,
        prepare_status=keep_spec,
        validate=Validation(
            Check(check_one_bound),
            Pointer("spec.minAvailable", check_count_or_percent, check_at_most_everything),
            Pointer("spec.maxUnavailable", check_count_or_percent, check_at_most_everything),
            Pointer("spec.unhealthyPodEvictionPolicy", Enum("AlwaysAllow", "IfHealthyBudget")),
            Optional("spec.selector", check_selector),
        ),
        validate_status=Validation(*(Pointer(f"status.{member}", NotNegative) for member in COUNTS)),
        unconditional_update=False,
        generation=True,
    )
}
