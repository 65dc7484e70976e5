"""The rules of every built-in kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from farflung.apis import (
    apiregistration,
    autoscaling,
    certificates,
    coordination,
    discovery,
    flowcontrol,
    networking,
    policy,
    rbac,
    scheduling,
    storage,
)
from farflung.apis.admissionregistration import validation as admissionregistration
from farflung.apis.apiextensions import validation as apiextensions
from farflung.apis.core import events, limits, runtime_classes
from farflung.apis.core import validation as core
from farflung.apis.validation import Rules
from farflung.apis.workloads import apps, batch
from farflung.machinery import names

RULES: Final[Mapping[tuple[str, str], Rules]] = {
    **core.RULES,
    **limits.RULES,
    **admissionregistration.RULES,
    **apiextensions.RULES,
    **apiregistration.RULES,
    **apps.RULES,
    **autoscaling.RULES,
    **batch.RULES,
    **certificates.RULES,
    **coordination.RULES,
    **discovery.RULES,
    **events.RULES,
    **flowcontrol.RULES,
    **networking.RULES,
    **runtime_classes.RULES,
    **policy.RULES,
    **rbac.RULES,
    **scheduling.RULES,
    **storage.RULES,
}

PLAIN: Final = Rules(name=names.dns_subdomain)


def rules_for(group: str, kind: str) -> Rules:
    """For a kind without rules of its own: its name is a DNS subdomain."""
    return RULES.get((group, kind), PLAIN)
