"""Static bearer tokens, stored as hashes.

The file only has hashes, so its readers cannot log in with them.  A token is 256 random bits, so its SHA-256 can be
neither reversed nor guessed, and needs no salt.

The duration of a lookup in a dict depends on the hash alone.  It reveals something about hashes of tokens that a client
chose, and nothing about a token with a given hash.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Collection, Mapping
from datetime import datetime
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from farflung.hub.request.user import AUTHENTICATED, User
from farflung.lib.files import FileVersion, file_version, write_private
from farflung.store.base import Unusable

log = logging.getLogger(__name__)

FOREVER: Final = float("inf")


def token_hash(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


class TokenRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """An entry of the file."""

    name: str
    groups: tuple[str, ...] = ()
    created: datetime | None = None
    expires: datetime | None = None
    uid: str = ""

    @property
    def token(self) -> StaticToken:
        groups = self.groups if AUTHENTICATED in self.groups else (*self.groups, AUTHENTICATED)
        return StaticToken(User(self.name, groups, self.uid), self.expires.timestamp() if self.expires else FOREVER)


class StaticToken(NamedTuple):
    user: User
    expires: float  #: seconds since 1970


def read_tokens(path: Path) -> dict[str, TokenRecord]:
    """The entries by hash.  Raises Unusable."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, TokenRecord])
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise Unusable(f"{path} is damaged ({error}): restore it, or move it away to get new tokens") from None


def write_tokens(path: Path, tokens: Mapping[str, TokenRecord]) -> None:
    write_private(path, msgspec.json.format(msgspec.json.encode(dict(tokens)), indent=2))


class StaticTokens:
    """Fixed tokens, and those of a file that other processes may replace at any time."""

    def __init__(self, fixed: Mapping[str, User], path: Path | None = None) -> None:
        """`fixed`: by hash.  Raises Unusable."""
        self._fixed = {hashed: StaticToken(user, FOREVER) for hashed, user in fixed.items()}
        self._path = path
        self._version = self._file_version()
        self._tokens = self._fixed | self._read()

    def find(self, hashed: str) -> StaticToken | None:
        return self._tokens.get(hashed)

    def refresh(self) -> Collection[User] | None:
        """Read the file again if it changed, which costs one system call.  Returns the users whose tokens changed;
        None if the file did not change.  A damaged file changes nothing, so that no user is locked out or admitted by
        mistake."""
        version = self._file_version()
        if version == self._version:
            return None
        self._version = version
        before = self._tokens
        try:
            self._tokens = self._fixed | self._read()
        except (Unusable, OSError) as error:
            log.warning("cannot read the tokens, keeping the old ones: %s", error)
            return None
        changed = dict(before.items() ^ self._tokens.items())
        return [token.user for token in changed.values()]

    def _read(self) -> dict[str, StaticToken]:
        if self._path is None:
            return {}
        return {hashed: record.token for hashed, record in read_tokens(self._path).items()}

    def _file_version(self) -> FileVersion:
        return None if self._path is None else file_version(self._path)
