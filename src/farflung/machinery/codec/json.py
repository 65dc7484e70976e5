"""JSON bodies: a fast parser with a check for duplicate fields, and Go's error messages."""

from __future__ import annotations

import json
import math
import re
from typing import Any, Final, NamedTuple

import orjson

from farflung.machinery.errors import NAMES, TOO_DEEP, Malformed, go_quote
from farflung.machinery.schema.walk import MAX_PROBLEM_TEXT, MAX_PROBLEMS, Path, path_text, steps_of

DEEPEST: Final = 254  #: levels; orjson cannot write more
END: Final = "unexpected end of JSON input"


class Parsed(NamedTuple):
    value: Any
    problems: list[str]  #: `duplicate field "data.a"`, in the order of the text


def parse(body: bytes, *, typed: bool = True) -> Parsed:
    """Read a body, and find duplicate fields.  Raises Malformed.

    Of duplicate fields the last one wins; if `typed`, objects are merged, as when Go fills structs.
    """
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        body = readable(body)
        value = orjson.loads(body)
    try:
        if orjson.dumps(value) == body.strip():
            return Parsed(value, [])
    except orjson.JSONEncodeError:
        raise Malformed(TOO_DEEP) from None
    if _has_distinct_keys(body, value):
        return Parsed(value, [])
    duplicates = _Duplicates(typed)
    try:
        pairs = json.loads(body, object_pairs_hook=_Pairs, parse_int=_number, parse_float=float)
        return Parsed(duplicates.united(pairs, None), list(duplicates.problems))
    except RecursionError:  # in a value that a duplicate replaces
        raise Malformed(TOO_DEEP) from None


def parse_object(body: bytes, *, typed: bool = False) -> Parsed:
    """The same for a body that must be an object or null, like a merge patch."""
    parsed = parse(body, typed=typed)
    if parsed.value is not None and type(parsed.value) is not dict:
        raise Malformed(
            f"json: cannot unmarshal {NAMES[type(parsed.value)]} into Go value of type map[string]interface {{}}"
        )
    return parsed


# --- duplicates -------------------------------------------------------------------------------------

SPACED_COLON: Final = re.compile(rb"[ \t\r\n]:")


def _has_distinct_keys(body: bytes, value: Any) -> bool:
    """True proves that no key is a duplicate: the text has no more ends of keys than the value has keys.  False proves
    nothing: a string like ":80" looks like the end of a key."""
    if b'\\\\"' in body or SPACED_COLON.search(body):
        return False  # a quote that ends a string although it follows a backslash, or a colon apart from its key
    keys = 0
    rest = [value]
    for item in rest:
        if type(item) is dict:
            keys += len(item)
            rest += item.values()
        elif type(item) is list:
            rest += item
    return body.count(b'":') - body.count(b'\\":') == keys


class _Pairs(list[tuple[str, Any]]):
    """An object with its duplicate fields."""


def _number(digits: str) -> int | float:
    """The number as orjson parses it: a 64-bit integer, or a float."""
    number = float(digits)
    if abs(number) > 2**64:
        return number
    exact = int(digits)
    return exact if -(2**63) <= exact < 2**64 else number


class _Duplicates:
    """Makes objects of pairs, and describes the first duplicate fields."""

    def __init__(self, typed: bool) -> None:
        self._typed = typed
        self._described = 0  #: characters
        self.problems: dict[str, None] = {}

    def united(self, value: Any, path: Path) -> Any:
        if type(value) is list:
            return [self.united(item, (path, index)) for index, item in enumerate(value)]
        if type(value) is not _Pairs:
            return value
        united: dict[str, Any] = {}
        for name, item in value:
            inner = (path, name)
            if name in united:
                self._describe(inner)
            new = self.united(item, inner)
            if not (self._typed and type(united.get(name)) is dict and type(new) is dict):
                united[name] = new
            else:
                _merge(united[name], new)
        return united

    def _describe(self, path: Path) -> None:
        if self._described < MAX_PROBLEM_TEXT and len(self.problems) < MAX_PROBLEMS:
            problem = f"duplicate field {go_quote(path_text(steps_of(path)))}"
            self._described += len(problem)
            self.problems[problem] = None


def _merge(old: dict[str, Any], new: dict[str, Any]) -> None:
    """Into the old one, which may be large, while there may be many new ones."""
    for name, item in new.items():
        if type(old.get(name)) is dict and type(item) is dict:
            _merge(old[name], item)
        else:
            old[name] = item


# --- what orjson does not read ------------------------------------------------------------------------

#: an escape; the group is half of a surrogate pair without the other half
ESCAPE: Final = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL
)
STRING_OR_NUMBER: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"|(-?[0-9][0-9.eE+-]*+)', re.DOTALL)


def readable(body: bytes) -> bytes:
    """A body that orjson refused, with U+FFFD instead of half surrogate pairs, as in Go.  Bytes that are no UTF-8 are
    refused, although Go would replace them.  Raises Malformed."""
    check_syntax(body)
    try:
        body.decode()
    except UnicodeDecodeError as error:
        raise Malformed(f"invalid UTF-8 at offset {error.start}") from None
    repaired = ESCAPE.sub(lambda escape: rb"\ufffd" if escape[1] else escape[0], body)
    try:
        orjson.loads(repaired)
    except orjson.JSONDecodeError:
        raise Malformed(_why_unreadable(repaired)) from None
    return repaired


