"""What is held of each site, and by whom."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from types import MappingProxyType
from typing import TypeAlias, TypeVar

from farflung.scheduling.values import Claim, Reservation, SiteKey, SpotPool

K = TypeVar("K", bound=Hashable)
Kin: TypeAlias = tuple[str, tuple[tuple[str, str], ...]]  #: tenant and labels of a stack


class Usage:
    """What all stacks at one site take together."""

    __slots__ = ("eips", "flavors", "kin", "memory", "spot", "stacks", "storage", "vcpus")

    def __init__(self) -> None:
        self.flavors: dict[str, int] = {}
        self.vcpus = 0
        self.memory = 0
        self.storage: dict[str, int] = {}
        self.eips = 0
        self.spot: dict[SpotPool, int] = {}
        self.stacks: dict[str, Reservation] = {}
        self.kin: Counter[Kin] = Counter()  #: how many stacks are alike

    def add(self, claim: Claim, times: int = 1) -> None:
        """`times` below 0: take it away."""
        self.vcpus += claim.vcpus * times
        self.memory += claim.memory * times
        self.eips += claim.eips * times
        _add(self.flavors, claim.flavors, times)
        if claim.storage:
            _add(self.storage, claim.storage, times)
        if claim.spot:
            _add(self.spot, claim.spot, times)

    def plus(self, claim: Claim, times: int) -> Usage:
        """Another one, without the stacks."""
        usage = Usage()
        usage.flavors, usage.storage, usage.spot = dict(self.flavors), dict(self.storage), dict(self.spot)
        usage.vcpus, usage.memory, usage.eips = self.vcpus, self.memory, self.eips
        usage.add(claim, times)
        return usage

    def enter(self, reservation: Reservation) -> None:
        self.stacks[reservation.uid] = reservation
        self.kin[reservation.tenant, reservation.labels] += 1
        self.add(reservation.claim)

    def leave(self, reservation: Reservation) -> None:
        del self.stacks[reservation.uid]
        self.add(reservation.claim, -1)
        kin = reservation.tenant, reservation.labels
        self.kin[kin] -= 1
        if not self.kin[kin]:
            del self.kin[kin]


def _add(totals: dict[K, int], amounts: tuple[tuple[K, int], ...], times: int) -> None:
    for key, amount in amounts:
        total = totals.get(key, 0) + amount * times
        if total:
            totals[key] = total
        else:
            totals.pop(key, None)


class Ledger:
    """Reservations by uid and by site.  It knows nothing of sites but their keys: they may come and go."""

    def __init__(self) -> None:
        self._held: dict[str, Reservation] = {}
        self._usage: dict[SiteKey, Usage] = {}

    def get(self, uid: str) -> Reservation | None:
        return self._held.get(uid)

    def reservations(self) -> list[Reservation]:
        return list(self._held.values())

    def usage(self, key: SiteKey) -> Usage:
        """To be looked at, and asked for again after each change."""
        return self._usage.get(key) or Usage()

    def stacks(self, key: SiteKey) -> Mapping[str, Reservation]:
        return MappingProxyType(self.usage(key).stacks)

    def reserve(self, reservation: Reservation) -> Reservation | None:
        """In place of what its uid has held until now, which is given back."""
        before = self._held.get(reservation.uid)
        if before == reservation:
            return before
        self.release(reservation.uid)
        self._held[reservation.uid] = reservation
        usage = self._usage.get(reservation.site)
        if usage is None:
            usage = self._usage[reservation.site] = Usage()
        usage.enter(reservation)
        return before

    def release(self, uid: str) -> Reservation | None:
        reservation = self._held.pop(uid, None)
        if reservation is not None:
            usage = self._usage[reservation.site]
            usage.leave(reservation)
            if not usage.stacks:
                del self._usage[reservation.site]
        return reservation
