"""Where a server is and who we are there, as kubeconfig files say it, or as a Pod is told by its cluster."""

from __future__ import annotations

import asyncio
import base64
import binascii
import os
import ssl
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import orjson
import yaml

from farflung.client.errors import ClientError
from farflung.client.transport import Credentials, HttpTransport, nobody

Section = dict[str, Any]

DEFAULT_FILE: Final = Path("~/.kube/config")
ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TOKEN_SECONDS: Final = 60.0  #: how long a token that was read from a file counts; clusters rotate them
EXEC_SECONDS: Final = 60.0  #: how long a program may take that finds out who we are


class KubeconfigError(ClientError):
    """A sentence that says what to mend, and where.  Files and programs are asked while clients run, too."""


@dataclass(frozen=True, slots=True)
class Access:
    """One context of a kubeconfig."""

    server: str  #: scheme, host and port
    prefix: str  #: the path of the API at the server, without a slash at the end
    namespace: str
    tls: ssl.SSLContext | None  #: None for plain HTTP
    server_name: str | None
    credentials: Credentials
    proxy: str | None

    def transport(self) -> HttpTransport:
        """Must be called inside a running loop."""
        return HttpTransport(
            self.server,
            tls=self.tls,
            server_name=self.server_name,
            credentials=self.credentials,
            proxy=self.proxy,
        )


def load(path: str | None = None, *, context: str = "", cluster: str = "", user: str = "") -> Access:
    """From this file, or those of $KUBECONFIG, or ~/.kube/config, or what a Pod is told.  `context`, `cluster` and
    `user` count instead of what the file says.  Raises KubeconfigError."""
    files = [Path(path)] if path else files_of_environment(os.environ)
    if not path and not any(file.exists() for file in files) and (ACCOUNT / "token").exists():
        return of_service_account(os.environ)
    merged = merge(files, must_exist=bool(path))
    return access(merged, context=context, cluster=cluster, user=user)


def files_of_environment(environment: Mapping[str, str]) -> list[Path]:
    named = [Path(part) for part in environment.get("KUBECONFIG", "").split(os.pathsep) if part]
    return named or [DEFAULT_FILE.expanduser()]


@dataclass(frozen=True, slots=True)
class Merged:
    """Several files as one: of each name the first that says something of it counts."""

    source: str
    current: str
    clusters: Mapping[str, Section]
    contexts: Mapping[str, Section]
    users: Mapping[str, Section]


def merge(files: list[Path], *, must_exist: bool = False) -> Merged:
    current = ""
    found: dict[str, dict[str, Section]] = {"clusters": {}, "contexts": {}, "users": {}}
    for file in files:
        if not file.exists():
            if must_exist:
                raise KubeconfigError(f"there is no {file}")
            continue
        content = _content(file)
        current = current or str(content.get("current-context") or "")
        for section, inner in (("clusters", "cluster"), ("contexts", "context"), ("users", "user")):
            for entry in content.get(section) or ():
                if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
                    raise KubeconfigError(f"{file}: an entry of {section} has no name")
                one = entry.get(inner) or {}
                if not isinstance(one, dict):
                    raise KubeconfigError(f"{file}: {section} {entry['name']} is not an object")
                found[section].setdefault(entry["name"], {**one, "": file.parent})
    source = os.pathsep.join(map(str, files))
    return Merged(source, current, found["clusters"], found["contexts"], found["users"])


