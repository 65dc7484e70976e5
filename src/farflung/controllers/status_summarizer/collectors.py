"""StatusCollectors: parse, compile and validate their queries.  Pure."""

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
    MAX_INT,
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
_SMALL: Final = 8  #: bytes of any other value
_WHOLE: Final = 1 << 64  #: integers below this are written with all digits


class Form(enum.IntEnum):
    """The type of a value.  Values of different forms are sorted by form."""

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
    content: Any  #: of one sortable type per form; for LIST and MAP, JSON with sorted keys


NULL: Final = QueryValue(Form.NULL, None)
MOMENTS: Final = frozenset({Form.TIMESTAMP, Form.DURATION})


class ExpectedForm(NamedTuple):
    """The permitted forms of a value, and their description for messages."""

    forms: frozenset[Form]
    words: str


ANYTHING: Final = ExpectedForm(frozenset(Form), "a JSON value")
TRUTH: Final = ExpectedForm(frozenset({Form.BOOL}), "bool")
NUMBER: Final = ExpectedForm(frozenset({Form.NUMBER}), "a number")
ORDERED: Final = ExpectedForm(
    frozenset({Form.NUMBER, Form.TIMESTAMP, Form.DURATION, Form.STRING}),
    "a number, a string, a timestamp or a duration",
)


class InvalidValueError(ValueError):
    pass


# --- values ---------------------------------------------------------------------------------------


