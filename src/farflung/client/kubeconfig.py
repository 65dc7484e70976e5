"""Where a server is and who we are there, as kubeconfig files say it, or as a Pod is told by its cluster."""

from __future__ import annotations

import base64
import binascii
import os
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

import yaml
from multidict import CIMultiDict

from farflung.client import tls
from farflung.client.credentials import (
    EXEC_VERSION,
    NOBODY,
    Command,
    Fixed,
    Identity,
    Impersonating,
    Program,
    TokenFile,
    basic,
    bearer,
)
from farflung.client.errors import KubeconfigError, NoKubeconfig
from farflung.client.proxies import proxy_to
from farflung.client.transport import Credentials, HttpTransport, nothing
from farflung.lib import yaml_loader

__all__ = ["Access", "KubeconfigError", "load", "server_url"]

Section = dict[str, Any]

DEFAULT_FILE: Final = Path("~/.kube/config")
ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
SECTIONS: Final = (("clusters", "cluster"), ("contexts", "context"), ("users", "user"))
EXTENSION: Final = "client.authentication.k8s.io/exec"  #: what a kubeconfig says to programs


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
    forget: Callable[[], None] = nothing  #: what is remembered of the credentials

    def transport(self) -> HttpTransport:
        """Must be called inside a running loop."""
        return HttpTransport(
            self.server,
            tls=self.tls,
            server_name=self.server_name,
            credentials=self.credentials,
            proxy=self.proxy,
            on_unauthorized=self.forget,
        )


def load(path: str | None = None, *, context: str = "", cluster: str = "", user: str = "", server: str = "") -> Access:
    """From this file, or those of $KUBECONFIG, or ~/.kube/config, or what a Pod is told.  `context`, `cluster`, `user`
    and `server`, a URL or host:port, count instead of what the file says.  Raises KubeconfigError; NoKubeconfig if no
    file is said either."""
    files = [Path(path)] if path else files_of_environment(os.environ)
    if not any(map(_exists, files)):
        if not path and (ACCOUNT / "token").exists():
            found = of_service_account(os.environ)
            return replace(found, server=server_url(server, secured=True)) if server else found
        missing = KubeconfigError if path else NoKubeconfig
        raise missing(f"there is no {os.pathsep.join(map(str, files))}")
    return access(merge(files), context=context, cluster=cluster, user=user, server=server)


def files_of_environment(environment: Mapping[str, str]) -> list[Path]:
    named = [Path(part) for part in environment.get("KUBECONFIG", "").split(os.pathsep) if part]
    return named or [DEFAULT_FILE.expanduser()]


# --- files ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Merged:
    """Several files as one: of each name the first that says something of it counts."""

    source: str
    current: str
    clusters: Mapping[str, Section]
    contexts: Mapping[str, Section]
    users: Mapping[str, Section]


def merge(files: list[Path]) -> Merged:
    """Those that do not exist say nothing."""
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
    return Merged(source, current, found["clusters"], found["contexts"], found["users"])


def _exists(file: Path) -> bool:
    """Also if nobody lets us look: reading it says why."""
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


# --- one context ----------------------------------------------------------------------------------


def access(merged: Merged, *, context: str = "", cluster: str = "", user: str = "", server: str = "") -> Access:
    chosen: Section = {}
    if name := context or merged.current:
        chosen = _named(merged.contexts, name, "context", merged.source)
    elif not cluster:
        raise KubeconfigError(f"no context is chosen in {merged.source}; `kubectl config use-context` chooses one")
    where_name, who_name = cluster or _text(chosen, "cluster"), user or _text(chosen, "user")
    if not where_name:
        raise KubeconfigError(f"context {name!r} in {merged.source} does not name a cluster")
    where = _named(merged.clusters, where_name, "cluster", merged.source)
    who = _named(merged.users, who_name, "user", merged.source) if who_name else {}
    if server:
        where = {**where, "server": _instead(server, where, who)}
    return _access(where, who, _text(chosen, "namespace") or "default")


def _instead(server: str, where: Section, who: Section) -> str:
    """Another server than the file says, below the same path unless it has one of its own."""
    secured = where.get("insecure-skip-tls-verify") is True or any(
        _text(section, name) or _text(section, f"{name}-data")
        for section, name in ((where, "certificate-authority"), (who, "client-certificate"))
    )
    url = server_url(server, secured=secured)
    return url if _url(url).path.strip("/") else url.rstrip("/") + _url(_text(where, "server")).path


def server_url(said: str, *, secured: bool) -> str:
    """The URL of a server that may be said as host:port alone, which is HTTP unless something is said about TLS, as
    with clients of Kubernetes.  Raises KubeconfigError."""
    if "://" in said:
        return _url(said).geturl()
    url = _url(f"{'https' if secured else 'http'}://{said}")
    if url.path.strip("/") or url.query or url.fragment:
        raise KubeconfigError(f"{said!r} is neither the URL of a server nor host:port")
    return url.geturl()


def _named(entries: Mapping[str, Section], name: str, what: str, source: str) -> Section:
    if name not in entries:
        raise KubeconfigError(f"there is no {what} {name!r} in {source}")
    return entries[name]