def _content(file: Path) -> Section:
    try:
        content = yaml.safe_load(file.read_bytes()) or {}
    except OSError as error:
        raise KubeconfigError(f"cannot read {file}: {(error.strerror or str(error)).lower()}") from None
    except (yaml.YAMLError, ValueError) as error:
        raise KubeconfigError(f"{file} is not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(content, dict):
        raise KubeconfigError(f"{file} is not a kubeconfig")
    return content


def access(merged: Merged, *, context: str = "", cluster: str = "", user: str = "") -> Access:
    chosen: Section = {}
    if name := context or merged.current:
        chosen = _named(merged.contexts, name, "context", merged.source)
    elif not cluster:
        raise KubeconfigError(f"no context is chosen in {merged.source}; `kubectl config use-context` chooses one")
    where = _named(merged.clusters, cluster or str(chosen.get("cluster") or ""), "cluster", merged.source)
    who_name = user or str(chosen.get("user") or "")
    who = _named(merged.users, who_name, "user", merged.source) if who_name else {}
    return _access(where, who, str(chosen.get("namespace") or "default"))


def _named(entries: Mapping[str, Section], name: str, what: str, source: str) -> Section:
    if name not in entries:
        raise KubeconfigError(f"there is no {what} {name!r} in {source}")
    return entries[name]


def _access(where: Section, who: Section, namespace: str) -> Access:
    parts = urlsplit(str(where.get("server") or ""))
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise KubeconfigError(f"{where.get('server')!r} is not the URL of a server")
    tls = None
    if parts.scheme == "https":
        tls = _tls(where, who)
    return Access(
        f"{parts.scheme}://{parts.netloc}",
        parts.path.rstrip("/"),
        namespace,
        tls,
        where.get("tls-server-name"),
        _credentials(who),
        where.get("proxy-url"),
    )


# --- TLS ------------------------------------------------------------------------------------------


def _tls(where: Section, who: Section) -> ssl.SSLContext:
    authority = _data(where, "certificate-authority")
    try:
        context = ssl.create_default_context(cadata=authority.decode() if authority else None)
    except (ssl.SSLError, ValueError) as error:
        raise KubeconfigError(f"the certificate-authority is no certificate: {error}") from None
    if where.get("insecure-skip-tls-verify"):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    certificate, key = _data(who, "client-certificate"), _data(who, "client-key")
    if certificate and key:
        _present(context, certificate, key)
    return context


def _present(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """OpenSSL reads them from a file, that only we can read and that is gone at once."""
    descriptor, name = tempfile.mkstemp()
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(certificate + b"\n" + key)
        context.load_cert_chain(name)
    except ssl.SSLError as error:
        raise KubeconfigError(f"the client certificate and its key cannot be used: {error}") from None
    finally:
        Path(name).unlink()


def _data(section: Section, name: str) -> bytes:
    """What `name-data` says, or the file that `name` names."""
    if data := section.get(f"{name}-data"):
        try:
            return base64.b64decode(data, validate=True)
        except (binascii.Error, TypeError, ValueError):
            raise KubeconfigError(f"{name}-data is not base64") from None
    return _file(section, name) if section.get(name) else b""


def _file(section: Section, name: str) -> bytes:
    path = _beside(section, str(section[name]))
    try:
        return path.read_bytes()
    except OSError as error:
        raise KubeconfigError(f"cannot read {name} {path}: {(error.strerror or str(error)).lower()}") from None


def _beside(section: Section, path: str) -> Path:
    """Relative paths are relative to the kubeconfig."""
    return Path(section.get("", ".")) / path


# --- who we are -----------------------------------------------------------------------------------


def _credentials(who: Section) -> Credentials:
    if program := who.get("exec"):
        return _Program(program, _beside(who, ".")).headers
    if file := who.get("tokenFile"):
        return TokenFile(_beside(who, str(file))).headers
    if token := who.get("token"):
        return _always({"Authorization": f"Bearer {token}"})
    if who.get("username"):
        pair = f"{who['username']}:{who.get('password') or ''}".encode()
        return _always({"Authorization": f"Basic {base64.b64encode(pair).decode()}"})
    return nobody


def _always(headers: Mapping[str, str]) -> Credentials:
    async def same() -> Mapping[str, str]:
        return headers

    return same


class TokenFile:
    """A token that somebody else renews."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = float("-inf")
        self._headers: Mapping[str, str] = {}

    async def headers(self) -> Mapping[str, str]:
        if time.monotonic() - self._read > TOKEN_SECONDS:
            try:
                token = self._path.read_text().strip()
            except OSError as error:
                if not self._headers:
                    reason = (error.strerror or str(error)).lower()
                    raise KubeconfigError(f"cannot read tokenFile {self._path}: {reason}") from None
            else:
                self._headers = {"Authorization": f"Bearer {token}"}
            self._read = time.monotonic()
        return self._headers


class _Program:
    """A program that prints an ExecCredential."""

    def __init__(self, said: Section, directory: Path) -> None:
        self._said = said
        self._directory = directory
        self._headers: Mapping[str, str] = {}
        self._until: datetime | None = None
        self._running = asyncio.Lock()

    async def headers(self) -> Mapping[str, str]:
        async with self._running:
            if not self._headers or (self._until is not None and datetime.now(UTC) >= self._until):
                await self._ask()
        return self._headers

    async def _ask(self) -> None:
        command = str(self._said.get("command") or "")
        if os.sep in command:
            command = str(self._directory / command)
        added = {str(one.get("name")): str(one.get("value")) for one in self._said.get("env") or ()}
        version = str(self._said.get("apiVersion") or "client.authentication.k8s.io/v1")
        info = {"apiVersion": version, "kind": "ExecCredential", "spec": {"interactive": False}}
        environment = {**os.environ, **added, "KUBERNETES_EXEC_INFO": orjson.dumps(info).decode()}
        arguments = [str(argument) for argument in self._said.get("args") or ()]
        try:
            process = await asyncio.create_subprocess_exec(
                command, *arguments, env=environment, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE
            )
            async with asyncio.timeout(EXEC_SECONDS):
                output, _ = await process.communicate()
            status = orjson.loads(output)["status"]
            token, until = str(status["token"]), status.get("expirationTimestamp")
            self._until = datetime.fromisoformat(until) if until else None
        except (OSError, TimeoutError, ValueError, KeyError, TypeError) as error:
            hint = self._said.get("installHint")
            told = f"{command} does not say who we are: {type(error).__name__}"
            raise KubeconfigError(f"{told}; {hint}" if hint else told) from None
        self._headers = {"Authorization": f"Bearer {token}"}


def of_service_account(environment: Mapping[str, str], directory: Path = ACCOUNT) -> Access:
    """What every container of a cluster is told."""
    host, port = environment.get("KUBERNETES_SERVICE_HOST", ""), environment.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise KubeconfigError("there is no kubeconfig, and KUBERNETES_SERVICE_HOST is not set")
    address = f"[{host}]" if ":" in host else host
    namespace = directory / "namespace"
    return Access(
        f"https://{address}:{port}",
        "",
        namespace.read_text().strip() if namespace.exists() else "default",
        _tls({"certificate-authority": str(directory / "ca.crt")}, {}),
        None,
        TokenFile(directory / "token").headers,
        None,
    )
