"""The syntax tree of a CEL expression: built by the parser, annotated by the checker, compiled by the compiler.

Macros are expanded: `has(a.b)` is a Select with `test_only`, the others are Comprehensions.  Operators are Calls of the
functions named below.  A tree is never deeper than MAX_DEPTH, so a walker may recurse if it takes no more than two
Python frames for a level.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from farflung.machinery.cel.language.types import DYN, Type

if TYPE_CHECKING:
    from farflung.machinery.cel.language.declarations import Overload

MAX_DEPTH: Final = 250

CONDITIONAL: Final = "_?_:_"
AND: Final = "_&&_"
OR: Final = "_||_"
NOT: Final = "!_"
NEGATE: Final = "-_"
EQUAL: Final = "_==_"
NOT_EQUAL: Final = "_!=_"
LESS: Final = "_<_"
LESS_EQUAL: Final = "_<=_"
GREATER: Final = "_>_"
GREATER_EQUAL: Final = "_>=_"
ADD: Final = "_+_"
SUBTRACT: Final = "_-_"
MULTIPLY: Final = "_*_"
DIVIDE: Final = "_/_"
MODULO: Final = "_%_"
IN: Final = "@in"
INDEX: Final = "_[_]"
OPTIONAL_INDEX: Final = "_[?_]"
OPTIONAL_SELECT: Final = "_?._"  #: its second argument is a Literal, the name of the field
NOT_STRICTLY_FALSE: Final = "@not_strictly_false"  #: true unless the operand is false; errors count as true
MAP_INSERT: Final = "cel.@mapInsert"  #: (map, key, value) or (map, map) → a map with more entries, all new

ACCUMULATOR: Final = "@result"  #: of the macros
UNUSED: Final = "#unused"  #: the iteration variable of `cel.bind`


@dataclass(frozen=True, slots=True)
class UnsignedInteger:
    """The value of a literal like `3u`; all other literals are Python's own bool, int, float, str, bytes and None."""

    value: int


LiteralValue = bool | int | UnsignedInteger | float | str | bytes | None


@dataclass(slots=True, eq=False)
class AstNode:
    """`id` is unique in a tree, `offset` is the index of the text in errors.  The checker sets `type`."""

    id: int
    offset: int
    type: Type = field(default=DYN, init=False)


@dataclass(slots=True, eq=False)
class Literal(AstNode):
    value: LiteralValue


@dataclass(slots=True, eq=False)
class Identifier(AstNode):
    """A variable (its name may have dots once checked), or, after the check, a type if `denotes` is set."""

    name: str
    denotes: Type | None = field(default=None, init=False)  #: `int` in `type(x) == int`


@dataclass(slots=True, eq=False)
class Select(AstNode):
    """`operand.field`; with `test_only` it is `has(operand.field)`.

    By the operand's type: fields of an object type, keys of a map, either for dyn, the inner value of an optional.
    """

    operand: Expression
    field: str
    test_only: bool = False


@dataclass(slots=True, eq=False)
class FunctionCall(AstNode):
    """`target.function(arguments)` or `function(arguments)`.

    After the check a call of a namespaced function has no target: `optional.of(x)` is
    `FunctionCall(None, "optional.of", [x])`.
    `overloads` are those that the types allow, in the order of their declaration: one if all types are known, several
    if an argument is dyn.  An overload's arguments begin with the target, if the call has one.
    """

    target: Expression | None
    function: str
    arguments: list[Expression]
    overloads: tuple[Overload, ...] = field(default=(), init=False)


@dataclass(slots=True, eq=False)
class ListLiteral(AstNode):
    elements: list[Expression]
    optional_indices: frozenset[int] = frozenset()  #: the elements written `?element`


@dataclass(slots=True, eq=False)
class MapEntry(AstNode):
    """`key: value` of a map literal, or `?key: value` if it is optional.  It has an id of its own, and no type."""

    key: Expression
    value: Expression
    optional: bool = False


@dataclass(slots=True, eq=False)
class MapLiteral(AstNode):
    entries: list[MapEntry]


@dataclass(slots=True, eq=False)
class FieldEntry(AstNode):
    field: str
    value: Expression
    optional: bool = False


@dataclass(slots=True, eq=False)
class StructLiteral(AstNode):
    """`Name{field: value}`."""

    name: str
    fields: list[FieldEntry]


@dataclass(slots=True, eq=False)
class Comprehension(AstNode):
    """A fold over a list or over the keys of a map.

    The accumulator starts as `init`.  For each element, while `condition` holds, it becomes `step`; at the end the
    value is `result`.  With a `second_variable` the first is the index or key and the second the element or value.
    `condition`, `step` and `result` see the accumulator, `condition` and `step` the iteration variables too.
    `cel.bind(x, value, then)` is the form over an empty list whose accumulator is `x`, init `value` and result `then`.
    """

    variable: str
    second_variable: str | None
    range: Expression
    accumulator: str
    init: Expression
    condition: Expression
    step: Expression
    result: Expression


Expression = Literal | Identifier | Select | FunctionCall | ListLiteral | MapLiteral | StructLiteral | Comprehension
