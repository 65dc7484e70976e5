"""From where objects come back, and which."""

from __future__ import annotations

from typing import Any

import pytest

from farflung.inspect.upsynced import has_upsync, upsync_routes
from farflung.machinery.errors import Obj
from farflung.placement.names import GroupResource, ObjectRef


def wanted(group: str = "example.org", *resources: str, namespaces: Any = ("*",), names: Any = ("*",)) -> Obj:
    sets = {"namespaces": list(namespaces), "names": list(names)}
    return {"apiGroup": group, "resources": list(resources or ("widgets",)), **sets}


def placement(uid: str, *upsync: Obj) -> Obj:
    return {"metadata": {"name": uid, "uid": uid}, "spec": {"upsync": list(upsync)}}


def part_of(owner: str, *destinations: tuple[str, str, str]) -> Obj:
    reference = {"apiVersion": "edge.kcp.io/v1alpha1", "kind": "EdgePlacement", "name": owner, "uid": owner}
    places = [
        {"cluster": "c", "locationName": location, "syncTargetName": target, "syncTargetUID": uid}
        for location, target, uid in destinations
    ]
    return {"metadata": {"ownerReferences": [reference]}, "destinations": places}


def test_places_are_those_of_placements_that_bring_something_back() -> None:
    some = [placement("up", wanted()), placement("down"), placement("odd", {"apiGroup": 3})]
    slices = [
        part_of("up", ("l1", "t1", "1")),
        part_of("up", ("l2", "t1", "1"), ("l2", "t2", "2")),
        part_of("down", ("l3", "t3", "3")),
        part_of("odd", ("l4", "t4", "4")),
        {"metadata": {}, "destinations": [None]},
    ]
    found = upsync_routes(some, slices)
    assert {name: way.destination.locations for name, way in found.items()} == {
        "c-mb-1": ("l1", "l2"),
        "c-mb-2": ("l2",),
    }


@pytest.mark.parametrize(
    ("upsync", "ref", "brought"),
    [
        (wanted(), ObjectRef(GroupResource("example.org", "widgets"), "shop", "a"), True),
        (wanted(), ObjectRef(GroupResource("example.org", "widgets"), "", "a"), True),
        (wanted(), ObjectRef(GroupResource("other.org", "widgets"), "shop", "a"), False),
        (wanted(), ObjectRef(GroupResource("example.org", "gadgets"), "shop", "a"), False),
        (wanted("example.org", "*"), ObjectRef(GroupResource("example.org", "gadgets"), "shop", "a"), True),
        (wanted(namespaces=("farm",)), ObjectRef(GroupResource("example.org", "widgets"), "shop", "a"), False),
        (wanted(namespaces=("farm",)), ObjectRef(GroupResource("example.org", "widgets"), "", "a"), True),
        (wanted(names=("b",)), ObjectRef(GroupResource("example.org", "widgets"), "shop", "a"), False),
        (wanted(names=("b", "*")), ObjectRef(GroupResource("example.org", "widgets"), "shop", "a"), True),
        (wanted(names=()), ObjectRef(GroupResource("example.org", "widgets"), "shop", "a"), False),
    ],
)
def test_a_place_brings_back_what_its_placements_say(upsync: Obj, ref: ObjectRef, brought: bool) -> None:
    [way] = upsync_routes([placement("p", upsync)], [part_of("p", ("l", "t", "1"))]).values()
    assert way.wanted.upsyncs(*ref) is brought


def test_two_placements_bring_back_together_what_each_does() -> None:
    some = [placement("p", wanted(names=("a",))), placement("q", wanted(names=("b",)))]
    [way] = upsync_routes(some, [part_of("p", ("l", "t", "1")), part_of("q", ("m", "t", "1"))]).values()
    assert [way.wanted.upsyncs(GroupResource("example.org", "widgets"), "shop", name) for name in "abc"] == [
        True,
        True,
        False,
    ]
    assert way.destination.locations == ("l", "m")


def test_an_invalid_placement_returns_no_status() -> None:
    assert [has_upsync(placement("p", *some)) for some in ((), (wanted(),), (wanted(), {"names": 7}))] == [
        False,
        True,
        False,
    ]
