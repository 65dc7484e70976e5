"""CertificateSigningRequests: the resource and its printer columns."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from farflung.apis.names import CERTIFICATES_GROUP
from farflung.apis.printers import AGE, NAME, NOTHING, described, field, part, printer
from farflung.apis.resource import CHANGE, Group, Subresource, status, text
from farflung.machinery import times
from farflung.machinery.errors import Obj


def request_condition(request: Obj) -> str:
    status = part(request, "status")
    types = {condition.get("type") for condition in status.get("conditions") or ()}
    words = ["Denied" if "Denied" in types else "Approved" if "Approved" in types else "Pending"]
    if "Failed" in types:
        words.append("Failed")
    if status.get("certificate"):
        words.append("Issued")
    return ",".join(words)


def duration_text(seconds: int | None) -> str:
    return NOTHING if seconds is None else times.human(timedelta(seconds=seconds))


CERTIFICATE_SIGNING_REQUESTS: Final = printer(
    "certificates.v1.CertificateSigningRequest",
    NAME,
    AGE,
    field("SignerName", "spec.signerName", show=lambda name: name or NOTHING),
    described("Requestor", "spec.request", lambda request: part(request, "spec").get("username", "")),
    field("RequestedDuration", "spec.expirationSeconds", None, duration_text),
    described("Condition", "status.conditions", request_condition),
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
