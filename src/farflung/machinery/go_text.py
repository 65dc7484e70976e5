"""JSON values as Go prints them, for messages that are to read like Go's."""

from __future__ import annotations

from typing import Any, Final

import orjson

from farflung.machinery.errors import go_quote


def wrapped(value: Any) -> str:
    """%v of the wrapper around a JSON value."""
    return f"&{{{plain(value)}}}"


def plain(value: Any) -> str:
    """%v of a JSON value: `map[image:x]`, `[a b]`."""
    match value:
        case None:
            return "<nil>"
        case bool():
            return str(value).lower()
        case dict():
            return "map[" + " ".join(f"{name}:{plain(value[name])}" for name in sorted(value)) + "]"
        case list():
            return "[" + " ".join(map(plain, value)) + "]"
        case str():
            return value
        case _:
            return _number(value)


def syntax(value: Any) -> str:
    """%#v of a JSON value."""
    match value:
        case None:
            return "interface {}(nil)"
        case str():
            return go_quote(value)
        case bool():
            return str(value).lower()
        case dict():
            pairs = ", ".join(f"{go_quote(name)}:{syntax(value[name])}" for name in sorted(value))
            return f"map[string]interface {{}}{{{pairs}}}"
        case list():
            return "[]interface {}{" + ", ".join(map(syntax, value)) + "}"
        case _:
            return _number(value)


def _number(value: float) -> str:
    return str(value).removesuffix(".0")


def type_name(value: Any) -> str:
    """%T of a JSON value."""
    match value:
        case None:
            return "<nil>"
        case bool():
            return "bool"
        case str():
            return "string"
        case dict():
            return "map[string]interface {}"
        case int():
            return "int64"
        case float():
            return "float64"
        case _:
            return "[]interface {}"


_HTML: Final = {ord(char): f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"}


def encoded(value: Any, *, ordered: bool = False) -> str:
    """Compact JSON, with escapes for what HTML would read.  Maps are sorted; the fields of structs are in order."""
    return orjson.dumps(value, option=0 if ordered else orjson.OPT_SORT_KEYS).decode().translate(_HTML)
