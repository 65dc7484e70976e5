"""Decides where replicas of stacks go, and keeps count of what they take.

Requests that are alike share a *shape*: what they ask for and what they take.  For each shape there is a ranking of
sites, in which only those are judged again that changed since: a reservation changes one site.  So a decision costs as
much as what happened since the last one like it, not as much as there are sites.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence, Sized
from typing import Final, Protocol, TypeVar

from farflung.scheduling.claims import need_of, recounted
from farflung.scheduling.evaluation import Explanation, Judge, Measure, Verdict, refusal_text
from farflung.scheduling.plugins import Asked
from farflung.scheduling.policy import Policy
from farflung.scheduling.ranking import Candidate, Ranking
from farflung.scheduling.sites import Ledger, Places, Standing
from farflung.scheduling.strategies import Bounds, by_region, divide, possible
from farflung.scheduling.values import (
    Capacity,
    Chosen,
    Decision,
    Flavor,
    LocalStrategy,
    Request,
    Reservation,
    Site,
    SiteKey,
)

MOST_REPLICAS: Final = 10_000  #: of one request
MOST_JUDGEMENTS: Final = 600_000  #: that are remembered, of sites for shapes
SHAPES: Final = (4, 512)  #: that are remembered, at least and at most
OTHERS: Final = "\0"  #: a tenant that no site names
NOBODY: Final[Mapping[SiteKey, str]] = {}


class Remembered(Sized, Protocol):
    used: int  #: when it was of use last


T = TypeVar("T", bound=Remembered)


class Engine:
    """Not for several threads.  The order in which sites are put does not matter."""

    def __init__(
        self, policy: Policy, catalogue: Mapping[str, Flavor], *, most_judgements: int = MOST_JUDGEMENTS
    ) -> None:
        self._most_judgements = most_judgements
        self._policy = policy
        self._catalogue = catalogue
        self._ledger = Ledger()
        self._standings: dict[SiteKey, Standing] = {}
        self._version = 0
        self._places = Places()
        self._tenants: Counter[str] = Counter()  #: that sites name → how many do
        self._rankings: dict[Hashable, Ranking] = {}  #: by shape
        self._judges: dict[Hashable, Judge] = {}
        self._measures: dict[Hashable, Measure] = {}
        self._moment = 0

    # --- what there is ----------------------------------------------------------------------------

    def put_site(self, site: Site) -> None:
        """What is held there stays, also if the site was not known until now."""
        before = self._standings.get(site.key)
        if before is not None and before.site == site:
            return
        self._describe(before.site if before else None, site)
        self._stand(site)
        for ranking in self._rankings.values():
            ranking.note(site.key)

    def remove_site(self, key: SiteKey) -> None:
        """What is held there is held until it is released: the site may come back."""
        if standing := self._standings.pop(key, None):
            self._describe(standing.site, None)
            for ranking in self._rankings.values():
                ranking.note(key)

    def site(self, key: SiteKey) -> Site | None:
        standing = self._standings.get(key)
        return standing.site if standing else None

    def sites(self) -> Iterator[Site]:
        return (standing.site for standing in self._standings.values())

    def configure(self, policy: Policy, catalogue: Mapping[str, Flavor]) -> bool:
        """From now on, as if it had always been so: what is held stays, and is counted by the new catalogue.  False if
        nothing is new."""
        if (policy, catalogue) == (self._policy, self._catalogue):
            return False
        self._policy, self._catalogue = policy, catalogue
        self._rankings.clear()
        self._judges.clear()
        self._measures.clear()
        self.reserve(self.counted(self._ledger.reservations()))
        return True

    def counted(self, reservations: Iterable[Reservation]) -> tuple[Reservation, ...]:
        """As the catalogue has it."""
        return tuple([self._counted(one) for one in reservations])

    def free(self, key: SiteKey) -> Capacity | None:
        """What is left there, never less than nothing."""
        standing = self._standings.get(key)
        return standing.free() if standing else None

    # --- what is held -----------------------------------------------------------------------------

    def reserve(self, reservations: Iterable[Reservation]) -> None:
        """Whatever there is room for: `decide` sees to that.  What a uid has held until now is released."""
        touched = set()
        for reservation in reservations:
            before = self._ledger.reserve(reservation)
            if before != reservation:
                touched.add(reservation.site)
                if before is not None:
                    touched.add(before.site)
        for key in touched:
            self._use(key)

    def release(self, uid: str) -> Reservation | None:
        reservation = self._ledger.release(uid)
        if reservation is not None:
            self._use(reservation.site)
        return reservation

    def reservation(self, uid: str) -> Reservation | None:
        return self._ledger.get(uid)

    def reserved_at(self, key: SiteKey) -> Mapping[str, Reservation]:
        return self._ledger.stacks(key)

    # --- decisions --------------------------------------------------------------------------------

    def decide(self, request: Request, *, excluded: Mapping[SiteKey, str] = NOBODY) -> Decision:
        """Where all replicas go, or why they do not.  Nothing is reserved.  `excluded`: sites that will not do, and
        why."""
        if not 0 < request.replicas <= MOST_REPLICAS:
            return Decision(sites=len(self._standings), message=f"there may be 1 to {MOST_REPLICAS} replicas")
        ranking = self._ranking(request)
        if shares := _shares(request, ranking, excluded):
            chosen = (one for candidate, number in shares for one in _chosen(ranking.judge, candidate, number))
            return Decision(tuple(chosen), sites=len(self._standings))
        return self._refusal(request, ranking, excluded)

    def reservations_of(self, request: Request, decision: Decision) -> list[Reservation]:
        """What is to be reserved for it.  Replicas are numbered from 0."""
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

    def could_help(self, request: Request, before: Site | None, after: Site | None) -> bool:
        """Whether a request that was refused may fit, now that a site is another one, or something was released there.

        To be asked after the change was made here: then a site that has no room for one replica helps nobody.
        """
        if after is None or after.key not in self._standings:
            return False
        ranking = self._rankings.get(self._shape(request))
        if ranking is not None:
            return ranking.candidate(after.key) is not None
        standing = self._standings[after.key]
        refusal = self._judge(request).describe(standing.site).refusal
        return not refusal and self._measure(request).of(standing).number > 0

    def explain(self, request: Request, *, excluded: Mapping[SiteKey, str] = NOBODY) -> Explanation:
        """The decision, and what there is to say of each site."""
        judge, measure = self._judge(request), self._measure(request)
        verdicts = [_verdict(judge, measure, standing, excluded) for standing in self._in_order()]
        fitting = [one for one in verdicts if not one.refusal]
        ranked = {candidate.site.key: place for place, candidate in enumerate(self._ranking(request).candidates())}
        fitting.sort(key=lambda verdict: ranked[verdict.site])
        refused = (one for one in verdicts if one.refusal)
        decision = self.decide(request, excluded=excluded)
        return Explanation(decision, judge.weighed, judge.indifferent, (*fitting, *refused))

    # --- how it remembers -------------------------------------------------------------------------

    def _stand(self, site: Site) -> None:
        self._version += 1
        self._standings[site.key] = Standing(site, self._ledger.usage(site.key), self._version)

    def _counted(self, reservation: Reservation) -> Reservation:
        claim = recounted(reservation.claim, self._catalogue)
        return reservation if claim is reservation.claim else reservation._replace(claim=claim)

    def _use(self, key: SiteKey) -> None:
        """Something was reserved or released there."""
        if standing := self._standings.get(key):
            self._stand(standing.site)
            for ranking in self._rankings.values():
                ranking.note_use(key)

    def _describe(self, before: Site | None, after: Site | None) -> None:
        cheapest = self._cheapest()
        if before is not None:
            self._places.remove(before)
            for tenant in before.tenants:
                self._tenants[tenant] -= 1
                if not self._tenants[tenant]:
                    del self._tenants[tenant]
        if after is not None:
            self._places.add(after)
            self._tenants.update(after.tenants)
        if cheapest != self._cheapest():
            self._rankings.clear()
            self._judges.clear()

    def _cheapest(self) -> float | None:
        return self._places.cheapest if self._policy.weighs("Price") else None

    def _in_order(self) -> list[Standing]:
        return sorted(self._standings.values(), key=lambda standing: standing.order)

    def _ranking(self, request: Request) -> Ranking:
        return self._remembered(self._rankings, self._shape(request), lambda: self._rank(request))

    def _rank(self, request: Request) -> Ranking:
        ranking = Ranking(self._judge(request), self._measure(request), self._standings)
        keys = self._places.possible(request.selector, self._policy.filters)
        ranking.note_all(self._standings if keys is None else keys)
        return ranking

    def _judge(self, request: Request) -> Judge:
        asked = self._asked(request)
        return self._remembered(self._judges, asked, lambda: Judge(self._policy, asked, self._cheapest()))

    def _measure(self, request: Request) -> Measure:
        several = request.replicas > 1
        return self._remembered(
            self._measures,
            (request.items, several),
            lambda: Measure(need_of(request.items, self._catalogue), self._policy, several=several),
        )

    def _remembered(self, known: dict[Hashable, T], key: Hashable, make: Callable[[], T]) -> T:
        """What was not used for longest is forgotten."""
        self._moment += 1
        found = known.get(key)
        if found is None:
            known[key] = found = make()
            found.used = self._moment
            self._forget(known)
        found.used = self._moment
        return found

    def _forget(self, known: dict[Hashable, T]) -> None:
        fewest, most = SHAPES
        may_be_many = len(known) * len(self._standings) > self._most_judgements
        judgements = sum(map(len, known.values())) if may_be_many else 0
        while len(known) > most or (len(known) > fewest and judgements > self._most_judgements):
            key, oldest = min(known.items(), key=lambda item: item[1].used)
            judgements -= len(oldest)
            del known[key]

    def _shape(self, request: Request) -> Hashable:
        return request.items, request.selector, self._tenant(request), self._current(request), request.replicas > 1

    def _asked(self, request: Request) -> Asked:
        return Asked(request.selector, self._tenant(request), self._current(request))

    def _tenant(self, request: Request) -> str:
        """All tenants are alike that no site names, unless it matters whose stacks are there."""
        matters = request.selector.affinity or request.selector.antiaffinity or request.tenant in self._tenants
        return request.tenant if matters else OTHERS

    def _current(self, request: Request) -> frozenset[SiteKey]:
        return frozenset(request.current) if request.current and self._policy.weighs("Steady") else frozenset()

    def _refusal(self, request: Request, ranking: Ranking, excluded: Mapping[SiteKey, str]) -> Decision:
        candidates = ranking.candidates()
        fitting = _without(candidates, excluded)
        reasons = Counter(ranking.reasons())
        reasons.update(excluded[one.site.key] for one in candidates if one.site.key in excluded)
        number = max(
            (possible(sites, request.replicas, _bounds(request)) for sites in _choices(request, fitting)), default=0
        )
        message = refusal_text(request, number, len(fitting), len(self._standings), reasons)
        return Decision(reasons=reasons, sites=len(self._standings), message=message)


def _shares(request: Request, ranking: Ranking, excluded: Mapping[SiteKey, str]) -> list[tuple[Candidate, int]]:
    """Nothing if not all replicas can be placed."""
    candidates = ranking.candidates()
    if _one_will_do(request):
        for candidate in candidates:
            if candidate.number >= request.replicas and candidate.site.key not in excluded:
                return [(candidate, request.replicas)]
    if request.replicas == 1:
        return []
    fitting = _without(candidates, excluded)
    if request.selector.strategy is LocalStrategy.SPREAD and not request.selector.region_alone:
        fitting = _enough(fitting, request)
    for sites in _choices(request, fitting):
        if shares := divide(request.selector.strategy, sites, request.replicas, _bounds(request)):
            return [(fitting[place], number) for place, number in shares]
    return []


def _without(candidates: Sequence[Candidate], excluded: Mapping[SiteKey, str]) -> Sequence[Candidate]:
    return [one for one in candidates if one.site.key not in excluded] if excluded else candidates


def _enough(candidates: Sequence[Candidate], request: Request) -> Sequence[Candidate]:
    """The best ones, if these can take all replicas and as many clusters are to be used as can be."""
    best = candidates[: min(request.replicas, request.selector.max_clusters or request.replicas)]
    return best if sum(one.number for one in best) >= request.replicas else candidates


def _one_will_do(request: Request) -> bool:
    """One site that takes all is the best."""
    selector = request.selector
    if selector.min_clusters > 1:
        return False
    centralized = selector.strategy is LocalStrategy.CENTRALIZE and not selector.region_alone
    return request.replicas == 1 or centralized


def _choices(request: Request, candidates: Sequence[Candidate]) -> list[list[tuple[int, int]]]:
    """Sites that may be taken together, by their places in the list; the best choice first."""
    if request.selector.region_alone:
        return by_region((place, one.site.region, one.number) for place, one in enumerate(candidates))
    return [[(place, one.number) for place, one in enumerate(candidates)]]


def _bounds(request: Request) -> Bounds:
    return Bounds(request.selector.min_clusters, request.selector.max_clusters)


def _chosen(judge: Judge, candidate: Candidate, number: int) -> Iterator[Chosen]:
    score = round(judge.total(candidate.points), 3)
    for portion in candidate.room.portions:
        combination = portion.combination
        for _ in range(min(number, portion.number)):
            yield Chosen(candidate.site.key, combination.flavors, score, combination.claim)
        number -= min(number, portion.number)


def _verdict(judge: Judge, measure: Measure, standing: Standing, excluded: Mapping[SiteKey, str]) -> Verdict:
    key = standing.site.key
    described = judge.describe(standing.site)
    if described.refusal:
        return Verdict(key, described.refusal)
    room = measure.of(standing)
    if not room.number or key in excluded:
        return Verdict(key, room.refusal or excluded[key], shortage=measure.shortage(standing))
    points = judge.points(described, room, standing)
    flavors = room.portions[0].combination.flavors
    return Verdict(key, "", room.number, flavors, judge.scores(standing, room), round(judge.total(points), 3))
