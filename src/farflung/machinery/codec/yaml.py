"""YAML bodies, read as Kubernetes reads them: YAML 1.1 turned into JSON.

Keys become strings, `y` and `off` are booleans, and times stay text.  The parser reads events instead of using a
loader, to control depth, aliases and duplicate keys.
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Iterator
from typing import Any, Final

import orjson
import yaml
from yaml.events import (
    AliasEvent,
    CollectionStartEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
)

from farflung.machinery.codec import json
from farflung.machinery.codec.json import DEEPEST, Parsed
from farflung.machinery.errors import TOO_DEEP, Malformed, Obj, go_quote

LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

MAX_ALIASED: Final = 1 << 20  #: bytes of JSON that aliases may add to a document

WORDS: Final[dict[str, Any]] = {
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), math.inf),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), -math.inf),
}
INTEGER: Final = re.compile(
    r"(?P<sign>[-+]?)(?:0[xX](?P<hex>[0-9a-fA-F]+)|0[bB](?P<binary>[01]+)|0[oO]?(?P<octal>[0-7]+)|(?P<decimal>0|[1-9][0-9]*))"
)
BASES: Final = {"hex": 16, "binary": 2, "octal": 8, "decimal": 10}
FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
LONGEST_NUMBER: Final = 400
#: a %TAG directive; libyaml compares each with all others
TAG_DIRECTIVE: Final = re.compile(rb"(?:\A|[\n\r\x85\xa8\xa9])(?:\xef\xbb\xbf)?%TAG")
MAX_DIRECTIVES: Final = 100
UTF_16: Final = (b"\xff\xfe", b"\xfe\xff")

TAG: Final = "tag:yaml.org,2002:"
UNFINISHED: Final = object()  #: the value of an anchor that is still being read


def parse(body: bytes) -> Parsed:
    """Read one document.  Raises Malformed.

    Problems are duplicate keys: `line 7: key "a" already set in map`.
    """
    if body.startswith(b"{"):
        try:
            parsed = json.parse(body, typed=False)
            if not parsed.problems:
                return parsed
        except Malformed:
            pass  # flow YAML starts like JSON, too
    readable = body.replace(b"\0", b"") if body.startswith(UTF_16) else body
    if b"%TAG" in readable and len(TAG_DIRECTIVE.findall(readable)) > MAX_DIRECTIVES:
        raise Malformed(f"yaml: document has more than {MAX_DIRECTIVES} %TAG directives")
    try:
        return _Reader(yaml.parse(body, LOADER)).document()
    except yaml.YAMLError as error:
        raise Malformed(_worded(error)) from None
    except RecursionError:
        raise Malformed(TOO_DEEP) from None


def _worded(error: yaml.YAMLError) -> str:
    """The message of go-yaml, with its line numbers."""
    if not isinstance(error, yaml.MarkedYAMLError):
        return f"yaml: {getattr(error, 'reason', error)}"
    line = error.problem_mark.line if error.problem_mark else 0
    if line and isinstance(error, yaml.scanner.ScannerError):
        line += 1
    elif not line and error.context_mark:
        line = error.context_mark.line
    return f"yaml: line {line}: {error.problem}" if line else f"yaml: {error.problem}"


class _Reader:
    def __init__(self, events: Iterator[Event]) -> None:
        self._events = events
        self._anchors: dict[str, Any] = {}
        self._aliased = 0
        self._duplicates: list[str] = []

    def document(self) -> Parsed:
        next(self._events)  # the start of the stream
        if isinstance(next(self._events), StreamEndEvent):
            return Parsed(None, [])
        value = self._value(next(self._events), 0)
        next(self._events)  # the end of the document
        if isinstance(next(self._events), DocumentStartEvent):
            raise Malformed("yaml: there must be one document only")
        return Parsed(value, self._duplicates)

    def _value(self, event: Event, depth: int) -> Any:
        if isinstance(event, ScalarEvent):
            value = _json_of(scalar(event))
        elif isinstance(event, AliasEvent):
            return self._alias(event.anchor)
        else:
            assert isinstance(event, CollectionStartEvent)
            value = self._collection(event, depth + 1)
        if event.anchor is not None:
            self._anchors[event.anchor] = value
        return value

    def _collection(self, event: CollectionStartEvent, depth: int) -> Any:
        if depth > DEEPEST:
            raise Malformed(TOO_DEEP)
        if event.anchor is not None:
            self._anchors[event.anchor] = UNFINISHED
        return self._sequence(depth) if isinstance(event, SequenceStartEvent) else self._mapping(depth)

    def _sequence(self, depth: int) -> list[Any]:
        sequence = []
        while not isinstance(event := next(self._events), SequenceEndEvent):
            sequence.append(self._value(event, depth))
        return sequence

    def _mapping(self, depth: int) -> Obj:
        mapping: Obj = {}
        merged: Obj = {}
        seen: set[tuple[type, Any]] = set()
        while not isinstance(event := next(self._events), MappingEndEvent):
            if _is_merge(event):
                self._merge(merged, next(self._events), depth)
                continue
            key = self._key(event)
            value_event = next(self._events)
            value = self._value(value_event, depth)
            if (type(key), key) in seen:
                shown = go_quote(key) if isinstance(key, str) else _key_text(key)
                self._duplicates.append(f"line {_line(value_event)}: key {shown} already set in map")
            seen.add((type(key), key))
            mapping[_key_text(key)] = value
        return {**merged, **mapping} if merged else mapping

    def _key(self, event: Event) -> Any:
        key = None
        if isinstance(event, AliasEvent):
            key = self._alias(event.anchor)
        elif isinstance(event, ScalarEvent):
            key = scalar(event)
            if event.anchor is not None:
                self._anchors[event.anchor] = key
        if not isinstance(key, str | bool | int | float):
            raise Malformed(f"yaml: line {_line(event)}: invalid map key")
        return key

    def _merge(self, merged: Obj, event: Event, depth: int) -> None:
        """Merge the mappings of `<<`; the first one wins."""
        value = self._value(event, depth)
        mappings = value if type(value) is list else [value]
        for mapping in mappings:
            if type(mapping) is not dict:
                raise Malformed("yaml: map merge requires map or sequence of maps as the value")
            for name, item in mapping.items():
                merged.setdefault(name, item)

    def _alias(self, anchor: str | None) -> Any:
        """A copy of the anchor's value, so that no parts of an object are shared."""
        if anchor is None or anchor not in self._anchors:
            raise Malformed(f"yaml: unknown anchor '{anchor}' referenced")
        value = self._anchors[anchor]
        if value is UNFINISHED:
            raise Malformed(f"yaml: anchor '{anchor}' value contains itself")
        copied = type(value) is dict or type(value) is list
        try:
            encoded = orjson.dumps(value) if copied or type(value) is str else b""
        except orjson.JSONEncodeError:
            raise Malformed(TOO_DEEP) from None
        self._aliased += len(encoded)
        if self._aliased > MAX_ALIASED:
            raise Malformed("yaml: document contains excessive aliasing")
        return orjson.loads(encoded) if copied else value


