"""All sites in the order in which they are good for requests that are alike.

Nothing is judged twice: what changed since the last look is, and nothing else.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from farflung.scheduling.evaluation import Fit, Judge, Measure
from farflung.scheduling.sites import Order, Standing
from farflung.scheduling.values import Site, SiteKey

SORT_ANEW: Final = 8  #: when more than this part of all sites changed


class Candidate(NamedTuple):
    """A site that fits.  The best is the smallest: more points, then more room, then by name."""

    minus_points: int
    minus_number: int  #: of replicas that it can take
    order: Order
    site: Site
    room: Fit

    @property
    def points(self) -> int:
        return -self.minus_points

    @property
    def number(self) -> int:
        return -self.minus_number


class Ranking:
    def __init__(self, judge: Judge, measure: Measure, standings: Mapping[SiteKey, Standing]) -> None:
        self.used = 0
        self.judge = judge
        self._measure = measure
        self._standings = standings
        self._willing: set[SiteKey] = set()  #: those that are described as what will do
        self._candidates: dict[SiteKey, Candidate] = {}
        self._refused: dict[SiteKey, str] = {}
        self._reasons: Counter[str] = Counter()
        self._order: list[Candidate] = []
        self._changed: set[SiteKey] = set()

    def __len__(self) -> int:
        """Of how many sites it remembers something."""
        return max(len(self._candidates) + len(self._refused), len(self._changed))

    def note(self, key: SiteKey) -> None:
        """A site is described in another way, or gone."""
        self._changed.add(key)

    def note_use(self, key: SiteKey) -> None:
        """Something was reserved or released there."""
        if key in self._willing:
            self._changed.add(key)

    def note_all(self, keys: Iterable[SiteKey]) -> None:
        self._changed.update(keys)

    def candidates(self) -> Sequence[Candidate]:
        """All that fit, the best first."""
        if self._changed:
            self._look_again()
        return self._order

    def candidate(self, key: SiteKey) -> Candidate | None:
        self.candidates()
        return self._candidates.get(key)

    def reasons(self) -> Mapping[str, int]:
        """Why the others do not fit → how many.  This looks at every site."""
        self.candidates()
        if len(self._candidates) + len(self._refused) < len(self._standings):
            known = self._candidates.keys() | self._refused.keys()
            self._changed.update(key for key in self._standings if key not in known)
            self.candidates()
        return self._reasons

    def _look_again(self) -> None:
        anew = len(self._changed) * SORT_ANEW > len(self._order)
        for key in self._changed:
            before = self._candidates.pop(key, None)
            if before is not None and not anew:
                del self._order[bisect_left(self._order, before)]
            if key in self._refused:
                self._forget_refusal(key)
            after = self._judge(key)
            if after is not None:
                self._candidates[key] = after
                if not anew:
                    insort(self._order, after)
        if anew:
            self._order = sorted(self._candidates.values())
        self._changed.clear()

    def _judge(self, key: SiteKey) -> Candidate | None:
        standing = self._standings.get(key)
        if standing is None:
            self._willing.discard(key)
            self.judge.forget(key)
            self._measure.forget(key)
            return None
        described = self.judge.describe(standing.site)
        if described.refusal:
            self._willing.discard(key)
            self._refuse(key, described.refusal)
            return None
        self._willing.add(key)
        room = self._measure.of(standing)
        if not room.number:
            self._refuse(key, room.refusal)
            return None
        points = self.judge.points(described, room, standing)
        return Candidate(-points, -room.number, standing.order, standing.site, room)

    def _refuse(self, key: SiteKey, reason: str) -> None:
        self._refused[key] = reason
        self._reasons[reason] += 1

    def _forget_refusal(self, key: SiteKey) -> None:
        reason = self._refused.pop(key)
        self._reasons[reason] -= 1
        if not self._reasons[reason]:
            del self._reasons[reason]
