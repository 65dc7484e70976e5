"""Functions of texts: cel-go's own, and its strings extension in version 2, which Kubernetes has."""

from __future__ import annotations

import operator
import re
from typing import Any, Final

from farflung.machinery.cel.language.budget import SLOW, Meter, Metered
from farflung.machinery.cel.language.declarations import Function, overload
from farflung.machinery.cel.language.values import EvaluationError, no_such_overload
from farflung.machinery.cel.library import costs
from farflung.machinery.cel.library.string_format import format_text

#: white space in Go
SPACE: Final = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))

_LOWER: Final = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}
_UPPER: Final = {lower: lower - 32 for lower in range(ord("a"), ord("z") + 1)}
_QUOTED: Final = {
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
    "\\": "\\\\",
    '"': '\\"',
}
_TO_QUOTE: Final = str.maketrans(_QUOTED)
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def _out_of_range(index: int) -> EvaluationError:
    return EvaluationError(f"index out of range: {index}")


def char_at(text: str, index: int) -> str:
    if not 0 <= index <= len(text):
        raise _out_of_range(index)
    return text[index : index + 1]


def index_of_from(text: str, part: str, offset: int) -> int:
    if not part:
        return offset
    if offset < 0:
        raise _out_of_range(offset)
    return text.find(part, offset)


def last_index_of_until(text: str, part: str, offset: int) -> int:
    """The last position of the part at or before the offset; none if the offset is beyond the text."""
    if not part:
        return offset
    if offset < 0:
        raise _out_of_range(offset)
    return text.rfind(part, 0, offset + len(part)) if offset < len(text) else -1


def lower_ascii(text: str) -> str:
    return text.lower() if text.isascii() else text.translate(_LOWER)


def upper_ascii(text: str) -> str:
    return text.upper() if text.isascii() else text.translate(_UPPER)


def replace(meter: Meter, text: str, old: str, new: str, most: int = -1) -> str:
    times = text.count(old)
    if most >= 0:
        times = min(times, most)
    meter.work(len(text) + times * max(len(new) - len(old), 0))
    return text.replace(old, new, max(most, -1))


def split(meter: Meter, text: str, separator: str, most: int = -1) -> list[str]:
    """At most this many parts; negative: all parts."""
    if most == 0:
        return []
    meter.work(8 * len(text) if not separator else len(text) + 60 * text.count(separator))
    if separator:
        return text.split(separator, most - 1 if most > 0 else -1)
    if 0 < most < len(text):
        return [*text[: most - 1], text[most - 1 :]]
    return list(text)


def substring(text: str, start: int) -> str:
    if not 0 <= start <= len(text):
        raise _out_of_range(start)
    return text[start:]


def substring_between(text: str, start: int, end: int) -> str:
    if start > end:
        raise EvaluationError(f"invalid substring range. start: {start}, end: {end}")
    for index in (start, end):
        if not 0 <= index <= len(text):
            raise _out_of_range(index)
    return text[start:end]


def join(meter: Meter, texts: list[Any], separator: str = "") -> str:
    try:
        meter.work(sum(map(len, texts)) + len(separator) * len(texts))
        return separator.join(texts)
    except TypeError:
        raise no_such_overload() from None


def quote(meter: Meter, text: str) -> str:
    meter.work(SLOW * len(text))
    return f'"{_SURROGATE.sub(chr(0xFFFD), text).translate(_TO_QUOTE)}"'


LIBRARY: Final[tuple[Function, ...]] = (
    overload(".contains", "contains_string", "string, string -> bool", operator.contains, costs.of_product),
    overload(".startsWith", "starts_with_string", "string, string -> bool", str.startswith, costs.of_text),
    overload(".endsWith", "ends_with_string", "string, string -> bool", str.endswith, costs.of_text),
    overload(".charAt", "string_char_at_int", "string, int -> string", char_at),
    overload(".indexOf", "string_index_of_string", "string, string -> int", str.find, costs.of_tree),
    overload(".indexOf", "string_index_of_string_int", "string, string, int -> int", index_of_from, costs.of_tree),
    overload(".lastIndexOf", "string_last_index_of_string", "string, string -> int", str.rfind, costs.of_tree),
    overload(
        ".lastIndexOf",
        "string_last_index_of_string_int",
        "string, string, int -> int",
        last_index_of_until,
        costs.of_tree,
    ),
    overload(".lowerAscii", "string_lower_ascii", "string -> string", lower_ascii, costs.of_text),
    overload(".upperAscii", "string_upper_ascii", "string -> string", upper_ascii, costs.of_text),
    overload(
        ".replace",
        "string_replace_string_string",
        "string, string, string -> string",
        Metered(replace),
        costs.of_text_twice,
    ),
    overload(
        ".replace",
        "string_replace_string_string_int",
        "string, string, string, int -> string",
        Metered(replace),
        costs.of_text_twice,
    ),
    overload(".split", "string_split_string", "string, string -> list(string)", Metered(split), costs.of_text_twice),
    overload(
        ".split", "string_split_string_int", "string, string, int -> list(string)", Metered(split), costs.of_text_twice
    ),
    overload(".substring", "string_substring_int", "string, int -> string", substring, costs.of_text),
    overload(".substring", "string_substring_int_int", "string, int, int -> string", substring_between, costs.of_text),
    overload(".trim", "string_trim", "string -> string", lambda text: text.strip(SPACE), costs.of_text),
    overload(".join", "list_join", "list(string) -> string", Metered(join), costs.of_joined),
    overload(".join", "list_join_string", "list(string), string -> string", Metered(join), costs.of_joined),
    overload(".format", "string_format", "string, list(dyn) -> string", Metered(format_text)),
    overload("strings.quote", "strings_quote", "string -> string", Metered(quote)),
)
