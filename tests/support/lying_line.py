"""A line with somebody in the middle who tells what is not true."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import orjson
from fleet import FaultyTransport
from local_transport import LocalReply

from farflung.client.transport import OutgoingRequest, Reply

PAGE = b"<html><body>nothing here</body></html>"
#: lists that hold less than there is, or nothing; half of an answer; another server, that knows nothing of ours, or of
#: lists
LIES = ("empty", "half", "cut", "page", "absent", "unlisted")


@dataclass
class LyingTransport(FaultyTransport):
    lie: str = ""  #: one of LIES
    lies: int = 0  #: how many are still to be told

    @asynccontextmanager
    async def open(self, request: OutgoingRequest) -> AsyncIterator[Reply]:
        if self.up and self.lies > 0 and self._is_elsewhere(request):
            self.lies -= 1
            yield _reply(200 if self.lie == "page" else 404, PAGE)
            return
        async with super().open(request) as reply:
            if self.lies > 0 and self.lie in ("empty", "half", "cut") and _is_read(request) and reply.status == 200:
                self.lies -= 1
                yield _reply(reply.status, told(self.lie, await reply.read()))
            else:
                yield reply

    def _is_elsewhere(self, request: OutgoingRequest) -> bool:
        """Whether it is another server that answers."""
        return self.lie in ("page", "absent") or (self.lie == "unlisted" and "limit=" in request.target)

    def tell(self, lie: str, times: int) -> None:
        self.lie, self.lies = lie, times

    def be_true(self) -> None:
        self.up = True
        self.before = self.after = self.lies = 0


def _is_read(request: OutgoingRequest) -> bool:
    return request.method == "GET" and "watch=" not in request.target


def told(lie: str, body: bytes) -> bytes:
    if lie == "cut":
        return body[: len(body) // 2]
    said = orjson.loads(body)
    if (
        not isinstance(said, dict)
        or not str(said.get("kind")).endswith("List")
        or "resourceVersion" not in (said.get("metadata") or {})
    ):
        return body
    items: list[Any] = said.get("items") or []
    return orjson.dumps({**said, "items": items[::2] if lie == "half" else []})


def _reply(status: int, body: bytes) -> LocalReply:
    async def chunks() -> AsyncIterator[bytes]:
        yield body

    return LocalReply(status, {}, chunks)
