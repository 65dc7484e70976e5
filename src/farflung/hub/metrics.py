"""What /metrics shows.

Requests are counted in a dict: that is one addition, and the loop is the only thread.  Everything else is asked for
when somebody looks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, GCCollector, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST
METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})

Measure = Callable[[], float]


class Metrics:
    def __init__(self) -> None:
        self._requests: dict[tuple[str, int], int] = {}
        self._gauges: dict[str, tuple[str, Measure]] = {}
        self._registry = CollectorRegistry()
        self._registry.register(self)
        ProcessCollector(registry=self._registry)
        GCCollector(registry=self._registry)

    def count(self, method: str, code: int) -> None:
        known = method if method in METHODS else "other"
        self._requests[known, code] = self._requests.get((known, code), 0) + 1

    def gauge(self, name: str, what: str, measure: Measure) -> None:
        self._gauges[name] = (what, measure)

    def collect(self) -> Iterator[Metric]:
        """The registry asks."""
        requests = CounterMetricFamily("farflung_requests", "Answered requests.", labels=("method", "code"))
        for (method, code), count in self._requests.items():
            requests.add_metric((method, str(code)), count)
        yield requests
        for name, (what, measure) in self._gauges.items():
            yield GaugeMetricFamily(name, what, measure())

    def text(self) -> bytes:
        return generate_latest(self._registry)
