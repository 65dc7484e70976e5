"""Authentication: client certificates of the hub's CA, static tokens, and tokens of ServiceAccounts."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.x509.oid import NameOID

from farflung.http.certificates import CertificateHolder
from farflung.http.messages import Request
from farflung.hub.auth.certificate_requests import CLUSTER, FORMER_CLUSTER
from farflung.hub.auth.credential_uses import CredentialUses
from farflung.hub.auth.open_streams import Permission
from farflung.hub.auth.service_account_tokens import (
    AUDIENCES,
    CREDENTIAL,
    InvalidToken,
    ServiceAccountTokens,
    VerifiedToken,
    signing_key,
)
from farflung.hub.auth.signing_keys import SigningKeys, short_id
from farflung.hub.auth.static_tokens import FOREVER, StaticToken, StaticTokens, token_hash
from farflung.hub.request.user import ANONYMOUS, AUTHENTICATED, User
from farflung.machinery.errors import go_quote, unauthorized

CACHED: Final = 4096  #: verified headers
MAX_CACHED_HEADER: Final = 4096  #: characters of a cached header
INVALID: Final = "invalid bearer token"


class TokenReviewResult(NamedTuple):
    """The status of a TokenReview."""

    user: User | None
    audiences: Sequence[str] = ()
    error: str = ""


class Authenticator:
    def __init__(
        self,
        tokens: StaticTokens,
        accounts: ServiceAccountTokens,
        certificates: CertificateHolder,
        uses: CredentialUses,
        clock: Callable[[], datetime],
    ) -> None:
        self._tokens = tokens
        self._accounts = accounts
        self._certificates = certificates
        self._uses = uses
        self._clock = clock
        #: Verified Authorization headers with their tokens, so that each is hashed or verified once.  Python's hash of
        #: a text has a random key, so the duration of a lookup reveals nothing.
        self._verified: dict[str, StaticToken | VerifiedToken] = {}
        self._issuers: dict[bytes, str] = {}  #: the authority of each certificate, by its encoding
        self._listeners: list[Callable[[Collection[str]], None]] = []
        accounts.subscribe(self._on_keys_removed)
        certificates.subscribe(self._on_authorities_changed)

    @property
    def signing_keys(self) -> SigningKeys:
        """Of ServiceAccount tokens."""
        return self._accounts.keys

    def user_of(self, request: Request) -> User:
        """Raises 401 for invalid credentials.  A request without credentials is anonymous."""
        header = request.headers.get("authorization")
        if header is not None:
            cached = self._verified.get(header)
            if cached is None:
                return self._header_user(header)
            if isinstance(cached, StaticToken) and cached.expires == FOREVER:
                return cached.user
            return self._checked(cached)
        if request.certificate is not None:
            return self._certificate_user(request.certificate)
        return ANONYMOUS

    def validity(self, request: Request) -> Permission:
        """What the credentials of an authenticated request depend on.  Raises 401."""
        header = request.headers.get("authorization")
        if header is not None:
            found = self._verified.get(header) or self._find(bearer_token(header))
            if isinstance(found, StaticToken):
                return Permission((static_tokens_of(found.user),), found.expires)
            return self._accounts.validity(found)
        if request.certificate is not None:
            ends = client_certificate(request.certificate).ends.timestamp()
            return Permission((certificate_authority(self._issuer(request.certificate)),), ends)
        return Permission(())

    def recognized_user(self, request: Request) -> User:
        """The user of credentials that were verified before, which may be invalid by now; anonymous for others.
        Costs no cryptography."""
        header = request.headers.get("authorization")
        if header is not None:
            found = self._verified.get(header)
            return ANONYMOUS if found is None else found.user
        if request.certificate is not None:
            return client_certificate(request.certificate).user
        return ANONYMOUS

    def refresh(self) -> None:
        """Read the file of static tokens if it changed."""
        changed = self._tokens.refresh()
        if changed is not None:
            self._forget_verified({static_tokens_of(user) for user in changed})

    def _on_keys_removed(self, ids: Collection[str]) -> None:
        self._forget_verified(set(map(signing_key, ids)))

    def _on_authorities_changed(self, removed: Collection[str]) -> None:
        self._issuers.clear()
        self._notify(set(map(certificate_authority, removed)))

    def _forget_verified(self, changed: Collection[str]) -> None:
        self._verified.clear()
        self._notify(changed)

    def _notify(self, changed: Collection[str]) -> None:
        for listener in self._listeners:
            listener(changed)

    def subscribe(self, listener: Callable[[Collection[str]], None]) -> None:
        """Call a listener with the dependencies of credentials that have changed and are not in the store."""
        self._listeners.append(listener)

    # --- tokens -----------------------------------------------------------------------------------

    def _header_user(self, header: str) -> User:
        token = bearer_token(header)
        try:
            found = self._find(token)
            user = self._validated(found, AUDIENCES)
        except InvalidToken:
            raise unauthorized() from None
        if len(token) <= MAX_CACHED_HEADER:
            if len(self._verified) >= CACHED:
                del self._verified[next(iter(self._verified))]
            self._verified[f"Bearer {token}"] = found  # other spellings of the header could fill the cache
        return user

    def _find(self, token: str) -> StaticToken | VerifiedToken:
        """Raises InvalidToken for a token that the hub did not issue."""
        hashed = token_hash(token)
        known = self._tokens.find(hashed)
        if known is not None:
            return known
        try:
            return self._accounts.verify(token)
        except InvalidToken:
            self.refresh()  # the token may be new
            known = self._tokens.find(hashed)
            if known is None:
                raise
            return known

    def _checked(self, found: StaticToken | VerifiedToken) -> User:
        """The user of a cached token.  Raises 401 if it is no longer valid."""
        try:
            return self._validated(found, None)
        except InvalidToken:
            raise unauthorized() from None

    def _validated(self, found: StaticToken | VerifiedToken, audiences: Sequence[str] | None) -> User:
        """Raises InvalidToken unless the token is valid now and for one of the audiences."""
        if isinstance(found, StaticToken):
            if audiences is not None and not common(AUDIENCES, audiences):
                raise InvalidToken
            if found.expires != FOREVER and found.expires <= self._clock().timestamp():
                raise InvalidToken
            return found.user
        if audiences is not None and not common(found.audiences, audiences):
            meant, asked = shown(found.audiences), shown(audiences)
            raise InvalidToken(f"token audiences {meant} is invalid for the target audiences {asked}")
        self._accounts.check(found)
        if found.key != self._accounts.keys.id:
            self._uses.note(short_id(found.key), found.user, self._clock())
        return found.user

    def review(self, token: str, audiences: Sequence[str], cluster: str) -> TokenReviewResult:
        """Review a token for a cluster.  Without audiences, for the hub's."""
        asked = audiences or AUDIENCES
        try:
            found = self._find(token)
            if isinstance(found, VerifiedToken) and found.user.cluster != cluster:
                raise InvalidToken
            user = self._validated(found, asked)
        except InvalidToken as error:
            return TokenReviewResult(None, (), f"[{INVALID}, {error}]" if str(error) else INVALID)
        return TokenReviewResult(user, common(AUDIENCES if isinstance(found, StaticToken) else found.audiences, asked))

    # --- certificates -----------------------------------------------------------------------------

    def _certificate_user(self, der: bytes) -> User:
        """TLS checks the dates and the authority only once, and connections and resumed sessions last longer."""
        shown, issuer, now = client_certificate(der), self._issuer(der), self._clock()
        if not shown.begins <= now <= shown.ends or not issuer:
            raise unauthorized()
        if issuer != self._certificates.id:
            self._uses.note(issuer, shown.user, now)
        return shown.user

    def _issuer(self, der: bytes) -> str:
        """The id of the authority that signed a certificate; empty: none that is valid."""
        known = self._issuers.get(der)
        if known is None:
            known = self._certificates.current.issuer_of(x509.load_der_x509_certificate(der))
            if len(self._issuers) >= CACHED:
                del self._issuers[next(iter(self._issuers))]
            self._issuers[der] = known
        return known


