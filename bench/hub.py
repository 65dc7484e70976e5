"""How fast a hub is, from outside and over TLS: prints figures and asserts nothing.

    python bench/hub.py            about five minutes
    python bench/hub.py --quick    about one: fewer objects, fewer watchers

The load comes from the same machine.  Requests a second move by a factor of two with whatever else runs there; CPU
time per request, of the hub alone, moves less.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import rights_and_kinds
import uvloop
from figures import Figures, allow_many_connections
from generators import SIZE, Generator, choose, configmap, configmaps, object_name
from http_client import Heard, Server, ask, hear
from hub_process import HubProcess

T = TypeVar("T")


@dataclass(frozen=True)
class Extent:
    objects: int
    listed: int
    one_by_one: int
    gets: int
    watchers: int
    events: int  #: that all watchers hear
    roles: int
    things: int  #: custom resources


WHOLE = Extent(
    objects=100_000, listed=10_000, one_by_one=2_000, gets=10_000, watchers=5_000, events=20, roles=1_000, things=10_000
)
QUICK = Extent(
    objects=20_000, listed=10_000, one_by_one=500, gets=5_000, watchers=500, events=10, roles=1_000, things=3_000
)


class Bench:
    """One hub under load.  The steps build on each other: what one writes, the next reads."""

    def __init__(self, directory: Path, extent: Extent, figures: Figures) -> None:
        self._directory = directory
        self._extent = extent
        self._figures = figures
        self._hub = self._started("start to ready, new directory", "< 0.4 s")
        figures.show("resident memory, idle", f"{self._hub.resident_megabytes():.0f} MB", "< 100 MB")

    def run(self) -> None:
        try:
            generator = choose(self._server)
            print(f"-- load by {generator.name}; ConfigMaps of {SIZE} bytes of data")
            self._creates(generator)
            self._gets(generator)
            self._lists(generator)
            self._rights()
            self._custom_resources()
            self._watches()
            self._end_of_namespace()
            self._restart()
        finally:
            self._hub.stop()

    @property
    def _server(self) -> Server:
        return Server(self._hub.url, self._hub.token, self._hub.certificate_authority)

    def _started(self, figure: str, target: str) -> HubProcess:
        hub = HubProcess(self._directory / "hub", "hub")
        self._figures.show(figure, f"{hub.seconds_to_ready:.2f} s", target, f"{hub.cpu_seconds():.2f} s CPU")
        return hub

    def _cpu_of(self, work: Callable[[], T]) -> tuple[T, float]:
        """(the result, CPU seconds of the hub)."""
        before = self._hub.cpu_seconds()
        result = work()
        return result, self._hub.cpu_seconds() - before

    def _new_namespace(self, name: str) -> None:
        body = b'{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"%b"}}' % name.encode()
        status, answer = uvloop.run(ask(self._server, "POST", "/api/v1/namespaces", body))
        if status != 201:
            raise SystemExit(f"the namespace {name} was answered with {status}: {answer[:200]!r}")

    def _creates(self, generator: Generator) -> None:
        extent = self._extent
        rest = extent.objects - extent.listed - extent.one_by_one
        for namespace, count, connections, target in (
            ("one", extent.one_by_one, 1, ""),
            ("listed", extent.listed, 16, ""),
            ("many", rest, 64, ">= 4,000-5,600/s"),
        ):
            self._new_namespace(namespace)
            rate, cpu = self._cpu_of(partial(generator.create, namespace, count, connections))
            self._figures.show_rate(f"durable creates, connections: {connections}", rate, cpu / count, target)
        held = f"resident memory, {extent.objects:,} ConfigMaps"
        self._figures.show(held, f"{self._hub.resident_megabytes():.0f} MB")

    def _gets(self, generator: Generator) -> None:
        count = self._extent.gets
        for connections in (16, 64):
            rate, cpu = self._cpu_of(partial(generator.get, "listed", count, connections))
            self._figures.show_rate(f"gets, connections: {connections}", rate, cpu / count, ">= 6,400/s")

    def _lists(self, generator: Generator) -> None:
        times = generator.listing("listed", self._extent.listed)
        self._figures.show(f"list of {self._extent.listed:,}, whole", f"{times.whole:.0f} ms", "<= 93-176 ms")
        self._figures.show(
            f"list of {self._extent.listed:,}, pages of 500", f"{times.paged:.0f} ms", "", "with decoding"
        )

    def _rights(self) -> None:
        """The same gets as before, by somebody whose every request is decided by roles."""
        roles, count = self._extent.roles, self._extent.gets
        for who, server in (
            ("an administrator", self._server),
            (f"a ServiceAccount, {roles:,} roles", rights_and_kinds.somebody(self._server, "listed", roles)),
        ):
            rate, cpu = self._cpu_of(partial(rights_and_kinds.read_configmaps, server, "listed", count))
            self._figures.show_rate(f"gets by {who}", rate, cpu / count)

    def _custom_resources(self) -> None:
        self._new_namespace("custom")
        defined = uvloop.run(rights_and_kinds.define(self._server, "custom"))
        self._figures.show(
            "definition to first object", f"{defined.usable:.1f} ms", "", f"answered after {defined.answered:.1f} ms"
        )
        count = self._extent.things
        rate, cpu = self._cpu_of(partial(rights_and_kinds.create_things, self._server, "custom", count))
        self._figures.show_rate(
            f"durable creates of custom resources, {rights_and_kinds.CONNECTIONS}", rate, cpu / count
        )

    def _end_of_namespace(self) -> None:
        seconds, cpu = self._cpu_of(lambda: uvloop.run(rights_and_kinds.end_namespace(self._server, "listed")))
        remark = f"{cpu:.1f} s CPU; it waits for 3 s before it begins"
        self._figures.show(f"end of a namespace of {self._extent.listed:,}", f"{seconds:.1f} s", "", remark)

    def _watches(self) -> None:
        extent = self._extent
        alone = self._heard("alone", [""], hearing=1, events=200)
        self._figures.show_delays("watch delay p50 / p99, 1 watcher", alone, "p99 <= 5-11 ms")
        others = [f"&fieldSelector=metadata.name%3D{object_name(number)}" for number in range(extent.watchers - 1)]
        among = self._heard("among", ["", *others], hearing=1, events=200)
        self._figures.show_delays(f"  1 watcher among {extent.watchers:,} of other objects", among)
        together = self._heard("together", [""] * extent.watchers, hearing=extent.watchers, events=extent.events)
        self._figures.show_delays(f"  {extent.watchers:,} watchers that all hear it", together)

    def _heard(self, namespace: str, selectors: list[str], *, hearing: int, events: int) -> Heard:
        """With a watcher for each selector, of which so many hear of each write."""
        self._new_namespace(namespace)
        collection = configmaps(namespace)
        paths = [f"{collection}?watch=1&timeoutSeconds=600{selector}" for selector in selectors]
        writes = [(collection, configmap(f"event-{number:06}")) for number in range(events)]
        return uvloop.run(hear(self._server, paths, hearing, writes, self._hub.cpu_seconds))

    def _restart(self) -> None:
        self._hub.stop()
        self._hub = self._started(f"restart with {self._extent.objects:,} objects", "< 3 s")
        self._figures.show("resident memory after that", f"{self._hub.resident_megabytes():.0f} MB")


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    arguments.add_argument("--quick", action="store_true", help="fewer objects, fewer watchers")
    extent = QUICK if arguments.parse_args().quick else WHOLE
    allow_many_connections()
    figures = Figures()
    figures.begin("target")
    with tempfile.TemporaryDirectory(prefix="farflung-bench-") as directory:
        started = time.perf_counter()
        Bench(Path(directory), extent, figures).run()
        print(f"-- took {time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
