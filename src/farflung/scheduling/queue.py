"""Who is next: requests that wait for a decision, for their time, or for something to happen.

Nothing here knows what time it is: `now` is an argument, in monotonic seconds.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from enum import Enum
from typing import Final, Generic, NamedTuple, TypeVar

from farflung.scheduling.values import Request

FIRST_PAUSE: Final = 1.0  #: seconds after the first refusal; twice as many after each further one
LONGEST_PAUSE: Final = 10.0
LEFTOVER: Final = 60.0  #: seconds after which one is tried again although nothing happened that could help it

K = TypeVar("K", bound=tuple[float, ...])


class Counts(NamedTuple):
    ready: int  #: to be handed out now
    pausing: int  #: until a moment that is known
    waiting: int  #: for something to happen
    held: int  #: handed out


def shape_of(request: Request) -> Hashable:
    """What a decision depends on: equal for requests that differ in uid, priority and names of items alone."""
    return (
        tuple(item._replace(name="") for item in request.items),
        request.selector,
        request.replicas,
        request.tenant,
        tuple(sorted(request.labels.items())),
        request.current,
    )


class Queue:
    """The highest priority first, and of equals who was added first.

    A request is held from `pop` until it is refused or removed, and handed out again only after that.  One that is
    refused waits until something happens that could help it, or a minute, and pauses in any case: longer each time,
    until it changes.  An operation takes O(log n), and `wake` asks once for each shape of those who wait.
    """

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}
        self._ready: _Ordered[tuple[float, float, float]] = _Ordered()  #: by priority, time and number
        self._later: _Ordered[tuple[float, float]] = _Ordered()  #: who pauses or waits, by their time
        self._waiting: dict[Hashable, dict[str, None]] = {}  #: by shape
        self._held: dict[str, None] = {}
        self._number = 0

    def __len__(self) -> int:
        """All that are known, and those that are held are."""
        return len(self._entries)

    def __contains__(self, uid: str) -> bool:
        return uid in self._entries

    def counts(self) -> Counts:
        waiting = sum(map(len, self._waiting.values()))
        return Counts(len(self._ready), len(self._later) - waiting, waiting, len(self._held))

    def waiting(self) -> list[Request]:
        """Those for whom something has to happen, in the order in which they were added."""
        entries = [self._entries[uid] for group in self._waiting.values() for uid in group]
        return [entry.request for entry in sorted(entries, key=lambda entry: entry.number)]

    def next_at(self) -> float | None:
        """When `pop` has something to hand out if nothing else happens; long ago if it has it already; None: never."""
        if self._ready.first():
            return -math.inf
        first = self._later.first()
        return first[0][0] if first else None

    def add(self, request: Request, now: float) -> None:
        """One that is known is updated."""
        if request.uid in self._entries:
            self._change(self._entries[request.uid], request)
            return
        self._number += 1
        entry = self._entries[request.uid] = _Entry(request, added=now, number=self._number)
        self._make_ready(entry)

    def update(self, request: Request, now: float) -> None:
        """One that changed is ready at once, with its refusals forgotten; one that did not stays where it is, and one
        that is not known is added."""
        self.add(request, now)

    def remove(self, uid: str) -> None:
        """It may be held, and need not be known."""
        entry = self._entries.pop(uid, None)
        if entry is not None:
            self._leave(entry)

    def pop(self, now: float) -> Request | None:
        self._ripen(now)
        first = self._ready.first()
        if first is None:
            return None
        entry = self._entries[first[1]]
        self._leave(entry)
        self._held[entry.request.uid] = None
        entry.place = _Place.HELD
        entry.news = _News.NONE
        return entry.request

    def refuse(self, uid: str, now: float) -> None:
        """It is not placed.  Means nothing for one that is not held, as it was removed in the meantime."""
        if uid not in self._held:
            return
        entry = self._entries[uid]
        self._leave(entry)
        if entry.news is _News.CHANGED:
            self._make_ready(entry)
            return
        entry.refusals += 1
        entry.pauses_until = now + min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(entry.refusals - 1, 16))
        if entry.news is _News.HELPFUL:
            self._put_off(entry)
        else:
            self._make_wait(entry, now)

    def wake(self, now: float, could: Callable[[Request], bool]) -> None:
        """Something happened, and for `could(request)` it may have made room.

        It must not depend on what `shape_of` leaves out.  Who pauses still goes on pausing; for those who are held it
        counts when they are refused.
        """
        answers: dict[Hashable, bool] = {}
        for shape, group in list(self._waiting.items()):
            answers[shape] = could(self._entries[next(iter(group))].request)
            if answers[shape]:
                for uid in list(group):
                    self._try_again(self._entries[uid], now)
        for uid in self._held:
            entry = self._entries[uid]
            shape = entry.shape()
            if shape not in answers:
                answers[shape] = could(entry.request)
            if answers[shape] and entry.news is _News.NONE:
                entry.news = _News.HELPFUL

    # --- places ---------------------------------------------------------------------------------

    def _change(self, entry: _Entry, request: Request) -> None:
        if request == entry.request:
            return
        if entry.place is not _Place.HELD:
            self._leave(entry)
        entry.request = request
        entry.known_shape = None
        entry.refusals = 0
        if entry.place is _Place.HELD:
            entry.news = _News.CHANGED
        else:
            self._make_ready(entry)

    def _ripen(self, now: float) -> None:
        while (first := self._later.first()) and first[0][0] <= now:
            entry = self._entries[first[1]]
            self._leave(entry)
            self._make_ready(entry)

    def _try_again(self, entry: _Entry, now: float) -> None:
        self._leave(entry)
        if entry.pauses_until <= now:
            self._make_ready(entry)
        else:
            self._put_off(entry)

    def _make_ready(self, entry: _Entry) -> None:
        entry.place = _Place.READY
        self._ready.put(entry.request.uid, (-entry.request.priority, entry.added, entry.number))

    def _put_off(self, entry: _Entry) -> None:
        entry.place = _Place.PAUSING
        self._later.put(entry.request.uid, (entry.pauses_until, entry.number))

    def _make_wait(self, entry: _Entry, now: float) -> None:
        entry.place = _Place.WAITING
        self._waiting.setdefault(entry.shape(), {})[entry.request.uid] = None
        self._later.put(entry.request.uid, (now + LEFTOVER, entry.number))

    def _leave(self, entry: _Entry) -> None:
        """The place where it is, for another one or for good."""
        uid = entry.request.uid
        match entry.place:
            case _Place.READY:
                self._ready.discard(uid)
            case _Place.HELD:
                del self._held[uid]
            case _Place.PAUSING:
                self._later.discard(uid)
            case _Place.WAITING:
                self._later.discard(uid)
                group = self._waiting[entry.shape()]
                del group[uid]
                if not group:
                    del self._waiting[entry.shape()]


class _Place(Enum):
    READY = 0
    HELD = 1
    PAUSING = 2  #: it has to be tried again, but not yet
    WAITING = 3  #: for something to happen


class _News(Enum):
    """What happened to one while it is held."""

    NONE = 0
    HELPFUL = 1  #: it may fit now
    CHANGED = 2  #: it is another one


@dataclass(slots=True)
class _Entry:
    request: Request
    added: float
    number: int
    place: _Place = _Place.READY
    news: _News = _News.NONE
    refusals: int = 0
    pauses_until: float = -math.inf
    known_shape: Hashable = None

    def shape(self) -> Hashable:
        if self.known_shape is None:
            self.known_shape = shape_of(self.request)
        return self.known_shape


class _Ordered(Generic[K]):
    """Names with keys, the smallest first.  What is discarded stays in the heap until it comes up or is most of it."""

    def __init__(self) -> None:
        self._keys: dict[str, K] = {}
        self._heap: list[tuple[K, str]] = []

    def __len__(self) -> int:
        return len(self._keys)

    def put(self, name: str, key: K) -> None:
        self._keys[name] = key
        heapq.heappush(self._heap, (key, name))

    def discard(self, name: str) -> None:
        del self._keys[name]
        if len(self._heap) > 2 * len(self._keys) + 64:
            self._heap = [(key, name) for name, key in self._keys.items()]
            heapq.heapify(self._heap)

    def first(self) -> tuple[K, str] | None:
        while self._heap:
            key, name = self._heap[0]
            if self._keys.get(name) == key:
                return key, name
            heapq.heappop(self._heap)
        return None