def _access(where: Section, who: Section, namespace: str) -> Access:
    parts = _url(_text(where, "server"))
    context = _tls(where, who) if parts.scheme == "https" else None
    identity = _identity(where, who, context)
    return Access(
        f"{parts.scheme}://{parts.netloc}",
        parts.path.rstrip("/"),
        namespace,
        context,
        _text(where, "tls-server-name") or None,
        identity.headers,
        proxy_to(parts, _text(where, "proxy-url")),
        identity.forget,
    )


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


def _tls(where: Section, who: Section) -> ssl.SSLContext:
    context = tls.context(_data(where, "certificate-authority"), insecure=where.get("insecure-skip-tls-verify") is True)
    certificate, key = _data(who, "client-certificate"), _data(who, "client-key")
    if bool(certificate) != bool(key):
        raise KubeconfigError("a client-certificate and a client-key are only of use together")
    if certificate:
        tls.present(context, certificate, key)
    return context


def _data(section: Section, name: str) -> bytes:
    """What `name-data` says, or the file that `name` names."""
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


# --- who we are -----------------------------------------------------------------------------------


def _identity(where: Section, who: Section, context: ssl.SSLContext | None) -> Identity:
    identity = _own_identity(where, who, context)
    acting = _acting(who)
    return Impersonating(identity, acting) if acting else identity


def _own_identity(where: Section, who: Section, context: ssl.SSLContext | None) -> Identity:
    if who.get("exec"):
        present = None if context is None else partial(tls.present, context)
        return Program(_command(where, who), present)
    if file := _text(who, "tokenFile"):
        return TokenFile(_beside(who, file))
    if token := _text(who, "token"):
        return Fixed(bearer(token, "what the user has as its token"))
    if name := _text(who, "username"):
        return Fixed(basic(name, _text(who, "password")))
    if who.get("auth-provider"):
        raise KubeconfigError("an auth-provider is not supported; an exec plugin does the same")
    return NOBODY


def _acting(who: Section) -> CIMultiDict[str]:
    """`as` and what belongs to it.  Whoever is asked to act as another must not act as itself."""
    said: CIMultiDict[str] = CIMultiDict()
    groups, extra = who.get("as-groups") or [], who.get("as-user-extra") or {}
    if not isinstance(groups, list) or not isinstance(extra, dict):
        raise KubeconfigError("as-groups is not a list, or as-user-extra is not an object")
    for header, name in (("Impersonate-User", "as"), ("Impersonate-Uid", "as-uid")):
        if value := _text(who, name):
            said.add(header, value)
    for group in groups:
        said.add("Impersonate-Group", str(group))
    for name, values in extra.items():
        for value in values if isinstance(values, list) else [values]:
            said.add(f"Impersonate-Extra-{name}", str(value))
    if said and "Impersonate-User" not in said:
        raise KubeconfigError("as-uid, as-groups and as-user-extra are of no use without as")
    if not all(text.isprintable() and text.isascii() for pair in said.items() for text in pair):
        raise KubeconfigError("whom to act as is not a text that can be sent")
    return said


def _command(where: Section, who: Section) -> Command:
    said = who["exec"]
    if not isinstance(said, dict) or not _text(said, "command"):
        raise KubeconfigError("exec does not name a command")
    program, arguments, environment = _text(said, "command"), said.get("args") or [], said.get("env") or []
    if not isinstance(arguments, list) or not isinstance(environment, list):
        raise KubeconfigError("args and env of exec are not lists")
    if not all(isinstance(one, dict) and _text(one, "name") for one in environment):
        raise KubeconfigError("an entry of env of exec has no name")
    if said.get("interactiveMode") == "Always":
        raise KubeconfigError(f"{program} wants to ask somebody, and there is nobody to ask")
    return Command(
        str(_beside(who, program)) if os.sep in program else program,
        [str(argument) for argument in arguments],
        {_text(one, "name"): _text(one, "value") for one in environment},
        _text(said, "apiVersion") or EXEC_VERSION,
        _text(said, "installHint"),
        _told(where) if said.get("provideClusterInfo") is True else None,
    )


def _told(where: Section) -> Mapping[str, Any]:
    """What a program hears of the server."""
    names = ("server", "tls-server-name", "insecure-skip-tls-verify", "proxy-url")
    told = {name: where[name] for name in names if where.get(name)}
    if authority := _data(where, "certificate-authority"):
        told["certificate-authority-data"] = base64.b64encode(authority).decode()
    for one in where.get("extensions") or ():
        if isinstance(one, dict) and one.get("name") == EXTENSION:
            told["config"] = one.get("extension")
    return told


def of_service_account(environment: Mapping[str, str], directory: Path = ACCOUNT) -> Access:
    """What every container of a cluster is told."""
    host, port = environment.get("KUBERNETES_SERVICE_HOST", ""), environment.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise KubeconfigError("there is no kubeconfig, and KUBERNETES_SERVICE_HOST is not set")
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    namespace = directory / "namespace"
    identity = TokenFile(directory / "token")
    return Access(
        server,
        "",
        namespace.read_text().strip() if namespace.exists() else "default",
        _tls({"certificate-authority": str(directory / "ca.crt")}, {}),
        None,
        identity.headers,
        proxy_to(_url(server)),
        identity.forget,
    )
