"""When a cluster loses what it has: it is not well, for longer than those who are there tolerate.  Pure."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Final

from farflung.scheduling.values import Health, Taint, Toleration

NOT_READY: Final = "node.kubernetes.io/not-ready"
UNREACHABLE: Final = "node.kubernetes.io/unreachable"
NO_EXECUTE: Final = "NoExecute"
AILMENTS: Final = {Health.OFFLINE: NOT_READY, Health.DOWN: NOT_READY, Health.UNREACHABLE: UNREACHABLE}


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a cluster that is not well keeps what it has, and how fast it loses it then."""

    tolerated: float = 300.0  #: seconds, of those who say nothing
    vanished: float = 5.0  #: seconds that a Cluster may be away; somebody may be about to make it again
    refused: float = 30.0  #: seconds that a cluster may refuse what is bound to it; it may be about to learn something
    per_second: float = 10.0  #: stacks that leave
    share: float = 0.1  #: of all stacks, that leave in a second, if that is more
    held_above: float = 0.5  #: nothing leaves while more than this share of all clusters are not well


class Budget:
    """How many may leave now."""

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._left = patience.per_second
        self._at: float | None = None

    def refill(self, now: float, stacks: int) -> None:
        """`stacks`: how many there are in all."""
        rate = max(self._patience.per_second, self._patience.share * stacks)
        passed = 0.0 if self._at is None else now - self._at
        self._left = min(max(rate, 1.0), self._left + rate * passed)
        self._at = now

    def take(self) -> bool:
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True


def tolerated(taint: Taint, tolerations: tuple[Toleration, ...], otherwise: float) -> float:
    """Seconds that a stack with these tolerations stays where there is this taint.  `otherwise`: if it says nothing
    about it."""
    found = [inf if one.seconds is None else max(0.0, one.seconds) for one in tolerations if _matches(one, taint)]
    return min(found, default=otherwise)


def _matches(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect not in ("", taint.effect):
        return False
    if toleration.operator == "Exists":
        return toleration.key in ("", taint.key)
    return toleration.key == taint.key and toleration.value == taint.value


def is_held(unwell: int, sites: int, patience: Patience) -> bool:
    """Whether so many are not well that it is rather us who cannot see."""
    return unwell > sites * patience.held_above
