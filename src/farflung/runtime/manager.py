"""Everything that runs in a process of controllers, and what it shows of itself."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from farflung.lib.klog import Logger
from farflung.runtime.controller import Controller
from farflung.runtime.informer import Informer
from farflung.runtime.rebuilder import Rebuilder

if TYPE_CHECKING:  # an edge shows no metrics
    from prometheus_client.core import Metric
    from prometheus_client.registry import Collector


class Independent(Protocol):
    """Something that finds out by itself what it has to hear of, and when it may begin."""

    @property
    def controllers(self) -> Sequence[Controller[Any]]:
        """The first one is what it is called by."""

    @property
    def synced(self) -> bool:
        """There was a whole list of everything."""

    @property
    def informers(self) -> Sequence[Informer[Any]]:
        """Those of now."""

    async def run(self) -> None:
        """Until cancelled."""


class Manager:
    """Informers first; controllers when each of them has a whole list: half a world leads to wrong decisions."""

    def __init__(self, log: Logger) -> None:
        self._log = log
        self._informers: list[Informer[Any]] = []
        self._controllers: list[Controller[Any]] = []
        self._independent: list[Independent] = []
        self._shown: list[Collector] = []
        self._running = False
        self._told_from = 3

    def add(self, controller: Controller[Any], informers: Sequence[Informer[Any]], *, told_from: int = 3) -> None:
        """`told_from`: the verbosity from which on the log says that the informers are ready."""
        self._told_from = min(self._told_from, told_from)
        self._controllers.append(controller)
        self._informers += [informer for informer in informers if informer not in self._informers]

    def adopt(self, one: Independent) -> None:
        self._independent.append(one)

    def show(self, figures: Collector) -> None:
        """Something has figures of its own."""
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
                self._log.info("Informers synced", v=self._told_from)
            for controller in self._controllers:
                group.create_task(controller.run(), name=controller.name)

    @property
    def synced(self) -> bool:
        """There is a whole list of everything.  Not before it runs, as more may be added until then."""
        listed = all(informer.synced.is_set() for informer in self._informers)
        return self._running and listed and all(one.synced for one in self._independent)

    @property
    def idle(self) -> bool:
        """Nothing is to be done now, as far as is known."""
        return self.synced and all(controller.queue.idle for controller in self.controllers)

    @property
    def controllers(self) -> list[Controller[Any]]:
        return [*self._controllers, *(controller for one in self._independent for controller in one.controllers)]

    @property
    def informers(self) -> list[Informer[Any]]:
        return [*self._informers, *(informer for one in self._independent for informer in one.informers)]

    @property
    def troubles(self) -> int:
        """How often informers failed to list or watch."""
        return sum(informer.troubles for informer in self.informers)

    @property
    def shown(self) -> list[Metric]:
        return [metric for figures in self._shown for metric in figures.collect()]

    def figures(self) -> Collector:
        """For a registry of Prometheus."""
        return _Figures(self)


class _Figures:
    """Read when somebody asks."""

    def __init__(self, manager: Manager) -> None:
        self._manager = manager

    def collect(self) -> list[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        queued = GaugeMetricFamily("farflung_queue_depth", "Keys that wait.", labels=["controller"])
        looked = CounterMetricFamily("farflung_reconciles", "Keys looked at.", labels=["controller", "result"])
        cached = GaugeMetricFamily("farflung_cached_objects", "Objects that are known.", labels=["resource"])
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
