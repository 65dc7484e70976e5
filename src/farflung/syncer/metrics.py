"""What a syncer did and has, for Prometheus."""

from __future__ import annotations

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from farflung.syncer.syncer import Syncer


class SyncerMetrics(Collector):
    """Read when somebody asks."""

    def __init__(self, syncer: Syncer) -> None:
        self._syncer = syncer

    def collect(self) -> list[Metric]:
        syncer, tally = self._syncer, self._syncer.downsync.tally
        done = CounterMetricFamily("farflung_syncer_writes", "Writes that were done.", labels=["what"])
        for what, number in (("apply", tally.applied), ("delete", tally.deleted), ("status", tally.statuses)):
            done.add_metric([what], number)
        drift = CounterMetricFamily("farflung_syncer_drift_corrected", "Changes at the edge that were undone.")
        drift.add_metric([], tally.drift)
        objects = GaugeMetricFamily("farflung_syncer_objects", "Objects that are synced.", labels=["state"])
        for state, number in syncer.summary.counts().items():
            objects.add_metric([state], number)
        problems = GaugeMetricFamily("farflung_syncer_problems", "Objects that fail.", labels=["direction", "reason"])
        for (direction, reason), number in sorted(syncer.troubles.counted().items()):
            problems.add_metric([direction, reason], number)
        queued = GaugeMetricFamily("farflung_queue_depth", "Keys that wait.", labels=["controller"])
        looked = CounterMetricFamily("farflung_reconciles", "Keys looked at.", labels=["controller", "result"])
        for controller in syncer.controllers:
            queued.add_metric([controller.name], len(controller.queue))
            looked.add_metric([controller.name, "success"], controller.tally.successes)
            looked.add_metric([controller.name, "failure"], controller.tally.failures)
        return [done, drift, objects, problems, queued, looked]
