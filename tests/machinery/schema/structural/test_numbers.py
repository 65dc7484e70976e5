"""Numbers of custom resources, as they are kept."""

from __future__ import annotations

import orjson
from hypothesis import example, given
from hypothesis import strategies as st

from farflung.machinery.schema.structural.json_values import canonical_number

numbers = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)


@given(numbers)
@example(-(2.0**63))
@example(-(2**63) - 1)
@example(2**64)
def test_every_number_can_be_written_and_is_the_same_when_it_is_read(number: int | float) -> None:
    kept = canonical_number(number)
    assert float(kept) == float(number)
    assert canonical_number(orjson.loads(orjson.dumps(kept))) == kept


@given(st.integers(-(2**53), 2**53))
def test_whole_numbers_have_no_fraction(number: int) -> None:
    assert type(canonical_number(float(number))) is int
    assert canonical_number(float(number)) == number
