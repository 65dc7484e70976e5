"""Who we are, for each request: a token, a file that somebody renews, or a program that knows."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec
import orjson
from multidict import CIMultiDict

from farflung.client.errors import NONSENSE, KubeconfigError

TOKEN_SECONDS: Final = 60.0  #: how long a token that was read from a file counts; clusters rotate them
EXEC_SECONDS: Final = 60.0  #: how long a program may take that finds out who we are
EXEC_VERSION: Final = "client.authentication.k8s.io/v1"


class Identity(Protocol):
    async def headers(self) -> Mapping[str, str]:
        """Raises KubeconfigError."""

    def forget(self) -> None:
        """The server did not believe it, so what is remembered may be too old."""


@dataclass(frozen=True, slots=True)
class Fixed:
    said: Mapping[str, str] = field(default_factory=dict)

    async def headers(self) -> Mapping[str, str]:
        return self.said

    def forget(self) -> None:
        pass


NOBODY: Final = Fixed()


def bearer(token: str, source: str) -> Mapping[str, str]:
    if not token or not token.isascii() or not token.isprintable():
        raise KubeconfigError(f"{source} is not a token")
    return {"Authorization": f"Bearer {token}"}


def basic(name: str, password: str) -> Mapping[str, str]:
    pair = base64.b64encode(f"{name}:{password}".encode()).decode()
    return {"Authorization": f"Basic {pair}"}


class TokenFile:
    """A token that somebody else renews.  One that was read once counts until there is another."""

    def __init__(self, path: Path, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._monotonic = monotonic
        self._read = float("-inf")
        self._headers: Mapping[str, str] = {}

    async def headers(self) -> Mapping[str, str]:
        if self._monotonic() - self._read > TOKEN_SECONDS:
            try:
                self._headers = self._content()
            except KubeconfigError:
                if not self._headers:
                    raise
            self._read = self._monotonic()
        return self._headers

    def forget(self) -> None:
        self._read = float("-inf")

    def _content(self) -> Mapping[str, str]:
        try:
            token = self._path.read_text(errors="replace").strip()
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise KubeconfigError(f"cannot read tokenFile {self._path}: {reason}") from None
        return bearer(token, f"what is in tokenFile {self._path}")


@dataclass(frozen=True, slots=True)
class Impersonating:
    """Somebody who acts as another."""

    inner: Identity
    said: CIMultiDict[str]

    async def headers(self) -> Mapping[str, str]:
        whole = CIMultiDict(await self.inner.headers())
        whole.extend(self.said)
        return whole

    def forget(self) -> None:
        self.inner.forget()


# --- programs -------------------------------------------------------------------------------------


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    token: str = ""
    expiration_timestamp: datetime | None = None
    client_certificate_data: str = ""
    client_key_data: str = ""


class _Credential(msgspec.Struct, frozen=True):
    status: _Status


_credential: Final = msgspec.json.Decoder(_Credential)


@dataclass(frozen=True, slots=True)
class Command:
    """What to run.  `cluster`: what it is told of the server, if it wants to know."""

    program: str
    arguments: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    version: str = EXEC_VERSION
    hint: str = ""  #: how to get the program
    cluster: Mapping[str, Any] | None = None
    seconds: float = EXEC_SECONDS

    def whole_environment(self) -> dict[str, str]:
        spec: dict[str, Any] = {"interactive": False}
        if self.cluster is not None:
            spec["cluster"] = self.cluster
        told = {"apiVersion": self.version, "kind": "ExecCredential", "spec": spec}
        return {**os.environ, **self.environment, "KUBERNETES_EXEC_INFO": orjson.dumps(told, default=str).decode()}

    def trouble(self, what: str) -> KubeconfigError:
        told = f"{self.program} does not say who we are: {what}"
        return KubeconfigError(f"{told}; {self.hint}" if self.hint else told)


class Program:
    """Asks a program, and again when what it said is over or was not believed."""

    def __init__(self, command: Command, present: Callable[[bytes, bytes], None] | None) -> None:
        """`present`: take a client certificate and its key for new connections; None: there is no TLS."""
        self._command = command
        self._present = present
        self._headers: Mapping[str, str] | None = None
        self._until: datetime | None = None
        self._running = asyncio.Lock()

    async def headers(self) -> Mapping[str, str]:
        async with self._running:
            if self._headers is None or (self._until is not None and datetime.now(UTC) >= self._until):
                self._take(await self._ask())
            assert self._headers is not None
            return self._headers

    def forget(self) -> None:
        self._headers = None

    def _take(self, status: _Status) -> None:
        until = status.expiration_timestamp
        self._until = until.replace(tzinfo=UTC) if until is not None and until.tzinfo is None else until
        headers: Mapping[str, str] = {}
        if status.token:
            headers = bearer(status.token, f"what {self._command.program} says")
        certificate, key = status.client_certificate_data, status.client_key_data
        if certificate and key and self._present is not None:
            self._present(certificate.encode(), key.encode())
        elif not headers:
            raise self._command.trouble("neither a token nor a certificate with its key")
        self._headers = headers

    async def _ask(self) -> _Status:
        output, code = await self._output()
        if code != 0:
            raise self._command.trouble(f"it ended with exit code {code}")
        try:
            return _credential.decode(output).status
        except NONSENSE:
            raise self._command.trouble("it does not print an ExecCredential") from None

    async def _output(self) -> tuple[bytes, int]:
        try:
            process = await asyncio.create_subprocess_exec(
                self._command.program,
                *self._command.arguments,
                env=self._command.whole_environment(),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
            )
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise self._command.trouble(f"it cannot be run: {reason.lower()}") from None
        try:
            async with asyncio.timeout(self._command.seconds):
                output, _ = await process.communicate()
        except TimeoutError:
            raise self._command.trouble("it takes too long") from None
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        return output, process.returncode or 0
