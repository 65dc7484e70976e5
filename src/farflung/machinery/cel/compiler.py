"""Compiles a checked tree to nested closures, one per node, and runs it as a Program.

Constants are evaluated here, once: literals, lists and maps of literals, conversions, patterns.

    program = Program(checked.tree, {"self": type}, adapters)
    run = program.start({"self": value}, limit=1_000_000)
    program.evaluate(run)       the value; raises only EvaluationError or OverBudget
    run.spent                   its cost, also after an error

Variables are JSON values of their declared types.  A chain of field selections walks the JSON value and adapts only
its result.  A computed variable is code that returns a CEL value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from farflung.machinery.cel import calls, loops, selection
from farflung.machinery.cel.adapt import Adapters
from farflung.machinery.cel.language import ast
from farflung.machinery.cel.language.ast import Expression
from farflung.machinery.cel.language.budget import PER_CALL, Meter, Metered, OverBudget
from farflung.machinery.cel.language.declarations import Overload
from farflung.machinery.cel.language.types import Type, TypeKind, is_optional
from farflung.machinery.cel.language.values import (
    NONE,
    EvaluationError,
    OptionalValue,
    UInt,
    no_such_overload,
    type_value,
)
from farflung.machinery.cel.library import costs, optionals, regexes
from farflung.machinery.cel.selection import Code, Run

NO_VALUE: Final = object()

#: conversions of literals, which are evaluated once
_CONVERSIONS: Final = frozenset({"bool", "bytes", "double", "duration", "int", "string", "timestamp", "uint"})
_UNKNOWN: Final = frozenset({TypeKind.DYN, TypeKind.ERROR, TypeKind.PARAMETER})
_ANYTHING: Final = frozenset({TypeKind.DYN, TypeKind.PARAMETER})
_KEYS: Final = frozenset({str, int, UInt, bool})


class _Variable:
    __slots__ = ("raw", "slot")

    def __init__(self, slot: int, raw: bool) -> None:
        self.slot = slot
        self.raw = raw  #: whether it is a JSON value that is not adapted yet


class Compiler:
    """Makes the code of one tree."""

    def __init__(self, variables: Mapping[str, Type], adapters: Adapters, computed: Mapping[str, Code]) -> None:
        self._adapters = adapters
        self._computed = computed
        self._scopes: dict[str, list[_Variable]] = {
            name: [_Variable(slot, raw=True)] for slot, name in enumerate(variables)
        }
        self._values: dict[int, Any] = {}
        self._loops = 0  #: number of loops around the current node
        self.slots = len(variables)

    def compile(self, node: Expression) -> Code:
        constant = self._value(node)
        if constant is not NO_VALUE:
            return lambda run: constant
        raw = self._raw(node)
        if raw is not None:
            return selection.adapted(raw, self._adapters.of(node.type))
        code: Code = _COMPILERS[type(node)](self, node)
        return code

    # --- constants --------------------------------------------------------------------------------

    def _value(self, node: Expression) -> Any:
        """The value of a constant expression that costs nothing; else NO_VALUE."""
        if node.id not in self._values:
            self._values[node.id] = self._find_value(node)
        return self._values[node.id]

    def _find_value(self, node: Expression) -> Any:
        match node:
            case ast.Literal(value=value):
                return UInt(value.value) if isinstance(value, ast.UnsignedInteger) else value
            case ast.Identifier(denotes=Type() as denoted):
                return type_value(denoted)
            case ast.ListLiteral(optional_indices=optional) if not optional:
                values = [self._value(element) for element in node.elements]
                return NO_VALUE if NO_VALUE in values else values
            case ast.MapLiteral():
                return self._map_value(node)
            case ast.FunctionCall(function=function, arguments=[argument], target=None) if function in _CONVERSIONS:
                return self._converted(node, self._value(argument))
        return NO_VALUE

    def _map_value(self, node: ast.MapLiteral) -> Any:
        value = {}
        for entry in node.entries:
            key, inner = self._value(entry.key), self._value(entry.value)
            if entry.optional or NO_VALUE in (key, inner) or type(key) not in _KEYS:
                return NO_VALUE
            value[key] = inner
        return value

    def _converted(self, node: ast.FunctionCall, value: Any) -> Any:
        if value is NO_VALUE or len(node.overloads) != 1:
            return NO_VALUE
        implementation = node.overloads[0].implementation
        assert implementation is not None
        try:
            if isinstance(implementation, Metered):
                return implementation.function(Meter(), value)
            return implementation(value)
        except EvaluationError:
            return NO_VALUE

    # --- paths through JSON values ----------------------------------------------------------------

    def _raw(self, node: Expression) -> Code | None:
        """The code of a JSON value that is not adapted yet; None if the node is no path into a variable."""
        path = self._path(node)
        if path is not None:
            slot, steps = path
            return selection.fields_of_variable(slot, steps) if steps else selection.variable(slot)
        match node:
            case ast.Select(test_only=False, operand=operand, field=field):
                if operand.type.kind not in (TypeKind.OBJECT, TypeKind.MAP):
                    return None
                code = self._raw(operand)
                return None if code is None else self._selected(code, operand.type, field)
            case ast.FunctionCall(function=ast.INDEX, arguments=[operand, key]) if operand.type.kind in (
                TypeKind.LIST,
                TypeKind.MAP,
            ):
                container = self._raw(operand)
                return None if container is None else self._indexed(container, key)
        return None

    def _path(self, node: Expression) -> tuple[int, tuple[tuple[str, str], ...]] | None:
        """The variable and its fields, each by property and name; None if a part is no field of an object."""
        steps: list[tuple[str, str]] = []
        while isinstance(node, ast.Select) and not node.test_only and node.operand.type.kind is TypeKind.OBJECT:
            steps.append((node.operand.type.fields[node.field].property, node.field))
            node = node.operand
        if not isinstance(node, ast.Identifier) or node.denotes is not None or node.name in self._computed:
            return None
        variable = self._scopes[node.name][-1]
        return (variable.slot, tuple(reversed(steps))) if variable.raw else None

    def _selected(self, operand: Code, of: Type, field: str) -> Code:
        if of.kind is TypeKind.OBJECT:
            return selection.field_of_object(operand, of.fields[field].property, field)
        if of.kind is TypeKind.MAP:
            return selection.key_of_map(operand, field)
        return selection.field_of_anything(operand, _property(of, field))

    def _indexed(self, operand: Code, key: Expression) -> Code:
        """A path of fields as an index is a part of the path, and has no further cost."""
        cost = 0 if isinstance(key, ast.Identifier | ast.Select) else 1
        return selection.index_of(operand, self.compile(key), cost)

    # --- nodes ------------------------------------------------------------------------------------

    def _identifier(self, node: ast.Identifier) -> Code:
        if node.name in self._computed:
            return self._computed[node.name]
        return selection.variable(self._scopes[node.name][-1].slot)

    def _select(self, node: ast.Select) -> Code:
        of = node.operand.type
        if not node.test_only:
            return self._selected(self.compile(node.operand), of, node.field)
        path = self._path(node.operand)
        if of.kind is TypeKind.OBJECT and path is not None:
            return selection.has_fields_of_variable(*path, of.fields[node.field].property)
        operand = self._raw(node.operand) or self.compile(node.operand)
        if of.kind is TypeKind.OBJECT:
            return selection.has_field_of_object(operand, of.fields[node.field].property)
        return selection.has_field_of_anything(operand, _property(of, node.field))

    def _list(self, node: ast.ListLiteral) -> Code:
        elements = [self.compile(element) for element in node.elements]
        if node.optional_indices:
            return _list_with_optionals(elements, node.optional_indices)

        def make(run: Run) -> list[Any]:
            run.spent += costs.LIST_CREATION
            return [element(run) for element in elements]

        return make

    def _map(self, node: ast.MapLiteral) -> Code:
        entries = [(self.compile(entry.key), self.compile(entry.value), entry.optional) for entry in node.entries]

        def make(run: Run) -> dict[Any, Any]:
            run.spent += costs.MAP_CREATION
            made = {}
            for key_code, value_code, optional in entries:
                key, value = key_code(run), value_code(run)
                if type(key) not in _KEYS:
                    raise EvaluationError("unsupported key type")
                if optional:
                    if value is NONE:
                        continue
                    value = _inside(value)
                made[key] = value
            return made

        return make

    def _struct(self, node: ast.StructLiteral) -> Code:
        def fail(_: Run) -> Any:
            raise EvaluationError(f"unknown type: {node.name}")

        return fail

    # --- calls ------------------------------------------------------------------------------------

    def _call(self, node: ast.FunctionCall) -> Code:
        special = _SPECIAL.get(node.function)
        if special is not None:
            return special(*map(self.compile, node.arguments))
        by_name = _BY_NAME.get(node.function)
        if by_name is not None:
            return by_name(self, node)
        operands = node.arguments if node.target is None else [node.target, *node.arguments]
        if len(node.overloads) == 1:
            overload = node.overloads[0]
            lazy = _LAZY.get(overload.id)
            return lazy(*map(self.compile, operands)) if lazy else self._call_overload(node, overload, operands)
        return calls.dispatch(node.function, node.overloads, [self.compile(operand) for operand in operands])

    def _call_overload(self, node: ast.FunctionCall, overload: Overload, operands: list[Expression]) -> Code:
        arguments = [self.compile(operand) for operand in operands]
        if any(map(_uncertain, operands, overload.arguments)):
            return calls.dispatch(node.function, (overload,), arguments)
        if overload.id in regexes.WITH_COMPILED and isinstance(operands[1], ast.Literal):
            try:
                pattern = regexes.compiled(str(operands[1].value))
            except EvaluationError:
                return calls.call(overload, arguments)
            return calls.with_pattern(regexes.WITH_COMPILED[overload.id], pattern, arguments)
        return calls.call(overload, arguments)

    def _equality(self, node: ast.FunctionCall) -> Code:
        left, right = node.arguments
        negated = node.function == ast.NOT_EQUAL
        if not self._loops and self._adapters.plain(left.type) and self._adapters.plain(right.type):
            one, other = self._raw(left), self._raw(right)
            if one is not None and other is not None:
                return calls.plain_equality(one, other, negated=negated)
        return calls.equality(self.compile(left), self.compile(right), negated=negated)

    def _membership(self, node: ast.FunctionCall) -> Code:
        value, container = node.arguments
        elements = self._value(container)
        if type(elements) is list and calls.is_simple(elements):
            return calls.membership(self.compile(value), elements)
        operands = [self.compile(value), self.compile(container)]
        if len(node.overloads) == 1 and container.type.kind not in _UNKNOWN:
            return calls.call(node.overloads[0], operands)
        return calls.dispatch(node.function, node.overloads, operands)

    def _index(self, node: ast.FunctionCall) -> Code:
        operand, key = node.arguments
        return self._indexed(self.compile(operand), key)

    def _optional_index(self, node: ast.FunctionCall) -> Code:
        return selection.optional_index(*map(self.compile, node.arguments))

    def _optional_select(self, node: ast.FunctionCall) -> Code:
        operand, name = node.arguments
        assert isinstance(name, ast.Literal) and isinstance(name.value, str)
        of = operand.type.parameters[0] if is_optional(operand.type) else operand.type
        object_like = of.kind is TypeKind.OBJECT
        property = _property(of, name.value)
        raw = self._raw(operand) if operand.type.kind in (TypeKind.OBJECT, TypeKind.MAP) else None
        if raw is None:
            return selection.optional_field(self.compile(operand), property, object_like, None)
        return selection.optional_field(raw, property, object_like, self._adapters.of(node.type.parameters[0]))

    # --- loops ------------------------------------------------------------------------------------

    def _comprehension(self, node: ast.Comprehension) -> Code:
        collection = self.compile(node.range)
        init = self.compile(node.init)
        slot = self._enter(node.accumulator)
        if isinstance(node.range, ast.ListLiteral) and not node.range.elements:
            code = loops.bind(init, slot, self.compile(node.result))
            self._leave(node.accumulator)
            return code
        self._loops += 1
        first = self._enter(node.variable)
        second = self._enter(node.second_variable) if node.second_variable else None
        variables = loops.Variables(first, second)
        code = self._loop(node, collection, variables) or self._fold(node, collection, variables, slot, init)
        if node.second_variable:
            self._leave(node.second_variable)
        self._leave(node.variable)
        self._leave(node.accumulator)
        self._loops -= 1
        return code

    def _fold(
        self, node: ast.Comprehension, collection: Code, variables: loops.Variables, slot: int, init: Code
    ) -> Code:
        """The result of a macro has no name of the iteration variables, so it may be compiled in their scope."""
        parts = [self.compile(part) for part in (node.condition, node.step, node.result)]
        return loops.fold(collection, variables, slot, init, *parts)

    def _enter(self, name: str) -> int:
        self._scopes.setdefault(name, []).append(_Variable(self.slots, raw=False))
        self.slots += 1
        return self.slots - 1

    def _leave(self, name: str) -> None:
        self._scopes[name].pop()

    def _loop(self, node: ast.Comprehension, collection: Code, variables: loops.Variables) -> Code | None:
        """The code of a comprehension that a macro made; None for others."""

        def is_accumulator(part: Expression) -> bool:
            return isinstance(part, ast.Identifier) and part.name == node.accumulator == ast.ACCUMULATOR

        if not is_accumulator(node.result):
            return None
        test: Code | None = None
        match node.step:
            case ast.FunctionCall(function=ast.AND | ast.OR, arguments=[accumulator, argument]) if is_accumulator(
                accumulator
            ):
                decisive = node.step.function == ast.OR
                return loops.search(collection, variables, self.compile(argument), decisive=decisive)
            case ast.FunctionCall(function=ast.CONDITIONAL, arguments=[condition, step, rest]) if is_accumulator(rest):
                test = self.compile(condition)
            case step:
                pass
        match step:
            case ast.FunctionCall(function=ast.ADD, arguments=[accumulator, ast.ListLiteral(elements=[element])]) if (
                is_accumulator(accumulator) and isinstance(node.init, ast.ListLiteral) and not node.init.elements
            ):
                creation = costs.LIST_CREATION if self._value(element) is NO_VALUE else 0
                return loops.build_list(collection, variables, test, self.compile(element), creation)
            case ast.FunctionCall(function=ast.MAP_INSERT, arguments=[accumulator, *parts]) if is_accumulator(
                accumulator
            ):
                key = self.compile(parts[0]) if len(parts) == 2 else None
                return loops.build_map(collection, variables, test, key, self.compile(parts[-1]))
        return None


def _property(of: Type, field: str) -> str:
    """The name in JSON of a field of an object or an optional object; None for other selections."""
    of = of.parameters[0] if is_optional(of) else of
    return of.fields[field].property if of.kind is TypeKind.OBJECT else field


def _uncertain(operand: Expression, declared: Type) -> bool:
    """Whether only the value decides if an overload accepts it."""
    return operand.type.kind in _UNKNOWN and declared.kind not in _ANYTHING


def _inside(value: Any) -> Any:
    if type(value) is not OptionalValue:
        raise no_such_overload()
    return value.value


def _list_with_optionals(elements: list[Code], optional: frozenset[int]) -> Code:
    def make(run: Run) -> list[Any]:
        run.spent += costs.LIST_CREATION
        made = []
        for index, element in enumerate(elements):
            value = element(run)
            if index not in optional:
                made.append(value)
            elif value is not NONE:
                made.append(_inside(value))
        return made

    return make


_COMPILERS: Final[Mapping[type, Callable[[Compiler, Any], Code]]] = {
    ast.Identifier: Compiler._identifier,
    ast.Select: Compiler._select,
    ast.FunctionCall: Compiler._call,
    ast.ListLiteral: Compiler._list,
    ast.MapLiteral: Compiler._map,
    ast.StructLiteral: Compiler._struct,
    ast.Comprehension: Compiler._comprehension,
}
_SPECIAL: Final[Mapping[str, Callable[..., Code]]] = {
    ast.AND: calls.logical_and,
    ast.OR: calls.logical_or,
    ast.NOT: calls.negation,
    ast.CONDITIONAL: calls.conditional,
    ast.NOT_STRICTLY_FALSE: calls.not_strictly_false,
}
_LAZY: Final[Mapping[str, Callable[..., Code]]] = {
    optionals.OR: calls.optional_or,
    optionals.OR_VALUE: calls.optional_or_value,
}
_BY_NAME: Final[Mapping[str, Callable[[Compiler, ast.FunctionCall], Code]]] = {
    ast.EQUAL: Compiler._equality,
    ast.NOT_EQUAL: Compiler._equality,
    ast.IN: Compiler._membership,
    ast.INDEX: Compiler._index,
    ast.OPTIONAL_INDEX: Compiler._optional_index,
    ast.OPTIONAL_SELECT: Compiler._optional_select,
}


# --- programs -----------------------------------------------------------------------------------


NOTHING_COMPUTED: Final[Mapping[str, Code]] = MappingProxyType({})


class Program:
    """A compiled expression.  It is immutable, so evaluations may run concurrently."""

    __slots__ = ("_code", "_names", "_spare")

    def __init__(
        self,
        tree: Expression,
        variables: Mapping[str, Type],
        adapters: Adapters,
        computed: Mapping[str, Code] = NOTHING_COMPUTED,
    ) -> None:
        """`computed`: names that are computed instead of given as variables; they may have dots."""
        compiler = Compiler(variables, adapters, computed)
        self._names = tuple(variables)
        self._code = compiler.compile(tree)
        self._spare = [None] * (compiler.slots - len(self._names))

    def start(self, variables: Mapping[str, Any], limit: int = PER_CALL) -> Run:
        return Run([*map(variables.get, self._names), *self._spare], limit)

    def evaluate(self, run: Run) -> Any:
        try:
            value = self._code(run)
        except EvaluationError:
            if run.spent > run.limit:
                raise OverBudget from None
            raise
        except RecursionError:
            raise EvaluationError("evaluation exceeds the depth of nested values") from None
        except calls.UNFIT:
            raise no_such_overload() from None
        if run.spent > run.limit:
            raise OverBudget
        return value
