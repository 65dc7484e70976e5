"""The rules of every built-in kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from farflung.apis.admissionregistration import validation as registration
from farflung.apis.apiextensions import rules as definitions
from farflung.apis.apps import validation as workloads
from farflung.apis.certificates import validation as certificates
from farflung.apis.coordination import validation as coordination
from farflung.apis.core import limits
from farflung.apis.core import validation as core
from farflung.apis.discovery import validation as discovery
from farflung.apis.events import validation as events
from farflung.apis.flowcontrol import validation as flowcontrol
from farflung.apis.networking import addresses as networks
from farflung.apis.node import validation as runtimes
from farflung.apis.rbac import validation as rbac
from farflung.apis.rules import Rules
from farflung.apis.scheduling import validation as priorities
from farflung.apis.storage import validation as storage
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
