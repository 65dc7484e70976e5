"""watch: sends committed changes to clients.

Watchers of the same objects in the same representation form a watch group.  The hub encodes a change once per group,
and sends the same bytes to all of its watchers.  A watcher first gets the current objects, or the history since its
resourceVersion, then live changes, without gaps or repetitions.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, cast
from weakref import ref

import orjson

from farflung.http.flow_control import WriteTurns
from farflung.http.messages import EXEMPT, ComputedPiece, Flow, Holder, Piece, Pieces, Sink, Stream
from farflung.hub.catalog import objects
from farflung.hub.catalog.objects import ObjectSelection
from farflung.hub.catalog.served import Changed
from farflung.hub.registry import respond
from farflung.hub.registry.call import Call
from farflung.hub.registry.read import only_key, selection_of, too_large
from farflung.hub.registry.snapshots import LARGE, Snapshot, selected
from farflung.hub.request.negotiation import Representation
from farflung.hub.request.options import ListRequestOptions, list_options, revision_of
from farflung.machinery.errors import ApiError, expired
from farflung.store.base import Change, Compacted, Entry, Revision, Store, Subscription, TooSlow

BOOKMARK_EVERY: Final = 60.0
BOOKMARK_BEFORE_END: Final = 2.0
#: work of deliveries in a turn of the event loop before further ones wait: watch groups, watchers, and decoded KiB
AT_ONCE: Final = 128
KIB: Final = 1024
BEHIND: Final = 1_000  #: deliveries that may wait
CHANGES_AT_ONCE: Final = 64  #: changes that are encoded before other requests get a turn
EVENT_START: Final = b'{"type":"%b","object":'
EVENT_END: Final = b"}\n"
INITIAL_EVENTS_END: Final = {"k8s.io/initial-events-end": "true"}

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Topic:
    """What the watchers of a watch group have in common."""

    prefix: str
    only: str  #: the key of the only object that can match; empty if several can
    resource: str  #: with its version
    selection: ObjectSelection
    representation: Representation
    include: str  #: the `includeObject` of a Table

    @property
    def scope(self) -> str | Changed:
        """The view, or the cluster's kind, whose redefinition ends these watches."""
        resource = self.selection.resource
        return self.selection.view or (objects.cluster_in(self.prefix), resource.group, resource.plural)


