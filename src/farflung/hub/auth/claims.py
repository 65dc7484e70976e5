"""What is in the tokens of ServiceAccounts: one form for those that are asked for, and an older one for those that
are in Secrets.  Both name the cluster, because an account is nobody in any other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from farflung.hub.auth.user import AUTHENTICATED

ISSUER: Final = "https://kubernetes.default.svc"
LEGACY_ISSUER: Final = "kubernetes/serviceaccount"  #: of tokens that are in Secrets


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


LEGACY_NAMES: Final = {
    "cluster": "kubernetes.io/serviceaccount/clusterName",
    "namespace": "kubernetes.io/serviceaccount/namespace",
    "secret": "kubernetes.io/serviceaccount/secret.name",
    "name": "kubernetes.io/serviceaccount/service-account.name",
    "uid": "kubernetes.io/serviceaccount/service-account.uid",
}


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
