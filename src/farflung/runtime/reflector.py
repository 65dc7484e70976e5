"""Keep up with the objects of one kind: list them, watch from there, and start again where that ends.

    LIST ──whole list──► WATCH ──ended──► WATCH from the last version
      ▲                    └──410, 4xx──► LIST
      └──anything else: wait, longer each time, and try the same again──┘

What is handed on is a whole list or one change after it; a list that breaks off is never seen by anybody.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec

from farflung.apis.kcp.names import CLUSTER_ANNOTATION
from farflung.apis.names import Collection
from farflung.client.errors import NONSENSE, ClientError, Expired, Garbled, Refused, TooMany, Unauthorized, refused
from farflung.client.rest import EVERYTHING, Client, Event, Selection
from farflung.lib.backoff import Backoff
from farflung.runtime.cache import Key, Known

T = TypeVar("T")

SHORT: Final = 1.0  #: seconds; a watch that ends sooner and brought nothing is a failure
LONG: Final = 30.0  #: seconds; who was told of a failure so late has waited enough
WATCH_SECONDS: Final = (300, 600)


class Sink(Protocol[T]):
    """Who hears of it.  Nothing is raised."""

    def replace(self, everything: list[Known[T]], version: int) -> None: ...

    def apply(self, news: Known[T]) -> None: ...

    def remove(self, gone: Known[T]) -> None: ...

    def hear(self, version: int) -> None:
        """Nothing happened up to this version that was not told."""

    def is_news(self, key: Key, version: int) -> bool:
        """Whether it is newer than what is known: what was written and told of at once is heard of again."""

    def previous(self, key: Key) -> T | None: ...

    def trouble(self, what: str, error: Exception) -> None:
        """Something failed and will be tried again."""


@dataclass(frozen=True, slots=True)
class Environment:
    """The clock, sleep, randomness and retry pauses of a process; tests pass simulated ones."""

    monotonic: Callable[[], float]
    sleep: Callable[[float], Awaitable[None]]
    random: Callable[[], float]  #: between 0 and 1
    backoff: Backoff


class Metadata(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    namespace: str = ""
    resource_version: str = ""
    annotations: dict[str, str] | None = None


class Headed(msgspec.Struct, frozen=True):
    """An object, as far as everything that has metadata is alike."""

    metadata: Metadata = Metadata()


class Status(msgspec.Struct, frozen=True):
    code: int = 0
    reason: str = ""
    message: str = ""
    details: dict[str, Any] | None = None


_headed = msgspec.json.Decoder(Headed)
_status = msgspec.json.Decoder(Status)


class Reflector(Generic[T]):
    def __init__(
        self,
        client: Client,
        collection: Collection,
        decode: Callable[[bytes], T],
        sink: Sink[T],
        env: Environment,
        selection: Selection = EVERYTHING,
    ) -> None:
        """`decode` may raise ValueError for an object that makes no sense: then what was known of it stays."""
        self._client = client
        self._collection = collection
        self._decode = decode
        self._sink = sink
        self._env = env
        self._selection = selection
        self._since = ""  #: the version to watch from; empty: there is no whole list to go on from
        self._failures = 0  #: in a row
        self._lists = 0  #: that led to nothing that could be watched

    def resume(self, since: str) -> None:
        """Watch from there instead of listing first: the sink knows all that was there then."""
        self._since = since

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                await (self._watch() if self._since else self._list())
            except ClientError as error:
                await self._pause(error)

    async def _pause(self, error: ClientError) -> None:
        doing = "watch" if self._since else "list"
        if isinstance(error, Refused) and (error.ahead or _for_good(error)):
            self._since = ""
        self._failures += 1
        if isinstance(error, Expired) and doing == "watch" and self._failures == 1:
            return  # nothing is wrong: we were away for too long
        self._sink.trouble(f"cannot {doing} {self._collection.plural}", error)
        await self._env.sleep(self._env.backoff.delay(self._failures, error.retry_after))

    async def _list(self) -> None:
        found: list[Known[T]] = []
        version = ""
        async for page in self._client.pages(self._collection, self._selection):
            version = page.metadata.resource_version
            for document in page.documents():
                found.extend(self._known(*where(document), document))
        if not version:
            raise Garbled("a list without a resourceVersion")
        self._sink.replace(found, number(version))
        self._since, self._failures = version, self._lists
        self._lists += 1

    async def _watch(self) -> None:
        """A list counts for little until it can be watched: otherwise a server that lists and does not let watch would
        be asked for everything again and again."""
        began, since, enough = self._env.monotonic(), self._since, LONG
        low, high = WATCH_SECONDS
        seconds = int(low + (high - low) * self._env.random())
        try:
            async for events in self._client.watch(self._collection, since, self._selection, seconds=seconds):
                for event in events:
                    self._hear(event)
            enough = SHORT
        finally:
            useful = self._since != since or self._env.monotonic() - began >= enough
            if useful:
                self._failures = self._lists = 0
        if not useful:
            raise Garbled("a watch that ended at once")

    def _hear(self, event: Event) -> None:
        if event.type == "ERROR":
            raise _told(event.object)
        key, version = where(event.object)
        if event.type in ("ADDED", "MODIFIED"):
            if self._sink.is_news(key, number(version)):
                for known in self._known(key, version, bytes(event.object)):
                    self._sink.apply(known)
        elif event.type == "DELETED":
            value = self._sink.previous(key)
            if value is not None:
                self._sink.remove(Known(key, number(version), value))
        elif event.type != "BOOKMARK":
            raise Garbled(f"an event of the type {event.type[:50]!r}")
        self._sink.hear(number(version))
        self._since = version

    def _known(self, key: Key, version: str, document: bytes) -> Iterator[Known[T]]:
        """Nothing if it makes no sense and never did."""
        try:
            value: T | None = self._decode(document)
        except NONSENSE as error:
            self._sink.trouble(f"cannot understand {self._collection.plural} {key}", error)
            value = self._sink.previous(key)
        if value is not None:
            yield Known(key, number(version), value)


def _for_good(error: Refused) -> bool:
    """It would say the same to the same question."""
    return error.status < 500 and not isinstance(error, TooMany | Unauthorized)


def where(raw: bytes | msgspec.Raw) -> tuple[Key, str]:
    """The key of an object, and its resourceVersion."""
    try:
        metadata = _headed.decode(raw).metadata
    except NONSENSE as error:
        raise Garbled(f"not an object: {error}") from None
    cluster = (metadata.annotations or {}).get(CLUSTER_ANNOTATION, "")
    return Key(cluster, metadata.namespace, metadata.name), metadata.resource_version


def number(version: str) -> int:
    if version.isascii() and version.isdigit() and len(version) < 20:
        return int(version)
    raise Garbled(f"{version[:50]!r} is not a resourceVersion")


def _told(raw: msgspec.Raw) -> ClientError:
    try:
        status = _status.decode(raw)
    except NONSENSE:
        return Garbled("an ERROR event without a Status")
    return refused(status.code, msgspec.structs.asdict(status))
