"""Whatever an engine was told before, it decides as one that was told the last word at once."""

from __future__ import annotations

from dataclasses import replace

from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from scheduling_worlds import CATALOGUE, CHEAP, KEYS, requests, sites

from farflung.machines.engine.claims import compute_claim
from farflung.machines.engine.engine import SchedulingEngine
from farflung.machines.engine.policy import SchedulerPolicy, default_policy
from farflung.machines.engine.values import Flavor, Item, MachineRequest, Reservation, Site, SiteKey

POLICIES = [
    default_policy(),
    CHEAP,
    SchedulerPolicy(),
    SchedulerPolicy(("regionandaz",), (("Flavor", 2),)),
    SchedulerPolicy(("SiteAvailability", "LocationAndOperator"), (("SiteResourcesMostAllocated", 1), ("Steady", 3))),
]
CATALOGUES = [CATALOGUE, {}, {"small": Flavor("small", 3, 1), "odd": Flavor("odd", 1, 1)}]


class Configured:
    """An engine that is told something new again and again, and all that another one would have to be told."""

    def __init__(self) -> None:
        self.policy, self.catalogue = POLICIES[0], CATALOGUES[0]
        self.engine = SchedulingEngine(self.policy, self.catalogue)
        self.sites: dict[SiteKey, Site] = {}
        self.held: dict[str, tuple[Reservation, tuple[Item, ...], tuple[str, ...]]] = {}
        self.placed = 0

    def configure(self, policy: SchedulerPolicy, catalogue: dict[str, Flavor]) -> None:
        self.policy, self.catalogue = policy, catalogue
        self.engine.configure(policy, catalogue)

    def put(self, site: Site) -> None:
        self.sites[site.key] = site
        self.engine.put_site(site)

    def remove(self, key: SiteKey) -> None:
        self.sites.pop(key, None)
        self.engine.remove_site(key)

    def place(self, request: MachineRequest) -> None:
        self.placed += 1
        request = replace(request, uid=f"stack-{self.placed}")
        decision = self.engine.decide(request)
        reservations = self.engine.reservations_of(request, decision)
        self.engine.reserve(reservations)
        for one, chosen in zip(reservations, decision.chosen, strict=True):
            self.held[one.uid] = one, request.items, chosen.flavors

    def release(self, number: int) -> None:
        if self.held:
            uid = sorted(self.held)[number % len(self.held)]
            del self.held[uid]
            assert self.engine.release(uid)

    def anew(self) -> SchedulingEngine:
        """What is held is read from what was written about it, as after a restart."""
        engine = SchedulingEngine(self.policy, self.catalogue)
        for site in self.sites.values():
            engine.put_site(site)
        for one, items, flavors in self.held.values():
            engine.reserve([one._replace(claim=compute_claim(items, flavors, self.catalogue))])
        return engine

    def check(self, asked: list[MachineRequest]) -> None:
        anew = self.anew()
        for key, site in self.sites.items():
            assert self.engine.free(key) == anew.free(key)
            assert dict(self.engine.usage(key).stacks) == dict(anew.usage(key).stacks)
            for request in asked:
                assert self.engine.could_help(request, site, site) == anew.could_help(request, site, site)
        for request in asked:
            assert self.engine.decide(request) == anew.decide(request)
            assert self.engine.explain(request) == anew.explain(request)


steps = st.one_of(
    st.tuples(st.just("configure"), st.sampled_from(POLICIES), st.sampled_from(CATALOGUES)),
    st.tuples(st.just("put"), sites),
    st.tuples(st.just("remove"), st.sampled_from(KEYS)),
    st.tuples(st.just("place"), st.integers(0, 3)),
    st.tuples(st.just("release"), st.integers(0, 100)),
)


@given(
    st.lists(sites, min_size=3, max_size=6),
    st.lists(requests, min_size=4, max_size=4),
    st.lists(steps, min_size=4, max_size=12),
)
@settings(max_examples=examples(60))
def test_the_last_policy_catalogue_and_sites_decide_as_if_there_had_never_been_others(
    there: list[Site], asked: list[MachineRequest], happens: list[tuple[object, ...]]
) -> None:
    configured = Configured()
    for site in there:
        configured.put(site)
    configured.check(asked)
    for step, *arguments in happens:
        match step, *arguments:
            case "configure", SchedulerPolicy() as policy, dict() as catalogue:
                configured.configure(policy, catalogue)
            case "put", Site() as site:
                configured.put(site)
            case "remove", SiteKey() as key:
                configured.remove(key)
            case "place", int() as number:
                configured.place(asked[number])
            case "release", int() as number:
                configured.release(number)
        configured.check(asked)
