"""Laws of choosing some Locations out of many."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from farflung.placement.names import ObjectKey
from farflung.placement.resolve import LocationCandidate, choose

GROUPS = st.sampled_from([("eu",), ("us",), ("asia",), (None,)])


def candidates(avoided: st.SearchStrategy[bool], most: int) -> st.SearchStrategy[list[LocationCandidate]]:
    one = st.builds(
        LocationCandidate,
        st.builds(ObjectKey, st.just("imw"), st.text("abc", min_size=1)),
        GROUPS,
        st.booleans(),
        avoided,
    )
    return st.lists(one, max_size=most, unique_by=lambda candidate: candidate.key)


WILLING = candidates(st.just(False), 7)
ANY = candidates(st.booleans(), 12)
NUMBERS = st.integers(0, 8)


@given(ANY, NUMBERS)
def test_there_are_as_many_as_wanted_or_all(given: list[LocationCandidate], number: int) -> None:
    chosen = choose(given, number)
    assert len(chosen) == min(number, len(given))
    assert chosen <= {one.key for one in given}


@given(ANY, NUMBERS, st.randoms(use_true_random=False))
def test_the_order_of_candidates_does_not_matter(given: list[LocationCandidate], number: int, random: object) -> None:
    shuffled = list(given)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert choose(shuffled, number) == choose(given, number)


@given(ANY, NUMBERS)
def test_asking_for_more_never_drops_a_choice(given: list[LocationCandidate], number: int) -> None:
    assert choose(given, number) <= choose(given, number + 1)


@given(ANY, NUMBERS)
def test_choosing_again_what_was_chosen_changes_nothing(given: list[LocationCandidate], number: int) -> None:
    chosen = choose(given, number)
    assert choose([one._replace(is_current=one.key in chosen) for one in given], number) == chosen


@given(WILLING, NUMBERS)
def test_no_other_choice_is_more_even_and_none_as_even_keeps_more(given: list[LocationCandidate], number: int) -> None:
    def rating(some: tuple[LocationCandidate, ...]) -> tuple[int, int]:
        crowding = sum(count * count for count in Counter(one.group for one in some).values())
        return crowding, -sum(one.is_current for one in some)

    chosen = choose(given, number)
    ours = tuple(one for one in given if one.key in chosen)
    assert rating(ours) == min(map(rating, combinations(given, len(ours))))


@given(WILLING, NUMBERS)
def test_groups_differ_by_one_at_most_unless_one_is_used_up(given: list[LocationCandidate], number: int) -> None:
    chosen = choose(given, number)
    taken = Counter(one.group for one in given if one.key in chosen)
    there = Counter(one.group for one in given)
    assert all(taken[some] <= taken[other] + 1 for some in there for other in there if taken[other] < there[other])


@given(ANY, NUMBERS)
def test_reluctant_locations_are_chosen_only_if_no_other_is_left(given: list[LocationCandidate], number: int) -> None:
    chosen = choose(given, number)
    if any(one.prefers_no_schedule and not one.is_current and one.key in chosen for one in given):
        assert all(one.key in chosen for one in given if one.is_current or not one.prefers_no_schedule)


def test_ties_are_broken_by_name() -> None:
    given = [LocationCandidate(ObjectKey("imw", name), ("eu",)) for name in "cab"]
    assert choose(given, 2) == {ObjectKey("imw", "a"), ObjectKey("imw", "b")}


def test_a_choice_is_kept_although_others_come_first_by_name() -> None:
    given = [LocationCandidate(ObjectKey("imw", name), is_current=name == "c") for name in "abc"]
    assert choose(given, 1) == {ObjectKey("imw", "c")}