# --- scalars ------------------------------------------------------------------------------------------


def scalar(event: ScalarEvent) -> Any:
    """The value of a scalar, by its tag or its text."""
    text: str = event.value
    if event.tag is None or event.tag == "!":
        return resolved(text) if event.implicit[0] else text
    tag = event.tag.removeprefix(TAG)
    if tag == "binary":
        return _binary(text)
    if tag not in TYPES:
        return text
    value = resolved(text)
    if tag == "float" and type(value) is int:
        return float(value)
    if not isinstance(value, TYPES[tag]):
        resolved_tag = next((name for name, type_ in TYPES.items() if type(value) is type_), "str")
        raise Malformed(f"yaml: cannot decode !!{resolved_tag} `{text}` as a !!{tag}")
    return value


#: the types of tagged scalars
TYPES: Final[dict[str, type]] = {"bool": bool, "int": int, "float": float, "null": type(None)}


def _binary(text: str) -> str:
    try:
        return base64.b64decode("".join(text.split()), validate=True).decode("utf-8", "replace")
    except ValueError:
        raise Malformed("yaml: !!binary value contains invalid base64 data") from None


def resolved(text: str) -> Any:
    """The value of a plain scalar."""
    if text in WORDS:
        return WORDS[text]
    if text[0] not in "+-.0123456789" or len(text) > LONGEST_NUMBER:
        return text
    plain = text.replace("_", "") if text[0] != "." else text
    if match := INTEGER.fullmatch(plain):
        base = match.lastgroup
        assert base is not None
        number = int(match[base], BASES[base])
        return _represented(-number if match["sign"] == "-" else number, text)
    if FLOAT.fullmatch(plain) and not math.isinf(float(plain)):
        return float(plain)
    return text


def _represented(number: int, text: str) -> int | float | str:
    """A number of 64 bits, or a float; a number that is too large for a float is text."""
    if -(2**63) <= number < 2**64:
        return number
    try:
        return float(number)
    except OverflowError:
        return text


def _json_of(value: Any) -> Any:
    """The JSON value of a scalar: a float without fraction becomes an integer."""
    if type(value) is not float:
        return value
    if not math.isfinite(value):
        shown = "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
        raise Malformed(f"json: unsupported value: {shown}")
    return int(value) if value.is_integer() and abs(value) < 2**63 else value


# --- keys ---------------------------------------------------------------------------------------------


def _is_merge(event: Event) -> bool:
    return (
        isinstance(event, ScalarEvent)
        and event.value == "<<"
        and (event.tag == f"{TAG}merge" or (event.tag is None and event.implicit[0]))
    )


def _line(event: Event) -> int:
    return event.start_mark.line + 1 if event.start_mark else 0


def _key_text(key: str | bool | int | float) -> str:
    match key:
        case str():
            return key
        case bool():
            return "true" if key else "false"
        case int():
            return str(key)
        case float() if math.isfinite(key):
            return f"{key:.6g}" if float(f"{key:.6g}") == key else f"{key:.9g}"
        case _:
            return ".nan" if math.isnan(key) else ".inf" if key > 0 else "-.inf"
