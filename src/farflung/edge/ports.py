"""Ports of this machine that lead to ports of an edge's node, and so to its pods.

They are listened on as long as the edge runs, whether a pod has published something there or not, so that nobody else
takes them.  Who connects while nobody has is turned away at once.
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

MOST: Final = 512  #: connections by one port at a time, if there are descriptors; further ones are turned away
BLOCK: Final = 64 * 1024
CONNECT: Final = 10.0  #: seconds
PROTOCOL: Final = "TCP"
PROC: Final = Path("/proc")
LISTENING: Final = "0A"  #: the state of a socket, as /proc/net/tcp has it
LONGEST: Final = 80  #: characters of a command line that are shown


@dataclass(frozen=True, slots=True)
class PortMapping:
    node_port: int
    port: int  #: of this machine
    address: str = "127.0.0.1"  #: of this machine

    def __str__(self) -> str:
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"{host}:{self.port}->{self.node_port}/tcp"


@contextlib.asynccontextmanager
async def published(mappings: Sequence[PortMapping], log: Logger, descriptors: int) -> AsyncIterator[PortForwarder]:
    """A Publisher, as long as the block lasts.  `descriptors`: how many this process may have; visitors get half of
    them at most, because the rest of the edge needs some too.  Raises PortTaken."""
    ports = PortForwarder(log, max(1, min(MOST, descriptors // 4 // max(len(mappings), 1))))
    try:
        for mapping in mappings:
            await ports.listen(mapping)
        yield ports
    finally:
        await ports.close()


class PortForwarder:
    """What is published last for a port of the node counts."""

    def __init__(self, log: Logger, most: int) -> None:
        """`most`: connections by one port at a time."""
        self._log = log
        self._most = most
        self._doors: dict[int, list[ForwardedPort]] = {}
        self._published: dict[int, dict[str, Address]] = {}  #: by port of the node, by pod

    async def listen(self, mapping: PortMapping) -> None:
        door = ForwardedPort(mapping, self._log, self._most)
        await door.open()
        self._doors.setdefault(mapping.node_port, []).append(door)

    async def close(self) -> None:
        doors = [door for doors in self._doors.values() for door in doors]
        self._doors.clear()
        for door in doors:
            await door.close()

    async def publish(self, pod_uid: str, node_port: int, protocol: str, to: Address) -> None:
        """Ports of the node that no port of this machine leads to can be published, to no avail."""
        if protocol != PROTOCOL:
            return
        pods = self._published.setdefault(node_port, {})
        pods.pop(pod_uid, None)
        pods[pod_uid] = to
        self._lead(node_port)

    async def withdraw(self, pod_uid: str) -> None:
        for node_port, pods in self._published.items():
            if pods.pop(pod_uid, None) is not None:
                self._lead(node_port)

    def _lead(self, node_port: int) -> None:
        to = next(reversed(self._published[node_port].values()), None)
        for door in self._doors.get(node_port, ()):
            door.lead(to)


class ForwardedPort:
    """One port of this machine, and who came by it."""

    def __init__(self, mapping: PortMapping, log: Logger, most: int) -> None:
        self._mapping = mapping
        self._most = most
        self._log = log.bind(port=str(mapping))
        self._to: Address | None = None
        self._server: asyncio.Server | None = None
        self._visits: dict[asyncio.Task[None], Address] = {}

    async def open(self) -> None:
        address, port = self._mapping.address, self._mapping.port
        try:
            self._server = await asyncio.start_server(self._welcome, address, port, limit=BLOCK)
        except OSError as error:
            raise PortUnavailable(sentence(address, port, error)) from None

    def lead(self, to: Address | None) -> None:
        """Whoever is on a way that leads nowhere any more is sent off."""
        self._to = to
        for visit, went in self._visits.items():
            if went != to:
                visit.cancel()

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        visits = list(self._visits)
        for visit in visits:
            visit.cancel()
        await asyncio.gather(*visits, return_exceptions=True)
        if self._server is not None:
            await self._server.wait_closed()

    async def _welcome(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        to, visit = self._to, asyncio.current_task()
        if to is None or len(self._visits) >= self._most or visit is None:
            writer.transport.abort()
            return
        self._visits[visit] = to
        try:
            async with _connected(to) as (far_reader, far_writer), asyncio.TaskGroup() as group:
                group.create_task(_carry(reader, far_writer))
                group.create_task(_carry(far_reader, writer))
        except* OSError as errors:
            # a broken connection at one end becomes one at the other: nothing looks as if it had ended well
            writer.transport.abort()
            self._log.info("a connection broke", v=4, reason=str(errors.exceptions[0]))
        except* asyncio.CancelledError:
            writer.transport.abort()
        finally:
            del self._visits[visit]
            writer.close()


@contextlib.asynccontextmanager
async def _connected(to: Address) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    async with asyncio.timeout(CONNECT):
        reader, writer = await asyncio.open_connection(to.host, to.port, limit=BLOCK)
    try:
        yield reader, writer
    except BaseException:
        writer.transport.abort()
        raise
    finally:
        writer.close()


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """As fast as it is taken; the end of what is said is passed on, and answers may still come."""
    while data := await reader.read(BLOCK):
        writer.write(data)
        await writer.drain()
    with contextlib.suppress(OSError):  # who has left already need not be told
        writer.write_eof()


def free_port(address: str) -> int:
    """One that nobody has at the moment.  Raises OSError."""
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as probe:
        probe.bind((address, 0))
        return int(probe.getsockname()[1])


class PortUnavailable(Exception):
    """A sentence that says which port, and if it can be known whose it is."""


def check(wanted: Iterable[tuple[str, int]]) -> None:
    """Whether each (address, port) can be listened on, all of them at once.  Raises PortTaken."""
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
        raise PortUnavailable(sentence(address, port, error)) from None
    return probe


def sentence(address: str, port: int, error: OSError) -> str:
    where = f"port {port} of {address}"
    if error.errno == errno.EADDRINUSE:
        holder = next(holders(port), "")
        return f"{where} is in use by {holder}" if holder else f"{where} is in use"
    return f"{where} cannot be used: {(error.strerror or str(error)).lower()}"


def holders(port: int) -> Iterator[str]:
    """The processes that listen on a port of any address, as far as we may see them: `process 123 (nginx -g …)`."""
    sockets = set(_inodes(port))
    if not sockets:
        return
    for directory in sorted(PROC.glob("[0-9]*"), key=lambda one: int(one.name)):
        with contextlib.suppress(OSError):
            if any(_is_one(descriptor, sockets) for descriptor in (directory / "fd").iterdir()):
                yield f"process {directory.name} ({_command(directory)})"


def _is_one(descriptor: Path, sockets: set[str]) -> bool:
    try:
        return str(descriptor.readlink()) in sockets
    except OSError:
        return False


def _inodes(port: int) -> Iterator[str]:
    """What the descriptors of sockets that listen there lead to: `socket:[4711]`."""
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
    return shown if len(shown) <= LONGEST else f"{shown[:LONGEST]}…"