class Watches:
    """All watch groups of a hub."""

    def __init__(self, store: Store, lasting: Callable[[int], float]) -> None:
        """`lasting`: seconds that a watch stays open, of timeoutSeconds or 0."""
        self._store = store
        self._lasting = lasting
        self._watch_groups: dict[Topic, WatchGroup] = {}
        self._by_scope: dict[str | Changed, dict[WatchGroup, None]] = {}
        self._turns: WriteTurns | None = None  #: of deliveries that wait
        self._spent = 0  #: work of deliveries in this turn of the event loop
        self.count = 0

    async def open(self, call: Call) -> Stream:
        options = list_options(call.request.query, watch=call.target.watch)
        representation = respond.negotiated(call, many=True, watch=True)
        selection = selection_of(call, options)
        include = call.query.get("includeObject", "")
        resource = f"{call.resource.api_version}/{call.resource.plural}"
        topic = Topic(call.prefix, only_key(call, selection), resource, selection, representation, include)
        watch_group = self._watch_group(topic, call)
        watcher = WatchStream(watch_group, seconds=self._lasting(options.timeout or 0), bookmarks=options.bookmarks)
        watch_group.join(watcher)
        try:
            watcher.begin_with(await self._past(watch_group, options, call.steady_since()))
        except ApiError as error:
            watch_group.leave(watcher)
            if error.code != 410:
                raise
            watcher.fail(error)
        except BaseException:
            watch_group.leave(watcher)
            raise
        headers = respond.warning_headers(call)
        return Stream(watcher.start, watcher.stop, content_type=representation.stream_type, headers=headers)

    def _watch_group(self, topic: Topic, call: Call) -> WatchGroup:
        watch_group = self._watch_groups.get(topic)
        if watch_group is None:
            watch_group = self._watch_groups[topic] = WatchGroup(self, topic, call, self._store)
            self._by_scope.setdefault(topic.scope, {})[watch_group] = None
        return watch_group

    def spend(self, work: int) -> bool:
        """Whether this turn of the event loop has time for a delivery."""
        if not self._spent:
            asyncio.get_running_loop().call_soon(self._begin_turn)
        self._spent += work
        return self._spent <= AT_ONCE

    def _begin_turn(self) -> None:
        self._spent = 0

    def wait(self, flow: Flow, deliver: Callable[[], None]) -> None:
        """`deliver` is called once, in a fair turn of the flow."""
        if self._turns is None:
            self._turns = WriteTurns(asyncio.get_running_loop(), {})
        self._turns.wait(flow, deliver)

    def forget(self, watch_group: WatchGroup) -> None:
        del self._watch_groups[watch_group.topic]
        beside = self._by_scope[watch_group.topic.scope]
        del beside[watch_group]
        if not beside:
            del self._by_scope[watch_group.topic.scope]

    def end(self, changed: Iterable[Changed]) -> None:
        """End the watches of redefined resources; their clients watch again."""
        for scope in changed:
            for watch_group in tuple(self._by_scope.get(scope, ())):
                watch_group.end()

    def expire(self, view: str, kinds: Collection[tuple[str, str]] | None) -> None:
        """End the watches of a view in which other objects are visible now, of these kinds or of all; their clients
        list again."""
        error = expired(f"too old resource version: what is seen changed at {self._store.revision}")
        for watch_group in tuple(self._by_scope.get(view, ())):
            resource = watch_group.topic.selection.resource
            if kinds is None or (resource.group, resource.plural) in kinds:
                watch_group.expire(error)

    async def _past(self, watch_group: WatchGroup, options: ListRequestOptions, steady: Revision) -> Past:
        """The events before live ones.  `steady`: the revision since which history is complete."""
        until = self._store.revision
        since = revision_of(options.resource_version or "0")
        if since > until:
            raise too_large(since, until)
        initial = options.initial_events
        if not since or initial:
            if initial is False:
                return b""
            end = watch_group.bookmark(until, INITIAL_EVENTS_END) if initial and options.bookmarks else b""
            return watch_group.added(await watch_group.state(), end)
        if since == until:
            return b""
        if since < steady:
            raise expired(f"too old resource version: {since} ({steady})")
        try:
            changes = await self._store.changes(watch_group.topic.prefix, since=since, until=until)
        except Compacted as error:
            raise expired(f"too old resource version: {since} ({error.oldest})") from None
        except TooSlow:
            raise expired(f"too old resource version: {since} ({until})") from None
        return watch_group.history(changes)


Past = bytes | Pieces  #: the events before live ones


@dataclass(slots=True, eq=False)
class WatchDelivery:
    """Changes for the watchers that a watch group had at that time."""

    changes: Sequence[Change]
    members: Sequence[WatchStream]
    encoded: list[bytes | ComputedPiece] | None = None  #: None: not encoded yet
    computing: int = 0  #: events


