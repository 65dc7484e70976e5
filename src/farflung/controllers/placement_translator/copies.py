"""What mailboxes have of what was made for placements, and what of it nobody wants any more.  Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from typing import Final

from farflung.controllers.placement_translator.values import Part
from farflung.controllers.placement_translator.world import PlacementKey

Parts = dict[str, set[Part]]  #: by mailbox; none of the sets is empty
_NONE: Final[Parts] = {}


class Copies:
    def __init__(self) -> None:
        self._made: dict[PlacementKey, Parts] = {}
        self._lost: dict[PlacementKey, Parts] = {}

    def put(self, mailbox: str, part: Part, before: Set[PlacementKey], after: Set[PlacementKey]) -> None:
        """For whom a copy is, as it says."""
        for key in before - after:
            _discard(self._made, key, mailbox, part)
            _discard(self._lost, key, mailbox, part)
        for key in after - before:
            self._made.setdefault(key, {}).setdefault(mailbox, set()).add(part)

    def set_lost(self, key: PlacementKey, mailbox: str, part: Part, *, lost: bool) -> None:
        """Whether it is withdrawn unless it is held."""
        if lost:
            self._lost.setdefault(key, {}).setdefault(mailbox, set()).add(part)
        else:
            _discard(self._lost, key, mailbox, part)

    def forget_mailbox(self, mailbox: str) -> set[PlacementKey]:
        """It is gone, with all that was in it: of these placements."""
        concerned = {key for key, parts in self._made.items() if mailbox in parts}
        for relation in (self._made, self._lost):
            for key in concerned & relation.keys():
                relation[key].pop(mailbox, None)
                if not relation[key]:
                    del relation[key]
        return concerned

    def made(self, key: PlacementKey) -> Iterator[tuple[str, Part]]:
        for mailbox, parts in self._made.get(key, _NONE).items():
            for part in parts:
                yield mailbox, part

    def mailboxes(self, key: PlacementKey) -> Set[str]:
        """Those that have something."""
        return self._made.get(key, _NONE).keys()

    def having(self, key: PlacementKey, part: Part) -> list[str]:
        """The mailboxes that have this part for a placement."""
        return [mailbox for mailbox, parts in self._made.get(key, _NONE).items() if part in parts]

    def lost(self, key: PlacementKey) -> Mapping[str, Set[Part]]:
        return self._lost.get(key, _NONE)


def _discard(relation: dict[PlacementKey, Parts], key: PlacementKey, mailbox: str, part: Part) -> None:
    parts = relation.get(key, _NONE)
    if part not in parts.get(mailbox, ()):
        return
    parts[mailbox].discard(part)
    if not parts[mailbox]:
        del parts[mailbox]
    if not parts:
        del relation[key]
