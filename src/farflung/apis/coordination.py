"""Leases: the resource, its validation and its printer columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from farflung.apis.printers import AGE, NAME, field, printer
from farflung.apis.resource import Group
from farflung.apis.rows import ForbiddenField, Format, NotNegative, Optional, Pointer, Positive, Validation, When
from farflung.apis.validation import Rules
from farflung.machinery import names

LEASES: Final = printer("coordination.v1.Lease", NAME, field("Holder", "spec.holderIdentity"), AGE)


# --- Leases ---------------------------------------------------------------------------------------

COORDINATION: Final = Group("coordination.k8s.io", "v1", "io.k8s.api.coordination.v1.")

RESOURCES: Final = (COORDINATION.stored("leases", "Lease", printer=LEASES),)


# --- Rules of Leases ------------------------------------------------------------------------------

LEASE: Final = Validation(
    Pointer("spec.leaseDurationSeconds", Positive),
    Pointer("spec.leaseTransitions", NotNegative),
    Optional("spec.strategy", Format(names.qualified_name)),
    When(
        "spec.strategy",
        "",
        Optional("spec.preferredHolder", ForbiddenField("may only be specified if `strategy` is defined")),
    ),
)

RULES: Final[Mapping[tuple[str, str], Rules]] = {
    (COORDINATION.name, "Lease"): Rules(
        name=names.dns_subdomain,
        validate=LEASE,
        unconditional_update=False,
        create_on_update=True,
        short_finalizers=True,
    ),
}
