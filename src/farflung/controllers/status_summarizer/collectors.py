"""StatusCollectors: their questions, and whether they are valid.  Pure."""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from types import NoneType
from typing import Any, Final, NamedTuple

import msgspec
import orjson

from farflung.machinery import times
from farflung.machinery.cel.adapt import Adapters
from farflung.machinery.cel.compiler import Program
from farflung.machinery.cel.environment import ExpressionEnvironment
from farflung.machinery.cel.errors import CompileError
from farflung.machinery.cel.language.types import DYN, Type, TypeKind, is_optional
from farflung.machinery.cel.language.values import (
    LISTS,
    MOST_INT,
    NONE,
    NUMBERS,
    Duration,
    OptionalValue,
    Timestamp,
    shown_key,
    type_name,
)
from farflung.machinery.cel.library import KUBERNETES
from farflung.machinery.cel.library.moments import written_duration, written_timestamp
from farflung.machinery.errors import Obj, go_quote

LONGEST_TEXT: Final = 1024  #: characters
LARGEST: Final = 4096  #: bytes of a list or a map as JSON
LARGEST_ROW: Final = 8192  #: bytes of all values of a row
DEEPEST: Final = 32  #: levels of a list or a map
_SMALL: Final = 8  #: bytes that anything else takes
_WHOLE: Final = 1 << 64  #: whole numbers below this are written with all their digits


class Form(enum.IntEnum):
    """What a value is.  Values of different forms have the order of their forms."""

    NULL = enum.auto()
    BOOL = enum.auto()
    NUMBER = enum.auto()
    TIMESTAMP = enum.auto()
    DURATION = enum.auto()
    STRING = enum.auto()
    LIST = enum.auto()
    MAP = enum.auto()

    @property
    def words(self) -> str:
        return self.name.lower()


class QueryValue(NamedTuple):
    form: Form
    content: Any  #: of the same type for the same form, so that it has an order; JSON with sorted keys of LIST and MAP


NULL: Final = QueryValue(Form.NULL, None)
MOMENTS: Final = frozenset({Form.TIMESTAMP, Form.DURATION})


class ExpectedForm(NamedTuple):
    """What values have to be, and how to say so."""

    forms: frozenset[Form]
    words: str


ANYTHING: Final = ExpectedForm(frozenset(Form), "something that JSON has")
TRUTH: Final = ExpectedForm(frozenset({Form.BOOL}), "bool")
NUMBER: Final = ExpectedForm(frozenset({Form.NUMBER}), "a number")
ORDERED: Final = ExpectedForm(
    frozenset({Form.NUMBER, Form.TIMESTAMP, Form.DURATION, Form.STRING}),
    "a number, a string, a timestamp or a duration",
)


class UnfitError(ValueError):
    pass


# --- values ---------------------------------------------------------------------------------------


