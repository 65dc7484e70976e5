"""Certificate signing requests."""

from __future__ import annotations

from typing import Final

from farflung.apis.certificates import printers
from farflung.apis.group import CHANGE, Group, status, text
from farflung.apis.resource import Subresource

CERTIFICATES: Final = Group("certificates.k8s.io", "v1", "io.k8s.api.certificates.v1.")

RESOURCES: Final = (
    CERTIFICATES.stored(
        "certificatesigningrequests",
        "CertificateSigningRequest",
        printer=printers.CERTIFICATE_SIGNING_REQUESTS,
        namespaced=False,
        short_names=("csr",),
        subresources=(
            Subresource("approval", CHANGE, "CertificateSigningRequest"),
            status("CertificateSigningRequest"),
        ),
        selectable={"spec.signerName": text("spec", "signerName")},
    ),
)
