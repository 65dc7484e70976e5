"""Bearer tokens that somebody handed out: which hash is whose.

Only hashes are kept: whoever reads the file cannot log in with what is in it.  A token is 256 random bits, so a plain
SHA-256 of it can be neither reversed nor guessed, and needs no salt.

Looking a hash up in a dict takes a time that depends on the hash alone.  Whoever measures it learns something about
hashes of texts they chose themselves, and nothing that leads to a text with a given hash.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from farflung.hub.request.user import AUTHENTICATED, User
from farflung.lib.files import write_private
from farflung.store.base import Unusable

log = logging.getLogger(__name__)

FOREVER: Final = float("inf")


def token_hash(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


class HandedOut(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line of the file: whose token it is."""

    name: str
    groups: tuple[str, ...] = ()
    created: datetime | None = None
    expires: datetime | None = None
    uid: str = ""

    @property
    def known(self) -> Known:
        groups = self.groups if AUTHENTICATED in self.groups else (*self.groups, AUTHENTICATED)
        return Known(User(self.name, groups, self.uid), self.expires.timestamp() if self.expires else FOREVER)


class Known(NamedTuple):
    user: User
    expires: float  #: seconds since 1970


def read_tokens(path: Path) -> dict[str, HandedOut]:
    """By hash.  Raises Unusable."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, HandedOut])
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise Unusable(f"{path} is damaged ({error}): restore it, or move it away to get new tokens") from None


def write_tokens(path: Path, tokens: Mapping[str, HandedOut]) -> None:
    write_private(path, msgspec.json.format(msgspec.json.encode(dict(tokens)), indent=2))


class StaticTokens:
    """Some tokens that never change, and those of a file, which others may replace at any time."""

    def __init__(self, fixed: Mapping[str, User], path: Path | None = None) -> None:
        """`fixed`: by hash.  Raises Unusable."""
        self._fixed = {hashed: Known(user, FOREVER) for hashed, user in fixed.items()}
        self._path = path
        self._seen = self._look()
        self._known = self._fixed | self._read()

    def find(self, hashed: str) -> Known | None:
        return self._known.get(hashed)

    def refresh(self) -> bool:
        """Read the file again if it has changed, which is found out with one system call.  A file that cannot be read
        changes nothing: nobody is to be locked out, or let in again, by half a file."""
        seen = self._look()
        if seen == self._seen:
            return False
        self._seen = seen
        try:
            self._known = self._fixed | self._read()
        except (Unusable, OSError) as error:
            log.warning("the tokens stay as they were: %s", error)
            return False
        return True

    def _read(self) -> dict[str, Known]:
        if self._path is None:
            return {}
        return {hashed: token.known for hashed, token in read_tokens(self._path).items()}

    def _look(self) -> tuple[int, int, int] | None:
        if self._path is None:
            return None
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size
