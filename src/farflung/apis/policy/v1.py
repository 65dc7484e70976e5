"""Disruption budgets."""

from __future__ import annotations

from typing import Final

from farflung.apis.group import Group, status
from farflung.apis.policy import printers

POLICY: Final = Group("policy", "v1", "io.k8s.api.policy.v1.")

RESOURCES: Final = (
    POLICY.stored(
        "poddisruptionbudgets",
        "PodDisruptionBudget",
        printer=printers.POD_DISRUPTION_BUDGETS,
        short_names=("pdb",),
        subresources=(status("PodDisruptionBudget"),),
    ),
)
