"""Evaluates one site for one request: refusal or score, and explanations of decisions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from farflung.machines.engine.claims import ResourceNeed
from farflung.machines.engine.fit import FittedReplicas, Shortage, find_shortage, fit_replicas
from farflung.machines.engine.plugins import (
    FIT_SCORERS,
    SITE_SCORERS,
    STACK_SCORERS,
    Criteria,
    SiteScorer,
    StackScorer,
    checks_for,
)
from farflung.machines.engine.policy import SchedulerPolicy
from farflung.machines.engine.sites import SiteState
from farflung.machines.engine.values import MachineRequest, SchedulingDecision, Site, SiteKey

#: scores are integers in millionths, so that sums do not depend on the order
MILLION: Final = 1_000_000
MAX_REASONS: Final = 10  #: in one message


class SiteEvaluation(NamedTuple):
    """The result of filters and site scorers, valid until the site changes."""

    site: Site
    refusal: str
    points: int  #: weighted, of site scorers


class Fit(NamedTuple):
    """How many replicas fit, valid until the reservations of the site change."""

    version: int  #: of the SiteState
    fitted: tuple[FittedReplicas, ...]  #: the preferred flavors first
    number: int  #: of replicas
    refusal: str  #: why no replica fits
    points: int  #: weighted, of fit scorers


class SiteEvaluator:
    """Filters and scores sites for equal criteria, and caches the results."""

    def __init__(self, policy: SchedulerPolicy, criteria: Criteria, cheapest: float | None) -> None:
        self.used = 0
        self.weights: dict[str, int] = {}  #: active scorer → weight
        self._known: dict[SiteKey, SiteEvaluation] = {}
        self._checks = checks_for(criteria, policy.filters)
        self._of_sites: list[tuple[str, int, SiteScorer]] = []
        self._of_stacks: list[tuple[str, int, StackScorer]] = []
        self._same: dict[str, float] = {}  #: constant scores
        for name, weight in policy.scorers:
            if self._admit(name, weight, criteria, cheapest):
                self.weights[name] = weight
        self._same_points = sum(self.weights[name] * to_millionths(score) for name, score in self._same.items())
        self._weights = sum(self.weights.values())

    def _admit(self, name: str, weight: int, criteria: Criteria, cheapest: float | None) -> bool:
        """Whether the scorer is active for these criteria."""
        if name in SITE_SCORERS:
            of_site = SITE_SCORERS[name](criteria, cheapest)
            if of_site is not None:
                self._of_sites.append((name, weight, of_site))
            return of_site is not None
        if name in STACK_SCORERS:
            of_stacks = STACK_SCORERS[name](criteria)
            if isinstance(of_stacks, float):
                self._same[name] = of_stacks
            else:
                self._of_stacks.append((name, weight, of_stacks))
        return True

    @property
    def indifferent(self) -> Mapping[str, float]:
        """Scorers that give every site the same score, because the request has no input for them."""
        return self._same

    def __len__(self) -> int:
        """Number of cached sites."""
        return len(self._known)

    def forget(self, key: SiteKey) -> None:
        self._known.pop(key, None)

    def describe(self, site: Site) -> SiteEvaluation:
        known = self._known.get(site.key)
        if known is None or known.site is not site:
            known = self._known[site.key] = self._evaluate(site)
        return known

    def _evaluate(self, site: Site) -> SiteEvaluation:
        for check in self._checks:
            if reason := check(site):
                return SiteEvaluation(site, reason, 0)
        points = self._same_points
        for _, weight, score in self._of_sites:
            points += weight * to_millionths(score(site))
        return SiteEvaluation(site, "", points)

    def points(self, described: SiteEvaluation, fit: Fit, state: SiteState) -> int:
        """The weighted sum of all scorers."""
        points = described.points + fit.points
        for _, weight, score in self._of_stacks:
            points += weight * to_millionths(score(state.usage))
        return points

    def scores(self, state: SiteState, fit: Fit) -> Mapping[str, float]:
        """Score by active scorer, for explanations."""
        best = fit.fitted[0].combination
        scores = self._same | {name: score(state.site) for name, _, score in self._of_sites}
        scores |= {name: score(state.usage) for name, _, score in self._of_stacks}
        return scores | {name: score(state, best) for name, score in FIT_SCORERS.items() if name in self.weights}

    def total(self, points: int) -> float:
        """The weighted mean, 0 to 100."""
        return points / (self._weights * MILLION) if self._weights else 0.0


def to_millionths(score: float) -> int:
    return round(score * MILLION)


class FitEvaluator:
    """Fits replicas for equal needs, and caches the results."""

    def __init__(self, need: ResourceNeed, policy: SchedulerPolicy, *, several: bool) -> None:
        self.used = 0
        self._need = need
        self._several = several
        self._fake_spot = policy.spot_fake
        self._scorers = [(weight, FIT_SCORERS[name]) for name, weight in policy.scorers if name in FIT_SCORERS]
        self._known: dict[SiteKey, Fit] = {}

    def __len__(self) -> int:
        """Number of cached sites."""
        return len(self._known)

    def of(self, state: SiteState) -> Fit:
        key = state.site.key
        known = self._known.get(key)
        if known is None or known.version != state.version:
            known = self._known[key] = self._fit(state)
        return known

    def shortage(self, state: SiteState) -> Shortage | None:
        """The missing amount, if a resource is insufficient."""
        return find_shortage(self._need, state, self.of(state).refusal, fake_spot=self._fake_spot)

    def forget(self, key: SiteKey) -> None:
        self._known.pop(key, None)

    def _fit(self, state: SiteState) -> Fit:
        fitted, refusal = fit_replicas(self._need, state, several=self._several, fake_spot=self._fake_spot)
        number = points = 0
        for one in fitted:
            number += one.number
        if fitted:
            best = fitted[0].combination
            for weight, score in self._scorers:
                points += weight * to_millionths(score(state, best))
        return Fit(state.version, fitted, number, refusal, points)


class SiteVerdict(NamedTuple):
    """The evaluation of one site in an explanation."""

    site: SiteKey
    refusal: str = ""  #: empty: the site fits
    number: int = 0  #: of replicas that fit
    flavors: tuple[str, ...] = ()  #: of the first replica, for each item
    scores: Mapping[str, float] = {}  #: by scorer, 0 to 100
    total: float = 0.0
    shortage: Shortage | None = None  #: if a resource is insufficient


@dataclass(frozen=True, slots=True)
class SchedulingExplanation:
    decision: SchedulingDecision
    weights: Mapping[str, int]  #: of the active scorers
    indifferent: Mapping[str, float]  #: constant scores
    verdicts: tuple[SiteVerdict, ...]  #: the best site first, then refused sites by name


def format_refusal(request: MachineRequest, possible: int, fitting: int, sites: int, reasons: Mapping[str, int]) -> str:
    """Why a request is not placed: the number of placeable replicas, and the most frequent refusals."""
    if not sites:
        return "there are no clusters"
    text = f"{fitting}/{sites} clusters fit"
    if request.replicas > 1 or fitting:
        text = f"{possible} of {request.replicas} replicas can be placed{_format_bounds(request)}; {text}"
    return f"{text}: {_format_reasons(reasons)}" if reasons else text


def _format_bounds(request: MachineRequest) -> str:
    selector = request.selector
    bounds = [f"at least {selector.min_clusters}"] if selector.min_clusters > 1 else []
    bounds += [f"at most {selector.max_clusters}"] if selector.max_clusters else []
    clusters = f" in {' and '.join(bounds)} clusters" if bounds else ""
    return f"{clusters} in one region" if selector.region_alone else clusters


def _format_reasons(reasons: Mapping[str, int]) -> str:
    ranked = sorted(reasons.items(), key=lambda one: (-one[1], one[0]))
    texts = [f"{number} {reason}" for reason, number in ranked[:MAX_REASONS]]
    if others := sum(number for _, number in ranked[MAX_REASONS:]):
        texts.append(f"{others} for other reasons")
    return ", ".join(texts)
