"""Metrics of a syncer.  Only a process that serves them imports this file, and Prometheus' client with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from farflung.placement.names import ObjectRef
from farflung.runtime.controller import Controller
from farflung.syncer.status import StatusComposer


@dataclass(frozen=True, slots=True, eq=False)  # registries of collectors need hashable ones
class SyncerMetrics(Collector):
    """Computed when Prometheus scrapes."""

    summary: StatusComposer
    controllers: Sequence[Controller[ObjectRef]]

    def collect(self) -> list[Metric]:
        summary, written = self.summary, self.summary.downsync.writes
        writes = CounterMetricFamily("farflung_syncer_writes", "Writes that were done.", labels=["what"])
        for what, number in (("apply", written.applied), ("delete", written.deleted), ("status", written.statuses)):
            writes.add_metric([what], number)
        drift = CounterMetricFamily("farflung_syncer_drift_corrected", "Changes at the edge that were undone.")
        drift.add_metric([], written.drift)
        objects = GaugeMetricFamily("farflung_syncer_objects", "Objects that are synced.", labels=["state"])
        for state, number in summary.counts().items():
            objects.add_metric([state], number)
        problems = GaugeMetricFamily("farflung_syncer_problems", "Objects that fail.", labels=["direction", "reason"])
        for (direction, reason), number in sorted(summary.problems.count_by_reason().items()):
            problems.add_metric([direction, reason], number)
        queued = GaugeMetricFamily("farflung_queue_depth", "Keys that wait.", labels=["controller"])
        reconciles = CounterMetricFamily("farflung_reconciles", "Keys looked at.", labels=["controller", "result"])
        for controller in self.controllers:
            queued.add_metric([controller.name], len(controller.queue))
            reconciles.add_metric([controller.name, "success"], controller.tally.successes)
            reconciles.add_metric([controller.name, "failure"], controller.tally.failures)
        return [writes, drift, objects, problems, queued, reconciles]
