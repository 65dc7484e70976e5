"""What a policy says of one site and one request: why it does not fit, or how good it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from farflung.scheduling.claims import Need
from farflung.scheduling.fit import Portion, Shortage, room_for, shortage
from farflung.scheduling.plugins import OF_ROOM, OF_SITES, OF_STACKS, Asked, OfSite, OfStacks, checks_for
from farflung.scheduling.policy import Policy
from farflung.scheduling.sites import Standing
from farflung.scheduling.values import Decision, Request, Site, SiteKey

#: scores are counted in millionths, because sums of whole numbers do not depend on their order
MILLION: Final = 1_000_000
MOST_REASONS: Final = 10  #: in one message


class Described(NamedTuple):
    """What can be said of a site as long as its description stays the same."""

    site: Site
    refusal: str
    points: int  #: of scorers of sites, weighted


class Fit(NamedTuple):
    """What can be said of what a site has left for some items, until something is reserved or released there."""

    version: int  #: of the standing
    portions: tuple[Portion, ...]  #: the best liked first
    number: int  #: of replicas in all portions together
    refusal: str  #: why there is no room, if there is none
    points: int  #: of scorers of room, weighted


class Judge:
    """For requests that ask for the same.  It remembers what it said of descriptions."""

    def __init__(self, policy: Policy, asked: Asked, cheapest: float | None) -> None:
        self.used = 0
        self.weighed: dict[str, int] = {}  #: the scorers that have a say, with their weights
        self._known: dict[SiteKey, Described] = {}
        self._checks = checks_for(asked, policy.filters)
        self._of_sites: list[tuple[str, int, OfSite]] = []
        self._of_stacks: list[tuple[str, int, OfStacks]] = []
        self._same: dict[str, float] = {}  #: scores that all sites get
        for name, weight in policy.scorers:
            if self._admit(name, weight, asked, cheapest):
                self.weighed[name] = weight
        self._same_points = sum(self.weighed[name] * millionths(score) for name, score in self._same.items())
        self._weights = sum(self.weighed.values())

    def _admit(self, name: str, weight: int, asked: Asked, cheapest: float | None) -> bool:
        """Whether it has a say."""
        if name in OF_SITES:
            of_site = OF_SITES[name](asked, cheapest)
            if of_site is not None:
                self._of_sites.append((name, weight, of_site))
            return of_site is not None
        if name in OF_STACKS:
            of_stacks = OF_STACKS[name](asked)
            if isinstance(of_stacks, float):
                self._same[name] = of_stacks
            else:
                self._of_stacks.append((name, weight, of_stacks))
        return True

    @property
    def indifferent(self) -> Mapping[str, float]:
        """Scorers that give all sites the same, because nothing is asked for that they look at."""
        return self._same

    def __len__(self) -> int:
        """Of how many sites it remembers something."""
        return len(self._known)

    def forget(self, key: SiteKey) -> None:
        self._known.pop(key, None)

    def describe(self, site: Site) -> Described:
        known = self._known.get(site.key)
        if known is None or known.site is not site:
            known = self._known[site.key] = self._describe(site)
        return known

    def _describe(self, site: Site) -> Described:
        for check in self._checks:
            if reason := check(site):
                return Described(site, reason, 0)
        points = self._same_points
        for _, weight, score in self._of_sites:
            points += weight * millionths(score(site))
        return Described(site, "", points)

    def points(self, described: Described, room: Fit, standing: Standing) -> int:
        """Of all scorers together."""
        points = described.points + room.points
        for _, weight, score in self._of_stacks:
            points += weight * millionths(score(standing.usage))
        return points

    def scores(self, standing: Standing, room: Fit) -> Mapping[str, float]:
        """By each scorer that has a say, for people."""
        best = room.portions[0].combination
        scores = self._same | {name: score(standing.site) for name, _, score in self._of_sites}
        scores |= {name: score(standing.usage) for name, _, score in self._of_stacks}
        return scores | {name: score(standing, best) for name, score in OF_ROOM.items() if name in self.weighed}

    def total(self, points: int) -> float:
        """0 to 100: the weighted mean."""
        return points / (self._weights * MILLION) if self._weights else 0.0


def millionths(score: float) -> int:
    return round(score * MILLION)


class Measure:
    """For requests that take the same.  It remembers what it measured, as long as that holds."""

    def __init__(self, need: Need, policy: Policy, *, several: bool) -> None:
        self.used = 0
        self._need = need
        self._several = several
        self._fake_spot = policy.spot_fake
        self._scorers = [(weight, OF_ROOM[name]) for name, weight in policy.scorers if name in OF_ROOM]
        self._known: dict[SiteKey, Fit] = {}

    def __len__(self) -> int:
        """Of how many sites it remembers something."""
        return len(self._known)

    def of(self, standing: Standing) -> Fit:
        key = standing.site.key
        known = self._known.get(key)
        if known is None or known.version != standing.version:
            known = self._known[key] = self._measure(standing)
        return known

    def shortage(self, standing: Standing) -> Shortage | None:
        """How much is missing, if there is no room because something is short."""
        return shortage(self._need, standing, self.of(standing).refusal, fake_spot=self._fake_spot)

    def forget(self, key: SiteKey) -> None:
        self._known.pop(key, None)

    def _measure(self, standing: Standing) -> Fit:
        portions, refusal = room_for(self._need, standing, several=self._several, fake_spot=self._fake_spot)
        number = points = 0
        for portion in portions:
            number += portion.number
        if portions:
            best = portions[0].combination
            for weight, score in self._scorers:
                points += weight * millionths(score(standing, best))
        return Fit(standing.version, portions, number, refusal, points)


class Verdict(NamedTuple):
    """What is to be said of one site."""

    site: SiteKey
    refusal: str = ""  #: why it does not fit; empty: it does
    number: int = 0  #: of replicas that it has room for
    flavors: tuple[str, ...] = ()  #: that the first one would get, for each item
    scores: Mapping[str, float] = {}  #: by scorer, 0 to 100
    total: float = 0.0
    shortage: Shortage | None = None  #: how much is missing, if it does not fit because something is short


@dataclass(frozen=True, slots=True)
class Explanation:
    decision: Decision
    weights: Mapping[str, int]  #: of the scorers that have a say
    indifferent: Mapping[str, float]  #: what some of them give to every site, whatever it is
    verdicts: tuple[Verdict, ...]  #: the best site first, then by name those that do not fit


def refusal_text(request: Request, possible: int, fitting: int, sites: int, reasons: Mapping[str, int]) -> str:
    """Why a request is not placed: how many replicas could be, and the reasons of sites, the most frequent first."""
    if not sites:
        return "there are no clusters"
    text = f"{fitting}/{sites} clusters fit"
    if request.replicas > 1 or fitting:
        text = f"{possible} of {request.replicas} replicas can be placed{_within(request)}; {text}"
    return f"{text}: {_counted(reasons)}" if reasons else text


def _within(request: Request) -> str:
    selector = request.selector
    bounds = [f"at least {selector.min_clusters}"] if selector.min_clusters > 1 else []
    bounds += [f"at most {selector.max_clusters}"] if selector.max_clusters else []
    clusters = f" in {' and '.join(bounds)} clusters" if bounds else ""
    return f"{clusters} in one region" if selector.region_alone else clusters


def _counted(reasons: Mapping[str, int]) -> str:
    ranked = sorted(reasons.items(), key=lambda one: (-one[1], one[0]))
    texts = [f"{number} {reason}" for reason, number in ranked[:MOST_REASONS]]
    if others := sum(number for _, number in ranked[MOST_REASONS:]):
        texts.append(f"{others} for other reasons")
    return ", ".join(texts)
