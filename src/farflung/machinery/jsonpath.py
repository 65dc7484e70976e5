r"""Kubernetes' JSONPath, as printer columns and selectable fields use it.

    path = compile(".spec.parts[*].name")       once for a column
    values = path.find(obj)                     for every object

The forms are `.a.b`, `['k\.with\.dots/x']`, `[0]`, `[-1:]`, `[*]`, `.*`, `..name`, `[0,2]`, `[?(@.type=="Ready")]`.
An absent key selects nothing.  A path that cannot be evaluated, or takes too many steps, raises PathError.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, Final, NamedTuple

from farflung.machinery import go_text

MAX_STEPS: Final = 100  #: of one path
MAX_WORK: Final = 50_000  #: values visited by one path in one object

Values = list[Any]

_TERMINATORS: Final = frozenset(" \t\r\n.,[]$@{}")
_KEY: Final = re.compile(r"'([^']*)'").fullmatch
_SLICE: Final = re.compile(r"(-?[0-9]*)(:-?[0-9]*)?(:-?[0-9]*)?", re.ASCII).fullmatch
_COMPARISON: Final = re.compile(r"([^!<>=]+)([!<>=]+)(.+)").fullmatch
_NUMBER: Final = re.compile(r"[+-]?[0-9.]*", re.ASCII)
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII).fullmatch
_FLOAT: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)", re.ASCII).fullmatch
_ESCAPES: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "\\": "\\"}


class PathError(ValueError):
    """A text that is no path, or a value in which a path cannot be evaluated."""


class Work:
    """The remaining steps of one evaluation, so that no path takes long."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = MAX_WORK

    def spend(self, values: int) -> None:
        self._left -= values + 1
        if self._left < 0:
            raise PathError("it asks for too much")


Step = Callable[[Values, Work], Values]


class Path:
    """A compiled path."""

    __slots__ = ("_steps", "text")

    def __init__(self, text: str, steps: Sequence[Step]) -> None:
        self.text = text
        self._steps = steps

    def find(self, value: Any) -> Values:
        """All selected values.  Raises PathError."""
        return _walk(self._steps, [value], Work())


def compile(text: str) -> Path:
    """Raises PathError."""
    return Path(text, _Parser(text).steps())


def member_names(text: str) -> tuple[str, ...] | None:
    """The names of a path that consists of names only (`.a.b`); None for other paths."""
    names = text[1:].split(".")
    simple = text.startswith(".") and all(name and _TERMINATORS.isdisjoint(name) for name in names)
    return tuple(names) if simple and "\\" not in text and "*" not in names else None


def _walk(steps: Sequence[Step], values: Values, work: Work) -> Values:
    for step in steps:
        values = step(values, work)
        work.spend(len(values))
    return values


# --- printing -------------------------------------------------------------------------------------


def printed(value: Any) -> str:
    """A found value as text: lists and maps as compact JSON, other values as Go prints them."""
    match value:
        case str():
            return value
        case None:
            return "<no value>"
        case bool():
            return "true" if value else "false"
        case float():
            # go's %v: the shortest digits, with an exponent from a million on and below a ten-thousandth
            exact = Decimal(repr(value))
            if not value or -4 <= exact.adjusted() < 6:
                return repr(value).removesuffix(".0")
            first, *others = map(str, exact.normalize().as_tuple().digits)
            fraction = f".{''.join(others)}" if others else ""
            return f"{'-' if value < 0 else ''}{first}{fraction}e{exact.adjusted():+03d}"
        case int():
            return str(value)
        case _:
            return go_text.encoded(value)


