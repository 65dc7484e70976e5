"""Requests to an API server over one connection, and the credentials of a kubeconfig."""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection, HTTPException, HTTPResponse
from pathlib import Path
from ssl import PROTOCOL_TLS_CLIENT, SSLContext, SSLError, VerifyMode
from typing import Any
from urllib.parse import urlsplit

from farflung.cli.plugins.commands import ApiFailure, CommandError
from farflung.cli.plugins.kubeconfig import PluginAccess

PARTIAL_CHAIN = 0x80000  #: OpenSSL: trust every certificate in the kubeconfig, also intermediate ones


def headers(user: dict[str, Any]) -> list[tuple[str, str]]:
    """Authentication headers.  A token takes precedence over a password, as in kubectl."""
    found = []
    token = _token(user)
    if token:
        found.append(("Authorization", f"Bearer {token}"))
    elif user.get("username"):
        found.append(("Authorization", _basic(user["username"], user.get("password", ""))))
    impersonated = (("Impersonate-User", user.get("as")), ("Impersonate-Uid", user.get("as-uid")))
    found += [(header, str(value)) for header, value in impersonated if value]
    found += [("Impersonate-Group", str(group)) for group in user.get("as-groups") or []]
    return found


def _basic(name: str, password: str) -> str:
    return f"Basic {_encoded(f'{name}:{password}')}"


def with_handed_out(access: PluginAccess) -> dict[str, Any]:
    """The user, with the credentials of its exec plugin, if any."""
    user = access.user
    return user | _executed(user["exec"], access) if isinstance(user.get("exec"), dict) else user


def tls_context(cluster: dict[str, Any], user: dict[str, Any]) -> SSLContext:
    context = SSLContext(PROTOCOL_TLS_CLIENT)
    try:
        if cluster.get("insecure-skip-tls-verify"):
            context.check_hostname = False
            context.verify_mode = VerifyMode.CERT_NONE
        elif cluster.get("certificate-authority-data"):
            context.load_verify_locations(cadata=_decoded(cluster["certificate-authority-data"]).decode("ascii"))
        elif cluster.get("certificate-authority"):
            context.load_verify_locations(cafile=cluster["certificate-authority"])
        else:
            context.load_default_certs()
        context.verify_flags |= PARTIAL_CHAIN
        _load_client_certificate(context, user)
    except (OSError, SSLError, ValueError) as error:
        raise CommandError(f"unable to use the certificates of the kubeconfig: {error}") from None
    return context


def _token(user: dict[str, Any]) -> str:
    if not user.get("tokenFile"):
        return str(user.get("token") or "")
    try:
        return Path(user["tokenFile"]).read_text(encoding="utf-8").strip()
    except OSError as error:
        if user.get("token"):
            return str(user["token"])
        raise CommandError(f"open {user['tokenFile']}: {(error.strerror or '').lower()}") from None


def _load_client_certificate(context: SSLContext, user: dict[str, Any]) -> None:
    with ExitStack() as files:
        certificate = files.enter_context(_file(user, "client-certificate"))
        key = files.enter_context(_file(user, "client-key"))
        if certificate and key:
            context.load_cert_chain(certificate, key)


@contextmanager
def _file(user: dict[str, Any], field: str) -> Iterator[str | None]:
    """A path from which OpenSSL can read the data, without writing a key to disk."""
    if not user.get(f"{field}-data"):
        yield user.get(field)
        return
    content = _decoded(user[f"{field}-data"])
    if hasattr(os, "memfd_create"):
        with os.fdopen(os.memfd_create(field), "wb") as file:
            file.write(content)
            file.flush()
            yield f"/proc/self/fd/{file.fileno()}"
    else:
        import tempfile

        with tempfile.NamedTemporaryFile() as file:
            file.write(content)
            file.flush()
            yield file.name


def _decoded(data: str) -> bytes:
    import binascii

    return binascii.a2b_base64(data)


def _encoded(text: str) -> str:
    import binascii

    return binascii.b2a_base64(text.encode(), newline=False).decode()