class Room:
    """What may be kept of one row.  What does not fit takes its part as well, so trying has an end, too."""

    def __init__(self) -> None:
        self._left = LARGEST_ROW

    def take(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise UnfitError(f"makes the row larger than {LARGEST_ROW} bytes")

    def value_of(self, found: Any) -> QueryValue:
        """Of a value of CEL.  An optional stands for what is in it, or for null."""
        found = _unwrapped(found)
        if type(found) is str:
            return QueryValue(Form.STRING, self._text(found))
        if type(found) in LISTS:
            return QueryValue(Form.LIST, self._json(found))
        if type(found) is dict:
            return QueryValue(Form.MAP, self._json(found))
        self.take(_SMALL)
        return _small(found)

    def _text(self, found: str) -> str:
        if len(found) > LONGEST_TEXT:
            raise UnfitError(f"is a string of {len(found)} characters, of which {LONGEST_TEXT} are allowed")
        self.take(len(found))
        return found

    def _json(self, found: Any) -> bytes:
        written = orjson.dumps(_Plain(self).of(found), option=orjson.OPT_SORT_KEYS)
        if len(written) > LARGEST:
            raise _too_large()
        return written


class _Plain:
    """Lists and maps as JSON has them.  Parts may be shared, so what they are in the end may be far larger than what
    was computed: it ends when it is sure that they are too large."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._left = LARGEST + 1

    def of(self, found: Any, level: int = 0) -> Any:
        if level > DEEPEST:
            raise UnfitError(f"has more than {DEEPEST} levels")
        self._take(2)  # with a comma or brackets; one too many altogether
        found = _unwrapped(found)
        if type(found) in LISTS:
            return [self.of(each, level + 1) for each in found]
        if type(found) is dict:
            return {self._text(shown_key(key)): self.of(each, level + 1) for key, each in found.items()}
        if type(found) is str:
            return self._text(found)
        value = _small(found)
        return written_moment(value) if value.form in MOMENTS else value.content

    def _text(self, text: str) -> str:
        self._take(len(text))
        return text

    def _take(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise _too_large()
        self._room.take(size)


def _too_large() -> UnfitError:
    return UnfitError(f"has more than {LARGEST} bytes as JSON")


def _unwrapped(found: Any) -> Any:
    if type(found) is not OptionalValue:
        return found
    return None if found is NONE else found.value


def _small(found: Any) -> QueryValue:
    kind = type(found)
    if kind is NoneType:
        return NULL
    if kind is bool:
        return QueryValue(Form.BOOL, found)
    if kind in NUMBERS:
        return number(_number(found))
    if kind is Timestamp:
        return QueryValue(Form.TIMESTAMP, found.nanos)
    if kind is Duration:
        return QueryValue(Form.DURATION, found.nanos)
    raise UnfitError(f"must be {ANYTHING.words}, not {type_name(found)}")


def number(content: int | float | Fraction) -> QueryValue:
    return QueryValue(Form.NUMBER, content)


def _number(found: int | float) -> int | float:
    if type(found) is not float:
        return int(found)
    if not math.isfinite(found):
        raise UnfitError("is no finite number")
    return int(found) if found.is_integer() and abs(found) < MOST_INT else found


# --- cells ----------------------------------------------------------------------------------------


def cell(value: QueryValue) -> Obj:
    match value.form:
        case Form.NULL:
            return {"type": "Null"}
        case Form.BOOL:
            return {"type": "Bool", "bool": value.content}
        case Form.NUMBER:
            return {"type": "Number", "float": written_number(value.content)}
        case Form.TIMESTAMP | Form.DURATION:
            return {"type": "String", "string": written_moment(value)}
        case Form.STRING:
            return {"type": "String", "string": value.content}
        case Form.LIST:
            return {"type": "Array", "array": orjson.loads(value.content)}
        case Form.MAP:
            return {"type": "Object", "object": orjson.loads(value.content)}


def written_moment(value: QueryValue) -> str:
    nanos = value.content
    return written_timestamp(Timestamp(nanos)) if value.form is Form.TIMESTAMP else written_duration(Duration(nanos))


def written_number(number: int | float | Fraction) -> str:
    """As few digits as tell its nearest double apart, and all of them if it is whole and not huge."""
    whole = int(number)
    if whole == number and abs(whole) < _WHOLE:
        return str(whole)
    try:
        nearest = float(number)
    except OverflowError:
        return f"{Decimal(whole):.16e}"
    return str(int(nearest)) if nearest.is_integer() and abs(nearest) < _WHOLE else repr(nearest)


LONGEST: Final = 10_240  #: characters of an expression
LONGEST_OF_ALL: Final = 20_480  #: characters of all expressions of a question
LONGEST_NAME: Final = 253  #: characters of a heading
LONGEST_ERROR: Final = 1024  #: characters
MOST_COLUMNS: Final = 16  #: of an answer
MOST_ROWS: Final = 1000
USUAL_ROWS: Final = 20
_GIVEN: Final = {"inventory": DYN, "obj": DYN, "returned": DYN, "propagation": DYN}
_ENVIRONMENT: Final = ExpressionEnvironment(_GIVEN, KUBERNETES)
_FORMS: Final = {
    TypeKind.NULL: Form.NULL,
    TypeKind.BOOL: Form.BOOL,
    TypeKind.INT: Form.NUMBER,
    TypeKind.UINT: Form.NUMBER,
    TypeKind.DOUBLE: Form.NUMBER,
    TypeKind.STRING: Form.STRING,
    TypeKind.TIMESTAMP: Form.TIMESTAMP,
    TypeKind.DURATION: Form.DURATION,
    TypeKind.LIST: Form.LIST,
    TypeKind.MAP: Form.MAP,
}


class Combining(enum.StrEnum):
    COUNT = "COUNT"
    SUM = "SUM"
    AVG = "AVG"
    MIN = "MIN"
    MAX = "MAX"


_SUBJECTS: Final = {
    Combining.SUM: NUMBER,
    Combining.AVG: NUMBER,
    Combining.MIN: ORDERED,
    Combining.MAX: ORDERED,
}


class InvalidQueryError(ValueError):
    def __init__(self, errors: list[str]) -> None:
        super().__init__("; ".join(errors))
        self.errors = errors  #: each begins with the path of what it is about


@dataclass(frozen=True, slots=True)
class QueryColumn:
    """A heading and its expression.  Two are equal if their texts are."""

    name: str
    text: str
    wanted: ExpectedForm
    program: Program = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Combined:
    name: str
    kind: Combining
    subject: QueryColumn | None  #: None for COUNT


@dataclass(frozen=True, slots=True)
class CollectorQuery:
    filter: QueryColumn | None
    select: tuple[QueryColumn, ...]
    group_by: tuple[QueryColumn, ...]
    combined: tuple[Combined, ...]
    limit: int

    @property
    def headings(self) -> tuple[str, ...]:
        columns = (column.name for column in (*self.select, *self.group_by))
        return (*columns, *(combined.name for combined in self.combined))

    @property
    def asked(self) -> tuple[QueryColumn, ...]:
        """What is evaluated for each copy that counts: columns of its row, or its group and then what is combined."""
        subjects = (combined.subject for combined in self.combined)
        return (*self.select, *self.group_by, *(subject for subject in subjects if subject is not None))


def question_of(spec: Mapping[str, Any]) -> CollectorQuery:
    reader = _Reader()
    question = reader.question(spec)
    if reader.errors:
        raise InvalidQueryError(reader.errors)
    return question


class _Reader:
    """Goes on after an error, and leaves out what is wrong."""

    def __init__(self) -> None:
        self.errors: list[str] = []
        self._names: set[str] = set()
        self._left = LONGEST_OF_ALL

    def question(self, spec: Mapping[str, Any]) -> CollectorQuery:
        self._check_parts(spec)
        question = CollectorQuery(
            self._filter(spec.get("filter")),
            tuple(self._columns("select", spec.get("select"))),
            tuple(self._columns("groupBy", spec.get("groupBy"))),
            tuple(self._combined(spec.get("combinedFields"))),
            self._limit(spec.get("limit")),
        )
        if self._left < 0:
            self._refuse("spec", f"all expressions together may not be more than {LONGEST_OF_ALL} characters long")
        return question

    def _refuse(self, path: str, why: str) -> None:
        error = f"{path}: {why}"
        self.errors.append(error if len(error) <= LONGEST_ERROR else error[: LONGEST_ERROR - 1] + "…")

    def _check_parts(self, spec: Mapping[str, Any]) -> None:
        select, group_by, combined = (spec.get(name) or () for name in ("select", "groupBy", "combinedFields"))
        if not select and not combined:
            self._refuse("spec", "must have select or combinedFields")
        if select and combined:
            self._refuse("spec", "select and combinedFields exclude each other")
        if group_by and not combined:
            self._refuse("spec.groupBy", "needs combinedFields")
        lists = [part for part in (select, group_by, combined) if isinstance(part, list)]
        if sum(map(len, lists)) > MOST_COLUMNS:
            self._refuse("spec", f"may not have more than {MOST_COLUMNS} columns")

    def _filter(self, text: Any) -> QueryColumn | None:
        return None if text is None or text == "" else self._column("spec.filter", "filter", text, TRUTH)

    def _columns(self, name: str, found: Any) -> Iterator[QueryColumn]:
        for path, entry in self._entries(f"spec.{name}", found):
            heading = self._heading(path, entry)
            column = self._column(f"{path}.def", heading, entry.get("def"), ANYTHING)
            if column is not None:
                yield column

    def _combined(self, found: Any) -> Iterator[Combined]:
        for path, entry in self._entries("spec.combinedFields", found):
            heading, subject = self._heading(path, entry), entry.get("subject")
            kind = next((each for each in Combining if each == entry.get("type")), None)
            if kind is None:
                self._refuse(f"{path}.type", f"must be one of {', '.join(Combining)}")
            elif kind is Combining.COUNT:
                if subject is not None and subject != "":
                    self._refuse(f"{path}.subject", "COUNT counts copies and has none; a filter says which")
                yield Combined(heading, kind, None)
            else:
                yield Combined(heading, kind, self._column(f"{path}.subject", heading, subject, _SUBJECTS[kind]))

    def _entries(self, path: str, found: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
        if found is not None and not isinstance(found, list):
            self._refuse(path, "must be a list")
            return
        for at, entry in enumerate((found or ())[:MOST_COLUMNS]):
            if isinstance(entry, dict):
                yield f"{path}[{at}]", entry
            else:
                self._refuse(f"{path}[{at}]", "must be an object")

    def _heading(self, path: str, entry: Mapping[str, Any]) -> str:
        name = entry.get("name")
        if not isinstance(name, str) or not name:
            self._refuse(f"{path}.name", "must be a string that is not empty")
            return ""
        if len(name) > LONGEST_NAME:
            self._refuse(f"{path}.name", f"may not be more than {LONGEST_NAME} characters long")
        elif name in self._names:
            self._refuse(f"{path}.name", f"there is another column {go_quote(name)}")
        self._names.add(name)
        return name

    def _column(self, path: str, heading: str, text: Any, wanted: ExpectedForm) -> QueryColumn | None:
        if not isinstance(text, str) or not text:
            self._refuse(path, "must be an expression")
            return None
        self._left -= len(text)
        if len(text) > LONGEST:
            self._refuse(path, f"may not be more than {LONGEST} characters long")
        if len(text) > LONGEST or self._left < 0:
            return None
        try:
            checked = _ENVIRONMENT.compile(text)
            program = Program(checked.tree, _GIVEN, Adapters())
        except CompileError as error:
            self._refuse(path, f"compilation failed: {error}")
            return None
        if not _fits(checked.type, wanted):
            self._refuse(path, f"must evaluate to {wanted.words}, not {checked.type}")
        return QueryColumn(heading, text, wanted, program)

    def _limit(self, found: Any) -> int:
        if found is None:
            return USUAL_ROWS
        if type(found) is not int or not 1 <= found <= MOST_ROWS:
            self._refuse("spec.limit", f"must be a whole number from 1 to {MOST_ROWS}")
            return USUAL_ROWS
        return found


def _fits(found: Type, wanted: ExpectedForm) -> bool:
    """Whether a value of the type may be what is wanted."""
    if is_optional(found):
        found = found.parameters[0]
    return found.kind is TypeKind.DYN or _FORMS.get(found.kind) in wanted.forms


VALID: Final = "Valid"


class ParsedCollector(msgspec.Struct, frozen=True):
    document: bytes
    question: CollectorQuery | None = None  #: None: it cannot be understood
    errors: tuple[str, ...] = ()


def parse_collector(document: bytes) -> ParsedCollector:
    try:
        return ParsedCollector(document, question_of(orjson.loads(document).get("spec") or {}))
    except InvalidQueryError as error:
        return ParsedCollector(document, None, tuple(error.errors))


def status_of(seen: ParsedCollector, now: datetime) -> Obj | None:
    """What is to be said of a StatusCollector; None if it is said already."""
    obj = orjson.loads(seen.document)
    before: Obj = obj.get("status") or {}
    condition: Obj = {"type": VALID, "status": "True" if seen.question is not None else "False"}
    if seen.errors:
        condition |= {"severity": "Error", "reason": "NotUnderstood", "message": "; ".join(seen.errors)}
    status: Obj = {
        "observedGeneration": obj["metadata"].get("generation", 0),
        "conditions": [condition | {"lastTransitionTime": _since(before, condition, now)}],
        **({"errors": list(seen.errors)} if seen.errors else {}),
    }
    return None if status == before else status


def _since(before: Obj, condition: Obj, now: datetime) -> str:
    for one in before.get("conditions") or ():
        same: dict[str, Any] = {name: value for name, value in one.items() if name != "lastTransitionTime"}
        if same == condition and "lastTransitionTime" in one:
            return str(one["lastTransitionTime"])
    return times.format_seconds(now)
