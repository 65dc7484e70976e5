"""Declarations of CEL functions: one table for the checker, the compiler and the estimator.

A library is an iterable of Functions.  Operators are functions with the names of `ast.py`; a namespaced function has
its dots in its name (`optional.of`, `sets.contains`).  Ids of overloads are those of cel-go (`size_string`,
`add_int64`), because the estimate of costs is keyed by them.

    LIBRARY = (
        overload("size", "size_string", "string -> int", len),
        overload(".size", "string_size", "string -> int", len),      a member, `'a'.size()`: its target is the first
    )
    FUNCTIONS = functions(LIBRARY, lists.LIBRARY)      name → Function, all overloads of a name together
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from farflung.machinery.cel.language.types import TYPE_NAME, Type, TypeKind, type_named


@dataclass(frozen=True, slots=True)
class Overload:
    """One signature of a function, and its implementation.

    `arguments` includes the target of a member (`'a'.size()`) as the first.  `implementation` takes the values in the
    same order; None: the evaluator implements it, because it may not need all arguments (`_&&_`, `_||_`, `_?_:_`,
    `@not_strictly_false`).  `cost` is Kubernetes' cost of one evaluation, from the arguments and the result; None: 1.
    """

    id: str
    arguments: tuple[Type, ...]
    result: Type
    member: bool = False
    implementation: Callable[..., Any] | None = None
    cost: Callable[[tuple[Any, ...], Any], int] | None = None
    generic: bool = field(init=False, compare=False)  #: whether it has type parameters

    def __post_init__(self) -> None:
        object.__setattr__(self, "generic", _is_generic((*self.arguments, self.result)))


def _is_generic(types: Iterable[Type]) -> bool:
    return any(each.kind is TypeKind.PARAMETER or _is_generic(each.parameters) for each in types)


@dataclass(frozen=True, slots=True)
class Function:
    name: str
    overloads: tuple[Overload, ...]


def overload(
    name: str,
    id: str,
    signature: str,
    implementation: Callable[..., Any] | None = None,
    cost: Callable[[tuple[Any, ...], Any], int] | None = None,
) -> Function:
    """A function with one overload.  `signature`: the types of the arguments and of the result, as in error messages.
    The name of a member has a dot in front."""
    arguments, _, result = signature.rpartition("-> ")
    types = tuple(map(type_named, TYPE_NAME.findall(arguments)))
    member = name.startswith(".")
    return Function(name.removeprefix("."), (Overload(id, types, type_named(result), member, implementation, cost),))


Functions = Mapping[str, Function]


def functions(*libraries: Iterable[Function]) -> Functions:
    """All libraries in one table.  A name declared by several has the overloads of all, in order."""
    table: dict[str, Function] = {}
    for library in libraries:
        for function in library:
            before = table[function.name].overloads if function.name in table else ()
            table[function.name] = Function(function.name, before + function.overloads)
    return table
