"""A file of encryption keys, one per line.  The first one encrypts, the others decrypt what is not rewritten yet.

    # a comment
    q2Zl…=                   32 bytes in base64
    wrapped vault:v1:8ht…    a key that only an external command can unwrap

The command is called with the argument `wrap` or `unwrap`.  It reads one line from standard input and prints one line:
`wrap` gets a key in base64 and prints any text; `unwrap` gets this text and prints the key in base64.
"""

from __future__ import annotations

import base64
import shlex
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from farflung.lib.envelopes import KEY_BYTES, id_of, new_key
from farflung.lib.errors import UserError
from farflung.lib.files import locked, write_private

WRAPPED: Final = "wrapped "
TIMEOUT: Final = 60.0  #: seconds for the command
HEADER: Final = "# Encryption keys of Farflung.  The first one encrypts.  Without the keys the data are lost.\n"

Identity = tuple[int, int, int]


class KeyFileError(UserError):
    """The keys cannot be read or written.  The message names the file, and never a key."""


@dataclass(frozen=True, slots=True)
class EncryptionKey:
    """A key, and its line in the file."""

    line: str = field(repr=False)
    key: bytes = field(repr=False)

    @property
    def id(self) -> str:
        return id_of(self.key)


@dataclass(frozen=True, slots=True)
class KeyFile:
    path: Path
    command: str = ""  #: wraps and unwraps the keys, without its last argument

    def read(self) -> list[EncryptionKey]:
        """At least one key.  Blocks.  Raises KeyFileError."""
        try:
            text = self.path.read_text()
        except OSError as error:
            raise KeyFileError(f"cannot read {self.path}: {(error.strerror or str(error)).lower()}") from None
        except ValueError:
            raise KeyFileError(f"{self.path} is not a file of keys: it is not text") from None
        keys = list(self._parse(text))
        if not keys:
            raise KeyFileError(f"{self.path} has no key: restore the file")
        return keys

    def _parse(self, text: str) -> Iterator[EncryptionKey]:
        for number, line in enumerate(text.splitlines(), 1):
            line = line.strip()
            if line and not line.startswith("#"):
                where = f"line {number} of {self.path}"
                encoded = self._call("unwrap", line.removeprefix(WRAPPED)) if line.startswith(WRAPPED) else line
                yield EncryptionKey(line, decode_key(encoded, where))

    def new_key(self) -> EncryptionKey:
        """A key that is not in the file.  Blocks.  Raises KeyFileError."""
        key = new_key()
        encoded = base64.b64encode(key).decode()
        if not self.command:
            return EncryptionKey(encoded, key)
        line = WRAPPED + self._call("wrap", encoded)
        if decode_key(self._call("unwrap", line.removeprefix(WRAPPED)), "the unwrapped key") != key:
            raise KeyFileError(f"the command {self.command!r} does not unwrap the key that it wrapped")
        return EncryptionKey(line, key)

    def create(self) -> None:
        """Create the file with a new key, unless another process did.  Blocks.  Raises KeyFileError."""
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with locked(self.path.parent):
                if not self.path.exists():
                    self.write([self.new_key()])
        except OSError as error:
            raise KeyFileError(f"cannot write {self.path}: {(error.strerror or str(error)).lower()}") from None

    def write(self, keys: Iterable[EncryptionKey]) -> None:
        """Readable by the owner alone, and on disk when this returns.  Raises KeyFileError."""
        try:
            write_private(self.path, (HEADER + "".join(f"{one.line}\n" for one in keys)).encode())
        except OSError as error:
            raise KeyFileError(f"cannot write {self.path}: {(error.strerror or str(error)).lower()}") from None

    def identity(self) -> Identity | None:
        """Changes with the file; None if it is missing."""
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_ino, found.st_size, found.st_mtime_ns

    def _call(self, verb: Literal["wrap", "unwrap"], line: str) -> str:
        """Keys are never in arguments, messages or the log.  Errors of the command go to standard error."""
        if not self.command:
            raise KeyFileError(f"{self.path} has a wrapped key: --encryption-command is required")
        try:
            arguments = [*shlex.split(self.command), verb]
            ended = subprocess.run(  # noqa: S603
                arguments, input=f"{line}\n", stdout=subprocess.PIPE, text=True, timeout=TIMEOUT, check=True
            )
        except subprocess.CalledProcessError as error:
            raise self._failure(f"ended with exit code {error.returncode} on {verb}") from None
        except subprocess.TimeoutExpired:
            raise self._failure(f"did not end within {TIMEOUT:g} seconds on {verb}") from None
        except (OSError, ValueError) as error:
            raise self._failure(f"cannot be run: {getattr(error, 'strerror', None) or error}") from None
        answer = ended.stdout.strip()
        if not answer or not answer.isprintable():
            raise self._failure(f"did not print one line of text on {verb}")
        return answer

    def _failure(self, what: str) -> KeyFileError:
        return KeyFileError(f"the command of --encryption-command ({self.command}) {what}")


def decode_key(encoded: str, where: str) -> bytes:
    try:
        key = base64.b64decode(encoded, validate=True)
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise KeyFileError(f"{where} is not a key: it must be {KEY_BYTES} bytes in base64")
    return key
