"""Which copies that nobody wants go, and which are held.  Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from farflung.controllers.placement_translator import guard
from farflung.controllers.placement_translator.copies import Copies
from farflung.controllers.placement_translator.engine import Engine
from farflung.controllers.placement_translator.offers import Offers
from farflung.controllers.placement_translator.reading import SeenPlacement
from farflung.controllers.placement_translator.values import Part, Source
from farflung.controllers.placement_translator.world import PlacementKey, World


class Withdrawals:
    def __init__(
        self,
        world: World,
        engine: Engine,
        offers: Offers,
        copies: Copies,
        placements: Mapping[PlacementKey, SeenPlacement],
        limits: guard.Limits,
        is_heard: Callable[[Source], bool],
        is_undecided: Callable[[PlacementKey], bool],
    ) -> None:
        """All of these are as they are at the moment when something is asked."""
        self._world = world
        self._engine = engine
        self._offers = offers
        self._copies = copies
        self._placements = placements
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
        return not guard.is_confirmed(seen.annotations, seen.generation, losing) and not self._is_undecided(key)

    def verdict(self, key: PlacementKey) -> guard.Verdict[str, Part]:
        lost, having = self._copies.lost(key), len(self._copies.mailboxes(key))
        return guard.Verdict(len(lost), having, lost if self.is_held(key) else {})

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
            and guard.is_confirmed(seen.annotations, seen.generation, 0)
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
