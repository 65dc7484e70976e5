"""Which Clusters are not well, and when what is bound to them leaves.  Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from math import isinf

from farflung.controllers.global_scheduler.cluster_health import (
    HEALTH_TAINTS,
    UNHEALTHY,
    ClusterHealth,
    FailoverOptions,
    find_causes,
    is_eviction_suspended,
)
from farflung.controllers.global_scheduler.inventory import ObservedCluster, ObservedTarget, cause_ages
from farflung.machinery.errors import Obj
from farflung.machinery.times import format_seconds
from farflung.scheduling.values import Site, SiteKey, Toleration

PATIENCE = FailoverOptions()


class Departures:
    def __init__(self, now: datetime) -> None:
        self._now = now
        self._ailments = ClusterHealth(PATIENCE)
        self._unwell: dict[SiteKey, Obj] = {}
        self._number = 0

    def put(self, cluster: ObservedCluster, site: Site, target: ObservedTarget | None) -> None:
        self._number += 1
        if any(True for _ in find_causes(site)):
            ages = cause_ages(cluster, site, target, self._now)
            self._ailments.put(site, self._now.timestamp(), ages)
            self._unwell[site.key] = {"phase": site.health.value, "ails": site.health in HEALTH_TAINTS}
            if UNHEALTHY in ages:
                self._unwell[site.key]["since"] = format_seconds(self._now - timedelta(seconds=ages[UNHEALTHY]))

    def of(self, key: SiteKey, tolerations: Iterable[Toleration]) -> Obj | None:
        """None: it is well, or nobody knows it.  `leaves` is None if somebody with these tolerations stays, and `held`
        says that nothing leaves because too many Clusters are not well."""
        if key not in self._unwell:
            return None
        due = self._ailments.due(key, tolerations)
        held = is_eviction_suspended(len(self._unwell), self._number, PATIENCE)
        return {**self._unwell[key], "leaves": _moment(due), "held": held}


def _moment(seconds: float) -> str | None:
    if isinf(seconds):
        return None
    try:
        return format_seconds(datetime.fromtimestamp(seconds, UTC))
    except (ValueError, OverflowError, OSError):  # somebody tolerates it for longer than there are dates
        return None
