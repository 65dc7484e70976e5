"""Conversions between types: `int('1')`, `string(1.5)`, `timestamp('…')`."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import Any, Final

from farflung.machinery.cel.language.budget import Meter, Metered
from farflung.machinery.cel.language.declarations import Function, Overload
from farflung.machinery.cel.language.types import BOOL, BYTES, DOUBLE, DURATION, DYN, INT, STRING, TIMESTAMP, UINT, A
from farflung.machinery.cel.language.values import (
    LEAST_INT,
    MOST_INT,
    MOST_UINT,
    NANOS,
    Duration,
    EvaluationError,
    Timestamp,
    UInt,
    checked_timestamp,
)
from farflung.machinery.cel.library import costs
from farflung.machinery.cel.library.moments import duration_of, timestamp_of, written_duration, written_timestamp
from farflung.machinery.cel.library.operators import checked_int, checked_uint

_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,40}", re.ASCII)
_UNSIGNED: Final = re.compile(r"[0-9]{1,40}", re.ASCII)
_DECIMAL: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,9})?", re.ASCII)
_INFINITE: Final = re.compile(r"([+-]?)inf(?:inity)?", re.IGNORECASE | re.ASCII)
_LONGEST_NUMBER: Final = 1000
_TRUE: Final = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE: Final = frozenset({"0", "f", "F", "FALSE", "false", "False"})


def conversion_error(of: str, to: str) -> EvaluationError:
    return EvaluationError(f"type conversion error from '{of}' to '{to}'")


def same(value: Any) -> Any:
    return value


# --- numbers --------------------------------------------------------------------------------------


def double_to_int(number: float) -> int:
    if not -9223372036854775808.0 < number < 9223372036854775808.0:
        raise EvaluationError("integer overflow")
    return int(number)


def double_to_uint(number: float) -> UInt:
    if not 0.0 <= number < 18446744073709551616.0:
        raise EvaluationError("unsigned integer overflow")
    return UInt(number)


def string_to_int(text: str) -> int:
    if _INTEGER.fullmatch(text) and LEAST_INT <= int(text) <= MOST_INT:
        return int(text)
    raise conversion_error("string", "int")


def string_to_uint(text: str) -> UInt:
    if _UNSIGNED.fullmatch(text) and int(text) <= MOST_UINT:
        return UInt(text)
    raise conversion_error("string", "uint")


def string_to_double(text: str) -> float:
    if len(text) <= _LONGEST_NUMBER:
        if _DECIMAL.fullmatch(text) and math.isfinite(number := float(text)):
            return number
        if match := _INFINITE.fullmatch(text):
            return -math.inf if match[1] == "-" else math.inf
        if text.lower() == "nan":
            return math.nan
    raise conversion_error("string", "double")


def string_to_bool(text: str) -> bool:
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise conversion_error("string", "bool")


def timestamp_to_int(moment: Timestamp) -> int:
    return moment.nanos // NANOS


def duration_to_int(span: Duration) -> int:
    return span.nanos


def int_to_timestamp(seconds: int) -> Timestamp:
    return checked_timestamp(seconds * NANOS)


def int_to_duration(nanos: int) -> Duration:
    return Duration(nanos)


# --- texts ----------------------------------------------------------------------------------------


def written_double(number: float) -> str:
    """Go's %g: the shortest digits, with an exponent if the number is large or small."""
    if not math.isfinite(number):
        return "NaN" if math.isnan(number) else "+Inf" if number > 0 else "-Inf"
    sign, digits, exponent = Decimal(repr(number)).as_tuple()
    text = "".join(map(str, digits)).lstrip("0").rstrip("0")
    trailing = len(digits) - len("".join(map(str, digits)).rstrip("0"))
    prefix = "-" if sign else ""
    if not text:
        return f"{prefix}0"
    power = int(exponent) + trailing + len(text) - 1
    if power < -4 or power >= 6:
        fraction = f".{text[1:]}" if len(text) > 1 else ""
        return f"{prefix}{text[0]}{fraction}e{'-' if power < 0 else '+'}{abs(power):02d}"
    if power < 0:
        return f"{prefix}0.{'0' * (-power - 1)}{text}"
    whole, fraction = text[: power + 1].ljust(power + 1, "0"), text[power + 1 :]
    return f"{prefix}{whole}.{fraction}" if fraction else f"{prefix}{whole}"


