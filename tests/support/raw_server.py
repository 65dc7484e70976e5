"""A TCP server that says exactly the bytes a test wants."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

Talk = Callable[["Line"], Awaitable[None]]


@dataclass
class Line:
    """One connection, as the server sees it."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    requests: list[str]

    async def request(self) -> str:
        """The head of the next request, without its body."""
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
        self.requests.append(head)
        return head

    async def say(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self, body: bytes, *, status: str = "200 OK", headers: str = "") -> None:
        await self.say(f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{headers}\r\n".encode() + body)

    async def until_they_go(self) -> None:
        await self.reader.read()


@dataclass
class RawServer:
    url: str = ""
    connections: int = 0
    requests: list[str] = field(default_factory=list)


@asynccontextmanager
async def raw_server(talk: Talk, tls: ssl.SSLContext | None = None) -> AsyncIterator[RawServer]:
    """`talk` has each connection until it returns."""
    seen = RawServer()
    talking: set[asyncio.Task[None]] = set()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.connections += 1
        task = asyncio.current_task()
        assert task is not None
        talking.add(task)
        try:
            await talk(Line(reader, writer, seen.requests))
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # they hung up, or the test is over
        finally:
            talking.discard(task)
            writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=tls)
    seen.url = f"{'https' if tls else 'http'}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield seen
    finally:
        server.close()
        for task in list(talking):
            task.cancel()
        await asyncio.gather(*talking, return_exceptions=True)
