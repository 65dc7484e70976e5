"""What a policy says of one site and one request: why it does not fit, or how good it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from farflung.scheduling import scorers
from farflung.scheduling.claims import Need
from farflung.scheduling.filters import Asked, checks_for
from farflung.scheduling.ledger import Usage
from farflung.scheduling.policy import Policy
from farflung.scheduling.room import Room, room_for
from farflung.scheduling.standing import Standing
from farflung.scheduling.values import Site, SiteKey

#: scores are counted in millionths, because sums of whole numbers do not depend on their order
MILLION: Final = 1_000_000


class Described(NamedTuple):
    """What can be said of a site as long as its description stays the same."""

    site: Site
    refusal: str
    points: int  #: of scorers of sites, weighted


class Measured(NamedTuple):
    """What can be said of what a site has left for some items, until something is reserved or released there."""

    version: int
    room: Room
    points: int  #: of scorers of room, weighted
    number: int  #: of replicas that it can take


class Judge:
    """For requests that ask for the same."""

    def __init__(self, policy: Policy, asked: Asked, cheapest: float | None) -> None:
        self._checks = checks_for(asked, policy.filters)
        self._of_sites = [
            (name, weight, score)
            for name, weight in policy.scorers
            if name in scorers.OF_SITES and (score := scorers.OF_SITES[name](asked, cheapest)) is not None
        ]
        self._of_stacks = [
            (name, weight, scorers.OF_STACKS[name](asked))
            for name, weight in policy.scorers
            if name in scorers.OF_STACKS
        ]
        self._of_room = [(name, weight) for name, weight in policy.scorers if name in scorers.OF_ROOM]
        weights = sum(weight for _, weight, _ in self._of_sites) + sum(weight for _, weight, _ in self._of_stacks)
        self.weights = weights + sum(weight for _, weight in self._of_room)

    def refusal(self, site: Site) -> str:
        for check in self._checks:
            if reason := check(site):
                return reason
        return ""

    def describe(self, site: Site) -> Described:
        if reason := self.refusal(site):
            return Described(site, reason, 0)
        return Described(site, "", sum(weight * millionths(score(site)) for _, weight, score in self._of_sites))

    def points_of_stacks(self, usage: Usage) -> int:
        return sum(weight * millionths(score(usage)) for _, weight, score in self._of_stacks)

    def weighed(self) -> Mapping[str, int]:
        """The scorers that have a say, with their weights."""
        weighed = {name: weight for name, weight, _ in self._of_sites}
        return weighed | {name: weight for name, weight, _ in self._of_stacks} | dict(self._of_room)

    def scores(self, standing: Standing, room: Room) -> Mapping[str, float]:
        """By each scorer that has a say, for people."""
        scores = {name: score(standing.site) for name, _, score in self._of_sites}
        scores |= {name: score(standing.usage) for name, _, score in self._of_stacks}
        best = room.portions[0].combination
        return scores | {name: scorers.OF_ROOM[name](standing, best) for name, _ in self._of_room}

    def total(self, points: int) -> float:
        """0 to 100: the weighted mean."""
        return points / (self.weights * MILLION) if self.weights else 0.0


def millionths(score: float) -> int:
    return round(score * MILLION)


@dataclass(slots=True, eq=False)
class Measure:
    """For requests that take the same.  It remembers what it measured, as long as that holds."""

    need: Need
    policy: Policy
    several: bool
    _known: dict[SiteKey, Measured] = field(default_factory=dict)

    def of(self, standing: Standing) -> Measured:
        known = self._known.get(standing.site.key)
        if known is None or known.version != standing.version:
            known = self._known[standing.site.key] = self._measure(standing)
        return known

    def forget(self, key: SiteKey) -> None:
        self._known.pop(key, None)

    def _measure(self, standing: Standing) -> Measured:
        room = room_for(self.need, standing, several=self.several, fake_spot=self.policy.spot_fake)
        points = 0
        if room.portions:
            best = room.portions[0].combination
            for name, weight in self.policy.scorers:
                if score := scorers.OF_ROOM.get(name):
                    points += weight * millionths(score(standing, best))
        return Measured(standing.version, room, points, room.number)
