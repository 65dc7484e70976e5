"""Functions of texts: cel-go's own, and its strings extension in version 2, which Kubernetes has."""

from __future__ import annotations

import re
from typing import Any, Final

from farflung.machinery.cel.language.budget import SLOW, Meter, Metered
from farflung.machinery.cel.language.declarations import Function, Overload
from farflung.machinery.cel.language.types import BOOL, INT, LIST_OF_DYN, STRING, list_of
from farflung.machinery.cel.language.values import EvaluationError, no_such_overload
from farflung.machinery.cel.library import costs
from farflung.machinery.cel.library.string_format import format_text

LIST_OF_STRING: Final = list_of(STRING)

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


def index_of(text: str, part: str) -> int:
    return text.find(part)


def index_of_from(text: str, part: str, offset: int) -> int:
    if not part:
        return offset
    if offset < 0:
        raise _out_of_range(offset)
    return text.find(part, offset)


def last_index_of(text: str, part: str) -> int:
    return text.rfind(part)


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


def replace(meter: Meter, text: str, old: str, new: str) -> str:
    return replace_some(meter, text, old, new, -1)


def replace_some(meter: Meter, text: str, old: str, new: str, most: int) -> str:
    times = text.count(old)
    if most >= 0:
        times = min(times, most)
    meter.work(len(text) + times * max(len(new) - len(old), 0))
    return text.replace(old, new, max(most, -1))


def split(meter: Meter, text: str, separator: str) -> list[str]:
    return split_some(meter, text, separator, -1)


def split_some(meter: Meter, text: str, separator: str, most: int) -> list[str]:
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


def trim(text: str) -> str:
    return text.strip(SPACE)


def join(meter: Meter, texts: list[Any]) -> str:
    return join_with(meter, texts, "")


def join_with(meter: Meter, texts: list[Any], separator: str) -> str:
    try:
        meter.work(sum(map(len, texts)) + len(separator) * len(texts))
        return separator.join(texts)
    except TypeError:
        raise no_such_overload() from None


def reverse(text: str) -> str:
    return text[::-1]


def quote(meter: Meter, text: str) -> str:
    meter.work(SLOW * len(text))
    return f'"{_SURROGATE.sub(chr(0xFFFD), text).translate(_TO_QUOTE)}"'


def contains(text: str, part: str) -> bool:
    return part in text


def _member(id: str, arguments: tuple[Any, ...], result: Any, implementation: Any, cost: Any = None) -> Overload:
    return Overload(id, arguments, result, True, implementation, cost)


LIBRARY: Final[tuple[Function, ...]] = (
    Function("contains", (_member("contains_string", (STRING, STRING), BOOL, contains, costs.of_product),)),
    Function("startsWith", (_member("starts_with_string", (STRING, STRING), BOOL, str.startswith, costs.of_text),)),
    Function("endsWith", (_member("ends_with_string", (STRING, STRING), BOOL, str.endswith, costs.of_text),)),
    Function("charAt", (_member("string_char_at_int", (STRING, INT), STRING, char_at),)),
    Function(
        "indexOf",
        (
            _member("string_index_of_string", (STRING, STRING), INT, index_of, costs.of_tree),
            _member("string_index_of_string_int", (STRING, STRING, INT), INT, index_of_from, costs.of_tree),
        ),
    ),
    Function(
        "lastIndexOf",
        (
            _member("string_last_index_of_string", (STRING, STRING), INT, last_index_of, costs.of_tree),
            _member("string_last_index_of_string_int", (STRING, STRING, INT), INT, last_index_of_until, costs.of_tree),
        ),
    ),
    Function("lowerAscii", (_member("string_lower_ascii", (STRING,), STRING, lower_ascii, costs.of_text),)),
    Function("upperAscii", (_member("string_upper_ascii", (STRING,), STRING, upper_ascii, costs.of_text),)),
    Function(
        "replace",
        (
            _member(
                "string_replace_string_string",
                (STRING, STRING, STRING),
                STRING,
                Metered(replace),
                costs.of_text_twice,
            ),
            _member(
                "string_replace_string_string_int",
                (STRING, STRING, STRING, INT),
                STRING,
                Metered(replace_some),
                costs.of_text_twice,
            ),
        ),
    ),
    Function(
        "split",
        (
            _member("string_split_string", (STRING, STRING), LIST_OF_STRING, Metered(split), costs.of_text_twice),
            _member(
                "string_split_string_int",
                (STRING, STRING, INT),
                LIST_OF_STRING,
                Metered(split_some),
                costs.of_text_twice,
            ),
        ),
    ),
    Function(
        "substring",
        (
            _member("string_substring_int", (STRING, INT), STRING, substring, costs.of_text),
            _member("string_substring_int_int", (STRING, INT, INT), STRING, substring_between, costs.of_text),
        ),
    ),
    Function("trim", (_member("string_trim", (STRING,), STRING, trim, costs.of_text),)),
    Function(
        "join",
        (
            _member("list_join", (LIST_OF_STRING,), STRING, Metered(join), costs.of_joined),
            _member("list_join_string", (LIST_OF_STRING, STRING), STRING, Metered(join_with), costs.of_joined),
        ),
    ),
    Function("format", (_member("string_format", (STRING, LIST_OF_DYN), STRING, Metered(format_text)),)),
    Function("strings.quote", (Overload("strings_quote", (STRING,), STRING, False, Metered(quote)),)),
)
