"""How many replicas go where."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scheduling_twin import divide as divide_plainly

from farflung.machines.engine.strategies import ClusterBounds, divide, group_by_region, placeable
from farflung.machines.engine.values import LocalStrategy, MachineRequest, SiteSelector

CENTRALIZE, DISCRETE, SPREAD = LocalStrategy


def shares(strategy: LocalStrategy, replicas: int, rooms: list[int], least: int = 0, most: int = 0) -> list[int]:
    """For each site, the best one first."""
    given = dict(divide(strategy, list(enumerate(rooms)), replicas, ClusterBounds(least, most)))
    return [given.get(place, 0) for place in range(len(rooms))] if given else []


@pytest.mark.parametrize(
    ("strategy", "replicas", "rooms", "expected"),
    [
        # the worked cases of the original, which placed 9 of 10, 6 of 7 and two sites where one would do
        (DISCRETE, 10, [10, 10, 10], [4, 3, 3]),
        (DISCRETE, 7, [7, 7, 7], [3, 2, 2]),
        (DISCRETE, 2, [1000, 1000], [1, 1]),
        (DISCRETE, 4, [1] * 8, [1, 1, 1, 1, 0, 0, 0, 0]),
        (DISCRETE, 5, [1, 9], [1, 4]),
        (DISCRETE, 3, [5, 1, 1], [2, 1, 0]),
        (CENTRALIZE, 5, [1, 9], [0, 5]),
        (CENTRALIZE, 10, [3, 8, 7], [3, 7, 0]),
        (CENTRALIZE, 15, [3, 8, 7], [0, 8, 7]),
        (CENTRALIZE, 18, [3, 8, 7], [3, 8, 7]),
        (CENTRALIZE, 19, [3, 8, 7], []),
        (DISCRETE, 10, [90, 10], [9, 1]),
        (DISCRETE, 10, [10, 90], [1, 9]),
        (SPREAD, 7, [9, 9, 9], [3, 2, 2]),
        (SPREAD, 7, [3, 2, 9], [3, 2, 2]),
        (SPREAD, 7, [1, 1, 9], [1, 1, 5]),
        (SPREAD, 2, [9, 9, 9], [1, 1, 0]),
        (CENTRALIZE, 0, [9], []),
        (SPREAD, 1, [], []),
    ],
)
def test_replicas_are_divided_as_the_strategy_says(
    strategy: LocalStrategy, replicas: int, rooms: list[int], expected: list[int]
) -> None:
    assert shares(strategy, replicas, rooms) == expected


@pytest.mark.parametrize(
    ("strategy", "least", "most", "expected"),
    [
        (CENTRALIZE, 3, 0, [7, 1, 1]),
        (CENTRALIZE, 4, 0, []),
        (CENTRALIZE, 0, 1, [9, 0, 0]),
        (SPREAD, 0, 2, [5, 4, 0]),
        (SPREAD, 2, 2, [5, 4, 0]),
        (SPREAD, 3, 2, []),
        (DISCRETE, 0, 1, [9, 0, 0]),
        (DISCRETE, 3, 3, [3, 3, 3]),
    ],
)
def test_the_number_of_clusters_has_bounds(strategy: LocalStrategy, least: int, most: int, expected: list[int]) -> None:
    assert shares(strategy, 9, [9, 9, 9], least, most) == expected


def test_the_region_that_can_take_most_comes_first_and_of_those_alike_the_one_with_the_best_site() -> None:
    sites = [("a", "east", 2), ("b", "west", 4), ("c", "east", 2), ("d", "north", 1), ("e", "south", 4)]
    assert group_by_region(sites) == [[("a", 2), ("c", 2)], [("b", 4)], [("e", 4)], [("d", 1)]]


rooms = st.lists(st.integers(1, 9), max_size=6)


@given(st.sampled_from(LocalStrategy), st.integers(1, 20), rooms, st.integers(0, 4), st.integers(0, 4))
def test_all_replicas_are_placed_or_none_as_when_everything_is_tried(
    strategy: LocalStrategy, replicas: int, rooms: list[int], least: int, most: int
) -> None:
    selector = SiteSelector(strategy=strategy, min_clusters=least, max_clusters=most)
    given = shares(strategy, replicas, rooms, least, most)
    assert given == divide_plainly(MachineRequest("", (), selector, replicas), rooms)
    if given:
        assert sum(given) == replicas
        assert all(share <= room for share, room in zip(given, rooms, strict=True))
        assert max(1, least) <= sum(share > 0 for share in given) <= (most or len(rooms))
    else:
        assert placeable(list(enumerate(rooms)), replicas, ClusterBounds(least, most)) < replicas
