"""Prometheus metrics of decisions and bindings."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:  # commands that read what the scheduler does show no metrics
    from prometheus_client.core import Metric

RESULTS: Final = ("bound", "refused", "failed")
STAGES: Final = ("waiting", "deciding", "binding", "total")
SECONDS: Final = (0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0, 300.0)
WHOLE: Final = frozenset({"out of vcpus", "out of memory", "out of public addresses"})
NAMING: Final = re.compile(r"(no flavor|no storage type|out of spot|out of|dearer than|taint) .*", re.DOTALL)
OTHERWISE: Final = "other"


class SchedulerMetrics:
    def __init__(self) -> None:
        from prometheus_client import Histogram

        self._results: Counter[str] = Counter()
        self._refusals: Counter[str] = Counter()
        self._seconds = Histogram(
            "farflung_placement_seconds",
            "How long virtual machines and stacks took to get their places.",
            ["stage"],
            buckets=SECONDS,
            registry=None,
        )
        self._waiting, self._deciding, self._binding, self._total = map(self._seconds.labels, STAGES)

    def decided(self, seconds: float) -> None:
        self._deciding.observe(seconds)

    def refused(self, reasons: Mapping[str, int]) -> None:
        """`reasons`: refusal → number of sites."""
        self._results["refused"] += 1
        self._refusals[most_frequent_reason(reasons)] += 1

    def waited(self, seconds: float) -> None:
        """Until the decision that placed it."""
        self._waiting.observe(seconds)

    def bound(self, binding: float, total: float) -> None:
        self._results["bound"] += 1
        self._binding.observe(binding)
        self._total.observe(total)

    def failed(self) -> None:
        self._results["failed"] += 1

    def collect(self) -> Iterable[Metric]:
        from prometheus_client.core import CounterMetricFamily

        decisions = CounterMetricFamily(
            "farflung_placements", "Virtual machines and stacks that were decided about.", labels=["result"]
        )
        for result in RESULTS:
            decisions.add_metric([result], self._results[result])
        refusals = CounterMetricFamily(
            "farflung_placement_refusals", "Decisions that found no place, by what most sites lack.", labels=["reason"]
        )
        for reason, number in sorted(self._refusals.items()):
            refusals.add_metric([reason], number)
        return [decisions, refusals, *self._seconds.collect()]


def most_frequent_reason(reasons: Mapping[str, int]) -> str:
    """Without names of flavors and taints, whose number is unbounded."""
    sorts: Counter[str] = Counter()
    for reason, number in reasons.items():
        sorts[_without_names(reason)] += number
    return min(sorts, key=lambda sort: (-sorts[sort], sort), default=OTHERWISE)


def _without_names(reason: str) -> str:
    named = None if reason in WHOLE else NAMING.fullmatch(reason)
    return reason if named is None else named[1]
