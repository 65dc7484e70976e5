"""A placement that would empty too many places at once is held until someone confirms it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farflung.controllers.placement_translator.guard import (
    CONFIRM,
    Limits,
    decide,
    is_confirmed,
    parse_share,
    weigh,
)


def fleet(size: int, *things: str, first: int = 0) -> dict[int, frozenset[str]]:
    return {number: frozenset(things) for number in range(first, first + size)}


@pytest.mark.parametrize(
    ("having", "losing", "is_held"),
    [
        (10, 10, False),  # not more than ten
        (11, 11, True),
        (12, 11, True),
        (21, 11, True),
        (22, 11, False),  # not more than half
        (22, 12, True),
        (1000, 500, False),
        (1000, 501, True),
        (1000, 0, False),
        (0, 0, False),
    ],
)
def test_more_than_half_and_more_than_ten_are_held(having: int, losing: int, is_held: bool) -> None:
    before, after = fleet(having, "a", "b"), {**fleet(having, "a", "b"), **fleet(losing, "b")}
    verdict = decide(before, after, confirmed=False)
    assert (verdict.losing, verdict.having) == (losing, having)
    assert dict(verdict.held) == (fleet(losing, "a") if is_held else {})
    assert not decide(before, after, confirmed=True).held


def test_a_placement_that_moves_elsewhere_leaves_all_it_had() -> None:
    verdict = decide(fleet(20, "a"), fleet(20, "a", first=20), confirmed=False)
    assert (verdict.losing, verdict.having) == (20, 20)
    assert dict(verdict.held) == fleet(20, "a")


def test_places_that_have_nothing_do_not_count() -> None:
    before = {**fleet(20, "a"), **fleet(100, first=20)}
    verdict = decide(before, fleet(120), confirmed=False)
    assert (verdict.losing, verdict.having) == (20, 20)
    assert verdict.held


def test_what_someone_deleted_by_name_goes_and_does_not_count() -> None:
    verdict = decide(fleet(20, "a", "b"), fleet(20, "b"), confirmed=False, gone={"a"})
    assert (verdict.losing, dict(verdict.held)) == (0, {})
    verdict = decide(fleet(20, "a", "b"), {}, confirmed=False, gone={"a"})
    assert dict(verdict.held) == fleet(20, "b")


def test_limits_can_be_drawn_elsewhere() -> None:
    before, after = fleet(4, "a"), fleet(3, "a")
    assert not decide(before, after, confirmed=False).held
    assert decide(before, after, confirmed=False, limits=Limits(0, 0)).held
    assert not decide(before, after, confirmed=False, limits=Limits(25, 0)).held
    assert not decide(fleet(100, "a"), {}, confirmed=False, limits=Limits(100, 0)).held


def test_what_is_held_says_how_to_go_on_and_what_is_not_says_nothing() -> None:
    verdict = decide(fleet(20, "a"), fleet(3, "a"), confirmed=False)
    assert verdict.message(7) == (
        "objects would be withdrawn from 17 of 20 destinations; they stay until the placement selects them again "
        'or has the annotation edge.kcp.io/confirm-withdrawal: "7/17"'
    )
    assert decide(fleet(20, "a"), fleet(20, "a"), confirmed=False).message(7) == ""


@pytest.mark.parametrize(
    ("value", "generation", "losing", "confirmed"),
    [
        ("7/20", 7, 20, True),
        ("7/20", 7, 3, True),
        ("7/20", 7, 21, False),  # it has become worse since
        ("7/20", 8, 20, False),
        ("7", 7, 20, False),
        ("7/", 7, 20, False),
        ("07/20", 7, 20, False),
        ("7/-20", 7, 20, False),
        ("7/²", 7, 2, False),
        ("7/9999999999", 7, 20, False),
        ("0/20", 0, 20, False),
        ("", 7, 0, False),
    ],
)
def test_only_what_the_present_spec_takes_from_so_many_is_confirmed(
    value: str, generation: int, losing: int, confirmed: bool
) -> None:
    assert is_confirmed({CONFIRM: value}, generation, losing) is confirmed
    assert not is_confirmed({}, generation, losing)


@pytest.mark.parametrize(("text", "share"), [("50%", 50), ("0", 0), ("100%", 100), ("007%", 7)])
def test_a_share_is_a_percentage(text: str, share: int) -> None:
    assert parse_share(text) == share


@pytest.mark.parametrize("text", ["", "%", "101%", "-1", "5.5%", "50%%", "٣", "1000000000000"])
def test_anything_else_is_no_share(text: str) -> None:
    with pytest.raises(ValueError, match="is not a percentage"):
        parse_share(text)


class Fresh(Mapping[int, frozenset[str]]):
    """Makes every set when it is asked for."""

    def __init__(self, sets: Mapping[int, frozenset[str]]) -> None:
        self._sets = sets

    def __getitem__(self, key: int) -> frozenset[str]:
        return frozenset([*self._sets[key]])

    def __iter__(self) -> Iterator[int]:
        return iter(self._sets)

    def __len__(self) -> int:
        return len(self._sets)


THINGS = st.frozensets(st.sampled_from("abc"))
FLEETS = st.dictionaries(st.integers(0, 9), THINGS)
LIMITS = st.builds(Limits, st.integers(0, 100), st.integers(0, 5))


@given(FLEETS, FLEETS, LIMITS, THINGS, st.booleans())
def test_what_is_held_is_what_the_twin_says(
    before: dict[int, frozenset[str]],
    after: dict[int, frozenset[str]],
    limits: Limits,
    gone: frozenset[str],
    confirmed: bool,
) -> None:
    losses = {}
    for place in before:
        lost = {thing for thing in before[place] if thing not in after.get(place, ()) and thing not in gone}
        if lost:
            losses[place] = lost
    having = sum(1 for things in before.values() if things)
    too_many = len(losses) > limits.number and len(losses) / (having or 1) > limits.share / 100
    expected = losses if too_many and not confirmed else {}
    for wanted in (after, Fresh(after)):
        verdict = decide(before, wanted, confirmed=confirmed, limits=limits, gone=gone)
        assert (verdict.losing, verdict.having) == (len(losses), having)
        assert dict(verdict.held) == expected
    assert weigh(losses, having, confirmed=confirmed, limits=limits).held == expected


@given(st.lists(st.tuples(FLEETS, st.booleans()), max_size=8), LIMITS)
def test_whoever_forgets_everything_goes_on_as_before(
    wishes: list[tuple[dict[int, frozenset[str]], bool]], limits: Limits
) -> None:
    """Mailboxes have what was held; deciding again from what they have changes nothing, and what is wanted is there."""
    there: dict[int, frozenset[str]] = {}
    for wanted, confirmed in wishes:
        held = decide(there, wanted, confirmed=confirmed, limits=limits).held
        lost_before = sum(1 for place, things in there.items() if things - wanted.get(place, frozenset()))
        having = sum(1 for things in there.values() if things)
        there = {
            place: frozenset(wanted.get(place, frozenset()) | held.get(place, frozenset()))
            for place in {*wanted, *held}
        }
        assert all(there[place] >= things for place, things in wanted.items())
        if confirmed or not limits.are_exceeded(lost_before, having):
            assert there == wanted
