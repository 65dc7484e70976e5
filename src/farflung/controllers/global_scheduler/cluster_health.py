"""Why a site is unhealthy, and since when.  Each taint and the health count separately, because machines may tolerate
them for different times.  Pure: `now` is an argument, in monotonic seconds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import inf
from typing import Final, NamedTuple

from farflung.scheduling.values import Health, Site, SiteKey, Taint, Toleration

NOT_READY: Final = "node.kubernetes.io/not-ready"
UNREACHABLE: Final = "node.kubernetes.io/unreachable"
NO_EXECUTE: Final = "NoExecute"
HEALTH_TAINTS: Final = {Health.OFFLINE: NOT_READY, Health.DOWN: NOT_READY, Health.UNREACHABLE: UNREACHABLE}


@dataclass(frozen=True, slots=True)
class FailoverOptions:
    """When machines are evicted from an unhealthy Cluster, and how fast."""

    tolerated: float = 300.0  #: seconds, of machines without a toleration
    vanished: float = 5.0  #: seconds after the deletion of a Cluster, which may be created again
    refused: float = 30.0  #: seconds for which a Cluster may refuse a machine, whose cause may be temporary
    per_second: float = 10.0  #: evictions
    share: float = 0.1  #: of all machines evicted per second, if that is more
    held_above: float = 0.5  #: evictions stop while more than this share of all Clusters is unhealthy


class EvictionBudget:
    """A token bucket of evictions."""

    def __init__(self, failover: FailoverOptions) -> None:
        self._failover = failover
        self._left = failover.per_second
        self._at: float | None = None

    def refill(self, now: float, stacks: int) -> None:
        """`stacks`: the number of all machines."""
        rate = max(self._failover.per_second, self._failover.share * stacks)
        passed = 0.0 if self._at is None else now - self._at
        self._left = min(max(rate, 1.0), self._left + rate * passed)
        self._at = now

    def take(self) -> bool:
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True


def toleration_seconds(taint: Taint, tolerations: tuple[Toleration, ...], otherwise: float) -> float:
    """Seconds for which a machine stays at a site with this taint.  `otherwise`: without a matching toleration."""
    found = [inf if one.seconds is None else max(0.0, one.seconds) for one in tolerations if _tolerates(one, taint)]
    return min(found, default=otherwise)


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect not in ("", taint.effect):
        return False
    if toleration.operator == "Exists":
        return toleration.key in ("", taint.key)
    return toleration.key == taint.key and toleration.value == taint.value


def is_eviction_suspended(unhealthy: int, sites: int, failover: FailoverOptions) -> bool:
    """Whether so many sites are unhealthy that the fault is probably the scheduler's own connection."""
    return unhealthy > sites * failover.held_above


class HealthCause(NamedTuple):
    """A taint without its time, or one of the constants below."""

    key: str
    value: str = ""


UNHEALTHY: Final = HealthCause("")  #: the exact health does not matter
DELETED: Final = HealthCause("", "gone")  #: the Cluster does not exist


def find_causes(site: Site) -> Iterator[tuple[HealthCause, Taint]]:
    """Causes of eviction, each as the taint that tolerations are compared with."""
    if site.health in HEALTH_TAINTS:
        yield UNHEALTHY, Taint(HEALTH_TAINTS[site.health], "", NO_EXECUTE)
    for taint in site.taints:
        if taint.effect == NO_EXECUTE:
            yield HealthCause(taint.key, taint.value), taint


class ClusterHealth:
    def __init__(self, failover: FailoverOptions) -> None:
        self._failover = failover
        self._since: dict[SiteKey, dict[HealthCause, float]] = {}
        self._taints: dict[SiteKey, dict[HealthCause, Taint]] = {}

    def __contains__(self, key: SiteKey) -> bool:
        return key in self._since

    def __iter__(self) -> Iterator[SiteKey]:
        return iter(self._since)

    def put(self, site: Site, now: float, ages: Mapping[HealthCause, float]) -> None:
        """`ages`: for how long each cause has existed.  A known time takes precedence, because clocks may change."""
        taints = dict(find_causes(site))
        if not taints:
            self.forget(site.key)
            return
        known = self._since.get(site.key, {})
        self._since[site.key] = {
            cause: known[cause] if cause in known else now - max(0.0, ages.get(cause, 0.0)) for cause in taints
        }
        self._taints[site.key] = taints

    def lose(self, key: SiteKey, now: float) -> None:
        """The site does not exist."""
        if DELETED not in self._since.get(key, {}):
            self._since[key] = {DELETED: now}
            self._taints.pop(key, None)

    def forget(self, key: SiteKey) -> None:
        self._since.pop(key, None)
        self._taints.pop(key, None)

    def due(self, key: SiteKey, tolerations: Iterable[Toleration]) -> float:
        """When a machine with these tolerations is evicted."""
        since, known = self._since.get(key, {}), tuple(tolerations)
        if DELETED in since:
            return since[DELETED] + self._failover.vanished
        found = self._taints.get(key, {})
        return min((since[cause] + self._grace(cause, taint, known) for cause, taint in found.items()), default=inf)

    def _grace(self, cause: HealthCause, taint: Taint, tolerations: tuple[Toleration, ...]) -> float:
        return toleration_seconds(taint, tolerations, self._failover.tolerated if cause == UNHEALTHY else 0.0)
