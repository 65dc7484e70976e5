"""A client of the hub inside the hub: the same function that serves the wire, without the wire."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any
from urllib.parse import quote

import orjson

from farflung.apis.resource import Resource
from farflung.http.messages import Handler, Request, Response
from farflung.hub import objects
from farflung.hub.media_types import JSON, MERGE_PATCH
from farflung.hub.objects import cluster_in
from farflung.machinery.errors import ApiError, Obj
from farflung.store.base import Revision


def collection_path(resource: Resource, cluster: str, namespace: str = "") -> str:
    """Where a resource's objects are on the wire."""
    group = f"apis/{resource.group}" if resource.group else "api"
    within = f"namespaces/{namespace}/" if namespace else ""
    return f"/clusters/{cluster}/{group}/{resource.version}/{within}{resource.plural}"


def object_path(resource: Resource, key: str) -> str:
    """Where the object of a store's key is on the wire."""
    namespace, name = objects.name_in(key)
    return f"{collection_path(resource, cluster_in(key), namespace)}/{quote(name, safe=':')}"


class Inside:
    """Requests as an administrator with a name of its own, so that managedFields say who did it."""

    def __init__(self, handler: Handler, authorization: str, agent: str) -> None:
        self._handler = handler
        self._headers = {"authorization": authorization, "user-agent": agent, "content-type": JSON}

    async def request(
        self, method: str, path: str, body: Obj | None = None, *, query: str = "", media: str = ""
    ) -> Any:
        """The answer's JSON.  A failure Status is raised as ApiError."""
        return orjson.loads(content_of(await self._send(method, path, body, query=query, media=media)))

    async def delete(self, path: str, *, policy: str, uid: str, revision: Revision | None = None) -> None:
        """Delete this very object: not one that took its name, and, with a revision, not one that has changed."""
        preconditions: Obj = {"uid": uid}
        if revision is not None:
            preconditions["resourceVersion"] = str(revision)
        await self._send("DELETE", path, {"propagationPolicy": policy, "preconditions": preconditions})

    async def delete_all(self, path: str) -> None:
        """Delete a collection; what must go first goes in the background."""
        await self._send("DELETE", path, {"propagationPolicy": "Background"})

    async def patch(self, path: str, change: Obj, *, uid: str, revision: Revision) -> None:
        """Merge a change into this very object, unless it has changed meanwhile."""
        identity = {"uid": uid, "resourceVersion": str(revision)}
        body = change | {"metadata": change.get("metadata", {}) | identity}
        await self._send("PATCH", path, body, media=MERGE_PATCH)

    async def _send(self, method: str, path: str, body: Obj | None, *, query: str = "", media: str = "") -> Response:
        headers = self._headers | {"content-type": media} if media else self._headers
        content = b"" if body is None else orjson.dumps(body)
        answer = self._handler(Request(method, path, query, headers, content))
        if isinstance(answer, Awaitable):
            answer = await answer
        assert isinstance(answer, Response), "only a watch is a stream, and nobody inside watches over HTTP"
        if answer.status >= 400:
            raise failure_of(answer)
        return answer


def content_of(answer: Response) -> bytes:
    return answer.body if isinstance(answer.body, bytes) else b"".join(answer.body)


def failure_of(answer: Response) -> ApiError:
    content = content_of(answer)
    try:
        status = orjson.loads(content)
    except orjson.JSONDecodeError:
        return ApiError(answer.status, "", content.decode(errors="replace").strip())
    return ApiError(answer.status, status.get("reason", ""), status.get("message", ""), status.get("details"))
