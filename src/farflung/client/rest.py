"""The verbs of a Kubernetes API, on plain dicts.  Whatever goes wrong is a ClientError."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

import msgspec
import orjson

from farflung.apis.names import Collection
from farflung.client.errors import NONSENSE, Garbled, refusal
from farflung.client.transport import Reply, Request, Transport
from farflung.lib.version import __version__
from farflung.machinery.errors import Obj

PAGE: Final = 500  #: objects asked for at once
WATCH_PATIENCE: Final = 150.0  #: seconds of silence; a server sends a bookmark each minute
LONGEST_EVENT: Final = 64 * 1024 * 1024  #: bytes of one line of a watch
REHEARSAL: Final = {"dryRun": "All", "fieldValidation": "Strict"}  #: in the query of a write that is not done
USER_AGENT: Final = f"farflung/{__version__}"


class PatchType(StrEnum):
    JSON = "application/json-patch+json"
    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    APPLY = "application/apply-patch+yaml"


class ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class Typed(msgspec.Struct, frozen=True):
    kind: str = ""


class Page(msgspec.Struct, frozen=True, rename="camel"):
    """Some objects of a list, as they came."""

    api_version: str = ""
    kind: str = ""
    metadata: ListMeta = ListMeta()
    items: list[msgspec.Raw] | None = None

    def documents(self) -> Iterator[bytes]:
        """Each of them with its apiVersion and kind, which servers say only once for all.  Raises Garbled."""
        said = {"apiVersion": self.api_version, "kind": self.kind.removesuffix("List")}
        head = orjson.dumps(said)[:-1] + b","
        for raw in self.items or ():
            try:
                typed = _typed.decode(raw)
            except NONSENSE as error:
                raise Garbled(f"not an object: {error}") from None
            document = bytes(raw)
            yield document if typed.kind else head + document.lstrip()[1:]


class Event(msgspec.Struct, frozen=True):
    """One line of a watch.  Types: ADDED, MODIFIED, DELETED, BOOKMARK, ERROR."""

    type: str
    object: msgspec.Raw


Events = list[Event]

_page = msgspec.json.Decoder(Page)
_typed = msgspec.json.Decoder(Typed)
_event = msgspec.json.Decoder(Event)


@dataclass(frozen=True, slots=True)
class Selection:
    """Which objects of a collection; nothing said means all."""

    namespace: str = ""
    labels: str = ""
    fields: str = ""

    def query(self) -> dict[str, str]:
        said = {"labelSelector": self.labels, "fieldSelector": self.fields}
        return {name: value for name, value in said.items() if value}


EVERYTHING: Final = Selection()


@dataclass(frozen=True, slots=True)
class Client:
    """One API: `prefix` is the path of its root, as `/clusters/root:shop`, without a slash at the end."""

    transport: Transport
    prefix: str = ""
    manager: str = ""  #: who writes, in managedFields
    rehearses: bool = False  #: writes are checked and answered as if they had been done, and are not done

    def rehearsing(self) -> Client:
        """The same, and nothing that it writes is kept.  What the server would only warn of, it refuses."""
        return replace(self, rehearses=True)

    def at(self, prefix: str) -> Client:
        """Another API of the same server."""
        return replace(self, prefix=prefix)

    def workspace(self, cluster: str) -> Client:
        """`cluster`: a name, a path, or `*` for all of them."""
        return self.at(f"/clusters/{_segment(cluster)}")

    def view(self, url: str, cluster: str = "*") -> Client:
        """What a view shows of a workspace, or of all that it shows.  The server is the one we talk to already."""
        return self.at(f"{urlsplit(url).path.rstrip('/')}/clusters/{_segment(cluster)}")

    # --- reading ----------------------------------------------------------------------------------

    async def get(self, collection: Collection, name: str, namespace: str = "", subresource: str = "") -> Obj:
        return await self._object("GET", collection.path(namespace, name, subresource))

    async def raw(self, path: str, *, accept: str = "application/json") -> bytes:
        """What is at this path of the API, as it came."""
        async with self.transport.open(self._request("GET", path, accept=accept)) as reply:
            await _check(reply)
            return await reply.read()

    async def date(self) -> datetime | None:
        """What time it is at the server, to the second, as it says in the head of any answer; None if it does not."""
        async with self.transport.open(self._request("GET", "/version")) as reply:
            await reply.read()
            try:
                return parsedate_to_datetime(reply.header("Date")).astimezone(UTC)
            except (ValueError, OverflowError):
                return None

    async def list(self, collection: Collection, selection: Selection = EVERYTHING) -> list[Obj]:
        """All of them.  Raises Expired if that took longer than the server remembers."""
        found: list[Obj] = []
        async for page in self.pages(collection, selection):
            found += map(_decoded, page.documents())
        return found

    async def pages(
        self, collection: Collection, selection: Selection = EVERYTHING, *, size: int = PAGE
    ) -> AsyncIterator[Page]:
        """As they come.  Who stops at the first that fails has seen a part of the list."""
        query = {**selection.query(), "limit": str(size)}
        path = collection.path(selection.namespace)
        while True:
            body = await self._send("GET", path, query)
            try:
                page = _page.decode(body)
            except NONSENSE as error:
                raise Garbled(f"{path} is not a list: {error}") from None
            yield page
            if not page.metadata.continue_:
                return
            if page.metadata.continue_ == query.get("continue"):
                raise Garbled(f"{path} is a list without an end")
            query["continue"] = page.metadata.continue_

    async def watch(
        self, collection: Collection, since: str, selection: Selection = EVERYTHING, *, seconds: int
    ) -> AsyncIterator[Events]:
        """Changes after a resourceVersion, those that arrive together at once, until the server ends it, which it is
        asked to do after so many seconds."""
        query = {
            **selection.query(),
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": since,
            "timeoutSeconds": str(seconds),
        }
        request = self._request("GET", collection.path(selection.namespace), query, patience=WATCH_PATIENCE)
        async with self.transport.open(request) as reply:
            await _check(reply)
            lines = _Lines()
            async for chunk in reply.chunks():
                events, nonsense = _events_of(lines.of(chunk))
                if events:
                    yield events
                if nonsense is not None:
                    raise nonsense
            lines.end()

    # --- writing ----------------------------------------------------------------------------------

    async def create(self, collection: Collection, obj: Obj, namespace: str = "", subresource: str = "") -> Obj:
        """`subresource`: of the object that `obj` names, as `token` of a ServiceAccount."""
        name = obj["metadata"]["name"] if subresource else ""
        return await self._object("POST", collection.path(namespace, name, subresource), body=obj)

    async def update(self, collection: Collection, obj: Obj, subresource: str = "") -> Obj:
        """With the resourceVersion that `obj` has.  Raises Conflict if it is not that any more."""
        metadata = obj["metadata"]
        path = collection.path(metadata.get("namespace", ""), metadata["name"], subresource)
        return await self._object("PUT", path, body=obj)

    async def patch(
        self,
        collection: Collection,
        name: str,
        patch: Any,
        namespace: str = "",
        subresource: str = "",
        *,
        how: PatchType = PatchType.MERGE,
        force: bool = False,
    ) -> Obj:
        """`force`: take over fields of others, when applying."""
        path = collection.path(namespace, name, subresource)
        query = {"force": "true"} if force else {}
        return await self._object("PATCH", path, query, body=patch, media=how.value)

    async def apply(self, collection: Collection, obj: Obj, subresource: str = "", *, force: bool = False) -> Obj:
        metadata = obj["metadata"]
        name, namespace = metadata["name"], metadata.get("namespace", "")
        return await self.patch(collection, name, obj, namespace, subresource, how=PatchType.APPLY, force=force)

    async def delete(
        self,
        collection: Collection,
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        version: str = "",
        propagation: str = "",
        grace: int | None = None,
    ) -> Obj:
        """The object, if it is still there with something to finish first; else that or a Status, as the server likes.
        Raises Conflict if it is another one by now than `uid` or `version` say.  `grace`: seconds that it gets to end;
        None: as many as it says itself."""
        if not name:
            raise ValueError("nothing is named, which would delete everything")
        preconditions = {name: value for name, value in (("uid", uid), ("resourceVersion", version)) if value}
        options: Obj = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if preconditions:
            options["preconditions"] = preconditions
        if propagation:
            options["propagationPolicy"] = propagation
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        if self.rehearses:
            options["dryRun"] = ["All"]  # with a body, the query does not count
        return await self._object("DELETE", collection.path(namespace, name), body=options)

    async def delete_collection(self, collection: Collection, selection: Selection = EVERYTHING) -> None:
        """All that are selected, of those that are there now."""
        await self._send("DELETE", collection.path(selection.namespace), selection.query())

    # --- the wire ---------------------------------------------------------------------------------

    def _request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: object = None,
        media: str = "application/json",
        patience: float = 60.0,
        accept: str = "application/json",
    ) -> Request:
        said = dict(query or {})
        if self.manager and method in ("POST", "PUT", "PATCH"):
            said["fieldManager"] = self.manager
        if self.rehearses and method != "GET":
            said |= REHEARSAL
        target = f"{self.prefix}{path}?{urlencode(said)}" if said else f"{self.prefix}{path}"
        headers = {"Accept": accept, "User-Agent": USER_AGENT}
        data = b""
        if body is not None:
            headers["Content-Type"] = media
            data = orjson.dumps(body)
        return Request(method, target, headers, data, patience)

    async def _send(self, method: str, path: str, query: Mapping[str, str] | None = None, **how: Any) -> bytes:
        async with self.transport.open(self._request(method, path, query, **how)) as reply:
            await _check(reply)
            return await reply.read()

    async def _object(self, method: str, path: str, query: Mapping[str, str] | None = None, **how: Any) -> Obj:
        return _decoded(await self._send(method, path, query, **how))


def _segment(cluster: str) -> str:
    return quote(cluster, safe=":*")


async def _check(reply: Reply) -> None:
    if not 200 <= reply.status < 300:
        raise refusal(reply.status, await reply.read(), reply.header("Retry-After"))


def _decoded(data: bytes | msgspec.Raw) -> Obj:
    try:
        obj = orjson.loads(bytes(data))
    except orjson.JSONDecodeError as error:
        raise Garbled(f"not JSON: {error}") from None
    if not isinstance(obj, dict):
        raise Garbled("not an object")
    return obj


class _Lines:
    """Lines out of chunks.  What is not a whole line yet is kept in pieces, so that a long line costs no more than its
    bytes."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._size = 0

    def of(self, chunk: bytes) -> list[bytes]:
        """The lines that this chunk ends.  Raises Garbled if there is no end to be seen."""
        *lines, rest = chunk.split(b"\n")
        if lines and self._pieces:
            lines[0] = b"".join([*self._pieces, lines[0]])
        if lines:
            self._pieces, self._size = [], 0
        if rest:
            self._pieces.append(rest)
            self._size += len(rest)
        if self._size > LONGEST_EVENT:
            raise Garbled("an event without an end")
        return lines

    def end(self) -> None:
        if b"".join(self._pieces).strip():
            raise Garbled("a watch that ends in the middle of an event")


def _events_of(lines: Sequence[bytes]) -> tuple[Events, Garbled | None]:
    """The events up to the first line that is none, and what is wrong with that one."""
    events: Events = []
    for line in lines:
        if line.strip():
            try:
                events.append(_event.decode(line))
            except NONSENSE as error:
                return events, Garbled(f"not an event of a watch: {error}")
    return events, None
