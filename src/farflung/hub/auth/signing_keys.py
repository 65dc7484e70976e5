"""The keys that sign and verify tokens of ServiceAccounts.

The first key signs, and all keys verify.  So a new key can take over while tokens of the old one are still valid.  Of
an old key the file has only the public part: nothing is signed with it any more.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from farflung.lib.files import write_private
from farflung.machinery import times
from farflung.machinery.errors import Obj
from farflung.store.base import Unusable

if TYPE_CHECKING:
    from jwt.api_jws import PyJWS

PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
PublicKey = ec.EllipticCurvePublicKey | rsa.RSAPublicKey

SIGNING_KEYS: Final = "service-account.key"  #: the file in the hub's directory
LARGEST: Final = 32 * 1024  #: characters of a token
LARGEST_HEADER: Final = 512  #: characters of its header, which is read before it is verified
COMPACT: Final = re.compile(r"([\w-]+)\.[\w-]+\.([\w-]+)", re.ASCII)
PEM_BLOCK: Final = re.compile(
    rb"(?:# replaced ([0-9TZ:-]+)\n)?(-----BEGIN ([A-Z ]+)-----.*?-----END \3-----)", re.DOTALL
)
CURVES: Final = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}
SMALLEST_RSA: Final = 2048
SHORT_ID: Final = 12  #: characters


class _Header(msgspec.Struct):
    alg: str
    kid: str


_decode_header = msgspec.json.Decoder(_Header).decode


@dataclass(frozen=True, slots=True)
class VerificationKey:
    """A public key that verifies tokens."""

    id: str
    algorithm: str
    public: PublicKey

    @classmethod
    def of(cls, public: PublicKey) -> VerificationKey:
        encoded = public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        return cls(unpadded(hashlib.sha256(encoded).digest()), algorithm_of(public), public)

    @property
    def short_id(self) -> str:
        return short_id(self.id)

    def described(self) -> Obj:
        """As a JSON Web Key."""
        from jwt.algorithms import ECAlgorithm, RSAAlgorithm

        if isinstance(self.public, rsa.RSAPublicKey):
            key = RSAAlgorithm.to_jwk(self.public, as_dict=True)
        else:
            key = ECAlgorithm.to_jwk(self.public, as_dict=True)
        described = {name: value for name, value in key.items() if name != "key_ops"}
        return {"use": "sig", "kid": self.id, "alg": self.algorithm} | described


class SignedClaims(NamedTuple):
    """The content of a token whose signature is valid."""

    payload: bytes
    key: str  #: the id of the key that signed it


class SigningKeys:
    def __init__(self, private: PrivateKey, others: Sequence[PublicKey] = ()) -> None:
        """`others`: former keys, whose tokens are still valid."""
        believed = [VerificationKey.of(public) for public in (private.public_key(), *others)]
        self._private = private
        self._first = believed[0]
        self._believed = {key.id: key for key in believed}
        self.id = self._first.id  #: of the key that signs

    @classmethod
    def new(cls) -> SigningKeys:
        return cls(ec.generate_private_key(ec.SECP256R1()))

    @classmethod
    def of(cls, keys: Sequence[StoredKey]) -> SigningKeys:
        first = keys[0].key
        assert isinstance(first, PrivateKey)
        return cls(first, [one.public for one in keys[1:]])

    @cached_property
    def _signatures(self) -> PyJWS:
        from jwt.api_jws import PyJWS  # loaded with the first token

        return PyJWS(algorithms=self.algorithms)

    def sign(self, claims: bytes) -> str:
        return self._signatures.encode(claims, self._private, self._first.algorithm, {"kid": self._first.id})

    @property
    def ids(self) -> frozenset[str]:
        """Of all keys."""
        return frozenset(self._believed)

    def verify(self, token: str) -> SignedClaims | None:
        """The content of a token that one of the keys signed, or None.

        Only the canonical encoding is accepted.  The algorithm is that of the key, not of the header.
        """
        header = _header_of(token)
        key = None if header is None else self._believed.get(header.kid)
        if header is None or key is None or header.alg != key.algorithm:
            return None
        from jwt.exceptions import PyJWTError

        try:
            claims: bytes = self._signatures.decode(token, key.public, [key.algorithm])
        except (PyJWTError, ValueError, RecursionError):
            return None
        return SignedClaims(claims, key.id)

    @property
    def algorithms(self) -> list[str]:
        return sorted({key.algorithm for key in self._believed.values()})

    def described(self) -> Obj:
        """As a JSON Web Key Set, with which clients can verify tokens."""
        return {"keys": [key.described() for key in self._believed.values()]}


def short_id(key: str) -> str:
    """The id of a key for administrators."""
    return base64.urlsafe_b64decode(padded(key)).hex()[:SHORT_ID]


def key_named_in(token: str) -> str:
    """The id of the key that a token names, which need not have signed it.  Empty if it is no token."""
    header = _header_of(token)
    return "" if header is None else header.kid


def _header_of(token: str) -> _Header | None:
    """None if it is not the canonical form of a token."""
    found = COMPACT.fullmatch(token) if len(token) <= LARGEST else None
    if found is None or len(found[1]) > LARGEST_HEADER or not is_canonical(found[2]):
        return None
    try:
        return _decode_header(base64.urlsafe_b64decode(padded(found[1])))
    except (ValueError, RecursionError):
        return None


def algorithm_of(public: PublicKey) -> str:
    """Raises ValueError for a weak or unsupported key."""
    if isinstance(public, rsa.RSAPublicKey):
        if public.key_size < SMALLEST_RSA:
            raise ValueError(f"an RSA key of {public.key_size} bits is too small")
        return "RS256"
    if public.curve.name not in CURVES:
        raise ValueError(f"the curve {public.curve.name} is of no use")
    return CURVES[public.curve.name]


# --- the file -------------------------------------------------------------------------------------


class StoredKey(NamedTuple):
    """A key of the file."""

    key: PrivateKey | PublicKey
    replaced: datetime | None = None  #: when another key began to sign, if that is known

    @property
    def public(self) -> PublicKey:
        return self.key.public_key() if isinstance(self.key, PrivateKey) else self.key

    @property
    def verifying(self) -> VerificationKey:
        return VerificationKey.of(self.public)

    def pem(self) -> bytes:
        """Of the public part, with the time of the replacement."""
        encoded = self.public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        return (
            encoded
            if self.replaced is None
            else f"# replaced {times.format_seconds(self.replaced)}\n".encode() + encoded
        )


def ensure_keys(path: Path) -> SigningKeys:
    """Read the keys from a file, or create it.  Raises Unusable for a damaged file, which is never replaced."""
    if not path.exists():
        write_private(path, private_pem(ec.generate_private_key(ec.SECP256R1())))
    return SigningKeys.of(read_keys(path))


def read_keys(path: Path) -> list[StoredKey]:
    """The keys of a file; the first one signs.  Raises Unusable."""
    try:
        return parse_keys(path.read_bytes())
    except (ValueError, TypeError) as error:
        raise Unusable(f"{path} is damaged ({error}): restore it, or move it away to get a new key") from None


def rotate_keys(path: Path, now: datetime, *, keep_old: bool = True) -> list[StoredKey]:
    """Sign with a new key.  Old ones still verify tokens, unless they are not kept.  Raises Unusable."""
    first, *others = read_keys(path)
    kept = [StoredKey(first.key, now), *others] if keep_old else []
    return _write_keys(path, [StoredKey(ec.generate_private_key(ec.SECP256R1())), *kept])


def revoke_keys(path: Path, ids: Collection[str]) -> list[StoredKey]:
    """Remove old keys with these ids, so that their tokens are refused.  Raises Unusable."""
    first, *others = read_keys(path)
    return _write_keys(path, [first, *(one for one in others if one.verifying.id not in ids)])


def _write_keys(path: Path, keys: list[StoredKey]) -> list[StoredKey]:
    first, *others = keys
    assert isinstance(first.key, PrivateKey)
    write_private(path, b"".join([private_pem(first.key), *(one.pem() for one in others)]))
    return keys


def private_pem(key: PrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def parse_keys(content: bytes) -> list[StoredKey]:
    """PEM blocks: the private key that signs, then private or public keys that verify.  Raises ValueError or
    TypeError."""
    keys = list(_parse_blocks(content))
    if not keys or not isinstance(keys[0].key, PrivateKey):
        raise ValueError("it must begin with a private key in PEM")
    for one in keys:
        VerificationKey.of(one.public)  # refuses weak keys
    return keys


def _parse_blocks(content: bytes) -> Iterator[StoredKey]:
    for replaced, block, label in PEM_BLOCK.findall(content):
        key = load_pem_private_key(block, None) if label.endswith(b"PRIVATE KEY") else load_pem_public_key(block)
        if not isinstance(key, PrivateKey | PublicKey):
            raise ValueError("a key is neither RSA nor of an elliptic curve")
        yield StoredKey(key, times.parse(replaced.decode()) if replaced else None)


# --- base64 ---------------------------------------------------------------------------------------


def unpadded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def padded(text: str) -> str:
    return text + "=" * (-len(text) % 4)


def is_canonical(text: str) -> bool:
    """Whether this is the only encoding of its bytes: unused bits at the end are zero."""
    try:
        return unpadded(base64.urlsafe_b64decode(padded(text))) == text
    except ValueError:
        return False
