"""How fast the edge scheduler is: prints figures and asserts nothing.

    python bench/scheduler.py                  everything
    python bench/scheduler.py engine           the engine alone, without a hub
    python bench/scheduler.py cold moves       through the wire, against a real hub

cold: 100 placements that all match 1,000 Locations, when the scheduler starts.
moves: one of 10,000 Locations gets other labels, among 1,000 placements.
engine: 100,000 Locations with a SyncTarget each in 200 workspaces, 10,000 placements of some six kinds, by 500 authors
who may place in all workspaces.  Everything is put, every placement is resolved once, and then 1,000 random changes are
made, after each of which one placement that it concerns is resolved again.
"""

from __future__ import annotations

import gc
import random
import resource
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from typing import TypeAlias, TypeVar

import scheduler_wire
import uvloop
from figures import Figures
from msgspec.structs import replace

from farflung.apis.edge.authors import Author
from farflung.machinery.selectors import EVERYTHING, LabelSelector, Requirement
from farflung.placement.names import ObjectKey
from farflung.placement.resolve import Resolver
from farflung.placement.types import Effect, Location, Placement, PlacingRight, Taint, TargetForScheduling

LOCATIONS = 100_000
PLACEMENTS = 10_000
CHANGES = 1_000
WORKSPACES = 200
AUTHORS = 500
REGIONS, CITIES, ROWS = 10, 200, 1_000

T = TypeVar("T")
Change: TypeAlias = Callable[[], frozenset[ObjectKey]]


def peak() -> float:
    """Megabytes that the process has had at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


class Watch:
    """Time that passes, and time that the process works: on a busy machine they differ."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def __str__(self) -> str:
        return f"{time.perf_counter() - self._wall:.2f} s ({time.process_time() - self._cpu:.2f} s CPU)"


