"""The syntax of a CronJob's schedule: five fields, or a descriptor such as `@hourly` or `@every 5m`."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from farflung.machinery.errors import go_quote

DESCRIPTORS: Final = frozenset({"@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"})
_DURATION: Final = re.compile(r"[+-]?(?:0|(?:(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:ns|us|µs|μs|ms|s|m|h))++)")
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,18}")


@dataclass(frozen=True, slots=True)
class Bounds:
    low: int
    high: int
    names: dict[str, int] = field(default_factory=dict)


MONTHS: Final = {
    "jan": 1, "feb": 2, "mar": 3, "apr": 4, "may": 5, "jun": 6,
    "jul": 7, "aug": 8, "sep": 9, "oct": 10, "nov": 11, "dec": 12,
}  # fmt: skip
DAYS: Final = {"sun": 0, "mon": 1, "tue": 2, "wed": 3, "thu": 4, "fri": 5, "sat": 6}
FIELDS: Final = (Bounds(0, 59), Bounds(0, 23), Bounds(1, 31), Bounds(1, 12, MONTHS), Bounds(0, 6, DAYS))


class _Refused(Exception):
    pass


def wrong_schedule(text: str) -> str:
    """What is wrong with a schedule; empty if nothing.  A leading `TZ=` is for the caller to refuse."""
    if not text:
        return "empty spec string"
    if text.startswith("@"):
        return _wrong_descriptor(text)
    parts = text.split()
    if len(parts) != len(FIELDS):
        return f"expected exactly 5 fields, found {len(parts)}: [{' '.join(parts)}]"
    try:
        for part, bounds in zip(parts, FIELDS, strict=True):
            _check_field(part, bounds)
    except _Refused as refused:
        return str(refused)
    return ""


def _wrong_descriptor(text: str) -> str:
    if text in DESCRIPTORS:
        return ""
    if text.startswith("@every "):
        duration = text.removeprefix("@every ")
        if _DURATION.fullmatch(duration):
            return ""
        return f"failed to parse duration {text}: time: invalid duration {go_quote(duration)}"
    return f"unrecognized descriptor: {text}"


def _check_field(text: str, bounds: Bounds) -> None:
    for expression in filter(None, text.split(",")):
        _check_range(expression, bounds)


def _check_range(expression: str, bounds: Bounds) -> None:
    range_and_step = expression.split("/")
    low_and_high = range_and_step[0].split("-")
    single = len(low_and_high) == 1
    if low_and_high[0] in ("*", "?"):
        start, end = bounds.low, bounds.high
    else:
        start = _number_or_name(low_and_high[0], bounds)
        if len(low_and_high) > 2:
            raise _Refused(f"too many hyphens: {expression}")
        end = start if single else _number_or_name(low_and_high[1], bounds)
    if len(range_and_step) > 2:
        raise _Refused(f"too many slashes: {expression}")
    step = 1
    if len(range_and_step) == 2:
        step = _number(range_and_step[1])
        end = bounds.high if single else end
    _check_bounds(start, end, step, bounds, expression)


def _check_bounds(start: int, end: int, step: int, bounds: Bounds, expression: str) -> None:
    if start < bounds.low:
        raise _Refused(f"beginning of range ({start}) below minimum ({bounds.low}): {expression}")
    if end > bounds.high:
        raise _Refused(f"end of range ({end}) above maximum ({bounds.high}): {expression}")
    if start > end:
        raise _Refused(f"beginning of range ({start}) beyond end of range ({end}): {expression}")
    if step == 0:
        raise _Refused(f"step of range should be a positive number: {expression}")


def _number_or_name(text: str, bounds: Bounds) -> int:
    named = bounds.names.get(text.lower())
    return _number(text) if named is None else named


def _number(text: str) -> int:
    if not _NUMBER.fullmatch(text) or not text.isascii():
        raise _Refused(f"failed to parse int from {text}: strconv.Atoi: parsing {go_quote(text)}: invalid syntax")
    number = int(text)
    if number < 0:
        raise _Refused(f"negative number ({number}) not allowed: {text}")
    return number
