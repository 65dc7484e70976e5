"""The guard: hold withdrawals that affect too many destinations of a placement, until they are confirmed."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Set
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

from farflung.apis.edge.names import CONFIRM_WITHDRAWAL

if TYPE_CHECKING:  # a hub process needs only WithdrawalLimits, and starts without the engine
    from farflung.placement.index import CopyIndex, ObjectIndex, PlacementIndex, ServedKinds
    from farflung.placement.names import ObjectRef, PlacementKey, WatchedCollection
    from farflung.placement.types import Placement

Destination = TypeVar("Destination", bound=Hashable)
Object = TypeVar("Object", bound=Hashable)


class WithdrawalLimits(NamedTuple):
    """A withdrawal is held if it exceeds both."""

    share: int = 50  #: of the destinations, in percent
    number: int = 10  #: destinations

    def are_exceeded(self, affected: int, total: int) -> bool:
        return affected > self.number and affected * 100 > self.share * total


DEFAULT_LIMITS: Final = WithdrawalLimits()


@dataclass(frozen=True, slots=True)
class Withdrawal(Generic[Destination, Object]):
    affected: int  #: destinations that would lose a copy
    total: int  #: destinations with copies
    held: Mapping[Destination, Set[Object]] = field(default_factory=lambda: MappingProxyType({}))  #: copies that stay

    def message(self, generation: int) -> str:
        """Describes what is held and how to confirm it; empty if nothing is held."""
        if not self.held:
            return ""
        return (
            f"objects would be withdrawn from {self.affected} of {self.total} destinations; they stay until the "
            f'placement selects them again or has the annotation {CONFIRM_WITHDRAWAL}: "{generation}/{self.affected}"'
        )


def check_withdrawal(
    losses: Mapping[Destination, Set[Object]],
    total: int,
    *,
    confirmed: bool,
    limits: WithdrawalLimits = DEFAULT_LIMITS,
) -> Withdrawal[Destination, Object]:
    """`losses`: the copies that each destination would lose, no set empty; `total`: destinations with copies."""
    if confirmed or not limits.are_exceeded(len(losses), total):
        return Withdrawal(len(losses), total)
    return Withdrawal(len(losses), total, MappingProxyType(dict(losses)))


def is_confirmed(annotations: Mapping[str, str], generation: int, affected: int) -> bool:
    """Whether the annotation confirms withdrawals of this generation from `affected` destinations."""
    of, slash, most = annotations.get(CONFIRM_WITHDRAWAL, "").partition("/")
    if not slash or generation <= 0 or of != str(generation):
        return False
    return most.isascii() and most.isdigit() and len(most) < 10 and affected <= int(most)


def parse_share(text: str) -> int:
    """`50%` or `50`; ValueError if it is no percentage."""
    digits = text.removesuffix("%")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 3 and int(digits) <= 100):
        raise ValueError(f"{text!r} is not a percentage from 0% to 100%")
    return int(digits)


@dataclass(frozen=True, slots=True)
class GuardedIndexes:
    """The indexes that the guard reads; their owner keeps them up to date."""

    objects: ObjectIndex
    selections: PlacementIndex
    served_kinds: ServedKinds
    copies: CopyIndex
    placements: Mapping[PlacementKey, Placement]


class Withdrawals:
    def __init__(
        self,
        indexes: GuardedIndexes,
        limits: WithdrawalLimits,
        is_listed: Callable[[WatchedCollection], bool],
        is_unresolved: Callable[[PlacementKey], bool],
    ) -> None:
        self._indexes = indexes
        self._limits = limits
        self._is_listed = is_listed
        self._is_unresolved = is_unresolved
        self._held: set[PlacementKey] = set()  #: as of the last call of `held_changed`

    def update(self, mailbox: str, ref: ObjectRef, keys: Iterable[PlacementKey]) -> None:
        """Update whether a copy of these placements is being withdrawn."""
        unwanted = not self._indexes.selections.is_desired(mailbox, ref)
        for key in keys:
            withdrawn = unwanted and key in self._indexes.placements and not self._was_deleted(key.cluster, ref)
            self._indexes.copies.set_withdrawal(key, mailbox, ref, withdrawn=withdrawn)

    def _was_deleted(self, cluster: str, ref: ObjectRef) -> bool:
        """Whether the source was deleted: such a withdrawal is intended.  False if the workspace does not serve the
        kind."""
        seen = self._indexes.objects.get(cluster, ref)
        if seen is not None:
            return seen.is_terminating
        watched = self._indexes.served_kinds.collection(cluster, ref.resource)
        return watched is not None and self._is_listed(watched)

    def is_held(self, key: PlacementKey) -> bool:
        """Whether the withdrawals of a placement exceed the limits.  An unresolved placement withdraws nothing
        anyway."""
        seen = self._indexes.placements.get(key)
        affected, total = len(self._indexes.copies.withdrawals(key)), len(self._indexes.copies.mailboxes(key))
        if seen is None or not self._limits.are_exceeded(affected, total):
            return False
        return not is_confirmed(seen.annotations, seen.generation, affected) and not self._is_unresolved(key)

    def withdrawal(self, key: PlacementKey) -> Withdrawal[str, ObjectRef]:
        lost, total = self._indexes.copies.withdrawals(key), len(self._indexes.copies.mailboxes(key))
        return Withdrawal(len(lost), total, lost if self.is_held(key) else {})

    def stays(self, mailbox: str, ref: ObjectRef, key: PlacementKey) -> bool:
        """Whether an unwanted copy of this placement is not withdrawn."""
        if self._was_deleted(key.cluster, ref):
            return False
        return self._is_unresolved(key) or (
            self.is_held(key) and ref in self._indexes.copies.withdrawals(key).get(mailbox, ())
        )

    def is_confirmation_used_up(self, key: PlacementKey) -> bool:
        """Whether the confirmed withdrawals are complete."""
        seen = self._indexes.placements.get(key)
        return (
            seen is not None
            and is_confirmed(seen.annotations, seen.generation, 0)
            and not self._indexes.copies.withdrawals(key)
            and not self._is_unresolved(key)
        )

    def needs_status_update(self, key: PlacementKey) -> bool:
        """Whether the status of the placement may need an update."""
        return key in self._held or self.is_held(key) or self.is_confirmation_used_up(key)

    def held_changed(self, key: PlacementKey) -> bool:
        """Whether `is_held` changed since the last call."""
        held = self.is_held(key)
        if held == (key in self._held):
            return False
        (self._held.add if held else self._held.discard)(key)
        return True
