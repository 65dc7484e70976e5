"""Reloads the files of the global scheduler when they change."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, TypeAlias

import orjson

from farflung.lib.klog import Logger
from farflung.machinery import times
from farflung.machines.files.configuration import FileCopy, LoadedConfiguration, SchedulerConfiguration
from farflung.machines.files.scheduler_files import SchedulerFiles, SchedulerFilesError, Versions

if TYPE_CHECKING:
    from prometheus_client.core import Metric

EVERY: Final = 2.0  #: seconds between two checks
MAX_CHANGING_CHECKS: Final = 5  #: checks with a change each, after which changing files are read anyway
RESULTS: Final = ("success", "failure")
MAX_PROBLEM: Final = 1000  #: characters of a problem
NO_COPY: Final = FileCopy()

Listener: TypeAlias = Callable[[SchedulerConfiguration], None]


class Reloader:
    """Passes valid configurations to listeners.  While the files are invalid, the last valid configuration stays.
    Changing files are read when they have settled, because editors and copies write several files one after the
    other."""

    def __init__(
        self,
        files: SchedulerFiles,
        reading: LoadedConfiguration,
        log: Logger,
        kept: FileCopy = NO_COPY,
    ) -> None:
        """`reading`: the first configuration; `kept`: stores valid files."""
        self.current = reading.configured
        self.problem = ""  #: of the current files
        self._when = reading.when  #: when the current configuration was read
        self._since = reading.when  #: when the problem began
        self._files = files
        self._first = reading.configured
        self._log = log
        self._kept = kept
        self._requested = asyncio.Event()
        self._listeners: list[Listener] = []
        self._changing: Versions = {}  #: last observed versions, if they differ from those read
        self._checks = 0  #: checks since the first change
        self._results: Counter[str] = Counter()
        if reading.problem:
            self._report_problem(reading.problem)

    def reload(self) -> None:
        """Read now."""
        self._requested.set()

    @contextmanager
    def subscribed(self, listener: Listener) -> Iterator[None]:
        """Until the block ends."""
        self._listeners.append(listener)
        try:
            yield
        finally:
            self._listeners.remove(listener)

    async def run(self) -> None:
        """Runs until cancelled; returns at once without files."""
        if self._files and not self.problem:
            await self._keep()
        while self._files:
            try:
                async with asyncio.timeout(EVERY):
                    await self._requested.wait()
            except TimeoutError:
                pass
            requested = self._requested.is_set()
            self._requested.clear()
            match await asyncio.to_thread(self._read, requested=requested):
                case SchedulerConfiguration() as configured:
                    self._accept(configured)
                    await self._keep()
                case str() as problem:
                    self._report_problem(problem)

    async def _keep(self) -> None:
        try:
            await asyncio.to_thread(self._kept.keep, self._files, self._when)
        except (OSError, UnicodeEncodeError) as error:
            self._log.error(
                error, "cannot store a copy of the files for a restart while they are invalid", file=self._kept.path
            )

    # --- reads ----------------------------------------------------------------------------------------

    def _is_due(self, *, requested: bool) -> bool:
        """Invalid files are read each time: the cause may be outside of them."""
        now = self._files.versions()
        if requested or (now == self._files.read_versions and self.problem):
            return True
        if now == self._files.read_versions:
            self._changing, self._checks = {}, 0
            return False
        resting, self._changing = now == self._changing, now
        self._checks += 1
        return resting or self._checks > MAX_CHANGING_CHECKS

    def _read(self, *, requested: bool) -> SchedulerConfiguration | str | None:
        """The configuration or the problem; None: no change, or the files changed while they were read."""
        if not self._is_due(requested=requested):
            return None
        found: SchedulerConfiguration | str
        try:
            found = self._files.read()
        except SchedulerFilesError as error:
            found = str(error)
        except Exception as error:  # a bug in a reader must not stop the scheduler
            found = f"the files cannot be read: {error!r}"
        if self._files.versions() != self._files.read_versions and self._checks <= MAX_CHANGING_CHECKS:
            return None
        self._changing, self._checks = {}, 0
        return found

    def _report_problem(self, problem: str) -> None:
        if problem != self.problem:
            if not self.problem:
                now = datetime.now(UTC)
                self._since = self._files.changed_between(self._when, now) or now
            self.problem = problem
            self._results["failure"] += 1
            self._log.error(None, "the files are invalid; the last valid configuration stays", reason=problem)

    def _accept(self, configured: SchedulerConfiguration) -> None:
        text = "the files are valid again" if self.problem else "reloaded the files"
        flavors = {flavor.id for flavor in configured.flavors.values()}  # some are also listed by name
        self._log.info(text, sites=len(configured.sites), flavors=len(flavors))
        self._results["success"] += 1
        self.problem = ""
        self._when = datetime.now(UTC)
        if configured == self.current:
            return
        if (configured.kubeconfig, configured.master) != (self._first.kubeconfig, self._first.master):
            self._log.warning("a changed kubeconfig or master takes effect after a restart")
        self.current = configured
        for listener in list(self._listeners):
            listener(configured)

    # --- reports --------------------------------------------------------------------------------------

    def notes(self) -> list[str]:
        """For /readyz."""
        return [f"configuration: {self.problem}"] if self.problem else []

    def lease_annotation(self) -> str:
        """For the Lease: the files, their number of sites, when they were valid, and their problem.  Empty: no
        files."""
        if not self._files:
            return ""
        options, problem = list(map(_text, self._files.options())), _text(self.problem)[:MAX_PROBLEM]
        wrong = {"problem": problem, "since": times.format_seconds(self._since)} if problem else {}
        when = times.format_seconds(self._when)
        return orjson.dumps({"options": options, "sites": len(self.current.sites), "when": when, **wrong}).decode()

    def collect(self) -> Iterable[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        good = GaugeMetricFamily(
            "farflung_configuration_last_reload_successful", "Whether the current files are valid."
        )
        reloads = CounterMetricFamily("farflung_configuration_reloads", "Reloads of changed files.", labels=["result"])
        if self._files:
            good.add_metric([], 0.0 if self.problem else 1.0)
            for result in RESULTS:
                reloads.add_metric([result], self._results[result])
        return [good, reloads]


def _text(path: str) -> str:
    """Paths may contain bytes that are no text."""
    return path.encode(errors="backslashreplace").decode()
