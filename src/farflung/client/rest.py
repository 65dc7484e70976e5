"""The verbs of the Kubernetes API on dicts.  All errors are ClientErrors."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

import msgspec
import orjson

from farflung.apis.kcp.names import TENANCY_GROUP
from farflung.apis.names import Collection
from farflung.client.errors import DECODE_ERRORS, Forbidden, InvalidResponse, NotFound, response_error
from farflung.client.transport import OutgoingRequest, Reply, Transport
from farflung.lib.version import __version__
from farflung.machinery.errors import Obj

PAGE: Final = 500  #: objects per request
WATCH_PATIENCE: Final = 150.0  #: seconds without data; servers send a bookmark each minute
LONGEST_EVENT: Final = 64 * 1024 * 1024  #: bytes of one line of a watch
DRY_RUN_QUERY: Final = {"dryRun": "All", "fieldValidation": "Strict"}  #: query of a dry run
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


class ObjectPage(msgspec.Struct, frozen=True, rename="camel"):
    """A page of a list, with undecoded objects."""

    api_version: str = ""
    kind: str = ""
    metadata: ListMeta = ListMeta()
    items: list[msgspec.Raw] | None = None

    def documents(self) -> Iterator[bytes]:
        """The objects with apiVersion and kind, which servers omit in lists.  Raises InvalidResponse."""
        parameters = {"apiVersion": self.api_version, "kind": self.kind.removesuffix("List")}
        head = orjson.dumps(parameters)[:-1] + b","
        for raw in self.items or ():
            try:
                typed = _typed.decode(raw)
            except DECODE_ERRORS as error:
                raise InvalidResponse(f"not an object: {error}") from None
            document = bytes(raw)
            yield document if typed.kind else head + document.lstrip()[1:]


class Event(msgspec.Struct, frozen=True):
    """An event of a watch: ADDED, MODIFIED, DELETED, BOOKMARK or ERROR."""

    type: str
    object: msgspec.Raw


Events = list[Event]

_page = msgspec.json.Decoder(ObjectPage)
_typed = msgspec.json.Decoder(Typed)
_event = msgspec.json.Decoder(Event)


@dataclass(frozen=True, slots=True)
class ListOptions:
    """Selects objects of a collection; empty: all."""

    namespace: str = ""
    labels: str = ""
    fields: str = ""

    def query(self) -> dict[str, str]:
        parameters = {"labelSelector": self.labels, "fieldSelector": self.fields}
        return {name: value for name, value in parameters.items() if value}


EVERYTHING: Final = ListOptions()


@dataclass(frozen=True, slots=True)
class Client:
    """`prefix`: the path of the API, such as `/clusters/root:shop`, without a trailing slash."""

    transport: Transport
    prefix: str = ""
    manager: str = ""  #: field manager
    dry_run: bool = False  #: writes are validated but not persisted
    lenient: bool = False  #: informers count a kind as empty until the server serves it
    group: object = None  #: clients of one group share watches, also those of several users

    def with_dry_run(self) -> Client:
        """A client whose writes are dry runs with strict field validation."""
        return replace(self, dry_run=True)

    def at(self, prefix: str) -> Client:
        """Another API of the same server."""
        return replace(self, prefix=prefix)

    def workspace(self, cluster: str) -> Client:
        """`cluster`: a name, a path, or `*` for all workspaces."""
        return self.at(f"/clusters/{_segment(cluster)}")

    def view(self, url: str, cluster: str = "*") -> Client:
        """A view of an export, of one workspace or of all.  Only the path of the URL is used."""
        return self.at(f"{urlsplit(url).path.rstrip('/')}/clusters/{_segment(cluster)}")

    @property
    def reads_workspaces(self) -> bool:
        """Whether the server sets the annotation with the logical cluster of each object."""
        return "/clusters/" in self.prefix

    # --- reading ----------------------------------------------------------------------------------

    async def get(self, collection: Collection, name: str, namespace: str = "", subresource: str = "") -> Obj:
        return await self._object("GET", collection.path(namespace, name, subresource))

    async def raw(self, path: str, *, accept: str = "application/json") -> bytes:
        """The response body for a path."""
        async with self.transport.open(self._request("GET", path, accept=accept)) as reply:
            await _check(reply)
            return await reply.read()

    async def date(self) -> datetime | None:
        """The server's time from the Date header, with a precision of one second; None without one."""
        async with self.transport.open(self._request("GET", "/version")) as reply:
            await reply.read()
            try:
                return parsedate_to_datetime(reply.header("Date")).astimezone(UTC)
            except (ValueError, OverflowError):
                return None

    async def list(self, collection: Collection, selection: ListOptions = EVERYTHING) -> list[Obj]:
        """All objects.  Raises Expired if the server compacted the list meanwhile."""
        found: list[Obj] = []
        async for page in self.pages(collection, selection):
            found += map(_decoded, page.documents())
        return found

    async def pages(
        self, collection: Collection, selection: ListOptions = EVERYTHING, *, size: int = PAGE
    ) -> AsyncIterator[ObjectPage]:
        """The pages of a list."""
        query = {**selection.query(), "limit": str(size)}
        path = collection.path(selection.namespace)
        while True:
            body = await self._send("GET", path, query)
            try:
                page = _page.decode(body)
            except DECODE_ERRORS as error:
                raise InvalidResponse(f"{path} is not a list: {error}") from None
            yield page
            if not page.metadata.continue_:
                return
            if page.metadata.continue_ == query.get("continue"):
                raise InvalidResponse(f"{path} is a list without an end")
            query["continue"] = page.metadata.continue_

    async def watch(
        self, collection: Collection, since: str, selection: ListOptions = EVERYTHING, *, seconds: int
    ) -> AsyncIterator[Events]:
        """Changes after a resourceVersion, in batches as they arrive, until the server ends the watch after
        `seconds`."""
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
        """`subresource`: of the object that `obj` names, such as `token` of a ServiceAccount."""
        name = obj["metadata"]["name"] if subresource else ""
        return await self._object("POST", collection.path(namespace, name, subresource), body=obj)

    async def update(self, collection: Collection, obj: Obj, subresource: str = "") -> Obj:
        """Raises UpdateConflict if the resourceVersion of `obj` is not current."""
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
        """`force`: take ownership of conflicting fields, for apply."""
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
        """Returns the object if it is terminating, otherwise the object or a Status.  Raises UpdateConflict if `uid` or
        `version` differ.  `grace`: grace period in seconds; None: the object's default."""
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
        if self.dry_run:
            options["dryRun"] = ["All"]  # with a body, the server ignores the query
        return await self._object("DELETE", collection.path(namespace, name), body=options)

    async def delete_collection(self, collection: Collection, selection: ListOptions = EVERYTHING) -> None:
        """Delete all selected objects."""
        await self._send("DELETE", collection.path(selection.namespace), selection.query())

    # --- requests ---------------------------------------------------------------------------------

    def _request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: object = None,
        media: str = "application/json",
        patience: float = 60.0,
        accept: str = "application/json",
    ) -> OutgoingRequest:
        parameters = dict(query or {})
        if self.manager and method in ("POST", "PUT", "PATCH"):
            parameters["fieldManager"] = self.manager
        if self.dry_run and method != "GET":
            parameters |= DRY_RUN_QUERY
        target = f"{self.prefix}{path}?{urlencode(parameters)}" if parameters else f"{self.prefix}{path}"
        headers = {"Accept": accept, "User-Agent": USER_AGENT}
        data = b""
        if body is not None:
            headers["Content-Type"] = media
            data = orjson.dumps(body)
        return OutgoingRequest(method, target, headers, data, patience)

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
        raise response_error(reply.status, await reply.read(), reply.header("Retry-After"))


