"""The global scheduler in a process: what a directory of files tells it, and that no other works at the same time."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from farflung.client.kubeconfig import KubeconfigError, server_url
from farflung.client.rest import Client
from farflung.controllers.global_scheduler.controller import NAME, GlobalScheduler, Setting
from farflung.informer.informer import Informer
from farflung.informer.reflector import Surroundings
from farflung.lib.klog import Logger
from farflung.runtime.controller import Controller
from farflung.runtime.exports import find_view
from farflung.runtime.leader import Candidate, Terms
from farflung.runtime.manager import Manager
from farflung.runtime.recorder import Recorder
from farflung.scheduling.catalogue import CatalogueError
from farflung.scheduling.era import CONF, FILES, Base, read_base
from farflung.scheduling.policy import Policy, PolicyError, default_policy, read_policy
from farflung.scheduling.values import Flavor, Site

TERMS: Final = Terms(renewal=5.0)  #: a hub at rest writes nothing else
COMPUTE: Final = "root:compute"  #: the workspace that exports what the scheduler looks at
PODS: Final = "kubernetes"
CLUSTERS: Final = "globalscheduler.com"
RESULTS: Final = ("bound", "refused", "failed")


class ConfigurationError(ValueError):
    """A sentence that says what to mend, and where."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """What files say; nothing is needed."""

    policy: Policy = field(default_factory=default_policy)
    flavors: Mapping[str, Flavor] = field(default_factory=dict)
    sites: tuple[Site, ...] = ()  #: beside the Clusters of the API
    kubeconfig: str = ""
    master: str = ""  #: the address of the server, if not that of the kubeconfig


def configuration(directory: str, policy_file: str) -> Configuration:
    """`policy_file` counts instead of the one that the directory names.  Raises ConfigurationError."""
    found = Configuration()
    if directory:
        base = _base(Path(directory))
        policy_file = policy_file or str(Path(directory) / base.settings.policy_file)
        told = base.settings.kubeconfig
        kubeconfig = str(Path(directory) / Path(told).expanduser()) if told else ""
        if base.settings.master:
            _check_server(base.settings.master, Path(directory) / CONF)
        found = Configuration(
            flavors=base.flavors, sites=base.sites, kubeconfig=kubeconfig, master=base.settings.master
        )
        fake = base.settings.spot_fake
    else:
        fake = False
    policy = _policy(Path(policy_file)) if policy_file else found.policy
    return replace(found, policy=replace(policy, spot_fake=fake))


def _check_server(master: str, path: Path) -> None:
    try:
        server_url(master, secured=True)
    except KubeconfigError as error:
        raise ConfigurationError(f"{path}: master: {error}") from None


def has_configuration(directory: str) -> bool:
    """Whether somebody who named this directory meant us."""
    return bool(directory) and (Path(directory) / CONF).is_file()


def _base(directory: Path) -> Base:
    texts = {name: _read(directory / name) for name in FILES if (directory / name).exists()}
    if CONF not in texts:
        raise ConfigurationError(f"there is no {directory / CONF}")
    try:
        return read_base(texts)
    except CatalogueError as error:
        raise ConfigurationError(f"{directory}: {str(error).rstrip('.')}") from None


def _policy(path: Path) -> Policy:
    try:
        return read_policy(_read(path))
    except PolicyError as error:
        raise ConfigurationError(f"{path}: {str(error).rstrip('.')}") from None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = (error.strerror or str(error)).lower() if isinstance(error, OSError) else "is not text"
        raise ConfigurationError(f"cannot read {path}: {why}") from None


# --- running --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ways:
    """To what the scheduler needs."""

    provider: Client
    root: Client
    everywhere: Client
    edge: str  #: the URL of the view of the edge API
    targets: str  #: of the one that shows SyncTargets

    def through(self, gate: Callable[[Client], Client]) -> Ways:
        return replace(self, provider=gate(self.provider), root=gate(self.root), everywhere=gate(self.everywhere))


class Elected(Collector):
    """A global scheduler that works only while no other process has one that does: two that do not know of each other
    would bind more to a cluster than it has.  `make`: one that knows nothing yet, as soon as it can."""

    def __init__(
        self,
        make: Callable[[], Awaitable[GlobalScheduler]],
        candidate: Candidate,
        waiting: Controller[str],
    ) -> None:
        """`waiting`: what is shown before there is something else."""
        self._make = make
        self._candidate = candidate
        self._waiting = waiting
        self._scheduler: GlobalScheduler | None = None

    async def run(self) -> None:
        await self._candidate.lead(self._work)

    async def _work(self) -> None:
        self._scheduler = await self._make()
        try:
            await self._scheduler.run()
        finally:
            self._scheduler = None

    @property
    def controllers(self) -> Sequence[Controller[Any]]:
        return [self._waiting] if self._scheduler is None else self._scheduler.controllers

    @property
    def informers(self) -> Sequence[Informer[Any]]:
        return [] if self._scheduler is None else self._scheduler.informers

    @property
    def synced(self) -> bool:
        """Who waits is ready to."""
        return self._scheduler is None or self._scheduler.synced

    def collect(self) -> Iterable[Metric]:
        decisions = CounterMetricFamily(
            "farflung_placements", "Virtual machines and stacks that were decided about.", labels=["result"]
        )
        waiting = GaugeMetricFamily(
            "farflung_placements_waiting", "Virtual machines and stacks that have no place.", labels=["state"]
        )
        if self._scheduler is not None:
            for result in RESULTS:
                decisions.add_metric([result], self._scheduler.results[result])
            for state, number in self._scheduler.world.queue.counts()._asdict().items():
                waiting.add_metric([state], number)
        return [decisions, waiting]


def join(
    ways: Ways, configured: Configuration, manager: Manager, outside: Surroundings, log: Logger, *, workers: int
) -> None:
    compute = ways.root.workspace(COMPUTE)
    identity = f"{socket.gethostname()}_{os.getpid()}_{os.urandom(4).hex()}"
    candidate = Candidate(compute, "default", NAME, identity, outside, _now, log, TERMS)
    allowed = ways.through(candidate.guarded)

    async def make() -> GlobalScheduler:
        pods, clusters = [(await find_view(compute, name, outside, log)).url for name in (PODS, CLUSTERS)]
        setting = Setting(
            allowed.everywhere,
            allowed.provider,
            allowed.root,
            pods,
            clusters,
            allowed.targets,
            allowed.edge,
            _now,
            configured.policy,
            configured.flavors,
            configured.sites,
        )
        recorder = Recorder(allowed.everywhere, NAME, _now, outside.monotonic, lambda: f"{time.time_ns():x}", log)
        return GlobalScheduler(setting, recorder, outside, log, workers=workers)

    waiting: Controller[str] = Controller(
        NAME, _nothing, workers=0, backoff=outside.backoff, monotonic=outside.monotonic, log=log
    )
    elected = Elected(make, candidate, waiting)
    manager.adopt(elected)
    manager.show(elected)


async def _nothing(key: str, worker: int) -> float | None:
    return None


def _now() -> datetime:
    return datetime.now(UTC)
