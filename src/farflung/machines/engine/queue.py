"""The scheduling queue: ready requests, requests in backoff, and unschedulable requests.

`now` is an argument, in monotonic seconds.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final, Generic, NamedTuple, TypeVar

from farflung.machines.engine.values import MachineRequest

BACKOFF_BASE: Final = 1.0  #: seconds; doubles with each refusal
BACKOFF_MAX: Final = 10.0
FLUSH_AFTER: Final = 60.0  #: seconds after which an unschedulable request is retried without a change

N = TypeVar("N", bound=Hashable)


class QueueCounts(NamedTuple):
    ready: int
    pausing: int  #: woken shapes in backoff
    waiting: int  #: unschedulable
    held: int  #: popped


def shape_of(request: MachineRequest) -> Hashable:
    """What a decision depends on: everything but uid, priority and labels."""
    return request.items, request.selector, request.replicas, request.tenant, request.author, request.current


class SchedulingQueue:
    """Orders requests by priority, then by age.  A periodic retry comes after all others of its priority.

    A request is held from `pop` until it is refused or removed.  A refused request waits for a change that may help it,
    or a minute, and at least its backoff, which grows until the request changes.  Of waiting requests with the same
    shape only the first is retried; the next one follows if that is not refused before the next `pop`.

    An operation takes O(log n), and `wake` asks one question per shape.
    """

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}
        self._ready: _Heap[str] = _Heap()  #: uids by priority and age
        self._held: dict[str, None] = {}
        self._groups: dict[Hashable, _Group] = {}  #: waiting requests by shape
        self._flush_times: _Heap[str] = _Heap()  #: waiting uids by the time of the periodic retry
        self._woken: _Heap[_Group] = _Heap()  #: groups to retry, by the end of their backoff
        self._last: Hashable = None  #: shape of the last popped request, unless it was refused
        self._number = 0

    def __len__(self) -> int:
        """Held requests are included."""
        return len(self._entries)

    def __contains__(self, uid: str) -> bool:
        return uid in self._entries

    def added_at(self, uid: str) -> float:
        """When the request was added."""
        return self._entries[uid].added

    @property
    def shapes(self) -> int:
        """Number of shapes of waiting requests."""
        return len(self._groups)

    def counts(self) -> QueueCounts:
        pausing = len(self._woken)
        return QueueCounts(len(self._ready), pausing, len(self._flush_times) - pausing, len(self._held))

    def waiting(self) -> list[MachineRequest]:
        """Refused requests in the order in which they were added."""
        entries = [self._entries[uid] for uid in self._flush_times.names()]
        return [entry.request for entry in sorted(entries, key=lambda entry: entry.number)]

    def next_at(self) -> float | None:
        """When `pop` returns the next request if nothing changes: -inf for now, None for never."""
        self._wake_next_of_shape()
        if len(self._ready):
            return -math.inf
        moments = [first[0][0] for first in (self._flush_times.first(), self._woken.first()) if first]
        return min(moments, default=None)

    def put(self, request: MachineRequest, now: float) -> None:
        """A changed request is ready at once and loses its backoff."""
        if request.uid in self._entries:
            self._change(self._entries[request.uid], request)
            return
        self._number += 1
        entry = self._entries[request.uid] = _Entry(request, added=now, number=self._number)
        self._add_ready(entry)

    def remove(self, uid: str) -> None:
        """The request may be held or unknown."""
        entry = self._entries.pop(uid, None)
        if entry is not None:
            self._remove_from_state(entry)
            self._wake_successor(entry)

    def pop(self, now: float) -> MachineRequest | None:
        self._wake_next_of_shape()
        self._move_due(now)
        first = self._ready.first()
        if first is None:
            return None
        entry = self._entries[first[1]]
        self._remove_from_state(entry)
        self._held[entry.request.uid] = None
        entry.place = _QueueState.HELD
        entry.news = _HeldChange.NONE
        self._last = entry.shape()
        return entry.request

    def refuse(self, uid: str, now: float) -> None:
        """The held request is not placed.  Ignored if it was removed meanwhile."""
        if uid not in self._held:
            return
        entry = self._entries[uid]
        self._remove_from_state(entry)
        if entry.news is _HeldChange.CHANGED:
            self._add_ready(entry)
            return
        entry.refusals += 1
        entry.pauses_until = now + min(BACKOFF_MAX, BACKOFF_BASE * 2.0 ** min(entry.refusals - 1, 16))
        self._add_waiting(entry, now, hopeful=entry.news is _HeldChange.HELPFUL)

    def wake(self, now: float, could: Callable[[MachineRequest], bool]) -> None:
        """A change may help requests for which `could(request)` is true.

        `could` must depend on the shape only.  The backoff continues.  For held requests it counts when they are
        refused.
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
            if answers[shape] and entry.news is _HeldChange.NONE:
                entry.news = _HeldChange.HELPFUL
        self._move_due(now)

    # --- waiting requests -------------------------------------------------------------------------

    def _add_waiting(self, entry: _Entry, now: float, *, hopeful: bool) -> None:
        entry.place = _QueueState.WAITING
        shape = entry.shape()
        if (group := self._groups.get(shape)) is None:
            self._number += 1
            group = self._groups[shape] = _Group(shape, self._number)
        entry.group = group
        group.members.put(entry.request.uid, entry.order())
        self._flush_times.put(entry.request.uid, (now + FLUSH_AFTER, entry.number))
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

    def _wake_next_of_shape(self) -> None:
        """The last popped request was not refused, so the next one of its shape may fit."""
        shape, self._last = self._last, None
        if shape is not None and (group := self._groups.get(shape)):
            self._wake(group)

    def _wake_successor(self, entry: _Entry) -> None:
        """A retried request was removed: the next one of its shape is retried instead."""
        if entry.place is _QueueState.READY and entry.refusals and (group := self._groups.get(entry.shape())):
            self._wake(group)

    def _move_due(self, now: float) -> None:
        while (late := self._flush_times.first()) and late[0][0] <= now:
            entry = self._entries[late[1]]
            self._remove_from_state(entry)
            self._add_ready(entry, last=True)
        while (woken := self._woken.first()) and woken[0][0] <= now:
            self._woken.discard(woken[1])
            entry = self._first(woken[1])
            self._remove_from_state(entry)
            self._add_ready(entry)

    # --- state changes ----------------------------------------------------------------------------

    def _change(self, entry: _Entry, request: MachineRequest) -> None:
        if request == entry.request:
            return
        if entry.place is not _QueueState.HELD:
            self._remove_from_state(entry)
            self._wake_successor(entry)
        entry.request = request
        entry.known_shape = None
        entry.refusals = 0
        if entry.place is _QueueState.HELD:
            entry.news = _HeldChange.CHANGED
        else:
            self._add_ready(entry)

    def _add_ready(self, entry: _Entry, *, last: bool = False) -> None:
        entry.place = _QueueState.READY
        priority, *age = entry.order()
        self._ready.put(entry.request.uid, (priority, 1.0 if last else 0.0, *age))

    def _remove_from_state(self, entry: _Entry) -> None:
        uid = entry.request.uid
        match entry.place:
            case _QueueState.READY:
                self._ready.discard(uid)
            case _QueueState.HELD:
                del self._held[uid]
            case _QueueState.WAITING:
                self._flush_times.discard(uid)
                assert entry.group is not None
                self._leave_group(uid, entry.group)

    def _leave_group(self, uid: str, group: _Group) -> None:
        group.members.discard(uid)
        if not len(group.members):
            self._woken.discard(group)
            del self._groups[group.shape]
        elif group in self._woken:
            self._wake(group)  # its first member may have changed


