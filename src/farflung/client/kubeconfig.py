"""Kubeconfig files and in-cluster configuration: server and credentials of a client."""

from __future__ import annotations

import base64
import binascii
import os
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import SplitResult, urlsplit

import yaml
from multidict import CIMultiDict

from farflung.client import dialer
from farflung.client.credentials import (
    EXEC_VERSION,
    NO_CREDENTIALS,
    CredentialProvider,
    ExecCommand,
    ExecCredentials,
    ImpersonatingCredentials,
    StaticCredentials,
    TokenFile,
    basic,
    bearer,
)
from farflung.client.dialer import proxy_to
from farflung.client.errors import KubeconfigError, NoKubeconfig
from farflung.client.transport import Credentials, HttpTransport, do_nothing
from farflung.lib import yaml_loader
from farflung.lib.files import FileVersion, file_version
from farflung.lib.tls import ReplaceableContext

Section = dict[str, Any]

DEFAULT_FILE: Final = Path("~/.kube/config")
ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
SECTIONS: Final = (("clusters", "cluster"), ("contexts", "context"), ("users", "user"))
EXTENSION: Final = "client.authentication.k8s.io/exec"  #: extension with the configuration of an exec plugin


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """Server and credentials of one context."""

    server: str  #: scheme, host and port
    prefix: str  #: the path of the API, without a trailing slash
    namespace: str
    tls: ssl.SSLContext | None  #: None for plain HTTP
    server_name: str | None
    credentials: Credentials
    proxy: str | None
    forget: Callable[[], None] = do_nothing  #: drops cached credentials
    authority: bytes = b""  #: certificates in PEM that the server's must be signed by; empty: those of the machine
    trusting: Callable[[bytes], ssl.SSLContext | None] = lambda authority: None  #: `tls` with other authorities
    files: tuple[Path, ...] = ()  #: with its certificates
    has_plugin: bool = False  #: an exec plugin may present a certificate
    insecure: bool = False  #: no certificate is verified

    def transport(self) -> HttpTransport:
        """Must be called in a running event loop."""
        return HttpTransport(
            self.server,
            tls=self.tls,
            server_name=self.server_name,
            credentials=self.credentials,
            proxy=self.proxy,
            on_unauthorized=self.forget,
        )


class Authorities(Protocol):
    """Authorities that are trusted instead of those of a kubeconfig."""

    @property
    def files(self) -> Sequence[Path]:
        """On which they depend."""

    def choose(self, given: bytes) -> bytes:
        """`given`: those of the kubeconfig."""


def load(
    path: str | None = None,
    *,
    context: str = "",
    cluster: str = "",
    user: str = "",
    server: str = "",
    authorities: Authorities | None = None,
) -> ClientConfig:
    """Load this file, those of $KUBECONFIG, ~/.kube/config, or the in-cluster configuration.  `context`, `cluster`,
    `user` and `server` (a URL or host:port) override the file.  New connections use replaced certificates.  Raises
    KubeconfigError; NoKubeconfig if no file was named and none exists."""
    files = [Path(path)] if path else files_of_environment(os.environ)
    if not any(map(_exists, files)):
        if not path and (ACCOUNT / "token").exists():
            found = in_cluster_config(os.environ)
            return replace(found, server=server_url(server, secured=True)) if server else found
        missing = KubeconfigError if path else NoKubeconfig
        raise missing(f"there is no {os.pathsep.join(map(str, files))}")

    def read() -> ClientConfig:
        found = client_config(merge(files), context=context, cluster=cluster, user=user, server=server)
        chosen = found.authority
        if authorities is not None and not found.has_plugin:
            chosen = authorities.choose(chosen)
        return found if chosen == found.authority else replace(found, tls=found.trusting(chosen))

    return followed(read(), [*files, *(() if authorities is None else authorities.files)], read)


def has_context(path: str | None, name: str) -> bool:
    """Whether the files that `load` would read have a context.  `load` reports files that cannot be read."""
    try:
        return name in merge([Path(path)] if path else files_of_environment(os.environ)).contexts
    except KubeconfigError:
        return False


def followed(config: ClientConfig, files: Sequence[Path], read: Callable[[], ClientConfig]) -> ClientConfig:
    """The same server and credentials, with the certificates of the files whenever they change.  Certificates of an
    exec plugin are in no file, so its context stays."""
    if config.tls is None or config.has_plugin:
        return config

    def certificates() -> ssl.SSLContext | None:
        try:
            return read().tls
        except KubeconfigError:
            return None  # it is being written, and is read again when it has changed

    return replace(config, tls=ReplaceableContext(FollowedFiles([*files, *config.files], config.tls, certificates)))


