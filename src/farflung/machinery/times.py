"""Times of the API: RFC 3339 in UTC, to the second (`Time`) or the microsecond (`MicroTime`), and ages in tables."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

SECONDS_LAYOUT: Final = "2006-01-02T15:04:05Z07:00"  #: the layouts in Go's messages
MICROS_LAYOUT: Final = "2006-01-02T15:04:05.000000Z07:00"

ZERO_TIME: Final = datetime(1, 1, 1, tzinfo=UTC)  #: Go's zero time, which is encoded as null
SECOND: Final = timedelta(seconds=1)

PLAIN: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z", re.ASCII)
PLAIN_MICROS: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6}Z", re.ASCII)
PLAIN_LENGTH: Final = len("2006-01-02T15:04:05Z")  #: no other form of a time has this length

#: the text before an element of the layout, the element, and its number of digits
ELEMENTS: Final = tuple(
    (before, element, re.compile(digits))
    for before, element, digits in (
        ("", "2006", "[0-9]{4}"),
        ("-", "01", "[0-9]{2}"),
        ("-", "02", "[0-9]{2}"),
        ("T", "15", "[0-9]{1,2}"),
        (":", "04", "[0-9]{2}"),
        (":", "05", "[0-9]{2}"),
    )
)
LIMITS: Final = {"01": ("month", 1, 12), "15": ("hour", 0, 23), "04": ("minute", 0, 59), "05": ("second", 0, 59)}
FRACTION: Final = re.compile(r"[.,][0-9]+")
MICROS: Final = re.compile(r"[.,][0-9]{6}")
OFFSET: Final = re.compile(r"([+-])([0-9]{2}):([0-9]{2})")


class TimeError(ValueError):
    """A text that is no time; its message is Go's."""


def parse(text: str) -> datetime:
    """An RFC 3339 time, of any zone and fraction, in UTC.  Raises TimeError."""
    if PLAIN.fullmatch(text):
        try:
            return datetime.fromisoformat(text)
        except ValueError:
            pass  # a part is out of range: the slow path finds out which
    return _parse_stepwise(text, SECONDS_LAYOUT)


def parse_micros(text: str) -> datetime:
    """Parses a MicroTime as Go does: exactly six digits of fraction.  Raises TimeError."""
    if PLAIN_MICROS.fullmatch(text):
        try:
            return datetime.fromisoformat(text)
        except ValueError:
            pass
    return _parse_stepwise(text, MICROS_LAYOUT)