# --- parsing --------------------------------------------------------------------------------------


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._steps: list[Step] = []
        self._descended = False

    def steps(self) -> list[Step]:
        while self._at < len(self._text) and self._text[self._at] != "}":
            self._step()
            if len(self._steps) > MAX_STEPS:
                raise PathError("too many steps")
        return self._steps

    def _step(self) -> None:
        text, char = self._text, self._text[self._at]
        if text.startswith("[?(", self._at):
            self._add(self._filter())
        elif text.startswith("..", self._at):
            self._recursive()
        elif char in "\r\n":
            raise PathError("unclosed action")
        elif char in " @$":
            self._at += 1
        elif char == "[":
            self._array()
        elif char in "\"'":
            self._add(_constant(self._quoted(char)))
        elif char == ".":
            self._at += 1
            self._field()
        elif char in "+-" or char.isdecimal():
            self._add(_constant(self._number()))
        elif char == "_" or char.isalnum():
            self._identifier()
        else:
            raise PathError(f"unrecognized character in action: U+{ord(char):04X} '{char}'")

    def _add(self, step: Step) -> None:
        self._steps.append(step)
        self._descended = False

    def _recursive(self) -> None:
        if self._descended:
            raise PathError("invalid multiple recursive descent")
        self._at += len("..")
        self._add(_descendants)
        self._descended = True
        following = self._text[self._at : self._at + 1]
        if following == "_" or following.isalnum():
            self._field()

    def _field(self) -> None:
        name = self._until_terminator(escapes=True)
        self._add(_wildcard if name == "*" else _member(name.replace("\\", "")))

    def _identifier(self) -> None:
        name = self._until_terminator(escapes=False)
        if name not in ("true", "false"):
            raise PathError(f"unrecognized identifier {name}")
        self._add(_constant(name == "true"))

    def _until_terminator(self, *, escapes: bool) -> str:
        start, text = self._at, self._text
        while self._at < len(text) and text[self._at] not in _TERMINATORS:
            self._at += 2 if escapes and text[self._at] == "\\" else 1
        self._at = min(self._at, len(text))
        return text[start : self._at]

    def _number(self) -> int | float:
        match = _NUMBER.match(self._text, self._at)
        assert match is not None
        self._at = match.end()
        if _INTEGER(match[0]):
            return int(match[0])
        if _FLOAT(match[0]):
            return float(match[0])
        raise PathError(f"cannot parse number {match[0]}")

    def _quoted(self, quote: str) -> str:
        start = self._at
        end, line_end = start, self._text.find("\n", start)
        while True:
            end = self._text.find(quote, end + 1)
            if end < 0 or 0 <= line_end < end:
                raise PathError("unterminated quoted string")
            if self._text[end - 1] != "\\" or end - 1 == start:
                break
        self._at = end + 1
        return _unquoted(self._text[start + 1 : end])

    def _array(self) -> None:
        end = self._text.find("]", self._at)
        if end < 0 or "\n" in self._text[self._at : end]:
            raise PathError("unterminated array")
        inside = self._text[self._at + 1 : end]
        self._at = end + 1
        choices = inside.split(",")
        if len(choices) > 1:
            if len(choices) > MAX_STEPS:
                raise PathError("too many steps")
            self._add(_union([_Parser(f"[{choice.strip(' ')}]").steps() for choice in choices]))
        elif key := _KEY(inside):
            for step in _Parser(f".{key[1]}").steps():
                self._add(step)
        else:
            self._add(_selected(_bounds(":" if inside == "*" else inside)))

    def _filter(self) -> Step:
        text = self._filter_text()
        comparison = _COMPARISON(text)
        if comparison is None:
            return _existing(_Parser(text).steps())
        left, sign, right = comparison.groups()
        return _compared(_Parser(left).steps(), sign, _Parser(right).steps())

    def _filter_text(self) -> str:
        """The text between `[?(` and `)]`; a parenthesis in quotes does not end it."""
        text, start = self._text, self._at + len("[?(")
        begun, ended, pair = False, False, ""
        for at in range(start, len(text)):
            char = text[at]
            if char == "\n":
                break
            if char in "\"'":
                if not begun:
                    begun, pair = True, char
                elif char == pair and text[at - 1] != "\\":
                    ended = True
            elif char == ")" and begun == ended:
                if text[at + 1 : at + 2] != "]":
                    raise PathError("unclosed array expect ]")
                self._at = at + len(")]")
                return text[start:at]
        raise PathError("unterminated filter")


def _unquoted(text: str) -> str:
    """Resolve the escapes of JSON; others are an error."""
    if "\\" not in text:
        return text
    out: list[str] = []
    chars = iter(text)
    for char in chars:
        if char != "\\":
            out.append(char)
            continue
        escaped = next(chars, "")
        if escaped in ("'", '"'):
            out.append(escaped)
        elif escaped in _ESCAPES:
            out.append(_ESCAPES[escaped])
        else:
            raise PathError(f"unquote string {text} error invalid syntax")
    return "".join(out)


class _Bounds(NamedTuple):
    start: int
    end: int | None
    derived: bool  #: the range is a single index, and its end the index after it
    step: int | None


