"""The scheduling engine: places replicas of stacks on sites, and keeps the ledger of their reservations.

Requests with equal criteria and equal needs share a *shape*.  The engine caches a ranking of sites per shape and
evaluates only the sites that changed since, so the cost of a decision does not grow with the number of sites.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence, Sized
from typing import Final, Protocol, TypeVar

from farflung.lib.groups import subtract_one
from farflung.machines.engine.claims import compute_need, recount
from farflung.machines.engine.evaluation import (
    FitEvaluator,
    SchedulingExplanation,
    SiteEvaluator,
    SiteVerdict,
    format_refusal,
)
from farflung.machines.engine.plugins import Criteria
from farflung.machines.engine.policy import SchedulerPolicy
from farflung.machines.engine.ranking import RankedSite, Ranking
from farflung.machines.engine.sites import ReservationLedger, SiteIndex, SiteState, SiteUsage
from farflung.machines.engine.strategies import ClusterBounds, divide, group_by_region, placeable
from farflung.machines.engine.values import (
    Capacity,
    Flavor,
    LocalStrategy,
    MachineRequest,
    PlacedReplica,
    Reservation,
    SchedulingDecision,
    Site,
    SiteKey,
)

MAX_REPLICAS: Final = 10_000  #: per request
MAX_EVALUATIONS: Final = 600_000  #: most cached evaluations of a site for a shape
CACHED_SHAPES: Final = (4, 512)  #: fewest and most cached shapes
ANY_TENANT: Final = "\0"  #: stands for every tenant that no site names
NO_EXCLUSIONS: Final[Mapping[SiteKey, str]] = {}


class CacheEntry(Sized, Protocol):
    used: int  #: logical time of the last use


T = TypeVar("T", bound=CacheEntry)


class SchedulingEngine:
    """Not thread-safe.  Decisions do not depend on the order in which sites are added."""

    def __init__(
        self, policy: SchedulerPolicy, catalogue: Mapping[str, Flavor], *, max_evaluations: int = MAX_EVALUATIONS
    ) -> None:
        self._max_evaluations = max_evaluations
        self._policy = policy
        self._catalogue = catalogue
        self._ledger = ReservationLedger()
        self._states: dict[SiteKey, SiteState] = {}
        self._version = 0
        self._index = SiteIndex()
        self._tenants: Counter[str] = Counter()  #: tenant → number of sites that name it
        self._rankings: dict[Hashable, Ranking] = {}  #: by shape
        self._evaluators: dict[Hashable, SiteEvaluator] = {}
        self._fit_evaluators: dict[Hashable, FitEvaluator] = {}
        self._clock = 0

    # --- sites ------------------------------------------------------------------------------------

    def put_site(self, site: Site) -> None:
        """Reservations of the site are kept, even if the site is new."""
        before = self._states.get(site.key)
        if before is not None and before.site == site:
            return
        self._update_index(before.site if before else None, site)
        self._put_state(site)
        for ranking in self._rankings.values():
            ranking.mark_changed(site.key)

    def remove_site(self, key: SiteKey) -> None:
        """Reservations are kept until they are released: the site may be added again."""
        if state := self._states.pop(key, None):
            self._update_index(state.site, None)
            for ranking in self._rankings.values():
                ranking.mark_changed(key)

    def site(self, key: SiteKey) -> Site | None:
        state = self._states.get(key)
        return state.site if state else None

    def sites(self) -> Iterator[Site]:
        return (state.site for state in self._states.values())

    def configure(self, policy: SchedulerPolicy, catalogue: Mapping[str, Flavor]) -> bool:
        """Replace policy and catalogue, and recount all reservations.  False if nothing changed."""
        if (policy, catalogue) == (self._policy, self._catalogue):
            return False
        self._policy, self._catalogue = policy, catalogue
        self._rankings.clear()
        self._evaluators.clear()
        self._fit_evaluators.clear()
        self.reserve(self.counted(self._ledger.reservations()))
        return True

    def counted(self, reservations: Iterable[Reservation]) -> tuple[Reservation, ...]:
        """Reservations with the sizes of the catalogue."""
        return tuple([self._counted(one) for one in reservations])

    def free(self, key: SiteKey) -> Capacity | None:
        """Free capacity, never negative."""
        state = self._states.get(key)
        return state.free() if state else None

    # --- reservations -----------------------------------------------------------------------------

    def reserve(self, reservations: Iterable[Reservation]) -> None:
        """Replace the reservation of each uid, without a capacity check: `decide` checks capacity."""
        touched = set()
        for reservation in reservations:
            before = self._ledger.reserve(reservation)
            if before != reservation:
                touched.add(reservation.site)
                if before is not None:
                    touched.add(before.site)
        for key in touched:
            self._on_usage(key)

    def release(self, uid: str) -> Reservation | None:
        reservation = self._ledger.release(uid)
        if reservation is not None:
            self._on_usage(reservation.site)
        return reservation

    def reservation(self, uid: str) -> Reservation | None:
        return self._ledger.get(uid)

    def usage(self, key: SiteKey) -> SiteUsage:
        """The sum of the reservations at a site, which need not exist.  Read-only; get it again after each change."""
        return self._ledger.usage(key)

    # --- decisions --------------------------------------------------------------------------------

    def decide(self, request: MachineRequest, *, excluded: Mapping[SiteKey, str] = NO_EXCLUSIONS) -> SchedulingDecision:
        """Place all replicas, or explain why not.  Reserves nothing.  `excluded`: site → reason."""
        if not 0 < request.replicas <= MAX_REPLICAS:
            return SchedulingDecision(sites=len(self._states), message=f"there may be 1 to {MAX_REPLICAS} replicas")
        ranking = self._ranking(request)
        if shares := _shares(request, ranking, excluded):
            chosen = (
                one for candidate, number in shares for one in _placed_replicas(ranking.evaluator, candidate, number)
            )
            return SchedulingDecision(tuple(chosen), sites=len(self._states))
        return self._refusal(request, ranking, excluded)

    def reservations_of(self, request: MachineRequest, decision: SchedulingDecision) -> list[Reservation]:
        """The reservations for a decision.  Replicas are numbered from 0."""
        labels = tuple(sorted(request.labels.items()))
        numbered = request.numbered or request.replicas > 1
        return [
            Reservation(
                f"{request.uid}/{number}" if numbered else request.uid,
                chosen.site,
                chosen.claim,
                request.tenant,
                labels,
            )
            for number, chosen in enumerate(decision.chosen)
        ]

    def could_help(self, request: MachineRequest, before: Site | None, after: Site | None) -> bool:
        """Whether a refused request may fit after a site changed or a reservation was released.

        Call it after the change: a site without capacity for one replica helps no request.
        """
        if after is None or after.key not in self._states:
            return False
        ranking = self._rankings.get(self._shape(request))
        if ranking is not None:
            return ranking.candidate(after.key) is not None
        state = self._states[after.key]
        refusal = self._evaluator(request).describe(state.site).refusal
        return not refusal and self._fit_evaluator(request).of(state).number > 0

    def explain(
        self, request: MachineRequest, *, excluded: Mapping[SiteKey, str] = NO_EXCLUSIONS
    ) -> SchedulingExplanation:
        """The decision, and a verdict per site."""
        evaluator, fit_evaluator = self._evaluator(request), self._fit_evaluator(request)
        verdicts = [_verdict(evaluator, fit_evaluator, state, excluded) for state in self._ordered_states()]
        fitting = [one for one in verdicts if not one.refusal]
        ranked = {candidate.site.key: place for place, candidate in enumerate(self._ranking(request).candidates())}
        fitting.sort(key=lambda verdict: ranked[verdict.site])
        refused = (one for one in verdicts if one.refusal)
        decision = self.decide(request, excluded=excluded)
        return SchedulingExplanation(decision, evaluator.weights, evaluator.indifferent, (*fitting, *refused))

    # --- caches -----------------------------------------------------------------------------------

    def _put_state(self, site: Site) -> None:
        self._version += 1
        self._states[site.key] = SiteState(site, self._ledger.usage(site.key), self._version)

    def _counted(self, reservation: Reservation) -> Reservation:
        claim = recount(reservation.claim, self._catalogue)
        return reservation if claim is reservation.claim else reservation._replace(claim=claim)

    def _on_usage(self, key: SiteKey) -> None:
        """The reservations of the site changed."""
        if state := self._states.get(key):
            self._put_state(state.site)
            for ranking in self._rankings.values():
                ranking.mark_usage_changed(key)

    def _update_index(self, before: Site | None, after: Site | None) -> None:
        cheapest = self._cheapest()
        if before is not None:
            self._index.remove(before)
            for tenant in before.tenants:
                subtract_one(self._tenants, tenant)
        if after is not None:
            self._index.add(after)
            self._tenants.update(after.tenants)
        if cheapest != self._cheapest():
            self._rankings.clear()
            self._evaluators.clear()

    def _cheapest(self) -> float | None:
        return self._index.cheapest if self._policy.weighs("Price") else None

    def _ordered_states(self) -> list[SiteState]:
        return sorted(self._states.values(), key=lambda state: state.order)

    def _ranking(self, request: MachineRequest) -> Ranking:
        return self._cached(self._rankings, self._shape(request), lambda: self._rank(request))

    def _rank(self, request: MachineRequest) -> Ranking:
        ranking = Ranking(self._evaluator(request), self._fit_evaluator(request), self._states)
        keys = self._index.possible(request.selector, self._policy.filters)
        ranking.mark_all_changed(self._states if keys is None else keys)
        return ranking

    def _evaluator(self, request: MachineRequest) -> SiteEvaluator:
        criteria = self._criteria(request)
        return self._cached(self._evaluators, criteria, lambda: SiteEvaluator(self._policy, criteria, self._cheapest()))

    def _fit_evaluator(self, request: MachineRequest) -> FitEvaluator:
        several = request.replicas > 1
        return self._cached(
            self._fit_evaluators,
            (request.items, several),
            lambda: FitEvaluator(compute_need(request.items, self._catalogue), self._policy, several=several),
        )

    def _cached(self, known: dict[Hashable, T], key: Hashable, make: Callable[[], T]) -> T:
        """Get or create an entry; evict the least recently used ones."""
        self._clock += 1
        found = known.get(key)
        if found is None:
            known[key] = found = make()
            found.used = self._clock
            self._evict(known)
        found.used = self._clock
        return found

    def _evict(self, known: dict[Hashable, T]) -> None:
        fewest, most = CACHED_SHAPES
        may_exceed = len(known) * len(self._states) > self._max_evaluations
        evaluations = sum(map(len, known.values())) if may_exceed else 0
        while len(known) > most or (len(known) > fewest and evaluations > self._max_evaluations):
            key, oldest = min(known.items(), key=lambda item: item[1].used)
            evaluations -= len(oldest)
            del known[key]

    def _shape(self, request: MachineRequest) -> Hashable:
        return request.items, request.selector, self._tenant(request), self._current(request), request.replicas > 1

    def _criteria(self, request: MachineRequest) -> Criteria:
        return Criteria(request.selector, self._tenant(request), self._current(request))

    def _tenant(self, request: MachineRequest) -> str:
        """Tenants that no site names are equal, unless the request has stack affinity."""
        matters = request.selector.affinity or request.selector.antiaffinity or request.tenant in self._tenants
        return request.tenant if matters else ANY_TENANT

    def _current(self, request: MachineRequest) -> frozenset[SiteKey]:
        return frozenset(request.current) if request.current and self._policy.weighs("Steady") else frozenset()

    def _refusal(
        self, request: MachineRequest, ranking: Ranking, excluded: Mapping[SiteKey, str]
    ) -> SchedulingDecision:
        candidates = ranking.candidates()
        fitting = _without(candidates, excluded)
        reasons = Counter(ranking.reasons())
        reasons.update(excluded[one.site.key] for one in candidates if one.site.key in excluded)
        number = max(
            (placeable(sites, request.replicas, _bounds(request)) for sites in _candidate_groups(request, fitting)),
            default=0,
        )
        message = format_refusal(request, number, len(fitting), len(self._states), reasons)
        return SchedulingDecision(reasons=reasons, sites=len(self._states), message=message)


def _shares(request: MachineRequest, ranking: Ranking, excluded: Mapping[SiteKey, str]) -> list[tuple[RankedSite, int]]:
    """Empty if not all replicas can be placed."""
    candidates = ranking.candidates()
    if _prefers_one_site(request):
        for candidate in candidates:
            if candidate.number >= request.replicas and candidate.site.key not in excluded:
                return [(candidate, request.replicas)]
    if request.replicas == 1:
        return []
    fitting = _without(candidates, excluded)
    if request.selector.strategy is LocalStrategy.SPREAD and not request.selector.region_alone:
        fitting = _best_sufficient(fitting, request)
    for sites in _candidate_groups(request, fitting):
        if shares := divide(request.selector.strategy, sites, request.replicas, _bounds(request)):
            return [(fitting[place], number) for place, number in shares]
    return []


def _without(candidates: Sequence[RankedSite], excluded: Mapping[SiteKey, str]) -> Sequence[RankedSite]:
    return [one for one in candidates if one.site.key not in excluded] if excluded else candidates


def _best_sufficient(candidates: Sequence[RankedSite], request: MachineRequest) -> Sequence[RankedSite]:
    """The best sites if they fit all replicas, else all candidates."""
    best = candidates[: min(request.replicas, request.selector.max_clusters or request.replicas)]
    return best if sum(one.number for one in best) >= request.replicas else candidates


def _prefers_one_site(request: MachineRequest) -> bool:
    """Whether one site for all replicas is the best result."""
    selector = request.selector
    if selector.min_clusters > 1:
        return False
    centralized = selector.strategy is LocalStrategy.CENTRALIZE and not selector.region_alone
    return request.replicas == 1 or centralized


def _candidate_groups(request: MachineRequest, candidates: Sequence[RankedSite]) -> list[list[tuple[int, int]]]:
    """Groups of sites that may be used together, by list index; the best group first."""
    if request.selector.region_alone:
        return group_by_region((place, one.site.region, one.number) for place, one in enumerate(candidates))
    return [[(place, one.number) for place, one in enumerate(candidates)]]


def _bounds(request: MachineRequest) -> ClusterBounds:
    return ClusterBounds(request.selector.min_clusters, request.selector.max_clusters)


def _placed_replicas(evaluator: SiteEvaluator, candidate: RankedSite, number: int) -> Iterator[PlacedReplica]:
    score = round(evaluator.total(candidate.points), 3)
    for one in candidate.fit.fitted:
        combination = one.combination
        for _ in range(min(number, one.number)):
            yield PlacedReplica(candidate.site.key, combination.flavors, score, combination.claim)
        number -= min(number, one.number)


def _verdict(
    evaluator: SiteEvaluator, fit_evaluator: FitEvaluator, state: SiteState, excluded: Mapping[SiteKey, str]
) -> SiteVerdict:
    key = state.site.key
    described = evaluator.describe(state.site)
    if described.refusal:
        return SiteVerdict(key, described.refusal)
    fit = fit_evaluator.of(state)
    if not fit.number or key in excluded:
        return SiteVerdict(key, fit.refusal or excluded[key], shortage=fit_evaluator.shortage(state))
    points = evaluator.points(described, fit, state)
    flavors = fit.fitted[0].combination.flavors
    return SiteVerdict(key, "", fit.number, flavors, evaluator.scores(state, fit), round(evaluator.total(points), 3))
