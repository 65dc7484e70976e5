from __future__ import annotations

from decimal import Decimal, localcontext

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from farflung.machinery.quantity import (
    BINARY_SUFFIXES,
    DECIMAL_SUFFIXES,
    FORMAT_WRONG,
    SUFFIX_WRONG,
    Quantity,
    QuantityError,
    canonical,
    parse,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1000m", "1"),
        ("0.5", "500m"),
        ("1024Mi", "1Gi"),
        ("1.5Gi", "1536Mi"),
        ("2048Ki", "2Mi"),
        ("1023Ki", "1023Ki"),
        ("0.1Ki", "102400m"),
        ("5000", "5k"),
        ("1000000k", "1G"),
        ("12e6", "12e6"),
        ("1.5e3", "1500"),
        ("0", "0"),
        ("-0.0", "0"),
        (".5", "500m"),
        ("1.2345", "1234500u"),
        ("-1.5Gi", "-1536Mi"),
        ("100000000000000000000", "100E"),
        ("1000E", "1e21"),
    ],
)
def test_the_canonical_form_has_no_fraction_and_the_largest_suffix(text: str, expected: str) -> None:
    assert canonical(text) == expected


@pytest.mark.parametrize("text", ["1.025", "+1", "100m", "12Mi", "1e3"])
def test_what_has_nothing_to_strip_stays_as_written(text: str) -> None:
    assert canonical(text) == text


def test_less_than_a_nano_is_rounded_up_to_one() -> None:
    assert canonical("0.9n") == "1n"
    assert canonical("-0.1n") == "-1n"
    assert canonical("1e-1000") == "1e-9"


def test_binary_quantities_stop_at_the_largest_integer() -> None:
    assert parse("8Ei").whole == 2**63 - 1


@pytest.mark.parametrize("text", ["", "1x", "1 ", "1..2", "one", "٣", "1\n", "9" * 300])
def test_what_does_not_match_the_grammar_is_refused_with_it(text: str) -> None:
    with pytest.raises(QuantityError) as refused:
        canonical(text)
    assert str(refused.value) == FORMAT_WRONG


@pytest.mark.parametrize("text", ["1K", "1e", "1iK", "1e1001", "1e99999999999999999999", "1-5"])
def test_a_suffix_that_does_not_exist_is_refused(text: str) -> None:
    with pytest.raises(QuantityError) as refused:
        canonical(text)
    assert str(refused.value) == SUFFIX_WRONG


def test_sums_are_written_like_their_first_part() -> None:
    assert str(parse("1Gi") + parse("1Gi")) == "2Gi"
    assert str(parse("100m") + parse("0.9")) == "1"
    assert str(parse("0") + parse("1Gi")) == "1Gi"
    assert str(parse("1") - parse("250m")) == "750m"


def test_quantities_in_different_notations_compare_by_value() -> None:
    assert parse("1Ki") == parse("1024")
    assert parse("1k") < parse("1Ki")
    assert len({parse("1000m"), parse("1"), parse("1e0")}) == 1


def test_rounding_is_away_from_zero() -> None:
    assert parse("100u").rounded_up(-3) == parse("1m")
    assert parse("-100u").rounded_up(-3) == parse("-1m")
    assert (parse("1.1").whole, parse("-1.1").whole, parse("1.0001").milli) == (2, -2, 1001)


numbers = st.from_regex(r"[+-]?[0-9]{1,12}(\.[0-9]{0,12})?", fullmatch=True)
suffixes = st.sampled_from([*DECIMAL_SUFFIXES, *BINARY_SUFFIXES]) | st.integers(-12, 30).map("e{}".format)


def exact(number: str, suffix: str) -> Decimal:
    with localcontext(prec=200):
        if suffix in BINARY_SUFFIXES:
            return Decimal(number) * 2 ** BINARY_SUFFIXES[suffix]
        power = DECIMAL_SUFFIXES[suffix] if suffix in DECIMAL_SUFFIXES else int(suffix[1:])
        return Decimal(number).scaleb(power)


@given(numbers, suffixes)
def test_a_quantity_has_the_exact_value_of_its_text(number: str, suffix: str) -> None:
    with localcontext(prec=200):
        value = exact(number, suffix) * 10**9
        expected = int(value.to_integral_value("ROUND_UP"))
        if suffix in BINARY_SUFFIXES:
            expected = max(-(2**63 - 1) * 10**9, min(expected, (2**63 - 1) * 10**9))
        assert parse(number + suffix).nanos == expected


@given(numbers, suffixes | st.integers(980, 1000).map("e{}".format))
@example("5000", "e1000")
def test_the_canonical_form_keeps_the_value_and_is_its_own_canonical_form(number: str, suffix: str) -> None:
    try:
        once = canonical(number + suffix)
    except QuantityError:
        assert exact(number, suffix).adjusted() >= 1002
        return
    assert parse(once) == parse(number + suffix)
    assert canonical(once) == once


@given(st.integers(), st.integers(), st.sampled_from(["DecimalSI", "BinarySI", "DecimalExponent"]))
def test_sums_are_exact(one: int, other: int, notation: str) -> None:
    total = Quantity(one, notation) + Quantity(other, notation)
    assert total.nanos == one + other
    assert total - Quantity(other) == Quantity(one)


@given(st.text(max_size=20))
def test_any_text_is_a_quantity_or_refused(text: str) -> None:
    try:
        canonical(text)
    except QuantityError:
        return
    assert parse(canonical(text)) == parse(text)