class FollowedFiles:
    def __init__(self, files: Sequence[Path], first: ssl.SSLContext, read: Callable[[], ssl.SSLContext | None]) -> None:
        """`first`: the context of the files now; `read`: None if they cannot be read."""
        self._files = files
        self._newest = first
        self._read = read
        self._versions = self._current_versions()

    def __call__(self) -> ssl.SSLContext:
        """The newest context."""
        versions = self._current_versions()
        if versions != self._versions:
            self._versions = versions
            self._newest = self._read() or self._newest
        return self._newest

    def _current_versions(self) -> list[FileVersion]:
        return list(map(file_version, self._files))


def files_of_environment(environment: Mapping[str, str]) -> list[Path]:
    named = [Path(part) for part in environment.get("KUBECONFIG", "").split(os.pathsep) if part]
    return named or [DEFAULT_FILE.expanduser()]


# --- files ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MergedKubeconfig:
    """Several files as one.  The first entry of each name wins."""

    source: str
    current: str
    clusters: Mapping[str, Section]
    contexts: Mapping[str, Section]
    users: Mapping[str, Section]


def merge(files: list[Path]) -> MergedKubeconfig:
    """Missing files are skipped."""
    current = ""
    found: dict[str, dict[str, Section]] = {section: {} for section, _ in SECTIONS}
    for file in files:
        if not _exists(file):
            continue
        content = _content(file)
        current = current or _text(content, "current-context")
        for section, inner in SECTIONS:
            for name, one in _entries(file, content, section, inner):
                found[section].setdefault(name, {**one, "": file.parent})
    source = os.pathsep.join(map(str, files))
    return MergedKubeconfig(source, current, found["clusters"], found["contexts"], found["users"])


def _exists(file: Path) -> bool:
    """True also for a file without access: reading it reports why."""
    try:
        file.stat()
    except OSError as error:
        return not isinstance(error, FileNotFoundError | NotADirectoryError)
    return True


