"""Client certificates of a hub's authority.  The hub itself issues them only for CertificateSigningRequests."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from farflung.http.certificates import Certificates, issue, key_pem, new_key


def issue_client_certificate(
    certificates: Certificates, common_name: str, organizations: Sequence[str], now: datetime
) -> tuple[bytes, bytes]:
    """A certificate and its key in PEM.  The common name is the user, the organizations are the groups."""
    subject = x509.Name(
        [x509.NameAttribute(NameOID.ORGANIZATION_NAME, each) for each in organizations]
        + [x509.NameAttribute(NameOID.COMMON_NAME, common_name)]
    )
    key = new_key()
    certificate = issue(certificates, subject, key, ExtendedKeyUsageOID.CLIENT_AUTH, None, now)
    return certificate.public_bytes(Encoding.PEM), key_pem(key)
