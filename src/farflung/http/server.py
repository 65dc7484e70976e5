"""The HTTP server: listening, timeouts and graceful stop."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
import ssl
import time
from typing import Final

from farflung.http.connection import Connection, ServerState
from farflung.http.limits import Limits
from farflung.http.messages import Handler, Service

log = logging.getLogger(__name__)

DEFAULT_LIMITS: Final = Limits()
BACKLOG: Final = 1024
#: TCP keepalive, which detects a vanished peer after about a minute.
KEEPALIVE: Final = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 60_000}
#: Bytes that the kernel takes before it can send them; by default megabytes for each client that does not read.
UNSENT: Final = 128 * 1024
#: Seconds for cancelled requests to clean up.
CANCELLATION: Final = 1.0


async def serve(
    handler: Handler, *, host: str | None, port: int, tls: ssl.SSLContext | None, limits: Limits = DEFAULT_LIMITS
) -> Server:
    """Answer requests with `handler` until `Server.stop`.  Without a host, on all addresses; port 0 is any free port.

    Raises OSError with a message for users if the address cannot be used.
    """
    return await serve_on(await listening_sockets(host, port), Service(handler), tls=tls, limits=limits)


async def serve_on(
    sockets: list[socket.socket], service: Service, *, tls: ssl.SSLContext | None, limits: Limits = DEFAULT_LIMITS
) -> Server:
    """Like `serve`, on listening sockets, which are closed with the server."""
    loop = asyncio.get_running_loop()
    server = Server(ServerState(service, limits, loop, time.time()))
    try:
        await server.listen(sockets, tls)
    except BaseException:
        for listening in sockets:
            listening.close()
        raise
    return server


class Server:
    def __init__(self, shared: ServerState) -> None:
        self._shared = shared
        self._listeners: list[asyncio.AbstractServer] = []
        self._timer: asyncio.TimerHandle | None = None
        self._standstill = False
        self.port = 0

    async def listen(self, sockets: list[socket.socket], tls: ssl.SSLContext | None) -> None:
        shared = self._shared
        self.port = sockets[0].getsockname()[1]
        handshake = shared.limits.header_timeout if tls is not None else None
        for listening in sockets:
            self._listeners.append(
                await shared.loop.create_server(
                    lambda: Connection(shared),
                    sock=listening,
                    ssl=tls,
                    backlog=BACKLOG,
                    ssl_handshake_timeout=handshake,
                )
            )
        self._timer = shared.loop.call_later(shared.limits.sweep_interval, self._sweep)

    @property
    def open_connections(self) -> int:
        return len(self._shared.connections)

    @property
    def requests(self) -> int:
        """Requests passed to the handler."""
        return self._shared.requests

    @property
    def unread_bytes(self) -> int:
        """Kept in memory only for clients that have not read them."""
        return self._shared.unread.total

    @property
    def slow_clients(self) -> int:
        """Clients that were disconnected to free such memory."""
        return self._shared.unread.disconnected

    async def stop(self, grace: float) -> None:
        """Close listeners, end streams, finish requests, then close connections.  After `grace` seconds abort the rest.

        A write of a disconnected client counts as a request.
        """
        shared = self._shared
        shared.stopping = True
        for listener in self._listeners:
            listener.close()
        end = shared.loop.time() + grace
        while (shared.connections or shared.tasks) and (left := end - shared.loop.time()) > 0:
            shared.changed.clear()
            for connection in tuple(shared.connections):
                connection.wind_down()
            try:
                await asyncio.wait_for(shared.changed.wait(), min(left, shared.limits.sweep_interval))
            except TimeoutError:
                continue
        await self._abort()
        if self._timer is not None:
            self._timer.cancel()

    async def _abort(self) -> None:
        shared = self._shared
        for connection in tuple(shared.connections):
            connection.abort()
        for task in shared.tasks:
            task.cancel()
        if shared.tasks:
            await asyncio.wait(shared.tasks, timeout=CANCELLATION)
        while shared.connections:
            shared.changed.clear()
            await shared.changed.wait()

    def _sweep(self) -> None:
        """After a pause of the process, received data is read before timeouts are checked."""
        shared = self._shared
        now = shared.loop.time()
        self._standstill = not self._standstill and now > shared.time + 2 * shared.limits.sweep_interval
        shared.tick(now, time.time())
        if not self._standstill:
            for connection in tuple(shared.connections):
                connection.sweep(now)
        self._timer = shared.loop.call_later(shared.limits.sweep_interval, self._sweep)


async def listening_sockets(host: str | None, port: int) -> list[socket.socket]:
    """A socket for each address of the host, all on the same port.  Without a host: all addresses."""
    loop = asyncio.get_running_loop()
    name = host if host is not None else "*"
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise OSError(error.errno, f"cannot listen on {name}: {error.strerror or error}") from None
    sockets: list[socket.socket] = []
    for family, _, _, _, address in dict.fromkeys(found):
        try:
            sockets.append(listening_socket(family, (address[0], port, *address[2:])))
        except OSError as error:
            if error.errno in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL) and len(found) > 1:
                continue  # the machine does not have this address of the name
            for opened in sockets:
                opened.close()
            raise OSError(error.errno, f"cannot listen on {name}:{port}: {error.strerror or error}") from None
        port = sockets[0].getsockname()[1]
    if not sockets:
        raise OSError(errno.EADDRNOTAVAIL, f"cannot listen on {name}:{port}: no such address here")
    return sockets


def listening_socket(family: int, address: tuple[str | int, ...]) -> socket.socket:
    """Accepted connections inherit its options."""
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setblocking(False)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in KEEPALIVE.items():
            if hasattr(socket, name):
                listening.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        if hasattr(socket, "TCP_NOTSENT_LOWAT"):
            with contextlib.suppress(OSError):  # not every sandbox has it
                listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listening.bind(address)
        listening.listen(BACKLOG)
    except BaseException:
        listening.close()
        raise
    return listening
