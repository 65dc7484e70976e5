"""`'%d of %s'.format([1, 'x'])`, with the clauses of cel-go."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, Final

from farflung.machinery.cel.language.budget import SLOW, STEP, Meter
from farflung.machinery.cel.language.values import (
    LISTS,
    Duration,
    EvaluationError,
    Timestamp,
    TypeValue,
    UInt,
    type_name,
)
from farflung.machinery.cel.library.conversions import written_bool, written_double
from farflung.machinery.cel.library.moments import written_duration, written_timestamp
from farflung.machinery.errors import go_quote

_CLAUSE: Final = re.compile(r"(\.[0-9]*)?(.?)", re.DOTALL)
_MAX_PRECISION: Final = 1000
_DEFAULT_PRECISION: Final = 6
_NOT_FINITE: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}

Clause = Callable[[Meter, Any], str]


def format_text(meter: Meter, pattern: str, arguments: list[Any]) -> str:
    """Every `%…` of the pattern replaced by the next argument.  Raises EvaluationError."""
    meter.work(len(pattern))
    out = []
    position = used = 0
    while (percent := pattern.find("%", position)) >= 0:
        out.append(pattern[position:percent])
        if pattern.startswith("%", percent + 1):
            out.append("%")
            position = percent + 2
            continue
        if used >= len(arguments):
            raise EvaluationError(f"index {used} out of range")
        if percent + 1 == len(pattern):
            raise EvaluationError("unexpected end of string")
        clause, position = _clause_at(pattern, percent + 1)
        try:
            text = clause(meter, arguments[used])
        except _FormatError as error:
            raise EvaluationError(f"error during formatting: {error}") from None
        meter.work(len(text))
        out.append(text)
        used += 1
    out.append(pattern[position:])
    return "".join(out)


class _FormatError(Exception):
    """A value does not fit its clause."""


def _clause_at(pattern: str, position: int) -> tuple[Clause, int]:
    match = _CLAUSE.match(pattern, position)
    assert match is not None
    precision_text, letter = match.groups()
    if precision_text is not None and not letter:
        raise _bad_clause("error while parsing precision: could not find end of precision specifier")
    precision = _precision(precision_text)
    if letter in _CLAUSES:
        return _CLAUSES[letter], match.end()
    if letter == "f":
        return lambda meter, value: _fixed(meter, value, precision), match.end()
    raise _bad_clause(f'unrecognized formatting clause "{letter}"')


def _bad_clause(why: str) -> EvaluationError:
    return EvaluationError(f"could not parse formatting clause: {why}")


def _precision(text: str | None) -> int:
    if text is None:
        return _DEFAULT_PRECISION
    digits = text[1:]
    if not digits:
        raise _bad_clause(
            "error while parsing precision: error while converting precision to integer: "
            'strconv.Atoi: parsing "": invalid syntax'
        )
    if len(digits) > 4 or int(digits) > _MAX_PRECISION:
        raise _bad_clause(f"error while parsing precision: precision {digits[:20]} exceeds maximum allowed")
    return int(digits)


# --- clauses --------------------------------------------------------------------------------------


def _string(meter: Meter, value: Any) -> str:
    meter.work(STEP)
    kind = type(value)
    if kind in _WRITTEN:
        return str(_WRITTEN[kind](value))
    if kind is bytes:
        return _decoded(value)
    if kind in LISTS:
        return _list(meter, value)
    if kind is dict:
        return _map(meter, value)
    raise _FormatError(
        "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, "
        f"and timestamps, was given {type_name(value)}"
    )


def _decoded(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise _FormatError("invalid UTF-8 in bytes, cannot convert to string") from None


#: how %s writes values without parts
_WRITTEN: Final[dict[type, Callable[[Any], str]]] = {
    str: str,
    bool: written_bool,
    int: str,
    UInt: str,
    float: written_double,
    type(None): lambda _: "null",
    Timestamp: written_timestamp,
    Duration: written_duration,
    TypeValue: lambda value: value.name,
}


def _list(meter: Meter, values: list[Any]) -> str:
    text = "[" + ", ".join([_literal(meter, value) for value in values]) + "]"
    meter.work(len(text))
    return text


def _map(meter: Meter, values: dict[Any, Any]) -> str:
    pairs = sorted((_literal(meter, key), _literal(meter, value)) for key, value in values.items())
    text = "{" + ", ".join([f"{key}:{value}" for key, value in pairs]) + "}"
    meter.work(len(text))
    return text


def _literal(meter: Meter, value: Any) -> str:
    """A value in a list or map, as a literal of CEL."""
    kind = type(value)
    if kind is str:
        meter.work(STEP + SLOW * len(value))
        return go_quote(value)
    if kind is bytes:
        meter.work(STEP + SLOW * len(value))
        return "b" + go_quote(_decoded(value))
    if kind is float:
        if math.isfinite(value):
            return f"{value:.6f}"
        return go_quote("NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf")
    if kind is Timestamp:
        return f'timestamp("{written_timestamp(value)}")'
    if kind is Duration:
        return f'duration("{written_duration(value)}")'
    if kind in LISTS or kind is dict or kind in _WRITTEN:
        return _string(meter, value)
    raise _FormatError(f"no formatting function for {type_name(value)}")


def _decimal(_: Meter, value: Any) -> str:
    if type(value) not in (int, UInt):
        raise _FormatError(f"decimal clause can only be used on integers, was given {type_name(value)}")
    return str(value)


def _double(value: Any, clause: str) -> float:
    if type(value) is float:
        return value
    if type(value) is str and value in _NOT_FINITE:
        return _NOT_FINITE[value]
    raise _FormatError(f"{clause} clause can only be used on doubles, was given {type_name(value)}")


def _fixed(meter: Meter, value: Any, precision: int) -> str:
    number = _double(value, "fixed-point")
    if not math.isfinite(number):
        return "NaN" if math.isnan(number) else "∞" if number > 0 else "-∞"
    meter.work(400 + precision)
    return f"{number:,.{precision}f}"


def _scientific(_: Meter, value: Any) -> str:
    """Scientific notation of the locale en_US.  cel-go treats a precision as a width, so it has no effect."""
    number = _double(value, "scientific")
    if not math.isfinite(number):
        return "NaN" if math.isnan(number) else "∞" if number > 0 else "-∞"
    mantissa, exponent = f"{number:.{_DEFAULT_PRECISION}e}".split("e")
    return f"{mantissa}\u202f\xd7\u202f10{exponent.removeprefix('+').translate(_SUPERSCRIPTS)}"


_SUPERSCRIPTS: Final = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")


def _binary(_: Meter, value: Any) -> str:
    if type(value) is bool:
        return "1" if value else "0"
    if type(value) not in (int, UInt):
        raise _FormatError(f"only integers and bools can be formatted as binary, was given {type_name(value)}")
    return f"{int(value):b}"


def _octal(_: Meter, value: Any) -> str:
    if type(value) not in (int, UInt):
        raise _FormatError(f"octal clause can only be used on integers, was given {type_name(value)}")
    return f"{int(value):o}"


def _hexadecimal(meter: Meter, value: Any) -> str:
    if type(value) in (int, UInt):
        return f"{int(value):x}"
    if type(value) is str:
        value = value.encode("utf-8", "surrogatepass")
    if type(value) is not bytes:
        raise _FormatError(
            f"only integers, byte buffers, and strings can be formatted as hex, was given {type_name(value)}"
        )
    meter.work(2 * len(value))
    return str(value.hex())


_CLAUSES: Final[dict[str, Clause]] = {
    "s": _string,
    "d": _decimal,
    "e": _scientific,
    "b": _binary,
    "o": _octal,
    "x": _hexadecimal,
    "X": lambda meter, value: _hexadecimal(meter, value).upper(),
}
