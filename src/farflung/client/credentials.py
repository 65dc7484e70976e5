"""Credentials of requests: static headers, a token file, or an exec plugin."""

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

from farflung.client.errors import DECODE_ERRORS, KubeconfigError

TOKEN_SECONDS: Final = 60.0  #: how long a token file is cached; clusters rotate tokens
EXEC_SECONDS: Final = 60.0  #: time limit of an exec plugin
EXEC_VERSION: Final = "client.authentication.k8s.io/v1"


class CredentialProvider(Protocol):
    async def headers(self) -> Mapping[str, str]:
        """Raises KubeconfigError."""

    def forget(self) -> None:
        """Drop cached credentials after a 401."""


@dataclass(frozen=True, slots=True)
class StaticCredentials:
    values: Mapping[str, str] = field(default_factory=dict)

    async def headers(self) -> Mapping[str, str]:
        return self.values

    def forget(self) -> None:
        pass


NO_CREDENTIALS: Final = StaticCredentials()


def bearer(token: str, source: str) -> Mapping[str, str]:
    if not token or not token.isascii() or not token.isprintable():
        raise KubeconfigError(f"{source} is not a token")
    return {"Authorization": f"Bearer {token}"}


def basic(name: str, password: str) -> Mapping[str, str]:
    pair = base64.b64encode(f"{name}:{password}".encode()).decode()
    return {"Authorization": f"Basic {pair}"}


class TokenFile:
    """A token in a file that another process renews.  If the file cannot be read, the last token is used."""

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
        return bearer(token, f"the content of tokenFile {self._path}")


@dataclass(frozen=True, slots=True)
class ImpersonatingCredentials:
    inner: CredentialProvider
    values: CIMultiDict[str]

    async def headers(self) -> Mapping[str, str]:
        whole = CIMultiDict(await self.inner.headers())
        whole.extend(self.values)
        return whole

    def forget(self) -> None:
        self.inner.forget()


# --- exec plugins ---------------------------------------------------------------------------------


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    token: str = ""
    expiration_timestamp: datetime | None = None
    client_certificate_data: str = ""
    client_key_data: str = ""


class _Credential(msgspec.Struct, frozen=True):
    status: _Status


_credential: Final = msgspec.json.Decoder(_Credential)


@dataclass(frozen=True, slots=True)
class ExecCommand:
    """`cluster`: the cluster info for the plugin, if it requests it."""

    program: str
    arguments: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    version: str = EXEC_VERSION
    hint: str = ""  #: installHint
    cluster: Mapping[str, Any] | None = None
    seconds: float = EXEC_SECONDS

    def whole_environment(self) -> dict[str, str]:
        spec: dict[str, Any] = {"interactive": False}
        if self.cluster is not None:
            spec["cluster"] = self.cluster
        info = {"apiVersion": self.version, "kind": "ExecCredential", "spec": spec}
        return {**os.environ, **self.environment, "KUBERNETES_EXEC_INFO": orjson.dumps(info, default=str).decode()}

    def error(self, what: str) -> KubeconfigError:
        message = f"{self.program} returns no credentials: {what}"
        return KubeconfigError(f"{message}; {self.hint}" if self.hint else message)


class ExecCredentials:
    """Runs an exec plugin, and again when its credentials expire or are refused."""

    def __init__(self, command: ExecCommand, present: Callable[[bytes, bytes], None] | None) -> None:
        """`present`: use a client certificate and key for new connections; None without TLS."""
        self._command = command
        self._present = present
        self._headers: Mapping[str, str] | None = None
        self._until: datetime | None = None
        self._running = asyncio.Lock()

    async def headers(self) -> Mapping[str, str]:
        async with self._running:
            if self._headers is None or (self._until is not None and datetime.now(UTC) >= self._until):
                self._take(await self._run())
            assert self._headers is not None
            return self._headers

    def forget(self) -> None:
        self._headers = None

    def _take(self, status: _Status) -> None:
        until = status.expiration_timestamp
        self._until = until.replace(tzinfo=UTC) if until is not None and until.tzinfo is None else until
        headers: Mapping[str, str] = {}
        if status.token:
            headers = bearer(status.token, f"the token of {self._command.program}")
        certificate, key = status.client_certificate_data, status.client_key_data
        if certificate and key and self._present is not None:
            self._present(certificate.encode(), key.encode())
        elif not headers:
            raise self._command.error("neither a token nor a certificate with its key")
        self._headers = headers

    async def _run(self) -> _Status:
        output, code = await self._output()
        if code != 0:
            raise self._command.error(f"it ended with exit code {code}")
        try:
            return _credential.decode(output).status
        except DECODE_ERRORS:
            raise self._command.error("it does not print an ExecCredential") from None

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
            raise self._command.error(f"it cannot be run: {reason.lower()}") from None
        try:
            async with asyncio.timeout(self._command.seconds):
                output, _ = await process.communicate()
        except TimeoutError:
            raise self._command.error("it takes too long") from None
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        return output, process.returncode or 0
