"""Macros, which look like calls: `has`, the loops, `cel.bind`, `optMap`.

    expand(builder, offset, target, "all", arguments)    the expanded tree; None if it is an ordinary call

The parts of a macro have the offset of the macro, except its arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from farflung.machinery.cel.builder import Builder
from farflung.machinery.cel.language import ast
from farflung.machinery.cel.language.ast import ACCUMULATOR, Expression

SIMPLE_NAME: Final = "argument must be a simple name"
NOT_AN_IDENTIFIER: Final = "argument is not an identifier"
OVERWRITES: Final = "iteration variable overwrites accumulator variable"
INPUT: Final = "@input"  #: the optional of `optMap`, which is used twice


class MacroError(Exception):
    def __init__(self, offset: int, message: str) -> None:
        super().__init__(message)
        self.offset = offset
        self.message = message


def expand(
    builder: Builder, offset: int, target: Expression | None, function: str, arguments: list[Expression]
) -> Expression | None:
    if target is None:
        return _has(builder, offset, arguments[0]) if function == "has" and len(arguments) == 1 else None
    expander = _MEMBERS.get((function, len(arguments)))
    return expander(_Macro(builder, offset), target, arguments) if expander else None


def _has(builder: Builder, offset: int, argument: Expression) -> Expression:
    if not isinstance(argument, ast.Select) or argument.test_only:
        raise MacroError(argument.offset, "invalid argument to has() macro")
    return builder.select(offset, argument.operand, argument.field, test_only=True)


class _Macro:
    """A Builder whose nodes have the same offset."""

    def __init__(self, builder: Builder, offset: int) -> None:
        self.builder = builder
        self.offset = offset

    def literal(self, value: ast.LiteralValue) -> Expression:
        return self.builder.literal(self.offset, value)

    def identifier(self, name: str) -> Expression:
        return self.builder.identifier(self.offset, name)

    def accumulated(self) -> Expression:
        return self.identifier(ACCUMULATOR)

    def call(self, function: str, *arguments: Expression) -> Expression:
        return self.builder.call(self.offset, function, *arguments)

    def ask(self, target: Expression, function: str) -> Expression:
        return self.builder.member_call(self.offset, target, function)

    def list_of(self, *elements: Expression) -> Expression:
        return self.builder.list_literal(self.offset, list(elements))

    def bind(self, name: str, value: Expression, then: Expression) -> Expression:
        return self.builder.bind(self.offset, name, value, then)

    def only_if(self, test: Expression | None, step: Expression) -> Expression:
        """The step for elements that pass the test."""
        return step if test is None else self.call(ast.CONDITIONAL, test, step, self.accumulated())

    def loop(
        self,
        variables: tuple[str, str | None],
        elements: Expression,
        init: Expression,
        step: Expression,
        condition: Expression | None = None,
        result: Expression | None = None,
    ) -> Expression:
        return self.builder.fold(
            self.offset,
            variables,
            elements,
            ACCUMULATOR,
            init=init,
            condition=condition or self.literal(True),
            step=step,
            result=result or self.accumulated(),
        )


def _name(argument: Expression, complaint: str) -> str:
    if not isinstance(argument, ast.Identifier) or argument.name.startswith("."):
        raise MacroError(argument.offset, complaint)
    if argument.name == ACCUMULATOR:
        raise MacroError(argument.offset, OVERWRITES)
    return argument.name


def _variables(arguments: list[Expression], count: int, complaint: str) -> tuple[str, str | None]:
    first = _name(arguments[0], complaint)
    if count == 1:
        return first, None
    second = _name(arguments[1], complaint)
    if first == second:
        raise MacroError(arguments[1].offset, f"duplicate variable name: {first}")
    return first, second


def _all(macro: _Macro, target: Expression, arguments: list[Expression]) -> Expression:
    variables = _variables(arguments, len(arguments) - 1, SIMPLE_NAME)
    return macro.loop(
        variables,
        target,
        init=macro.literal(True),
        condition=macro.call(ast.NOT_STRICTLY_FALSE, macro.accumulated()),
        step=macro.call(ast.AND, macro.accumulated(), arguments[-1]),
    )


def _exists(macro: _Macro, target: Expression, arguments: list[Expression]) -> Expression:
    variables = _variables(arguments, len(arguments) - 1, SIMPLE_NAME)
    return macro.loop(
        variables,
        target,
        init=macro.literal(False),
        condition=macro.call(ast.NOT_STRICTLY_FALSE, macro.call(ast.NOT, macro.accumulated())),
        step=macro.call(ast.OR, macro.accumulated(), arguments[-1]),
    )


def _exists_one(macro: _Macro, target: Expression, arguments: list[Expression]) -> Expression:
    variables = _variables(arguments, len(arguments) - 1, SIMPLE_NAME)
    one_more = macro.call(ast.ADD, macro.accumulated(), macro.literal(1))
    return macro.loop(
        variables,
        target,
        init=macro.literal(0),
        step=macro.only_if(arguments[-1], one_more),
        result=macro.call(ast.EQUAL, macro.accumulated(), macro.literal(1)),
    )


def _append(macro: _Macro, element: Expression) -> Expression:
    return macro.call(ast.ADD, macro.accumulated(), macro.list_of(element))


def _map(macro: _Macro, target: Expression, arguments: list[Expression]) -> Expression:
    variables = _variables(arguments, 1, NOT_AN_IDENTIFIER)
    test = arguments[1] if len(arguments) == 3 else None
    step = macro.only_if(test, _append(macro, arguments[-1]))
    return macro.loop(variables, target, init=macro.list_of(), step=step)


def _filter(macro: _Macro, target: Expression, arguments: list[Expression]) -> Expression:
    variables = _variables(arguments, 1, NOT_AN_IDENTIFIER)
    step = macro.only_if(arguments[1], _append(macro, arguments[0]))
    return macro.loop(variables, target, init=macro.list_of(), step=step)


def _transform_list(macro: _Macro, target: Expression, arguments: list[Expression]) -> Expression:
    variables = _variables(arguments, 2, SIMPLE_NAME)
    test = arguments[2] if len(arguments) == 4 else None
    step = macro.only_if(test, _append(macro, arguments[-1]))
    return macro.loop(variables, target, init=macro.list_of(), step=step)


def _transform_map(macro: _Macro, target: Expression, arguments: list[Expression]) -> Expression:
    variables = _variables(arguments, 2, SIMPLE_NAME)
    insert = macro.call(ast.MAP_INSERT, macro.accumulated(), macro.identifier(variables[0]), arguments[-1])
    return _build_map(macro, target, variables, arguments, insert)


def _transform_map_entry(macro: _Macro, target: Expression, arguments: list[Expression]) -> Expression:
    variables = _variables(arguments, 2, SIMPLE_NAME)
    insert = macro.call(ast.MAP_INSERT, macro.accumulated(), arguments[-1])
    return _build_map(macro, target, variables, arguments, insert)


def _build_map(
    macro: _Macro,
    target: Expression,
    variables: tuple[str, str | None],
    arguments: list[Expression],
    insert: Expression,
) -> Expression:
    test = arguments[2] if len(arguments) == 4 else None
    empty = macro.builder.map_literal(macro.offset, [])
    return macro.loop(variables, target, init=empty, step=macro.only_if(test, insert))


def _bind(macro: _Macro, target: Expression, arguments: list[Expression]) -> Expression | None:
    if not isinstance(target, ast.Identifier) or target.name != "cel":
        return None
    name = _name(arguments[0], "cel.bind() variable names must be simple identifiers")
    return macro.bind(name, arguments[1], arguments[2])


def _optional_map(macro: _Macro, target: Expression, arguments: list[Expression]) -> Expression:
    name = _name(arguments[0], "optMap() variable name must be a simple identifier")
    return _if_present(macro, target, name, arguments[1], lambda value: macro.call("optional.of", value))


def _optional_flat_map(macro: _Macro, target: Expression, arguments: list[Expression]) -> Expression:
    name = _name(arguments[0], "optFlatMap() variable name must be a simple identifier")
    return _if_present(macro, target, name, arguments[1], lambda value: value)


def _if_present(
    macro: _Macro, target: Expression, name: str, then: Expression, wrap: Callable[[Expression], Expression]
) -> Expression:
    """The target is bound first: copied twice, a chain of these would grow exponentially."""
    value = macro.ask(macro.identifier(INPUT), "value")
    choice = macro.call(
        ast.CONDITIONAL,
        macro.ask(macro.identifier(INPUT), "hasValue"),
        wrap(macro.bind(name, value, then)),
        macro.call("optional.none"),
    )
    return macro.bind(INPUT, target, choice)


_MEMBERS: Final[dict[tuple[str, int], Callable[[_Macro, Expression, list[Expression]], Expression | None]]] = {
    ("all", 2): _all,
    ("all", 3): _all,
    ("exists", 2): _exists,
    ("exists", 3): _exists,
    ("exists_one", 2): _exists_one,
    ("exists_one", 3): _exists_one,
    ("existsOne", 2): _exists_one,
    ("existsOne", 3): _exists_one,
    ("map", 2): _map,
    ("map", 3): _map,
    ("filter", 2): _filter,
    ("transformList", 3): _transform_list,
    ("transformList", 4): _transform_list,
    ("transformMap", 3): _transform_map,
    ("transformMap", 4): _transform_map,
    ("transformMapEntry", 3): _transform_map_entry,
    ("transformMapEntry", 4): _transform_map_entry,
    ("bind", 3): _bind,
    ("optMap", 2): _optional_map,
    ("optFlatMap", 2): _optional_flat_map,
}
