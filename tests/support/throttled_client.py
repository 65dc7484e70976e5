"""A client on a connection without sockets, which reads only as much as a test lets it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httptools

from farflung.http.connection import Connection, ServerState
from farflung.http.flow_control import FlowControl
from farflung.http.limits import Limits
from farflung.http.messages import Request, Service
from farflung.hub.assembly import Assembly
from farflung.machinery.errors import Obj


def server_of(assembly: Assembly, limits: Limits) -> ServerState:
    """What the connections of a server share; nothing listens."""
    control: FlowControl = assembly.flow_control
    service = Service(control, assembly.hub.admit, control.flow_of)
    return ServerState(service, limits, asyncio.get_running_loop(), 0.0)


class Pipe(asyncio.Transport):
    """Keeps what was written until it is read."""

    def __init__(self) -> None:
        super().__init__()
        self.data = bytearray()
        self.high = 64 * 1024
        self.most = 0  #: bytes that ever waited here
        self.paused = False
        self.closed = False
        self.connection: Connection | None = None

    def attach(self, connection: Connection) -> None:
        self.connection = connection
        connection.connection_made(self)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.high = high or 0

    def get_write_buffer_size(self) -> int:
        return len(self.data)

    def write(self, data: Any) -> None:
        if self.closed:
            return
        self.data += data
        self.most = max(self.most, len(self.data))
        if len(self.data) > self.high and not self.paused:
            self.paused = True
            assert self.connection is not None
            self.connection.pause_writing()

    def read(self, size: int) -> bytes:
        taken = bytes(self.data[:size])
        del self.data[:size]
        if self.paused and not self.closed and len(self.data) <= self.high // 4:
            self.paused = False
            assert self.connection is not None
            self.connection.resume_writing()
        return taken

    def abort(self) -> None:
        """What was not read is lost."""
        if not self.closed:
            self.data.clear()
            self._lose()

    def close(self) -> None:
        if not self.closed:
            self._lose()

    def _lose(self) -> None:
        self.closed = True
        assert self.connection is not None
        asyncio.get_running_loop().call_soon(self.connection.connection_lost, None)

    def is_closing(self) -> bool:
        return self.closed

    def write_eof(self) -> None:
        self.close()

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default


class ThrottledClient:
    def __init__(self, server: ServerState, request: Request) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self.body = b""
        self.complete = False
        self.pipe = Pipe()
        self.pipe.attach(Connection(server))
        self.send(request)

    def send(self, request: Request) -> None:
        target = f"{request.path}?{request.query}" if request.query else request.path
        headers = "".join(f"{name}: {value}\r\n" for name, value in request.headers.items())
        assert self.pipe.connection is not None
        self.pipe.connection.data_received(f"{request.method} {target} HTTP/1.1\r\nhost: hub\r\n{headers}\r\n".encode())

    def read(self, size: int) -> None:
        if taken := self.pipe.read(size):
            self._parser.feed_data(taken)

    async def read_until(self, done: Any) -> None:
        """Read everything until the condition is true or the connection ends."""
        async with asyncio.timeout(60):
            while not done() and not (self.pipe.closed and not self.pipe.data):
                self.read(1 << 20)
                await asyncio.sleep(0)

    def on_body(self, part: bytes) -> None:
        self.body += part

    def on_message_complete(self) -> None:
        self.complete = True

    @property
    def events(self) -> list[Obj]:
        """Complete events of a watch so far."""
        lines = self.body.split(b"\n")
        return [json.loads(line) for line in lines[:-1]]
