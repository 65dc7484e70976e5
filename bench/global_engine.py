"""How fast the engine of the global scheduler decides, without a hub: prints figures and asserts nothing.

    python bench/global_engine.py              with 10, 1,000 and 10,000 clusters
    python bench/global_engine.py 10000        with so many

A decision is where one machine goes, and reserves what it takes.
alike: all ask for the same, and any cluster will do.  by region: each asks for one of 100 regions.
50 kinds: machines of 50 kinds in turn, so that all of them have to hear of what the others took.
come and go: each time one machine goes, and another one comes.  refused: there is no room for it anywhere.
stacks: of three machines with two flavors to choose from, 20 replicas evenly spread.
never seen: each request is unlike all before it, which is the worst case: every cluster is looked at.
"""

from __future__ import annotations

import gc
import random
import resource
import sys
import time
from collections.abc import Callable, Iterator
from itertools import count

from figures import Figures
from generators import percentile

from farflung.machines.engine.engine import SchedulingEngine
from farflung.machines.engine.policy import default_policy
from farflung.machines.engine.values import (
    Capacity,
    Flavor,
    FlavorChoice,
    Geo,
    Health,
    Item,
    LocalStrategy,
    MachineRequest,
    RegionChoice,
    Site,
    SiteKey,
    SiteSelector,
)

CATALOGUE = {f"c6.{size}": Flavor(f"c6.{size}", 2**power, 2 ** (power + 11)) for power, size in enumerate("smlx")}
REGIONS = 100
ROOM = 400_000  #: for machines in all clusters together
GOAL = "≥ 5,000/s"


def inventory(number: int) -> Iterator[Site]:
    """Clusters that are unlike each other, the same in every run."""
    chance = random.Random(1)
    for index in range(number):
        each = ROOM // number + chance.randrange(10, 100)
        yield Site(
            SiteKey("root:compute", "default", f"cluster-{index}"),
            geo=Geo("US", f"area-{index % 4}", f"province-{index % 20}", f"city-{index % 500}"),
            region=f"region-{index % REGIONS}",
            zone=f"az-{index}",
            operator=chance.choice(("globalscheduler", "chinatelecom")),
            health=Health.READY,
            capacity=Capacity(
                dict.fromkeys(CATALOGUE, each),
                vcpus=each * 4,
                memory=each * 8192,
                storage={"sas": each * 40},
                eips=each,
            ),
        )


def machine(*flavors: str, number: int = 1, disk: int = 0) -> Item:
    storage = (("sas", disk),) if disk else ()
    return Item(tuple(FlavorChoice(flavor) for flavor in flavors), number, storage, eip=True)


class Bench:
    def __init__(self, sites: int) -> None:
        self.engine = SchedulingEngine(default_policy(), CATALOGUE)
        self.uids = map(str, count())
        for site in inventory(sites):
            self.engine.put_site(site)

    def place(self, *items: Item, selector: SiteSelector | None = None, replicas: int = 1) -> str:
        request = MachineRequest(next(self.uids), items, selector or SiteSelector(), replicas)
        decision = self.engine.decide(request)
        self.engine.reserve(self.engine.reservations_of(request, decision))
        return request.uid

    def alike(self) -> None:
        self.place(machine("c6.s"))

    def by_region(self) -> None:
        region = f"region-{int(next(self.uids)) % REGIONS}"
        self.place(machine("c6.s"), selector=SiteSelector(regions=(RegionChoice(region),)))

    def kinds(self) -> None:
        self.place(machine("c6.s", disk=1 + int(next(self.uids)) % 50))

    def come_and_go(self) -> None:
        self.engine.release(str(int(self.place(machine("c6.s"))) - 100))

    def refused(self) -> None:
        self.place(machine("c6.l", number=10**6))

    def stacks(self) -> None:
        spread = SiteSelector(strategy=LocalStrategy.SPREAD)
        self.place(machine("c6.m", "c6.s", number=2), machine("c6.s"), selector=spread, replicas=20)

    def never_seen(self) -> None:
        self.place(machine("c6.m", f"other-{next(self.uids)}"))


def measure(work: Callable[[], None], seconds: float = 1.5) -> tuple[float, list[float]]:
    """How much is done in a second of CPU time, and how long each took.  What is done first counts as well."""
    gc.collect()
    begun, times = time.process_time(), []
    while (before := time.process_time()) - begun < seconds:
        work()
        times.append(time.process_time() - before)
    return len(times) / (time.process_time() - begun), sorted(times)


def main() -> None:
    figures = Figures()
    figures.begin("target")
    for sites in [int(argument) for argument in sys.argv[1:]] or [10, 1_000, 10_000]:
        bench = Bench(sites)
        works = {
            "alike": (bench.alike, GOAL),
            "come and go": (bench.come_and_go, ""),
            "by region": (bench.by_region, ""),
            "50 kinds": (bench.kinds, ""),
            "refused": (bench.refused, ""),
            "stacks": (bench.stacks, ""),
            "never seen": (bench.never_seen, ""),
        }
        for name, (work, target) in works.items():
            rate, times = measure(work)
            remark = (
                f"p50 {percentile(times, 50):.3f} ms, p99 {percentile(times, 99):.3f} ms, most {times[-1] * 1e3:.0f} ms"
            )
            figures.show(f"{sites:>6,} clusters: {name}", f"{rate:,.0f}/s", target, remark)
    print(f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB at most")


if __name__ == "__main__":
    main()
