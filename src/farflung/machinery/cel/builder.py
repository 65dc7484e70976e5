"""Creates and numbers the nodes of a syntax tree, and refuses trees that are too deep for recursion."""

from __future__ import annotations

from collections.abc import Iterable

from farflung.machinery.cel.language import ast
from farflung.machinery.cel.language.ast import Expression


class TooDeepError(Exception):
    """The tree is deeper than ast.MAX_DEPTH."""


class Builder:
    def __init__(self) -> None:
        self._depths = [0]  #: of each node, by id

    def _next(self, children: Iterable[ast.AstNode] = ()) -> int:
        depth = 1 + max((self._depths[child.id] for child in children), default=0)
        if depth > ast.MAX_DEPTH:
            raise TooDeepError
        self._depths.append(depth)
        return len(self._depths) - 1

    def literal(self, offset: int, value: ast.LiteralValue) -> ast.Literal:
        return ast.Literal(self._next(), offset, value)

    def identifier(self, offset: int, name: str) -> ast.Identifier:
        return ast.Identifier(self._next(), offset, name)

    def select(self, offset: int, operand: Expression, field: str, test_only: bool = False) -> ast.Select:
        return ast.Select(self._next((operand,)), offset, operand, field, test_only)

    def call(self, offset: int, function: str, *arguments: Expression) -> ast.FunctionCall:
        return ast.FunctionCall(self._next(arguments), offset, None, function, list(arguments))

    def member_call(self, offset: int, target: Expression, function: str, *arguments: Expression) -> ast.FunctionCall:
        return ast.FunctionCall(self._next((target, *arguments)), offset, target, function, list(arguments))

    def list_literal(self, offset: int, elements: list[Expression], optional: Iterable[int] = ()) -> ast.ListLiteral:
        return ast.ListLiteral(self._next(elements), offset, elements, frozenset(optional))

    def entry(self, offset: int, key: Expression, value: Expression, optional: bool) -> ast.MapEntry:
        return ast.MapEntry(self._next((key, value)), offset, key, value, optional)

    def map_literal(self, offset: int, entries: list[ast.MapEntry]) -> ast.MapLiteral:
        return ast.MapLiteral(self._next(entries), offset, entries)

    def field_entry(self, offset: int, field: str, value: Expression, optional: bool) -> ast.FieldEntry:
        return ast.FieldEntry(self._next((value,)), offset, field, value, optional)

    def struct(self, offset: int, name: str, fields: list[ast.FieldEntry]) -> ast.StructLiteral:
        return ast.StructLiteral(self._next(fields), offset, name, fields)

    def fold(
        self,
        offset: int,
        variables: tuple[str, str | None],
        elements: Expression,
        accumulator: str,
        *,
        init: Expression,
        condition: Expression,
        step: Expression,
        result: Expression,
    ) -> ast.Comprehension:
        node = self._next((elements, init, condition, step, result))
        return ast.Comprehension(node, offset, *variables, elements, accumulator, init, condition, step, result)

    def bind(self, offset: int, name: str, value: Expression, then: Expression) -> ast.Comprehension:
        """`then`, in which `name` has the value `value`."""
        return self.fold(
            offset,
            (ast.UNUSED, None),
            self.list_literal(offset, []),
            name,
            init=value,
            condition=self.literal(offset, False),
            step=self.identifier(offset, name),
            result=then,
        )
