"""What people expect of the global scheduler, one scenario after the other."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from farflung.machines.engine.claims import FlavorCombination, compute_claim, compute_need
from farflung.machines.engine.engine import SchedulingEngine
from farflung.machines.engine.plugins import (
    Criteria,
    kilometres,
    score_least_allocated,
    score_most_allocated,
    score_stack_affinity,
    score_volume,
)
from farflung.machines.engine.policy import SchedulerPolicy, default_policy, read_policy
from farflung.machines.engine.sites import SiteState, SiteUsage
from farflung.machines.engine.values import (
    UNSCHEDULABLE,
    Capacity,
    Flavor,
    FlavorChoice,
    Geo,
    Health,
    Item,
    LabelRule,
    LocalStrategy,
    MachineRequest,
    MachineToleration,
    Point,
    Preference,
    RegionChoice,
    Reservation,
    ResourceClaim,
    SchedulingDecision,
    Site,
    SiteKey,
    SiteSelector,
    SiteTaint,
    Spot,
)

SMALL, LARGE = "c6.small.1", "c6.large.2"
CATALOGUE = {SMALL: Flavor(SMALL, 1, 1024), LARGE: Flavor(LARGE, 2, 4096)}
SPOT_POOLS = {
    "cpu_block_immediate": {"finite": {"6h": 4.0, "1h": 1}},
    "memory_block_immediate": {"finite": {"6h": 3.9}},
    "cpu_block_delay": {"finite": {"6h": 1}},
    "memory_block_delay": {"finite": {"6h": 1}},
    "cpu_immediate": {"infinite": 2},
    "memory_immediate": {"infinite": 9},
    "cpu_delay": {"infinite": "many"},
    "memory_delay": {"infinite": math.inf},
}


def key(name: str) -> SiteKey:
    return SiteKey("root:compute", "default", name)


def site(
    name: str, region: str = "region1", zone: str = "", /, flavors: dict[str, int] | None = None, **more: Any
) -> Site:
    """With ten of each flavor, unless told otherwise."""
    capacity = more.pop("capacity", Capacity({SMALL: 10, LARGE: 10} if flavors is None else flavors))
    return Site(key(name), region=region, zone=zone or name, capacity=capacity, **more)


def vm(*flavors: str, number: int = 1, storage: Iterable[tuple[str, int]] = (), eip: bool = False) -> Item:
    return Item(tuple(FlavorChoice(flavor) for flavor in flavors or (LARGE,)), number, tuple(storage), eip)


def ask(*items: Item, replicas: int = 1, uid: str = "demovm", tenant: str = "us", **selector: Any) -> MachineRequest:
    return MachineRequest(uid, items or (vm(),), SiteSelector(**selector), replicas, tenant)


def engine(*sites: Site, policy: SchedulerPolicy | None = None) -> SchedulingEngine:
    engine = SchedulingEngine(policy or default_policy(), CATALOGUE)
    for one in sites:
        engine.put_site(one)
    return engine


def take(engine: SchedulingEngine, request: MachineRequest) -> SchedulingDecision:
    decision = engine.decide(request)
    engine.reserve(engine.reservations_of(request, decision))
    return decision


def where(decision: SchedulingDecision) -> list[str]:
    return [chosen.site.name for chosen in decision.chosen]


# --- where: regions, zones, places, operators -------------------------------------------------------

ZONES = [site("az1"), site("az2"), site("az3"), site("other", "region2", "az1")]


@pytest.mark.parametrize(
    ("regions", "expected"),
    [
        ([RegionChoice("region1")], {"az1", "az2", "az3"}),
        ([RegionChoice("region1", ("az2",))], {"az2"}),
        ([RegionChoice("region1", ("az2", "az3"))], {"az2", "az3"}),
        ([RegionChoice("region1", ("az2",)), RegionChoice("region2")], {"az2", "other"}),
        (
            [RegionChoice("region2"), RegionChoice("region1", ("az2",)), RegionChoice("region1", ("az3",))],
            {"az2", "az3", "other"},
        ),
        ([RegionChoice("", ("az1",))], {"az1", "other"}),
        ([RegionChoice("region1", ("az9",))], set()),
        ([RegionChoice("region9")], set()),
        ([], {"az1", "az2", "az3", "other"}),
    ],
)
def test_any_of_the_regions_and_any_of_their_zones_will_do(regions: list[RegionChoice], expected: set[str]) -> None:
    request = ask(regions=tuple(regions))
    verdicts = engine(*ZONES).explain(request).verdicts
    assert {verdict.site.name for verdict in verdicts if not verdict.refusal} == expected


def test_an_unknown_zone_is_refused_with_the_reason() -> None:
    decision = engine(*ZONES).decide(ask(regions=(RegionChoice("region1", ("az9",)),)))
    assert decision.message == "0/4 clusters fit: 3 wrong zone, 1 wrong region"
    assert decision.sites == 4


def test_of_two_regions_the_second_is_used_when_the_first_is_full() -> None:
    one = engine(site("a", "r1", flavors={LARGE: 1}), site("b", "r2", flavors={LARGE: 1}))
    wish = (RegionChoice("r1"), RegionChoice("r2"))
    assert where(take(one, ask(uid="1", regions=wish))) == ["a"]
    assert where(take(one, ask(uid="2", regions=wish))) == ["b"]
    assert one.decide(ask(regions=wish)).message == f"0/2 clusters fit: 2 out of {LARGE}"


HOME = Geo("US", "west", "washington", "bellevue")


@pytest.mark.parametrize(
    ("wish", "reason"),
    [
        (Geo(), ""),
        (HOME, ""),
        (Geo(city="bellevue"), ""),
        (Geo(country="US", province="washington"), ""),
        (Geo(country="CN"), "wrong country"),
        (Geo(area="east"), "wrong area"),
        (Geo(province="oregon"), "wrong province"),
        (Geo(city="Bellevue"), "wrong city"),
        (msgspec.structs.replace(HOME, city="seattle"), "wrong city"),
    ],
)
def test_each_part_of_a_place_must_be_equal_that_is_asked_for(wish: Geo, reason: str) -> None:
    decision = engine(site("a", geo=HOME)).decide(ask(geo=wish))
    assert decision.message == (f"0/1 clusters fit: 1 {reason}" if reason else "")


def test_a_place_and_a_region_that_contradict_each_other_leave_nothing() -> None:
    one = engine(site("a", "r1", geo=HOME), site("b", "r2", geo=Geo(city="austin")))
    decision = one.decide(ask(geo=Geo(city="austin"), regions=(RegionChoice("r1"),)))
    assert decision.message == "0/2 clusters fit: 1 wrong city, 1 wrong region"


def test_the_operator_must_be_the_one_asked_for() -> None:
    one = engine(site("a", operator="chinatelecom"), site("b", operator="chinaunicom"))
    assert where(one.decide(ask(operator="chinaunicom"))) == ["b"]
    assert one.decide(ask(operator="chinamobile")).message == "0/2 clusters fit: 2 wrong operator"


@pytest.mark.parametrize("wish", ["az2", "region1--az2", "default/az2"])
def test_one_site_can_be_asked_for(wish: str) -> None:
    assert where(engine(*ZONES).decide(ask(site=wish))) == ["az2"]


def test_a_site_that_is_asked_for_and_is_not_there_is_a_reason() -> None:
    assert engine(*ZONES).decide(ask(site="az7")).message == "0/4 clusters fit: 4 not the one asked for"


# --- flavors ----------------------------------------------------------------------------------------


def test_the_flavor_that_is_liked_better_wins() -> None:
    one = engine(site("a", flavors={"B": 5}), site("b", flavors={"A": 5}))
    chosen = one.decide(ask(vm("A", "B"))).chosen
    assert [(it.site.name, it.flavors) for it in chosen] == [("b", ("A",))]


def test_the_next_flavor_is_taken_and_recorded_when_there_is_nothing_else() -> None:
    decision = engine(site("a", flavors={"A": 0, "B": 5})).decide(ask(vm("A", "B")))
    assert decision.chosen[0].flavors == ("B",)
    assert decision.chosen[0].claim == ResourceClaim((("B", 1),))


def test_combinations_of_flavors_are_tried_by_how_they_are_liked() -> None:
    need = compute_need([vm("A", "B"), vm("A")], CATALOGUE)
    assert [(one.flavors, one.preference) for one in need.combinations] == [(("A", "A"), 100.0), (("B", "A"), 75.0)]
    assert need.combinations[0].claim.flavors == (("A", 2),)
    one = engine(site("a", flavors={"A": 1}))
    assert one.decide(ask(vm("A", "B"), vm("A"))).message == "0/1 clusters fit: 1 out of A"
    one.put_site(site("a", flavors={"A": 1, "B": 1}))
    assert one.decide(ask(vm("A", "B"), vm("A"))).chosen[0].flavors == ("B", "A")


def test_only_the_best_combinations_are_tried_of_very_many() -> None:
    many = vm(*(f"f{number}" for number in range(9)))
    need = compute_need([many] * 8, {})
    likings = [one.preference for one in need.combinations]
    assert len(likings) == len({one.flavors for one in need.combinations}) == 256
    assert len(compute_need([many] * 64, {}).combinations) == 32
    assert likings == sorted(likings, reverse=True)


def test_replicas_get_other_flavors_when_the_best_liked_one_does_not_suffice() -> None:
    decision = engine(site("a", flavors={"A": 2, "B": 2})).decide(ask(vm("A", "B"), replicas=3))
    assert [chosen.flavors for chosen in decision.chosen] == [("A",), ("A",), ("B",)]


def test_a_flavor_that_no_site_offers_has_another_reason_than_one_that_is_used_up() -> None:
    one = engine(site("a", flavors={}), site("b", flavors={LARGE: 0}), site("c", flavors={SMALL: 3}))
    assert one.decide(ask()).message == f"0/3 clusters fit: 2 no flavor {LARGE}, 1 out of {LARGE}"


def test_flavors_and_vcpus_and_memory_all_have_limits() -> None:
    def message(vcpus: int, memory: int) -> str:
        return engine(site("a", capacity=Capacity({LARGE: 9}, vcpus, memory))).decide(ask(vm(number=2))).message

    assert message(vcpus=4, memory=8192) == ""
    assert message(vcpus=3, memory=8192) == "0/1 clusters fit: 1 out of vcpus"
    assert message(vcpus=4, memory=8191) == "0/1 clusters fit: 1 out of memory"


def test_capacity_that_shrinks_below_what_is_used_leaves_nothing_and_not_less() -> None:
    one = engine(site("a", capacity=Capacity({LARGE: 9}, vcpus=8)))
    for number in range(3):
        assert take(one, ask(uid=str(number))).is_placed
    one.put_site(site("a", capacity=Capacity({LARGE: 2}, vcpus=2)))
    free = one.free(key("a"))
    assert free is not None and (free.flavors, free.vcpus) == ({LARGE: 0}, 0)
    one.put_site(site("a", capacity=Capacity({LARGE: 4}, vcpus=8)))
    assert take(one, ask(uid="4")).is_placed
    assert one.decide(ask(uid="5")).message == f"0/1 clusters fit: 1 out of {LARGE}"


def test_what_others_use_beside_stacks_counts() -> None:
    one = engine(site("a", capacity=Capacity({LARGE: 9}, vcpus=8), used_elsewhere={"vcpus": 7}))
    assert one.decide(ask()).message == "0/1 clusters fit: 1 out of vcpus"


# --- storage, public addresses ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("storage", "reason"),
    [
        ([("ssd", 40)], ""),
        ([("ssd", 41)], "out of ssd"),
        ([("ssd", 20), ("ssd", 21)], "out of ssd"),
        ([("sas", 1)], "no storage type sas"),
        ([("sas", 0)], ""),
    ],
)
def test_storage_must_be_there(storage: list[tuple[str, int]], reason: str) -> None:
    one = engine(site("a", capacity=Capacity({LARGE: 9}, storage={"ssd": 40})))
    decision = take(one, ask(vm(storage=storage)))
    assert decision.message == (f"0/1 clusters fit: 1 {reason}" if reason else "")


def test_public_addresses_are_used_up_and_come_back() -> None:
    one = engine(site("a", capacity=Capacity({LARGE: 9}, eips=3)))
    assert take(one, ask(vm(eip=True, number=2), uid="1")).is_placed
    assert one.decide(ask(vm(eip=True, number=2))).message == "0/1 clusters fit: 1 out of public addresses"
    assert one.decide(ask(vm())).is_placed
    one.release("1")
    assert one.decide(ask(vm(eip=True, number=2))).is_placed


# --- scores -------------------------------------------------------------------------------------------


def standing(capacity: Capacity, used: ResourceClaim) -> SiteState:
    usage = SiteUsage()
    usage.add(used)
    return SiteState(Site(key("a"), capacity=capacity), usage)


def test_least_allocated_weighs_memory_vcpus_storage_and_addresses() -> None:
    capacity = Capacity({LARGE: 100}, vcpus=100, memory=100, storage={"ssd": 2000}, eips=10)
    used = standing(capacity, ResourceClaim((), 48, 21, (), 9))
    asks = FlavorCombination((LARGE,), ResourceClaim(((LARGE, 1),), 2, 4, (("ssd", 40),)), 100.0)
    assert score_least_allocated(used, asks) == pytest.approx((10 * 75 + 10 * 50 + 5 * 98) / 25)
    with_address = asks._replace(claim=asks.claim._replace(eips=1))
    assert math.floor(score_least_allocated(used, with_address)) == 66  # as the original worked it out
    assert score_most_allocated(used, with_address) == pytest.approx(100 - score_least_allocated(used, with_address))
    assert score_volume(used, asks) == pytest.approx(98)


def test_without_vcpus_the_share_of_the_flavor_is_used() -> None:
    asks = FlavorCombination((LARGE,), ResourceClaim(((LARGE, 1),), 2, 4), 100.0)
    assert score_least_allocated(standing(Capacity({LARGE: 4}), ResourceClaim(())), asks) == pytest.approx(75)
    assert score_least_allocated(standing(Capacity({LARGE: 4}, vcpus=4), ResourceClaim(())), asks) == pytest.approx(
        62.5
    )
    assert score_least_allocated(standing(Capacity(), ResourceClaim(())), asks) == 0


def test_machines_spread_over_sites_that_are_alike() -> None:
    one = engine(site("b"), site("a"), site("c"))
    assert [where(take(one, ask(uid=str(number))))[0] for number in range(6)] == ["a", "b", "c", "a", "b", "c"]


def test_machines_are_packed_if_the_policy_says_so() -> None:
    one = engine(site("a"), site("b"), policy=read_policy("priorities: [{name: SiteResourcesMostAllocated}]"))
    assert {where(take(one, ask(uid=str(number))))[0] for number in range(10)} == {"a"}
    assert where(take(one, ask())) == ["b"]


@pytest.mark.parametrize(("weight", "expected"), [(0, "b"), (1, "b"), (5, "b"), (9, "a")])
def test_weights_decide_which_scorer_has_more_to_say(weight: int, expected: str) -> None:
    """The first has the flavor that is liked better, and costs eight times as much."""
    text = f"priorities: [{{name: Flavor, weight: {weight}}}, {{name: Price, weight: 5}}]"
    dear, cheap = site("a", flavors={"A": 9}, price=8.0), site("b", flavors={"B": 9}, price=1.0)
    assert where(engine(dear, cheap, policy=read_policy(text)).decide(ask(vm("A", "B")))) == [expected]


def test_who_is_not_named_in_a_policy_has_no_say() -> None:
    one = engine(site("a", price=8.0), site("b", price=1.0))
    assert where(one.decide(ask())) == ["a"]
    assert set(one.explain(ask()).weights) == {
        "StackAffinity",
        "Flavor",
        "SiteResourcesLeastAllocated",
        "TaintToleration",
    }


def test_the_cheapest_site_may_come_and_go() -> None:
    policy = read_policy("priorities: [{name: Price}]")
    one = engine(site("a", price=8.0), site("b", price=math.nan), site("c"), policy=policy)
    assert one.decide(ask()).chosen[0].score == 100
    one.put_site(site("d", price=4.0))
    assert [(it.total, it.site.name) for it in one.explain(ask()).verdicts] == [
        (100, "d"),
        (50, "a"),
        (0, "b"),
        (0, "c"),
    ]
    one.remove_site(key("d"))
    assert one.explain(ask()).verdicts[0].total == 100


@pytest.mark.parametrize(
    ("affinity", "antiaffinity", "expected"),
    [
        ((), (), 50),
        ((LabelRule("app", "in", ("web",)),), (), 100),
        ((LabelRule("app", "=", ("db",)),), (), 50),
        ((), (LabelRule("app", "==", ("web",)),), 0),
        ((), (LabelRule("app", "!=", ("web",)),), 50),
        ((LabelRule("app", "exists"),), (LabelRule("app", "!"),), 100),
        ((LabelRule("app", "exists"),), (LabelRule("size", "gt", ("3",)),), 50),
        ((LabelRule("size", "lt", ("5",)),), (LabelRule("size", "gt", ("4",)),), 100),
        ((LabelRule("zone", "notin", ("x",)),), (), 100),
        ((LabelRule("size", "gt", ("much",)),), (), 50),
        ((LabelRule("app", "resembles", ("web",)),), (), 50),
    ],
)
def test_stacks_attract_and_repel(
    affinity: tuple[LabelRule, ...], antiaffinity: tuple[LabelRule, ...], expected: float
) -> None:
    usage = SiteUsage()
    usage.enter(Reservation("1", key("a"), ResourceClaim(()), "us", (("app", "web"), ("size", "4"))))
    usage.enter(Reservation("2", key("a"), ResourceClaim(()), "them", (("app", "db"), ("size", "5"))))
    asked = Criteria(SiteSelector(affinity=affinity, antiaffinity=antiaffinity), "us")
    score = score_stack_affinity(asked)
    assert (score if isinstance(score, float) else score(usage)) == expected


def test_a_stack_goes_to_its_kin_until_that_has_left() -> None:
    one = engine(site("a"), site("b"))
    one.reserve([Reservation("1", key("b"), ResourceClaim(((LARGE, 1),)), "us", (("app", "web"),))])
    request = ask(affinity=(LabelRule("app", "in", ("web",)),))
    assert where(one.decide(request)) == ["b"]
    assert where(one.decide(replace(request, tenant="them"))) == ["a"]
    one.release("1")
    assert where(one.decide(request)) == ["a"]


def test_the_nearest_site_wins_if_a_place_is_asked_for() -> None:
    oslo, lima = Point(59.91, 10.75), Point(-12.05, -77.04)
    assert kilometres(oslo, lima) == pytest.approx(11_043, rel=0.01)
    one = engine(site("a", point=lima), site("b", point=oslo), site("c"), site("d", point=Point(math.nan, 0)))
    assert where(one.decide(ask(near=Point(60.17, 24.94)))) == ["b"]
    assert where(one.decide(ask(near=Point(math.nan, 0)))) == ["a"]


def test_preferred_labels_and_steadiness_have_a_say() -> None:
    one = engine(site("a"), site("b", labels={"tier": "gold"}), site("c"))
    assert where(one.decide(ask(preferred=(Preference(1, (LabelRule("tier", "=", ("gold",)),)),)))) == ["b"]
    assert where(one.decide(replace(ask(), current=(key("c"),)))) == ["c"]


# --- strategies -------------------------------------------------------------------------------------


def rooms(**numbers: int) -> SchedulingEngine:
    return engine(*(site(name, name[0], flavors={LARGE: number}) for name, number in numbers.items()))


def test_more_replicas_than_there_is_room_for_reserve_nothing() -> None:
    one = rooms(a=2, b=3)
    decision = take(one, ask(replicas=6, strategy=LocalStrategy.DISCRETE))
    assert decision.chosen == ()
    assert decision.message == "5 of 6 replicas can be placed; 2/2 clusters fit"
    assert not one.usage(key("a")).stacks and not one.usage(key("b")).stacks


def test_replicas_stay_in_one_region_if_that_is_asked_for() -> None:
    one = rooms(a1=2, a2=2, b1=3, b2=3)
    spread = LocalStrategy.SPREAD
    assert where(one.decide(ask(replicas=4, strategy=spread, region_alone=True))) == ["b1", "b1", "b2", "b2"]
    assert set(where(one.decide(ask(replicas=4, strategy=spread)))) == {"a1", "a2", "b1", "b2"}
    message = one.decide(ask(replicas=7, strategy=spread, region_alone=True, max_clusters=2)).message
    assert message == "6 of 7 replicas can be placed in at most 2 clusters in one region; 4/4 clusters fit"


def test_a_stack_is_never_torn_apart() -> None:
    one = engine(site("a", flavors={SMALL: 9}), site("b", flavors={LARGE: 9}))
    assert not one.decide(ask(vm(SMALL), vm(LARGE))).is_placed
    one.put_site(site("c"))
    assert where(one.decide(ask(vm(SMALL), vm(LARGE), replicas=2))) == ["c", "c"]


def test_absurd_numbers_of_replicas_are_refused() -> None:
    for replicas in (0, -1, 10**9):
        assert engine(site("a", flavors={LARGE: 10**12})).decide(ask(replicas=replicas)).message != ""


# --- who: tenants, health, taints, labels -----------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ({"tenants": frozenset({"us"})}, ""),
        ({"tenants": frozenset({"them"})}, "kept for other tenants"),
        ({"health": Health.READY}, ""),
        ({"health": Health.UNKNOWN}, ""),
        ({"health": Health.SELLOUT}, "sold out"),
        ({"health": Health.OFFLINE}, "not ready"),
        ({"health": Health.DOWN}, "not ready"),
        ({"health": Health.UNREACHABLE}, "not ready"),
        ({"leaving": True}, "being deleted"),
        ({"taints": (SiteTaint("full"),)}, "taint full not tolerated"),
        ({"taints": (UNSCHEDULABLE, SiteTaint("full"))}, "unschedulable"),
        ({"taints": (SiteTaint("gone", "", "NoExecute"),)}, "taint gone not tolerated"),
        ({"taints": (SiteTaint("dear", "", "PreferNoSchedule"), SiteTaint("spare", "yes"))}, ""),
        ({"labels": {"tier": "tin"}}, "wrong labels"),
    ],
)
def test_a_site_is_refused_for_a_reason(what: dict[str, Any], reason: str) -> None:
    more = {"labels": {"tier": "gold"}} | what
    request = ask(
        required=(LabelRule("tier", "in", ("gold",)),),
        tolerations=(
            MachineToleration("spare", "Equal", "yes", "NoSchedule"),
            MachineToleration("full", "Equal", "no"),
        ),
    )
    decision = engine(replace(site("a"), **more)).decide(request)
    assert decision.message == (f"0/1 clusters fit: 1 {reason}" if reason else "")


def test_who_tolerates_everything_gets_everywhere() -> None:
    tainted = site("a", taints=(SiteTaint("a", "b"), SiteTaint("c", "", "NoExecute")))
    assert engine(tainted).decide(ask(tolerations=(MachineToleration("", "Exists"),))).is_placed


def test_a_policy_without_predicates_still_gives_nothing_that_is_not_there() -> None:
    offline = site("a", "r9", flavors={LARGE: 1}, health=Health.OFFLINE)
    one = engine(offline, policy=read_policy("predicates: []"))
    assert take(one, ask(uid="1", regions=(RegionChoice("r1"),))).is_placed
    assert not one.decide(ask(uid="2")).is_placed


# --- spot machines ----------------------------------------------------------------------------------


def spot(**spot: Any) -> MachineRequest:
    return ask(Item((FlavorChoice(LARGE, Spot(**spot)),)))


@pytest.mark.parametrize(
    ("wish", "machines"),
    [
        ({"hours": 2, "periods": 3}, 3),
        ({"hours": 2, "periods": 3, "policy": "delay"}, 1),
        ({"hours": 6}, 3),
        ({"hours": 1}, 0),
        ({"hours": 5}, 0),
        ({}, 2),
        ({"policy": "delay"}, 0),
        ({"max_price": 2.0}, 2),
        ({"max_price": 1.4}, 0),
    ],
)
def test_spot_machines_come_from_pools_of_their_own(wish: dict[str, object], machines: int) -> None:
    one = engine(site("a", capacity=Capacity({}, vcpus=0, spot={LARGE: SPOT_POOLS}), price=1.5))
    placed = [take(one, replace(spot(**wish), uid=str(number))).is_placed for number in range(5)]
    assert sum(placed) == machines


@pytest.mark.parametrize("pools", [{}, {LARGE: None}, {LARGE: {"cpu_immediate": 7, "mem_immediate": [1]}}])
def test_spot_machines_do_not_fit_where_no_site_offers_any(pools: dict[str, object]) -> None:
    decision = engine(site("a", capacity=Capacity({LARGE: 9}, spot=pools))).decide(spot())
    assert decision.message == f"0/1 clusters fit: 1 out of spot {LARGE}"


def test_all_spot_requests_can_be_taken_as_satisfiable() -> None:
    one = engine(site("a", flavors={}), policy=replace(default_policy(), spot_fake=True))
    assert where(one.decide(replace(spot(hours=99), replicas=1000))) == ["a"] * 1000
    assert one.decide(replace(spot(hours=99), replicas=1001)).chosen == ()


def test_a_claim_is_computed_from_the_flavors_that_were_chosen() -> None:
    items = (
        Item((FlavorChoice(LARGE, Spot(hours=2)), FlavorChoice(SMALL)), 2),
        vm(SMALL, eip=True, storage=[("ssd", 4)]),
    )
    assert compute_claim(items, (SMALL, SMALL), CATALOGUE) == ResourceClaim(((SMALL, 3),), 3, 3072, (("ssd", 4),), 1)
    spots = compute_claim(items, (LARGE, SMALL), CATALOGUE)
    assert [(pool.flavor, pool.hours, number) for pool, number in spots.spot] == [(LARGE, 2, 2)]
    assert spots.flavors == ((SMALL, 1),)


# --- what is held -----------------------------------------------------------------------------------


def test_as_many_as_fit_are_placed_and_the_next_one_when_one_has_gone() -> None:
    one = engine(site("a", flavors={LARGE: 3}))
    for number in range(3):
        assert take(one, ask(uid=str(number))).is_placed
    refused = ask(uid="late")
    assert one.decide(refused).message == f"0/1 clusters fit: 1 out of {LARGE}"
    assert not one.could_help(refused, one.site(key("a")), one.site(key("a")))
    one.release("1")
    assert one.could_help(refused, one.site(key("a")), one.site(key("a")))
    assert take(one, refused).is_placed


def test_what_is_held_survives_updates_and_absence_of_its_site() -> None:
    one = engine(site("a", flavors={LARGE: 1}))
    take(one, ask(uid="1"))
    one.put_site(site("a", flavors={LARGE: 1}, health=Health.READY))
    assert not one.decide(ask()).is_placed
    one.remove_site(key("a"))
    assert (one.free(key("a")), one.site(key("a")), list(one.sites())) == (None, None, [])
    assert one.decide(ask()).message == "there are no clusters"
    assert set(one.usage(key("a")).stacks) == {"1"}
    one.put_site(site("a", flavors={LARGE: 1}))
    assert not one.decide(ask()).is_placed


def test_a_uid_holds_one_place_at_a_time() -> None:
    one = engine(site("a"), site("b"))
    claim = ResourceClaim(((LARGE, 2),))
    one.reserve([Reservation("1", key("a"), claim), Reservation("1", key("a"), claim)])
    assert len(one.usage(key("a")).stacks) == 1
    one.reserve([Reservation("1", key("b"), claim)])
    assert not one.usage(key("a")).stacks
    held = one.reservation("1")
    assert held is not None and held.site == key("b")
    free = one.free(key("a"))
    assert free is not None and free.flavors[LARGE] == 10


def test_replicas_of_allocations_are_numbered() -> None:
    one = engine(site("a"))
    request = ask(replicas=2, uid="x")
    assert [held.uid for held in one.reservations_of(request, one.decide(request))] == ["x/0", "x/1"]
    request = replace(ask(uid="x"), numbered=True)
    assert [held.uid for held in one.reservations_of(request, one.decide(request))] == ["x/0"]


def test_another_catalogue_counts_from_now_on() -> None:
    one = engine(site("a", capacity=Capacity({LARGE: 9}, vcpus=3)))
    assert take(one, ask(uid="1")).is_placed
    assert not one.decide(ask()).is_placed
    one.configure(default_policy(), {LARGE: Flavor(LARGE, 1)})
    free = one.free(key("a"))
    assert free is not None and free.vcpus == 2  # as much as if it had never been another one
    assert one.decide(ask()).is_placed


def test_another_policy_counts_from_now_on() -> None:
    one = engine(site("a", "r2"), site("b", health=Health.DOWN))
    request = ask(regions=(RegionChoice("region1"),))
    assert one.decide(request).message == "0/2 clusters fit: 1 not ready, 1 wrong region"
    one.configure(SchedulerPolicy(("regionandaz",)), {})
    assert [chosen.site for chosen in one.decide(request).chosen] == [key("b")]


# --- words ------------------------------------------------------------------------------------------


def test_reasons_are_counted_the_most_frequent_first() -> None:
    sites = [site(f"w{number}", "r2") for number in range(7)] + [
        site(f"o{number}", flavors={LARGE: 0}) for number in range(5)
    ]
    decision = engine(*sites).decide(ask(regions=(RegionChoice("region1"),)))
    assert decision.message == f"0/12 clusters fit: 7 wrong region, 5 out of {LARGE}"


def test_of_very_many_reasons_some_are_told() -> None:
    sites = [site(f"s{number}", taints=(SiteTaint(f"taint-{number:02}"),)) for number in range(30)]
    message = engine(*sites).decide(ask()).message
    assert message.startswith("0/30 clusters fit: 1 taint taint-00 not tolerated, 1 ")
    assert message.endswith(" 1 taint taint-09 not tolerated, 20 for other reasons")


def test_sites_that_are_excluded_are_told_of() -> None:
    one = engine(site("a"), site("b", flavors={}))
    decision = one.decide(ask(), excluded={key("a"): "excluded"})
    assert decision.message == f"0/2 clusters fit: 1 excluded, 1 no flavor {LARGE}"


def test_an_explanation_has_weights_scores_and_who_gives_the_same_to_each() -> None:
    priorities = "priorities: [{name: Flavor}, {name: StackAffinity}, {name: Price, weight: 3}]"
    one = engine(site("b", "r2"), site("a"), policy=read_policy(priorities))
    found = one.explain(ask())
    assert (found.weights, found.indifferent) == ({"Flavor": 1, "StackAffinity": 1}, {"StackAffinity": 50.0})
    assert [(verdict.site.name, verdict.total) for verdict in found.verdicts] == [("a", 75.0), ("b", 75.0)]
    assert found.verdicts[0].scores == {"Flavor": 100.0, "StackAffinity": 50.0}


@pytest.mark.parametrize(
    ("there", "wish", "said"),
    [
        ({"capacity": Capacity({LARGE: 1})}, {"number": 2}, (f"out of {LARGE}", 2, 1)),
        ({"capacity": Capacity({LARGE: 9}, vcpus=3)}, {"number": 2}, ("out of vcpus", 4, 3)),
        ({"capacity": Capacity({LARGE: 9}, eips=1)}, {"number": 2, "eip": True}, ("out of public addresses", 2, 1)),
        ({"capacity": Capacity({LARGE: 9}, storage={"ssd": 5})}, {"storage": (("ssd", 8),)}, ("out of ssd", 8, 5)),
        ({"capacity": Capacity({"other": 1})}, {}, (f"no flavor {LARGE}", None, None)),
    ],
)
def test_where_something_is_short_an_explanation_says_how_much(
    there: dict[str, Any], wish: dict[str, Any], said: tuple[str, int | None, int | None]
) -> None:
    [verdict] = engine(site("a", **there)).explain(ask(vm(**wish))).verdicts
    short = verdict.shortage
    assert (verdict.refusal, short and short.needed, short and short.left) == said