def _executed(execution: dict[str, Any], access: PluginAccess) -> dict[str, Any]:
    """The output of an exec plugin, as fields of a kubeconfig user."""
    import subprocess

    environment = dict(os.environ)
    environment.update({item["name"]: str(item.get("value", "")) for item in execution.get("env") or []})
    environment["KUBERNETES_EXEC_INFO"] = json.dumps(_exec_info(execution, access))
    command = [str(execution.get("command", "")), *map(str, execution.get("args") or [])]
    try:
        # The person who owns the kubeconfig named the program there, for this purpose.
        answer = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True).stdout  # noqa: S603
        status = json.loads(answer)["status"]
    except OSError as error:
        hint = execution.get("installHint")
        raise CommandError(
            f"getting credentials: exec: executable {command[0]} failed: {error.strerror}"
            + (f"\n\n{hint}" if hint else "")
        ) from None
    except subprocess.CalledProcessError as error:
        message = f"getting credentials: exec: executable {command[0]} failed with exit code {error.returncode}"
        raise CommandError(message) from None
    except (ValueError, KeyError, TypeError):
        raise CommandError(f"getting credentials: exec: {command[0]} printed no ExecCredential") from None
    return _as_user(status)


def _exec_info(execution: dict[str, Any], access: PluginAccess) -> dict[str, Any]:
    interactive = os.isatty(0) and execution.get("interactiveMode") != "Never"
    spec: dict[str, Any] = {"interactive": interactive}
    if execution.get("provideClusterInfo"):
        given = ("server", "tls-server-name", "insecure-skip-tls-verify", "certificate-authority-data", "proxy-url")
        spec["cluster"] = {field: access.cluster[field] for field in given if field in access.cluster}
    return {"apiVersion": execution.get("apiVersion", ""), "kind": "ExecCredential", "spec": spec}


def _as_user(status: dict[str, Any]) -> dict[str, Any]:
    user = {"token": status["token"]} if status.get("token") else {}
    for given, field in (("clientCertificateData", "client-certificate-data"), ("clientKeyData", "client-key-data")):
        if status.get(given):
            user[field] = _encoded(str(status[given]))
    return user


TIMEOUT = 60.0  #: seconds to wait for an answer
ATTEMPTS = 10  #: of a request that the server asks to retry
MAX_ANSWER = 512 * 1024 * 1024
DIALLING_PORTS = {"https": 443, "http": 80}
WORDS_OF_A_CODE = {401: "Unauthorized", 404: "the server could not find the requested resource"}


