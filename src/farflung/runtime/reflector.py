"""List and watch the objects of one collection, for ever.

    LIST ──complete list──► WATCH ──ended──► WATCH from the last version
      ▲                       └──410, 4xx──► LIST
      └──other errors: retry the same request with backoff──┘

Sinks get complete lists and the changes after them, never a part of a list.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec

from farflung.apis.kcp.names import CLUSTER_ANNOTATION
from farflung.apis.names import Collection
from farflung.client.errors import (
    DECODE_ERRORS,
    ClientError,
    Expired,
    InvalidResponse,
    NotFound,
    Refused,
    TooMany,
    Unauthorized,
    status_error,
)
from farflung.client.rest import EVERYTHING, Client, Event, ListOptions
from farflung.runtime.cache import CachedObject, Key
from farflung.runtime.environment import Environment

T = TypeVar("T")

SHORT: Final = 1.0  #: seconds; a watch that ends sooner without an event is a failure
UNSERVED_PAUSE: Final = 5.0  #: seconds until a kind that the server does not serve is listed again
LONG: Final = 30.0  #: seconds; a watch that fails later than this is retried without further backoff
WATCH_SECONDS: Final = (300, 600)
EVENT_TYPES: Final = frozenset({"ADDED", "MODIFIED", "DELETED", "BOOKMARK"})


class ReflectorSink(Protocol[T]):
    """Receives lists and changes.  Its methods do not raise."""

    def replace(self, everything: list[CachedObject[T]], version: int) -> None: ...

    def apply(self, changed: CachedObject[T]) -> None: ...

    def remove(self, deleted: CachedObject[T]) -> None: ...

    def advance(self, version: int) -> None:
        """All changes up to this version were delivered."""

    def is_new(self, key: Key, version: int) -> bool:
        """Whether the sink has an older version: it may have the answer of its own write already."""

    def previous(self, key: Key) -> T | None: ...

    def trouble(self, what: str, error: Exception) -> None:
        """A request failed and will be retried."""


@dataclass(slots=True, eq=False)
class _Reader(Generic[T]):
    decode: Callable[[bytes], T]
    sink: ReflectorSink[T]
    lenient: bool  #: whether the kind counts as empty until the server serves it
    listed: bool = False  #: whether the sink has a list, so that it can get changes
    is_empty: bool = False  #: whether the sink has an empty list, because the server does not serve the kind


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    namespace: str = ""
    resource_version: str = ""
    annotations: dict[str, str] | None = None


class _Object(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()


class _Status(msgspec.Struct, frozen=True):
    code: int = 0
    reason: str = ""
    message: str = ""
    details: dict[str, Any] | None = None


_headed = msgspec.json.Decoder(_Object)
_status = msgspec.json.Decoder(_Status)


class Reflector(Generic[T]):
    """One watch for one or several sinks, each with its own decoder."""

    def __init__(
        self,
        client: Client,
        collection: Collection,
        decode: Callable[[bytes], T],
        sink: ReflectorSink[T],
        env: Environment,
        selection: ListOptions = EVERYTHING,
    ) -> None:
        """`decode` may raise ValueError for an invalid object: the sink keeps the last valid version."""
        self._client = client
        self._collection = collection
        self._readers: list[_Reader[Any]] = [_Reader(decode, sink, client.lenient)]
        self._env = env
        self._selection = selection
        self._since = ""  #: the resourceVersion to watch from; empty: list first
        self._decoded: tuple[bytes, Callable[[bytes], Any], Any] | None = None  #: document, decoder, value
        self._failures = 0  #: in a row
        self._lists = 0  #: lists since the last watch that worked
        self._was_served = False
        self._turn: asyncio.Timeout | None = None  #: of a list or watch; expires when a sink is added
        self._running = asyncio.Lock()

    def add(self, decode: Callable[[bytes], Any], sink: ReflectorSink[Any], *, lenient: bool) -> None:
        """Add a sink.  If the others have a list already, all of them get a new one."""
        self._readers = [*self._readers, _Reader(decode, sink, lenient)]
        if self._turn is not None and not self._turn.expired():
            self._turn.reschedule(asyncio.get_running_loop().time())

    def remove(self, sink: ReflectorSink[Any]) -> None:
        """From now on the sink gets nothing, even of a list that was requested before."""
        for reader in self._readers:
            if reader.sink is sink:
                reader.listed = False
        self._readers = [one for one in self._readers if one.sink is not sink]

    @property
    def has_sinks(self) -> bool:
        return bool(self._readers)

    def resume(self, since: str) -> None:
        """Watch from this version instead of listing first: the sink has the objects of that version."""
        self._since = since
        for reader in self._readers:
            reader.listed = True

    async def run(self) -> None:
        """Until cancelled.  Of several callers one runs the watch; if it is cancelled, the next one continues."""
        async with self._running:
            while True:
                try:
                    async with asyncio.timeout(None) as turn:
                        await self._request(turn)
                except ClientError as error:
                    await self._pause(error)
                except TimeoutError:
                    if not turn.expired():
                        raise

    async def _request(self, turn: asyncio.Timeout) -> None:
        self._turn = turn
        try:
            await (self._watch() if self._can_watch() else self._list())
        finally:
            self._turn = None

    def _can_watch(self) -> bool:
        return bool(self._since) and all(reader.listed for reader in self._readers)

    async def _pause(self, error: ClientError) -> None:
        verb = "watch" if self._can_watch() else "list"
        waiting = self._readers
        if isinstance(error, NotFound) and not self._was_served:
            for reader in self._readers:
                if reader.lenient and not reader.is_empty:
                    reader.is_empty = True
                    reader.sink.replace([], 0)
            waiting = [reader for reader in waiting if not reader.lenient]
            if not waiting:
                await self._env.sleep(UNSERVED_PAUSE)
                return
        if isinstance(error, Refused) and (error.is_future_version or _is_final(error)):
            self._since = ""
        self._failures += 1
        if isinstance(error, Expired) and verb == "watch" and self._failures == 1:
            return  # compacted history is no failure: list again
        for reader in waiting:
            reader.sink.trouble(f"cannot {verb} {self._collection.plural}", error)
        await self._env.sleep(self._env.backoff.delay(self._failures, error.retry_after))

    async def _list(self) -> None:
        readers = self._readers
        found: list[list[CachedObject[Any]]] = [[] for _ in readers]
        version = ""
        async for page in self._client.pages(self._collection, self._selection):
            version = page.metadata.resource_version
            for document in page.documents():
                key, of_object = self.where(document)
                for reader, known in zip(readers, found, strict=True):
                    known.extend(self._known(reader, key, of_object, document))
        if not version:
            raise InvalidResponse("a list without a resourceVersion")
        revision = number(version)
        self._since, self._failures, self._was_served = version, self._lists, True
        self._lists += 1
        for reader, known in zip(readers, found, strict=True):
            if reader in self._readers:
                reader.listed = True
                reader.sink.replace(known, revision)

    async def _watch(self) -> None:
        """Failures are forgotten only when a watch worked: a server that lists but refuses watches must not be listed
        in a tight loop."""
        began, since, enough = self._env.monotonic(), self._since, LONG
        low, high = WATCH_SECONDS
        seconds = int(low + (high - low) * self._env.random())
        try:
            async for events in self._client.watch(self._collection, since, self._selection, seconds=seconds):
                for event in events:
                    self._handle(event)
            enough = SHORT
        finally:
            useful = self._since != since or self._env.monotonic() - began >= enough
            if useful:
                self._failures = self._lists = 0
        if not useful:
            raise InvalidResponse("a watch that ended at once")

    def _handle(self, event: Event) -> None:
        if event.type == "ERROR":
            raise _error_of(event.object)
        key, version = self.where(event.object)
        revision = number(version)
        if event.type not in EVENT_TYPES:
            raise InvalidResponse(f"an event of the type {event.type[:50]!r}")
        self._since = version
        document = bytes(event.object)
        for reader in self._readers:
            if not reader.listed:
                continue
            sink = reader.sink
            if event.type == "DELETED":
                value = sink.previous(key)
                if value is not None:
                    sink.remove(CachedObject(key, revision, value))
            elif event.type != "BOOKMARK" and sink.is_new(key, revision):
                for known in self._known(reader, key, version, document):
                    sink.apply(known)
            sink.advance(revision)

    def where(self, raw: bytes | msgspec.Raw) -> tuple[Key, str]:
        """The key of an object, and its resourceVersion.  In a cluster without workspaces, the annotation with a
        logical cluster is that of another object, from which this one was copied."""
        try:
            metadata = _headed.decode(raw).metadata
        except DECODE_ERRORS as error:
            raise InvalidResponse(f"not an object: {error}") from None
        cluster = (metadata.annotations or {}).get(CLUSTER_ANNOTATION, "") if self._client.reads_workspaces else ""
        return Key(cluster, metadata.namespace, metadata.name), metadata.resource_version

    def _known(self, reader: _Reader[Any], key: Key, version: str, document: bytes) -> Iterator[CachedObject[Any]]:
        """Nothing if the object is invalid and no version of it was valid."""
        try:
            if self._decoded is None or self._decoded[:2] != (document, reader.decode):
                self._decoded = document, reader.decode, reader.decode(document)
            value = self._decoded[2]  # of an earlier reader, if it has the same decoder
        except DECODE_ERRORS as error:
            reader.sink.trouble(f"cannot decode {self._collection.plural} {key}", error)
            value = reader.sink.previous(key)
        if value is not None:
            yield CachedObject(key, number(version), value)


def _is_final(error: Refused) -> bool:
    """Whether the server would refuse the same request again."""
    return error.status < 500 and not isinstance(error, TooMany | Unauthorized)


def number(version: str) -> int:
    if version.isascii() and version.isdigit() and len(version) < 20:
        return int(version)
    raise InvalidResponse(f"{version[:50]!r} is not a resourceVersion")


def _error_of(raw: msgspec.Raw) -> ClientError:
    try:
        status = _status.decode(raw)
    except DECODE_ERRORS:
        return InvalidResponse("an ERROR event without a Status")
    return status_error(status.code, msgspec.structs.asdict(status))
