"""Machines at sites, by name and by workspace; Clusters that share a SyncTarget.  Pure.

Machines of several workspaces with the same namespace and name would be one Pod at a SyncTarget.  So only one of them
is delivered."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Hashable
from typing import NamedTuple, TypeVar

from farflung.controllers.global_scheduler.subjects import UsageSummary
from farflung.runtime.cache import Key
from farflung.scheduling.values import SiteKey

K = TypeVar("K", bound=Hashable)
M = TypeVar("M", bound=Hashable)


class MachineLocations:
    def __init__(self) -> None:
        self._target: dict[SiteKey, Hashable] = {}
        self._sites: dict[Hashable, set[SiteKey]] = {}  #: several sites may have one SyncTarget
        self._machines: dict[tuple[str, str], Counter[tuple[Key, SiteKey]]] = {}  #: by namespace and name
        self._workspaces: dict[SiteKey, Counter[str]] = {}

    def set_target(self, site: SiteKey, target: Hashable | None) -> bool:
        """Set the SyncTarget of a site.  True if it changed."""
        before = self._target.pop(site, None)
        if before is not None:
            self._sites[before].discard(site)
            if not self._sites[before]:
                del self._sites[before]
        if target is not None:
            self._target[site] = target
            self._sites.setdefault(target, set()).add(site)
        return before != target

    def has_target(self, site: SiteKey) -> bool:
        return site in self._target

    def add(self, machine: Key, site: SiteKey) -> None:
        self._machines.setdefault((machine.namespace, machine.name), Counter())[machine, site] += 1
        self._workspaces.setdefault(site, Counter())[machine.cluster] += 1

    def remove(self, machine: Key, site: SiteKey) -> None:
        _decrement(self._machines, (machine.namespace, machine.name), (machine, site))
        _decrement(self._workspaces, site, machine.cluster)

    def workspaces(self, site: SiteKey) -> set[str]:
        """Logical clusters with machines at the site."""
        return set(self._workspaces.get(site, ()))

    def conflicting_sites(self, machine: Key) -> set[SiteKey]:
        """Sites whose SyncTarget has another machine of that name."""
        there = self._machines.get((machine.namespace, machine.name), ())
        targets = {self._target[site] for other, site in there if other != machine and site in self._target}
        return set().union(*(self._sites[target] for target in targets))

    def namesakes(self, machine: Key, site: SiteKey) -> list[Key]:
        """Machines of that name at the SyncTarget of the site, including itself."""
        there, target = self._machines.get((machine.namespace, machine.name), ()), self._target.get(site)
        found = {other for other, where in there if target is not None and self._target.get(where) == target}
        return sorted(found)


def _decrement(counters: dict[K, Counter[M]], key: K, member: M) -> None:
    counter = counters[key]
    counter[member] -= 1
    if not counter[member]:
        del counter[member]
    if not counter:
        del counters[key]


class TargetShare(NamedTuple):
    """The part of a SyncTarget's capacity that a Cluster has."""

    first: SiteKey | None = None  #: the Cluster that uses the SyncTarget; None: this one
    vcpus: int = 0  #: reserved by the other Clusters of this SyncTarget
    memory: int = 0


class TargetShares:
    def __init__(self) -> None:
        self._users: dict[Key, list[tuple[str, SiteKey]]] = {}  #: by SyncTarget, the oldest Cluster first

    def add(self, target: Key, created: str, site: SiteKey) -> list[SiteKey]:
        """Returns the affected sites: all of that SyncTarget, if its first Cluster changed."""
        users = self._users.setdefault(target, [])
        insort(users, (created, site))
        return self.users(target) if users[0] == (created, site) else [site]

    def remove(self, target: Key, created: str, site: SiteKey) -> list[SiteKey]:
        """Returns the affected sites."""
        users = self._users.get(target, [])
        place = bisect_left(users, (created, site))
        if users[place : place + 1] != [(created, site)]:
            return []
        del users[place]
        if not users:
            del self._users[target]
        return [] if place else self.users(target)

    def users(self, target: Key) -> list[SiteKey]:
        """The Cluster that uses the SyncTarget first, then the others."""
        return [site for _, site in self._users.get(target, ())]

    def share(self, target: Key, site: SiteKey, usage: Callable[[SiteKey], UsageSummary]) -> TargetShare:
        """`usage`: the reservations at a Cluster."""
        first, *others = self.users(target) or [site]
        if first != site:
            return TargetShare(first)
        usages = [usage(other) for other in others]
        return TargetShare(None, sum(one.vcpus for one in usages), sum(one.memory for one in usages))
