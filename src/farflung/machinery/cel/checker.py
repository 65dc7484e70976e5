"""The type checker: sets the type of every node and the overloads of every call; reports errors as Issues.

It changes the tree: names with dots become Identifiers, calls of namespaced functions lose their target.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from farflung.machinery.cel.errors import Issue
from farflung.machinery.cel.inference import ANYTHING, Inference
from farflung.machinery.cel.language import ast
from farflung.machinery.cel.language.ast import Expression
from farflung.machinery.cel.language.declarations import Function, Functions, Overload
from farflung.machinery.cel.language.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DYN,
    ERROR,
    INT,
    NULL,
    STRING,
    UINT,
    Type,
    TypeKind,
    is_optional,
    list_of,
    map_of,
    optional_of,
    type_of,
)

LITERALS: Final[Mapping[type, Type]] = {
    bool: BOOL,
    int: INT,
    ast.UnsignedInteger: UINT,
    float: DOUBLE,
    str: STRING,
    bytes: BYTES,
    type(None): NULL,
}
_Resolution = tuple[Type, tuple[Overload, ...]]
RANGES: Final = "(must be list, map, or dynamic)"


class Checker:
    """Checks one tree.  `types` are the types that can be named, `homogeneous` forbids lists of mixed types."""

    def __init__(
        self,
        variables: Mapping[str, Type],
        types: Mapping[str, Type],
        functions: Functions,
        inference: Inference,
        homogeneous: bool,
    ) -> None:
        self._variables = variables
        self._types = types
        self._functions = functions
        self._inference = inference
        self._homogeneous = homogeneous
        self._scope: dict[str, list[Type]] = {}
        self._resolutions: dict[tuple[str, bool, tuple[str, ...]], _Resolution] = {}
        self.nodes: list[Expression] = []  #: checked nodes, each once
        self.issues: list[Issue] = []
        self.references: set[str] = set()  #: the used variables of the environment

    def check(self, tree: Expression) -> Expression:
        """The tree with its types; incomplete if it has issues."""
        root = self._check(tree)
        for node in self.nodes:
            node.type = self._inference.finish(node.type)
        return root

    def _check(self, node: Expression) -> Expression:
        checked: Expression = _CHECKS[type(node)](self, node)
        self.nodes.append(checked)
        return checked

    def _complain(self, node: ast.AstNode, message: str) -> None:
        self.issues.append(Issue(node.offset, message))

    def _mismatch(self, node: ast.AstNode, expected: Type, found: Type) -> None:
        self._complain(node, f"expected type '{self._shown(expected)}' but found '{self._shown(found)}'")

    def _undeclared(self, node: ast.AstNode, name: str) -> None:
        self._complain(node, f"undeclared reference to '{name}' (in container '')")

    def _shown(self, of: Type) -> str:
        return str(self._inference.resolve(of, final=True))

    # --- names ------------------------------------------------------------------------------------

    def _literal(self, node: ast.Literal) -> Expression:
        node.type = LITERALS[type(node.value)]
        return node

    def _identifier(self, node: ast.Identifier) -> Expression:
        if not self._resolve_name(node):
            node.type = ERROR
            self._undeclared(node, node.name)
        return node

    def _resolve_name(self, node: ast.Identifier) -> bool:
        scope = self._scope.get(node.name)
        if scope:
            node.type = scope[-1]
            return True
        name = node.name.removeprefix(".")
        if name in self._variables:
            node.type = self._variables[name]
            self.references.add(name)
        elif name in self._types:
            node.denotes = self._types[name]
            node.type = type_of(node.denotes)
        else:
            return False
        node.name = name
        return True

    def _qualified(self, node: Expression) -> str | None:
        """The name `a.b.c` of a chain of selections, unless `a` is a variable of a macro."""
        names: list[str] = []
        while isinstance(node, ast.Select) and not node.test_only:
            names.append(node.field)
            node = node.operand
        if not isinstance(node, ast.Identifier) or self._scope.get(node.name):
            return None
        names.append(node.name)
        return ".".join(reversed(names))

    def _select(self, node: ast.Select) -> Expression:
        qualified = self._qualified(node)
        if qualified is not None:
            whole = ast.Identifier(node.id, node.offset, qualified)
            if self._resolve_name(whole):
                return whole
        node.operand = self._check(node.operand)
        selected = self._field_type(node, node.operand, node.field, optional=False)
        node.type = BOOL if node.test_only else self._inference.resolve(selected)
        return node

    def _field_type(self, node: Expression, operand: Expression, field: str, *, optional: bool) -> Type:
        of = self._inference.resolve(operand.type)
        inner = of.parameters[0] if is_optional(of) else of
        selected = self._plain_field_type(node, inner, field)
        return optional_of(selected) if optional or is_optional(of) else selected

    def _plain_field_type(self, node: Expression, of: Type, field: str) -> Type:
        if of.kind is TypeKind.MAP:
            return of.parameters[1]
        if of.kind is TypeKind.OBJECT:
            if field in of.fields:
                return of.fields[field].type
            self._complain(node, f"undefined field '{field}'")
            return ERROR
        if of.kind is TypeKind.PARAMETER:
            self._inference.assign(DYN, of)
        elif of.kind not in ANYTHING:
            self._complain(node, f"type '{self._shown(of)}' does not support field selection")
        return DYN

    # --- calls ------------------------------------------------------------------------------------

    def _call(self, node: ast.FunctionCall) -> Expression:
        if node.function == ast.OPTIONAL_SELECT:
            return self._optional_select(node)
        node.arguments = [self._check(argument) for argument in node.arguments]
        if node.target is not None:
            assert node.target is not None
            qualified = self._qualified(node.target)
            if qualified is not None and f"{qualified}.{node.function}".removeprefix(".") in self._functions:
                node.function = f"{qualified}.{node.function}".removeprefix(".")
                node.target = None
            else:
                node.target = self._check(node.target)
        function = self._functions.get(node.function.removeprefix("."))
        if function is None:
            node.type = ERROR
            self._undeclared(node, node.function)
        elif node.function in (ast.AND, ast.OR):
            self._logical(node, function)
        else:
            self._overloaded(node, function)
        return node

    def _optional_select(self, node: ast.FunctionCall) -> Expression:
        operand, name = node.arguments
        assert isinstance(name, ast.Literal) and isinstance(name.value, str)
        node.arguments = [self._check(operand), self._check(name)]
        selected = self._field_type(node, node.arguments[0], name.value, optional=True)
        node.type = self._inference.resolve(selected)
        declared = self._functions.get(ast.OPTIONAL_SELECT)
        node.overloads = declared.overloads if declared else ()
        return node

    def _logical(self, node: ast.FunctionCall, function: Function) -> None:
        node.overloads = function.overloads
        node.type = BOOL
        for argument in node.arguments:
            if not self._inference.assign(argument.type, BOOL):
                self._mismatch(argument, BOOL, argument.type)
                node.type = ERROR

    def _overloaded(self, node: ast.FunctionCall, function: Function) -> None:
        operands = node.arguments if node.target is None else [node.target, *node.arguments]
        found = [operand.type for operand in operands]
        node.function = function.name
        node.type, node.overloads = self._resolved(function, node.target is not None, found)
        if not node.overloads:
            target = f"{self._shown(node.target.type)}." if node.target else ""
            signature = f"{target}({', '.join(self._shown(argument.type) for argument in node.arguments)})"
            self._complain(node, f"found no matching overload for '{function.name}' applied to '{signature}'")

    def _resolved(self, function: Function, member: bool, found: list[Type]) -> _Resolution:
        """The matching overloads and their result type.  For plain types it is always the same."""
        if not all(map(_is_plain, found)):
            return self._resolve(function, member, found)
        key = (function.name, member, tuple(each.name for each in found))
        if key in self._resolutions:
            return self._resolutions[key]
        resolution = self._resolve(function, member, found)
        if _is_plain(resolution[0]):
            self._resolutions[key] = resolution
        return resolution

    def _resolve(self, function: Function, member: bool, found: list[Type]) -> _Resolution:
        matching: list[Overload] = []
        result: Type = ERROR
        for overload in function.overloads:
            if overload.member is not member or len(overload.arguments) != len(found):
                continue
            returned = self._fit(overload, found)
            if returned is None:
                continue
            if not matching:
                result = returned
            elif result.kind is not TypeKind.DYN and not self._inference.same(result, returned):
                result = DYN
            matching.append(overload)
        return result, tuple(matching)

    def _fit(self, overload: Overload, found: list[Type]) -> Type | None:
        """The overload's result type for these arguments; None if they do not match."""
        if not overload.generic:
            return overload.result if self._inference.assign_all(found, overload.arguments) else None
        *arguments, result = self._inference.instantiate((*overload.arguments, overload.result))
        return self._inference.resolve(result) if self._inference.assign_all(found, arguments) else None

    # --- aggregates -------------------------------------------------------------------------------

    def _list(self, node: ast.ListLiteral) -> Expression:
        element_type: Type | None = None
        for index, element in enumerate(node.elements):
            node.elements[index] = checked = self._check(element)
            found = self._unwrapped(checked) if index in node.optional_indices else checked.type
            element_type = self._join(checked, element_type, found)
        node.type = list_of(element_type or self._inference.variable())
        return node

    def _map(self, node: ast.MapLiteral) -> Expression:
        key_type: Type | None = None
        value_type: Type | None = None
        for entry in node.entries:
            entry.key = self._check(entry.key)
            key_type = self._join(entry.key, key_type, entry.key.type)
            entry.value = self._check(entry.value)
            found = self._unwrapped(entry.value) if entry.optional else entry.value.type
            value_type = self._join(entry.value, value_type, found)
        node.type = map_of(key_type or self._inference.variable(), value_type or self._inference.variable())
        return node

    def _unwrapped(self, node: Expression) -> Type:
        """The type in the optional value of an optional element."""
        if is_optional(node.type):
            return node.type.parameters[0]
        if node.type.kind is not TypeKind.DYN:
            self._mismatch(node, optional_of(node.type), node.type)
        return node.type

    def _join(self, node: Expression, previous: Type | None, current: Type) -> Type:
        if previous is None:
            return current
        if self._inference.assign(previous, current):
            return self._inference.more_general(previous, current)
        if not self._homogeneous:
            return DYN
        self._mismatch(node, previous, current)
        return ERROR

    def _struct(self, node: ast.StructLiteral) -> Expression:
        node.type = ERROR
        name = node.name.removeprefix(".")
        if name in self._types:
            self._complain(node, f"'{self._types[name]}' is not a message type")
        elif name in self._variables:
            self._complain(node, f"'{self._variables[name]}' is not a type")
        else:
            self._undeclared(node, node.name)
        return node

    # --- macros -----------------------------------------------------------------------------------

    def _comprehension(self, node: ast.Comprehension) -> Expression:
        node.range = self._check(node.range)
        node.init = self._check(node.init)
        accumulated = node.init.type
        first, second = self._element_types(node)
        self._enter(node.accumulator, accumulated)
        self._enter(node.variable, first)
        if node.second_variable:
            self._enter(node.second_variable, second)
        node.condition = self._check(node.condition)
        self._assert_type(node.condition, BOOL)
        node.step = self._check(node.step)
        self._assert_type(node.step, accumulated)
        if node.second_variable:
            self._leave(node.second_variable)
        self._leave(node.variable)
        node.result = self._check(node.result)
        self._leave(node.accumulator)
        node.type = self._inference.resolve(node.result.type)
        return node

    def _element_types(self, node: ast.Comprehension) -> tuple[Type, Type]:
        of = self._inference.resolve(node.range.type)
        if of.kind is TypeKind.LIST:
            return (INT if node.second_variable else of.parameters[0]), of.parameters[0]
        if of.kind is TypeKind.MAP:
            return of.parameters[0], of.parameters[1]
        if of.kind in ANYTHING or of.kind is TypeKind.PARAMETER:
            self._inference.assign(DYN, of)
            return DYN, DYN
        self._complain(
            node.range, f"expression of type '{self._shown(of)}' cannot be range of a comprehension {RANGES}"
        )
        return ERROR, ERROR

    def _assert_type(self, node: Expression, wanted: Type) -> None:
        if not self._inference.assign(wanted, node.type):
            self._mismatch(node, wanted, node.type)

    def _enter(self, name: str, of: Type) -> None:
        self._scope.setdefault(name, []).append(of)

    def _leave(self, name: str) -> None:
        self._scope[name].pop()


def _is_plain(of: Type) -> bool:
    return not of.parameters and of.kind is not TypeKind.PARAMETER


_CHECKS: Final[Mapping[type, Callable[[Checker, Any], Expression]]] = {
    ast.Literal: Checker._literal,
    ast.Identifier: Checker._identifier,
    ast.Select: Checker._select,
    ast.FunctionCall: Checker._call,
    ast.ListLiteral: Checker._list,
    ast.MapLiteral: Checker._map,
    ast.StructLiteral: Checker._struct,
    ast.Comprehension: Checker._comprehension,
}
