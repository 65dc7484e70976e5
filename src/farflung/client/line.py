"""How a connection to a server comes about: by name or address, in TLS or not, through a proxy or not."""

from __future__ import annotations

import asyncio
import base64
import os
import ssl
from collections.abc import Mapping
from typing import Final
from urllib.parse import SplitResult, unquote

from farflung.client.connection import Connection
from farflung.client.errors import Unreachable

CONNECT_SECONDS: Final = 10.0
PORTS: Final[Mapping[str, int]] = {"http": 80, "https": 443}


class Line:
    def __init__(
        self, server: SplitResult, tls: ssl.SSLContext | None, server_name: str | None, proxy: SplitResult | None
    ) -> None:
        """`server_name`: in its certificate, if that is not the name we call it by."""
        self.host = server.netloc
        self._server = server
        self._encrypted = server.scheme == "https"
        self._tls = tls
        self._server_name = server_name or server.hostname
        self._proxy = proxy

    @property
    def is_relayed(self) -> bool:
        """The proxy reads each request, and passes it on."""
        return self._proxy is not None and not self._encrypted

    @property
    def headers(self) -> Mapping[str, str]:
        """That each request needs."""
        return self._to_proxy() if self.is_relayed else {}

    async def connect(self) -> Connection:
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

    async def _dial(self, whom: SplitResult, context: ssl.SSLContext | None, name: str | None) -> Connection:
        port = whom.port or PORTS.get(whom.scheme, 443)
        loop = asyncio.get_running_loop()
        server_name = name if context is not None else None
        try:
            _, made = await loop.create_connection(
                Connection, whom.hostname or "", port, ssl=context, server_hostname=server_name
            )
        except OSError as error:
            raise Unreachable(f"cannot connect to {whom.hostname}:{port}: {_cause(error)}") from error
        return made

    async def _tunnelled(self, connection: Connection) -> Connection:
        """The proxy only passes bytes on: it learns where to, and no more."""
        where = f"{self._server.hostname}:{self._server.port or PORTS['https']}"
        headers = {"Host": where, **self._to_proxy()}
        lines = [f"CONNECT {where} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
        try:
            connection.begin("\r\n".join(lines).encode())
            await connection.head()
            if connection.status != 200:
                raise Unreachable(f"the proxy does not connect to {where}: it answered {connection.status}")
            inner, wire = Connection(), connection.wire
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
    """As the system puts it; asyncio has words of its own for what it calls."""
    if isinstance(error, ConnectionError) and error.errno:
        return os.strerror(error.errno).lower()
    return error.strerror or str(error) or type(error).__name__
