"""How much a placement may withdraw at once.

One wrong label can take the workload from a whole fleet.  A change that takes objects from too many of the mailboxes
that have some is held: what nobody wants stays where it is until someone confirms that this is meant, or until what was
wanted before is wanted again.  Nothing needs to be remembered: what mailboxes have, what they should have and what the
placement says are all that counts.

Who confirms says of which generation of the placement, and how many destinations may lose something: what happens later
to more of them, or after another change of the spec, is held again.  A confirmation is used up when all is withdrawn.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Set
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Generic, NamedTuple, TypeVar

CONFIRM: Final = "edge.kcp.io/confirm-withdrawal"  #: annotation of a placement: GENERATION/DESTINATIONS

Destination = TypeVar("Destination", bound=Hashable)
Thing = TypeVar("Thing", bound=Hashable)


class Limits(NamedTuple):
    """A withdrawal is held if it is beyond both."""

    share: int = 50  #: of the destinations, in percent
    number: int = 10  #: destinations

    def are_exceeded(self, losing: int, having: int) -> bool:
        return losing > self.number and losing * 100 > self.share * having


USUAL: Final = Limits()


@dataclass(frozen=True, slots=True)
class Verdict(Generic[Destination, Thing]):
    losing: int  #: destinations that lose something, unless it is held
    having: int  #: destinations that have something
    held: Mapping[Destination, Set[Thing]] = field(default_factory=lambda: MappingProxyType({}))  #: what stays

    def message(self, generation: int) -> str:
        """What is held and how to go on, if something is."""
        if not self.held:
            return ""
        return (
            f"objects would be withdrawn from {self.losing} of {self.having} destinations; they stay until the "
            f'placement selects them again or has the annotation {CONFIRM}: "{generation}/{self.losing}"'
        )


def weigh(
    losses: Mapping[Destination, Set[Thing]],
    having: int,
    *,
    confirmed: bool,
    limits: Limits = USUAL,
) -> Verdict[Destination, Thing]:
    """What is held of what each of `having` destinations would lose.  No loss is empty."""
    if confirmed or not limits.are_exceeded(len(losses), having):
        return Verdict(len(losses), having)
    return Verdict(len(losses), having, MappingProxyType(dict(losses)))


def is_confirmed(annotations: Mapping[str, str], generation: int, losing: int) -> bool:
    """Whether someone confirmed what the present spec of a placement withdraws from so many destinations."""
    of, slash, most = annotations.get(CONFIRM, "").partition("/")
    if not slash or generation <= 0 or of != str(generation):
        return False
    return most.isascii() and most.isdigit() and len(most) < 10 and losing <= int(most)


def parse_share(text: str) -> int:
    """`50%` or `50`; ValueError if it is no percentage."""
    digits = text.removesuffix("%")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 3 and int(digits) <= 100):
        raise ValueError(f"{text!r} is not a percentage from 0% to 100%")
    return int(digits)