class WatchGroup:
    """The watchers of one topic."""

    def __init__(self, watches: Watches, topic: Topic, call: Call, store: Store) -> None:
        self.topic = topic
        self._watches = watches
        self._store = store
        self._present = respond.presenter_of(call, topic.representation)
        self._members: set[WatchStream] = set()
        self._flow = call.tools.flow_of(call.request) or EXEMPT
        self._waiting: deque[WatchDelivery] = deque()
        self._changes = 0  #: commits
        self._snapshot: Callable[[], Snapshot | None] = no_snapshot  #: while clients read it and nothing changes
        self._subscription: Subscription | None = None

    def join(self, watcher: WatchStream) -> None:
        if self._subscription is None:
            self._subscription = self._store.subscribe(self.topic.only or self.topic.prefix, self._on_changes)
        self._members.add(watcher)
        self._watches.count += 1

    def leave(self, watcher: WatchStream) -> None:
        if watcher not in self._members:
            return
        self._members.remove(watcher)
        self._watches.count -= 1
        if not self._members and self._subscription is not None:
            self._waiting.clear()
            self._subscription.cancel()
            self._subscription = None
            self._watches.forget(self)

    def end(self) -> None:
        for watcher in tuple(self._members):
            watcher.end()

    def expire(self, error: ApiError) -> None:
        for watcher in tuple(self._members):
            watcher.expire(error)

    def _on_changes(self, changes: Sequence[Change]) -> None:
        self._changes += 1
        self._snapshot = no_snapshot
        if len(self._waiting) > BEHIND:
            log.info("watches of %s are cut off, which are too far behind", self.topic.resource)
            self._cut_off()
            return
        members = tuple(self._members)
        for portion in change_portions(changes):
            self._waiting.append(WatchDelivery(portion, members))
            if len(self._waiting) == 1 and self._watches.spend(self._work(self._waiting[0])):
                self._deliver()
            elif len(self._waiting) == 1:
                self._watches.wait(self._flow, self._deliver_next)

    @property
    def is_behind(self) -> bool:
        """Whether watchers do not have all changes yet."""
        return bool(self._waiting)

    def _work(self, delivery: WatchDelivery) -> int:
        decoded = 0 if self._present.is_plain else sum(map(size_of, delivery.changes)) // KIB
        return 1 + len(delivery.members) + decoded

    def _deliver_next(self) -> None:
        """Called in the turn of this group."""
        if self._waiting:
            self._deliver()

    def _deliver(self) -> None:
        """Deliver the first changes, and let the next ones wait for a turn."""
        delivery = self._waiting[0]
        try:
            if delivery.encoded is None:
                delivery.encoded = self._events(delivery.changes)
                computed = [one for one in delivery.encoded if isinstance(one, asyncio.Future)]
                delivery.computing = len(computed)
                for one in computed:
                    one.add_done_callback(partial(self._on_computed, delivery))
            if delivery.computing:
                return
            data = b"".join([one.result() if isinstance(one, asyncio.Future) else one for one in delivery.encoded])
        except Exception:
            log.exception("a change of %s cannot be shown; its watchers are cut off", self.topic.resource)
            self._cut_off()
            return
        self._waiting.popleft()
        if data:
            for watcher in delivery.members:
                watcher.send(data)
        if self._waiting:
            self._watches.wait(self._flow, self._deliver_next)

    def _cut_off(self) -> None:
        self._waiting.clear()
        for watcher in tuple(self._members):
            watcher.cut_off()

    def _on_computed(self, delivery: WatchDelivery, event: ComputedPiece) -> None:
        delivery.computing -= 1
        if not delivery.computing and self._waiting and self._waiting[0] is delivery:
            self._watches.wait(self._flow, self._deliver_next)

    def _events(self, changes: Sequence[Change]) -> list[bytes | ComputedPiece]:
        return [
            self._computed_event(kind, entry) if self._present.is_heavy([entry]) else self._event(kind, entry)
            for kind, entry in self._selected(changes)
        ]

    def encoded(self, changes: Sequence[Change]) -> list[bytes]:
        return [self._event(kind, entry) for kind, entry in self._selected(changes)]

    def _selected(self, changes: Sequence[Change]) -> Iterator[tuple[str, Entry]]:
        """The events of changes: their types and objects."""
        selection = self.topic.selection
        selects = bool(selection)
        for change in changes:
            entry, previous = change.entry, change.previous
            if selects:
                entry = entry if entry is not None and selection.matches(entry) else None
                previous = previous if previous is not None and selection.matched(previous) else None
            if entry is not None:
                yield "MODIFIED" if previous is not None else "ADDED", entry
            elif previous is not None:
                # with the revision of the object, by which its kind is converted
                yield "DELETED", Entry(change.key, objects.stamp(previous.value, change.revision), previous.revision)

    async def state(self) -> Snapshot:
        """The current objects that are selected."""
        snapshot = self._snapshot()
        if snapshot is not None:
            return snapshot
        changes, selection = self._changes, self.topic.selection
        entries: Sequence[Entry]
        if self.topic.only:
            entry = self._store.get(self.topic.only)
            entries = () if entry is None else (entry,)
        else:
            entries = self._store.list(self.topic.prefix).entries
        if selection:
            entries = await selected(entries, selection)
        snapshot = Snapshot(self._store, self.topic.prefix, entries)
        if changes == self._changes:
            self._snapshot = ref(snapshot)
        return snapshot

    def added(self, snapshot: Snapshot, end: bytes) -> Past:
        """ADDED events of all objects, and then `end`."""
        encode = partial(self._added, snapshot.entries, end)
        if snapshot.size <= LARGE and self._present.is_quick(snapshot.entries):
            return b"".join(cast(Iterator[Piece], encode()))
        return snapshot.encoded(encode)

    def _added(self, entries: Sequence[Entry], end: bytes) -> Iterator[Piece | ComputedPiece]:
        for portion in self._present.portions(entries):
            if self._present.is_heavy(portion):
                yield self._computed_event("ADDED", portion[0])
            elif len(portion) == 1 and not self.has_columns:  # a large object is not copied
                yield from (EVENT_START % b"ADDED", self._present.encoded(portion[0]), EVENT_END)
            else:
                yield b"".join([self._event("ADDED", entry) for entry in portion])
        yield end

    def history(self, changes: Sequence[Change]) -> Past:
        """Events of all changes."""
        portions = list(change_portions(changes))
        if len(portions) == 1 and (self._present.is_plain or sum(map(size_of, changes)) <= LARGE):
            return b"".join(self.encoded(changes))

        def pieces(holder: Holder) -> Iterator[Piece | ComputedPiece]:
            for portion in portions:
                for change in portion:
                    holder.hold(change, size_of(change))  # it may be in memory for this client only
                yield b""
            for portion in portions:
                yield from self._events(portion)

        return pieces

    def _event(self, kind: str, entry: Entry) -> bytes:
        return b"".join((EVENT_START % kind.encode(), self._present.encoded(entry), EVENT_END))

    def _computed_event(self, kind: str, entry: Entry) -> ComputedPiece:
        """The event of a heavy object, encoded by a worker process."""

        async def framed(encoded: ComputedPiece) -> bytes:
            try:
                return b"".join((EVENT_START % kind.encode(), await encoded, EVENT_END))
            finally:
                encoded.cancel()

        return asyncio.ensure_future(framed(self._present.computed(respond.Presenter.encoded, entry)))

    def bookmark(self, revision: Revision, annotations: dict[str, str] | None = None) -> bytes:
        return b'{"type":"BOOKMARK","object":%b}\n' % self._present.bookmark(revision, annotations)

    def with_columns(self, event: bytes) -> bytes:
        """The first event of a watcher, with the column definitions of a Table."""
        return self._present.with_columns(event)

    @property
    def has_columns(self) -> bool:
        return self._present.has_columns

    @property
    def revision(self) -> Revision:
        return self._store.revision


