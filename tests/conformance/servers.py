"""What a replay needs of a server, and a server that it reaches over the network."""

from __future__ import annotations

import base64
import http.client
import json
import queue
import socket
import ssl
import tempfile
import threading
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

import yaml

Headers = list[tuple[str, str]]
ANSWER_SECONDS: Final = 60.0
WATCH_SECONDS: Final = 30.0


@dataclass(frozen=True)
class Request:
    method: str
    target: str  #: path and query
    headers: dict[str, str]
    body: bytes | None = None
    as_administrator: bool = True  #: the server's connection proves who the administrator is


@dataclass(frozen=True)
class Reply:
    status: int
    headers: Headers
    body: bytes


class Watch:
    """An answer without an end: its lines arrive in a queue, None after the last one."""

    def __init__(self) -> None:
        self.reply: Reply | None = None  #: with a body only if it is not a stream
        self.answered = threading.Event()
        self.lines: queue.Queue[bytes | None] = queue.Queue()

    def answer(self, reply: Reply) -> None:
        self.reply = reply
        self.answered.set()

    def end(self) -> None:
        self.answered.set()
        self.lines.put(None)

    def close(self) -> None:
        """Leave the stream."""
        raise NotImplementedError


class Server(Protocol):
    def call(self, request: Request) -> Reply:
        """Raises OSError or HTTPException if there is no answer."""

    def watch(self, request: Request) -> Watch:
        """Returns at once: `answered` is set when the answer has begun."""


# --- over the network -----------------------------------------------------------------------------


class NetworkServer:
    """One connection, kept open, and one more for every watch.  To be used by one thread."""

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        tls: ssl.SSLContext | None = None,
        administrator_tls: ssl.SSLContext | None = None,
    ) -> None:
        """`administrator_tls` has the administrator's client certificate; a token takes its place."""
        self.url = urlsplit(url)
        self._token = token
        self._contexts = {False: tls, True: administrator_tls or tls}
        self._separate = administrator_tls is not None
        self._connections: dict[bool, http.client.HTTPConnection] = {}

    def call(self, request: Request) -> Reply:
        kind = self._separate and request.as_administrator
        for is_last in (False, True):
            connection = self._connections.get(kind) or self.connect(request)
            self._connections[kind] = connection
            try:
                self.send(connection, request)
                response = connection.getresponse()
                return Reply(response.status, response.headers.items(), response.read())
            except (http.client.HTTPException, OSError):
                connection.close()
                del self._connections[kind]
                if is_last:
                    raise
        raise AssertionError("unreachable")

    def watch(self, request: Request) -> Watch:
        return _NetworkWatch(self, request)

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def connect(self, request: Request, timeout: float = ANSWER_SECONDS) -> http.client.HTTPConnection:
        assert self.url.hostname is not None
        if self.url.scheme == "http":
            return http.client.HTTPConnection(self.url.hostname, self.url.port, timeout=timeout)
        context = self._contexts[request.as_administrator]
        return http.client.HTTPSConnection(self.url.hostname, self.url.port, timeout=timeout, context=context)

    def send(self, connection: http.client.HTTPConnection, request: Request) -> None:
        headers = dict(request.headers)
        if request.as_administrator and self._token is not None:
            headers.setdefault("Authorization", f"Bearer {self._token}")
        connection.request(request.method, self.url.path.rstrip("/") + request.target, request.body, headers)


class _NetworkWatch(Watch):
    def __init__(self, server: NetworkServer, request: Request) -> None:
        super().__init__()
        self._connection = server.connect(request, WATCH_SECONDS)
        self._thread = threading.Thread(target=self._read, args=(server, request), daemon=True)
        self._thread.start()

    def _read(self, server: NetworkServer, request: Request) -> None:
        with suppress(OSError, ValueError, AttributeError, http.client.HTTPException):  # closed while it was read
            server.send(self._connection, request)
            with self._connection.getresponse() as response:
                streams = response.status == 200
                body = b"" if streams else response.read()
                self.answer(Reply(response.status, response.headers.items(), body))
                while streams and (line := response.readline()):
                    self.lines.put(line)
        self.end()

    def close(self) -> None:
        with suppress(OSError):
            if self._connection.sock is not None:
                self._connection.sock.shutdown(socket.SHUT_RDWR)
        self._thread.join(WATCH_SECONDS)
        self._connection.close()


# --- kubeconfigs ----------------------------------------------------------------------------------


def server_of(kubeconfig: Path, *, user: str | None = None, prefixed: bool = True) -> NetworkServer:
    """The server of the file's current context, with its user or another one as the administrator.

    `prefixed`: keep the path of the server's URL, which names a workspace.
    """
    config = yaml.safe_load(kubeconfig.read_text())
    context = _named(config["contexts"], config["current-context"])["context"]
    cluster = _named(config["clusters"], context["cluster"])["cluster"]
    credentials = _named(config["users"], user or context["user"])["user"]
    url = urlsplit(cluster["server"])
    address = cluster["server"] if prefixed else f"{url.scheme}://{url.netloc}"
    token = credentials.get("token")
    if "tokenFile" in credentials:
        token = Path(credentials["tokenFile"]).read_text().strip()
    tls = _tls_of(cluster)
    if token is not None:
        return NetworkServer(address, token=token, tls=tls)
    if _bytes_of(credentials, "client-certificate") is None:
        raise ValueError(f"{kubeconfig}: the user has neither a token nor a client certificate")
    with_certificate = _tls_of(cluster)
    _load_certificate(with_certificate, credentials)
    return NetworkServer(address, tls=tls, administrator_tls=with_certificate)


def token_of(kubeconfig: Path, user: str) -> str:
    token: str = _named(yaml.safe_load(kubeconfig.read_text())["users"], user)["user"]["token"]
    return token


def _named(entries: Iterable[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(entry for entry in entries if entry["name"] == name)


def _bytes_of(section: dict[str, Any], name: str) -> bytes | None:
    """What `name` says as a file, or `name-data` in the kubeconfig itself."""
    if f"{name}-data" in section:
        return base64.b64decode(section[f"{name}-data"])
    return Path(section[name]).read_bytes() if name in section else None


def _tls_of(cluster: dict[str, Any]) -> ssl.SSLContext:
    authority = _bytes_of(cluster, "certificate-authority")
    context = ssl.create_default_context(cadata=authority.decode() if authority else None)
    if cluster.get("insecure-skip-tls-verify"):
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _load_certificate(context: ssl.SSLContext, credentials: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as directory:  # ssl reads files only; the directory is its owner's alone
        path = Path(directory, "both.pem")
        parts = (_bytes_of(credentials, name) or b"" for name in ("client-certificate", "client-key"))
        path.write_bytes(b"\n".join(parts))
        context.load_cert_chain(path)


def decoded(body: bytes) -> Any:
    """JSON if it is, else text, else `{"base64": …}`."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(body).decode()}
    try:
        return json.loads(text) if text else ""
    except ValueError:
        return text
