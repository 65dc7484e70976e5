"""Changes to the placements to reconcile.  Pure.

The resolver knows which placements a Location or a SyncTarget affects; slices name their placements.  The triggers of a
placement since its last reconcile are kept for the log.

Until all informers have a list, placements are not added to the resolver: all of them will be reconciled anyway, and
matching each Location with each placement would take longer than resolving each placement once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from typing import Final, NamedTuple

import msgspec

from farflung.controllers.placing_rights.decide import RightKey
from farflung.lib.groups import discard_from
from farflung.placement.names import ObjectKey
from farflung.placement.resolve import Resolution, Resolver
from farflung.placement.types import Destination, Location, Placement, PlacingRight, TargetForScheduling
from farflung.runtime import cache
from farflung.runtime.cache import CacheChange

MAX_TRIGGERS: Final = 100  #: of one placement that are kept
SLICE: Final = "SinglePlacementSlice"


class ParsedSlice(msgspec.Struct, frozen=True):
    """The document of a SinglePlacementSlice and the placements that own it."""

    document: bytes
    placements: frozenset[str]  #: names


class Trigger(NamedTuple):
    kind: str
    key: str


class Triggers:
    def __init__(self, resolver: Resolver) -> None:
        self._resolver = resolver
        self._waiting: dict[ObjectKey, Placement] | None = {}  #: None after `begin`
        self._pending: dict[ObjectKey, dict[Trigger, None]] = {}
        self._slices: dict[ObjectKey, set[cache.Key]] = {}  #: the slices of a placement, which need not exist
        self._waiting_for: dict[RightKey, set[ObjectKey]] = {}  #: placements that were not resolved without that right

    @property
    def has_begun(self) -> bool:
        return self._waiting is None

    def begin(self) -> None:
        """All informers have a list: add the placements to the resolver."""
        waiting, self._waiting = self._waiting or {}, None
        for placement in waiting.values():
            self._resolver.put_placement(placement)

    def take(self, key: ObjectKey) -> list[Trigger]:
        """The triggers since the last call, at least one.  A slice counts only if it is the only one: the controller's
        own writes are triggers, too."""
        found = self._pending.pop(key, {})
        return [one for one in found if one.kind != SLICE] or [*found] or [Trigger("EdgePlacement", text(key))]

    def slices(self, key: ObjectKey) -> Iterable[cache.Key]:
        return sorted(self._slices.get(key, ()))

    def on_placement(self, change: CacheChange[Placement]) -> Iterator[ObjectKey]:
        key = ObjectKey(change.key.cluster, change.key.name)
        if self._waiting is not None:
            self._waiting.pop(key, None)
            if change.new is not None:
                self._waiting[key] = change.new
        elif change.new is not None:
            self._resolver.put_placement(change.new)
        else:
            self._resolver.remove_placement(key)
        yield from self._record("EdgePlacement", key, (key,))

    def on_location(self, change: CacheChange[Location]) -> Iterator[ObjectKey]:
        key = ObjectKey(change.key.cluster, change.key.name)
        new = change.new
        concerned = self._resolver.remove_location(key) if new is None else self._resolver.put_location(new)
        yield from self._record("Location", key, concerned)

    def on_target(self, change: CacheChange[TargetForScheduling]) -> Iterator[ObjectKey]:
        key = ObjectKey(change.key.cluster, change.key.name)
        new = change.new
        concerned = self._resolver.remove_target(key) if new is None else self._resolver.put_target(new)
        yield from self._record("SyncTarget", key, concerned)

    def on_slice(self, change: CacheChange[ParsedSlice]) -> Iterator[ObjectKey]:
        cluster = change.key.cluster
        before = change.old.placements if change.old is not None else frozenset()
        after = change.new.placements if change.new is not None else frozenset()
        for name in before - after:
            discard_from(self._slices, ObjectKey(cluster, name), change.key)
        for name in after - before:
            self._slices.setdefault(ObjectKey(cluster, name), set()).add(change.key)
        named = sorted(ObjectKey(cluster, name) for name in before | after)
        concerned = [key for key in named if self._resolver.placement(key) is not None]
        yield from self._record(SLICE, ObjectKey(cluster, change.key.name), concerned)

    # --- rights of authors ------------------------------------------------------------------------

    def missing_rights(self, placement: Placement, kept: Set[Destination] = frozenset()) -> list[RightKey]:
        """The rights that are not known and decide its destinations.  `waiting` has the placement until they are.
        `kept`: see `Resolver.undecided`."""
        author = placement.author
        clusters = self._resolver.undecided(placement.key, kept)
        found = [] if author is None else [RightKey(author, one) for one in sorted(clusters)]
        for key in found:
            self._waiting_for.setdefault(key, set()).add(placement.key)
        return found

    def waiting(self, key: RightKey) -> Iterable[ObjectKey]:
        return sorted(self._waiting_for.get(key, ()))

    def on_right(self, key: RightKey, right: PlacingRight) -> Iterator[ObjectKey]:
        """Placements that waited keep their trigger."""
        waiting = self._waiting_for.pop(key, set())
        concerned = self._resolver.put_right(*key, right)
        yield from sorted(waiting)
        yield from self._record("PlacingRight", ObjectKey(key.cluster, key.author.user), concerned - waiting)

    def _record(self, kind: str, key: ObjectKey, concerned: Iterable[ObjectKey]) -> Iterator[ObjectKey]:
        trigger = Trigger(kind, text(key))
        for placement in concerned:
            if self._resolver.placement(placement) is None and placement not in (self._waiting or ()):
                self._pending.pop(placement, None)
            elif len(pending := self._pending.setdefault(placement, {})) < MAX_TRIGGERS:
                pending[trigger] = None
            yield placement


def location_triggers(resolution: Resolution) -> Iterator[Trigger]:
    """The Locations of the destinations, each once."""
    for key in dict.fromkeys(ObjectKey(one.cluster, one.location) for one in resolution.destinations):
        yield Trigger("Location", text(key))


def text(key: ObjectKey) -> str:
    return f"{key.cluster}|{key.name}"
