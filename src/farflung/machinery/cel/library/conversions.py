"""Conversions between types: `int('1')`, `string(1.5)`, `timestamp('…')`."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import Any, Final

from farflung.machinery.cel.language.budget import Meter, Metered
from farflung.machinery.cel.language.declarations import Function, overload
from farflung.machinery.cel.language.values import (
    LEAST_INT,
    MAX_INT,
    MAX_UINT,
    NANOS,
    Duration,
    EvaluationError,
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
    if _INTEGER.fullmatch(text) and LEAST_INT <= int(text) <= MAX_INT:
        return int(text)
    raise conversion_error("string", "int")


def string_to_uint(text: str) -> UInt:
    if _UNSIGNED.fullmatch(text) and int(text) <= MAX_UINT:
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
    overload("int", "int64_to_int64", "int -> int", same),
    overload("int", "double_to_int64", "double -> int", double_to_int),
    overload("int", "duration_to_int64", "duration -> int", lambda span: span.nanos),
    overload("int", "string_to_int64", "string -> int", string_to_int),
    overload("int", "timestamp_to_int64", "timestamp -> int", lambda moment: moment.nanos // NANOS),
    overload("int", "uint64_to_int64", "uint -> int", lambda number: checked_int(int(number))),
    overload("uint", "uint64_to_uint64", "uint -> uint", same),
    overload("uint", "double_to_uint64", "double -> uint", double_to_uint),
    overload("uint", "int64_to_uint64", "int -> uint", checked_uint),
    overload("uint", "string_to_uint64", "string -> uint", string_to_uint),
    overload("double", "double_to_double", "double -> double", same),
    overload("double", "int64_to_double", "int -> double", float),
    overload("double", "string_to_double", "string -> double", string_to_double),
    overload("double", "uint64_to_double", "uint -> double", float),
    overload("bool", "bool_to_bool", "bool -> bool", same),
    overload("bool", "string_to_bool", "string -> bool", string_to_bool),
    overload("string", "string_to_string", "string -> string", same),
    overload("string", "bool_to_string", "bool -> string", written_bool),
    overload("string", "bytes_to_string", "bytes -> string", Metered(bytes_to_string), costs.of_text),
    overload("string", "double_to_string", "double -> string", written_double),
    overload("string", "duration_to_string", "duration -> string", written_duration),
    overload("string", "int64_to_string", "int -> string", str),
    overload("string", "timestamp_to_string", "timestamp -> string", written_timestamp),
    overload("string", "uint64_to_string", "uint -> string", str),
    overload("bytes", "bytes_to_bytes", "bytes -> bytes", same),
    overload("bytes", "string_to_bytes", "string -> bytes", Metered(string_to_bytes), costs.of_text),
    overload("timestamp", "timestamp_to_timestamp", "timestamp -> timestamp", same),
    overload("timestamp", "int64_to_timestamp", "int -> timestamp", lambda seconds: checked_timestamp(seconds * NANOS)),
    overload("timestamp", "string_to_timestamp", "string -> timestamp", timestamp_of),
    overload("duration", "duration_to_duration", "duration -> duration", same),
    overload("duration", "int64_to_duration", "int -> duration", Duration),
    overload("duration", "string_to_duration", "string -> duration", duration_of),
    overload("dyn", "to_dyn", "A -> dyn", same),
)
