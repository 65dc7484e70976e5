"""Tokens of ServiceAccounts: made, and found to be good or not.

What a token says is verified once and remembered.  That its account and the object it is bound to are still there is
looked up for every request, so that deleting either revokes the token at once.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

import msgspec
import orjson

from farflung.http.messages import Request, Response
from farflung.hub.auth.signing_keys import SigningKeys
from farflung.hub.auth.static_tokens import FOREVER
from farflung.hub.request.user import AUTHENTICATED, User
from farflung.machinery import times
from farflung.store.base import Entry, Store

ISSUER: Final = "https://kubernetes.default.svc"
CACHED: Final = (("Cache-Control", "public, max-age=3600"),)
JWKS_PATH: Final = "/openid/v1/jwks"
LEGACY_ISSUER: Final = "kubernetes/serviceaccount"  #: of tokens that are in Secrets
LEGACY_NAMES: Final = {
    "cluster": "kubernetes.io/serviceaccount/clusterName",
    "namespace": "kubernetes.io/serviceaccount/namespace",
    "secret": "kubernetes.io/serviceaccount/secret.name",
    "name": "kubernetes.io/serviceaccount/service-account.name",
    "uid": "kubernetes.io/serviceaccount/service-account.uid",
}
LEEWAY: Final = 60.0  #: seconds by which clocks may differ, and that a marked object may take to go
EXTRA: Final = "authentication.kubernetes.io/"
CLUSTER: Final = EXTRA + "cluster-name"
CREDENTIAL: Final = EXTRA + "credential-id"
AUDIENCES: Final = (ISSUER,)  #: what a token is for that is to be used here
INVALIDATED: Final = "service account token has been invalidated"


class Account(msgspec.Struct, frozen=True):
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


class Reference(msgspec.Struct, frozen=True, omit_defaults=True):
    name: str = ""
    uid: str = ""


class Bound(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a token lives and dies with, besides its account.  Of a Pod's node it just tells."""

    pod: Reference | None = None
    secret: Reference | None = None
    node: Reference | None = None


class Private(Bound, frozen=True, omit_defaults=True):
    """The claim `kubernetes.io`."""

    clusterName: str = ""
    namespace: str = ""
    serviceaccount: Reference = Reference()


class Claims(msgspec.Struct, omit_defaults=True):
    iss: str = ""
    sub: str = ""
    aud: tuple[str, ...] = ()
    exp: int | None = None
    nbf: int | None = None
    iat: int | None = None
    jti: str = ""
    private: Private = msgspec.field(name="kubernetes.io", default=Private())

    @property
    def account(self) -> Account:
        private = self.private
        account = private.serviceaccount
        return Account(private.clusterName, private.namespace, account.name, account.uid)


class LegacyClaims(msgspec.Struct, omit_defaults=True, rename=LEGACY_NAMES):
    iss: str = ""
    sub: str = ""
    cluster: str = ""
    namespace: str = ""
    secret: str = ""
    name: str = ""
    uid: str = ""

    @property
    def account(self) -> Account:
        return Account(self.cluster, self.namespace, self.name, self.uid)


class Issued(msgspec.Struct):
    """All that must be known of a token to know which of the two forms it has."""

    iss: str = ""


encode: Final = msgspec.json.Encoder().encode
issuer_of: Final[Callable[[bytes], Issued]] = msgspec.json.Decoder(Issued).decode
decode: Final[Callable[[bytes], Claims]] = msgspec.json.Decoder(Claims).decode
decode_legacy: Final[Callable[[bytes], LegacyClaims]] = msgspec.json.Decoder(LegacyClaims).decode


def claims_for(
    account: Account, audiences: Sequence[str], bound: Bound, identifier: str, now: int, lifetime: int
) -> Claims:
    reference = Reference(account.name, account.uid)
    private = Private(bound.pod, bound.secret, bound.node, account.cluster, account.namespace, reference)
    return Claims(
        ISSUER, account.username, tuple(audiences), now + lifetime, nbf=now, iat=now, jti=identifier, private=private
    )


def legacy_claims_for(account: Account, secret: str) -> LegacyClaims:
    return LegacyClaims(
        LEGACY_ISSUER, account.username, account.cluster, account.namespace, secret, account.name, account.uid
    )


# --- sessions -------------------------------------------------------------------------------------


class Refused(Exception):
    """Why a token is not good, if more is to be said than that.  Never what is secret in it."""


@dataclass(slots=True)
class Bond:
    """An object that must be there for a token to be good."""

    key: str
    uid: str  #: empty: any
    gone: str  #: said when it is not there …
    marked: str  #: … when it was deleted and is still there …
    another: str  #: … when another one has its name: a text with places for both uids
    content: str = ""  #: what the Secret must have for a token, in base64; empty: anything
    seen: Entry | None = None  #: the object when it was last found to be right, not marked


@dataclass(slots=True)
class Session:
    """A token that was verified."""

    user: User
    audiences: Sequence[str]
    begins: float
    expires: float
    bonds: Sequence[Bond]


