"""The rules of every built-in kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from farflung.apis.admissionregistration import validation as admissionregistration
from farflung.apis.apiextensions import validation as apiextensions
from farflung.apis.builtin.kinds import MODULES
from farflung.apis.core import limits
from farflung.apis.core import validation as core
from farflung.apis.validation import Rules
from farflung.machinery import names

RULES: Final[Mapping[tuple[str, str], Rules]] = {
    kind: rules
    for module in (*MODULES, core, limits, admissionregistration, apiextensions)
    for kind, rules in vars(module).get("RULES", {}).items()
}

PLAIN: Final = Rules(name=names.dns_subdomain)


def rules_for(group: str, kind: str) -> Rules:
    """For a kind without rules of its own: its name is a DNS subdomain."""
    return RULES.get((group, kind), PLAIN)
