"""Tokens of ServiceAccounts: issuing and verification.

The signature of a token is verified once, then the token is cached.  Each request checks that its ServiceAccount and
bound object still exist, so that deleting either revokes the token at once.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

import msgspec
import orjson

from farflung.http.messages import Request, Response
from farflung.hub.auth.open_streams import Permission
from farflung.hub.auth.signing_keys import SigningKeys, key_named_in
from farflung.hub.auth.static_tokens import FOREVER
from farflung.hub.request.user import AUTHENTICATED, User
from farflung.machinery import times
from farflung.store.base import Entry, Store

ISSUER: Final = "https://kubernetes.default.svc"
CACHED: Final = (("Cache-Control", "public, max-age=3600"),)
JWKS_PATH: Final = "/openid/v1/jwks"
LEGACY_ISSUER: Final = "kubernetes/serviceaccount"  #: of tokens in Secrets
LEGACY_NAMES: Final = {
    "cluster": "kubernetes.io/serviceaccount/clusterName",
    "namespace": "kubernetes.io/serviceaccount/namespace",
    "secret": "kubernetes.io/serviceaccount/secret.name",
    "name": "kubernetes.io/serviceaccount/service-account.name",
    "uid": "kubernetes.io/serviceaccount/service-account.uid",
}
LEEWAY: Final = 60.0  #: seconds by which clocks may differ, and for which a terminating object still counts
EXTRA: Final = "authentication.kubernetes.io/"
CLUSTER: Final = EXTRA + "cluster-name"
CREDENTIAL: Final = EXTRA + "credential-id"
AUDIENCES: Final = (ISSUER,)  #: the default audiences of tokens
INVALIDATED: Final = "service account token has been invalidated"


class ServiceAccount(msgspec.Struct, frozen=True):
    cluster: str
    namespace: str
    name: str
    uid: str

    @property
    def username(self) -> str:
        return f"system:serviceaccount:{self.namespace}:{self.name}"

    @property
    def groups(self) -> tuple[str, ...]:
        return "system:serviceaccounts", f"system:serviceaccounts:{self.namespace}", AUTHENTICATED


class ObjectClaim(msgspec.Struct, frozen=True, omit_defaults=True):
    name: str = ""
    uid: str = ""


class BoundObjects(msgspec.Struct, frozen=True, omit_defaults=True):
    """The objects that a token is bound to, besides its account.  The node of a bound Pod is only informative."""

    pod: ObjectClaim | None = None
    secret: ObjectClaim | None = None
    node: ObjectClaim | None = None


class KubernetesClaim(BoundObjects, frozen=True, omit_defaults=True):
    """The claim `kubernetes.io`."""

    clusterName: str = ""
    namespace: str = ""
    serviceaccount: ObjectClaim = ObjectClaim()


class Claims(msgspec.Struct, omit_defaults=True):
    iss: str = ""
    sub: str = ""
    aud: tuple[str, ...] = ()
    exp: int | None = None
    nbf: int | None = None
    iat: int | None = None
    jti: str = ""
    private: KubernetesClaim = msgspec.field(name="kubernetes.io", default=KubernetesClaim())

    @property
    def account(self) -> ServiceAccount:
        private = self.private
        account = private.serviceaccount
        return ServiceAccount(private.clusterName, private.namespace, account.name, account.uid)


class LegacyClaims(msgspec.Struct, omit_defaults=True, rename=LEGACY_NAMES):
    iss: str = ""
    sub: str = ""
    cluster: str = ""
    namespace: str = ""
    secret: str = ""
    name: str = ""
    uid: str = ""

    @property
    def account(self) -> ServiceAccount:
        return ServiceAccount(self.cluster, self.namespace, self.name, self.uid)


class IssuerClaim(msgspec.Struct):
    """The claim that tells the two formats apart."""

    iss: str = ""


encode: Final = msgspec.json.Encoder().encode
issuer_of: Final[Callable[[bytes], IssuerClaim]] = msgspec.json.Decoder(IssuerClaim).decode
decode: Final[Callable[[bytes], Claims]] = msgspec.json.Decoder(Claims).decode
decode_legacy: Final[Callable[[bytes], LegacyClaims]] = msgspec.json.Decoder(LegacyClaims).decode


def claims_for(
    account: ServiceAccount, audiences: Sequence[str], bound: BoundObjects, identifier: str, now: int, lifetime: int
) -> Claims:
    reference = ObjectClaim(account.name, account.uid)
    private = KubernetesClaim(bound.pod, bound.secret, bound.node, account.cluster, account.namespace, reference)
    return Claims(
        ISSUER, account.username, tuple(audiences), now + lifetime, nbf=now, iat=now, jti=identifier, private=private
    )


def legacy_claims_for(account: ServiceAccount, secret: str) -> LegacyClaims:
    return LegacyClaims(
        LEGACY_ISSUER, account.username, account.cluster, account.namespace, secret, account.name, account.uid
    )


# --- verified tokens ------------------------------------------------------------------------------


class InvalidToken(Exception):
    """The reason why a token is invalid, or empty.  Never contains secrets."""


@dataclass(slots=True)
class RequiredObject:
    """An object that must exist for a token to be valid."""

    key: str
    uid: str  #: empty: any
    missing: str  #: the error if it does not exist …
    terminating: str  #: … if it was deleted and still exists …
    replaced: str  #: … if another object has its name: a format for both uids
    content: str = ""  #: the token that the Secret must contain, in base64; empty: any
    verified: Entry | None = None  #: the entry that passed the last check, unless it is terminating


@dataclass(slots=True)
class VerifiedToken:
    """A token whose signature is valid."""

    key: str  #: the id of the key that signed it
    user: User
    audiences: Sequence[str]
    begins: float
    expires: float
    required: Sequence[RequiredObject]


class ServiceAccountTokens:
    def __init__(
        self,
        store: Store,
        keys: SigningKeys,
        clock: Callable[[], datetime],
        new_uid: Callable[[], str],
        *,
        show_cluster: bool = False,
    ) -> None:
        """`show_cluster`: add the cluster of the account to the extra fields of its user."""
        self._store = store
        self._show_cluster = show_cluster
        self._clock = clock
        self._new_uid = new_uid
        self.keys = keys
        self._listeners: list[Callable[[Collection[str]], None]] = []

    # --- keys -------------------------------------------------------------------------------------

    def replace_keys(self, keys: SigningKeys) -> None:
        """Sign and verify with these keys."""
        removed = self.keys.ids - keys.ids
        self.keys = keys
        if removed:
            for listener in self._listeners:
                listener(removed)

    def subscribe(self, listener: Callable[[Collection[str]], None]) -> None:
        """Call a listener with the ids of keys whose tokens are no longer valid."""
        self._listeners.append(listener)

    def is_revoked(self, token: str) -> bool:
        """Whether a token names a key that is no longer valid.  False for a text that is not a token."""
        return key_named_in(token) not in ("", *self.keys.ids)

    # --- issuing ----------------------------------------------------------------------------------

    def issue(self, account: ServiceAccount, audiences: Sequence[str], lifetime: int, bound: BoundObjects) -> str:
        now = int(self._clock().timestamp())
        return self.keys.sign(encode(claims_for(account, audiences, bound, self._new_uid(), now, lifetime)))

    def issue_legacy(self, account: ServiceAccount, secret: str) -> str:
        """For a Secret of the type kubernetes.io/service-account-token."""
        return self.keys.sign(encode(legacy_claims_for(account, secret)))

    # --- verification -----------------------------------------------------------------------------

    def verify(self, token: str) -> VerifiedToken:
        """Verify the signature of a token.  Raises InvalidToken.  Its dates and objects are checked by `check`."""
        signed = self.keys.verify(token)
        if signed is None:
            raise InvalidToken
        try:
            issuer = issuer_of(signed.payload).iss
            if issuer == ISSUER:
                return self._with_cluster(verified_token(decode(signed.payload), signed.key))
            if issuer == LEGACY_ISSUER:
                return self._with_cluster(verified_legacy_token(decode_legacy(signed.payload), signed.key, token))
        except msgspec.DecodeError:
            pass
        raise InvalidToken

    def _with_cluster(self, token: VerifiedToken) -> VerifiedToken:
        if self._show_cluster:
            user = token.user
            token.user = replace(user, extra=((CLUSTER, (user.cluster,)), *user.extra))
        return token

    def check(self, token: VerifiedToken) -> None:
        """Raises InvalidToken unless the token is valid now."""
        now = self._clock().timestamp()
        if now - LEEWAY > token.expires:
            raise InvalidToken("service account token has expired")
        if now + LEEWAY < token.begins:
            raise InvalidToken("service account token is not valid yet")
        for required in token.required:
            entry = self._store.get(required.key)
            if entry is None or entry is not required.verified:
                check_required(required, entry, now)

    def validity(self, token: VerifiedToken) -> Permission:
        """Until when a valid token stays valid, unless its objects change."""
        ends = [token.expires + LEEWAY]
        for required in token.required:
            entry = None if required.verified is not None else self._store.get(required.key)
            deleted = _decode_object(entry.value).metadata.deletionTimestamp if entry is not None else None
            if deleted is not None:
                ends.append(times.parse(deleted).timestamp() + LEEWAY)
        return Permission([signing_key(token.key), *(required.key for required in token.required)], min(ends))


def signing_key(key: str) -> str:
    """The dependency of streams with a token that a key signed."""
    return f"signing key {key}"


def verified_token(claims: Claims, key: str) -> VerifiedToken:
    account, bound = claims.account, claims.private
    if claims.exp is None or not is_complete(account):
        raise InvalidToken
    user = User(account.username, account.groups, account.uid, tuple(extra_of(claims)), account.cluster)
    required = [required_account(account)]
    if bound.secret is not None:
        required.append(required_object(account, "secrets", "secret", bound.secret))
    if bound.pod is not None:
        required.append(required_object(account, "pods", "pod", bound.pod))
    elif bound.node is not None:
        required.append(required_object(account, "nodes", "node", bound.node))
    return VerifiedToken(key, user, claims.aud or AUDIENCES, float(claims.nbf or 0), float(claims.exp), required)


def verified_legacy_token(claims: LegacyClaims, key: str, token: str) -> VerifiedToken:
    account = claims.account
    if not claims.secret or not is_complete(account) or claims.sub != account.username:
        raise InvalidToken
    secret = required_object(account, "secrets", "secret", ObjectClaim(claims.secret))
    secret.content = base64.b64encode(token.encode()).decode()
    user = User(account.username, account.groups, account.uid, cluster=account.cluster)
    return VerifiedToken(key, user, AUDIENCES, 0, FOREVER, [secret, required_account(account)])


def is_complete(account: ServiceAccount) -> bool:
    return all((account.cluster, account.namespace, account.name, account.uid))


def extra_of(claims: Claims) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The extra fields of the token's user, ordered by name."""
    if claims.jti:
        yield CREDENTIAL, (f"JTI={claims.jti}",)
    for kind, reference in (("node", claims.private.node), ("pod", claims.private.pod)):
        if reference is not None:
            yield f"{EXTRA}{kind}-name", (reference.name,)
            if reference.uid:
                yield f"{EXTRA}{kind}-uid", (reference.uid,)


