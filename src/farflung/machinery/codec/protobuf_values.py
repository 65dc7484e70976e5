"""Protobuf messages that are no objects in JSON: times, quantities, numbers or strings, and JSON itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import orjson

from farflung.machinery import times
from farflung.machinery.codec import json
from farflung.machinery.codec.protobuf_bytes import delimited, numbers_and_bytes, signed, text, varint
from farflung.machinery.errors import Malformed
from farflung.machinery.structs import EXTENSIONS, META

ReadValue = Callable[[bytes, int, int, int], Any]  #: span, depth → JSON
WriteValue = Callable[[Any], bytes]

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def read_time(data: bytes, start: int, stop: int, depth: int) -> str | None:
    """Truncated to the second."""
    moment = read_moment(data, start, stop, "Time")
    return None if moment is None else times.format_seconds(moment)


def read_micro_time(data: bytes, start: int, stop: int, depth: int) -> str | None:
    moment = read_moment(data, start, stop, "MicroTime")
    return None if moment is None else times.format_micros(moment)


def read_moment(data: bytes, start: int, stop: int, name: str) -> datetime | None:
    """Go's zero time is an empty message, and null in JSON."""
    found = numbers_and_bytes(data, start, stop, name, {1: int, 2: int})
    if not found:
        return None
    microseconds = signed(found.get(2, 0), 32) // 1000 if name == "MicroTime" else 0
    try:
        moment = EPOCH + timedelta(seconds=signed(found.get(1, 0), 64), microseconds=microseconds)
    except OverflowError:
        raise Malformed(f"{name}.MarshalJSON: year outside of range [0,9999]") from None
    return None if moment == times.ZERO_TIME else moment


def write_time(value: str | None) -> bytes:
    return b"" if value is None else timestamp(times.parse(value), nanoseconds=False)


def write_micro_time(value: str | None) -> bytes:
    return b"" if value is None else timestamp(times.parse(value), nanoseconds=True)


def timestamp(moment: datetime, *, nanoseconds: bool) -> bytes:
    since = moment - EPOCH
    seconds = since.days * 86400 + since.seconds
    return b"\x08" + varint(seconds) + b"\x10" + varint(since.microseconds * 1000 if nanoseconds else 0)


def read_quantity(data: bytes, start: int, stop: int, depth: int) -> str:
    found = numbers_and_bytes(data, start, stop, "Quantity", {1: bytes})
    return text(found.get(1, b""), "string") or "0"


def read_int_or_string(data: bytes, start: int, stop: int, depth: int) -> int | str:
    found = numbers_and_bytes(data, start, stop, "IntOrString", {1: int, 2: int, 3: bytes})
    if found.get(1, 0) == 0:
        return signed(found.get(2, 0), 32)
    return text(found.get(3, b""), "strVal")


def write_int_or_string(value: int | str) -> bytes:
    if isinstance(value, str):
        return b"\x08\x01\x10\x00" + delimited(b"\x1a", value.encode())
    return b"\x08\x00\x10" + varint(value) + b"\x1a\x00"


def read_json(data: bytes, start: int, stop: int, depth: int) -> Any:
    raw = numbers_and_bytes(data, start, stop, "Raw", {1: bytes}).get(1)
    return json.parse(raw, typed=False).value if raw else None


def write_json(value: Any) -> bytes:
    return b"" if value is None else delimited(b"\x0a", orjson.dumps(value))


SPECIAL_READERS: Final[Mapping[str, ReadValue]] = {
    f"{META}Time": read_time,
    f"{META}MicroTime": read_micro_time,
    f"{META}FieldsV1": read_json,
    "io.k8s.apimachinery.pkg.runtime.RawExtension": read_json,
    "io.k8s.apimachinery.pkg.api.resource.Quantity": read_quantity,
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": read_int_or_string,
    f"{EXTENSIONS}JSON": read_json,
}
SPECIAL_WRITERS: Final[Mapping[str, WriteValue]] = {
    f"{META}Time": write_time,
    f"{META}MicroTime": write_micro_time,
    f"{META}FieldsV1": write_json,
    "io.k8s.apimachinery.pkg.runtime.RawExtension": write_json,
    "io.k8s.apimachinery.pkg.api.resource.Quantity": lambda value: delimited(b"\x0a", str(value).encode()),
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": write_int_or_string,
    f"{EXTENSIONS}JSON": write_json,
}
