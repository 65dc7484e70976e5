"""What is wrong with which site, and since when: each of its taints and its health by itself, because who is there may
tolerate one of them for longer than another.  Pure: `now` is an argument, in monotonic seconds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import inf
from typing import Final, NamedTuple

from farflung.controllers.global_scheduler.failover import AILMENTS, NO_EXECUTE, Patience, tolerated
from farflung.scheduling.values import Site, SiteKey, Taint, Toleration


class Cause(NamedTuple):
    """A taint without its time; or one of those below."""

    key: str
    value: str = ""


HEALTH: Final = Cause("")  #: it does not matter what exactly its health is, as long as that is not good
GONE: Final = Cause("", "gone")  #: there is no such site


def causes(site: Site) -> Iterator[tuple[Cause, Taint]]:
    """Why who is there has to leave some day, and as which taint that counts."""
    if site.health in AILMENTS:
        yield HEALTH, Taint(AILMENTS[site.health], "", NO_EXECUTE)
    for taint in site.taints:
        if taint.effect == NO_EXECUTE:
            yield Cause(taint.key, taint.value), taint


class Ailments:
    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._since: dict[SiteKey, dict[Cause, float]] = {}
        self._taints: dict[SiteKey, dict[Cause, Taint]] = {}

    def __contains__(self, key: SiteKey) -> bool:
        return key in self._since

    def __iter__(self) -> Iterator[SiteKey]:
        return iter(self._since)

    def put(self, site: Site, now: float, ages: Mapping[Cause, float]) -> None:
        """`ages`: for how long something has been so already; what was known before counts for more, as a clock may
        have been set since."""
        taints = dict(causes(site))
        if not taints:
            self.forget(site.key)
            return
        known = self._since.get(site.key, {})
        self._since[site.key] = {
            cause: known[cause] if cause in known else now - max(0.0, ages.get(cause, 0.0)) for cause in taints
        }
        self._taints[site.key] = taints

    def lose(self, key: SiteKey, now: float) -> None:
        """It is not there, since now or since somebody first said so."""
        if GONE not in self._since.get(key, {}):
            self._since[key] = {GONE: now}
            self._taints.pop(key, None)

    def forget(self, key: SiteKey) -> None:
        self._since.pop(key, None)
        self._taints.pop(key, None)

    def due(self, key: SiteKey, tolerations: Iterable[Toleration]) -> float:
        """When a stack with these tolerations has to leave."""
        since, known = self._since.get(key, {}), tuple(tolerations)
        if GONE in since:
            return since[GONE] + self._patience.vanished
        found = self._taints.get(key, {})
        return min((since[cause] + self._grace(cause, taint, known) for cause, taint in found.items()), default=inf)

    def _grace(self, cause: Cause, taint: Taint, tolerations: tuple[Toleration, ...]) -> float:
        return tolerated(taint, tolerations, self._patience.tolerated if cause == HEALTH else 0.0)
