"""Which machines are at which sites, by their names and by their workspaces.  Pure.

Machines of several workspaces that have the same namespace and name would be one at a SyncTarget, and each would have
what the other one asks for.  So only one of them is brought there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import TypeVar

from farflung.runtime.cache import Key
from farflung.scheduling.values import SiteKey

K = TypeVar("K", bound=Hashable)
M = TypeVar("M", bound=Hashable)


class Whereabouts:
    def __init__(self) -> None:
        self._target: dict[SiteKey, Hashable] = {}
        self._sites: dict[Hashable, set[SiteKey]] = {}  #: several may be one SyncTarget
        self._there: dict[tuple[str, str], Counter[tuple[Key, SiteKey]]] = {}  #: by namespace and name
        self._workspaces: dict[SiteKey, Counter[str]] = {}

    def lead(self, site: SiteKey, target: Hashable | None) -> bool:
        """What is bound to a site is brought to a SyncTarget; None: nowhere.  Whether that was otherwise before."""
        before = self._target.pop(site, None)
        if before is not None:
            self._sites[before].discard(site)
            if not self._sites[before]:
                del self._sites[before]
        if target is not None:
            self._target[site] = target
            self._sites.setdefault(target, set()).add(site)
        return before != target

    def is_led(self, site: SiteKey) -> bool:
        return site in self._target

    def come(self, machine: Key, site: SiteKey) -> None:
        self._there.setdefault((machine.namespace, machine.name), Counter())[machine, site] += 1
        self._workspaces.setdefault(site, Counter())[machine.cluster] += 1

    def go(self, machine: Key, site: SiteKey) -> None:
        _take(self._there, (machine.namespace, machine.name), (machine, site))
        _take(self._workspaces, site, machine.cluster)

    def workspaces(self, site: SiteKey) -> set[str]:
        """Logical clusters that have machines there."""
        return set(self._workspaces.get(site, ()))

    def taken(self, machine: Key) -> set[SiteKey]:
        """Sites that are brought to where there is another one of that name."""
        there = self._there.get((machine.namespace, machine.name), ())
        targets = {self._target[site] for other, site in there if other != machine and site in self._target}
        return set().union(*(self._sites[target] for target in targets))

    def together(self, machine: Key, site: SiteKey) -> list[Key]:
        """All that have its name and are brought to where it is brought to from there, with itself."""
        there, target = self._there.get((machine.namespace, machine.name), ()), self._target.get(site)
        found = {other for other, where in there if target is not None and self._target.get(where) == target}
        return sorted(found)


def _take(counters: dict[K, Counter[M]], key: K, member: M) -> None:
    counter = counters[key]
    counter[member] -= 1
    if not counter[member]:
        del counter[member]
    if not counter:
        del counters[key]
