"""Timestamps and durations: as texts, and their parts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final
from zoneinfo import ZoneInfo

from farflung.machinery.cel.language.declarations import Function, overload
from farflung.machinery.cel.language.values import (
    LEAST_INT,
    MAX_INT,
    NANOS,
    Duration,
    EvaluationError,
    Timestamp,
    checked_timestamp,
)
from farflung.machinery.errors import go_quote
from farflung.machinery.times import TimeError, parse

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
EPOCH_DAY: Final = EPOCH.toordinal()
SECONDS_OF_DAY: Final = 86_400

_TIMESTAMP: Final = re.compile(
    r"(\d{4})-(\d{2})-(\d{2})T(\d{1,2}):(\d{2}):(\d{2})(?:[.,](\d+))?(?:Z|([+-])(\d{2}):(\d{2}))", re.ASCII
)
_DATE: Final = re.compile(r"(\d{4})-(\d{2})-(\d{2})", re.ASCII)
_OFFSET: Final = re.compile(r"([+-]?)(\d{1,2}):(\d{2})", re.ASCII)
_ZONE: Final = re.compile(r"[A-Za-z][A-Za-z0-9+_-]*(?:/[A-Za-z0-9+_-]+){0,2}", re.ASCII)
_DURATION: Final = re.compile(r"(?:(?:\d+\.?\d*|\.\d+)(?:ns|us|µs|μs|ms|s|m|h))+", re.ASCII)
_PART: Final = re.compile(r"(\d*)(?:\.(\d*))?(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_NUMBER: Final = re.compile(r"(?:\d+\.?\d*|\.\d+)([^.\d]{0,100})", re.ASCII)
_UNITS: Final = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "μs": 1_000,
    "ms": 1_000_000,
    "s": NANOS,
    "m": 60 * NANOS,
    "h": 3600 * NANOS,
}
_MAX_TEXT: Final = 100  #: characters of a text that is parsed


# --- texts ----------------------------------------------------------------------------------------


def timestamp_of(text: str) -> Timestamp:
    """RFC 3339, to the nanosecond.  Raises EvaluationError."""
    match = _TIMESTAMP.fullmatch(text) if len(text) <= _MAX_TEXT else None
    if match is None:
        raise EvaluationError(_why_no_time(text))
    year, month, day, hour, minute, second = map(int, match.group(1, 2, 3, 4, 5, 6))
    try:
        seconds = _seconds(datetime(year, month, day, hour, minute, second, tzinfo=UTC))
    except ValueError:
        raise EvaluationError(_why_no_time(text)) from None
    sign, hours, minutes = match.group(8, 9, 10)
    if sign:
        offset = int(hours) * 3600 + int(minutes) * 60
        seconds -= -offset if sign == "-" else offset
    return checked_timestamp(seconds * NANOS + int((match[7] or "").ljust(9, "0")[:9]))


def _why_no_time(text: str) -> str:
    shortened = text[:_MAX_TEXT]
    try:
        parse(shortened)
    except TimeError as error:
        return str(error)
    return f'parsing time {go_quote(shortened)} as "2006-01-02T15:04:05Z07:00": cannot parse'


def date_of(text: str) -> Timestamp:
    """`2006-01-02`, its midnight.  Raises EvaluationError."""
    match = _DATE.fullmatch(text)
    try:
        if match:
            year, month, day = map(int, match.groups())
            return Timestamp(_seconds(datetime(year, month, day, tzinfo=UTC)) * NANOS)
    except ValueError:
        pass
    raise EvaluationError(f"Invalid date formatted string {text[:_MAX_TEXT]}")


def _seconds(moment: datetime) -> int:
    return (moment.toordinal() - EPOCH_DAY) * SECONDS_OF_DAY + moment.hour * 3600 + moment.minute * 60 + moment.second


def written_timestamp(moment: Timestamp) -> str:
    seconds, nanos = divmod(moment.nanos, NANOS)
    text = (EPOCH + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S").rjust(19, "0")
    fraction = f".{nanos:09d}".rstrip("0") if nanos else ""
    return f"{text}{fraction}Z"


def duration_of(text: str) -> Duration:
    """`1h30m`, as Go reads it.  Raises EvaluationError."""
    unsigned = text[1:] if text[:1] in ("+", "-") else text
    if unsigned == "0":
        return Duration(0)
    if len(text) > _MAX_TEXT or not _DURATION.fullmatch(unsigned):
        raise EvaluationError(_why_no_duration(text, unsigned))
    nanos = sum(_part(*match.groups()) for match in _PART.finditer(unsigned))
    nanos = -nanos if text[0] == "-" else nanos
    if not LEAST_INT <= nanos <= MAX_INT:
        raise EvaluationError(f"time: invalid duration {go_quote(text)}")
    return Duration(nanos)


def _why_no_duration(text: str, unsigned: str) -> str:
    shown = go_quote(text[:_MAX_TEXT])
    position = 0
    while number := _NUMBER.match(unsigned, position):
        unit = number[1]
        if not unit:
            return f"time: missing unit in duration {shown}"
        if unit not in _UNITS:
            return f"time: unknown unit {go_quote(unit)} in duration {shown}"
        position = number.end()
    return f"time: invalid duration {shown}"


def _part(whole: str, fraction: str | None, unit: str) -> int:
    scale = _UNITS[unit]
    nanos = int(whole or "0") * scale
    if fraction:
        nanos += int(fraction) * scale // int(10 ** len(fraction))
    return nanos


def written_duration(span: Duration) -> str:
    """In seconds, with as many digits as a double has."""
    sign = "-" if span.nanos < 0 else ""
    seconds, nanos = divmod(abs(span.nanos), NANOS)
    text = format(Decimal(repr(seconds + nanos / NANOS)), "f")
    return f"{sign}{text.removesuffix('.0')}s"


# --- parts ----------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def zone_of(name: str) -> tzinfo:
    """A zone of the database of zones, or an offset like `-08:00`.  Raises EvaluationError."""
    match = _OFFSET.fullmatch(name)
    if match:
        minutes = int(match[2]) * 60 + int(match[3])
        if minutes >= SECONDS_OF_DAY // 60:
            raise EvaluationError(f"unknown time zone {name}")
        return timezone(timedelta(minutes=-minutes if match[1] == "-" else minutes))
    if name in ("", "UTC", "Z"):
        return UTC
    try:
        if len(name) <= _MAX_TEXT and _ZONE.fullmatch(name):  # others would be looked up as modules, however long
            return ZoneInfo(name)
    except (OSError, ValueError, LookupError):
        pass
    raise EvaluationError(f"unknown time zone {name[:_MAX_TEXT]}")


def in_zone(moment: Timestamp, zone: tzinfo) -> datetime:
    try:
        return (EPOCH + timedelta(seconds=moment.nanos // NANOS)).astimezone(zone)
    except OverflowError:
        raise EvaluationError("timestamp overflow") from None


#: function → its overload id, and its result for a time
PARTS: Final[dict[str, tuple[str, Callable[[datetime], int]]]] = {
    "getFullYear": ("timestamp_to_year", lambda moment: moment.year),
    "getMonth": ("timestamp_to_month", lambda moment: moment.month - 1),
    "getDayOfYear": ("timestamp_to_day_of_year", lambda moment: moment.timetuple().tm_yday - 1),
    "getDayOfMonth": ("timestamp_to_day_of_month", lambda moment: moment.day - 1),
    "getDate": ("timestamp_to_day_of_month_1_based", lambda moment: moment.day),
    "getDayOfWeek": ("timestamp_to_day_of_week", lambda moment: moment.isoweekday() % 7),
    "getHours": ("timestamp_to_hours", lambda moment: moment.hour),
    "getMinutes": ("timestamp_to_minutes", lambda moment: moment.minute),
    "getSeconds": ("timestamp_to_seconds", lambda moment: moment.second),
}


def _part_of_time(part: Callable[[datetime], int]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    def in_utc(moment: Timestamp) -> int:
        return part(in_zone(moment, UTC))

    def elsewhere(moment: Timestamp, zone: str) -> int:
        return part(in_zone(moment, zone_of(zone)))

    return in_utc, elsewhere


def _milliseconds(moment: Timestamp) -> int:
    return moment.nanos % NANOS // 1_000_000


def _milliseconds_in_zone(moment: Timestamp, zone: str) -> int:
    zone_of(zone)
    return _milliseconds(moment)


def _whole(unit: int) -> Callable[[Duration], int]:
    """A duration in a unit, rounded towards zero."""

    def count(span: Duration) -> int:
        return span.nanos // unit if span.nanos >= 0 else -(-span.nanos // unit)

    return count


def _of_timestamp(name: str, id: str, in_utc: Callable[..., Any], elsewhere: Callable[..., Any]) -> Iterator[Function]:
    yield overload(f".{name}", id, "timestamp -> int", in_utc)
    yield overload(f".{name}", f"{id}_with_tz", "timestamp, string -> int", elsewhere)


def _getters() -> Iterator[Function]:
    for name, (id, part) in PARTS.items():
        yield from _of_timestamp(name, id, *_part_of_time(part))
    yield from _of_timestamp("getMilliseconds", "timestamp_to_milliseconds", _milliseconds, _milliseconds_in_zone)


LIBRARY: Final[tuple[Function, ...]] = (
    *_getters(),
    overload(".getHours", "duration_to_hours", "duration -> int", _whole(3600 * NANOS)),
    overload(".getMinutes", "duration_to_minutes", "duration -> int", _whole(60 * NANOS)),
    overload(".getSeconds", "duration_to_seconds", "duration -> int", _whole(NANOS)),
    overload(".getMilliseconds", "duration_to_milliseconds", "duration -> int", _whole(1_000_000)),
)
