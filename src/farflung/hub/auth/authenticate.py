"""Who sends a request: a client certificate of our CA, or a bearer token.

Tokens are kept hashed: whoever reads the file cannot log in with what is in it.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import lru_cache
from typing import NamedTuple

from cryptography import x509
from cryptography.x509.oid import NameOID

from farflung.hub.auth.user import ANONYMOUS, AUTHENTICATED, User
from farflung.hub.http.messages import Request
from farflung.machinery.errors import unauthorized


def token_hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


class Authenticator:
    def __init__(self, tokens: Mapping[str, User], clock: Callable[[], datetime]) -> None:
        """`tokens`: sha256 in hex → who it is."""
        self._tokens = dict(tokens)
        self._clock = clock
        self._known: dict[str, User] = {}  #: Authorization headers that were right, so that each is hashed once

    def user_of(self, request: Request) -> User:
        """Raises 401 for credentials that are wrong; no credentials at all are anonymous."""
        header = request.headers.get("authorization")
        if header is not None:
            known = self._known.get(header)
            return known if known is not None else self._token_user(header)
        if request.certificate is not None:
            return self._certificate_user(request.certificate)
        return ANONYMOUS

    def _token_user(self, header: str) -> User:
        scheme, _, rest = header.partition(" ")
        token = rest.strip()
        hashed = token_hash(token)
        for candidate, user in self._tokens.items():
            if scheme.lower() == "bearer" and hmac.compare_digest(candidate, hashed):
                self._known[f"Bearer {token}"] = user  # as everybody writes it; of other spellings there is no end
                return user
        raise unauthorized()

    def _certificate_user(self, der: bytes) -> User:
        """TLS looks at the dates once, and connections and resumed sessions outlive certificates: so look again."""
        shown = certificate_facts(der)
        if not shown.begins <= self._clock() <= shown.ends:
            raise unauthorized()
        return shown.user


class Facts(NamedTuple):
    """What a certificate says."""

    user: User
    begins: datetime
    ends: datetime


@lru_cache(maxsize=1024)
def certificate_facts(der: bytes) -> Facts:
    """Of a certificate that TLS has verified: CN is the user's name, each O a group."""
    certificate = x509.load_der_x509_certificate(der)
    subject = certificate.subject
    names = [str(attribute.value) for attribute in subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    groups = [str(attribute.value) for attribute in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)]
    if not names:
        raise unauthorized()
    user = User(names[0], (*groups, AUTHENTICATED))
    return Facts(user, certificate.not_valid_before_utc, certificate.not_valid_after_utc)
