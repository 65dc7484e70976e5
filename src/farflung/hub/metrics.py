"""The metrics of the hub.

Requests are counted in a dict, on the event loop only.  Gauges are measured when a client requests /metrics, and the
Prometheus library is loaded then.  The probe measures the event loop all the time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Final

from farflung.http.flow_control import FlowControl
from farflung.lib.loop_probe import LoopProbe

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric

METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})

Measure = Callable[[], float]


class Metrics:
    def __init__(self) -> None:
        self._requests: dict[tuple[str, int], int] = {}
        self._gauges: dict[str, tuple[str, Measure]] = {}
        self._counters: dict[str, tuple[str, Measure]] = {}
        self.sources: list[Callable[[], Iterator[Metric]]] = []  #: of metrics with labels
        self.probe = LoopProbe()

    def count(self, method: str, code: int) -> None:
        try:
            self._requests[method, code] += 1
        except KeyError:
            known = method if method in METHODS else "other"
            self._requests[known, code] = self._requests.get((known, code), 0) + 1

    def gauge(self, name: str, what: str, measure: Measure) -> None:
        self._gauges[name] = (what, measure)

    def counter(self, name: str, what: str, measure: Measure) -> None:
        """The page shows it with `_total` after its name."""
        self._counters[name] = (what, measure)

    def collect(self) -> Iterator[Metric]:
        """Called by the Prometheus registry."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        requests = CounterMetricFamily("farflung_requests", "Answered requests.", labels=("method", "code"))
        for (method, code), count in self._requests.items():
            requests.add_metric((method, str(code)), count)
        yield requests
        lag = HistogramMetricFamily("farflung_event_loop_lag_seconds", "Delay of timers by turns of the event loop.")
        lag.add_metric((), self.probe.buckets, self.probe.sum)
        yield lag
        what = "Turns of the event loop that took more than 50 ms of CPU time."
        yield CounterMetricFamily("farflung_event_loop_long_turns", what, self.probe.long_turns)
        what = "CPU time of the longest turn since the start."
        yield GaugeMetricFamily("farflung_event_loop_longest_turn_seconds", what, self.probe.longest)
        for name, (what, measure) in self._counters.items():
            yield CounterMetricFamily(name, what, measure())
        for name, (what, measure) in self._gauges.items():
            yield GaugeMetricFamily(name, what, measure())
        for source in self.sources:
            yield from source()

    def render(self) -> tuple[bytes, str]:
        """The page and its content type."""
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


def flow_metrics(control: FlowControl) -> Iterator[Metric]:
    """With the names that API Priority and Fairness has in Kubernetes."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    level, prefix = "priority_level", "apiserver_flowcontrol"
    executing = GaugeMetricFamily(
        "apiserver_current_inflight_requests", "Seats of requests in progress.", labels=("request_kind",)
    )
    executing.add_metric(("readOnly",), control.reading.taken)
    executing.add_metric(("mutating",), control.mutating.taken)
    yield executing
    queued = GaugeMetricFamily(f"{prefix}_current_inqueue_requests", "Requests that wait.", labels=(level,))
    for name, count in control.queued.items():
        queued.add_metric((name,), count)
    yield queued
    dispatched = CounterMetricFamily(
        f"{prefix}_dispatched_requests", "Requests that waited and had their turn.", labels=(level,)
    )
    for name, count in control.dispatched.items():
        dispatched.add_metric((name,), count)
    yield dispatched
    rejected = CounterMetricFamily(
        f"{prefix}_rejected_requests", "Requests refused with 429.", labels=(level, "reason")
    )
    for labels, count in control.rejected.items():
        rejected.add_metric(labels, count)
    yield rejected
