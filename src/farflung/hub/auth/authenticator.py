"""Who sends a request: a client certificate of our CA, a token that was handed out, or one of a ServiceAccount."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.x509.oid import NameOID

from farflung.http.messages import Request
from farflung.hub.auth.certificate_requests import CLUSTER
from farflung.hub.auth.service_account_tokens import AUDIENCES, CREDENTIAL, AccountTokens, Refused, Session
from farflung.hub.auth.signing_keys import SigningKeys
from farflung.hub.auth.static_tokens import FOREVER, Known, StaticTokens, token_hash
from farflung.hub.request.user import ANONYMOUS, AUTHENTICATED, User
from farflung.machinery.errors import go_quote, unauthorized

REMEMBERED: Final = 4096  #: headers that were right
LONGEST: Final = 4096  #: characters of a header that is remembered
INVALID: Final = "invalid bearer token"


class Review(NamedTuple):
    """What is to be said of a token."""

    user: User | None
    audiences: Sequence[str] = ()
    error: str = ""


class Authenticator:
    def __init__(self, tokens: StaticTokens, accounts: AccountTokens, clock: Callable[[], datetime]) -> None:
        self._tokens = tokens
        self._accounts = accounts
        self._clock = clock
        #: Authorization headers that were right once, so that each is hashed or verified once, and whose they are.
        #: The hash of a text as a key of a dict is keyed with chance: how long a wrong one takes tells nothing.
        self._remembered: dict[str, Known | Session] = {}

    @property
    def signing_keys(self) -> SigningKeys:
        """Of ServiceAccount tokens."""
        return self._accounts.keys

    def user_of(self, request: Request) -> User:
        """Raises 401 for credentials that are wrong; no credentials at all are anonymous."""
        header = request.headers.get("authorization")
        if header is not None:
            remembered = self._remembered.get(header)
            return self._header_user(header) if remembered is None else self._checked(remembered)
        if request.certificate is not None:
            return self._certificate_user(request.certificate)
        return ANONYMOUS

    def refresh(self) -> None:
        """Follow the file of tokens."""
        if self._tokens.refresh():
            self._remembered.clear()

    # --- tokens -----------------------------------------------------------------------------------

    def _header_user(self, header: str) -> User:
        scheme, _, rest = header.partition(" ")
        token = rest.strip()
        if scheme.lower() != "bearer" or not token:
            raise unauthorized()
        try:
            found = self._find(token)
            user = self._good(found, AUDIENCES)
        except Refused:
            raise unauthorized() from None
        if len(token) <= LONGEST:
            self._remember(f"Bearer {token}", found)  # as everybody writes it; of other spellings there is no end
        return user

    def _remember(self, header: str, found: Known | Session) -> None:
        if len(self._remembered) >= REMEMBERED:
            del self._remembered[next(iter(self._remembered))]
        self._remembered[header] = found

    def _find(self, token: str) -> Known | Session:
        """Raises Refused for what is no token of ours."""
        hashed = token_hash(token)
        known = self._tokens.find(hashed)
        if known is not None:
            return known
        try:
            return self._accounts.verify(token)
        except Refused:
            self.refresh()  # perhaps it was handed out just now
            known = self._tokens.find(hashed)
            if known is None:
                raise
            return known

    def _checked(self, found: Known | Session) -> User:
        """Whose a remembered token is, if it is still good."""
        try:
            return self._good(found, None)
        except Refused:
            raise unauthorized() from None

    def _good(self, found: Known | Session, audiences: Sequence[str] | None) -> User:
        """Raises Refused unless a token is good now, and for one of the audiences."""
        if isinstance(found, Known):
            if audiences is not None and not common(AUDIENCES, audiences):
                raise Refused
            if found.expires != FOREVER and found.expires <= self._clock().timestamp():
                raise Refused
            return found.user
        if audiences is not None and not common(found.audiences, audiences):
            meant, asked = shown(found.audiences), shown(audiences)
            raise Refused(f"token audiences {meant} is invalid for the target audiences {asked}")
        self._accounts.check(found)
        return found.user

    def review(self, token: str, audiences: Sequence[str], cluster: str) -> Review:
        """What a cluster is told about a token.  Without audiences, whether it is good for the hub."""
        asked = audiences or AUDIENCES
        try:
            found = self._find(token)
            if isinstance(found, Session) and found.user.cluster != cluster:
                raise Refused
            user = self._good(found, asked)
        except Refused as refused:
            return Review(None, (), f"[{INVALID}, {refused}]" if str(refused) else INVALID)
        return Review(user, common(AUDIENCES if isinstance(found, Known) else found.audiences, asked))

    # --- certificates -----------------------------------------------------------------------------

    def _certificate_user(self, der: bytes) -> User:
        """TLS looks at the dates once, and connections and resumed sessions outlive certificates: so look again."""
        shown = certificate_facts(der)
        if not shown.begins <= self._clock() <= shown.ends:
            raise unauthorized()
        return shown.user


def common(some: Sequence[str], others: Sequence[str]) -> list[str]:
    """Those of the first that are among the second."""
    wanted = frozenset(others)
    return [one for one in some if one in wanted]


def shown(audiences: Sequence[str]) -> str:
    """As Go prints a list of quoted texts."""
    return "[" + " ".join(map(go_quote, audiences)) + "]"


class Facts(NamedTuple):
    """What a certificate says."""

    user: User
    begins: datetime
    ends: datetime


@lru_cache(maxsize=1024)
def certificate_facts(der: bytes) -> Facts:
    """Of a certificate that TLS has verified: the last CN is the user's name, each O a group."""
    certificate = x509.load_der_x509_certificate(der)
    subject = certificate.subject
    names = [str(attribute.value) for attribute in subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    groups = [str(attribute.value) for attribute in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)]
    if not names:
        raise unauthorized()
    extra = ((CREDENTIAL, (f"X509SHA256={hashlib.sha256(der).hexdigest()}",)),)
    user = User(names[-1], (*groups, AUTHENTICATED), extra=extra, cluster=cluster_of(certificate))
    return Facts(user, certificate.not_valid_before_utc, certificate.not_valid_after_utc)


def cluster_of(certificate: x509.Certificate) -> str:
    """The cluster that a certificate was asked for in, if it is good there alone."""
    try:
        value = certificate.extensions.get_extension_for_oid(CLUSTER).value
    except x509.ExtensionNotFound:
        return ""
    return value.value.decode() if isinstance(value, x509.UnrecognizedExtension) else ""