def _bounds(text: str) -> _Bounds:
    match = _SLICE(text)
    if match is None:
        raise PathError(f"invalid array index {text}")
    start = _index(match[1] or "0")
    step = _index(match[3][1:]) if match[3] and match[3] != ":" else None
    if not match[2]:
        return _Bounds(start, start + 1, True, step)
    return _Bounds(start, None if match[2] == ":" else _index(match[2][1:]), False, step)


def _index(text: str) -> int:
    if not _INTEGER(text):
        raise PathError(f"array index {text} is not a number")
    return int(text)


# --- steps ----------------------------------------------------------------------------------------


def _member(name: str) -> Step:
    def step(values: Values, work: Work) -> Values:
        return [value[name] for value in values if type(value) is dict and name in value]

    return step


def _constant(constant: Any) -> Step:
    return lambda values, work: [constant] * len(values)


def _contents(value: Any) -> Sequence[Any]:
    match value:
        case dict():
            return tuple(value.values())
        case list():
            return value
        case str():
            return value.encode("utf-8", "surrogatepass")
        case _:
            return ()


def _wildcard(values: Values, work: Work) -> Values:
    return _gathered(values, _contents, work)


def _gathered(values: Values, take: Callable[[Any], Sequence[Any]], work: Work) -> Values:
    found: Values = []
    for value in values:
        taken = take(value)
        work.spend(len(taken))
        found.extend(taken)
    return found


def _descendants(values: Values, work: Work) -> Values:
    """The maps, lists and strings among the values and in them that are not empty; parents first."""
    found: Values = []
    waiting = values[::-1]
    while waiting:
        value = waiting.pop()
        work.spend(0)
        if not isinstance(value, (dict, list, str)) or not value:
            continue
        found.append(value)
        if not isinstance(value, str):
            waiting.extend(reversed(_contents(value)))
    return found


def _selected(bounds: _Bounds) -> Step:
    def take(value: Any) -> Sequence[Any]:
        if value is None:
            return ()
        if type(value) is not list:
            raise PathError("it is not array or slice")
        return _slice(value, bounds)

    return lambda values, work: _gathered(values, take, work)


def _slice(items: list[Any], bounds: _Bounds) -> list[Any]:
    length = len(items)
    start = bounds.start + length if bounds.start < 0 else bounds.start
    end = length if bounds.end is None else bounds.end
    if end < 0 or (end == 0 and bounds.derived):
        end += length
    if start == end:
        return []
    if not 0 <= start < length:
        raise PathError(f"array index out of bounds: index {start}, length {length}")
    if not 0 <= end <= length:
        raise PathError(f"array index out of bounds: index {end - 1}, length {length}")
    if start > end:
        raise PathError(f"starting index {start} is greater than ending index {end}")
    if bounds.step is not None and bounds.step <= 0:
        raise PathError("step must be > 0")
    return items[start : end : bounds.step]


def _union(choices: Sequence[Sequence[Step]]) -> Step:
    return lambda values, work: [found for choice in choices for found in _walk(choice, values, work)]


# --- filters --------------------------------------------------------------------------------------

_SIGNS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def _filtered(passes: Callable[[Any, Work], bool]) -> Step:
    def step(values: Values, work: Work) -> Values:
        found: Values = []
        for value in values:
            if type(value) is not list:
                raise PathError("it is not array or slice and cannot be filtered")
            found.extend(item for item in value if passes(item, work))
        return found

    return step


def _existing(steps: Sequence[Step]) -> Step:
    def passes(item: Any, work: Work) -> bool:
        work.spend(0)
        try:
            return bool(_walk(steps, [item], work))
        except PathError:
            return False

    return _filtered(passes)


def _compared(left: Sequence[Step], sign: str, right: Sequence[Step]) -> Step:
    compare = _SIGNS.get(sign)

    def passes(item: Any, work: Work) -> bool:
        work.spend(0)
        lefts, rights = _walk(left, [item], work), _walk(right, [item], work)
        if not lefts or not rights:
            return False
        if len(lefts) > 1 or len(rights) > 1:
            raise PathError("can only compare one element at a time")
        if compare is None:
            raise PathError(f"unrecognized filter operator {sign}")
        _check_comparable(lefts[0], rights[0], ordered=sign not in ("==", "!="))
        return bool(compare(lefts[0], rights[0]))

    return _filtered(passes)


def _check_comparable(left: Any, right: Any, *, ordered: bool) -> None:
    if type(left) not in (bool, int, float, str) or (ordered and type(left) is bool):
        raise PathError("invalid type for comparison")
    if type(left) is not type(right):
        raise PathError("incompatible types for comparison")
