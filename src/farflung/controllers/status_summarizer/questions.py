"""A StatusCollector's `spec`, understood: expressions in CEL about one copy of an object, and what becomes of them.

    question = question_of(spec)    InvalidQuestionError says all that is wrong with it

`inventory`, `obj`, `returned` and `propagation` may be anything, so most mistakes show only when a copy is asked about.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from farflung.controllers.status_summarizer.cells import ANYTHING, NUMBER, ORDERED, TRUTH, Form, Wanted
from farflung.machinery.cel.adapt import Adapters
from farflung.machinery.cel.environment import CompileError, Environment
from farflung.machinery.cel.evaluate import Program
from farflung.machinery.cel.library import KUBERNETES
from farflung.machinery.cel.types import DYN, Kind, Type, is_optional
from farflung.machinery.errors import go_quote

LONGEST: Final = 10_240  #: characters of an expression
LONGEST_OF_ALL: Final = 20_480  #: characters of all expressions of a question
LONGEST_NAME: Final = 253  #: characters of a heading
LONGEST_ERROR: Final = 1024  #: characters
MOST_COLUMNS: Final = 16  #: of an answer
MOST_ROWS: Final = 1000
USUAL_ROWS: Final = 20

_GIVEN: Final = {"inventory": DYN, "obj": DYN, "returned": DYN, "propagation": DYN}
_ENVIRONMENT: Final = Environment(_GIVEN, KUBERNETES)
_FORMS: Final = {
    Kind.NULL: Form.NULL,
    Kind.BOOL: Form.BOOL,
    Kind.INT: Form.NUMBER,
    Kind.UINT: Form.NUMBER,
    Kind.DOUBLE: Form.NUMBER,
    Kind.STRING: Form.STRING,
    Kind.TIMESTAMP: Form.TIMESTAMP,
    Kind.DURATION: Form.DURATION,
    Kind.LIST: Form.LIST,
    Kind.MAP: Form.MAP,
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


class InvalidQuestionError(ValueError):
    def __init__(self, errors: list[str]) -> None:
        super().__init__("; ".join(errors))
        self.errors = errors  #: each begins with the path of what it is about


@dataclass(frozen=True, slots=True)
class Column:
    """A heading and its expression.  Two are equal if their texts are."""

    name: str
    text: str
    wanted: Wanted
    program: Program = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Combined:
    name: str
    kind: Combining
    subject: Column | None  #: None for COUNT


@dataclass(frozen=True, slots=True)
class Question:
    filter: Column | None
    select: tuple[Column, ...]
    group_by: tuple[Column, ...]
    combined: tuple[Combined, ...]
    limit: int

    @property
    def headings(self) -> tuple[str, ...]:
        columns = (column.name for column in (*self.select, *self.group_by))
        return (*columns, *(combined.name for combined in self.combined))

    @property
    def asked(self) -> tuple[Column, ...]:
        """What is evaluated for each copy that counts: columns of its row, or its group and then what is combined."""
        subjects = (combined.subject for combined in self.combined)
        return (*self.select, *self.group_by, *(subject for subject in subjects if subject is not None))


def question_of(spec: Mapping[str, Any]) -> Question:
    reader = _Reader()
    question = reader.question(spec)
    if reader.errors:
        raise InvalidQuestionError(reader.errors)
    return question


class _Reader:
    """Goes on after an error, and leaves out what is wrong."""

    def __init__(self) -> None:
        self.errors: list[str] = []
        self._names: set[str] = set()
        self._left = LONGEST_OF_ALL

    def question(self, spec: Mapping[str, Any]) -> Question:
        self._check_parts(spec)
        question = Question(
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

    def _filter(self, text: Any) -> Column | None:
        return None if text is None or text == "" else self._column("spec.filter", "filter", text, TRUTH)

    def _columns(self, name: str, found: Any) -> Iterator[Column]:
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

    def _column(self, path: str, heading: str, text: Any, wanted: Wanted) -> Column | None:
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
        return Column(heading, text, wanted, program)

    def _limit(self, found: Any) -> int:
        if found is None:
            return USUAL_ROWS
        if type(found) is not int or not 1 <= found <= MOST_ROWS:
            self._refuse("spec.limit", f"must be a whole number from 1 to {MOST_ROWS}")
            return USUAL_ROWS
        return found


def _fits(found: Type, wanted: Wanted) -> bool:
    """Whether a value of the type may be what is wanted."""
    if is_optional(found):
        found = found.parameters[0]
    return found.kind is Kind.DYN or _FORMS.get(found.kind) in wanted.forms