class PluginConnection:
    """Connects to the server of a PluginAccess.  Paths begin with a slash; names in them are quoted."""

    def __init__(self, access: PluginAccess, verbosity: int = 0) -> None:
        self._access = access
        self._verbosity = verbosity
        self._user = with_handed_out(access)
        self._headers = [("Accept", "application/json"), ("User-Agent", "kubectl-ws"), *headers(self._user)]
        self._parts = urlsplit(access.server)
        self._wire: HTTPConnection | None = None
        if self._parts.scheme not in DIALLING_PORTS or not self._parts.hostname:
            raise CommandError(f'"{access.server}" is no URL of a server')

    def close(self) -> None:
        if self._wire is not None:
            self._wire.close()

    def get(self, path: str) -> dict[str, Any]:
        return self.request("GET", path)

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        return self.request("POST", path, body, "application/json")

    def merge(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        return self.request("PATCH", path, body, "application/merge-patch+json")

    def request(self, method: str, path: str, body: dict[str, Any] | None = None, content: str = "") -> dict[str, Any]:
        """The object in the answer.  Raises ApiFailure if the server refuses, CommandError without an answer."""
        sent = None if body is None else json.dumps(body, ensure_ascii=False).encode()
        headers = list(self._headers)
        if sent is not None:
            headers += [("Content-Type", content), ("Content-Length", str(len(sent)))]
        for attempt in range(1, ATTEMPTS + 1):
            answer, text = self._exchange(method, path, sent, headers)
            pause = answer.getheader("Retry-After", "")
            if not pause.isdigit() or attempt == ATTEMPTS or (answer.status != 429 and answer.status < 500):
                return _understood(answer, text)
            time.sleep(min(int(pause), 30))
        raise AssertionError("the last attempt returns")

    def _exchange(
        self, method: str, path: str, body: bytes | None, headers: list[tuple[str, str]]
    ) -> tuple[HTTPResponse, bytes]:
        url = f"{self._parts.scheme}://{self._parts.netloc}{path}"
        try:
            if self._wire is None:
                self._wire = self._dialled()
            self._wire.putrequest(method, path, skip_accept_encoding=True)
            for name, value in headers:
                self._wire.putheader(name, value)
            self._wire.endheaders(body)
            answer = self._wire.getresponse()
            text = answer.read(MAX_ANSWER)
        except (OSError, HTTPException) as error:
            raise CommandError(f'{method.capitalize()} "{url}": {_describe(error)}') from None
        if self._verbosity >= 6:
            print(f"{method} {url} {answer.status} {answer.reason}", file=sys.stderr)
        return answer, text

    def _dialled(self) -> HTTPConnection:
        host, scheme = self._parts.hostname or "", self._parts.scheme
        port = self._parts.port or DIALLING_PORTS[scheme]
        context = None
        if scheme == "https":
            context = tls_context(self._access.cluster, self._user)
        name = str(self._access.cluster.get("tls-server-name") or host)
        proxy = _proxy(str(self._access.cluster.get("proxy-url") or ""), scheme, host)
        if proxy is None:
            return _Wire(host, port, context, name)
        wire = _Wire(proxy[0], proxy[1], context, name)
        wire.set_tunnel(host, port, proxy[2])
        return wire


class _Wire(HTTPConnection):
    """The TLS name may differ from the host."""

    def __init__(self, host: str, port: int, context: SSLContext | None, name: str) -> None:
        super().__init__(host, port, timeout=TIMEOUT)
        self._context = context
        self._name = name

    def connect(self) -> None:
        super().connect()
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._context is not None:
            self.sock = self._context.wrap_socket(self.sock, server_hostname=self._name)


def _understood(answer: HTTPResponse, text: bytes) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if answer.status < 300:
        if not isinstance(value, dict):
            raise CommandError("the server's answer is no JSON object")
        return value
    if isinstance(value, dict) and value.get("kind") == "Status" and isinstance(value.get("message"), str):
        raise ApiFailure(answer.status, value["message"] or answer.reason)
    raise ApiFailure(answer.status, _words(answer, text))


def _words(answer: HTTPResponse, text: bytes) -> str:
    message = (
        text.decode("utf-8", "replace").strip() if "text/plain" in answer.getheader("Content-Type", "") else "unknown"
    )
    if answer.status in WORDS_OF_A_CODE:
        return WORDS_OF_A_CODE[answer.status]
    if answer.status >= 500:
        return f'an error on the server ("{message}") has prevented the request from succeeding'
    return message


def _describe(error: Exception) -> str:
    text = getattr(error, "verify_message", "") or getattr(error, "strerror", "") or str(error) or type(error).__name__
    return f"certificate is not trusted: {text}" if hasattr(error, "verify_message") else str(text).lower()


def _proxy(configured: str, scheme: str, host: str) -> tuple[str, int, dict[str, str]] | None:
    """Host, port and headers of the proxy: of the kubeconfig, else of the environment."""
    url = configured or _environment_proxy(scheme, host)
    if not url:
        return None
    parts = urlsplit(url if "://" in url else f"http://{url}")
    if parts.scheme != "http" or not parts.hostname:
        raise CommandError(f"a proxy must have an http:// URL, not {parts.scheme}://")
    headers = {}
    if parts.username:
        headers["Proxy-Authorization"] = _basic(parts.username, parts.password or "")
    return parts.hostname, parts.port or 80, headers


def _environment_proxy(scheme: str, host: str) -> str:
    name = f"{scheme}_proxy"
    url = os.environ.get(name) or os.environ.get(name.upper()) or ""
    if not url or host == "localhost" or host.startswith("127.") or host == "::1":
        return ""
    from urllib.request import proxy_bypass

    return "" if proxy_bypass(host) else url
