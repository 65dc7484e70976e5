"""X."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Set
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Generic, NamedTuple, TypeVar

from farflung.apis.edge.names import CONFIRM_WITHDRAWAL
from farflung.placement.index import CopyIndex, ObjectIndex, PlacementIndex, ServedKinds
from farflung.placement.names import Part, PlacementKey, Source
from farflung.placement.types import PlacementView

Destination = TypeVar("Destination", bound=Hashable)
Thing = TypeVar("Thing", bound=Hashable)


class WithdrawalLimits(NamedTuple):
    """A withdrawal is held if it is beyond both."""

    share: int = 50  #: of the destinations, in percent
    number: int = 10  #: destinations

    def are_exceeded(self, losing: int, having: int) -> bool:
        return losing > self.number and losing * 100 > self.share * having


USUAL: Final = WithdrawalLimits()


@dataclass(frozen=True, slots=True)
class Withdrawal(Generic[Destination, Thing]):
    losing: int  #: destinations that lose something, unless it is held
    having: int  #: destinations that have something
    held: Mapping[Destination, Set[Thing]] = field(default_factory=lambda: MappingProxyType({}))  #: what stays

    def message(self, generation: int) -> str:
        """What is held and how to go on, if something is."""
        if not self.held:
            return ""
        return (
            f"objects would be withdrawn from {self.losing} of {self.having} destinations; they stay until the "
            f'placement selects them again or has the annotation {CONFIRM_WITHDRAWAL}: "{generation}/{self.losing}"'
        )


def weigh(
    losses: Mapping[Destination, Set[Thing]],
    having: int,
    *,
    confirmed: bool,
    limits: WithdrawalLimits = USUAL,
) -> Withdrawal[Destination, Thing]:
    """What is held of what each of `having` destinations would lose.  No loss is empty."""
    if confirmed or not limits.are_exceeded(len(losses), having):
        return Withdrawal(len(losses), having)
    return Withdrawal(len(losses), having, MappingProxyType(dict(losses)))


def is_confirmed(annotations: Mapping[str, str], generation: int, losing: int) -> bool:
    """Whether someone confirmed what the present spec of a placement withdraws from so many destinations."""
    of, slash, most = annotations.get(CONFIRM_WITHDRAWAL, "").partition("/")
    if not slash or generation <= 0 or of != str(generation):
        return False
    return most.isascii() and most.isdigit() and len(most) < 10 and losing <= int(most)


def parse_share(text: str) -> int:
    """`50%` or `50`; ValueError if it is no percentage."""
    digits = text.removesuffix("%")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 3 and int(digits) <= 100):
        raise ValueError(f"{text!r} is not a percentage from 0% to 100%")
    return int(digits)


@dataclass(frozen=True, slots=True)
class GuardedIndexes:
    """The indexes that the guard reads; their owner keeps them up to date."""

    world: ObjectIndex
    engine: PlacementIndex
    offers: ServedKinds
    copies: CopyIndex
    placements: Mapping[PlacementKey, PlacementView]


class Withdrawals:
    def __init__(
        self,
        indexes: GuardedIndexes,
        limits: WithdrawalLimits,
        is_heard: Callable[[Source], bool],
        is_undecided: Callable[[PlacementKey], bool],
    ) -> None:
        self._world = indexes.world
        self._engine = indexes.engine
        self._offers = indexes.offers
        self._copies = indexes.copies
        self._placements = indexes.placements
        self._limits = limits
        self._is_heard = is_heard
        self._is_undecided = is_undecided
        self._held: set[PlacementKey] = set()  #: as it was when it was last looked at

    def look_at(self, mailbox: str, part: Part, keys: Iterable[PlacementKey]) -> None:
        """Whether a copy that was made for these placements is withdrawn."""
        unwanted = not self._engine.is_wanted(mailbox, part)
        for key in keys:
            lost = unwanted and key in self._placements and not self._was_deleted(key.cluster, part)
            self._copies.set_lost(key, mailbox, part, lost=lost)

    def _was_deleted(self, cluster: str, part: Part) -> bool:
        """Whether somebody deleted it by name, which is meant.  What a workspace does not serve, nobody knows."""
        seen = self._world.get(cluster, part)
        if seen is not None:
            return not seen.alive
        source = self._offers.source(cluster, part.kind)
        return source is not None and self._is_heard(source)

    def is_held(self, key: PlacementKey) -> bool:
        """Whether a placement withdraws too much at once.  Of one that nobody understands all stays anyway."""
        seen = self._placements.get(key)
        losing, having = len(self._copies.lost(key)), len(self._copies.mailboxes(key))
        if seen is None or not self._limits.are_exceeded(losing, having):
            return False
        return not is_confirmed(seen.annotations, seen.generation, losing) and not self._is_undecided(key)

    def verdict(self, key: PlacementKey) -> Withdrawal[str, Part]:
        lost, having = self._copies.lost(key), len(self._copies.mailboxes(key))
        return Withdrawal(len(lost), having, lost if self.is_held(key) else {})

    def stays(self, mailbox: str, part: Part, key: PlacementKey) -> bool:
        """Whether a copy that nobody wants, and that was made for this placement, stays nevertheless."""
        if self._was_deleted(key.cluster, part):
            return False
        return self._is_undecided(key) or (self.is_held(key) and part in self._copies.lost(key).get(mailbox, ()))

    def is_confirmation_used_up(self, key: PlacementKey) -> bool:
        """It was about the present spec, and nothing is left to be withdrawn."""
        seen = self._placements.get(key)
        return (
            seen is not None
            and is_confirmed(seen.annotations, seen.generation, 0)
            and not self._copies.lost(key)
            and not self._is_undecided(key)
        )

    def is_worth_telling(self, key: PlacementKey) -> bool:
        """Whether something is to be said that was not, or is different from what was."""
        return key in self._held or self.is_held(key) or self.is_confirmation_used_up(key)

    def turns(self, key: PlacementKey) -> bool:
        """Whether it is held and was not when this was last asked, or the other way."""
        held = self.is_held(key)
        if held == (key in self._held):
            return False
        (self._held.add if held else self._held.discard)(key)
        return True
