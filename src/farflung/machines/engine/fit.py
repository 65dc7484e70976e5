"""How many replicas of a stack fit on a site, and with which flavors.  No policy disables these checks.

Spot machines: a site has pools of vcpus and memory per flavor, counted in machines.  Blocks of hours are `finite`,
open-ended pools are `infinite`.  The name of a pool contains cpu or mem, block for blocks, and delay or immediate, in
any spelling: `cpu_block_delay`, `MemoryImmediate`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from farflung.machines.engine.claims import FlavorCombination, ResourceNeed
from farflung.machines.engine.sites import SiteState
from farflung.machines.engine.values import ResourceClaim, SpotPool

MAX_NAME: Final = 63
UNLIMITED: Final = 2**63 - 1
FAKE_MACHINES: Final = 1000  #: machines in each pool if `spot_fake` is set


class FittedReplicas(NamedTuple):
    """Replicas with the same flavors."""

    combination: FlavorCombination
    number: int


def fit_replicas(
    need: ResourceNeed, state: SiteState, *, several: bool, fake_spot: bool = False
) -> tuple[tuple[FittedReplicas, ...], str]:
    """Fitted replicas, the preferred flavors first, or the reason why none fits.

    `several`: replicas may have different flavors.
    """
    if not need.combinations:
        return (), "no flavor is asked for"
    most, refusal = _limit_by_storage_and_eips(need, state) if need.beside_flavors else (UNLIMITED, "")
    if refusal:
        return (), _flavor_refusal(need, state, fake_spot) or refusal
    fitted: list[FittedReplicas] = []
    refusals: list[str] = []
    for combination in need.combinations:
        number, refusal = _replicas_of(combination, state, fake_spot)
        if refusal:
            refusals.append(refusal)
            continue
        number = min(number, most)
        fitted.append(FittedReplicas(combination, number))
        most -= number
        if not several or not most:
            break
        state = SiteState(state.site, state.usage.plus(combination.claim, number))
    return tuple(fitted), "" if fitted else _best_refusal(refusals)


def _limit_by_storage_and_eips(need: ResourceNeed, state: SiteState) -> tuple[int, str]:
    """How many replicas fit by storage and public addresses, or why none."""
    most = UNLIMITED
    for kind, size in need.storage:
        if kind not in state.site.capacity.storage:
            return 0, f"no storage type {shortened(kind)}"
        most = min(most, state.storage(kind) // size)
        if not most:
            return 0, out_of(shortened(kind))
    if need.eips and state.eips is not None:
        most = min(most, state.eips // need.eips)
        if not most:
            return 0, out_of("public addresses")
    return most, ""


def _flavor_refusal(need: ResourceNeed, state: SiteState, fake_spot: bool) -> str:
    """Why no flavor combination fits; empty if one does."""
    refusals = []
    for combination in need.combinations:
        _, refusal = _replicas_of(combination, state, fake_spot)
        if not refusal:
            return ""
        refusals.append(refusal)
    return _best_refusal(refusals)


def _best_refusal(refusals: list[str]) -> str:
    """Exhausted resources say more than resources that the site never offers."""
    return next((one for one in refusals if not one.startswith("no ")), refusals[0])


def _replicas_of(combination: FlavorCombination, state: SiteState, fake_spot: bool) -> tuple[int, str]:
    """How many replicas fit with these flavors, or why none."""
    claim = combination.claim
    site = state.site
    most = UNLIMITED
    for flavor, number in claim.flavors:
        total = site.capacity.flavors.get(flavor)
        if total is None:
            return 0, f"no flavor {shortened(flavor)}"
        most = min(most, (total - state.usage.flavors.get(flavor, 0)) // number)
        if most < 1:
            return 0, out_of(shortened(flavor))
    for pool, number in claim.spot:
        most = min(most, free_spot_machines(pool, state, fake_spot) // number)
        if not most:
            return 0, out_of(f"spot {shortened(pool.flavor)}")
    if claim.spot and combination.max_price and site.price is not None and site.price > combination.max_price:
        return 0, f"dearer than {combination.max_price:g}"
    return _limit_by_totals(claim, state, most)


def _limit_by_totals(claim: ResourceClaim, state: SiteState, most: int) -> tuple[int, str]:
    if claim.vcpus and state.vcpus is not None:
        most = min(most, state.vcpus // claim.vcpus)
        if not most:
            return 0, out_of("vcpus")
    if claim.memory and state.memory is not None:
        most = min(most, state.memory // claim.memory)
        if not most:
            return 0, out_of("memory")
    return most, ""


def free_spot_machines(pool: SpotPool, state: SiteState, fake_spot: bool) -> int:
    offered = FAKE_MACHINES if fake_spot else offered_machines(state.site.capacity.spot, pool)
    return max(0, offered - state.usage.spot.get(pool, 0))


def out_of(what: str) -> str:
    return f"out of {what}"


def shortened(name: str) -> str:
    return name if len(name) <= MAX_NAME else f"{name[:MAX_NAME]}…"


class Shortage(NamedTuple):
    needed: int  #: for one replica
    left: int


def find_shortage(need: ResourceNeed, state: SiteState, refusal: str, *, fake_spot: bool) -> Shortage | None:
    """The amounts behind an `out of …` refusal; None for other refusals."""
    for what, needed, left in _amounts(need, state, fake_spot):
        if needed > left and out_of(what) == refusal:
            return Shortage(needed, left)
    return None


def _amounts(need: ResourceNeed, state: SiteState, fake_spot: bool) -> Iterator[tuple[str, int, int]]:
    """Resource, need of one replica, free amount."""
    for combination in need.combinations:
        claim = combination.claim
        for flavor, number in claim.flavors:
            yield shortened(flavor), number, state.flavor(flavor)
        for pool, number in claim.spot:
            yield f"spot {shortened(pool.flavor)}", number, free_spot_machines(pool, state, fake_spot)
        if state.vcpus is not None:
            yield "vcpus", claim.vcpus, state.vcpus
        if state.memory is not None:
            yield "memory", claim.memory, state.memory
    for kind, size in need.storage:
        yield shortened(kind), size, state.storage(kind)
    if state.eips is not None:
        yield "public addresses", need.eips, state.eips


def offered_machines(spot: Mapping[str, Any], pool: SpotPool) -> int:
    """The smaller of the vcpu and memory pools; 0 if a pool is missing or malformed."""
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
