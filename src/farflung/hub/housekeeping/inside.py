"""A client of the hub inside the hub: the same function that serves the wire, without the wire."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

import orjson

from farflung.hub.http.messages import Handler, Request, Response
from farflung.machinery.errors import ApiError, Obj


class Inside:
    """Requests as an administrator with a name of its own, so that managedFields say who did it."""

    def __init__(self, handler: Handler, authorization: str, agent: str) -> None:
        self._handler = handler
        self._headers = {"authorization": authorization, "user-agent": agent, "content-type": "application/json"}

    async def request(self, method: str, path: str, body: Obj | None = None, *, query: str = "", media: str = "") -> Any:
        """The answer's JSON.  A failure Status is raised as ApiError."""
        headers = self._headers | {"content-type": media} if media else self._headers
        content = b"" if body is None else orjson.dumps(body)
        answer = self._handler(Request(method, path, query, headers, content))
        if isinstance(answer, Awaitable):
            answer = await answer
        assert isinstance(answer, Response), "only a watch is a stream, and nobody inside watches over HTTP"
        value = orjson.loads(answer.body if isinstance(answer.body, bytes) else b"".join(answer.body))
        if answer.status >= 400:
            raise ApiError(answer.status, value.get("reason", ""), value.get("message", ""), value.get("details"))
        return value
