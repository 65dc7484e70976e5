"""How much is missing where a stack finds no room: for people, who count by one reason and then want to know more."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from farflung.scheduling.claims import Need
from farflung.scheduling.room import out_of, shortened, spot_left
from farflung.scheduling.standing import Standing


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