def _content(file: Path) -> Section:
    try:
        content = yaml_loader.load(file.read_bytes()) or {}
    except OSError as error:
        raise KubeconfigError(f"cannot read {file}: {_reason(error)}") from None
    except yaml.YAMLError as error:
        raise KubeconfigError(f"{file} is not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(content, dict):
        raise KubeconfigError(f"{file} is not a kubeconfig")
    return content


def _entries(file: Path, content: Section, section: str, inner: str) -> list[tuple[str, Section]]:
    entries = content.get(section) or []
    if not isinstance(entries, list):
        raise KubeconfigError(f"{file}: {section} is not a list")
    found = []
    for entry in entries:
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
            raise KubeconfigError(f"{file}: an entry of {section} has no name")
        one = entry.get(inner) or {}
        if not isinstance(one, dict):
            raise KubeconfigError(f"{file}: {section} {entry['name']} is not an object")
        found.append((entry["name"], one))
    return found


def _text(section: Section, name: str) -> str:
    value = section.get(name)
    if value is None:
        return ""
    if isinstance(value, dict | list):
        raise KubeconfigError(f"{name} is not a text")
    return str(value)


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


# --- contexts -------------------------------------------------------------------------------------


def client_config(
    merged: MergedKubeconfig, *, context: str = "", cluster: str = "", user: str = "", server: str = ""
) -> ClientConfig:
    chosen: Section = {}
    if name := context or merged.current:
        chosen = _named(merged.contexts, name, "context", merged.source)
    elif not cluster:
        raise KubeconfigError(f"no context is chosen in {merged.source}; `kubectl config use-context` chooses one")
    cluster_name, user_name = cluster or _text(chosen, "cluster"), user or _text(chosen, "user")
    if not cluster_name:
        raise KubeconfigError(f"context {name!r} in {merged.source} does not name a cluster")
    cluster_section = _named(merged.clusters, cluster_name, "cluster", merged.source)
    user_section = _named(merged.users, user_name, "user", merged.source) if user_name else {}
    if server:
        cluster_section = {**cluster_section, "server": _instead(server, cluster_section, user_section)}
    return _access(cluster_section, user_section, _text(chosen, "namespace") or "default")


def _instead(server: str, cluster: Section, user: Section) -> str:
    """Another server than the cluster's, with the same path unless it has its own."""
    secured = is_insecure(cluster) or any(
        _text(section, name) or _text(section, f"{name}-data")
        for section, name in ((cluster, "certificate-authority"), (user, "client-certificate"))
    )
    url = server_url(server, secured=secured)
    return url if _url(url).path.strip("/") else url.rstrip("/") + _url(_text(cluster, "server")).path


def server_url(server: str, *, secured: bool) -> str:
    """The URL of a server.  host:port means HTTP unless TLS is configured, as in client-go.  Raises KubeconfigError."""
    if "://" in server:
        return _url(server).geturl()
    url = _url(f"{'https' if secured else 'http'}://{server}")
    if url.path.strip("/") or url.query or url.fragment:
        raise KubeconfigError(f"{server!r} is neither the URL of a server nor host:port")
    return url.geturl()


def _named(entries: Mapping[str, Section], name: str, what: str, source: str) -> Section:
    if name not in entries:
        raise KubeconfigError(f"there is no {what} {name!r} in {source}")
    return entries[name]


def _access(cluster: Section, user: Section, namespace: str) -> ClientConfig:
    parts = _url(_text(cluster, "server"))
    context = _tls(cluster, user, _data(cluster, "certificate-authority")) if parts.scheme == "https" else None
    credentials = _credentials(cluster, user, context)
    return ClientConfig(
        f"{parts.scheme}://{parts.netloc}",
        parts.path.rstrip("/"),
        namespace,
        context,
        _text(cluster, "tls-server-name") or None,
        credentials.headers,
        proxy_to(parts, _text(cluster, "proxy-url")),
        credentials.forget,
        authority=b"" if context is None or is_insecure(cluster) else _data(cluster, "certificate-authority"),
        trusting=lambda authority: _tls(cluster, user, authority),
        files=tuple(_certificate_files(cluster, user)),
        has_plugin=bool(user.get("exec")),
        insecure=is_insecure(cluster),
    )


def is_insecure(cluster: Section) -> bool:
    """Whether no certificate is verified."""
    return cluster.get("insecure-skip-tls-verify") is True


def _certificate_files(cluster: Section, user: Section) -> Iterator[Path]:
    for section, name in ((cluster, "certificate-authority"), (user, "client-certificate"), (user, "client-key")):
        if not _text(section, f"{name}-data") and (path := _text(section, name)):
            yield _beside(section, path)


def _url(text: str) -> SplitResult:
    try:
        parts = urlsplit(text)
        good = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0 and " " not in parts.netloc
    except ValueError:
        good = False
    if not good or parts.username is not None:
        shown = f"…@{text.rpartition('@')[2]}" if "@" in text else text
        raise KubeconfigError(f"{shown!r} is not the URL of a server")
    return parts


# --- TLS ------------------------------------------------------------------------------------------


def _tls(cluster: Section, user: Section, authority: bytes) -> ssl.SSLContext:
    context = dialer.tls_context(authority, insecure=is_insecure(cluster))
    certificate, key = _data(user, "client-certificate"), _data(user, "client-key")
    if bool(certificate) != bool(key):
        raise KubeconfigError("a client-certificate and a client-key are only of use together")
    if certificate:
        dialer.load_client_certificate(context, certificate, key)
    return context


def _data(section: Section, name: str) -> bytes:
    """The data of `name-data`, or of the file `name`."""
    if data := _text(section, f"{name}-data"):
        try:
            return base64.b64decode(data, validate=True)
        except (binascii.Error, ValueError):
            raise KubeconfigError(f"{name}-data is not base64") from None
    return _file(section, name) if _text(section, name) else b""


def _file(section: Section, name: str) -> bytes:
    path = _beside(section, _text(section, name))
    try:
        content = path.read_bytes()
    except OSError as error:
        raise KubeconfigError(f"cannot read {name} {path}: {_reason(error)}") from None
    if not content:
        raise KubeconfigError(f"{name} {path} is empty")
    return content


def _beside(section: Section, path: str) -> Path:
    """Relative paths are relative to the kubeconfig."""
    return Path(section.get("", ".")) / path


# --- credentials ----------------------------------------------------------------------------------


def _credentials(cluster: Section, user: Section, context: ssl.SSLContext | None) -> CredentialProvider:
    credentials = _own_credentials(cluster, user, context)
    impersonation = _impersonation(user)
    return ImpersonatingCredentials(credentials, impersonation) if impersonation else credentials


def _own_credentials(cluster: Section, user: Section, context: ssl.SSLContext | None) -> CredentialProvider:
    if user.get("exec"):
        present = None if context is None else partial(dialer.load_client_certificate, context)
        return ExecCredentials(_command(cluster, user), present)
    if file := _text(user, "tokenFile"):
        return TokenFile(_beside(user, file))
    if token := _text(user, "token"):
        return StaticCredentials(bearer(token, "the token of the user"))
    if name := _text(user, "username"):
        return StaticCredentials(basic(name, _text(user, "password")))
    if user.get("auth-provider"):
        raise KubeconfigError("an auth-provider is not supported; an exec plugin does the same")
    return NO_CREDENTIALS


def _impersonation(user: Section) -> CIMultiDict[str]:
    """The headers for `as` and related fields."""
    headers: CIMultiDict[str] = CIMultiDict()
    groups, extra = user.get("as-groups") or [], user.get("as-user-extra") or {}
    if not isinstance(groups, list) or not isinstance(extra, dict):
        raise KubeconfigError("as-groups is not a list, or as-user-extra is not an object")
    for header, name in (("Impersonate-User", "as"), ("Impersonate-Uid", "as-uid")):
        if value := _text(user, name):
            headers.add(header, value)
    for group in groups:
        headers.add("Impersonate-Group", str(group))
    for name, values in extra.items():
        for value in values if isinstance(values, list) else [values]:
            headers.add(f"Impersonate-Extra-{name}", str(value))
    if headers and "Impersonate-User" not in headers:
        raise KubeconfigError("as-uid, as-groups and as-user-extra are of no use without as")
    if not all(text.isprintable() and text.isascii() for pair in headers.items() for text in pair):
        raise KubeconfigError("the impersonated user cannot be sent in a header")
    return headers


def _command(cluster: Section, user: Section) -> ExecCommand:
    command = user["exec"]
    if not isinstance(command, dict) or not _text(command, "command"):
        raise KubeconfigError("exec does not name a command")
    program, arguments, environment = _text(command, "command"), command.get("args") or [], command.get("env") or []
    if not isinstance(arguments, list) or not isinstance(environment, list):
        raise KubeconfigError("args and env of exec are not lists")
    if not all(isinstance(one, dict) and _text(one, "name") for one in environment):
        raise KubeconfigError("an entry of env of exec has no name")
    if command.get("interactiveMode") == "Always":
        raise KubeconfigError(f"{program} needs a terminal, which is not supported")
    return ExecCommand(
        str(_beside(user, program)) if os.sep in program else program,
        [str(argument) for argument in arguments],
        {_text(one, "name"): _text(one, "value") for one in environment},
        _text(command, "apiVersion") or EXEC_VERSION,
        _text(command, "installHint"),
        _cluster_info(cluster) if command.get("provideClusterInfo") is True else None,
    )


def _cluster_info(cluster: Section) -> Mapping[str, Any]:
    """The cluster info for an exec plugin."""
    names = ("server", "tls-server-name", "insecure-skip-tls-verify", "proxy-url")
    info = {name: cluster[name] for name in names if cluster.get(name)}
    if authority := _data(cluster, "certificate-authority"):
        info["certificate-authority-data"] = base64.b64encode(authority).decode()
    for one in cluster.get("extensions") or ():
        if isinstance(one, dict) and one.get("name") == EXTENSION:
            info["config"] = one.get("extension")
    return info


def in_cluster_config(environment: Mapping[str, str], directory: Path = ACCOUNT) -> ClientConfig:
    """The configuration that Kubernetes gives every container."""
    host, port = environment.get("KUBERNETES_SERVICE_HOST", ""), environment.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise KubeconfigError("there is no kubeconfig, and KUBERNETES_SERVICE_HOST is not set")
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    namespace, authority = directory / "namespace", directory / "ca.crt"
    credentials = TokenFile(directory / "token")

    def read() -> ClientConfig:
        return ClientConfig(
            server,
            "",
            namespace.read_text().strip() if namespace.exists() else "default",
            _tls({}, {}, _file({"certificate-authority": str(authority)}, "certificate-authority")),
            None,
            credentials.headers,
            proxy_to(_url(server)),
            credentials.forget,
        )

    return followed(read(), [authority], read)