class RowBudget:
    """Limits the size of one row.  Refused values count, too, so that the work is limited."""

    def __init__(self) -> None:
        self._left = LARGEST_ROW

    def take(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise InvalidValueError(f"makes the row larger than {LARGEST_ROW} bytes")

    def value_of(self, found: Any) -> QueryValue:
        """Convert a CEL value.  An optional becomes its value, or null."""
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
            raise InvalidValueError(f"is a string of {len(found)} characters, of which {LONGEST_TEXT} are allowed")
        self.take(len(found))
        return found

    def _json(self, found: Any) -> bytes:
        written = orjson.dumps(_Plain(self).of(found), option=orjson.OPT_SORT_KEYS)
        if len(written) > LARGEST:
            raise _too_large()
        return written


class _Plain:
    """Converts lists and maps to JSON values.  Parts may be shared, so the result may be far larger than the CEL value:
    the conversion stops at the limit."""

    def __init__(self, budget: RowBudget) -> None:
        self._budget = budget
        self._left = LARGEST + 1

    def of(self, found: Any, level: int = 0) -> Any:
        if level > DEEPEST:
            raise InvalidValueError(f"has more than {DEEPEST} levels")
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
        self._budget.take(size)


def _too_large() -> InvalidValueError:
    return InvalidValueError(f"has more than {LARGEST} bytes as JSON")


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
    raise InvalidValueError(f"must be {ANYTHING.words}, not {type_name(found)}")


def number(content: int | float | Fraction) -> QueryValue:
    return QueryValue(Form.NUMBER, content)


def _number(found: int | float) -> int | float:
    if type(found) is not float:
        return int(found)
    if not math.isfinite(found):
        raise InvalidValueError("is no finite number")
    return int(found) if found.is_integer() and abs(found) < MAX_INT else found


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
    """All digits of an integer below 2^64; otherwise the shortest digits of the nearest double."""
    whole = int(number)
    if whole == number and abs(whole) < _WHOLE:
        return str(whole)
    try:
        nearest = float(number)
    except OverflowError:
        return f"{Decimal(whole):.16e}"
    return str(int(nearest)) if nearest.is_integer() and abs(nearest) < _WHOLE else repr(nearest)


MAX_EXPRESSION: Final = 10_240  #: characters of an expression
LONGEST_OF_ALL: Final = 20_480  #: characters of all expressions of a query
LONGEST_NAME: Final = 253  #: characters of a heading
LONGEST_ERROR: Final = 1024  #: characters
MAX_COLUMNS: Final = 16  #: of a result
MAX_ROWS: Final = 1000
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


class Aggregation(enum.StrEnum):
    COUNT = "COUNT"
    SUM = "SUM"
    AVG = "AVG"
    MIN = "MIN"
    MAX = "MAX"


_SUBJECTS: Final = {
    Aggregation.SUM: NUMBER,
    Aggregation.AVG: NUMBER,
    Aggregation.MIN: ORDERED,
    Aggregation.MAX: ORDERED,
}


class InvalidQueryError(ValueError):
    def __init__(self, errors: list[str]) -> None:
        super().__init__("; ".join(errors))
        self.errors = errors  #: each begins with the path of the field


@dataclass(frozen=True, slots=True)
class QueryColumn:
    """A heading and its expression.  Two are equal if their texts are."""

    name: str
    text: str
    expected: ExpectedForm
    program: Program = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class AggregateColumn:
    name: str
    kind: Aggregation
    subject: QueryColumn | None  #: None for COUNT


@dataclass(frozen=True, slots=True)
class CollectorQuery:
    filter: QueryColumn | None
    select: tuple[QueryColumn, ...]
    group_by: tuple[QueryColumn, ...]
    combined: tuple[AggregateColumn, ...]
    limit: int

    @property
    def headings(self) -> tuple[str, ...]:
        columns = (column.name for column in (*self.select, *self.group_by))
        return (*columns, *(combined.name for combined in self.combined))

    @property
    def evaluated(self) -> tuple[QueryColumn, ...]:
        """The expressions to evaluate for each copy: the columns of its row, or those of groupBy and then the
        subjects."""
        subjects = (combined.subject for combined in self.combined)
        return (*self.select, *self.group_by, *(subject for subject in subjects if subject is not None))


def parse_query(spec: Mapping[str, Any]) -> CollectorQuery:
    reader = _Reader()
    query = reader.query(spec)
    if reader.errors:
        raise InvalidQueryError(reader.errors)
    return query


class _Reader:
    """Collects all errors, and omits invalid parts."""

    def __init__(self) -> None:
        self.errors: list[str] = []
        self._names: set[str] = set()
        self._left = LONGEST_OF_ALL

    def query(self, spec: Mapping[str, Any]) -> CollectorQuery:
        self._check_parts(spec)
        text = spec.get("filter")
        query = CollectorQuery(
            None if text is None or text == "" else self._column("spec.filter", "filter", text, TRUTH),
            tuple(self._columns("select", spec.get("select"))),
            tuple(self._columns("groupBy", spec.get("groupBy"))),
            tuple(self._combined(spec.get("combinedFields"))),
            self._limit(spec.get("limit")),
        )
        if self._left < 0:
            self._refuse("spec", f"all expressions together may not be more than {LONGEST_OF_ALL} characters long")
        return query

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
        if sum(map(len, lists)) > MAX_COLUMNS:
            self._refuse("spec", f"may not have more than {MAX_COLUMNS} columns")

    def _columns(self, name: str, found: Any) -> Iterator[QueryColumn]:
        for path, entry in self._entries(f"spec.{name}", found):
            heading = self._heading(path, entry)
            column = self._column(f"{path}.def", heading, entry.get("def"), ANYTHING)
            if column is not None:
                yield column

    def _combined(self, found: Any) -> Iterator[AggregateColumn]:
        for path, entry in self._entries("spec.combinedFields", found):
            heading, subject = self._heading(path, entry), entry.get("subject")
            kind = next((each for each in Aggregation if each == entry.get("type")), None)
            if kind is None:
                self._refuse(f"{path}.type", f"must be one of {', '.join(Aggregation)}")
            elif kind is Aggregation.COUNT:
                if subject is not None and subject != "":
                    self._refuse(f"{path}.subject", "must be empty for COUNT, which counts copies; use a filter")
                yield AggregateColumn(heading, kind, None)
            else:
                yield AggregateColumn(heading, kind, self._column(f"{path}.subject", heading, subject, _SUBJECTS[kind]))

    def _entries(self, path: str, found: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
        if found is not None and not isinstance(found, list):
            self._refuse(path, "must be a list")
            return
        for at, entry in enumerate((found or ())[:MAX_COLUMNS]):
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
            self._refuse(f"{path}.name", f"duplicate column {go_quote(name)}")
        self._names.add(name)
        return name

    def _column(self, path: str, heading: str, text: Any, expected: ExpectedForm) -> QueryColumn | None:
        if not isinstance(text, str) or not text:
            self._refuse(path, "must be an expression")
            return None
        self._left -= len(text)
        if len(text) > MAX_EXPRESSION:
            self._refuse(path, f"may not be more than {MAX_EXPRESSION} characters long")
        if len(text) > MAX_EXPRESSION or self._left < 0:
            return None
        try:
            checked = _ENVIRONMENT.compile(text)
            program = Program(checked.tree, _GIVEN, Adapters())
        except CompileError as error:
            self._refuse(path, f"compilation failed: {error}")
            return None
        if not _fits(checked.type, expected):
            self._refuse(path, f"must evaluate to {expected.words}, not {checked.type}")
        return QueryColumn(heading, text, expected, program)

    def _limit(self, found: Any) -> int:
        if found is None:
            return USUAL_ROWS
        if type(found) is not int or not 1 <= found <= MAX_ROWS:
            self._refuse("spec.limit", f"must be a whole number from 1 to {MAX_ROWS}")
            return USUAL_ROWS
        return found


def _fits(found: Type, expected: ExpectedForm) -> bool:
    """Whether a value of the type can have an expected form."""
    if is_optional(found):
        found = found.parameters[0]
    return found.kind is TypeKind.DYN or _FORMS.get(found.kind) in expected.forms


VALID: Final = "Valid"


class ParsedCollector(msgspec.Struct, frozen=True):
    document: bytes
    query: CollectorQuery | None = None  #: None: it is invalid
    errors: tuple[str, ...] = ()


def parse_collector(document: bytes) -> ParsedCollector:
    try:
        return ParsedCollector(document, parse_query(orjson.loads(document).get("spec") or {}))
    except InvalidQueryError as error:
        return ParsedCollector(document, None, tuple(error.errors))


def status_of(seen: ParsedCollector, now: datetime) -> Obj | None:
    """The status of a StatusCollector; None if it is up to date."""
    obj = orjson.loads(seen.document)
    before: Obj = obj.get("status") or {}
    condition: Obj = {"type": VALID, "status": "True" if seen.query is not None else "False"}
    if seen.errors:
        condition |= {"severity": "Error", "reason": "InvalidSpec", "message": "; ".join(seen.errors)}
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