def spread(times: list[float]) -> str:
    times.sort()
    picked = (times[len(times) // 2], times[len(times) * 99 // 100], times[-1])
    return "p50 {:.3f} ms   p99 {:.3f} ms   most {:.3f} ms".format(*(one * 1e3 for one in picked))


class Inventory:
    """Locations and targets that look like those of a large company, the same in every run."""

    def __init__(self) -> None:
        self.random = random.Random(1)

    def labels(self, number: int) -> dict[str, str]:
        return {
            "env": self.random.choice(("prod", "prod", "prod", "stage", "dev")),
            "region": f"region-{number % REGIONS}",
            "city": f"city-{number % CITIES}",
            "row": f"row-{self.random.randrange(ROWS)}",
            "location": f"location-{number}",
        }

    def location(self, number: int) -> Location:
        own = LabelSelector((Requirement("id", "in", (f"t{number}",)),))
        return Location(ObjectKey(f"imw-{number % WORKSPACES}", f"location-{number:06}"), self.labels(number), own)

    def target(self, number: int, uid: str = "", taints: tuple[Taint, ...] = ()) -> TargetForScheduling:
        key = ObjectKey(f"imw-{number % WORKSPACES}", f"target-{number:06}")
        return TargetForScheduling(key, uid or f"5ef1c3a2-0000-4000-8000-{number:012}", {"id": f"t{number}"}, taints)

    def placement(self, number: int) -> Placement:
        placement = self._placement(number)
        return replace(placement, author=author(placement.key.cluster))

    def _placement(self, number: int) -> Placement:
        """From 1 location to 6,000; about one in a hundred has options."""
        key, choice = ObjectKey(f"wmw-{number % AUTHORS}", f"placement-{number:05}"), self.random
        row, other = (f"row-{choice.randrange(ROWS)}" for _ in range(2))
        one_of_few = LabelSelector((Requirement("row", "in", (row, other)), Requirement("env", "!")))
        match number % 100:
            case 0:
                return Placement(key, "uid", 1, (_equal(region=f"region-{number // 100 % REGIONS}", env="prod"),))
            case 1:
                return Placement(key, "uid", 1, (_equal(city=f"city-{number % CITIES}"),), 3, ("env",))
            case _ if number % 5 == 0:
                return Placement(key, "uid", 1, (_equal(city=f"city-{number % CITIES}", env="prod"),))
            case _ if number % 5 == 1:
                return Placement(key, "uid", 1, (_equal(row=row), _equal(row=other)))
            case _ if number % 5 == 2:
                return Placement(
                    key, "uid", 1, (_equal(location=f"location-{choice.randrange(LOCATIONS)}"), one_of_few)
                )
            case _:
                return Placement(key, "uid", 1, (_equal(row=row, env="prod"),))


def author(workspace: str) -> Author:
    return Author(f"owner of {workspace}", ("system:authenticated",))


def put_rights(engine: Resolver) -> None:
    everywhere = PlacingRight(everywhere=True)
    for workspace in range(AUTHORS):
        for inventory in range(WORKSPACES):
            engine.put_right(author(f"wmw-{workspace}"), f"imw-{inventory}", everywhere)


def _equal(**labels: str) -> LabelSelector:
    return LabelSelector(tuple(Requirement(key, "in", (value,)) for key, value in labels.items()))


def changes(engine: Resolver, inventory: Inventory) -> Iterator[tuple[str, Change]]:
    """Each is worked out before it is handed out, so that only the engine is timed."""
    tainted = (Taint("maintenance", "", Effect.NO_SCHEDULE),)
    for number in range(CHANGES):
        at = inventory.random.randrange(LOCATIONS)
        location, target, placement = inventory.location(at), inventory.target(at), inventory.placement(at % PLACEMENTS)
        greedy = Location(location.key, location.labels, EVERYTHING)
        kinds: list[tuple[str, Change]] = [
            ("location relabelled", partial(engine.put_location, location)),
            ("location removed", partial(engine.remove_location, location.key)),
            ("location selects all", partial(engine.put_location, greedy)),
            ("target tainted", partial(engine.put_target, inventory.target(at, taints=tainted))),
            ("target removed", partial(engine.remove_target, target.key)),
            ("target made again", partial(engine.put_target, inventory.target(at, f"uid-{number}"))),
            ("placement edited", partial(engine.put_placement, placement)),
            ("placement removed", partial(engine.remove_placement, placement.key)),
        ]
        yield kinds[number % len(kinds)]


def put_all(engine: Resolver, values: list[Location | TargetForScheduling | Placement]) -> None:
    for value in values:
        match value:
            case Location():
                engine.put_location(value)
            case TargetForScheduling():
                engine.put_target(value)
            case Placement():
                engine.put_placement(value)


def bench_engine() -> None:
    engine, inventory = Resolver(), Inventory()
    values: list[Location | TargetForScheduling | Placement] = [
        *map(inventory.location, range(LOCATIONS)),
        *map(inventory.target, range(LOCATIONS)),
        *map(inventory.placement, range(PLACEMENTS)),
    ]
    everything, watch = Watch(), Watch()
    put_all(engine, values)
    print(f"engine: {LOCATIONS:,} locations and targets, {PLACEMENTS:,} placements: {watch} to put")
    watch = Watch()
    put_rights(engine)
    print(f"engine: {watch} to put the rights of {AUTHORS} authors")
    watch = Watch()
    keys = [placement.key for placement in engine.placements()]
    destinations = sum(len(engine.resolve(key).destinations) for key in keys)
    print(f"engine: {watch} to resolve all placements, {destinations:,} destinations")
    gc.collect()
    gc.freeze()
    watch = Watch()
    putting: dict[str, list[float]] = {}
    resolving: list[float] = []
    concerned = 0
    for kind, change in changes(engine, inventory):
        dirty = timed(change, putting.setdefault(kind, []))
        concerned += len(dirty)
        there = sorted(key for key in dirty if engine.placement(key) is not None)
        if there:
            timed(partial(engine.resolve, inventory.random.choice(there)), resolving)
    print(f"engine: {CHANGES:,} changes: {watch}; CPU of one   {spread(list(chain(*putting.values())))}")
    for kind, times in putting.items():
        print(f"engine:   {kind:22} {spread(times)}")
    print(f"engine: {concerned / CHANGES:.1f} placements concerned by a change; resolving one   {spread(resolving)}")
    print(f"engine: {everything} and {peak():,.0f} MB altogether")


def timed(function: Callable[[], T], times: list[float]) -> T:
    started = time.process_time()
    result = function()
    times.append(time.process_time() - started)
    return result


def bench_cold_start() -> None:
    uvloop.run(scheduler_wire.cold_start(Figures()))


def bench_moves() -> None:
    uvloop.run(scheduler_wire.relabelling(Figures()))


#: what can be asked for by name
PARTS: dict[str, Callable[[], None]] = {"cold": bench_cold_start, "moves": bench_moves, "engine": bench_engine}

if __name__ == "__main__":
    for name in sys.argv[1:] or PARTS:
        PARTS[name]()
