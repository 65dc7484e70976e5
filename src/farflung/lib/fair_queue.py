"""A queue that shares time between flows: the flow that has used the least is served next.

A flow is a path, like (priority level, tenant, user).  The members of a group, such as all users of a tenant, share the
time of the group, so a tenant with many users gets no more than others.  A flow that was idle is served next, but
cannot save up time (start-time fair queueing).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from heapq import heappop, heappush
from itertools import pairwise
from typing import Final, Generic, TypeVar

T = TypeVar("T")
FlowPath = tuple[str, ...]

#: Idle members that a group remembers, beside as many as are active.
REMEMBERED: Final = 64


class Member(Generic[T]):
    """A flow, or a group of flows."""

    __slots__ = ("clock", "heap", "items", "length", "members", "used", "weight")

    def __init__(self, used: float, weight: float = 1.0) -> None:
        self.used = used  #: time by weight, from the start of its group
        self.weight = weight
        self.length = 0  #: waiting items, of all members of a group
        self.items: deque[T] = deque()  #: of a flow
        self.members: dict[str, Member[T]] = {}  #: of a group, active or remembered
        self.heap: list[tuple[float, int, Member[T]]] = []  #: active members; `used` may have changed since
        self.clock = 0.0  #: what the member that was served last had used

    def forget_idle(self) -> None:
        """Forget what members used when nothing waits, and idle ones that would start anew anyway."""
        if not self.length:
            self.members.clear()
            self.clock = 0.0
        elif len(self.members) > 2 * len(self.heap) + REMEMBERED:
            self.members = {key: one for key, one in self.members.items() if one.length or one.used > self.clock}


class FairQueue(Generic[T]):
    def __init__(self, weights: Mapping[str, float]) -> None:
        """`weights`: of the first parts of paths; 1 by default."""
        self._weights = weights
        self._root: Member[T] = Member(0.0)
        self._pushed = 0

    def __len__(self) -> int:
        return self._root.length

    def waiting(self, path: FlowPath) -> int:
        """Items of a flow or group."""
        member = self._root
        for part in path:
            found = member.members.get(part)
            if found is None:
                return 0
            member = found
        return member.length

    def push(self, path: FlowPath, item: T) -> None:
        chain = self._members_of(path)
        for group, member in pairwise(chain):
            if not member.length:
                member.used = max(member.used, group.clock)
                self._activate(group, member)
        for member in chain:
            member.length += 1
        chain[-1].items.append(item)

    def pop(self) -> T:
        """Raises IndexError if nothing waits."""
        if not self._root.length:
            raise IndexError("the queue is empty")
        group = self._root
        chain = [group]
        while group.heap:
            used, number, member = group.heap[0]
            if used != member.used:  # it was charged meanwhile
                heappop(group.heap)
                heappush(group.heap, (member.used, number, member))
                continue
            group.clock = max(group.clock, used)
            chain.append(member)
            group = member
        for member in chain:
            member.length -= 1
        for group, member in pairwise(chain):
            heappop(group.heap)
            if member.length:
                self._activate(group, member)
            group.forget_idle()
        return chain[-1].items.popleft()

    def charge(self, path: FlowPath, seconds: float) -> None:
        """Time that a flow used; negative if it was charged too much before.  Ignored for a flow that is forgotten."""
        member = self._root
        for part in path:
            found = member.members.get(part)
            if found is None:
                return
            member = found
            member.used += seconds / member.weight

    def _members_of(self, path: FlowPath) -> list[Member[T]]:
        """The root, the groups of the path, and the flow."""
        member = self._root
        members = [member]
        for part in path:
            found = member.members.get(part)
            if found is None:
                weight = self._weights.get(part, 1.0) if member is self._root else 1.0
                found = member.members[part] = Member(member.clock, weight)
            members.append(member := found)
        return members

    def _activate(self, group: Member[T], member: Member[T]) -> None:
        self._pushed += 1
        heappush(group.heap, (member.used, self._pushed, member))
