"""The engine of the global scheduler once more, slow and plain: nothing is remembered, and everything is tried.

It knows no spot machines and no labels of sites but by equality; what it knows is written anew from what is promised.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import combinations, product
from typing import TypeAlias

from farflung.machines.engine.values import (
    Flavor,
    Health,
    LabelRule,
    LocalStrategy,
    MachineRequest,
    Reservation,
    Site,
    SiteKey,
)

Flavors: TypeAlias = tuple[str, ...]  #: one for each item
Ranked: TypeAlias = list[tuple[Site, list[Flavors]]]  #: what each replica would get there, the best site first
ABOUT_FLAVORS, BESIDE_FLAVORS = ("flavor", "vcpus", "memory"), ("storage", "eips")
WEIGHTS = {"memory": 10, "vcpus": 10, "storage": 5, "eips": 1}


class Twin:
    def __init__(self, catalogue: Mapping[str, Flavor], *, cheap: bool = False) -> None:
        self.catalogue = catalogue
        self.cheap = cheap  #: whether the policy weighs Price
        self.sites: dict[SiteKey, Site] = {}
        self.held: dict[str, Reservation] = {}

    # --- what there is ----------------------------------------------------------------------------

    def usage(self, key: SiteKey) -> Counter[str]:
        used: Counter[str] = Counter()
        for one in self.held.values():
            if one.site == key:
                used.update({f"flavor {flavor}": number for flavor, number in one.claim.flavors})
                used.update({f"storage {kind}": size for kind, size in one.claim.storage})
                used.update({"vcpus": one.claim.vcpus, "memory": one.claim.memory, "eips": one.claim.eips})
        return used

    def totals(self, site: Site) -> dict[str, int]:
        """What is limited."""
        capacity = site.capacity
        totals = {f"flavor {flavor}": number for flavor, number in capacity.flavors.items()}
        totals |= {f"storage {kind}": size for kind, size in capacity.storage.items()}
        for name, total in (("vcpus", capacity.vcpus), ("memory", capacity.memory), ("eips", capacity.eips)):
            if total is not None:
                totals[name] = total - site.used_elsewhere.get(name, 0)
        return totals

    def taken(self, request: MachineRequest, flavors: Flavors) -> Counter[str]:
        """By one replica."""
        taken: Counter[str] = Counter()
        for item, flavor in zip(request.items, flavors, strict=True):
            for _ in range(item.number):
                known = self.catalogue.get(flavor, Flavor(flavor))
                taken.update({f"flavor {flavor}": 1, "vcpus": known.vcpus, "memory": known.memory})
                taken.update({"eips": 1 if item.eip else 0})
                for kind, size in item.storage:
                    taken[f"storage {kind}"] += size
        return +taken

    # --- one site ---------------------------------------------------------------------------------

    def refusal(self, request: MachineRequest, site: Site) -> str:
        selector = request.selector
        if site.leaving:
            return "being deleted"
        if selector.site and selector.site not in (site.key.name, f"{site.region}--{site.zone}"):
            return "not the one asked for"
        if site.health is Health.SELLOUT:
            return "sold out"
        if site.health not in (Health.READY, Health.UNKNOWN):
            return "not ready"
        for name in ("country", "area", "province", "city"):
            if getattr(selector.geo, name) not in ("", getattr(site.geo, name)):
                return f"wrong {name}"
        if selector.operator not in ("", site.operator):
            return "wrong operator"
        regions = [wish for wish in selector.regions if wish.region in ("", site.region)]
        if selector.regions and not regions:
            return "wrong region"
        if selector.regions and not any(not wish.zones or site.zone in wish.zones for wish in regions):
            return "wrong zone"
        if site.tenants and request.tenant not in site.tenants:
            return "kept for other tenants"
        tolerated = {one.key for one in selector.tolerations}
        for taint in site.taints:
            if taint.effect == "NoSchedule" and taint.key not in tolerated:
                return f"taint {taint.key} not tolerated"
        if any(site.labels.get(one.key) not in one.values for one in selector.required):
            return "wrong labels"
        return ""

    def shortage(self, kinds: Sequence[str], left: Mapping[str, int], taken: Mapping[str, int]) -> str:
        """What of these there is too little of for one more replica."""
        for kind in kinds:
            for name, amount in sorted(taken.items()):
                word = name.split(" ")[-1]
                if not name.startswith(kind):
                    continue
                if name not in left and " " in name:
                    return f"no flavor {word}" if kind == "flavor" else f"no storage type {word}"
                if name in left and amount > left[name]:
                    return f"out of {'public addresses' if word == 'eips' else word}"
        return ""

    def liked(self, request: MachineRequest) -> list[tuple[int, Flavors]]:
        """All choices of flavors with their weights, the best first."""
        choices = []
        for indexes in product(*(range(len(item.flavors)) for item in request.items)):
            flavors = tuple(item.flavors[index].id for item, index in zip(request.items, indexes, strict=True))
            choices.append((sum(10 // (index + 1) for index in indexes), flavors))
        return sorted(choices, key=lambda choice: -choice[0])

    def replicas(self, request: MachineRequest, site: Site) -> tuple[list[Flavors], str]:
        """What each replica gets that there is room for, or what there is too little of for the first."""
        left = Counter(self.totals(site))
        left.subtract({name: number for name, number in self.usage(site.key).items() if name in left})
        placed: list[Flavors] = []
        without_flavors = []
        for _, flavors in self.liked(request):
            taken = self.taken(request, flavors)
            short = self.shortage(ABOUT_FLAVORS, left, taken)
            without_flavors.append(short)
            while not short and not self.shortage(BESIDE_FLAVORS, left, taken):
                placed.append(flavors)
                left.subtract({name: number for name, number in taken.items() if name in left})
                short = self.shortage(ABOUT_FLAVORS, left, taken)
            if placed and request.replicas == 1:
                break
        if placed:
            return placed, ""
        if not all(without_flavors):
            return [], self.shortage(BESIDE_FLAVORS, left, taken)
        return [], next((one for one in without_flavors if not one.startswith("no ")), without_flavors[0])

    def score(self, request: MachineRequest, site: Site, flavors: Flavors) -> int:
        """In millionths, weighted, not divided."""
        weight = next(weight for weight, choice in self.liked(request) if choice == flavors)
        kin = [dict(one.labels) for one in self.held.values() if one.site == site.key and one.tenant == request.tenant]
        selector = request.selector
        wanted = any(_meets(labels, selector.affinity) for labels in kin) if selector.affinity else False
        unwanted = any(_meets(labels, selector.antiaffinity) for labels in kin) if selector.antiaffinity else False
        reluctant = [
            taint
            for taint in site.taints
            if taint.effect == "PreferNoSchedule" and taint.key not in {one.key for one in selector.tolerations}
        ]
        scores = [
            (Fraction(50 * wanted + 50 * (not unwanted)), 1),
            (Fraction(100 * weight, 10 * len(request.items)), 1),
            (self.least_allocated(site, self.taken(request, flavors)), 1),
            (Fraction(100, 1 + len(reluctant)), 1),
        ]
        if selector.preferred:
            met = sum(one.weight for one in selector.preferred if _meets(site.labels, one.requirements))
            scores.append((Fraction(100 * met, sum(one.weight for one in selector.preferred)), 1))
        if request.current:
            scores.append((Fraction(100 * (site.key in request.current)), 2))
        if self.cheap and (prices := [one.price for one in self.sites.values() if one.price is not None]):
            scores.append((100 * Fraction(min(prices)) / Fraction(site.price) if site.price else Fraction(0), 1))
        return sum(weight * round(score * 1_000_000) for score, weight in scores)

    def least_allocated(self, site: Site, taken: Mapping[str, int]) -> Fraction:
        used, capacity = self.usage(site.key), site.capacity
        shares: list[tuple[int, Fraction]] = []

        def left(total: int, name: str) -> Fraction:
            now = used.get(name, 0) + taken[name] + site.used_elsewhere.get(name, 0)
            return Fraction(total - now, total) if now < total else Fraction(0)

        by_flavor = 0
        for name, total in (("memory", capacity.memory), ("vcpus", capacity.vcpus)):
            if total is None or not taken.get(name):
                by_flavor += WEIGHTS[name]
            else:
                shares.append((WEIGHTS[name], left(total, name)))
        if by_flavor:
            named = [name for name in taken if name.startswith("flavor ")]
            shares.append((by_flavor, min(left(capacity.flavors[name.split(" ")[1]], name) for name in named)))
        kinds = [name for name in taken if name.startswith("storage ")]
        if kinds:
            total = sum(capacity.storage[name.split(" ")[1]] for name in kinds)
            now = sum(used.get(name, 0) + taken[name] for name in kinds)
            shares.append((WEIGHTS["storage"], Fraction(total - now, total) if now < total else Fraction(0)))
        if taken.get("eips") and capacity.eips is not None:
            shares.append((WEIGHTS["eips"], left(capacity.eips, "eips")))
        return 100 * sum((weight * share for weight, share in shares), Fraction(0)) / sum(one for one, _ in shares)

    # --- all sites --------------------------------------------------------------------------------

    def rank(self, request: MachineRequest, excluded: Iterable[SiteKey] = ()) -> tuple[Ranked, Counter[str]]:
        """Those that fit, and why the others do not."""
        reasons: Counter[str] = Counter()
        fitting = []
        for site in self.sites.values():
            refusal = self.refusal(request, site)
            replicas: list[Flavors] = []
            if not refusal:
                replicas, refusal = self.replicas(request, site)
            if not refusal and site.key in excluded:
                refusal = "excluded"
            if refusal:
                reasons[refusal] += 1
            else:
                order = site.key.name, site.key.namespace, site.key.cluster
                fitting.append((-self.score(request, site, replicas[0]), -len(replicas), order, site, replicas))
        ranked: Ranked = [(site, replicas) for *_, site, replicas in sorted(fitting, key=lambda one: one[:3])]
        return ranked, reasons

    def decide(self, request: MachineRequest, excluded: Iterable[SiteKey] = ()) -> list[tuple[SiteKey, Flavors]]:
        """Where each replica goes and what it gets; nothing: it cannot be done."""
        ranked, _ = self.rank(request, excluded)
        for group in groups(request, ranked):
            shares = divide(request, [len(replicas) for _, replicas in group])
            if shares:
                return [
                    (site.key, flavors)
                    for (site, replicas), share in zip(group, shares, strict=True)
                    for flavors in replicas[:share]
                ]
        return []


def groups(request: MachineRequest, ranked: Ranked) -> list[Ranked]:
    if not request.selector.region_alone or request.replicas == 1:
        return [ranked]
    regions: dict[str, Ranked] = {}
    for one in ranked:
        regions.setdefault(one[0].region, []).append(one)
    return sorted(regions.values(), key=lambda group: -sum(len(replicas) for _, replicas in group))


def divide(request: MachineRequest, rooms: Sequence[int]) -> list[int]:
    """How many replicas each gets; nothing: it cannot be done."""
    number, selector = request.replicas, request.selector
    least, most = max(1, selector.min_clusters), min(selector.max_clusters or number, number, len(rooms))
    sizes: Iterable[int] = [most] if most >= least else []
    if selector.strategy is LocalStrategy.CENTRALIZE:
        sizes = range(least, most + 1)
    elif selector.strategy is LocalStrategy.DISCRETE and sizes and most == min(number, len(rooms)):
        sizes = [len(rooms)]
    for size in sizes:
        for chosen in combinations(range(len(rooms)), size):
            if size and sum(rooms[place] for place in chosen) >= number:
                shares = SHARING[selector.strategy]([rooms[place] for place in chosen], number, least)
                return [shares[chosen.index(place)] if place in chosen else 0 for place in range(len(rooms))]
    return []


def fill(rooms: Sequence[int], number: int, least: int) -> list[int]:
    shares = [1] * len(rooms)
    for place, room in enumerate(rooms):
        while shares[place] < room and sum(shares) < number:
            shares[place] += 1
    return shares


def even(rooms: Sequence[int], number: int, least: int) -> list[int]:
    shares = [0] * len(rooms)
    for _ in range(number):
        free = [place for place, room in enumerate(rooms) if shares[place] < room]
        shares[min(free, key=lambda place: (shares[place], place))] += 1
    return shares


def proportional(rooms: Sequence[int], number: int, least: int) -> list[int]:
    """The first ones that together come to all replicas, each counted as its part of all, half up, but at least one."""
    covered = chosen = 0
    while chosen < len(rooms) and (covered < number or chosen < least):
        part = Fraction(number * rooms[chosen], sum(rooms))
        covered += min(rooms[chosen], max(1, int(part + Fraction(1, 2))))
        chosen += 1
    shares = by_remainders(list(rooms[:chosen]), number)
    return shares + [0] * (len(rooms) - chosen)


def by_remainders(rooms: list[int], number: int) -> list[int]:
    fixed: list[int] = []
    while True:
        free = [place for place in range(len(rooms)) if place not in fixed]
        left = number - len(fixed)
        quotas = {place: Fraction(left * rooms[place], sum(rooms[one] for one in free)) for place in free}
        small = [place for place in free if quotas[place] < 1]
        if not small:
            break
        fixed += small
    shares = [1 if place in fixed else int(quotas[place]) for place in range(len(rooms))]
    for place in sorted(free, key=lambda place: int(quotas[place]) - quotas[place])[: number - sum(shares)]:
        shares[place] += 1
    return shares


SHARING = {LocalStrategy.CENTRALIZE: fill, LocalStrategy.DISCRETE: proportional, LocalStrategy.SPREAD: even}


def _meets(labels: Mapping[str, str], requirements: Iterable[LabelRule]) -> bool:
    """By `in` and `notin` alone."""
    return all((labels.get(one.key) in one.values) is (one.operator == "in") for one in requirements)
