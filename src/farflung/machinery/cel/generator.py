"""Writes a checked tree as one Python function, and compiles it.

    function = generated(tree, {"self": type}, adapters)
    function(run)       the value; raises only EvaluationError, OverBudget, RecursionError or one of UNFIT

The source has only names of this module and numbers of its own: names and constants of the expression are values in
the namespace of the function, so no text of a user becomes source.  Costs that do not depend on values are added up
here, and counted where a value or an error can leave the function.  A tree whose blocks would nest too deeply is split
into several functions.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from farflung.machinery.cel import calls, selection
from farflung.machinery.cel.adapt import Adapters
from farflung.machinery.cel.language import ast
from farflung.machinery.cel.language.ast import Expression
from farflung.machinery.cel.language.budget import Meter, Metered, OverBudget
from farflung.machinery.cel.language.declarations import Overload
from farflung.machinery.cel.language.equality import equal, is_member
from farflung.machinery.cel.language.types import INT, Type, TypeKind, is_optional
from farflung.machinery.cel.language.values import (
    LEAST_INT,
    LISTS,
    MAX_INT,
    NONE,
    EvaluationError,
    OptionalValue,
    UInt,
    no_such_key,
    no_such_overload,
    type_value,
)
from farflung.machinery.cel.library import costs, operators, optionals, regexes
from farflung.machinery.cel.selection import Run

NO_VALUE: Final = object()
MAX_NESTED: Final = 8  #: blocks in a function; Python allows 20 loops and `try` blocks

#: conversions of literals, which are evaluated once
_CONVERSIONS: Final = frozenset({"bool", "bytes", "double", "duration", "int", "string", "timestamp", "uint"})
_UNKNOWN: Final = frozenset({TypeKind.DYN, TypeKind.ERROR, TypeKind.PARAMETER})
_ANYTHING: Final = frozenset({TypeKind.DYN, TypeKind.PARAMETER})
_ITERABLE: Final = LISTS | {dict}

#: implementations that are written as operators: the operator, the type of its result, and whether it may overflow
_OPERATORS: Final[dict[Any, tuple[str, type | None, bool]]] = {
    operator.lt: ("<", bool, False),
    operator.le: ("<=", bool, False),
    operator.gt: (">", bool, False),
    operator.ge: (">=", bool, False),
    operators.add_int: ("+", int, True),
    operators.subtract_int: ("-", int, True),
    operators.multiply_int: ("*", int, True),
    operator.add: ("+", None, False),
    operator.sub: ("-", None, False),
    operator.mul: ("*", None, False),
}
_INT_OPERATORS: Final[Mapping[str, tuple[str, type | None, bool]]] = {
    ast.LESS: ("<", bool, False),
    ast.LESS_EQUAL: ("<=", bool, False),
    ast.GREATER: (">", bool, False),
    ast.GREATER_EQUAL: (">=", bool, False),
    ast.ADD: ("+", int, True),
    ast.SUBTRACT: ("-", int, True),
    ast.MULTIPLY: ("*", int, True),
}
#: costs of texts as source; a tenth of a character costs one, rounded up
_TEXT_COSTS: Final[dict[Any, str]] = {
    costs.of_text: "(len({0}) + 9) // 10",
    costs.of_both: "(len({0}) + len({1}) + 9) // 10",
    costs.of_smaller: "(min(len({0}), len({1})) + 9) // 10",
    costs.of_product: "((len({0}) + 9) // 10) * ((len({1}) + 9) // 10)",
}

#: names of the generated source that every function may use
_NAMESPACE: Final[Mapping[str, Any]] = {
    "__builtins__": {"len": len, "type": type, "min": min, "enumerate": enumerate},
    "ABSENT": selection.ABSENT,
    "EvaluationError": EvaluationError,
    "LEAST_INT": LEAST_INT,
    "LISTS": LISTS,
    "ITERABLE": _ITERABLE,
    "KEYS": selection.KEYS,
    "MAX_INT": MAX_INT,
    "NONE": NONE,
    "NOTHING": selection.NOTHING,
    "OptionalValue": OptionalValue,
    "OverBudget": OverBudget,
    "UNFIT": calls.UNFIT,
    "bool": bool,
    "dict": dict,
    "int": int,
    "list": list,
    "str": str,
    "equal": equal,
    "found_field": selection.found_field,
    "has_field": selection.has_field,
    "indexed": selection.indexed,
    "insert": selection.insert,
    "is_member": is_member,
    "no_such_key": no_such_key,
    "no_such_overload": no_such_overload,
    "of_equality": costs.of_equality,
    "optional_at": selection.optional_at,
    "optional_field": selection.optional_field,
    "overflow": operators.overflow,
}

_Block = list[Any]  #: lines; a header is followed by its _Block


class _Value(NamedTuple):
    """A part of an expression in the source: a name, and the type of its value if that is certain."""

    name: str
    kind: type | None = None


class _Variable(NamedTuple):
    value: _Value
    slot: int = -1  #: of the Run, if it is a JSON value that is not adapted yet


class Computed(NamedTuple):
    """A name that a variable computes: `variable.value(key)`."""

    variable: str
    key: str


NOTHING_COMPUTED: Final[Mapping[str, Computed]] = MappingProxyType({})


def generated(
    tree: Expression,
    variables: Mapping[str, Type],
    adapters: Adapters,
    computed: Mapping[str, Computed] = NOTHING_COMPUTED,
) -> Callable[[Run], Any]:
    """`computed`: names that are computed instead of given as variables; they may have dots."""
    generator = _Generator(variables, adapters, computed)
    name = generator.function(tree)
    namespace = {**_NAMESPACE, **generator.constants}
    exec(compile(generator.source(), "<cel>", "exec"), namespace)  # noqa: S102 - the source has no text of users
    function: Callable[[Run], Any] = namespace[name]
    return function


class _Generator:
    """Every method `_name(node)` writes the code of a node, and returns its value.

    `pending` is the cost that is known but not written yet."""

    def __init__(self, variables: Mapping[str, Type], adapters: Adapters, computed: Mapping[str, Computed]) -> None:
        self._adapters = adapters
        self._computed = computed
        self._scopes = {name: [_Variable(_Value(f"s{slot}"), slot)] for slot, name in enumerate(variables)}
        self._locals: list[str] = []  #: names of loops and bindings around the current node
        self._values: dict[int, Any] = {}
        self._loops = 0  #: number of loops around the current node
        self._named = 0
        self._functions: list[tuple[str, _Block]] = []
        self._constant_names: dict[int, str] = {}
        self.constants: dict[str, Any] = {}
        # of the current function
        self._block: _Block = []
        self._blocks: list[_Block] = []  #: around the current one
        self._slots: set[int] = set()
        self._pending = 0
        self._raising = False  #: whether an EvaluationError may leave what was written since this was reset

    # --- source -----------------------------------------------------------------------------------

    def source(self) -> str:
        lines: list[str] = []
        for header, body in self._functions:
            lines.append(header)
            _indent(body, 1, lines)
        return "\n".join(lines)

    def function(self, tree: Expression) -> str:
        """Write a function of the current locals, and return its name."""
        outer = self._block, self._blocks, self._slots, self._pending
        self._block, self._blocks, self._slots, self._pending = [], [], set(), 0
        value = self._code(tree)
        self._flush()
        self._line(f"return {value.name}")
        body = self._block
        name = self._name("f")
        start = [f"s{slot} = slots[{slot}]" for slot in sorted(self._slots)]
        whole: _Block = ["spent = run.spent", "limit = run.limit", *(["slots = run.slots"] if start else []), *start]
        whole += ["try:", body, "finally:", ["run.spent = spent"]]
        self._functions.append((f"def {name}({self._arguments()}):", whole))
        self._block, self._blocks, self._slots, self._pending = outer
        return name

    def _arguments(self) -> str:
        return ", ".join(dict.fromkeys(["run", *self._locals]))

    def _name(self, letter: str) -> str:
        self._named += 1
        return f"{letter}{self._named}"

    def _line(self, text: str) -> None:
        self._block.append(text)

    def _set(self, text: str, kind: type | None = None) -> _Value:
        value = _Value(self._name("v"), kind)
        self._line(f"{value.name} = {text}")
        return value

    def _constant(self, constant: Any) -> str:
        name = self._constant_names.get(id(constant))
        if name is None:
            name = self._constant_names[id(constant)] = self._name("k")
            self.constants[name] = constant  # kept, so its id is not used again
        return name

    def _open(self, header: str) -> None:
        self._line(header)
        inner: _Block = []
        self._line_block(inner)
        self._blocks.append(self._block)
        self._block = inner

    def _line_block(self, block: _Block) -> None:
        self._block.append(block)

    def _close(self) -> None:
        if not self._block:
            self._line("pass")
        self._block = self._blocks.pop()

    # --- costs and errors -------------------------------------------------------------------------

    def _flush(self) -> None:
        if self._pending:
            self._line(f"spent += {self._pending}")
            self._pending = 0

    def _counted(self) -> list[str]:
        """The lines that count the pending cost before an error."""
        return [f"spent += {self._pending}"] if self._pending else []

    def _raise_if(self, condition: str, error: str) -> None:
        self._raising = True
        self._line(f"if {condition}:")
        self._line_block([*self._counted(), f"raise {error}"])

    def _join(self, *branches: tuple[_Block, int]) -> None:
        """Go on after alternatives with their pending costs."""
        least = min(pending for _, pending in branches)
        for block, pending in branches:
            if pending > least:
                block.append(f"spent += {pending - least}")
        self._pending = least

    def _check_limit(self, least: int = 0) -> None:
        """End the evaluation if its cost exceeds the limit, or would with the pending cost."""
        self._line(f"if spent + {least} > limit:" if least else "if spent > limit:")
        self._line_block([*([f"spent += {least}"] if least else []), "raise OverBudget"])

    def _try(self, text: str, kind: type | None = None, *more: str) -> _Value:
        """The value of a call that cannot raise an EvaluationError, unless its operands do not have their types."""
        value = _Value(self._name("v"), kind)
        self._raising = True
        self._line("try:")
        self._line_block([f"{value.name} = {text}", *more])
        self._line("except UNFIT:")
        self._line_block([*self._counted(), "raise no_such_overload() from None"])
        return value

    def _in_function(self, call: str) -> _Value:
        """The value of a call that counts its own cost."""
        self._flush()
        self._raising = True
        value = _Value(self._name("v"))
        self._line("run.spent = spent")
        self._line("try:")
        self._line_block([f"{value.name} = {call}"])
        self._line("finally:")
        self._line_block(["spent = run.spent", "limit = run.limit"])
        return value

    # --- nodes ------------------------------------------------------------------------------------

    def _code(self, node: Expression) -> _Value:
        constant = self.value(node)
        if constant is not NO_VALUE:
            return _Value(self._constant(constant), type(constant))
        if self._is_raw(node):
            value = self._raw(node)
            adapter = self._adapters.of(node.type)
            if adapter is None:
                return value
            self._flush()
            self._raising = True
            name = value.name
            return self._set(f"None if {name} is None else {self._constant(adapter)}(run, {name})")
        if len(self._blocks) > MAX_NESTED and type(node) in _NESTING:
            return self._in_function(f"{self.function(node)}({self._arguments()})")
        more: Sequence[Any] = ()
        if type(node) is ast.Comprehension:
            writer, *more = self._loop_of(node)
        elif type(node) is ast.FunctionCall:
            writer = _BY_FUNCTION.get(node.function, _Generator._call)
        else:
            writer = _WRITERS[type(node)]
        written: _Value = writer(self, node, *more)
        return written

    # --- constants --------------------------------------------------------------------------------

    def value(self, node: Expression) -> Any:
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
                values = [self.value(element) for element in node.elements]
                return NO_VALUE if NO_VALUE in values else values
            case ast.MapLiteral():
                return self._map_value(node)
            case ast.FunctionCall(function=function, arguments=[argument], target=None) if function in _CONVERSIONS:
                return self._converted(node, self.value(argument))
        return NO_VALUE

    def _map_value(self, node: ast.MapLiteral) -> Any:
        value = {}
        for entry in node.entries:
            key, inner = self.value(entry.key), self.value(entry.value)
            if entry.optional or NO_VALUE in (key, inner) or type(key) not in selection.KEYS:
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

    def _is_raw(self, node: Expression) -> bool:
        """Whether the node is a path into a variable that is not adapted yet."""
        while True:
            match node:
                case ast.Select(test_only=False, operand=operand) if operand.type.kind in _OBJECTS:
                    node = operand
                case ast.FunctionCall(function=ast.INDEX, arguments=[operand, _]) if operand.type.kind in _CONTAINERS:
                    node = operand
                case ast.Identifier(denotes=None, name=name) if name not in self._computed:
                    return self._scopes[name][-1].slot >= 0
                case _:
                    return False

    def _raw(self, node: Expression) -> _Value:
        """The JSON value of a path."""
        path = self._path(node)
        if path is not None:
            variable, steps = path
            return self._fields(variable, steps)
        if type(node) is ast.Select:
            return self._selected(self._raw(node.operand), node.operand.type, node.field)
        assert type(node) is ast.FunctionCall
        operand, key = node.arguments
        return self._indexed(self._raw(operand), key)

    def _path(self, node: Expression) -> tuple[_Variable, list[tuple[str, str]]] | None:
        """The variable and its fields, each by property and name; None if a part is no field of an object."""
        steps: list[tuple[str, str]] = []
        while type(node) is ast.Select and not node.test_only and node.operand.type.kind is TypeKind.OBJECT:
            steps.append((node.operand.type.fields[node.field].property, node.field))
            node = node.operand
        if type(node) is not ast.Identifier or node.denotes is not None or node.name in self._computed:
            return None
        variable = self._scopes[node.name][-1]
        return (variable, steps[::-1]) if variable.slot >= 0 else None

    def _fields(self, variable: _Variable, steps: list[tuple[str, str]]) -> _Value:
        """Fields of fields of a variable that is an object or null."""
        self._slots.add(variable.slot)
        self._pending += 1 + len(steps)
        value = variable.value
        for at, (property, name) in enumerate(steps):
            of = value.name if at else f"({value.name} or NOTHING)"
            value = self._set(f"{of}.get({self._constant(property)})")
            self._raise_if(f"{value.name} is None", f"no_such_key({self._constant(name)})")
        return value

    def _selected(self, operand: _Value, of: Type, field: str) -> _Value:
        name = self._constant(field)
        if of.kind is TypeKind.OBJECT:
            value = self._set(f"{operand.name}.get({self._constant(of.fields[field].property)})")
            missing = "None"
        else:
            missing = "ABSENT"
            if of.kind is TypeKind.MAP:
                value = self._set(f"{operand.name}.get({name}, ABSENT)")
            else:
                name = self._constant(_property(of, field))
                found = f"found_field({operand.name}, {name})"
                value = self._set(f"{operand.name}.get({name}, ABSENT) if type({operand.name}) is dict else {found}")
        self._pending += 1
        self._raise_if(f"{value.name} is {missing}", f"no_such_key({name})")
        return value

    def _indexed(self, operand: _Value, key: Expression) -> _Value:
        """A path of fields as an index is a part of the path, and has no further cost."""
        wanted = self._code(key)
        self._pending += 0 if isinstance(key, ast.Identifier | ast.Select) else 1
        self._flush()
        self._raising = True
        return self._set(f"indexed({operand.name}, {wanted.name})")

    # --- variables, fields, literals --------------------------------------------------------------

    def _identifier(self, node: ast.Identifier) -> _Value:
        if node.name in self._computed:
            computed = self._computed[node.name]
            variable = self._scopes[computed.variable][-1]
            self._slots.add(variable.slot)
            self._pending += 2  # a variable, and a field of it
            self._flush()
            self._raising = True
            return self._set(f"{variable.value.name}.value({self._constant(computed.key)})")
        self._pending += 1
        return self._scopes[node.name][-1].value

    def _select(self, node: ast.Select) -> _Value:
        of = node.operand.type
        if not node.test_only:
            return self._selected(self._code(node.operand), of, node.field)
        path = self._path(node.operand)
        if of.kind is TypeKind.OBJECT and path is not None:
            variable, steps = path
            value = self._fields(variable, steps).name
            value = value if steps else f"({value} or NOTHING)"
            return self._set(f"{value}.get({self._constant(of.fields[node.field].property)}) is not None", bool)
        operand = self._raw(node.operand) if self._is_raw(node.operand) else self._code(node.operand)
        if of.kind is TypeKind.OBJECT:
            property = self._constant(of.fields[node.field].property)
            return self._set(f"{operand.name}.get({property}) is not None", bool)
        return self._set(f"has_field({operand.name}, {self._constant(_property(of, node.field))})", bool)

    def _list(self, node: ast.ListLiteral) -> _Value:
        self._pending += costs.LIST_CREATION
        if node.optional_indices:
            return self._list_with_optionals(node)
        names: list[str] = []
        for element in node.elements:
            names.append(self._code(element).name)
        return self._set(f"[{', '.join(names)}]", list)

    def _list_with_optionals(self, node: ast.ListLiteral) -> _Value:
        made = self._set("[]", list)
        for at, element in enumerate(node.elements):
            value = self._code(element).name
            if at not in node.optional_indices:
                self._line(f"{made.name}.append({value})")
                continue
            self._raise_if(f"type({value}) is not OptionalValue", "no_such_overload()")
            self._line(f"if {value} is not NONE:")
            self._line_block([f"{made.name}.append({value}.value)"])
        return made

    def _map(self, node: ast.MapLiteral) -> _Value:
        self._pending += costs.MAP_CREATION
        made = self._set("{}", dict)
        unsupported = f"EvaluationError({self._constant('unsupported key type')})"
        for entry in node.entries:
            key = self._code(entry.key)
            value = self._code(entry.value).name
            if key.kind not in selection.KEYS:
                self._raise_if(f"type({key.name}) not in KEYS", unsupported)
            if entry.optional:
                self._raise_if(f"type({value}) is not OptionalValue", "no_such_overload()")
                self._line(f"if {value} is not NONE:")
                self._line_block([f"{made.name}[{key.name}] = {value}.value"])
            else:
                self._line(f"{made.name}[{key.name}] = {value}")
        return made

    def _struct(self, node: ast.StructLiteral) -> _Value:
        self._raise_if("True", f"EvaluationError({self._constant(f'unknown type: {node.name}')})")
        return self._set("None")

    # --- calls ------------------------------------------------------------------------------------

    def _call(self, node: ast.FunctionCall) -> _Value:
        operands = node.arguments if node.target is None else [node.target, *node.arguments]
        if len(node.overloads) == 1 and node.overloads[0].id in (optionals.OR, optionals.OR_VALUE):
            return self._optional_or(node, *operands)
        values: list[_Value] = []
        for operand in operands:
            values.append(self._code(operand))
        if len(node.overloads) > 1:
            return self._dispatch(node, node.overloads, values)
        overload = node.overloads[0]
        if any(map(_uncertain, operands, overload.arguments)):
            return self._dispatch(node, (overload,), values)
        if overload.id in regexes.WITH_COMPILED and isinstance(operands[1], ast.Literal):
            try:
                pattern = regexes.compiled(str(operands[1].value))
            except EvaluationError:
                return self._apply(overload, values)
            return self._match(overload, pattern, values)
        return self._apply(overload, values)

    def _apply(self, overload: Overload, values: list[_Value]) -> _Value:
        """Call the one overload that matches the static types."""
        implementation, cost = overload.implementation, overload.cost
        assert implementation is not None
        if cost is None and implementation in _OPERATORS:
            self._pending += 1
            return self._operator(*_OPERATORS[implementation], *values)
        if cost is None and implementation is len:
            self._pending += 1
            return self._try(f"len({values[0].name})", int)
        names = ", ".join([value.name for value in values])
        if isinstance(implementation, Metered):
            call = f"{self._constant(implementation.function)}({', '.join(['run', *(value.name for value in values)])})"
        else:
            call = f"{self._constant(implementation)}({names})"
        work = costs.SLOW_CALLS.get(overload.id)
        if cost is None and not work and not isinstance(implementation, Metered) and len(values) in (1, 2):
            self._pending += 1
            self._flush()
            return self._try(call)
        if cost in costs.AFTERWARDS:
            self._flush()
            value = self._try(call)
            self._line(f"spent += {self._constant(cost)}(({names},), {value.name})")
            self._line("limit = run.limit")
            self._check_limit()
            return value
        self._pay(cost, values)
        if work:
            self._line(f"run.work({work})")
        if implementation in _OPERATORS:
            return self._operator(*_OPERATORS[implementation], *values)
        return self._try(call)

    def _pay(self, cost: Any, values: list[_Value]) -> None:
        """Count the cost of a call before it."""
        if cost is None:
            self._pending += 1
            self._flush()
            self._check_limit()
            return
        self._flush()
        self._raising = True
        names = [value.name for value in values]
        general = f"{self._constant(cost)}(({', '.join(names)},), None)"
        template = _TEXT_COSTS.get(cost)
        if template is not None:
            unsure = [name for name, kind in values[: 1 + template.count("{1}")] if kind is not str]
            are_texts = " and ".join(f"type({name}) is str" for name in unsure)
            general = f"{template.format(*names)} if {are_texts} else {general}" if unsure else template.format(*names)
        self._line("try:")
        self._line_block([f"spent += {general}"])
        self._line("except UNFIT:")
        self._line_block(["raise no_such_overload() from None"])
        self._check_limit()

    def _operator(self, symbol: str, kind: type | None, overflows: bool, left: _Value, right: _Value) -> _Value:
        text = f"{left.name} {symbol} {right.name}"
        certain = left.kind is int and right.kind is int
        if not overflows:
            return self._set(text, kind) if certain else self._try(text, kind)
        if certain:
            value = self._set(text, int)
            self._raise_if(f"not LEAST_INT <= {value.name} <= MAX_INT", "overflow()")
            return value
        value = _Value(self._name("v"))
        self._raising = True
        self._line("try:")
        overflow = f"if not LEAST_INT <= {value.name} <= MAX_INT:"
        self._line_block([f"{value.name} = {text}", overflow, [*self._counted(), "raise overflow()"]])
        self._line("except UNFIT:")
        self._line_block([*self._counted(), "raise no_such_overload() from None"])
        return value

    def _dispatch(self, node: ast.FunctionCall, overloads: tuple[Overload, ...], values: list[_Value]) -> _Value:
        """Call the first overload that matches the values; numbers are added and compared at once."""
        dispatcher = self._constant(calls.OverloadDispatcher(node.function, overloads))
        call = f"{dispatcher}(run, ({', '.join([value.name for value in values])},))"
        plain = _INT_OPERATORS.get(node.function) if len(values) == 2 else None
        ints = any(overload.arguments == (INT, INT) for overload in overloads)
        unsure = [value.name for value in values if value.kind is not int]
        if plain is None or not ints or any(value.kind not in (int, None) for value in values):
            return self._in_function(call)
        before = self._pending
        self._open(f"if {' and '.join([f'type({name}) is int' for name in unsure])}:" if unsure else "if True:")
        self._pending += 1
        left, right = values
        quick = self._operator(*plain, _Value(left.name, int), _Value(right.name, int))
        block, pending = self._block, self._pending
        self._close()
        self._pending = before
        self._open("else:")
        slow = self._in_function(call)
        self._line(f"{quick.name} = {slow.name}")
        other, after = self._block, self._pending
        self._close()
        self._join((block, pending), (other, after))
        return _Value(quick.name)

    def _match(self, overload: Overload, pattern: Any, values: list[_Value]) -> _Value:
        """A match against a compiled pattern; the second argument is its text."""
        text, written, *rest = [value.name for value in values]
        self._flush()
        self._line(f"spent += {self._constant(costs.of_match)}(({text}, {written}), None)")
        self._check_limit()
        implementation = self._constant(regexes.WITH_COMPILED[overload.id])
        arguments = ", ".join(["run", text, self._constant(pattern), *rest])
        return self._try(f"{implementation}({arguments})")

    def _optional_or(self, node: ast.FunctionCall, optional: Expression, otherwise: Expression) -> _Value:
        value = self._code(optional)
        self._raise_if(f"type({value.name}) is not OptionalValue", "no_such_overload()")
        result = self._set(value.name if node.overloads[0].id == optionals.OR else f"{value.name}.value")
        before = self._pending
        self._open(f"if {value.name} is NONE:")
        other = self._code(otherwise)
        self._line(f"{result.name} = {other.name}")
        block, pending = self._block, self._pending
        self._close()
        self._line("else:")
        rest: _Block = []
        self._line_block(rest)
        self._join((block, pending), (rest, before))
        if not rest:
            rest.append("pass")
        return result

    # --- equality ---------------------------------------------------------------------------------

    def _equality(self, node: ast.FunctionCall) -> _Value:
        left, right = node.arguments
        negation = "not " if node.function == ast.NOT_EQUAL else ""
        symbol = "!=" if negation else "=="
        plain = not self._loops and self._adapters.plain(left.type) and self._adapters.plain(right.type)
        if plain and self._is_raw(left) and self._is_raw(right):
            one, other = self._raw(left).name, self._raw(right).name
            self._flush()
            self._line(f"spent += of_equality(({one}, {other}), None)")
            return self._set(f"{one} {symbol} {other}", bool)
        values = [self._code(left), self._code(right)]
        one, other = values[0].name, values[1].name
        kind = _quickly_compared(left.type, right.type, values)
        general = [f"spent += of_equality(({one}, {other}), None)"]
        result = _Value(self._name("v"), bool)
        self._flush()
        compared = f"{result.name} = {negation}equal(run, {one}, {other})"
        if kind is None:
            self._raising = True
            self._block += [*general, compared]
            return result
        cost = f"(min(len({one}), len({other})) + 9) // 10" if kind is str else "1"
        quick = [f"spent += {cost}", f"{result.name} = {one} {symbol} {other}"]
        unsure = [value.name for value in values if value.kind is not kind]
        if not unsure:
            self._block += quick
            return result
        self._raising = True
        self._line(f"if {' and '.join([f'type({name}) is {kind.__name__}' for name in unsure])}:")
        self._block += [quick, "else:", [*general, compared]]
        return result

    def _membership(self, node: ast.FunctionCall) -> _Value:
        wanted, container = node.arguments
        elements = self.value(container)
        value = self._code(wanted)
        if type(elements) is list and calls.is_simple(elements):
            if all(type(element) is str for element in elements):
                texts = self._constant(frozenset(elements))
                return self._set(f"type({value.name}) is str and {value.name} in {texts}", bool)
            self._flush()
            self._raising = True
            return self._set(f"is_member(run, {value.name}, {self._constant(elements)})", bool)
        values = [value, self._code(container)]
        if len(node.overloads) == 1 and container.type.kind not in _UNKNOWN:
            return self._apply(node.overloads[0], values)
        return self._dispatch(node, node.overloads, values)

    def _index(self, node: ast.FunctionCall) -> _Value:
        operand, key = node.arguments
        return self._indexed(self._code(operand), key)

    def _optional_index(self, node: ast.FunctionCall) -> _Value:
        operand, key = self._code(node.arguments[0]), self._code(node.arguments[1])
        self._pending += 1
        self._flush()
        self._raising = True
        return self._set(f"optional_at({operand.name}, {key.name})")

    def _optional_select(self, node: ast.FunctionCall) -> _Value:
        operand, name = node.arguments
        assert isinstance(name, ast.Literal) and isinstance(name.value, str)
        of = operand.type.parameters[0] if is_optional(operand.type) else operand.type
        property = self._constant(_property(of, name.value))
        adapter = None
        if operand.type.kind in _OBJECTS and self._is_raw(operand):
            value = self._raw(operand)
            adapter = self._adapters.of(node.type.parameters[0])
        else:
            value = self._code(operand)
        self._pending += 1
        self._flush()
        self._raising = True
        of_object = self._constant(of.kind is TypeKind.OBJECT)
        return self._set(f"optional_field(run, {value.name}, {property}, {of_object}, {self._constant(adapter)})")

    # --- logic ------------------------------------------------------------------------------------

    def _logical(self, node: ast.FunctionCall) -> _Value:
        """The decisive value on either side is the result, even if the other side is an error."""
        decisive = "True" if node.function == ast.OR else "False"
        result = _Value(self._name("v"), bool)
        error = self._name("e")
        outer, self._raising = self._raising, False
        self._open("try:")
        first = self._code(node.arguments[0])
        left, left_raises = self._block, self._raising
        self._close()
        if left_raises:
            left += [*self._counted(), f"{result.name} = {first.name}"]
            self._pending = 0
            del self._block[-2:]
            caught = [f"{error} = caught.with_traceback(None)", f"{result.name} = None"]
            self._block += [f"{error} = None", "try:", left, "except EvaluationError as caught:", caught]
        else:
            del self._block[-2:]
            self._block += [*(left if left != ["pass"] else ()), f"{result.name} = {first.name}"]
        before, self._raising = self._pending, False
        self._open(f"if {result.name} is not {decisive}:")
        self._open("try:")
        second = self._code(node.arguments[1])
        right, right_raises = self._block, self._raising
        self._close()
        del self._block[-2:]
        if left_raises and right_raises:
            right += self._counted()
            self._pending = 0
            again = [f"if {error} is not None:", [f"raise {error} from None"], "raise"]
            self._block += ["try:", right or ["pass"], "except EvaluationError:", again]
        else:
            self._block += right if right != ["pass"] else ()
        if left_raises:
            self._raise_if(f"{error} is not None and {second.name} is not {decisive}", error)
        unsure = [name for name, kind in (first._replace(name=result.name), second) if kind is not bool]
        if unsure:
            wrong = " or ".join(f"type({name}) is not bool" for name in unsure)
            self._raise_if(f"{second.name} is not {decisive} and ({wrong})", "no_such_overload()")
        self._line(f"{result.name} = {second.name}")
        raises = self._raising
        block, pending = self._block, self._pending
        self._close()
        if pending > before:
            block.append(f"spent += {pending - before}")
            self._pending = before
        elif pending < before:  # the other branch counts the difference
            self._block += ["else:", [f"spent += {before - pending}"]]
            self._pending = pending
        self._raising = outer or raises
        return result

    def _conditional(self, node: ast.FunctionCall) -> _Value:
        condition = self._code(node.arguments[0])
        if condition.kind is not bool:
            self._raise_if(f"type({condition.name}) is not bool", "no_such_overload()")
        result = self._name("v")
        before = self._pending
        self._open(f"if {condition.name}:")
        then = self._code(node.arguments[1])
        self._line(f"{result} = {then.name}")
        first, pending = self._block, self._pending
        self._close()
        self._pending = before
        self._open("else:")
        otherwise = self._code(node.arguments[2])
        self._line(f"{result} = {otherwise.name}")
        second, other = self._block, self._pending
        self._close()
        self._join((first, pending), (second, other))
        return _Value(result, then.kind if then.kind is otherwise.kind else None)

    def _negation(self, node: ast.FunctionCall) -> _Value:
        value = self._code(node.arguments[0])
        self._pending += 1
        if value.kind is not bool:
            self._raise_if(f"type({value.name}) is not bool", "no_such_overload()")
        return self._set(f"not {value.name}", bool)

    def _not_strictly_false(self, node: ast.FunctionCall) -> _Value:
        self._pending += 1
        outer = self._raising
        result = _Value(self._name("v"), bool)
        self._flush()
        self._open("try:")
        value = self._code(node.arguments[0])
        self._flush()
        self._line(f"{result.name} = {value.name} is not False")
        self._close()
        self._block += ["except EvaluationError:", [f"{result.name} = True"]]
        self._raising = outer
        return result

    # --- loops ------------------------------------------------------------------------------------

    def _bind(self, node: ast.Comprehension) -> _Value:
        value = self._code(node.init)
        if node.accumulator not in self._scopes:
            self._scopes[node.accumulator] = []
        self._scopes[node.accumulator].append(_Variable(value))
        self._locals.append(value.name)
        then = self._code(node.result)
        self._locals.pop()
        self._scopes[node.accumulator].pop()
        return then

    def _elements(self, node: ast.Comprehension) -> str:
        """The values of the loop: elements or keys, or pairs of index or key and value for two variables."""
        collection = self._code(node.range)
        if collection.kind not in _ITERABLE:
            self._raise_if(f"type({collection.name}) not in ITERABLE", "no_such_overload()")
        if not node.second_variable:
            return collection.name
        name = collection.name
        return self._set(f"enumerate({name}) if type({name}) in LISTS else {name}.items()").name

    def _open_loop(self, node: ast.Comprehension, elements: str, least: int | None) -> None:
        """The head of the loop.  `least`: the cost of each step before its check; None: it is not checked here."""
        self._flush()
        names = []
        for name in (node.variable, node.second_variable):
            if name:
                value = self._name("x")
                names.append(value)
                self._scopes.setdefault(name, []).append(_Variable(_Value(value)))
                self._locals.append(value)
        self._loops += 1
        self._open(f"for {', '.join(names)} in {elements}:")
        if least is not None:
            self._check_limit(least)
            self._pending = least

    def _close_loop(self, node: ast.Comprehension) -> None:
        self._close()
        self._loops -= 1
        for name in (node.second_variable, node.variable):
            if name:
                self._scopes[name].pop()
                self._locals.pop()

    def _loop_of(self, node: ast.Comprehension) -> tuple[Any, ...]:
        """The writer of a comprehension, and its further arguments."""

        def is_accumulator(part: Expression) -> bool:
            return isinstance(part, ast.Identifier) and part.name == node.accumulator == ast.ACCUMULATOR

        if isinstance(node.range, ast.ListLiteral) and not node.range.elements:
            return (_Generator._bind,)
        if not is_accumulator(node.result):
            return (_Generator._fold,)
        test: Expression | None = None
        match node.step:
            case ast.FunctionCall(function=ast.AND | ast.OR, arguments=[accumulator, argument]) if is_accumulator(
                accumulator
            ):
                return _Generator._search, argument, node.step.function == ast.OR
            case ast.FunctionCall(function=ast.CONDITIONAL, arguments=[condition, step, rest]) if is_accumulator(rest):
                test = condition
            case step:
                pass
        match step:
            case ast.FunctionCall(function=ast.ADD, arguments=[accumulator, ast.ListLiteral(elements=[element])]) if (
                is_accumulator(accumulator) and isinstance(node.init, ast.ListLiteral) and not node.init.elements
            ):
                return _Generator._build_list, test, element
            case ast.FunctionCall(function=ast.MAP_INSERT, arguments=[accumulator, *parts]) if is_accumulator(
                accumulator
            ):
                return _Generator._build_map, test, parts
        return (_Generator._fold,)

    def _search(self, node: ast.Comprehension, argument: Expression, decisive: bool) -> _Value:
        """`all`, which a false test decides, and `exists`, which a true one does; errors matter only if none does."""
        elements = self._elements(node)
        outer = self._raising
        result = self._set(str(not decisive), bool)
        error = self._name("e")
        self._line(f"{error} = None")
        self._pending += 1
        self._open_loop(node, elements, 4 if decisive else 3)
        self._raising = False
        self._open("try:")
        outcome = self._code(argument)
        self._flush()
        raises = self._raising
        found = [f"{result.name} = {decisive}", "break"]
        self._block += [f"if {outcome.name} is {decisive}:", found]
        first = f"if {error} is None:"
        if outcome.kind is not bool:
            raises_later = True
            self._block += [f"if type({outcome.name}) is not bool:", [first, [f"{error} = no_such_overload()"]]]
        else:
            raises_later = raises
        body = self._block
        self._close()
        if raises:
            self._block += ["except EvaluationError as caught:", [first, [f"{error} = caught.with_traceback(None)"]]]
        else:
            del self._block[-2:]
            self._block += body
        self._close_loop(node)
        self._raising = outer
        if raises_later:
            self._raise_if(f"{error} is not None and {result.name} is not {decisive}", error)
        return result

    def _tested(self, test: Expression | None) -> None:
        """Continue the loop if an element does not pass; it costs one read of the unchanged accumulator."""
        if test is None:
            return
        outcome = self._code(test)
        self._line(f"if {outcome.name} is not True:")
        failed: _Block = [f"spent += {self._pending + 1}"]
        if outcome.kind is not bool:
            self._raising = True
            failed += [f"if {outcome.name} is not False:", ["raise no_such_overload()"]]
        self._line_block([*failed, "continue"])

    def _build_list(self, node: ast.Comprehension, test: Expression | None, element: Expression) -> _Value:
        """`map` and `filter`."""
        creation = costs.LIST_CREATION if self.value(element) is NO_VALUE else 0
        self._pending += 1
        elements = self._elements(node)
        built = self._set("[]", list)
        self._open_loop(node, elements, 0)
        self._tested(test)
        value = self._code(element)
        self._line(f"{built.name}.append({value.name})")
        self._pending += 2 + creation
        self._flush()
        self._close_loop(node)
        return built

    def _build_map(self, node: ast.Comprehension, test: Expression | None, parts: list[Expression]) -> _Value:
        """`transformMap`, and, without a key, `transformMapEntry`, whose values are maps of the entries to add."""
        self._pending += 1
        elements = self._elements(node)
        built = self._set("{}", dict)
        self._open_loop(node, elements, 0)
        self._tested(test)
        self._pending += 2
        key = self._code(parts[0]) if len(parts) == 2 else None
        value = self._code(parts[-1])
        entries = value.name if key is None else f"{{{key.name}: {value.name}}}"
        self._flush()
        self._raising = True
        self._line(f"insert({built.name}, {entries})")
        self._close_loop(node)
        return built

    def _fold(self, node: ast.Comprehension) -> _Value:
        """Any other comprehension."""
        elements = self._elements(node)
        init = self._code(node.init)
        accumulated = self._set(init.name)
        self._scopes.setdefault(node.accumulator, []).append(_Variable(accumulated))
        self._locals.append(accumulated.name)
        self._open_loop(node, elements, None)
        if self.value(node.condition) is not True:
            condition = self._code(node.condition)
            self._flush()
            self._block += [f"if {condition.name} is False:", ["break"]]
        step = self._code(node.step)
        self._flush()
        self._line(f"{accumulated.name} = {step.name}")
        self._check_limit()
        self._close_loop(node)
        result = self._code(node.result)
        self._locals.pop()
        self._scopes[node.accumulator].pop()
        return result


def _indent(block: _Block, level: int, lines: list[str]) -> None:
    for line in block:
        if type(line) is list:
            _indent(line, level + 1, lines)
        else:
            lines.append(" " * level + line)


def _quickly_compared(left: Type, right: Type, values: Iterable[_Value]) -> type | None:
    """The type that the values probably have, if Python compares them at once."""
    for of in (left, right):
        if of.kind is TypeKind.STRING:
            return str
        if of.kind is TypeKind.INT:
            return int
    return None


def _property(of: Type, field: str) -> str:
    """The name in JSON of a field of an object or an optional object; the field itself in other selections."""
    of = of.parameters[0] if is_optional(of) else of
    return of.fields[field].property if of.kind is TypeKind.OBJECT else field


def _uncertain(operand: Expression, declared: Type) -> bool:
    """Whether only the value decides if an overload accepts it."""
    return operand.type.kind in _UNKNOWN and declared.kind not in _ANYTHING


_OBJECTS: Final = (TypeKind.OBJECT, TypeKind.MAP)
_CONTAINERS: Final = (TypeKind.LIST, TypeKind.MAP)
_NESTING: Final = frozenset({ast.FunctionCall, ast.Comprehension, ast.MapLiteral, ast.ListLiteral})
_WRITERS: Final[Mapping[type, Callable[[_Generator, Any], _Value]]] = {
    ast.Identifier: _Generator._identifier,
    ast.Select: _Generator._select,
    ast.ListLiteral: _Generator._list,
    ast.MapLiteral: _Generator._map,
    ast.StructLiteral: _Generator._struct,
}
_BY_FUNCTION: Final[Mapping[str, Callable[[_Generator, ast.FunctionCall], _Value]]] = {
    ast.AND: _Generator._logical,
    ast.OR: _Generator._logical,
    ast.NOT: _Generator._negation,
    ast.CONDITIONAL: _Generator._conditional,
    ast.NOT_STRICTLY_FALSE: _Generator._not_strictly_false,
    ast.EQUAL: _Generator._equality,
    ast.NOT_EQUAL: _Generator._equality,
    ast.IN: _Generator._membership,
    ast.INDEX: _Generator._index,
    ast.OPTIONAL_INDEX: _Generator._optional_index,
    ast.OPTIONAL_SELECT: _Generator._optional_select,
}
