"""Disruption budgets."""

from __future__ import annotations

from typing import Final

from farflung.apis.group import Group, status

POLICY: Final = Group("policy", "v1", "io.k8s.api.policy.v1.")

RESOURCES: Final = (
    POLICY.stored(
        "poddisruptionbudgets",
        "PodDisruptionBudget",
        short_names=("pdb",),
        subresources=(status("PodDisruptionBudget"),),
    ),
)
