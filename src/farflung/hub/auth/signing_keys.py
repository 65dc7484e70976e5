"""The keys that sign and verify tokens of ServiceAccounts.

The first key signs, and all keys verify.  So a new key can take over while tokens of the old one are still valid.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

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
from farflung.machinery.errors import Obj
from farflung.store.base import Unusable

if TYPE_CHECKING:
    from jwt.api_jws import PyJWS

PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
PublicKey = ec.EllipticCurvePublicKey | rsa.RSAPublicKey

LARGEST: Final = 32 * 1024  #: characters of a token
LARGEST_HEADER: Final = 512  #: characters of its header, which is read before it is verified
COMPACT: Final = re.compile(r"([\w-]+)\.[\w-]+\.([\w-]+)", re.ASCII)
PEM_BLOCK: Final = re.compile(rb"-----BEGIN ([A-Z ]+)-----.*?-----END \1-----", re.DOTALL)
CURVES: Final = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}
SMALLEST_RSA: Final = 2048


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

    def described(self) -> Obj:
        """As a JSON Web Key."""
        from jwt.algorithms import ECAlgorithm, RSAAlgorithm

        if isinstance(self.public, rsa.RSAPublicKey):
            key = RSAAlgorithm.to_jwk(self.public, as_dict=True)
        else:
            key = ECAlgorithm.to_jwk(self.public, as_dict=True)
        described = {name: value for name, value in key.items() if name != "key_ops"}
        return {"use": "sig", "kid": self.id, "alg": self.algorithm} | described


class SigningKeys:
    def __init__(self, private: PrivateKey, others: Sequence[PublicKey] = ()) -> None:
        """`others`: former keys, whose tokens are still valid."""
        believed = [VerificationKey.of(public) for public in (private.public_key(), *others)]
        self._private = private
        self._first = believed[0]
        self._believed = {key.id: key for key in believed}

    @classmethod
    def new(cls) -> SigningKeys:
        return cls(ec.generate_private_key(ec.SECP256R1()))

    @cached_property
    def _signatures(self) -> PyJWS:
        from jwt.api_jws import PyJWS  # loaded with the first token

        return PyJWS(algorithms=self.algorithms)

    def sign(self, claims: bytes) -> str:
        return self._signatures.encode(claims, self._private, self._first.algorithm, {"kid": self._first.id})

    def claims(self, token: str) -> bytes | None:
        """The payload of a token that one of the keys signed, or None.

        Only the canonical encoding is accepted.  The algorithm is that of the key, not of the header.
        """
        found = COMPACT.fullmatch(token) if len(token) <= LARGEST else None
        if found is None or len(found[1]) > LARGEST_HEADER or not is_canonical(found[2]):
            return None
        from jwt.exceptions import PyJWTError

        try:
            header = _decode_header(base64.urlsafe_b64decode(padded(found[1])))
            key = self._believed.get(header.kid)
            if key is None or header.alg != key.algorithm:
                return None
            claims: bytes = self._signatures.decode(token, key.public, [key.algorithm])
        except (PyJWTError, ValueError, RecursionError):
            return None
        return claims

    @property
    def algorithms(self) -> list[str]:
        return sorted({key.algorithm for key in self._believed.values()})

    def described(self) -> Obj:
        """As a JSON Web Key Set, with which clients can verify tokens."""
        return {"keys": [key.described() for key in self._believed.values()]}


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


def ensure_keys(path: Path) -> SigningKeys:
    """Read the keys from a file, or create it.  Raises Unusable for a damaged file, which is never replaced."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        key = ec.generate_private_key(ec.SECP256R1())
        write_private(path, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        return SigningKeys(key)
    try:
        return parse_keys(content)
    except (ValueError, TypeError) as error:
        raise Unusable(f"{path} is damaged ({error}): restore it, or move it away to get a new key") from None


def parse_keys(content: bytes) -> SigningKeys:
    """PEM blocks: the private key that signs, then private or public keys that verify.  Raises ValueError or
    TypeError."""
    keys = [_parse_block(block[0], block[1]) for block in PEM_BLOCK.finditer(content)]
    if not keys or not isinstance(keys[0], PrivateKey):
        raise ValueError("it must begin with a private key in PEM")
    return SigningKeys(keys[0], [key.public_key() if isinstance(key, PrivateKey) else key for key in keys[1:]])


def _parse_block(block: bytes, label: bytes) -> PrivateKey | PublicKey:
    key = load_pem_private_key(block, None) if label.endswith(b"PRIVATE KEY") else load_pem_public_key(block)
    if not isinstance(key, PrivateKey | PublicKey):
        raise ValueError("a key is neither RSA nor of an elliptic curve")
    return key


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
