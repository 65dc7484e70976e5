"""Another policy, other flavors and other sites while machines wait and are bound."""

from __future__ import annotations

from farflung.machines.decide import SchedulerState
from farflung.machines.engine.engine import SchedulingEngine
from farflung.machines.engine.policy import SchedulerPolicy, default_policy
from farflung.machines.engine.values import Capacity, Flavor, Health, Reservation, ResourceClaim, Site, SiteKey
from farflung.machines.failover import FailoverOptions
from farflung.machines.subjects import POD, ObservedSubject, SchedulingSubject
from farflung.runtime.cache import Key
from machines import CATALOGUE, Machines, machines

HALL = Site(SiteKey("", "", "hall"), region="r9", zone="hall", health=Health.READY, capacity=Capacity({"small": 2}))


def configure(
    one: Machines, policy: SchedulerPolicy | None = None, flavors: dict[str, Flavor] | None = None, *sites: Site
) -> None:
    scheduler = one.fleet.global_scheduler
    assert scheduler is not None
    scheduler.configure(policy or default_policy(), CATALOGUE if flavors is None else flavors, sites)


async def test_who_waits_is_bound_as_soon_as_another_policy_lets_it() -> None:
    async with machines() as one:
        await one.cluster("az1", {"small": 1})
        await one.machine("a", selector={"regions": [{"region": "r2"}]})
        assert await one.refused("a") == "0/1 clusters fit: 1 wrong region"
        configure(one, SchedulerPolicy(("SiteAvailability",)))
        assert await one.bound("a") == "az1"


async def test_another_catalogue_counts_for_who_is_bound_and_for_who_waits() -> None:
    async with machines() as one:
        await one.cluster("az1", {"large": 9}, cpucapacity=5)
        await one.machine("a", "large")
        assert await one.bound("a") == "az1"
        await one.machine("b", "large")
        assert await one.refused("b") == "0/1 clusters fit: 1 out of vcpus"
        configure(one, None, {"large": Flavor("large", 2, 1024)})
        assert await one.bound("b") == "az1"

        async def is_told() -> bool:
            (cluster,) = await one.clusters()
            return bool(cluster["status"].get("used", {}).get("vcpus") == 4)

        await one.fleet.eventually(is_told, "what both use")
        await one.machine("c", "large")
        assert await one.refused("c") == "0/1 clusters fit: 1 out of vcpus"


async def test_who_is_bound_to_a_site_stays_when_files_do_not_name_it_any_more() -> None:
    async with machines() as one:
        await one.machine("a")
        assert await one.refused("a") == "there are no clusters"
        configure(one, None, None, HALL)
        assert await one.bound("a") == "hall"
        configure(one)
        scheduler = one.fleet.global_scheduler
        assert scheduler is not None
        assert not scheduler.state.may_evict
        await one.machine("b")
        assert await one.refused("b") == "there are no clusters"
        configure(one, None, None, HALL)
        assert await one.bound("b") == "hall"
        await one.machine("c")
        assert await one.refused("c") == "0/1 clusters fit: 1 out of small"
        assert (await one.pod("a"))["spec"]["nodeName"] == "hall"


def test_what_was_read_with_another_catalogue_and_is_heard_of_now_is_counted_by_this_one() -> None:
    world, there = (
        SchedulerState(SchedulingEngine(default_policy(), CATALOGUE), FailoverOptions(), lambda author: {}),
        SiteKey("c", "d", "az1"),
    )
    world.configure(default_policy(), {"large": Flavor("large", 2, 1024)}, (), 0.0)
    held = Reservation("uid", there, ResourceClaim((("large", 1),), 4, 8192))
    world.observe(SchedulingSubject(POD, Key("c", "d", "a")), ObservedSubject("uid", "1", reservations=(held,)), 0.0)
    assert (world.engine.usage(there).vcpus, world.engine.usage(there).memory) == (2, 1024)
