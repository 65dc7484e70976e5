"""A placement that would empty too many places at once is held until someone confirms it."""

from __future__ import annotations

import pytest

from farflung.apis.edge.names import CONFIRM_WITHDRAWAL
from farflung.placement.guard import WithdrawalLimits, check_withdrawal, is_confirmed, parse_share


def fleet(size: int, *things: str) -> dict[int, frozenset[str]]:
    return {number: frozenset(things) for number in range(size)}


@pytest.mark.parametrize(
    ("total", "affected", "is_held"),
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
def test_more_than_half_and_more_than_ten_are_held(total: int, affected: int, is_held: bool) -> None:
    losses = fleet(affected, "a")
    verdict = check_withdrawal(losses, total, confirmed=False)
    assert (verdict.affected, verdict.total) == (affected, total)
    assert dict(verdict.held) == (losses if is_held else {})
    assert not check_withdrawal(losses, total, confirmed=True).held


def test_limits_can_be_drawn_elsewhere() -> None:
    assert not check_withdrawal(fleet(1, "a"), 4, confirmed=False).held
    assert check_withdrawal(fleet(1, "a"), 4, confirmed=False, limits=WithdrawalLimits(0, 0)).held
    assert not check_withdrawal(fleet(1, "a"), 4, confirmed=False, limits=WithdrawalLimits(25, 0)).held
    assert not check_withdrawal(fleet(100, "a"), 100, confirmed=False, limits=WithdrawalLimits(100, 0)).held


def test_what_is_held_says_how_to_go_on_and_what_is_not_says_nothing() -> None:
    verdict = check_withdrawal(fleet(17, "a"), 20, confirmed=False)
    assert verdict.message(7) == (
        "objects would be withdrawn from 17 of 20 destinations; they stay until the placement selects them again "
        'or has the annotation edge.kcp.io/confirm-withdrawal: "7/17"'
    )
    assert check_withdrawal({}, 20, confirmed=False).message(7) == ""


@pytest.mark.parametrize(
    ("value", "generation", "affected", "confirmed"),
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
    value: str, generation: int, affected: int, confirmed: bool
) -> None:
    assert is_confirmed({CONFIRM_WITHDRAWAL: value}, generation, affected) is confirmed
    assert not is_confirmed({}, generation, affected)


@pytest.mark.parametrize(("text", "share"), [("50%", 50), ("0", 0), ("100%", 100), ("007%", 7)])
def test_a_share_is_a_percentage(text: str, share: int) -> None:
    assert parse_share(text) == share


@pytest.mark.parametrize("text", ["", "%", "101%", "-1", "5.5%", "50%%", "٣", "1000000000000"])
def test_anything_else_is_no_share(text: str) -> None:
    with pytest.raises(ValueError, match="is not a percentage"):
        parse_share(text)
