"""Label and field selectors: parsing, error messages, and matching.

env=prod,tier!=web,region in (eu,us),!canary,n>5        labels
metadata.name=a,status.phase!=Running                   fields
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from farflung.lib.memory import remember
from farflung.machinery import names
from farflung.machinery.errors import Obj, bad_request, go_quote

Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Requirement:
    """One condition on one label.  Operators: in, notin, exists, !, gt, lt."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """All requirements hold.  No requirements: everything matches.

    There may be thousands of requirements, and as many objects.  So the requirements of each label are combined once,
    and matching costs as much as the object has labels.
    """

    requirements: tuple[Requirement, ...] = ()
    wanted: tuple[tuple[str, LabelRequirement], ...] = field(
        init=False, repr=False, compare=False
    )  #: required labels and their values
    unwanted: frozenset[str] = field(init=False, repr=False, compare=False)  #: labels that must not exist
    barred: Mapping[str, frozenset[str]] = field(init=False, repr=False, compare=False)  #: label → forbidden values

    def __post_init__(self) -> None:
        by_key: dict[str, list[Requirement]] = {}
        for one in self.requirements:
            by_key.setdefault(one.key, []).append(one)
        wanted = {key: _wanted(ones) for key, ones in by_key.items()}
        barred = {
            key: frozenset(value for one in ones if one.operator == "notin" for value in one.values)
            for key, ones in by_key.items()
        }
        unwanted = frozenset(one.key for one in self.requirements if one.operator == "!")
        object.__setattr__(self, "wanted", tuple((key, found) for key, found in wanted.items() if found is not None))
        object.__setattr__(self, "barred", {key: values for key, values in barred.items() if values})
        object.__setattr__(self, "unwanted", unwanted)

    def matches(self, labels: Labels) -> bool:
        if len(self.wanted) > len(labels):
            return False
        for key, wanted in self.wanted:
            if not wanted.matches(labels.get(key)):
                return False
        if self.unwanted and not self.unwanted.isdisjoint(labels):
            return False
        barred = self.barred
        for key in barred if len(barred) < len(labels) else labels:
            if key in barred and labels.get(key) in barred[key]:
                return False
        return True

    def __bool__(self) -> bool:
        return bool(self.requirements)


@dataclass(frozen=True, slots=True)
class LabelRequirement:
    """The requirement on the value of one label."""

    among: frozenset[str] | None  #: None: any value
    above: int | None
    below: int | None

    def matches(self, value: str | None) -> bool:
        if value is None or (self.among is not None and value not in self.among):
            return False
        if self.above is None and self.below is None:
            return True
        return _is_integer(value) and (
            (self.above is None or int(value) > self.above) and (self.below is None or int(value) < self.below)
        )


def _wanted(requirements: Iterable[Requirement]) -> LabelRequirement | None:
    """None if the label is not required."""
    positive = [one for one in requirements if one.operator not in ("notin", "!")]
    if not positive:
        return None
    among = [frozenset(one.values) for one in positive if one.operator == "in"]
    bounds = {
        operator: [int(one.values[0]) for one in positive if one.operator == operator] for operator in ("gt", "lt")
    }
    return LabelRequirement(
        frozenset.intersection(*among) if among else None,
        max(bounds["gt"], default=None),
        min(bounds["lt"], default=None),
    )


EVERYTHING: Final = LabelSelector()


#: operators as selectors in objects name them
IN_OBJECTS: Final = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "!"}


def selector_of(obj: Obj) -> LabelSelector:
    """A valid selector of an object: `matchLabels` and `matchExpressions`."""
    equal = (Requirement(key, "in", (value,)) for key, value in (obj.get("matchLabels") or {}).items())
    expressions = (
        Requirement(one["key"], IN_OBJECTS[one["operator"]], tuple(one.get("values") or ()))
        for one in obj.get("matchExpressions") or ()
    )
    return LabelSelector((*equal, *expressions))


class SelectorExpression(msgspec.Struct):
    key: str
    operator: str
    values: list[str] | None = None


class Selector(msgspec.Struct, rename="camel"):
    match_labels: dict[str, str] | None = None
    match_expressions: list[SelectorExpression] | None = None


class InvalidFieldError(ValueError):
    """The message begins with the path of the invalid field."""


def describe_mismatch(path: str, error: msgspec.ValidationError) -> str:
    """For example `spec.locationSelectors[0]: Expected …`.  `path`: of the decoded value."""
    what, _, at = str(error).partition(" - at `$")
    return f"{path}{at.rstrip('`')}: {what}"


def parse_label_selector(selector: Selector, path: str) -> LabelSelector:
    """Raises InvalidFieldError."""
    requirements: list[Requirement] = []
    for key, value in (selector.match_labels or {}).items():
        check_key(key, f"{path}.matchLabels")
        _check_value(value, f"{path}.matchLabels[{key}]")
        requirements.append(Requirement(key, "in", (value,)))
    for at, expression in enumerate(selector.match_expressions or ()):
        requirements.append(_requirement(expression, f"{path}.matchExpressions[{at}]"))
    return LabelSelector(tuple(requirements)) if requirements else EVERYTHING


def check_key(key: str, path: str) -> None:
    """Raises InvalidFieldError if this is not a valid label key."""
    if wrong := names.qualified_name(key):
        raise InvalidFieldError(f"{path}: Invalid value: {go_quote(key)}: {'; '.join(wrong)}")


def _requirement(expression: SelectorExpression, path: str) -> Requirement:
    operator = IN_OBJECTS.get(expression.operator)
    values = expression.values or ()
    if operator is None:
        why = "not a valid selector operator"
        raise InvalidFieldError(f"{path}.operator: Invalid value: {go_quote(expression.operator)}: {why}")
    if operator in ("in", "notin") and not values:
        raise InvalidFieldError(f"{path}.values: Required value: must be specified when `operator` is 'In' or 'NotIn'")
    if operator in ("exists", "!") and values:
        why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
        raise InvalidFieldError(f"{path}.values: Forbidden: {why}")
    check_key(expression.key, f"{path}.key")
    for at, value in enumerate(values):
        _check_value(value, f"{path}.values[{at}]")
    return Requirement(expression.key, operator, tuple(values))


def _check_value(value: str, path: str) -> None:
    if wrong := names.label_value(value):
        raise InvalidFieldError(f"{path}: Invalid value: {go_quote(value)}: {'; '.join(wrong)}")


@remember(4096)
def parse_labels(text: str) -> LabelSelector:
    """A label selector from a query.  Raises 400 with the unexpected token."""
    if not text.strip():
        return EVERYTHING
    try:
        return LabelSelector(tuple(_Parser(text).selector()))
    except _Refused as refused:
        raise bad_request(str(refused)) from None


class _Refused(Exception):
    pass


END: Final = "end of string"
IDENTIFIER: Final = "identifier"
SYMBOLS: Final = frozenset({"=", "==", "!=", "!", ">", "<", "(", ")", ","})
SPECIAL: Final = frozenset("=!(),><")
OPERATORS: Final = {"=": "in", "==": "in", "!=": "notin", "in": "in", "notin": "notin", ">": "gt", "<": "lt"}


def _tokens(text: str) -> list[tuple[str, str]]:
    """(token, as written); a token is a symbol, `in`, `notin`, IDENTIFIER, or END at the end."""
    found: list[tuple[str, str]] = []
    at = 0
    while at < len(text):
        char = text[at]
        if char in " \t\r\n":
            at += 1
        elif char in SPECIAL:
            symbol = text[at : at + 2] if text[at : at + 2] in SYMBOLS else char
            found.append((symbol, symbol))
            at += len(symbol)
        else:
            end = at
            while end < len(text) and text[end] not in SPECIAL and text[end] not in " \t\r\n":
                end += 1
            word = text[at:end]
            found.append((word if word in ("in", "notin") else IDENTIFIER, word))
            at = end
    found.append((END, ""))
    return found


class _Parser:
    """A recursive descent parser with the messages of Kubernetes."""

    def __init__(self, text: str) -> None:
        self.tokens = _tokens(text)
        self.at = 0

    def peek(self) -> tuple[str, str]:
        """The next symbol where `in` and `notin` are ordinary words."""
        symbol, literal = self.tokens[self.at]
        return (IDENTIFIER if symbol in ("in", "notin") else symbol), literal

    def take(self) -> tuple[str, str]:
        found = self.peek()
        self.advance()
        return found

    def advance(self) -> None:
        self.at = min(self.at + 1, len(self.tokens) - 1)

    def selector(self) -> Iterable[Requirement]:
        while True:
            symbol, literal = self.peek()
            if symbol == END:
                return
            if symbol not in (IDENTIFIER, "!"):
                raise _Refused(f"found '{literal}', expected: !, identifier, or 'end of string'")
            try:
                yield self.requirement()
            except _Refused as refused:
                raise _Refused(f"unable to parse requirement: {refused}") from None
            symbol, literal = self.take()
            if symbol == END:
                return
            if symbol != ",":
                raise _Refused(f"found '{literal}', expected: ',' or 'end of string'")
            symbol, literal = self.peek()
            if symbol not in (IDENTIFIER, "!"):
                raise _Refused(f"found '{literal}', expected: identifier after ','")

    def requirement(self) -> Requirement:
        symbol, key = self.take()
        negated = symbol == "!"
        if negated:
            symbol, key = self.take()
        if symbol != IDENTIFIER:
            raise _Refused(f"found '{key}', expected: identifier")
        if wrong := names.qualified_name(key):
            raise _Refused(f"<nil>: Invalid value: {go_quote(key)}: {'; '.join(wrong)}")
        if negated:
            return Requirement(key, "!")
        if self.peek()[0] in (END, ","):
            return Requirement(key, "exists")
        operator, literal = self.tokens[self.at]
        self.advance()
        if operator not in OPERATORS:
            raise _Refused(f"found '{literal}', expected: in, notin, =, ==, !=, gt, lt")
        values = self.value_list() if operator in ("in", "notin") else (self.one_value(),)
        return _checked(Requirement(key, OPERATORS[operator], values))

    def one_value(self) -> str:
        if self.peek()[0] in (END, ","):
            return ""
        symbol, literal = self.take()
        if symbol != IDENTIFIER:
            raise _Refused(f"found '{literal}', expected: identifier")
        return literal

    def value_list(self) -> tuple[str, ...]:
        symbol, literal = self.take()
        if symbol != "(":
            raise _Refused(f"found '{literal}' expected: '('")
        values: set[str] = set()
        value, separated = "", True
        while True:
            symbol, literal = self.take()
            if symbol == IDENTIFIER and separated:
                value, separated = literal, False
            elif symbol in (",", ")"):
                values.add(value)
                value, separated = "", True
                if symbol == ")":
                    return tuple(sorted(values))
            else:
                expected = "',' or ')'" if not separated else "',', or identifier"
                raise _Refused(f"found '{literal}', expected: {expected}")


def _checked(requirement: Requirement) -> Requirement:
    wrong: list[str] = []
    for position, value in enumerate(requirement.values):
        if requirement.operator in ("gt", "lt") and not _is_integer(value):
            why = "for 'Gt', 'Lt' operators, the value must be an integer"
            wrong.append(f"values[{position}]: Invalid value: {go_quote(value)}: {why}")
        wrong += [
            f"values[{position}][{requirement.key}]: Invalid value: {go_quote(value)}: {why}"
            for why in names.label_value(value)
        ]
    if wrong:
        raise _Refused(wrong[0] if len(wrong) == 1 else "[" + ", ".join(wrong) + "]")
    return requirement


def _is_integer(text: str) -> bool:
    digits = text[1:] if text[:1] in ("+", "-") else text
    return digits.isascii() and digits.isdigit() and len(digits) < 19


# --- fields ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FieldTerm:
    field: str
    equal: bool
    value: str


@dataclass(frozen=True, slots=True)
class FieldSelector:
    """All terms hold.  The terms of each field are combined once."""

    terms: tuple[FieldTerm, ...] = ()
    _equal: Mapping[str, frozenset[str]] = field(init=False, repr=False, compare=False)
    _unequal: Mapping[str, frozenset[str]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_equal", _values_by_field(term for term in self.terms if term.equal))
        object.__setattr__(self, "_unequal", _values_by_field(term for term in self.terms if not term.equal))

    def __bool__(self) -> bool:
        return bool(self.terms)

    def matches(self, read: Callable[[str], str]) -> bool:
        """`read` returns the text of a field."""
        return all({read(name)} == values for name, values in self._equal.items()) and all(
            read(name) not in values for name, values in self._unequal.items()
        )

    def exactly(self, field: str) -> str | None:
        """The only value that the selector allows for a field; None if it allows several."""
        return next((term.value for term in self.terms if term.field == field and term.equal), None)


def _values_by_field(terms: Iterable[FieldTerm]) -> dict[str, frozenset[str]]:
    found: dict[str, set[str]] = {}
    for term in terms:
        found.setdefault(term.field, set()).add(term.value)
    return {name: frozenset(values) for name, values in found.items()}


EVERY_FIELD: Final = FieldSelector()


@remember(4096)
def parse_fields(text: str) -> FieldSelector:
    terms: list[FieldTerm] = []
    for part in _split_unescaped(text):
        if not part:
            continue
        for operator in ("!=", "==", "="):
            at = _find_operator(part, operator)
            if at >= 0:
                break
        else:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{part}'")
        field, value = part[:at], part[at + len(operator) :]
        terms.append(FieldTerm(field, operator != "!=", _unescape(value)))
    return FieldSelector(tuple(term for term in terms if term.field))


def _find_operator(part: str, operator: str) -> int:
    """The position of the first operator of a term, if it is this one."""
    first = next((at for at, char in enumerate(part) if char in "!=" and part[at : at + 2] != "!"), -1)
    if first < 0 or not part.startswith(operator, first):
        return -1
    return first


def _split_unescaped(text: str) -> list[str]:
    parts, start, at = [], 0, 0
    while at < len(text):
        if text[at] == "\\":
            at += 1
        elif text[at] == ",":
            parts.append(text[start:at])
            start = at + 1
        at += 1
    parts.append(text[start:])
    return parts


def _unescape(value: str) -> str:
    out, at = [], 0
    while at < len(value):
        if value[at] == "\\":
            at += 1
            if at == len(value) or value[at] not in "\\,=":
                raise bad_request(f"invalid field selector: invalid escape sequence in {go_quote(value)}")
        elif value[at] in ",=":
            raise bad_request(f"invalid field selector: unescaped character in {go_quote(value)}")
        out.append(value[at])
        at += 1
    return "".join(out)