def format_seconds(moment: datetime) -> str:
    """`2020-01-01T00:00:00Z`"""
    return _format_second((moment - ZERO_TIME) // SECOND)


@lru_cache(maxsize=256)
def _format_second(seconds: int) -> str:
    """`seconds`: since the zero time.  Cached, because many writes happen in the same second."""
    return (ZERO_TIME + seconds * SECOND).isoformat(timespec="seconds")[: PLAIN_LENGTH - 1] + "Z"


def format_micros(moment: datetime) -> str:
    """`2020-01-01T00:00:00.500000Z`"""
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def canonical_seconds(text: str) -> str | None:
    """A `Time` as the API returns it; None for the zero time.  Raises TimeError."""
    moment = parse(text)
    if moment == ZERO_TIME:
        return None
    return text if len(text) == PLAIN_LENGTH else format_seconds(moment)


def canonical_micros(text: str) -> str | None:
    """A `MicroTime` as the API returns it; None for the zero time.  Raises TimeError."""
    moment = parse_micros(text)
    if moment == ZERO_TIME:
        return None
    return text if PLAIN_MICROS.fullmatch(text) else format_micros(moment)


# --- ages -----------------------------------------------------------------------------------------


def age(created: str | None, now: datetime) -> str:
    """The age as `kubectl get` shows it: `45s`, `5m3s`, `3h`, `2d4h`."""
    if not created:
        return "<unknown>"
    try:
        return human(now - parse(created))
    except TimeError:
        return "<invalid>"


def human(duration: timedelta) -> str:
    """A duration in at most two units, which depend on its length."""
    seconds = int(duration.total_seconds())
    if seconds < 0:
        return "0s" if seconds == -1 else "<invalid>"
    minutes, hours = seconds // 60, seconds // 3600
    days = hours // 24
    if seconds < 120:
        return f"{seconds}s"
    if minutes < 10:
        return _two(minutes, "m", seconds % 60, "s")
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return _two(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return _two(days, "d", hours % 24, "h")
    if days < 2 * 365:
        return f"{days}d"
    if days < 8 * 365:
        return _two(days // 365, "y", days % 365, "d")
    return f"{days // 365}y"


def _two(coarse: int, unit: str, fine: int, fine_unit: str) -> str:
    return f"{coarse}{unit}{fine}{fine_unit}" if fine else f"{coarse}{unit}"


# --- the long way: any valid form, and the message of an invalid one ---------------------------------


def _parse_stepwise(text: str, layout: str) -> datetime:
    """Reads the layout element by element, as Go does, so that errors name the same element."""
    rest = text
    numbers: list[int] = []
    for before, element, digits in ELEMENTS:
        if not rest.startswith(before):
            raise _mismatch(text, layout, before, rest)
        rest = rest[len(before) :]
        match = digits.match(rest)
        if match is None:
            raise _mismatch(text, layout, element, rest)
        number = int(match[0])
        if element in LIMITS:
            what, least, most = LIMITS[element]
            if not least <= number <= most:
                raise _out_of_range(text, what)
        numbers.append(number)
        rest = rest[match.end() :]
    micros, rest = _fraction(text, layout, rest)
    offset, rest = _zone(text, layout, rest)
    if rest:
        raise TimeError(f"parsing time {quoted(text)}: extra text: {quoted(rest)}")
    year, month, day, hour, minute, second = numbers
    try:
        datetime(year or 4, month, day)  # the year 0 was a leap year
    except ValueError:
        raise _out_of_range(text, "day") from None
    try:
        return datetime(year, month, day, hour, minute, second, micros, UTC) - offset
    except (ValueError, OverflowError):
        raise _out_of_range(text, "year") from None


def _fraction(text: str, layout: str, rest: str) -> tuple[int, str]:
    exactly_six = layout is MICROS_LAYOUT
    match = (MICROS if exactly_six else FRACTION).match(rest)
    if match is None:
        if exactly_six:
            raise _mismatch(text, layout, ".000000", rest)
        return 0, rest
    return int(match[0][1:7].ljust(6, "0")), rest[match.end() :]


def _zone(text: str, layout: str, rest: str) -> tuple[timedelta, str]:
    if rest.startswith("Z"):
        return timedelta(0), rest[1:]
    match = OFFSET.match(rest)
    if match is None:
        raise _mismatch(text, layout, "Z07:00", rest)
    hours, minutes = int(match[2]), int(match[3])
    if hours > 24:
        raise _out_of_range(text, "time zone offset hour")
    if minutes > 60:
        raise _out_of_range(text, "time zone offset minute")
    offset = timedelta(hours=hours, minutes=minutes)
    return (-offset if match[1] == "-" else offset), rest[match.end() :]


def _mismatch(text: str, layout: str, element: str, rest: str) -> TimeError:
    return TimeError(
        f"parsing time {quoted(text)} as {quoted(layout)}: cannot parse {quoted(rest)} as {quoted(element)}"
    )


def _out_of_range(text: str, what: str) -> TimeError:
    return TimeError(f"parsing time {quoted(text)}: {what} out of range")


def quoted(text: str) -> str:
    """Quotes as Go's time package does: everything but printable ASCII by its bytes."""
    escaped = "".join(
        f"\\{char}" if char in '"\\' else char if " " <= char <= "~" else _bytes_escaped(char) for char in text
    )
    return f'"{escaped}"'


def _bytes_escaped(char: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in char.encode("utf-8", "surrogatepass"))