# --- required objects -----------------------------------------------------------------------------


def required_account(account: ServiceAccount) -> RequiredObject:
    return RequiredObject(
        f"/core/serviceaccounts/{account.cluster}/{account.namespace}/{account.name}",
        account.uid,
        missing=f'serviceaccounts "{account.name}" not found',
        terminating=f"service account {account.namespace}/{account.name} has been deleted",
        replaced="service account UID (%s) does not match claim (%s)",
    )


def required_object(account: ServiceAccount, plural: str, kind: str, reference: ObjectClaim) -> RequiredObject:
    within = account.cluster if plural == "nodes" else f"{account.cluster}/{account.namespace}"
    key = f"/core/{plural}/{within}/{reference.name}"
    replaced = f"{kind} UID (%s) does not match service account {kind} ref claim (%s)"
    return RequiredObject(key, reference.uid, missing=INVALIDATED, terminating=INVALIDATED, replaced=replaced)


class _Metadata(msgspec.Struct, gc=False):
    uid: str = ""
    deletionTimestamp: str | None = None


class _Object(msgspec.Struct, gc=False):
    metadata: _Metadata


class _Data(msgspec.Struct, gc=False):
    token: str = ""


class _Secret(msgspec.Struct, gc=False):
    data: _Data | None = None


_decode_object: Final = msgspec.json.Decoder(_Object).decode
_decode_secret: Final = msgspec.json.Decoder(_Secret).decode


