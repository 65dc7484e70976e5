"""Rules of Leases."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from farflung.apis.checks import (
    POSITIVE,
    Errors,
    check_name,
    check_not_negative,
    check_required_name,
    spec_of,
)
from farflung.apis.rules import Rules
from farflung.machinery import names
from farflung.machinery.errors import FieldError, Obj, field_forbidden, invalid_value, required

GROUP: Final = "coordination.k8s.io"


def validate_lease(obj: Obj) -> list[FieldError]:
    errors: Errors = []
    spec = spec_of(obj)
    duration = spec.get("leaseDurationSeconds")
    if duration is not None and duration <= 0:
        errors.append(invalid_value("spec.leaseDurationSeconds", duration, POSITIVE))
    check_not_negative(spec, ("leaseTransitions",), "spec", errors)
    if strategy := spec.get("strategy"):
        check_name(names.qualified_name, strategy, "spec.strategy", errors)
    elif spec.get("preferredHolder"):
        errors.append(field_forbidden("spec.preferredHolder", "may only be specified if `strategy` is defined"))
    return errors


def validate_lease_candidate(obj: Obj) -> list[FieldError]:
    errors: Errors = []
    spec = spec_of(obj)
    check_required_name(names.dns_subdomain, spec.get("leaseName", ""), "spec.leaseName", errors)
    if not spec.get("binaryVersion"):
        errors.append(required("spec.binaryVersion"))
    check_required_name(names.qualified_name, spec.get("strategy", ""), "spec.strategy", errors)
    return errors


RULES: Final[Mapping[tuple[str, str], Rules]] = {
    (GROUP, "Lease"): Rules(
        name=names.dns_subdomain,
        validate=validate_lease,
        unconditional_update=False,
        create_on_update=True,
        short_finalizers=True,
    ),
    (GROUP, "LeaseCandidate"): Rules(
        name=names.dns_subdomain,
        validate=validate_lease_candidate,
        unconditional_update=False,
        create_on_update=True,
        short_finalizers=True,
    ),
}