def bearer_token(header: str) -> str:
    """Raises 401."""
    scheme, _, rest = header.partition(" ")
    token = rest.strip()
    if scheme.lower() != "bearer" or not token:
        raise unauthorized()
    return token


def static_tokens_of(user: User) -> str:
    """The dependency of streams with a static token."""
    return f"static tokens of {user.name}"


def certificate_authority(authority: str) -> str:
    """The dependency of streams with a certificate that an authority signed."""
    return f"certificate authority {authority}"


def common(some: Sequence[str], others: Sequence[str]) -> list[str]:
    """The elements of the first list that are in the second."""
    wanted = frozenset(others)
    return [one for one in some if one in wanted]


def shown(audiences: Sequence[str]) -> str:
    """As Go prints a list of quoted strings."""
    return "[" + " ".join(map(go_quote, audiences)) + "]"


class ClientCertificate(NamedTuple):
    user: User
    begins: datetime
    ends: datetime


@lru_cache(maxsize=1024)
def client_certificate(der: bytes) -> ClientCertificate:
    """Read a certificate that TLS has verified: the last CN is the user's name, each O a group."""
    certificate = x509.load_der_x509_certificate(der)
    subject = certificate.subject
    names = [str(attribute.value) for attribute in subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    groups = [str(attribute.value) for attribute in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)]
    if not names:
        raise unauthorized()
    extra = ((CREDENTIAL, (f"X509SHA256={hashlib.sha256(der).hexdigest()}",)),)
    user = User(names[-1], (*groups, AUTHENTICATED), extra=extra, cluster=cluster_of(certificate))
    return ClientCertificate(user, certificate.not_valid_before_utc, certificate.not_valid_after_utc)


def cluster_of(certificate: x509.Certificate) -> str:
    """The only cluster in which a certificate is valid; empty: all clusters."""
    for one in certificate.extensions:
        if one.oid in (CLUSTER, FORMER_CLUSTER) and isinstance(one.value, x509.UnrecognizedExtension):
            return one.value.value.decode()
    return ""