class AccountTokens:
    def __init__(
        self,
        store: Store,
        keys: SigningKeys,
        clock: Callable[[], datetime],
        new_uid: Callable[[], str],
        *,
        tell_cluster: bool = False,
    ) -> None:
        """`tell_cluster`: which of several clusters an account is in is told of its user."""
        self._store = store
        self._tell_cluster = tell_cluster
        self._clock = clock
        self._new_uid = new_uid
        self.keys = keys

    # --- making ---------------------------------------------------------------------------------

    def issue(self, account: Account, audiences: Sequence[str], lifetime: int, bound: Bound) -> str:
        now = int(self._clock().timestamp())
        return self.keys.sign(encode(claims_for(account, audiences, bound, self._new_uid(), now, lifetime)))

    def issue_legacy(self, account: Account, secret: str) -> str:
        """For a Secret, with which it lives and dies."""
        return self.keys.sign(encode(legacy_claims_for(account, secret)))

    # --- checking -------------------------------------------------------------------------------

    def verify(self, token: str) -> Session:
        """What a token says, if it is ours.  Whether it is good, and for what, remains to be seen.  Raises Refused."""
        said = self.keys.claims(token)
        if said is None:
            raise Refused
        try:
            issuer = issuer_of(said).iss
            if issuer == ISSUER:
                return self._told(session_of(decode(said)))
            if issuer == LEGACY_ISSUER:
                return self._told(legacy_session_of(decode_legacy(said), token))
        except msgspec.DecodeError:
            pass
        raise Refused

    def _told(self, session: Session) -> Session:
        if self._tell_cluster:
            user = session.user
            session.user = replace(user, extra=((CLUSTER, (user.cluster,)), *user.extra))
        return session

    def check(self, session: Session) -> None:
        """Raises Refused unless it is good now."""
        now = self._clock().timestamp()
        if now - LEEWAY > session.expires:
            raise Refused("service account token has expired")
        if now + LEEWAY < session.begins:
            raise Refused("service account token is not valid yet")
        for bond in session.bonds:
            entry = self._store.get(bond.key)
            if entry is None or entry is not bond.seen:
                examine(bond, entry, now)


def session_of(claims: Claims) -> Session:
    account, bound = claims.account, claims.private
    if claims.exp is None or not is_complete(account):
        raise Refused
    user = User(account.username, account.groups, account.uid, tuple(extra_of(claims)), account.cluster)
    bonds = [account_bond(account)]
    if bound.secret is not None:
        bonds.append(bond_of(account, "secrets", "secret", bound.secret))
    if bound.pod is not None:
        bonds.append(bond_of(account, "pods", "pod", bound.pod))
    elif bound.node is not None:
        bonds.append(bond_of(account, "nodes", "node", bound.node))
    return Session(user, claims.aud or AUDIENCES, float(claims.nbf or 0), float(claims.exp), bonds)


def legacy_session_of(claims: LegacyClaims, token: str) -> Session:
    account = claims.account
    if not claims.secret or not is_complete(account) or claims.sub != account.username:
        raise Refused
    secret = bond_of(account, "secrets", "secret", Reference(claims.secret))
    secret.content = base64.b64encode(token.encode()).decode()
    user = User(account.username, account.groups, account.uid, cluster=account.cluster)
    return Session(user, AUDIENCES, 0, FOREVER, [secret, account_bond(account)])


def is_complete(account: Account) -> bool:
    return all((account.cluster, account.namespace, account.name, account.uid))


def extra_of(claims: Claims) -> Iterator[tuple[str, tuple[str, ...]]]:
    """What else is known of whoever shows the token, in the order of the names."""
    if claims.jti:
        yield CREDENTIAL, (f"JTI={claims.jti}",)
    for kind, reference in (("node", claims.private.node), ("pod", claims.private.pod)):
        if reference is not None:
            yield f"{EXTRA}{kind}-name", (reference.name,)
            if reference.uid:
                yield f"{EXTRA}{kind}-uid", (reference.uid,)


# --- what a token depends on ----------------------------------------------------------------------


def account_bond(account: Account) -> Bond:
    return Bond(
        f"/core/serviceaccounts/{account.cluster}/{account.namespace}/{account.name}",
        account.uid,
        gone=f'serviceaccounts "{account.name}" not found',
        marked=f"service account {account.namespace}/{account.name} has been deleted",
        another="service account UID (%s) does not match claim (%s)",
    )


def bond_of(account: Account, plural: str, kind: str, reference: Reference) -> Bond:
    within = account.cluster if plural == "nodes" else f"{account.cluster}/{account.namespace}"
    key = f"/core/{plural}/{within}/{reference.name}"
    another = f"{kind} UID (%s) does not match service account {kind} ref claim (%s)"
    return Bond(key, reference.uid, gone=INVALIDATED, marked=INVALIDATED, another=another)


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


def examine(bond: Bond, entry: Entry | None, now: float) -> None:
    """Raises Refused if an object is not there any more, or is not the one that was meant."""
    bond.seen = None
    if entry is None:
        raise Refused(bond.gone)
    metadata = _decode_object(entry.value).metadata
    marked = metadata.deletionTimestamp
    if marked is not None and times.parse(marked).timestamp() < now - LEEWAY:
        raise Refused(bond.marked)
    if bond.uid and metadata.uid != bond.uid:
        raise Refused(bond.another % (metadata.uid, bond.uid))
    if bond.content:
        data = _decode_secret(entry.value).data
        if data is None or not hmac.compare_digest(data.token, bond.content):
            raise Refused("service account token does not match server's copy")
    if marked is None:
        bond.seen = entry


# --- discovery ------------------------------------------------------------------------------------


def openid_document(request: Request, path: str, keys: SigningKeys) -> Response | None:
    """None if there is no such document."""
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
