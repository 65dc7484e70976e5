"""The global scheduler in a process: its configuration files, and leader election."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from farflung.apis.globalscheduler.names import FILES_ANNOTATION, GLOBALSCHEDULER_GROUP
from farflung.apis.kcp.names import COMPUTE, COMPUTE_EXPORT
from farflung.client.rest import Client
from farflung.controllers.placing_rights.controller import PlacingRights
from farflung.lib.klog import Logger
from farflung.lib.workqueue import WorkQueue
from farflung.machines.controller import NAME, GlobalScheduler, GlobalSchedulerSetting
from farflung.machines.files.configuration import SchedulerConfiguration
from farflung.machines.files.reloader import Reloader
from farflung.runtime.controller import Controller
from farflung.runtime.exports import find_view
from farflung.runtime.informer import Informer, SharedInformers
from farflung.runtime.leader import Candidate, LeaseRef, Precedence, Terms
from farflung.runtime.manager import Manager
from farflung.runtime.recorder import Recorder

if TYPE_CHECKING:
    from prometheus_client.core import Metric

TERMS: Final = Terms(renewal=5.0)  #: an idle hub writes nothing else


@dataclass(frozen=True, slots=True)
class SchedulerClients:
    """Clients and views of the scheduler."""

    provider: Client
    root: Client
    everywhere: Client
    edge: str  #: URL of the view of the edge API
    targets: str  #: URL of the view of SyncTargets
    locations: str  #: URL of the view of Locations
    rights: PlacingRights
    has_workspaces: bool = True  #: otherwise the server has one API, and the clients are the same
    precedence: Precedence = Precedence.FIRST  #: the hub's own scheduler leaves the Lease to one that a user starts

    def through(self, gate: Callable[[Client], Client]) -> SchedulerClients:
        return replace(self, provider=gate(self.provider), root=gate(self.root), everywhere=gate(self.everywhere))


class Elected:
    """A global scheduler that runs only while it holds the Lease: two would bind more machines to a Cluster than fit.
    `make`: creates one with empty caches."""

    def __init__(
        self,
        make: Callable[[], Awaitable[GlobalScheduler]],
        candidate: Candidate,
        files: Reloader,
        waiting: Controller[str],
    ) -> None:
        """`waiting`: the controller whose metrics are served before the scheduler runs."""
        self._make = make
        self._files = files
        self._candidate = candidate
        self._waiting = waiting
        self._scheduler: GlobalScheduler | None = None

    async def run(self) -> None:
        await self._candidate.lead(self._work)

    async def _work(self) -> None:
        self._scheduler = await self._make()
        try:
            with self._files.subscribed(self._configure):
                await self._scheduler.run()
        finally:
            self._scheduler = None

    def _configure(self, configured: SchedulerConfiguration) -> None:
        if self._scheduler is not None:
            self._scheduler.configure(configured.policy, configured.flavors, configured.sites)

    @property
    def controllers(self) -> Sequence[Controller[Any]]:
        return [self._waiting] if self._scheduler is None else self._scheduler.controllers

    @property
    def informers(self) -> Sequence[Informer[Any]]:
        return [] if self._scheduler is None else self._scheduler.informers

    @property
    def synced(self) -> bool:
        """A process that waits for the Lease is ready."""
        return self._candidate.waits if self._scheduler is None else self._scheduler.synced

    def collect(self) -> Iterable[Metric]:
        from prometheus_client.core import GaugeMetricFamily

        waiting = GaugeMetricFamily(
            "farflung_placements_waiting", "Virtual machines and stacks that are not bound.", labels=["state"]
        )
        if self._scheduler is not None:
            for state, number in self._scheduler.state.queue.counts()._asdict().items():
                waiting.add_metric([state], number)
        return [waiting, *(() if self._scheduler is None else self._scheduler.figures.collect())]


def join(
    clients: SchedulerClients,
    files: Reloader,
    identity: str,
    manager: Manager,
    informers: SharedInformers,
    log: Logger,
    *,
    workers: int,
) -> None:
    """`identity`: unique."""
    env, compute = informers.env, clients.root.workspace(COMPUTE)
    notes = lambda: {FILES_ANNOTATION: files.lease_annotation()}  # noqa: E731
    lease = LeaseRef(compute, "default", NAME, notes, clients.precedence)
    candidate = Candidate(lease, identity, env, _now, log, TERMS)
    allowed = clients.through(candidate.guarded)

    async def make() -> GlobalScheduler:
        exports = (COMPUTE_EXPORT, GLOBALSCHEDULER_GROUP) if clients.has_workspaces else ()
        pods, clusters = [(await find_view(compute, name, env, log)).url for name in exports] or ("", "")
        setting = GlobalSchedulerSetting(
            allowed.everywhere,
            allowed.provider,
            allowed.root,
            pods,
            clusters,
            allowed.targets,
            allowed.locations,
            allowed.edge,
            allowed.rights,
            _now,
            files.current.policy,
            files.current.flavors,
            files.current.sites,
        )
        recorder = Recorder(allowed.everywhere, NAME, _now, env.monotonic, lambda: f"{time.time_ns():x}", log)
        return GlobalScheduler(setting, recorder, informers, log, workers=workers)

    waiting: Controller[str] = Controller(
        NAME, _nothing, workers=0, backoff=env.backoff, queue=WorkQueue(env.monotonic), log=log
    )
    elected = Elected(make, candidate, files, waiting)
    manager.adopt(elected)
    manager.show(elected)


async def _nothing(key: str, worker: int) -> float | None:
    return None


def _now() -> datetime:
    return datetime.now(UTC)
