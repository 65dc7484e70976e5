"""Who is next: requests that wait for a decision, for their time, or for something to happen.

Nothing here knows what time it is: `now` is an argument, in monotonic seconds.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final, Generic, NamedTuple, TypeVar

from farflung.scheduling.values import Request

FIRST_PAUSE: Final = 1.0  #: seconds after the first refusal; twice as many after each further one
LONGEST_PAUSE: Final = 10.0
LEFTOVER: Final = 60.0  #: seconds after which one is tried again although nothing happened that could help it

N = TypeVar("N", bound=Hashable)


class Counts(NamedTuple):
    ready: int  #: to be handed out now
    pausing: int  #: until a moment that is near: those who try for others like them
    waiting: int  #: for something to happen, or for others
    held: int  #: handed out


def shape_of(request: Request) -> Hashable:
    """What a decision depends on: equal for requests that differ in uid, priority, labels and names of items alone."""
    return (
        tuple(item._replace(name="") for item in request.items),
        request.selector,
        request.replicas,
        request.tenant,
        request.current,
    )


class Queue:
    """The highest priority first, and of equals who was added first; but who tries again although nothing happened that
    could help does so after all others of its priority.

    A request is held from `pop` until it is refused or removed, and handed out again only after that.  One that is
    refused waits until something happens that could help it, or a minute, and pauses in any case: longer each time,
    until it changes.  Of those who wait and have the same shape the first one tries, and the next one follows if it is
    not refused before the next `pop`: where it finds no room there is none for those behind it.

    So an operation takes O(log n), and `wake` as many questions as there are shapes, however many wait.
    """

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}
        self._ready: _Ordered[str] = _Ordered()  #: by priority and age
        self._held: dict[str, None] = {}
        self._groups: dict[Hashable, _Group] = {}  #: who waits, by shape
        self._leftover: _Ordered[str] = _Ordered()  #: who waits, by when they have waited long enough
        self._woken: _Ordered[_Group] = _Ordered()  #: whose first one tries again, by when its pause is over
        self._last: Hashable = None  #: the shape of the last one that was handed out, unless it was refused
        self._number = 0

    def __len__(self) -> int:
        """All that are known, and those that are held are."""
        return len(self._entries)

    def __contains__(self, uid: str) -> bool:
        return uid in self._entries

    def asked(self, uid: str) -> float:
        """When one that is known was added."""
        return self._entries[uid].added

    @property
    def shapes(self) -> int:
        """How many there are of those who wait."""
        return len(self._groups)

    def counts(self) -> Counts:
        pausing = len(self._woken)
        return Counts(len(self._ready), pausing, len(self._leftover) - pausing, len(self._held))

    def waiting(self) -> list[Request]:
        """Those that were refused and are not handed out yet, in the order in which they were added."""
        entries = [self._entries[uid] for uid in self._leftover.names()]
        return [entry.request for entry in sorted(entries, key=lambda entry: entry.number)]

    def next_at(self) -> float | None:
        """When `pop` has something to hand out if nothing else happens; long ago if it has it already; None: never."""
        self._follow()
        if len(self._ready):
            return -math.inf
        moments = [first[0][0] for first in (self._leftover.first(), self._woken.first()) if first]
        return min(moments, default=None)

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
            self._give_way(entry)

    def pop(self, now: float) -> Request | None:
        self._follow()
        self._ripen(now)
        first = self._ready.first()
        if first is None:
            return None
        entry = self._entries[first[1]]
        self._leave(entry)
        self._held[entry.request.uid] = None
        entry.place = _Place.HELD
        entry.news = _News.NONE
        self._last = entry.shape()
        return entry.request

    def refuse(self, uid: str, now: float, *, retry: bool = False) -> None:
        """It is not placed.  Means nothing for one that is not held, as it was removed in the meantime.

        `retry`: not for lack of room, so it need not wait for anything but the end of its pause.
        """
        if uid not in self._held:
            return
        entry = self._entries[uid]
        self._leave(entry)
        if entry.news is _News.CHANGED:
            self._make_ready(entry)
            return
        entry.refusals += 1
        entry.pauses_until = now + min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(entry.refusals - 1, 16))
        self._make_wait(entry, now, hopeful=retry or entry.news is _News.HELPFUL)

    def wake(self, now: float, could: Callable[[Request], bool]) -> None:
        """Something happened, and for `could(request)` it may have made room.

        It must not depend on what `shape_of` leaves out.  Who pauses still goes on pausing; for those who are held it
        counts when they are refused.
        """
        answers: dict[Hashable, bool] = {}
        for shape, group in self._groups.items():
            answers[shape] = could(self._first(group).request)
            if answers[shape]:
                self._wake(group)
        for uid in self._held:
            entry = self._entries[uid]
            shape = entry.shape()
            if shape not in answers:
                answers[shape] = could(entry.request)
            if answers[shape] and entry.news is _News.NONE:
                entry.news = _News.HELPFUL
        self._ripen(now)

    # --- those who wait ---------------------------------------------------------------------------

    def _make_wait(self, entry: _Entry, now: float, *, hopeful: bool) -> None:
        entry.place = _Place.WAITING
        shape = entry.shape()
        if (group := self._groups.get(shape)) is None:
            self._number += 1
            group = self._groups[shape] = _Group(shape, self._number)
        entry.group = group
        group.members.put(entry.request.uid, entry.order())
        self._leftover.put(entry.request.uid, (now + LEFTOVER, entry.number))
        if hopeful:
            self._wake(group)
            return
        self._woken.discard(group)
        if self._last == shape:
            self._last = None

    def _first(self, group: _Group) -> _Entry:
        first = group.members.first()
        assert first is not None
        return self._entries[first[1]]

    def _wake(self, group: _Group) -> None:
        self._woken.put(group, (self._first(group).pauses_until, group.number))

    def _follow(self) -> None:
        """The last one was not refused, so there may be room for the next one like it."""
        shape, self._last = self._last, None
        if shape is not None and (group := self._groups.get(shape)):
            self._wake(group)

    def _give_way(self, entry: _Entry) -> None:
        """It was to find out whether there is room for those like it, and does not."""
        if entry.place is _Place.READY and entry.refusals and (group := self._groups.get(entry.shape())):
            self._wake(group)

    def _ripen(self, now: float) -> None:
        while (late := self._leftover.first()) and late[0][0] <= now:
            entry = self._entries[late[1]]
            self._leave(entry)
            self._make_ready(entry, last=True)
        while (woken := self._woken.first()) and woken[0][0] <= now:
            self._woken.discard(woken[1])
            entry = self._first(woken[1])
            self._leave(entry)
            self._make_ready(entry)

    # --- places -----------------------------------------------------------------------------------

    def _change(self, entry: _Entry, request: Request) -> None:
        if request == entry.request:
            return
        if entry.place is not _Place.HELD:
            self._leave(entry)
            self._give_way(entry)
        entry.request = request
        entry.known_shape = None
        entry.refusals = 0
        if entry.place is _Place.HELD:
            entry.news = _News.CHANGED
        else:
            self._make_ready(entry)

    def _make_ready(self, entry: _Entry, *, last: bool = False) -> None:
        entry.place = _Place.READY
        priority, *age = entry.order()
        self._ready.put(entry.request.uid, (priority, 1.0 if last else 0.0, *age))

    def _leave(self, entry: _Entry) -> None:
        """The place where it is, for another one or for good."""
        uid = entry.request.uid
        match entry.place:
            case _Place.READY:
                self._ready.discard(uid)
            case _Place.HELD:
                del self._held[uid]
            case _Place.WAITING:
                self._leftover.discard(uid)
                assert entry.group is not None
                self._leave_group(uid, entry.group)

    def _leave_group(self, uid: str, group: _Group) -> None:
        group.members.discard(uid)
        if not len(group.members):
            self._woken.discard(group)
            del self._groups[group.shape]
        elif group in self._woken:
            self._wake(group)  # another one may be the first now


class _Place(Enum):
    READY = 0
    HELD = 1
    WAITING = 2


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
    group: _Group | None = None  #: where it waits, if it does
    known_shape: Hashable = None

    def order(self) -> tuple[float, ...]:
        return -self.request.priority, self.added, self.number

    def shape(self) -> Hashable:
        if self.known_shape is None:
            self.known_shape = shape_of(self.request)
        return self.known_shape


class _Group:
    """Those of one shape who wait; there is one at least."""

    def __init__(self, shape: Hashable, number: int) -> None:
        self.shape = shape
        self.number = number
        self.members: _Ordered[str] = _Ordered()


class _Ordered(Generic[N]):
    """Names with keys that differ, the smallest first.

    What is discarded stays in the heap until it comes up, or until most of the heap is like that.
    """

    def __init__(self) -> None:
        self._keys: dict[N, tuple[float, ...]] = {}
        self._heap: list[tuple[tuple[float, ...], N]] = []

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, name: N) -> bool:
        return name in self._keys

    def names(self) -> Iterable[N]:
        return self._keys

    def put(self, name: N, key: tuple[float, ...]) -> None:
        if self._keys.get(name) == key:
            return
        self._keys[name] = key
        heapq.heappush(self._heap, (key, name))
        self._tidy()

    def discard(self, name: N) -> None:
        if self._keys.pop(name, None) is not None:
            self._tidy()

    def first(self) -> tuple[tuple[float, ...], N] | None:
        while self._heap:
            key, name = self._heap[0]
            if self._keys.get(name) == key:
                return key, name
            heapq.heappop(self._heap)
        return None

    def _tidy(self) -> None:
        if len(self._heap) > 2 * len(self._keys) + 64:
            self._heap = [(key, name) for name, key in self._keys.items()]
            heapq.heapify(self._heap)
