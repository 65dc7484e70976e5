"""The rules of every built-in kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from farflung.hub.admission import (
    certificates,
    coordination,
    core,
    discovery,
    events,
    flowcontrol,
    limits,
    networks,
    priorities,
    rbac,
    registration,
    runtimes,
    storage,
    workloads,
)
from farflung.hub.admission.definitions import rules as definitions
from farflung.hub.admission.rules import Rules
from farflung.machinery import names

RULES: Final[Mapping[tuple[str, str], Rules]] = {
    ("apiregistration.k8s.io", "APIService"): Rules(
        name=names.dns_subdomain,
        unconditional_update=False,
        warnings=lambda new, old: ["APIServices are stored, but this server serves its own kinds only"],
    ),
    **core.RULES,
    **limits.RULES,
    **discovery.RULES,
    **events.RULES,
    **rbac.RULES,
    **coordination.RULES,
    **certificates.RULES,
    **registration.RULES,
    **definitions.RULES,
    **storage.RULES,
    **priorities.RULES,
    **networks.RULES,
    **flowcontrol.RULES,
    **runtimes.RULES,
    **workloads.RULES,
}

PLAIN: Final = Rules(name=names.dns_subdomain)


def rules_for(group: str, kind: str) -> Rules:
    """A kind that has no rules of its own is named by a DNS subdomain, and that is all."""
    return RULES.get((group, kind), PLAIN)
