"""Forwards ports of this machine to ports of an edge's node, and so to its pods.

The edge listens on these ports while it runs, so that no other process takes them.  It refuses connections while no
pod has published the port of the node.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from farflung.edge.runtimes.base import Address
from farflung.lib.klog import Logger

MAX_CONNECTIONS: Final = 512  #: per port, if enough descriptors are available
BLOCK: Final = 64 * 1024
CONNECT_TIMEOUT: Final = 10.0  #: seconds
PROTOCOL: Final = "TCP"
PROC: Final = Path("/proc")
LISTENING: Final = "0A"  #: state of a socket in /proc/net/tcp
MAX_COMMAND: Final = 80  #: characters of a command line in messages


@dataclass(frozen=True, slots=True)
class PortMapping:
    node_port: int
    port: int  #: of this machine
    address: str = "127.0.0.1"  #: of this machine

    def __str__(self) -> str:
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"{host}:{self.port}->{self.node_port}/tcp"


@contextlib.asynccontextmanager
async def forward_ports(mappings: Sequence[PortMapping], log: Logger, descriptors: int) -> AsyncIterator[PortForwarder]:
    """A Publisher.  `descriptors`: the limit of this process; connections get at most half of them.  Raises
    PortUnavailable."""
    ports = PortForwarder(log, max(1, min(MAX_CONNECTIONS, descriptors // 4 // max(len(mappings), 1))))
    try:
        for mapping in mappings:
            await ports.listen(mapping)
        yield ports
    finally:
        await ports.close()


class PortForwarder:
    """A port of the node is forwarded to the pod that published it last."""

    def __init__(self, log: Logger, most: int) -> None:
        """`most`: connections per port."""
        self._log = log
        self._most = most
        self._ports: dict[int, list[ForwardedPort]] = {}
        self._published: dict[int, dict[str, Address]] = {}  #: by port of the node, by pod

    async def listen(self, mapping: PortMapping) -> None:
        port = ForwardedPort(mapping, self._log, self._most)
        await port.open()
        self._ports.setdefault(mapping.node_port, []).append(port)

    async def close(self) -> None:
        ports = [port for ports in self._ports.values() for port in ports]
        self._ports.clear()
        for port in ports:
            await port.close()

    async def publish(self, pod_uid: str, node_port: int, protocol: str, to: Address) -> None:
        """Publishing a port of the node that no port of this machine maps to has no effect."""
        if protocol != PROTOCOL:
            return
        pods = self._published.setdefault(node_port, {})
        pods.pop(pod_uid, None)
        pods[pod_uid] = to
        self._redirect(node_port)

    async def withdraw(self, pod_uid: str) -> None:
        for node_port, pods in self._published.items():
            if pods.pop(pod_uid, None) is not None:
                self._redirect(node_port)

    def _redirect(self, node_port: int) -> None:
        to = next(reversed(self._published[node_port].values()), None)
        for port in self._ports.get(node_port, ()):
            port.redirect(to)


class ForwardedPort:
    """One port of this machine and its connections."""

    def __init__(self, mapping: PortMapping, log: Logger, most: int) -> None:
        self._mapping = mapping
        self._most = most
        self._log = log.bind(port=str(mapping))
        self._to: Address | None = None
        self._server: asyncio.Server | None = None
        self._connections: dict[asyncio.Task[None], Address] = {}

    async def open(self) -> None:
        address, port = self._mapping.address, self._mapping.port
        try:
            self._server = await asyncio.start_server(self._accept, address, port, limit=BLOCK)
        except OSError as error:
            raise PortUnavailable(port_error(address, port, error)) from None

    def redirect(self, to: Address | None) -> None:
        """Close connections to other addresses."""
        self._to = to
        for connection, target in self._connections.items():
            if target != to:
                connection.cancel()

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        connections = list(self._connections)
        for connection in connections:
            connection.cancel()
        await asyncio.gather(*connections, return_exceptions=True)
        if self._server is not None:
            await self._server.wait_closed()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        to, connection = self._to, asyncio.current_task()
        if to is None or len(self._connections) >= self._most or connection is None:
            writer.transport.abort()
            return
        self._connections[connection] = to
        try:
            async with _connected(to) as (far_reader, far_writer), asyncio.TaskGroup() as group:
                group.create_task(_copy(reader, far_writer))
                group.create_task(_copy(far_reader, writer))
        except* OSError as errors:
            # abort, so that the client does not mistake the error for the end of the data
            writer.transport.abort()
            self._log.info("a connection broke", v=4, reason=str(errors.exceptions[0]))
        except* asyncio.CancelledError:
            writer.transport.abort()
        finally:
            del self._connections[connection]
            writer.close()


@contextlib.asynccontextmanager
async def _connected(to: Address) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    async with asyncio.timeout(CONNECT_TIMEOUT):
        reader, writer = await asyncio.open_connection(to.host, to.port, limit=BLOCK)
    try:
        yield reader, writer
    except BaseException:
        writer.transport.abort()
        raise
    finally:
        writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy with backpressure.  The end of the data is passed on; the other direction stays open."""
    while data := await reader.read(BLOCK):
        writer.write(data)
        await writer.drain()
    with contextlib.suppress(OSError):  # the peer has closed already
        writer.write_eof()


def free_port(address: str) -> int:
    """A port that is free at the moment.  Raises OSError."""
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as probe:
        probe.bind((address, 0))
        return int(probe.getsockname()[1])


class PortUnavailable(Exception):
    """Names the port and, if possible, the process that uses it."""


def check_ports(wanted: Iterable[tuple[str, int]]) -> None:
    """Listen on all (address, port) pairs for a moment.  Raises PortUnavailable."""
    with contextlib.ExitStack() as stack:
        for address, port in wanted:
            stack.enter_context(_listening(address, port))


def _listening(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    probe = socket.socket(family)
    try:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        probe.bind((address, port))
        probe.listen(1)
    except OSError as error:
        probe.close()
        raise PortUnavailable(port_error(address, port, error)) from None
    return probe


def port_error(address: str, port: int, error: OSError) -> str:
    where = f"port {port} of {address}"
    if error.errno == errno.EADDRINUSE:
        holder = next(holders(port), "")
        return f"{where} is in use by {holder}" if holder else f"{where} is in use"
    return f"{where} cannot be used: {(error.strerror or str(error)).lower()}"


def holders(port: int) -> Iterator[str]:
    """The visible processes that listen on the port: `process 123 (nginx -g …)`."""
    sockets = set(_inodes(port))
    if not sockets:
        return
    for directory in sorted(PROC.glob("[0-9]*"), key=lambda one: int(one.name)):
        with contextlib.suppress(OSError):
            if any(_is_socket(descriptor, sockets) for descriptor in (directory / "fd").iterdir()):
                yield f"process {directory.name} ({_command(directory)})"


def _is_socket(descriptor: Path, sockets: set[str]) -> bool:
    try:
        return str(descriptor.readlink()) in sockets
    except OSError:
        return False


def _inodes(port: int) -> Iterator[str]:
    """Link targets of the descriptors of listening sockets: `socket:[4711]`."""
    for name in ("tcp", "tcp6"):
        try:
            lines = (PROC / "net" / name).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if len(fields) > 9 and fields[3] == LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                yield f"socket:[{fields[9]}]"


def _command(directory: Path) -> str:
    words = (directory / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    shown = "".join(char if char.isprintable() else "?" for char in words)
    return shown if len(shown) <= MAX_COMMAND else f"{shown[:MAX_COMMAND]}…"
