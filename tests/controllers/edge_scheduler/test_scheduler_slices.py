"""Slices say all destinations, are short, stay mostly as they are, and never lose on the way what stays wanted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from examples import examples
from hypothesis import example, given, settings
from hypothesis import strategies as st

from farflung.apis.edge.names import SOURCE_PLACEMENT
from farflung.controllers.edge_scheduler.decide import LIMIT, plan_slices, sliced
from farflung.machinery import names
from farflung.placement.names import ObjectKey
from farflung.placement.types import (
    Destination,
    Placement,
    destinations_of,
    is_extra,
    owners,
    placements_of,
    previous,
    source_label,
)
from farflung.runtime.plan import Create, Delete, Update, Write

Obj = dict[str, Any]

PLACEMENT = Placement(ObjectKey("wmw", "all2all"), "uid-1")
DESTINATIONS = st.builds(
    Destination,
    st.sampled_from(["imw-1", "imw-2"]),
    st.integers(0, 30).map(lambda number: f"l{number}"),
    st.sampled_from(["t1", "t2"]),
    st.just("u"),
)
SETS = st.sets(DESTINATIONS, max_size=40)
LIMITS = st.integers(1, 9)


def many(count: int, start: int = 0) -> list[Destination]:
    return [Destination("imw", f"location-{number:06}", "t", f"uid-{number}") for number in range(start, start + count)]


class World:
    """Slices as a server has them."""

    def __init__(self, slices: Iterable[Obj] = ()) -> None:
        self.slices: dict[str, Obj] = {}
        self.version = 0
        for one in slices:
            self._store(one)

    def _store(self, obj: Any) -> None:
        self.version += 1
        name = obj["metadata"]["name"]
        metadata = {**obj["metadata"], "uid": f"uid-of-{name}", "resourceVersion": str(self.version)}
        self.slices[name] = {**obj, "metadata": metadata}

    def apply(self, write: Write) -> None:
        match write:
            case Create():
                assert write.name not in self.slices
                self._store(write.object)
            case Update():
                stored = self.slices[write.name]
                assert stored["metadata"]["resourceVersion"] == write.object["metadata"]["resourceVersion"]
                self._store(write.object)
            case Delete():
                assert self.slices.pop(write.name)["metadata"]["uid"] == write.uid
            case _:
                raise AssertionError(write)

    def union(self) -> set[Destination]:
        return {destination for obj in self.slices.values() for destination in destinations_of(obj)}

    def converge(self, desired: list[Obj]) -> int:
        """Apply plans until one is empty, and return how many were not.  Every write brings the slices nearer to the
        desired ones, and no destination that stays wanted is absent in between."""
        wanted = {destination for obj in desired for destination in destinations_of(obj)}
        stays = self.union() & wanted
        rounds, left = 0, distance(desired, self.slices)
        while writes := plan_slices(PLACEMENT, desired, list(self.slices.values())):
            rounds += 1
            for write in writes:
                self.apply(write)
                assert stays <= self.union()
                before, left = left, distance(desired, self.slices)
                assert 0 <= left < before
        assert left == 0
        return rounds


def distance(desired: list[Obj], slices: Mapping[str, Obj]) -> int:
    """The measure that the docstring of `plan` states."""
    absent = differing = 0
    for obj in desired:
        found = slices.get(obj["metadata"]["name"], {"metadata": {}})
        absent += len(set(destinations_of(obj)) - set(destinations_of(found)))
        differing += managed(found) != managed(obj)
    expected = named(desired)
    superfluous = sum(name not in expected and is_extra(PLACEMENT, obj) for name, obj in slices.items())
    return absent + differing + superfluous


def managed(obj: Obj) -> tuple[Any, ...]:
    """What the scheduler decides about a slice."""
    label = (obj["metadata"].get("labels") or {}).get(SOURCE_PLACEMENT)
    return obj.get("destinations"), list(owners(obj)), label


def stripped(world: World) -> dict[str, Obj]:
    server = ("uid", "resourceVersion")
    return {
        name: {**obj, "metadata": {key: value for key, value in obj["metadata"].items() if key not in server}}
        for name, obj in world.slices.items()
    }


def named(slices: list[Obj]) -> dict[str, Obj]:
    return {obj["metadata"]["name"]: obj for obj in slices}


# --- what should be there -------------------------------------------------------------------------


@given(SETS, LIMITS)
def test_every_destination_is_listed_once_in_order_in_short_slices(found: set[Destination], limit: int) -> None:
    slices = sliced(PLACEMENT, sorted(found), limit)
    assert [destination for obj in slices for destination in destinations_of(obj)] == sorted(found)
    assert all(len(obj["destinations"]) <= limit for obj in slices)
    assert slices[0]["metadata"]["name"] == "all2all"
    assert len(named(slices)) == len(slices)
    assert len(slices) == 1 or all(obj["destinations"] for obj in slices)


def test_one_slice_is_what_the_original_makes() -> None:
    found = [Destination("2vh6tnanyw60negt", "dev", "dev", "5a0f-1")]
    owner = {"apiVersion": "edge.kcp.io/v1alpha1", "kind": "EdgePlacement", "name": "all2all", "uid": "uid-1"}
    entry = {
        "cluster": "2vh6tnanyw60negt",
        "locationName": "dev",
        "syncTargetName": "dev",
        "syncTargetUID": "5a0f-1",
    }
    assert sliced(PLACEMENT, found) == [
        {
            "apiVersion": "edge.kcp.io/v1alpha1",
            "kind": "SinglePlacementSlice",
            "metadata": {"name": "all2all", "ownerReferences": [owner]},
            "destinations": [entry],
        }
    ]
    assert sliced(PLACEMENT, [])[0]["destinations"] == []


def test_several_slices_have_the_label_of_their_placement_and_one_has_none() -> None:
    assert [SOURCE_PLACEMENT in obj["metadata"].get("labels", {}) for obj in sliced(PLACEMENT, many(LIMIT))] == [False]
    several = sliced(PLACEMENT, many(LIMIT + 1))
    assert len(several) > 1
    assert {obj["metadata"]["labels"][SOURCE_PLACEMENT] for obj in several} == {"all2all"}


def test_names_and_labels_fit_however_long_the_name_of_the_placement_is() -> None:
    for name in ("a" * 253, "a" * 50 + "." + "b" * 189 + "." + "c" * 12, ("x" * 49 + ".") * 5 + "yyy"):
        placement = Placement(ObjectKey("wmw", name), "uid")
        slices = sliced(placement, many(50), 5)
        assert not any(names.dns_subdomain(obj["metadata"]["name"]) for obj in slices)
        assert not names.label_value(source_label(name))
        assert len(named(slices)) == len(slices)


def test_one_change_among_many_touches_few_slices() -> None:
    found = many(4_000)
    before = named(sliced(PLACEMENT, found, 400))
    assert 10 <= len(before) <= 40
    counts = []
    for at in range(0, 4_000, 199):
        for changed in (found[:at] + found[at + 1 :], [*found[:at], found[at]._replace(uid="new"), *found[at + 1 :]]):
            after = named(sliced(PLACEMENT, changed, 400))
            touched = [name for name in before | after if before.get(name) != after.get(name)]
            counts.append(len(touched))
    assert max(counts) <= 4
    assert sum(counts) <= 1.2 * len(counts)


# --- from the one to the other --------------------------------------------------------------------


@given(SETS, SETS, LIMITS)
def test_a_plan_leads_from_any_slices_to_any_others_at_once(
    before: set[Destination], after: set[Destination], limit: int
) -> None:
    world = World(sliced(PLACEMENT, sorted(before), limit))
    desired = sliced(PLACEMENT, sorted(after), limit)
    assert world.converge(desired) <= 1
    assert stripped(world) == named(desired)


def numbered_slice(number: int, destinations: Iterable[int]) -> Obj:
    """A slice of PLACEMENT with some of the destinations of `many`."""
    several = sliced(PLACEMENT, many(12), 1)
    metadata = {**several[0]["metadata"], "name": f"all2all-{number}" if number else "all2all"}
    return {**several[0], "metadata": metadata, "destinations": [several[at]["destinations"][0] for at in destinations]}


@given(
    st.dictionaries(st.integers(0, 5), st.lists(st.integers(0, 11), max_size=9)),
    st.dictionaries(st.integers(0, 11), st.integers(0, 5)),
)
# None of the slices can drop a destination, and the first one lacks none of its own.
@example({0: [0, 1], 1: [2], 2: [3]}, {0: 0, 1: 1, 2: 2, 3: 1})
@example(
    {
        0: [0, 5, 6, 7, 8, 2, 1, 9, 3],
        1: [0, 4, 6, 7, 8, 2, 1, 9, 1],
        2: [0, 5, 6, 7, 8, 2, 1, 9, 0],
        3: [0, 6, 7, 8, 2, 1, 9, 3, 0],
    },
    {0: 0, 1: 1, 2: 2, 3: 2, 4: 3, 5: 3},
)
def test_two_plans_lead_from_slices_with_any_destinations_to_any_others(
    observed: dict[int, list[int]], wanted: dict[int, int]
) -> None:
    """`observed`: the destinations in each slice, some perhaps twice.  `wanted`: the slice of each destination."""
    parts: dict[int, list[int]] = {}
    for destination, number in sorted(wanted.items()):
        parts.setdefault(number, []).append(destination)
    desired = [numbered_slice(number, part) for number, part in parts.items()]
    world = World(numbered_slice(number, part) for number, part in observed.items())
    assert world.converge(desired) <= 2
    assert stripped(world) == named(desired)


def test_slices_that_exchange_destinations_are_written_so_that_none_is_lost() -> None:
    desired = sliced(PLACEMENT, many(6), 3)
    shuffled = [
        {**obj, "destinations": other["destinations"]}
        for obj, other in zip(desired, [*desired[1:], desired[0]], strict=True)
    ]
    world = World(shuffled)
    assert world.converge(desired) == 2
    assert stripped(world) == named(desired)


def test_a_plan_ends_in_deletions() -> None:
    world = World(sliced(PLACEMENT, many(20), 3))
    writes = plan_slices(PLACEMENT, sliced(PLACEMENT, many(3), 3), world.slices.values())
    kinds = [type(write) for write in writes]
    assert kinds == sorted(kinds, key=lambda kind: kind is Delete)
    assert kinds.count(Delete) == len(world.slices) - 1


def test_nothing_is_written_if_nothing_changed() -> None:
    for limit in (5, 50):
        desired = sliced(PLACEMENT, many(20), limit)
        assert plan_slices(PLACEMENT, desired, World(desired).slices.values()) == []


def test_what_others_say_of_a_slice_stays_and_what_is_ours_is_repaired() -> None:
    desired = sliced(PLACEMENT, many(2))
    stranger = {"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "u", "controller": True}
    stale = {**desired[0]["metadata"]["ownerReferences"][0], "uid": "uid-0"}
    edited = {
        **desired[0],
        "metadata": {
            "name": "all2all",
            "labels": {"mine": "yes", SOURCE_PLACEMENT: "all2all"},
            "annotations": {"note": "hi"},
            "ownerReferences": [stale, stranger],
            "managedFields": [{"manager": "kubectl"}],
        },
        "destinations": desired[0]["destinations"][::-1],
    }
    world = World([edited])
    assert world.converge(desired) == 1
    metadata = stripped(world)["all2all"]["metadata"]
    assert metadata["labels"] == {"mine": "yes"}
    assert metadata["annotations"] == {"note": "hi"}
    assert metadata["ownerReferences"] == [stranger, desired[0]["metadata"]["ownerReferences"][0]]
    assert world.slices["all2all"]["destinations"] == desired[0]["destinations"]


def test_slices_of_others_are_left_alone() -> None:
    other = sliced(Placement(ObjectKey("wmw", "other"), "uid-2"), many(20), 3)
    unowned = {"metadata": {"name": "x", "uid": "x", "labels": {SOURCE_PLACEMENT: "all2all"}}, "destinations": []}
    desired = sliced(PLACEMENT, many(2))
    assert [type(write) for write in plan_slices(PLACEMENT, desired, [*other, unowned])] == [Create]


def test_a_placement_that_is_made_again_takes_over_the_slices_of_its_name_but_not_what_they_say() -> None:
    old = Placement(PLACEMENT.key, "uid-0")
    world = World(sliced(old, many(20), 3))
    observed = list(world.slices.values())
    assert previous(PLACEMENT, observed) == frozenset()
    assert previous(old, observed) == frozenset(many(20))
    desired = sliced(PLACEMENT, many(20), 3)
    assert world.converge(desired) == 1
    assert stripped(world) == named(desired)


@settings(max_examples=examples(30))
@given(
    st.recursive(
        st.none() | st.booleans() | st.text() | st.integers(),
        lambda some: st.lists(some) | st.dictionaries(st.text(), some),
    )
)
def test_destinations_that_make_no_sense_are_left_out(nonsense: Any) -> None:
    entry = sliced(PLACEMENT, many(1))[0]["destinations"][0]
    obj = {"metadata": {"name": "all2all"}, "destinations": [nonsense, entry, {**entry, "cluster": 7}]}
    assert destinations_of(obj) == tuple(many(1))


def test_a_slice_concerns_its_owner_and_the_placement_of_its_name() -> None:
    first, second = sliced(PLACEMENT, many(6), 3)[:2]
    assert placements_of(first) == {"all2all"}
    assert placements_of(second) == {"all2all", second["metadata"]["name"]}
