"""Connections to a server: TLS contexts, proxies and dialing."""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import os
import ssl
import tempfile
from collections.abc import Mapping
from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit

from farflung.client.connection import ClientConnection
from farflung.client.errors import KubeconfigError, Unreachable

CONNECT_SECONDS: Final = 10.0
PORTS: Final[Mapping[str, int]] = {"http": 80, "https": 443}


class Dialer:
    def __init__(
        self, server: SplitResult, tls: ssl.SSLContext | None, server_name: str | None, proxy: SplitResult | None
    ) -> None:
        """`server_name`: the name in the server's certificate, if it is not the host name."""
        self.host = server.netloc
        self._server = server
        self._encrypted = server.scheme == "https"
        self._tls = tls
        self._server_name = server_name or server.hostname
        self._proxy = proxy

    @property
    def is_relayed(self) -> bool:
        """Whether a proxy forwards each request."""
        return self._proxy is not None and not self._encrypted

    @property
    def headers(self) -> Mapping[str, str]:
        """Additional headers of each request."""
        return self._to_proxy() if self.is_relayed else {}

    async def connect(self) -> ClientConnection:
        """Raises Unreachable."""
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                if self._proxy is None:
                    return await self._dial(
                        self._server, self._context() if self._encrypted else None, self._server_name
                    )
                context = ssl.create_default_context() if self._proxy.scheme == "https" else None
                connection = await self._dial(self._proxy, context, self._proxy.hostname)
                return await self._tunnelled(connection) if self._encrypted else connection
        except TimeoutError:
            raise Unreachable("no answer in time") from None

    def _context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = ssl.create_default_context()
        return self._tls

    async def _dial(self, url: SplitResult, context: ssl.SSLContext | None, name: str | None) -> ClientConnection:
        port = url.port or PORTS.get(url.scheme, 443)
        loop = asyncio.get_running_loop()
        server_name = name if context is not None else None
        try:
            _, made = await loop.create_connection(
                ClientConnection, url.hostname or "", port, ssl=context, server_hostname=server_name
            )
        except OSError as error:
            raise Unreachable(f"cannot connect to {url.hostname}:{port}: {_cause(error)}") from error
        return made

    async def _tunnelled(self, connection: ClientConnection) -> ClientConnection:
        """Connect through a CONNECT tunnel of the proxy."""
        where = f"{self._server.hostname}:{self._server.port or PORTS['https']}"
        headers = {"Host": where, **self._to_proxy()}
        lines = [f"CONNECT {where} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
        try:
            connection.begin("\r\n".join(lines).encode())
            await connection.head()
            if connection.status != 200:
                raise Unreachable(f"the proxy does not connect to {where}: it answered {connection.status}")
            inner, wire = ClientConnection(), connection.wire
            assert wire is not None
            loop = asyncio.get_running_loop()
            inner.wire = await loop.start_tls(wire, inner, self._context(), server_hostname=self._server_name)
        except OSError as error:
            connection.close()
            raise Unreachable(f"cannot connect to {where} through the proxy: {_cause(error)}") from error
        except BaseException:
            connection.close()
            raise
        return inner

    def _to_proxy(self) -> Mapping[str, str]:
        proxy = self._proxy
        if proxy is None or not proxy.username:
            return {}
        words = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
        return {"Proxy-Authorization": f"Basic {base64.b64encode(words.encode()).decode()}"}


def _cause(error: OSError) -> str:
    """The message of the operating system; asyncio replaces it."""
    if isinstance(error, ConnectionError) and error.errno:
        return os.strerror(error.errno).lower()
    return error.strerror or str(error) or type(error).__name__


# --- TLS ------------------------------------------------------------------------------------------


def tls_context(authority: bytes, *, insecure: bool = False) -> ssl.SSLContext:
    """`authority`: CA certificates in PEM; empty: those of the machine.  `insecure`: do not verify."""
    try:
        made = ssl.create_default_context(cadata=authority.decode() if authority else None)
    except (ssl.SSLError, ValueError) as error:
        raise KubeconfigError(f"the certificate-authority is no certificate: {error}") from None
    if insecure:
        made.check_hostname = False
        made.verify_mode = ssl.CERT_NONE
    return made


def load_client_certificate(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """`certificate` and `key` in PEM.  OpenSSL reads them from a private temporary file."""
    try:
        with tempfile.NamedTemporaryFile() as file:
            file.write(certificate + b"\n" + key)
            file.flush()
            context.load_cert_chain(file.name, password=_no_password)
    except (OSError, ValueError) as error:
        raise KubeconfigError(f"the client certificate and its key cannot be used: {error}") from None


def _no_password() -> str:
    """Without this, OpenSSL prompts at the terminal."""
    raise ValueError("the key needs a password")


# --- proxies --------------------------------------------------------------------------------------


def proxy_to(server: SplitResult, proxy_url: str = "") -> str | None:
    """`proxy_url`: of the kubeconfig; it takes precedence over $HTTPS_PROXY, $HTTP_PROXY and $NO_PROXY."""
    proxy = proxy_url or _of_environment(server)
    if proxy and urlsplit(proxy).scheme not in ("http", "https"):
        raise KubeconfigError(f"{proxy!r} is not the URL of a proxy that speaks HTTP")
    return proxy or None


def _of_environment(server: SplitResult) -> str:
    """Loopback addresses need no proxy."""
    host = server.hostname or ""
    if host == "localhost" or _is_loopback(host):
        return ""
    from urllib.request import getproxies, proxy_bypass  # with http.client and email: 10 ms

    return "" if proxy_bypass(server.netloc) else getproxies().get(server.scheme, "")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
