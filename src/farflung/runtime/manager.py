"""Run the informers and controllers of a process, with their metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from farflung.lib.klog import Logger
from farflung.runtime.controller import Controller
from farflung.runtime.informer import Informer
from farflung.runtime.rebuilder import Rebuilder

if TYPE_CHECKING:  # an edge has no metrics
    from prometheus_client.core import Metric
    from prometheus_client.registry import Collector


class Independent(Protocol):
    """A group of controllers that starts its informers itself."""

    @property
    def controllers(self) -> Sequence[Controller[Any]]:
        """The first one names the group."""

    @property
    def synced(self) -> bool:
        """Whether all informers have a list."""

    @property
    def informers(self) -> Sequence[Informer[Any]]:
        """Those that run now."""

    async def run(self) -> None:
        """Until cancelled."""


class Manager:
    """Starts informers first, and controllers when all informers have a list: they decide wrongly without one."""

    def __init__(self, log: Logger) -> None:
        self._log = log
        self._informers: list[Informer[Any]] = []
        self._controllers: list[Controller[Any]] = []
        self._independent: list[Independent] = []
        self._shown: list[Collector] = []
        self._running = False
        self._synced_verbosity = 3

    def add(
        self, controller: Controller[Any], informers: Sequence[Informer[Any]], *, synced_verbosity: int = 3
    ) -> None:
        """`synced_verbosity`: verbosity of the log line when the informers have synced."""
        self._synced_verbosity = min(self._synced_verbosity, synced_verbosity)
        self._controllers.append(controller)
        self._informers += [informer for informer in informers if informer not in self._informers]

    def adopt(self, one: Independent) -> None:
        self._independent.append(one)

    def show(self, figures: Collector) -> None:
        """Add metrics."""
        self._shown.append(figures)

    async def run(self) -> None:
        """Until cancelled."""
        self._running = True
        async with asyncio.TaskGroup() as group:
            for one in self._independent:
                group.create_task(one.run(), name=one.controllers[0].name)
            for informer in self._informers:
                group.create_task(informer.run(), name=f"informer of {informer.collection.plural}")
            await asyncio.gather(*(informer.synced.wait() for informer in self._informers))
            if self._informers:
                self._log.info("Informers synced", v=self._synced_verbosity)
            for controller in self._controllers:
                group.create_task(controller.run(), name=controller.name)

    @property
    def synced(self) -> bool:
        """Whether all informers have a list.  False before it runs, because more may be added."""
        listed = all(informer.synced.is_set() for informer in self._informers)
        return self._running and listed and all(one.synced for one in self._independent)

    @property
    def started(self) -> bool:
        """Whether all controllers run, or wait for a Lease."""
        return self.synced and all(controller.started for controller in self.controllers)

    @property
    def idle(self) -> bool:
        """Whether no key is queued or being reconciled."""
        return self.synced and all(controller.queue.idle for controller in self.controllers)

    @property
    def controllers(self) -> list[Controller[Any]]:
        return [*self._controllers, *(controller for one in self._independent for controller in one.controllers)]

    @property
    def informers(self) -> list[Informer[Any]]:
        return [*self._informers, *(informer for one in self._independent for informer in one.informers)]

    @property
    def troubles(self) -> int:
        """Failed lists and watches."""
        return sum(informer.troubles for informer in self.informers)

    @property
    def shown(self) -> list[Metric]:
        return [metric for figures in self._shown for metric in figures.collect()]

    def figures(self) -> Collector:
        return _Figures(self)


class _Figures:
    """Collected when Prometheus scrapes."""

    def __init__(self, manager: Manager) -> None:
        self._manager = manager

    def collect(self) -> list[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        queued = GaugeMetricFamily("farflung_queue_depth", "Keys in the work queue.", labels=["controller"])
        looked = CounterMetricFamily("farflung_reconciles", "Reconciled keys.", labels=["controller", "result"])
        cached = GaugeMetricFamily("farflung_cached_objects", "Objects in caches of informers.", labels=["resource"])
        troubles = CounterMetricFamily("farflung_informer_troubles", "Failures to list or watch.", labels=["resource"])
        engines = CounterMetricFamily(
            "farflung_engine_failures", "Failed calls of engines, which are then rebuilt.", labels=["controller"]
        )
        for controller in self._manager.controllers:
            queued.add_metric([controller.name], len(controller.queue))
            looked.add_metric([controller.name, "success"], controller.tally.successes)
            looked.add_metric([controller.name, "failure"], controller.tally.failures)
            if isinstance(controller, Rebuilder):
                engines.add_metric([controller.name], controller.failed_calls)
        by_resource: dict[str, list[Informer[Any]]] = {}
        for informer in self._manager.informers:
            plural, _, _ = informer.collection.plural.partition(":")  # where the identity of an export begins
            by_resource.setdefault(plural, []).append(informer)
        for plural, alike in sorted(by_resource.items()):
            cached.add_metric([plural], sum(len(informer.cache) for informer in alike))
            troubles.add_metric([plural], sum(informer.troubles for informer in alike))
        return [queued, looked, engines, cached, troubles, *self._manager.shown]