def check_required(required: RequiredObject, entry: Entry | None, now: float) -> None:
    """Raises InvalidToken if the object does not exist, is terminating, or is another one."""
    required.verified = None
    if entry is None:
        raise InvalidToken(required.missing)
    metadata = _decode_object(entry.value).metadata
    deleted = metadata.deletionTimestamp
    if deleted is not None and times.parse(deleted).timestamp() < now - LEEWAY:
        raise InvalidToken(required.terminating)
    if required.uid and metadata.uid != required.uid:
        raise InvalidToken(required.replaced % (metadata.uid, required.uid))
    if required.content:
        data = _decode_secret(entry.value).data
        if data is None or not hmac.compare_digest(data.token, required.content):
            raise InvalidToken("service account token does not match server's copy")
    if deleted is None:
        required.verified = entry


# --- discovery ------------------------------------------------------------------------------------


def openid_document(request: Request, path: str, keys: SigningKeys) -> Response | None:
    """None for other paths."""
    match path.removesuffix("/"):
        case "/.well-known/openid-configuration":
            host = request.headers.get("host", "localhost")
            document = {
                "issuer": ISSUER,
                "jwks_uri": f"https://{host}{JWKS_PATH}",
                "response_types_supported": ["id_token"],
                "subject_types_supported": ["public"],
                "id_token_signing_alg_values_supported": keys.algorithms,
            }
            return Response(200, orjson.dumps(document), "application/json", CACHED)
        case "/openid/v1/jwks":
            return Response(200, orjson.dumps(keys.described()), "application/jwk-set+json", CACHED)
    return None
