"""Who sends a request: a client certificate of our CA, or a bearer token.

Tokens are kept hashed: whoever reads the file cannot log in with what is in it.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from functools import lru_cache

from cryptography import x509
from cryptography.x509.oid import NameOID

from farflung.hub.auth.user import ANONYMOUS, AUTHENTICATED, User
from farflung.hub.http.messages import Request
from farflung.machinery.errors import unauthorized


def token_hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


class Authenticator:
    def __init__(self, tokens: Mapping[str, User]) -> None:
        """`tokens`: sha256 in hex → who it is."""
        self._tokens = dict(tokens)
        self._known: dict[str, User] = {}  #: Authorization headers that were right, so that each is hashed once

    def user_of(self, request: Request) -> User:
        """Raises 401 for credentials that are wrong; no credentials at all are anonymous."""
        header = request.headers.get("authorization")
        if header is not None:
            known = self._known.get(header)
            return known if known is not None else self._token_user(header)
        if request.certificate is not None:
            return certificate_user(request.certificate)
        return ANONYMOUS

    def _token_user(self, header: str) -> User:
        scheme, _, token = header.partition(" ")
        hashed = token_hash(token.strip())
        for candidate, user in self._tokens.items():
            if scheme.lower() == "bearer" and hmac.compare_digest(candidate, hashed):
                self._known[header] = user
                return user
        raise unauthorized()


@lru_cache(maxsize=1024)
def certificate_user(der: bytes) -> User:
    """The subject of a certificate that TLS has verified: CN is the name, each O a group."""
    subject = x509.load_der_x509_certificate(der).subject
    names = [str(attribute.value) for attribute in subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    groups = [str(attribute.value) for attribute in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)]
    if not names:
        raise unauthorized()
    return User(names[0], (*groups, AUTHENTICATED))
