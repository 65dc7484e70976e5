"""Which placements are looked at, before and after everything was listed."""

from __future__ import annotations

from farflung.apis.edge.authors import Author
from farflung.controllers.edge_scheduler.triggers import MAX_TRIGGERS, ParsedSlice, Trigger, Triggers
from farflung.controllers.placing_rights.decide import RightKey
from farflung.machinery.selectors import EVERYTHING
from farflung.placement.names import ObjectKey
from farflung.placement.resolve import Resolver
from farflung.placement.types import Location, Placement, PlacingRight, TargetForScheduling
from farflung.runtime import cache
from farflung.runtime.cache import CacheChange

ALICE = Author("alice")


def seen(name: str, generation: int = 1) -> Placement:
    return Placement(ObjectKey("wmw", name), "uid", generation, (EVERYTHING,), author=ALICE)


def placement(name: str, old: Placement | None, new: Placement | None) -> CacheChange[Placement]:
    return CacheChange(cache.Key("wmw", "", name), old, new)


LOCATION = CacheChange(cache.Key("imw", "", "l"), None, Location(ObjectKey("imw", "l")))
TARGET = CacheChange(cache.Key("imw", "", "t"), None, TargetForScheduling(ObjectKey("imw", "t"), "uid"))


def slice_of(*placements: str) -> CacheChange[ParsedSlice]:
    return CacheChange(cache.Key("wmw", "", placements[0]), None, ParsedSlice(b"{}", frozenset(placements)))


def test_placements_that_are_listed_first_know_of_everything_that_is_listed_after_them() -> None:
    resolver = Resolver()
    triggers = Triggers(resolver)
    assert list(triggers.on_placement(placement("p", None, seen("p")))) == [ObjectKey("wmw", "p")]
    assert list(triggers.on_placement(placement("gone", None, seen("gone")))) == [ObjectKey("wmw", "gone")]
    assert list(triggers.on_location(LOCATION)) == []
    assert list(triggers.on_target(TARGET)) == []
    assert list(triggers.on_placement(placement("p", seen("p"), seen("p", 2)))) == [ObjectKey("wmw", "p")]
    assert list(triggers.on_placement(placement("gone", seen("gone"), None))) == [ObjectKey("wmw", "gone")]
    triggers.begin()
    assert [(one.key.name, one.generation) for one in resolver.placements()] == [("p", 2)]
    assert list(triggers.on_right(RightKey(ALICE, "imw"), PlacingRight(everywhere=True))) == [ObjectKey("wmw", "p")]
    assert len(resolver.resolve(ObjectKey("wmw", "p")).destinations) == 1


def test_after_begin_every_change_names_the_affected_placements() -> None:
    triggers = Triggers(Resolver())
    triggers.begin()
    list(triggers.on_placement(placement("p", None, seen("p"))))
    triggers.begin()
    assert list(triggers.on_location(LOCATION)) == [ObjectKey("wmw", "p")]
    assert triggers.take(ObjectKey("wmw", "p")) == [Trigger("EdgePlacement", "wmw|p"), Trigger("Location", "imw|l")]
    list(triggers.on_slice(slice_of("p")))
    assert triggers.take(ObjectKey("wmw", "p")) == [Trigger("SinglePlacementSlice", "wmw|p")]
    list(triggers.on_slice(slice_of("p")))
    list(triggers.on_location(CacheChange(cache.Key("imw", "", "m"), None, Location(ObjectKey("imw", "m")))))
    assert triggers.take(ObjectKey("wmw", "p")) == [Trigger("Location", "imw|m")], "the scheduler writes slices itself"
    assert triggers.take(ObjectKey("wmw", "p")) == [Trigger("EdgePlacement", "wmw|p")]
    assert list(triggers.on_target(TARGET)) == [ObjectKey("wmw", "p")]
    assert list(triggers.on_placement(placement("p", seen("p"), None))) == [ObjectKey("wmw", "p")]
    assert list(triggers.on_slice(slice_of("p"))) == []


def test_triggers_of_placements_that_are_never_reconciled_are_limited() -> None:
    triggers = Triggers(Resolver())
    triggers.begin()
    list(triggers.on_placement(placement("p", None, seen("p"))))
    for number in range(2 * MAX_TRIGGERS):
        key = ObjectKey("imw", f"l{number}")
        list(triggers.on_location(CacheChange(cache.Key("imw", "", key.name), None, Location(key))))
    assert len(triggers.take(ObjectKey("wmw", "p"))) == MAX_TRIGGERS
    list(triggers.on_location(LOCATION))
    list(triggers.on_placement(placement("p", seen("p"), None)))
    list(triggers.on_placement(placement("p", None, seen("p"))))
    assert triggers.take(ObjectKey("wmw", "p")) == [Trigger("EdgePlacement", "wmw|p")]


def test_a_further_slice_concerns_its_placement_and_none_that_would_be_called_as_it_is() -> None:
    triggers = Triggers(Resolver())
    triggers.begin()
    list(triggers.on_placement(placement("p", None, seen("p"))))
    assert list(triggers.on_slice(slice_of("p-0123", "p"))) == [ObjectKey("wmw", "p")]
    assert list(triggers.slices(ObjectKey("wmw", "p"))) == [cache.Key("wmw", "", "p-0123")]
