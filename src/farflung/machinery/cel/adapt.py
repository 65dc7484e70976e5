"""Conversion of JSON values to CEL values of their declared types: times, doubles, sets.

    adapters = Adapters()
    adapters.of(type)       the conversion of a JSON value; None if it needs none
    adapters.plain(type)    whether Python's == compares JSON values of the type as CEL does

An adapter is made once for a type, and copies only values with parts to adapt.  Objects keep the names of their
properties: selections translate names of CEL.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from typing import Any, Final

from farflung.machinery.cel.language.budget import STEP, Meter
from farflung.machinery.cel.language.types import Type, TypeKind
from farflung.machinery.cel.language.values import (
    NANOS,
    Duration,
    EvaluationError,
    MapList,
    SetList,
    Timestamp,
    checked_duration,
)
from farflung.machinery.cel.library.costs import SLOW_CALLS
from farflung.machinery.cel.library.moments import date_of, duration_of, timestamp_of

Adapter = Callable[[Meter, Any], Any]

_DATE_LENGTH: Final = len("2006-01-02")
#: formats of times in OpenAPI besides RFC 3339
_LOOSE_TIME: Final = re.compile(
    r"(\d{4}-\d{2}-\d{2})[Tt](\d{2}:\d{2})(:\d{2})?([.,]\d+)?([Zz]|[+-]\d{2}:?\d{2})?", re.ASCII
)
_LOOSE_DURATION: Final = re.compile(r"(\d+)\s*([A-Za-zµ]+)", re.ASCII)
_LOOSE_UNITS: Final = {
    unit: nanos
    for units, nanos in (
        (("ns", "nano", "nanosecond"), 1),
        (("us", "µs", "micro", "microsecond"), 1_000),
        (("ms", "milli", "millisecond"), 1_000_000),
        (("s", "sec", "second"), NANOS),
        (("m", "min", "minute"), 60 * NANOS),
        (("h", "hr", "hour"), 3600 * NANOS),
        (("d", "day"), 86_400 * NANOS),
        (("w", "wk", "week"), 7 * 86_400 * NANOS),
    )
    for unit in units
}
_EXPECTED: Final[dict[type, str]] = {list: "an array", dict: "a map", str: "string"}
_PLAIN: Final = frozenset({TypeKind.NULL, TypeKind.BOOL, TypeKind.INT, TypeKind.DOUBLE, TypeKind.STRING})


class Adapters:
    """The adapters of types.  Types are compared by identity, because equal ones may have different fields."""

    def __init__(self) -> None:
        self._made: dict[int, tuple[Type, Adapter | None]] = {}  #: with the type, so that its id is not reused
        self._plain: dict[int, tuple[Type, bool]] = {}

    def of(self, declared: Type) -> Adapter | None:
        made = self._made.get(id(declared))
        if made is None:
            made = self._made[id(declared)] = (declared, self._make(declared))
        return made[1]

    def plain(self, declared: Type) -> bool:
        known = self._plain.get(id(declared))
        if known is None:
            known = self._plain[id(declared)] = (declared, self._is_plain(declared))
        return known[1]

    def _make(self, declared: Type) -> Adapter | None:
        match declared.kind:
            case TypeKind.DOUBLE:
                return _double
            case TypeKind.TIMESTAMP:
                return _timestamp
            case TypeKind.DURATION:
                return _duration
            case TypeKind.BYTES:
                return _bytes
            case TypeKind.LIST:
                return self._list(declared)
            case TypeKind.MAP:
                value = self.of(declared.parameters[1])
                return None if value is None else _map(value)
            case TypeKind.OBJECT:
                fields = {field.property: self.of(field.type) for field in declared.fields.values()}
                adapted = {name: adapter for name, adapter in fields.items() if adapter is not None}
                return _object(adapted) if adapted else None
        return None

    def _list(self, declared: Type) -> Adapter | None:
        element = self.of(declared.parameters[0])
        plain = None if element is None else _list(element)
        if declared.list_type == "set":
            return _wrapped(SetList, plain)
        if declared.list_type == "map":
            keys = declared.list_keys
            return _wrapped(lambda elements: MapList(elements, keys), plain)
        return plain

    def _is_plain(self, declared: Type) -> bool:
        match declared.kind:
            case TypeKind.LIST:
                return declared.list_type not in ("set", "map") and self.plain(declared.parameters[0])
            case TypeKind.MAP:
                return self.plain(declared.parameters[1])
            case TypeKind.OBJECT:
                return all(self.plain(field.type) for field in declared.fields.values())
        return declared.kind in _PLAIN


def _checked(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise EvaluationError(f"invalid data, expected {_EXPECTED[kind]}")
    return value


def _list(element: Adapter) -> Adapter:
    def adapt(meter: Meter, value: Any) -> Any:
        meter.work(STEP * len(_checked(value, list)))
        return [None if each is None else element(meter, each) for each in value]

    return adapt


def _wrapped(wrap: Callable[[list[Any]], Any], inner: Adapter | None) -> Adapter:
    def adapt(meter: Meter, value: Any) -> Any:
        elements = _checked(value, list) if inner is None else inner(meter, value)
        meter.work(STEP + 8 * len(elements))
        return wrap(elements)

    return adapt


def _map(element: Adapter) -> Adapter:
    def adapt(meter: Meter, value: Any) -> Any:
        meter.work(STEP * len(_checked(value, dict)))
        return {key: None if each is None else element(meter, each) for key, each in value.items()}

    return adapt


def _object(fields: dict[str, Adapter]) -> Adapter:
    def adapt(meter: Meter, value: Any) -> Any:
        meter.work(STEP * (len(_checked(value, dict)) + len(fields)))
        get = value.get
        adapted = {name: adapter(meter, value[name]) for name, adapter in fields.items() if get(name) is not None}
        return {**value, **adapted} if adapted else value

    return adapt


def _double(_: Meter, value: Any) -> float:
    if type(value) is float:
        return value
    if type(value) is int:
        return float(value)
    raise EvaluationError("invalid data, expected float")


def _timestamp(meter: Meter, value: Any) -> Timestamp:
    text = _checked(value, str)
    meter.work(SLOW_CALLS["string_to_timestamp"])
    if len(text) == _DATE_LENGTH:
        return date_of(text)
    try:
        return timestamp_of(text)
    except EvaluationError as error:
        match = _LOOSE_TIME.fullmatch(text)
        if match is None:
            raise EvaluationError(f"Invalid date-time formatted string {text[:100]}: {error}") from None
        day, minutes, seconds, fraction, zone = match.groups()
        zone = (zone or "Z").upper()
        zone = zone if len(zone) != 5 else f"{zone[:3]}:{zone[3:]}"
        return timestamp_of(f"{day}T{minutes}{seconds or ':00'}{fraction or ''}{zone}")


def _duration(meter: Meter, value: Any) -> Duration:
    text = _checked(value, str)
    meter.work(SLOW_CALLS["string_to_duration"])
    try:
        return duration_of(text)
    except EvaluationError as error:
        nanos = 0
        for number, unit in _LOOSE_DURATION.findall(text[:100]):
            scale = _LOOSE_UNITS.get(unit.lower()) or _LOOSE_UNITS.get(unit.lower().removesuffix("s"))
            if scale is None:
                nanos = 0
                break
            nanos += int(number) * scale
        if not nanos:
            raise EvaluationError(f"Invalid duration {text[:100]}: {error}") from None
        return checked_duration(nanos)


def _bytes(meter: Meter, value: Any) -> bytes:
    text = _checked(value, str)
    meter.work(len(text))
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise EvaluationError(f"Invalid byte formatted string {text[:100]}: {error}") from None
