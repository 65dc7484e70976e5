"""How many replicas of a stack a site has room for, and with which flavors.

What a stack takes must be there: no policy turns this off.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from farflung.scheduling.claims import Combination, Need
from farflung.scheduling.sites import Standing
from farflung.scheduling.values import Claim, SpotPool

LONGEST_NAME: Final = 63
UNLIMITED: Final = 2**63 - 1
FAKE: Final = 1000  #: machines in each pool, if all spot requests are taken as satisfiable


class Portion(NamedTuple):
    """Replicas that get the same flavors."""

    combination: Combination
    number: int


def room_for(
    need: Need, standing: Standing, *, several: bool, fake_spot: bool = False
) -> tuple[tuple[Portion, ...], str]:
    """The portions, the best liked first, or why there is no room for one replica.

    Several: replicas for which the best liked flavors do not suffice may get others.  Otherwise all get the same.
    """
    if not need.combinations:
        return (), "no flavor is asked for"
    most, refusal = _apart_from_flavors(need, standing) if need.beside_flavors else (UNLIMITED, "")
    if refusal:
        return (), _flavors_first(need, standing, fake_spot) or refusal
    portions: list[Portion] = []
    refusals: list[str] = []
    for combination in need.combinations:
        number, refusal = _times(combination, standing, fake_spot)
        if refusal:
            refusals.append(refusal)
            continue
        number = min(number, most)
        portions.append(Portion(combination, number))
        most -= number
        if not several or not most:
            break
        standing = Standing(standing.site, standing.usage.plus(combination.claim, number))
    return tuple(portions), "" if portions else _most_hopeful(refusals)


def _apart_from_flavors(need: Need, standing: Standing) -> tuple[int, str]:
    """How many replicas can be had of storage and public addresses, or why not one."""
    most = UNLIMITED
    for kind, size in need.storage:
        if kind not in standing.site.capacity.storage:
            return 0, f"no storage type {shortened(kind)}"
        most = min(most, standing.storage(kind) // size)
        if not most:
            return 0, out_of(shortened(kind))
    if need.eips and standing.eips is not None:
        most = min(most, standing.eips // need.eips)
        if not most:
            return 0, out_of("public addresses")
    return most, ""


def _flavors_first(need: Need, standing: Standing, fake_spot: bool) -> str:
    """Why it has no room for flavors, if it has none."""
    refusals = []
    for combination in need.combinations:
        _, refusal = _times(combination, standing, fake_spot)
        if not refusal:
            return ""
        refusals.append(refusal)
    return _most_hopeful(refusals)


def _most_hopeful(refusals: list[str]) -> str:
    """What can be had another time says more than what is never offered."""
    return next((one for one in refusals if not one.startswith("no ")), refusals[0])


def _times(combination: Combination, standing: Standing, fake_spot: bool) -> tuple[int, str]:
    """How many replicas can have these flavors, or why not one."""
    claim = combination.claim
    site = standing.site
    most = UNLIMITED
    for flavor, number in claim.flavors:
        total = site.capacity.flavors.get(flavor)
        if total is None:
            return 0, f"no flavor {shortened(flavor)}"
        most = min(most, (total - standing.usage.flavors.get(flavor, 0)) // number)
        if most < 1:
            return 0, out_of(shortened(flavor))
    for pool, number in claim.spot:
        most = min(most, spot_left(pool, standing, fake_spot) // number)
        if not most:
            return 0, out_of(f"spot {shortened(pool.flavor)}")
    if claim.spot and combination.max_price and site.price is not None and site.price > combination.max_price:
        return 0, f"dearer than {combination.max_price:g}"
    return _within_totals(claim, standing, most)


def _within_totals(claim: Claim, standing: Standing, most: int) -> tuple[int, str]:
    if claim.vcpus and standing.vcpus is not None:
        most = min(most, standing.vcpus // claim.vcpus)
        if not most:
            return 0, out_of("vcpus")
    if claim.memory and standing.memory is not None:
        most = min(most, standing.memory // claim.memory)
        if not most:
            return 0, out_of("memory")
    return most, ""


def spot_left(pool: SpotPool, standing: Standing, fake_spot: bool) -> int:
    offered = FAKE if fake_spot else offered_machines(standing.site.capacity.spot, pool)
    return max(0, offered - standing.usage.spot.get(pool, 0))


def out_of(what: str) -> str:
    return f"out of {what}"


def shortened(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}…"


class Shortage(NamedTuple):
    needed: int  #: for one replica
    left: int


def shortage(need: Need, standing: Standing, refusal: str, *, fake_spot: bool) -> Shortage | None:
    """Of what a refusal says that there is not enough; None: it says something else."""
    for what, needed, left in _amounts(need, standing, fake_spot):
        if needed > left and out_of(what) == refusal:
            return Shortage(needed, left)
    return None


def _amounts(need: Need, standing: Standing, fake_spot: bool) -> Iterator[tuple[str, int, int]]:
    """What is counted, how much one replica takes of it, and how much is left."""
    for combination in need.combinations:
        claim = combination.claim
        for flavor, number in claim.flavors:
            yield shortened(flavor), number, standing.flavor(flavor)
        for pool, number in claim.spot:
            yield f"spot {shortened(pool.flavor)}", number, spot_left(pool, standing, fake_spot)
        if standing.vcpus is not None:
            yield "vcpus", claim.vcpus, standing.vcpus
        if standing.memory is not None:
            yield "memory", claim.memory, standing.memory
    for kind, size in need.storage:
        yield shortened(kind), size, standing.storage(kind)
    if standing.eips is not None:
        yield "public addresses", need.eips, standing.eips


def offered_machines(spot: Mapping[str, Any], pool: SpotPool) -> int:
    """As many as both vcpus and memory allow; none if a pool is not there or makes no sense."""
    pools = spot.get(pool.flavor)
    if not isinstance(pools, Mapping):
        return 0
    return min(_amount(pools, "cpu", pool), _amount(pools, "mem", pool))


def _amount(pools: Mapping[str, Any], resource: str, pool: SpotPool) -> int:
    for name, content in pools.items():
        words = str(name).lower()
        if (
            resource in words
            and ("block" in words) == (pool.hours > 0)
            and ("delay" if pool.delay else "immediate") in words
            and isinstance(content, Mapping)
        ):
            return _machines(content, pool.hours)
    return 0


def _machines(content: Mapping[str, Any], hours: int) -> int:
    amount = content.get("infinite")
    if hours:
        finite = content.get("finite")
        amount = finite.get(f"{hours}h") if isinstance(finite, Mapping) else None
    if isinstance(amount, bool) or not isinstance(amount, int | float) or not math.isfinite(amount):
        return 0
    return max(0, int(amount))
