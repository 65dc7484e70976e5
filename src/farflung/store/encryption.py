"""How values are stored: those of selected resources in envelopes, the others as they are.

A value is bound to its key in the store, so an envelope that is copied to another key cannot be opened.  The first byte
distinguishes the two forms: objects are JSON and never begin with it.  Other values that do are escaped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from farflung.lib.envelopes import ForgedEnvelopeError, KeyRing, UnknownKeyError, key_id_of

MARK: Final = b"\0"
SEALED: Final = MARK + b"\1"  #: before an envelope
ESCAPED: Final = MARK + b"\0"  #: before a value that begins with MARK
HEAD_BYTES: Final = len(SEALED) + 8  #: a prefix of a stored value that `is_current` needs

SECRETS: Final = "secrets"  #: always encrypted, if anything is
PATTERN: Final = re.compile(r"\*\.\*|[a-z0-9-]+|(\*|[a-z0-9-]+)\.[a-z0-9.-]*")


class UnreadableValueError(Exception):
    """A stored value cannot be decrypted.  `missing_key`: the id of the key that is needed; empty if the value was
    changed or belongs to another key of the store."""

    def __init__(self, missing_key: str = "") -> None:
        what = f"is encrypted with the key {missing_key}, which is missing" if missing_key else "cannot be decrypted"
        super().__init__(what)
        self.missing_key = missing_key


class ResourcePatterns:
    """Selects resources as kube-apiserver's EncryptionConfiguration does: `configmaps` (of the core group),
    `widgets.example.org`, `*.apps`, `*.` (the core group), `*.*`.  Secrets are always selected."""

    def __init__(self, patterns: Iterable[str] = ()) -> None:
        """Raises ValueError."""
        for one in patterns:
            if not PATTERN.fullmatch(one):
                raise ValueError(f"{one!r} is not a resource like configmaps, widgets.example.org, *.apps or *.*")
        self._pairs = {(name, group) for name, _, group in (one.partition(".") for one in {SECRETS, *patterns})}
        self._selected: dict[str, bool] = {}
        self.text: Final = ",".join(sorted({SECRETS, *patterns}))

    def select(self, key: str) -> bool:
        """Whether values of this key are encrypted."""
        prefix = key[: key.index("/", key.index("/", 1) + 1)]
        selected = self._selected.get(prefix)
        if selected is None:
            _, group, resource = prefix.split("/")
            name, group = resource.partition(":")[0], "" if group == "core" else group
            candidates = {(name, group), ("*", group), ("*", "*")}
            selected = self._selected[prefix] = not candidates.isdisjoint(self._pairs)
        return selected


class Encryption:
    """Immutable.  `encode` may be called by one thread at a time, the other methods by any."""

    def __init__(self, ring: KeyRing | None = None, resources: ResourcePatterns | None = None) -> None:
        """Without keys nothing is encrypted."""
        self._ring = ring
        self._resources = resources or ResourcePatterns()
        self.key_ids: Final = frozenset(ring.ids if ring else ())
        self.first_id: Final = ring.first_id if ring else ""
        self.resources: Final = self._resources.text

    def encode(self, key: str, value: bytes) -> bytes:
        """A value as it is stored."""
        if self._ring is not None and self._resources.select(key):
            return SEALED + self._ring.seal(value, key.encode())
        return ESCAPED + value if value[:1] == MARK else value

    def decode(self, key: str, stored: bytes) -> bytes:
        """Raises UnreadableValueError."""
        if stored[:1] != MARK:
            return stored
        if stored[:2] == ESCAPED:
            return stored[2:]
        if stored[:2] != SEALED:
            raise UnreadableValueError
        if self._ring is None:
            raise UnreadableValueError(key_id_of(stored[2:]))
        try:
            return self._ring.open(stored[2:], key.encode())
        except UnknownKeyError as error:
            raise UnreadableValueError(error.key_id) from None
        except ForgedEnvelopeError:
            raise UnreadableValueError from None

    def is_current(self, key: str, head: bytes) -> bool:
        """Whether `encode` would store it in the same way.  `head`: the first HEAD_BYTES of the stored value."""
        if self._ring is not None and self._resources.select(key):
            return key_of(head) == self.first_id
        return head[:2] != SEALED


def key_of(head: bytes) -> str:
    """The id of the key with which a stored value is encrypted; empty if it is not."""
    return key_id_of(head[2:]) if head[:2] == SEALED else ""
