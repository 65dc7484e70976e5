"""The order of sites for one shape of requests.  Only sites that changed are evaluated again."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from farflung.lib.groups import subtract_one
from farflung.machines.engine.evaluation import Fit, FitEvaluator, SiteEvaluator
from farflung.machines.engine.sites import Order, SiteState
from farflung.machines.engine.values import Site, SiteKey

RESORT_SHARE: Final = 8  #: sort from scratch if more than 1/8 of the sites changed


class RankedSite(NamedTuple):
    """A site that fits.  The smallest is the best: more points, then more replicas, then by name."""

    minus_points: int
    minus_number: int  #: of replicas that fit
    order: Order
    site: Site
    fit: Fit

    @property
    def points(self) -> int:
        return -self.minus_points

    @property
    def number(self) -> int:
        return -self.minus_number


class Ranking:
    def __init__(
        self, evaluator: SiteEvaluator, fit_evaluator: FitEvaluator, states: Mapping[SiteKey, SiteState]
    ) -> None:
        self.used = 0
        self.evaluator = evaluator
        self._fit_evaluator = fit_evaluator
        self._states = states
        self._matching: set[SiteKey] = set()  #: sites that pass the filters
        self._candidates: dict[SiteKey, RankedSite] = {}
        self._refused: dict[SiteKey, str] = {}
        self._reasons: Counter[str] = Counter()
        self._order: list[RankedSite] = []
        self._changed: set[SiteKey] = set()

    def __len__(self) -> int:
        """Number of cached sites."""
        return max(len(self._candidates) + len(self._refused), len(self._changed))

    def mark_changed(self, key: SiteKey) -> None:
        """The site changed or was removed."""
        self._changed.add(key)

    def mark_usage_changed(self, key: SiteKey) -> None:
        """The reservations of the site changed."""
        if key in self._matching:
            self._changed.add(key)

    def mark_all_changed(self, keys: Iterable[SiteKey]) -> None:
        self._changed.update(keys)

    def candidates(self) -> Sequence[RankedSite]:
        """Sites that fit, the best first."""
        if self._changed:
            self._update()
        return self._order

    def candidate(self, key: SiteKey) -> RankedSite | None:
        self.candidates()
        return self._candidates.get(key)

    def reasons(self) -> Mapping[str, int]:
        """Refusal → number of sites.  Evaluates every site."""
        self.candidates()
        if len(self._candidates) + len(self._refused) < len(self._states):
            known = self._candidates.keys() | self._refused.keys()
            self._changed.update(key for key in self._states if key not in known)
            self.candidates()
        return self._reasons

    def _update(self) -> None:
        anew = len(self._changed) * RESORT_SHARE > len(self._order)
        for key in self._changed:
            before = self._candidates.pop(key, None)
            if before is not None and not anew:
                del self._order[bisect_left(self._order, before)]
            if key in self._refused:
                self._forget_refusal(key)
            after = self._evaluate(key)
            if after is not None:
                self._candidates[key] = after
                if not anew:
                    insort(self._order, after)
        if anew:
            self._order = sorted(self._candidates.values())
        self._changed.clear()

    def _evaluate(self, key: SiteKey) -> RankedSite | None:
        state = self._states.get(key)
        if state is None:
            self._matching.discard(key)
            self.evaluator.forget(key)
            self._fit_evaluator.forget(key)
            return None
        described = self.evaluator.describe(state.site)
        if described.refusal:
            self._matching.discard(key)
            self._refuse(key, described.refusal)
            return None
        self._matching.add(key)
        fit = self._fit_evaluator.of(state)
        if not fit.number:
            self._refuse(key, fit.refusal)
            return None
        points = self.evaluator.points(described, fit, state)
        return RankedSite(-points, -fit.number, state.order, state.site, fit)

    def _refuse(self, key: SiteKey, reason: str) -> None:
        self._refused[key] = reason
        self._reasons[reason] += 1

    def _forget_refusal(self, key: SiteKey) -> None:
        reason = self._refused.pop(key)
        subtract_one(self._reasons, reason)
