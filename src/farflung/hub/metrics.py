"""What /metrics shows.

Requests are counted in a dict: that is one addition, and the loop is the only thread.  Everything else is measured when
a client reads the page, and the library that writes it is loaded then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric

METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})

Measure = Callable[[], float]


class Metrics:
    def __init__(self) -> None:
        self._requests: dict[tuple[str, int], int] = {}
        self._gauges: dict[str, tuple[str, Measure]] = {}

    def count(self, method: str, code: int) -> None:
        known = method if method in METHODS else "other"
        self._requests[known, code] = self._requests.get((known, code), 0) + 1

    def gauge(self, name: str, what: str, measure: Measure) -> None:
        self._gauges[name] = (what, measure)

    def collect(self) -> Iterator[Metric]:
        """The registry asks."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        requests = CounterMetricFamily("farflung_requests", "Answered requests.", labels=("method", "code"))
        for (method, code), count in self._requests.items():
            requests.add_metric((method, str(code)), count)
        yield requests
        for name, (what, measure) in self._gauges.items():
            yield GaugeMetricFamily(name, what, measure())

    def render(self) -> tuple[bytes, str]:
        """The text and its content type."""
        from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

        return generate_latest(self._registry), CONTENT_TYPE_LATEST

    @cached_property
    def _registry(self) -> CollectorRegistry:
        from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector

        registry = CollectorRegistry()
        registry.register(self)
        ProcessCollector(registry=registry)
        GCCollector(registry=registry)
        return registry
