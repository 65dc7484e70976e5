"""What a cluster has for work, from the report of its syncer to its SyncTarget.  Pure."""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

from farflung.machinery import quantity
from farflung.machinery.errors import Obj

MOST: Final = 20  #: resources of a cluster
LONGEST: Final = 64  #: characters of an amount
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,316}")

Amounts = tuple[tuple[str, str], ...]


class Room(NamedTuple):
    """As far as it makes sense.  Nothing at all: the cluster does not say."""

    allocatable: Amounts = ()
    capacity: Amounts = ()


def amounts_of(said: object) -> Amounts:
    """Sorted, and written in the one way that the API gives back."""
    if not isinstance(said, dict):
        return ()
    found = ((name, _text(amount)) for name, amount in said.items() if isinstance(name, str) and NAME.fullmatch(name))
    return tuple(sorted((name, text) for name, text in found if text))[:MOST]


def _text(amount: object) -> str:
    """Empty if it is none that a cluster can have."""
    if not isinstance(amount, str) or len(amount) > LONGEST:
        return ""
    try:
        value = quantity.parse(amount)
        return quantity.canonical(amount) if 0 <= value.nanos <= quantity.LARGEST_BINARY * quantity.ONE else ""
    except quantity.QuantityError:
        return ""


def differences(shown: Any, room: Room) -> Obj:
    """What a merge patch of a status that shows `shown` has to say, so that it shows the room; empty if it does.
    `shown`: whatever has these two fields."""
    found: Obj = {}
    for field, amounts in room._asdict().items():
        before, after = getattr(shown, field, None) or {}, dict(amounts)
        if before != after:
            gone = dict.fromkeys(before if isinstance(before, dict) else ())
            found[field] = {**gone, **after} if after else None
    return found
