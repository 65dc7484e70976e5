"""Clusters that name the same SyncTarget: only the one that was there first has its room.  Pure."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable
from typing import NamedTuple

from farflung.controllers.global_scheduler.subjects import Usage
from farflung.runtime.cache import Key
from farflung.scheduling.values import SiteKey


class Share(NamedTuple):
    """What a Cluster has of its SyncTarget."""

    first: SiteKey | None = None  #: the other Cluster that has it; None: nobody else
    vcpus: int = 0  #: what is still held by those that do not have it
    memory: int = 0


class Sharing:
    def __init__(self) -> None:
        self._users: dict[Key, list[tuple[str, SiteKey]]] = {}  #: by SyncTarget, sorted by when they were made

    def come(self, target: Key, created: str, site: SiteKey) -> list[SiteKey]:
        """Those that have to be looked at: all who name that SyncTarget, if another one is the first now."""
        users = self._users.setdefault(target, [])
        insort(users, (created, site))
        return self.users(target) if users[0] == (created, site) else [site]

    def go(self, target: Key, created: str, site: SiteKey) -> list[SiteKey]:
        """As above."""
        users = self._users.get(target, [])
        place = bisect_left(users, (created, site))
        if users[place : place + 1] != [(created, site)]:
            return []
        del users[place]
        if not users:
            del self._users[target]
        return [] if place else self.users(target)

    def users(self, target: Key) -> list[SiteKey]:
        """The one that has it, then the others."""
        return [site for _, site in self._users.get(target, ())]

    def share(self, target: Key, site: SiteKey, usage: Callable[[SiteKey], Usage]) -> Share:
        """`usage`: what is held at a Cluster."""
        first, *others = self.users(target) or [site]
        if first != site:
            return Share(first)
        held = [usage(other) for other in others]
        return Share(None, sum(one.vcpus for one in held), sum(one.memory for one in held))
