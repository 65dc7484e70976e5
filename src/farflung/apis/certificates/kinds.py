"""CertificateSigningRequests: the resource and its printer columns."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final

from farflung.apis.names import CERTIFICATES_GROUP
from farflung.apis.printers import NOTHING, age_of, described, name_of, part
from farflung.apis.resource import CHANGE, Group, Subresource, status, text
from farflung.machinery import times
from farflung.machinery.errors import Obj
from farflung.machinery.table import AGE, NAME, Printer


def request_cells(obj: Obj, now: datetime) -> list[Any]:
    spec = part(obj, "spec")
    seconds = spec.get("expirationSeconds")
    return [
        name_of(obj),
        age_of(obj, now),
        spec.get("signerName") or NOTHING,
        spec.get("username", ""),
        NOTHING if seconds is None else times.human(timedelta(seconds=seconds)),
        request_condition(part(obj, "status")),
    ]


def request_condition(status: Obj) -> str:
    types = {condition.get("type") for condition in status.get("conditions") or ()}
    words = ["Denied" if "Denied" in types else "Approved" if "Approved" in types else "Pending"]
    if "Failed" in types:
        words.append("Failed")
    if status.get("certificate"):
        words.append("Issued")
    return ",".join(words)


CERTIFICATE_SIGNING_REQUESTS: Final = Printer(
    (
        NAME,
        AGE,
        described("SignerName", "certificates.v1.CertificateSigningRequestSpec.signerName"),
        described("Requestor", "certificates.v1.CertificateSigningRequestSpec.request"),
        described("RequestedDuration", "certificates.v1.CertificateSigningRequestSpec.expirationSeconds"),
        described("Condition", "certificates.v1.CertificateSigningRequestStatus.conditions"),
    ),
    request_cells,
)


# --- Certificate signing requests -----------------------------------------------------------------

CERTIFICATES: Final = Group(CERTIFICATES_GROUP, "v1", "io.k8s.api.certificates.v1.")

RESOURCES: Final = (
    CERTIFICATES.stored(
        "certificatesigningrequests",
        "CertificateSigningRequest",
        printer=CERTIFICATE_SIGNING_REQUESTS,
        namespaced=False,
        short_names=("csr",),
        subresources=(
            Subresource("approval", CHANGE, "CertificateSigningRequest"),
            status("CertificateSigningRequest"),
        ),
        selectable={"spec.signerName": text("spec", "signerName")},
    ),
)
