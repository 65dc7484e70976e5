"""Whom we believe, and how we prove who we are, before a word of HTTP is said."""

from __future__ import annotations

import ssl
import tempfile

from farflung.client.errors import KubeconfigError


def context(authority: bytes, *, insecure: bool = False) -> ssl.SSLContext:
    """`authority`: certificates in PEM; none: those that this machine believes.  `insecure`: believe anybody."""
    try:
        made = ssl.create_default_context(cadata=authority.decode() if authority else None)
    except (ssl.SSLError, ValueError) as error:
        raise KubeconfigError(f"the certificate-authority is no certificate: {error}") from None
    if insecure:
        made.check_hostname = False
        made.verify_mode = ssl.CERT_NONE
    return made


def present(to: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Both in PEM.  OpenSSL reads them from a file, that only we can read and that is gone at once."""
    try:
        with tempfile.NamedTemporaryFile() as file:
            file.write(certificate + b"\n" + key)
            file.flush()
            to.load_cert_chain(file.name, password=_no_password)
    except (OSError, ValueError) as error:
        raise KubeconfigError(f"the client certificate and its key cannot be used: {error}") from None


def _no_password() -> str:
    """Otherwise OpenSSL asks whoever sits at the terminal, and waits."""
    raise ValueError("the key needs a password")
