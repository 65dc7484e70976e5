"""Envelope encryption with AES-GCM: a key encrypts data keys, and a data key encrypts values.

An envelope has the id of the key, the encrypted data key, a random nonce and the encrypted value.  It can only be
opened with the context that it was sealed with, so it is worth nothing in another place.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Sequence
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_BYTES: Final = 32
ID_BYTES: Final = 8
NONCE_BYTES: Final = 12
WRAPPED_BYTES: Final = NONCE_BYTES + KEY_BYTES + 16
HEAD_BYTES: Final = ID_BYTES + WRAPPED_BYTES
MAX_VALUES: Final = 1 << 30  #: of one data key: random nonces must not repeat


class UnknownKeyError(Exception):
    """An envelope was sealed with another key."""

    def __init__(self, key_id: str) -> None:
        super().__init__(f"it is encrypted with the key {key_id}, which is not there")
        self.key_id = key_id


class ForgedEnvelopeError(Exception):
    """An envelope was changed, or was sealed with another context."""


def new_key() -> bytes:
    return os.urandom(KEY_BYTES)


def id_of(key: bytes) -> str:
    """Names a key and reveals nothing of it."""
    return hmac.digest(key, b"farflung key id", "sha256")[:ID_BYTES].hex()


def key_id_of(envelope: bytes) -> str:
    return envelope[:ID_BYTES].hex()


class KeyRing:
    """Keys of which the first one seals, and all open.  Every ring seals with a new data key.  `seal` may be called by
    one thread at a time, `open` by any."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        """`keys`: at least one, of KEY_BYTES each."""
        self._keys = {bytes.fromhex(id_of(key)): AESGCM(key) for key in keys}
        self._first = bytes.fromhex(id_of(keys[0]))
        self._data_keys: dict[bytes, AESGCM] = {}  #: by the head of their envelopes
        self._sealed = MAX_VALUES
        self.ids: Final = [one.hex() for one in self._keys]
        self.first_id: Final = self._first.hex()

    def seal(self, value: bytes, context: bytes) -> bytes:
        if self._sealed == MAX_VALUES:
            self._change_data_key()
        self._sealed += 1
        nonce = os.urandom(NONCE_BYTES)
        return b"%b%b%b" % (self._head, nonce, self._data_key.encrypt(nonce, value, context))

    def _change_data_key(self) -> None:
        data_key, nonce = new_key(), os.urandom(NONCE_BYTES)
        wrapped = self._keys[self._first].encrypt(nonce, data_key, self._first)
        self._head = self._first + nonce + wrapped
        self._data_key = self._data_keys[self._head] = AESGCM(data_key)
        self._sealed = 0

    def open(self, envelope: bytes, context: bytes) -> bytes:
        """Raises UnknownKeyError or ForgedEnvelopeError."""
        head = envelope[:HEAD_BYTES]
        data_key = self._data_keys.get(head) or self._unwrap(head)
        try:
            return data_key.decrypt(envelope[HEAD_BYTES:][:NONCE_BYTES], envelope[HEAD_BYTES + NONCE_BYTES :], context)
        except (InvalidTag, ValueError):
            raise ForgedEnvelopeError from None

    def _unwrap(self, head: bytes) -> AESGCM:
        key_id, nonce, wrapped = head[:ID_BYTES], head[ID_BYTES:][:NONCE_BYTES], head[ID_BYTES + NONCE_BYTES :]
        key = self._keys.get(key_id)
        if key is None:
            raise UnknownKeyError(key_id.hex())
        try:
            data_key = self._data_keys[head] = AESGCM(key.decrypt(nonce, wrapped, key_id))
        except (InvalidTag, ValueError):
            raise ForgedEnvelopeError from None
        return data_key