def written_bool(value: bool) -> str:
    return "true" if value else "false"


def bytes_to_string(meter: Meter, value: bytes) -> str:
    meter.work(len(value))
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise EvaluationError("invalid UTF-8 in bytes, cannot convert to string") from None


def string_to_bytes(meter: Meter, text: str) -> bytes:
    meter.work(len(text))
    return text.encode("utf-8", "surrogatepass")


LIBRARY: Final[tuple[Function, ...]] = (
    Function(
        "int",
        (
            Overload("int64_to_int64", (INT,), INT, False, same),
            Overload("double_to_int64", (DOUBLE,), INT, False, double_to_int),
            Overload("duration_to_int64", (DURATION,), INT, False, duration_to_int),
            Overload("string_to_int64", (STRING,), INT, False, string_to_int),
            Overload("timestamp_to_int64", (TIMESTAMP,), INT, False, timestamp_to_int),
            Overload("uint64_to_int64", (UINT,), INT, False, lambda number: checked_int(int(number))),
        ),
    ),
    Function(
        "uint",
        (
            Overload("uint64_to_uint64", (UINT,), UINT, False, same),
            Overload("double_to_uint64", (DOUBLE,), UINT, False, double_to_uint),
            Overload("int64_to_uint64", (INT,), UINT, False, checked_uint),
            Overload("string_to_uint64", (STRING,), UINT, False, string_to_uint),
        ),
    ),
    Function(
        "double",
        (
            Overload("double_to_double", (DOUBLE,), DOUBLE, False, same),
            Overload("int64_to_double", (INT,), DOUBLE, False, float),
            Overload("string_to_double", (STRING,), DOUBLE, False, string_to_double),
            Overload("uint64_to_double", (UINT,), DOUBLE, False, float),
        ),
    ),
    Function(
        "bool",
        (
            Overload("bool_to_bool", (BOOL,), BOOL, False, same),
            Overload("string_to_bool", (STRING,), BOOL, False, string_to_bool),
        ),
    ),
    Function(
        "string",
        (
            Overload("string_to_string", (STRING,), STRING, False, same),
            Overload("bool_to_string", (BOOL,), STRING, False, written_bool),
            Overload("bytes_to_string", (BYTES,), STRING, False, Metered(bytes_to_string), costs.of_text),
            Overload("double_to_string", (DOUBLE,), STRING, False, written_double),
            Overload("duration_to_string", (DURATION,), STRING, False, written_duration),
            Overload("int64_to_string", (INT,), STRING, False, str),
            Overload("timestamp_to_string", (TIMESTAMP,), STRING, False, written_timestamp),
            Overload("uint64_to_string", (UINT,), STRING, False, str),
        ),
    ),
    Function(
        "bytes",
        (
            Overload("bytes_to_bytes", (BYTES,), BYTES, False, same),
            Overload("string_to_bytes", (STRING,), BYTES, False, Metered(string_to_bytes), costs.of_text),
        ),
    ),
    Function(
        "timestamp",
        (
            Overload("timestamp_to_timestamp", (TIMESTAMP,), TIMESTAMP, False, same),
            Overload("int64_to_timestamp", (INT,), TIMESTAMP, False, int_to_timestamp),
            Overload("string_to_timestamp", (STRING,), TIMESTAMP, False, timestamp_of),
        ),
    ),
    Function(
        "duration",
        (
            Overload("duration_to_duration", (DURATION,), DURATION, False, same),
            Overload("int64_to_duration", (INT,), DURATION, False, int_to_duration),
            Overload("string_to_duration", (STRING,), DURATION, False, duration_of),
        ),
    ),
    Function("dyn", (Overload("to_dyn", (A,), DYN, False, same),)),
)