def _why_unreadable(body: bytes) -> str:
    """The remaining error: a number out of range for floats."""
    for match in STRING_OR_NUMBER.finditer(body):
        if match[1] and math.isinf(float(match[1])):
            return f"json: cannot unmarshal number {match[1].decode()} into Go value of type float64"
    return "json: cannot unmarshal this body"


# --- syntax -------------------------------------------------------------------------------------------

SPACE: Final = re.compile(rb"[ \t\r\n]*+")
STRING_START: Final = re.compile(rb'"(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+')
INTEGER: Final = re.compile(rb"-?(?:0|[1-9][0-9]*+)")
DIGITS: Final = re.compile(rb"[0-9]++")
EXPONENT_SIGN: Final = re.compile(rb"[eE][+-]?")
ESCAPE_START: Final = re.compile(rb"\\u[0-9a-fA-F]*+")
LITERALS: Final = {ord("t"): b"true", ord("f"): b"false", ord("n"): b"null"}


def check_syntax(body: bytes) -> None:
    """Raises Malformed with the message of Go's parser about the first invalid byte."""
    position = _after_space(body, 0)
    closers = bytearray()  # of the open objects and lists
    while True:
        opening = body[position]
        if opening in b"{[":
            closers.append(ord("}") if opening == ord("{") else ord("]"))
            if len(closers) > DEEPEST:
                raise Malformed(TOO_DEEP)
            position = _after_space(body, position + 1)
            if body[position] != closers[-1]:
                position = _key(body, position) if opening == ord("{") else position
                continue
        else:
            position = _scalar_end(body, position)
            if not closers:
                return _check_nothing_left(body, position)
            position = _after_space(body, position)
        while body[position] == closers[-1]:
            closers.pop()
            position += 1
            if not closers:
                return _check_nothing_left(body, position)
            position = _after_space(body, position)
        in_object = closers[-1] == ord("}")
        if body[position] != ord(","):
            raise _unexpected(body, position, "after object key:value pair" if in_object else "after array element")
        position = _after_space(body, position + 1)
        if in_object:
            position = _key(body, position)


def _after_space(body: bytes, position: int) -> int:
    """The position of the next token, which must exist."""
    match = SPACE.match(body, position)
    assert match
    if match.end() == len(body):
        raise Malformed(END)
    return match.end()


def _check_nothing_left(body: bytes, position: int) -> None:
    match = SPACE.match(body, position)
    assert match
    if match.end() < len(body):
        raise _unexpected(body, match.end(), "after top-level value")


def _key(body: bytes, position: int) -> int:
    """Read a key and its colon.  Returns the position of the value."""
    if body[position] != ord('"'):
        raise _unexpected(body, position, "looking for beginning of object key string")
    position = _after_space(body, _string_end(body, position))
    if body[position] != ord(":"):
        raise _unexpected(body, position, "after object key")
    return _after_space(body, position + 1)


def _scalar_end(body: bytes, position: int) -> int:
    start = body[position]
    if start == ord('"'):
        return _string_end(body, position)
    if start in LITERALS:
        literal = LITERALS[start]
        for offset in range(1, len(literal)):
            if body[position + offset : position + offset + 1] != literal[offset : offset + 1]:
                where = f"in literal {literal.decode()} (expecting {chr(literal[offset])!r})"
                raise _unexpected(body, position + offset, where)
        return position + len(literal)
    if start in b"-0123456789":
        match = INTEGER.match(body, position)
        if match is None:
            raise _unexpected(body, position + 1, "in numeric literal")
        position = match.end()
        if body[position : position + 1] == b".":
            position = _digits_end(body, position + 1, "after decimal point in numeric literal")
        if exponent := EXPONENT_SIGN.match(body, position):
            position = _digits_end(body, exponent.end(), "in exponent of numeric literal")
        return position
    raise _unexpected(body, position, "looking for beginning of value")


def _string_end(body: bytes, position: int) -> int:
    match = STRING_START.match(body, position)
    assert match
    position = match.end()
    if body[position : position + 1] == b'"':
        return position + 1
    if body[position : position + 2] == b"\\u":
        escape = ESCAPE_START.match(body, position)
        assert escape
        raise _unexpected(body, escape.end(), "in \\u hexadecimal character escape")
    if body[position : position + 1] == b"\\":
        raise _unexpected(body, position + 1, "in string escape code")
    if position == len(body):
        raise Malformed(END)
    raise _unexpected(body, position, "in string literal")


def _digits_end(body: bytes, position: int, where: str) -> int:
    match = DIGITS.match(body, position)
    if match is None:
        raise _unexpected(body, position, where)
    return match.end()


def _unexpected(body: bytes, position: int, where: str) -> Malformed:
    """Go appends a blank to the body.  If a blank is valid there, the error is an unexpected end."""
    byte = body[position] if position < len(body) else ord(" ")
    return Malformed(f"invalid character {_quoted(byte)} {where}")


def _quoted(byte: int) -> str:
    if byte == ord("'"):
        return r"'\''"
    if byte == ord('"'):
        return "'\"'"
    return f"'{go_quote(chr(byte))[1:-1]}'"
