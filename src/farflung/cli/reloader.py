"""Files that are read again when they change, while somebody works by what they say."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, TypeAlias

import orjson

from farflung.cli.scheduler_configuration import Configuration, KeptFiles, Reading
from farflung.cli.scheduler_files import ConfigurationError, Files, Versions
from farflung.lib.klog import Logger
from farflung.machinery import times

if TYPE_CHECKING:
    from prometheus_client.core import Metric

EVERY: Final = 2.0  #: seconds between two looks
RESTLESS: Final = 5  #: looks that find something else each time, after which files are read although they change
RESULTS: Final = ("success", "failure")
LONGEST: Final = 1000  #: letters of what is said to be wrong
NOWHERE: Final = KeptFiles()

Listener: TypeAlias = Callable[[Configuration], None]


class Reloading:
    """Who listens is told of what makes sense, and of nothing else: until wrong files are mended, what they said before
    counts.  Files that change are left alone until they rest, because editors and copies write one after the other, and
    the beginning of a file may make sense."""

    def __init__(
        self,
        files: Files,
        reading: Reading,
        log: Logger,
        kept: KeptFiles = NOWHERE,
    ) -> None:
        """`reading`: what is known of them; `kept`: where they are kept as often as they make sense."""
        self.current = reading.configured
        self.problem = ""  #: what is wrong with the files as they are now
        self._when = reading.when  #: they said what counts
        self._since = reading.when  #: there is a problem, if there is one
        self._files = files
        self._first = reading.configured
        self._log = log
        self._kept = kept
        self._asked = asyncio.Event()
        self._listeners: list[Listener] = []
        self._restless: Versions = {}  #: as they were found last, if that is not what was read
        self._looks = 0  #: since they began to change
        self._results: Counter[str] = Counter()
        if reading.problem:
            self._complain(reading.problem)

    def ask(self) -> None:
        """To read now."""
        self._asked.set()

    @contextmanager
    def told(self, listener: Listener) -> Iterator[None]:
        """As long as the block lasts."""
        self._listeners.append(listener)
        try:
            yield
        finally:
            self._listeners.remove(listener)

    async def run(self) -> None:
        """Until cancelled; at once if there are no files."""
        if self._files and not self.problem:
            await self._keep()
        while self._files:
            try:
                async with asyncio.timeout(EVERY):
                    await self._asked.wait()
            except TimeoutError:
                pass
            asked = self._asked.is_set()
            self._asked.clear()
            match await asyncio.to_thread(self._look, asked=asked):
                case Configuration() as configured:
                    self._accept(configured)
                    await self._keep()
                case str() as problem:
                    self._complain(problem)

    async def _keep(self) -> None:
        try:
            await asyncio.to_thread(self._kept.keep, self._files, self._when)
        except (OSError, UnicodeEncodeError) as error:
            self._log.error(error, "the files cannot be kept for a start while they are wrong", file=self._kept.path)

    # --- reading ----------------------------------------------------------------------------------

    def _look(self, *, asked: bool) -> Configuration | str | None:
        return self._read() if self._is_time(asked=asked) else None

    def _is_time(self, *, asked: bool) -> bool:
        """Files that are wrong are tried each time: what is wrong may be something else."""
        now = self._files.versions()
        if asked or (now == self._files.seen and self.problem):
            return True
        if now == self._files.seen:
            self._restless, self._looks = {}, 0
            return False
        resting, self._restless = now == self._restless, now
        self._looks += 1
        return resting or self._looks > RESTLESS

    def _read(self) -> Configuration | str | None:
        """What the files say, or what is wrong with them; None: they changed meanwhile, and may not belong together."""
        found: Configuration | str
        try:
            found = self._files.read()
        except ConfigurationError as error:
            found = str(error)
        except Exception as error:  # a mistake of ours about them must not end what works
            found = f"the files cannot be read: {error!r}"
        if self._files.versions() != self._files.seen and self._looks <= RESTLESS:
            return None
        self._restless, self._looks = {}, 0
        return found

    def _complain(self, problem: str) -> None:
        if problem != self.problem:
            if not self.problem:
                now = datetime.now(UTC)
                self._since = self._files.changed_between(self._when, now) or now
            self.problem = problem
            self._results["failure"] += 1
            self._log.error(None, "the files are wrong, and what they said before counts", reason=problem)

    def _accept(self, configured: Configuration) -> None:
        said = "the files are good again" if self.problem else "read the files again"
        flavors = {flavor.id for flavor in configured.flavors.values()}  # some are there by name, too
        self._log.info(said, sites=len(configured.sites), flavors=len(flavors))
        self._results["success"] += 1
        self.problem = ""
        self._when = datetime.now(UTC)
        if configured == self.current:
            return
        if (configured.kubeconfig, configured.master) != (self._first.kubeconfig, self._first.master):
            self._log.warning("another kubeconfig or master counts after a restart")
        self.current = configured
        for listener in list(self._listeners):
            listener(configured)

    # --- telling ----------------------------------------------------------------------------------

    def notes(self) -> list[str]:
        """What people should know who look whether all is well."""
        return [f"configuration: {self.problem}"] if self.problem else []

    def told_of(self) -> str:
        """For programs: which files, how many sites they have, when they said what counts, and what is wrong with them.
        Empty: there are none."""
        if not self._files:
            return ""
        options, problem = list(map(_text, self._files.options())), _text(self.problem)[:LONGEST]
        wrong = {"problem": problem, "since": times.format_seconds(self._since)} if problem else {}
        when = times.format_seconds(self._when)
        return orjson.dumps({"options": options, "sites": len(self.current.sites), "when": when, **wrong}).decode()

    def collect(self) -> Iterable[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        good = GaugeMetricFamily(
            "farflung_configuration_last_reload_successful", "Whether the files make sense as they are."
        )
        reloads = CounterMetricFamily(
            "farflung_configuration_reloads", "How often files were found changed.", labels=["result"]
        )
        if self._files:
            good.add_metric([], 0.0 if self.problem else 1.0)
            for result in RESULTS:
                reloads.add_metric([result], self._results[result])
        return [good, reloads]


def _text(said: str) -> str:
    """Paths need not be text."""
    return said.encode(errors="backslashreplace").decode()
