"""What sites there are, by what requests ask for most: nobody has to look at all of them."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Collection, Iterator
from typing import Final

from farflung.scheduling.values import Selector, Site, SiteKey

NOWHERE: Final[frozenset[SiteKey]] = frozenset()


class Places:
    def __init__(self) -> None:
        self._sites: dict[tuple[str, str], set[SiteKey]] = {}  #: (what, value) → where it is so
        self._prices: list[float] = []  #: sorted

    def add(self, site: Site) -> None:
        for place in _places(site):
            self._sites.setdefault(place, set()).add(site.key)
        if (price := price_of(site)) is not None:
            insort(self._prices, price)

    def remove(self, site: Site) -> None:
        for place in _places(site):
            there = self._sites[place]
            there.discard(site.key)
            if not there:
                del self._sites[place]
        if (price := price_of(site)) is not None:
            del self._prices[bisect_left(self._prices, price)]

    @property
    def cheapest(self) -> float | None:
        return self._prices[0] if self._prices else None

    def possible(self, selector: Selector, filters: Collection[str]) -> Collection[SiteKey] | None:
        """At least all sites that will do for the filters; None: it may be any."""
        found = [self._at("site", selector.site)] if selector.site else []
        if "regionandaz" in filters and selector.regions and all(wish.region for wish in selector.regions):
            found.append(NOWHERE.union(*(self._at("region", wish.region) for wish in selector.regions)))
        if "LocationAndOperator" in filters:
            wishes = {**selector.geo._asdict(), "operator": selector.operator}
            found += [self._at(what, value) for what, value in wishes.items() if value]
        return min(found, key=len, default=None)

    def _at(self, what: str, value: str) -> Collection[SiteKey]:
        return self._sites.get((what, value), NOWHERE)


def price_of(site: Site) -> float | None:
    return site.price if site.price is not None and math.isfinite(site.price) else None


def _places(site: Site) -> Iterator[tuple[str, str]]:
    yield "region", site.region
    yield "operator", site.operator
    yield from site.geo._asdict().items()
    for name in {site.key.name, str(site.key), f"{site.region}--{site.zone}", f"{site.region}--"}:
        yield "site", name