def _decoded(data: bytes | msgspec.Raw) -> Obj:
    try:
        obj = orjson.loads(bytes(data))
    except orjson.JSONDecodeError as error:
        raise InvalidResponse(f"not JSON: {error}") from None
    if not isinstance(obj, dict):
        raise InvalidResponse("not an object")
    return obj


class _Lines:
    """Splits chunks into lines, in linear time."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._size = 0

    def of(self, chunk: bytes) -> list[bytes]:
        """The lines that end in this chunk.  Raises InvalidResponse for an overlong line."""
        *lines, rest = chunk.split(b"\n")
        if lines and self._pieces:
            lines[0] = b"".join([*self._pieces, lines[0]])
        if lines:
            self._pieces, self._size = [], 0
        if rest:
            self._pieces.append(rest)
            self._size += len(rest)
        if self._size > LONGEST_EVENT:
            raise InvalidResponse("an event without an end")
        return lines

    def end(self) -> None:
        if b"".join(self._pieces).strip():
            raise InvalidResponse("a watch that ends in the middle of an event")


def _events_of(lines: Sequence[bytes]) -> tuple[Events, InvalidResponse | None]:
    """The events before the first invalid line, and its error."""
    events: Events = []
    for line in lines:
        if line.strip():
            try:
                events.append(_event.decode(line))
            except DECODE_ERRORS as error:
                return events, InvalidResponse(f"not an event of a watch: {error}")
    return events, None


# --- Servers without workspaces, and APIs that no server has --------------------------------------


UNSERVED: Final = "the server could not find the requested resource"


@dataclass(frozen=True, slots=True)
class PlainClient(Client):
    """Of a server with one API, which stands for every workspace and view."""

    def workspace(self, cluster: str) -> Client:
        return self

    def view(self, url: str, cluster: str = "*") -> Client:
        return self


@dataclass(frozen=True, slots=True)
class _NoServer:
    @asynccontextmanager
    async def open(self, request: OutgoingRequest) -> AsyncIterator[Reply]:
        raise NotFound(404, "NotFound", UNSERVED)
        yield


#: serves no kind
NOTHING: Final = PlainClient(_NoServer(), lenient=True)


async def has_workspaces(client: Client) -> bool:
    """A server with workspaces forbids requests outside of them.  Raises ClientError."""
    try:
        groups = orjson.loads(await client.raw("/apis")).get("groups") or ()
    except Forbidden:
        return True
    return any(one.get("name") == TENANCY_GROUP for one in groups)