class _QueueState(Enum):
    READY = 0
    HELD = 1
    WAITING = 2


class _HeldChange(Enum):
    """What happened to a request while it was held."""

    NONE = 0
    HELPFUL = 1  #: the request may fit now
    CHANGED = 2  #: the request changed


@dataclass(slots=True)
class _Entry:
    request: MachineRequest
    added: float
    number: int
    place: _QueueState = _QueueState.READY
    news: _HeldChange = _HeldChange.NONE
    refusals: int = 0
    pauses_until: float = -math.inf
    group: _Group | None = None  #: while waiting
    known_shape: Hashable = None

    def order(self) -> tuple[float, ...]:
        return -self.request.priority, self.added, self.number

    def shape(self) -> Hashable:
        if self.known_shape is None:
            self.known_shape = shape_of(self.request)
        return self.known_shape


class _Group:
    """Waiting requests of one shape; never empty."""

    def __init__(self, shape: Hashable, number: int) -> None:
        self.shape = shape
        self.number = number
        self.members: _Heap[str] = _Heap()


class _Heap(Generic[N]):
    """Names with distinct keys, the smallest first.  Discarded entries are removed lazily."""

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
        self._compact()

    def discard(self, name: N) -> None:
        if self._keys.pop(name, None) is not None:
            self._compact()

    def first(self) -> tuple[tuple[float, ...], N] | None:
        while self._heap:
            key, name = self._heap[0]
            if self._keys.get(name) == key:
                return key, name
            heapq.heappop(self._heap)
        return None

    def _compact(self) -> None:
        if len(self._heap) > 2 * len(self._keys) + 64:
            self._heap = [(key, name) for name, key in self._keys.items()]
            heapq.heapify(self._heap)
