from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farflung.machinery.times import (
    TimeError,
    age,
    canonical_micros,
    canonical_seconds,
    format_micros,
    format_seconds,
    human,
    parse,
    parse_micros,
)

NOW = datetime(2024, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2020-01-01T00:00:00Z", "2020-01-01T00:00:00Z"),
        ("2020-01-01T00:00:00.987654321Z", "2020-01-01T00:00:00Z"),
        ("2020-01-01T01:30:00+01:30", "2020-01-01T00:00:00Z"),
        ("2019-12-31T23:00:00-01:00", "2020-01-01T00:00:00Z"),
        ("2020-01-01T1:00:00Z", "2020-01-01T01:00:00Z"),
        ("2020-01-01T00:00:00,5Z", "2020-01-01T00:00:00Z"),
        ("0001-01-01T00:00:00Z", None),
    ],
)
def test_times_are_given_back_in_utc_to_the_second(text: str, expected: str | None) -> None:
    assert canonical_seconds(text) == expected


def test_micro_times_keep_their_microseconds() -> None:
    assert canonical_micros("2020-01-01T00:00:00.500000Z") == "2020-01-01T00:00:00.500000Z"
    assert canonical_micros("2020-01-01T00:00:00,500000Z") == "2020-01-01T00:00:00.500000Z"
    assert canonical_micros("2020-01-01T02:00:00.000001+02:00") == "2020-01-01T00:00:00.000001Z"


LAYOUT = '"2006-01-02T15:04:05Z07:00"'


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("yesterday", f'parsing time "yesterday" as {LAYOUT}: cannot parse "yesterday" as "2006"'),
        ("", f'parsing time "" as {LAYOUT}: cannot parse "" as "2006"'),
        ("2020-01-01", f'parsing time "2020-01-01" as {LAYOUT}: cannot parse "" as "T"'),
        (
            "2020-1-01T00:00:00Z",
            f'parsing time "2020-1-01T00:00:00Z" as {LAYOUT}: cannot parse "1-01T00:00:00Z" as "01"',
        ),
        ("2020-01-01T00:00:00", f'parsing time "2020-01-01T00:00:00" as {LAYOUT}: cannot parse "" as "Z07:00"'),
        ("2020-13-01T00:00:00Z", 'parsing time "2020-13-01T00:00:00Z": month out of range'),
        ("2021-02-29T00:00:00Z", 'parsing time "2021-02-29T00:00:00Z": day out of range'),
        ("2020-01-01T24:00:00Z", 'parsing time "2020-01-01T24:00:00Z": hour out of range'),
        ("2020-01-01T00:00:00+25:00", 'parsing time "2020-01-01T00:00:00+25:00": time zone offset hour out of range'),
        ("2020-01-01T00:00:00ZZ", 'parsing time "2020-01-01T00:00:00ZZ": extra text: "Z"'),
        ("0001-01-01T00:00:00+01:00", 'parsing time "0001-01-01T00:00:00+01:00": year out of range'),
        ("é", f'parsing time "\\xc3\\xa9" as {LAYOUT}: cannot parse "\\xc3\\xa9" as "2006"'),
    ],
)
def test_what_is_no_time_is_refused_as_go_refuses_it(text: str, why: str) -> None:
    with pytest.raises(TimeError) as refused:
        parse(text)
    assert str(refused.value) == why


def test_a_micro_time_needs_six_digits() -> None:
    with pytest.raises(TimeError) as refused:
        parse_micros("2020-01-01T00:00:00.5Z")
    assert str(refused.value) == (
        'parsing time "2020-01-01T00:00:00.5Z" as "2006-01-02T15:04:05.000000Z07:00": cannot parse ".5Z" as ".000000"'
    )


zones = st.integers(-23 * 60, 23 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))


@given(st.datetimes(datetime(2, 1, 1), datetime(9998, 12, 31), timezones=zones))
def test_a_time_is_read_back_as_it_was_written(moment: datetime) -> None:
    assert parse(moment.isoformat()) == moment
    assert parse_micros(format_micros(moment)) == moment
    assert parse(format_seconds(moment)) == moment.replace(microsecond=0)


@given(st.text() | st.from_regex(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}[Z.]?[0-9]*Z?"))
def test_any_text_is_a_time_or_refused(text: str) -> None:
    for canonical in (canonical_seconds, canonical_micros):
        try:
            once = canonical(text)
        except TimeError:
            continue
        assert once is None or canonical(once) == once


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (-2, "<invalid>"),
        (-1, "0s"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (121, "2m1s"),
        (599, "9m59s"),
        (600, "10m"),
        (3 * 3600 - 1, "179m"),
        (3 * 3600, "3h"),
        (3 * 3600 + 60, "3h1m"),
        (8 * 3600 - 1, "7h59m"),
        (8 * 3600 + 60, "8h"),
        (48 * 3600 - 1, "47h"),
        (48 * 3600, "2d"),
        (49 * 3600, "2d1h"),
        (8 * 86400 - 1, "7d23h"),
        (8 * 86400, "8d"),
        (729 * 86400, "729d"),
        (730 * 86400, "2y"),
        (731 * 86400, "2y1d"),
        (8 * 365 * 86400, "8y"),
    ],
)
def test_the_older_the_coarser(seconds: int, expected: str) -> None:
    assert human(timedelta(seconds=seconds)) == expected


def test_the_age_of_what_has_no_creation_time_is_unknown() -> None:
    assert age(None, NOW) == "<unknown>"
    assert age("", NOW) == "<unknown>"
    assert age("nonsense", NOW) == "<invalid>"
    assert age("2023-12-31T23:59:15Z", NOW) == "45s"
