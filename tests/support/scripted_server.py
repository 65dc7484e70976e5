"""A transport whose server is a function of the test: it answers each request as the script says."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from urllib.parse import parse_qs, urlsplit

import orjson
from local_transport import LocalReply

from farflung.client.transport import OutgoingRequest, Reply

Chunk = bytes | Exception


@dataclass(frozen=True)
class Scripted:
    status: int = 200
    chunks: Sequence[Chunk] = ()
    headers: dict[str, str] = field(default_factory=dict)


def said(obj: object, status: int = 200, **headers: str) -> Scripted:
    return Scripted(status, [orjson.dumps(obj)], {name.replace("_", "-"): value for name, value in headers.items()})


def failure(code: int, reason: str = "", **headers: str) -> Scripted:
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code}
    return said(status, code, **headers)


def query_of(request: OutgoingRequest) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(request.target).query).items()}


@dataclass
class ScriptedServer:
    answer: Callable[[OutgoingRequest], Scripted]
    requests: list[OutgoingRequest] = field(default_factory=list)

    @asynccontextmanager
    async def open(self, request: OutgoingRequest) -> AsyncIterator[Reply]:
        self.requests.append(request)
        scripted = self.answer(request)
        yield LocalReply(scripted.status, scripted.headers, lambda: _chunks(scripted.chunks))


async def _chunks(chunks: Sequence[Chunk]) -> AsyncIterator[bytes]:
    for chunk in chunks:
        if isinstance(chunk, Exception):
            raise chunk
        yield chunk