def no_snapshot() -> Snapshot | None:
    return None


def size_of(change: Change) -> int:
    return sum([len(entry.value) for entry in (change.entry, change.previous) if entry is not None])


def change_portions(changes: Sequence[Change]) -> Iterator[Sequence[Change]]:
    """Changes that are encoded in a few milliseconds."""
    start = size = 0
    for at, change in enumerate(changes):
        if at - start >= CHANGES_AT_ONCE or size > LARGE:
            yield changes[start:at]
            start, size = at, 0
        size += size_of(change)
    yield changes[start:]


def error_event(error: ApiError) -> bytes:
    return b'{"type":"ERROR","object":%b}\n' % orjson.dumps(error.status())


class WatchStream:
    """One client.  Live events wait until it is started, and follow its initial events."""

    __slots__ = ("_bookmarks", "_lacks_columns", "_past", "_seconds", "_sink", "_timers", "_waiting", "_watch_group")

    def __init__(self, watch_group: WatchGroup, *, seconds: float, bookmarks: bool) -> None:
        self._watch_group = watch_group
        self._seconds = seconds
        self._bookmarks = bookmarks
        self._past: Past = b""  #: initial events that are not written yet
        self._waiting: list[bytes] = []
        self._lacks_columns = watch_group.has_columns
        self._sink: Sink | None = None
        self._timers: list[asyncio.TimerHandle] = []

    def begin_with(self, past: Past) -> None:
        """Set the initial events; ignored after a failure."""
        self._past = self._past or past

    def fail(self, error: ApiError) -> None:
        """Send one ERROR event, and end the stream."""
        self._past = error_event(error)
        self._lacks_columns = False
        self._waiting = []
        self._seconds = 0.0

    def start(self, sink: Sink) -> None:
        self._sink = sink
        if isinstance(self._past, bytes):
            self._waiting.insert(0, self._past)
            self._past = b""
        else:
            sink.begin(partial(self._initial, self._past))
        waiting, self._waiting = self._waiting, []
        for data in waiting:
            self._write(data)
        if not self._seconds:
            sink.close()
            return
        loop = asyncio.get_running_loop()
        self._timers = [loop.call_later(self._seconds, sink.close)]
        if self._bookmarks:
            first = min(BOOKMARK_EVERY, max(self._seconds - BOOKMARK_BEFORE_END, self._seconds / 2))
            self._timers.append(loop.call_later(first, self._mark, loop.time() + self._seconds))

    def _initial(self, past: Pieces, holder: Holder) -> Iterator[Piece | ComputedPiece]:
        for piece in past(holder):
            if self._lacks_columns and isinstance(piece, asyncio.Future):
                yield asyncio.ensure_future(self._computed_with_columns(piece))
                self._lacks_columns = False
            elif self._lacks_columns and piece:
                yield self._with_columns(bytes(cast(Piece, piece)))
                self._lacks_columns = False
            else:
                yield piece
        self._past = b""

    def _mark(self, end: float) -> None:
        if self._sink is None:
            return
        if not self._watch_group.is_behind:
            self._write(self._watch_group.bookmark(self._watch_group.revision))
        loop = asyncio.get_running_loop()
        left = end - loop.time() - BOOKMARK_BEFORE_END
        if left > 0:
            self._timers[1] = loop.call_later(min(BOOKMARK_EVERY, left), self._mark, end)

    def send(self, data: bytes) -> None:
        if self._sink is None:
            self._waiting.append(data)
        else:
            self._write(data)

    def cut_off(self) -> None:
        """Abort without the last chunk, so that the client relists.  A watcher that has not started gets its initial
        events first."""
        self._watch_group.leave(self)
        self._seconds = 0.0
        if self._sink is not None:
            self._sink.abort()

    def expire(self, error: ApiError) -> None:
        """End with an ERROR event 410, so that the client relists.  Initial events that it may no longer see are not
        written."""
        self._watch_group.leave(self)
        if self._sink is None:
            self.fail(error)
        elif self._past:
            self._sink.abort()
        else:
            self._lacks_columns = False
            self._write(error_event(error))
            self._sink.close()

    def end(self) -> None:
        """End the stream.  A watcher that has not started gets its initial events first."""
        self._watch_group.leave(self)
        self._seconds = 0.0
        if self._sink is not None:
            self._sink.close()

    def _write(self, data: bytes) -> None:
        if self._lacks_columns and data:
            data = self._with_columns(data)
            self._lacks_columns = bool(self._past)
        if self._sink is not None:
            self._sink.write(data)

    def _with_columns(self, data: bytes) -> bytes:
        first, newline, rest = data.partition(b"\n")
        return self._watch_group.with_columns(first + newline) + rest

    async def _computed_with_columns(self, event: ComputedPiece) -> bytes:
        try:
            return self._with_columns(await event)
        finally:
            event.cancel()

    def stop(self) -> None:
        for timer in self._timers:
            timer.cancel()
        self._sink = None
        self._watch_group.leave(self)
