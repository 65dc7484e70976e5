"""Whatever happened before, the engine decides as one that remembers nothing, and as its plain twin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from scheduling_twin import Twin
from scheduling_worlds import CATALOGUE, CHEAP, KEYS, requests, sites

from farflung.machines.engine.engine import SchedulingEngine
from farflung.machines.engine.policy import SchedulerPolicy, default_policy
from farflung.machines.engine.values import MachineRequest, SchedulingDecision, Site, SiteKey


class Pair:
    """An engine and its twin, to which the same happens."""

    def __init__(self, policy: SchedulerPolicy, max_evaluations: int) -> None:
        self.policy = policy
        self.engine = SchedulingEngine(policy, CATALOGUE, max_evaluations=max_evaluations)
        self.twin = Twin(CATALOGUE, cheap=policy is CHEAP)
        self.placed = 0

    def put(self, site: Site) -> None:
        self.engine.put_site(site)
        self.twin.sites[site.key] = site

    def remove(self, key: SiteKey) -> None:
        self.engine.remove_site(key)
        self.twin.sites.pop(key, None)

    def place(self, request: MachineRequest, excluded: Mapping[SiteKey, str]) -> None:
        self.placed += 1
        request = replace(request, uid=f"stack-{self.placed}")
        decision = self.engine.decide(request, excluded=excluded)
        self.check(request, excluded, decision)
        reservations = self.engine.reservations_of(request, decision)
        self.engine.reserve(reservations)
        self.engine.reserve(reversed(reservations))
        self.twin.held |= {one.uid: one for one in reservations}
        for chosen in decision.chosen:
            used, totals = self.twin.usage(chosen.site), self.twin.totals(self.twin.sites[chosen.site])
            assert all(used[name] <= totals.get(name, used[name]) for name in self.twin.taken(request, chosen.flavors))

    def release(self, number: int) -> None:
        if self.twin.held:
            uid = sorted(self.twin.held)[number % len(self.twin.held)]
            assert self.engine.release(uid) == self.twin.held.pop(uid)
            assert self.engine.release(uid) is None

    def check(self, request: MachineRequest, excluded: frozenset[SiteKey], decision: SchedulingDecision) -> None:
        assert [(one.site, one.flavors) for one in decision.chosen] == self.twin.decide(request, excluded)
        assert all(0 <= one.score <= 100 for one in decision.chosen)
        assert len(decision.chosen) in (0, request.replicas)
        assert decision.is_placed == (not decision.message)
        if not decision.is_placed:
            ranked, reasons = self.twin.rank(request, excluded)
            assert dict(decision.reasons) == dict(reasons)
            assert decision.sites == len(ranked) + sum(reasons.values())
        fitting = [site.key for site, _ in self.twin.rank(request)[0]]
        assert [one.site for one in self.engine.explain(request).verdicts if not one.refusal] == fitting
        for key, site in self.twin.sites.items():
            assert self.engine.could_help(request, site, site) == (key in fitting)
        assert self.fresh().decide(request, excluded=excluded) == decision

    def fresh(self) -> SchedulingEngine:
        """One that has just been started, and heard of everything in another order."""
        engine = SchedulingEngine(self.policy, CATALOGUE)
        engine.reserve(reversed(self.twin.held.values()))
        for site in sorted(self.twin.sites.values(), key=lambda site: site.key, reverse=True):
            engine.put_site(site)
        return engine

    def check_counts(self) -> None:
        for key, site in self.twin.sites.items():
            used, free = self.twin.usage(key), self.engine.free(key)
            assert free is not None
            for name, total in self.twin.totals(site).items():
                kind, _, word = name.partition(" ")
                left = {"flavor": free.flavors, "storage": free.storage}.get(kind, {}).get(word)
                assert (getattr(free, kind) if left is None else left) == max(0, total - used[name])
            assert dict(self.engine.usage(key).stacks) == {
                u: one for u, one in self.twin.held.items() if one.site == key
            }


operations = st.one_of(
    st.tuples(st.just("put"), sites),
    st.tuples(st.just("place"), st.integers(0, 5), st.sampled_from([(), (), (), (KEYS[0],), (KEYS[1], KEYS[3])])),
    st.tuples(st.just("place"), st.integers(0, 5), st.just(())),
    st.tuples(st.just("release"), st.integers(0, 100)),
    st.tuples(st.just("remove"), st.sampled_from(KEYS)),
)


@given(
    st.lists(sites, min_size=5, max_size=9),
    st.lists(requests, min_size=6, max_size=6),
    st.lists(operations, min_size=6, max_size=15),
    st.sampled_from([default_policy(), CHEAP]),
    st.sampled_from([0, 1_000_000]),
)
@settings(max_examples=examples(100))
def test_any_history_leads_to_what_the_twin_decides(
    there: list[Site],
    asked: list[MachineRequest],
    happens: list[tuple[object, ...]],
    policy: SchedulerPolicy,
    most: int,
) -> None:
    pair = Pair(policy, most)
    for site in there:
        pair.put(site)
    for operation, *arguments in happens:
        match operation, *arguments:
            case "put", Site() as site:
                pair.put(site)
            case "remove", SiteKey() as key:
                pair.remove(key)
            case "place", int() as number, tuple() as excluded:
                pair.place(asked[number], dict.fromkeys(excluded, "excluded"))
            case "release", int() as number:
                pair.release(number)
        pair.check_counts()
