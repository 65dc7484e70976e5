"""Leases: the resource, its validation and its printer columns."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from farflung.apis.printers import age_of, described, name_of, part
from farflung.apis.resource import Group
from farflung.apis.validation import (
    POSITIVE,
    Errors,
    Rules,
    check_name,
    check_not_negative,
    check_required_name,
    spec_of,
)
from farflung.machinery import names
from farflung.machinery.errors import FieldError, Obj, field_forbidden, invalid_value, required
from farflung.machinery.table import AGE, NAME, Printer


def lease_cells(obj: Obj, now: datetime) -> list[Any]:
    return [name_of(obj), part(obj, "spec").get("holderIdentity", ""), age_of(obj, now)]


LEASES: Final = Printer((NAME, described("Holder", "coordination.v1.LeaseSpec.holderIdentity"), AGE), lease_cells)


# --- Leases ---------------------------------------------------------------------------------------

COORDINATION: Final = Group("coordination.k8s.io", "v1", "io.k8s.api.coordination.v1.")

RESOURCES: Final = (COORDINATION.stored("leases", "Lease", printer=LEASES),)


# --- Rules of Leases ------------------------------------------------------------------------------

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
