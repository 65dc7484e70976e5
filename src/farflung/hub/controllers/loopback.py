"""The loopback client: sends requests to the hub's own request handler, without a connection."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any
from urllib.parse import quote

import orjson

from farflung.apis.resource import Resource
from farflung.http.messages import Handler, Request, Response
from farflung.hub.catalog import objects
from farflung.hub.catalog.objects import cluster_in
from farflung.hub.request.media_types import JSON, MERGE_PATCH
from farflung.machinery.errors import ApiError, Obj
from farflung.store.base import Revision


def collection_path(resource: Resource, cluster: str, namespace: str = "") -> str:
    group = f"apis/{resource.group}" if resource.group else "api"
    within = f"namespaces/{namespace}/" if namespace else ""
    return f"/clusters/{cluster}/{group}/{resource.version}/{within}{resource.plural}"


def object_path(resource: Resource, key: str) -> str:
    """The request path of the object at a store key."""
    namespace, name = objects.name_in(key)
    return f"{collection_path(resource, cluster_in(key), namespace)}/{quote(name, safe=':')}"


class LoopbackClient:
    """Sends requests as an administrator.  `agent` becomes the field manager."""

    def __init__(self, handler: Handler, authorization: str, agent: str) -> None:
        self._handler = handler
        self._headers = {"authorization": authorization, "user-agent": agent, "content-type": JSON}

    async def request(
        self, method: str, path: str, body: Obj | None = None, *, query: str = "", media: str = ""
    ) -> Any:
        """The response's JSON.  Raises ApiError for a failure Status."""
        response = await self._send(method, path, body, query=query, media=media)
        return orjson.loads(await response.read())

    async def delete(self, path: str, *, policy: str, uid: str, revision: Revision | None = None) -> None:
        """Delete an object with the preconditions uid and, if given, resourceVersion."""
        preconditions: Obj = {"uid": uid}
        if revision is not None:
            preconditions["resourceVersion"] = str(revision)
        await self._send("DELETE", path, {"propagationPolicy": policy, "preconditions": preconditions})

    async def delete_all(self, path: str) -> None:
        """Delete a collection, with background propagation."""
        await self._send("DELETE", path, {"propagationPolicy": "Background"})

    async def patch(self, path: str, change: Obj, *, uid: str, revision: Revision) -> None:
        """Merge a change into an object.  Raises 409 if its uid or resourceVersion differs."""
        identity = {"uid": uid, "resourceVersion": str(revision)}
        body = change | {"metadata": change.get("metadata", {}) | identity}
        await self._send("PATCH", path, body, media=MERGE_PATCH)

    async def _send(self, method: str, path: str, body: Obj | None, *, query: str = "", media: str = "") -> Response:
        headers = self._headers | {"content-type": media} if media else self._headers
        content = b"" if body is None else orjson.dumps(body)
        response = self._handler(Request(method, path, query, headers, content))
        if isinstance(response, Awaitable):
            response = await response
        assert isinstance(response, Response), "only watches are streams, and controllers subscribe to the store"
        if response.status >= 400:
            raise _error(response.status, await response.read())
        return response


def _error(code: int, content: bytes) -> ApiError:
    try:
        status = orjson.loads(content)
    except orjson.JSONDecodeError:
        return ApiError(code, "", content.decode(errors="replace").strip())
    return ApiError(code, status.get("reason", ""), status.get("message", ""), status.get("details"))
