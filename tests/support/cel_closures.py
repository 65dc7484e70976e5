"""CEL as nested closures, one per node: the oracle of the generated functions of `machinery/cel/generator.py`.

program = ClosureProgram(checked.tree, {"self": type}, adapters)
run = program.start({"self": value}, limit=1_000_000)
program.evaluate(run)       the value; raises only EvaluationError or OverBudget
run.spent                   its cost, also after an error
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import ceil
from types import MappingProxyType
from typing import Any, Final

from farflung.machinery.cel.adapt import Adapter, Adapters
from farflung.machinery.cel.language import ast
from farflung.machinery.cel.language.ast import Expression
from farflung.machinery.cel.language.budget import PER_CALL, Meter, Metered, OverBudget
from farflung.machinery.cel.language.declarations import Overload
from farflung.machinery.cel.language.equality import equal, has_key, is_member
from farflung.machinery.cel.language.types import Type, TypeKind, is_optional
from farflung.machinery.cel.language.values import (
    LISTS,
    NONE,
    NUMBERS,
    EvaluationError,
    OptionalValue,
    UInt,
    has_type,
    no_such_key,
    no_such_overload,
    shown_key,
    type_name,
    type_value,
)
from farflung.machinery.cel.library import costs, optionals, regexes
from farflung.machinery.cel.library.costs import TRAVERSAL
from farflung.machinery.cel.library.operators import index, index_list


class Run(Meter):
    """One evaluation: the values of the variables, and its cost so far."""

    __slots__ = ("slots",)

    def __init__(self, slots: list[Any], limit: int) -> None:
        super().__init__(limit)
        self.slots = slots


Code = Callable[[Run], Any]

ABSENT: Final = object()
NOTHING: Final[dict[str, Any]] = {}  #: the fields of null


def variable(slot: int) -> Code:
    def load(run: Run) -> Any:
        run.spent += 1
        return run.slots[slot]

    return load


def adapted(code: Code, adapter: Adapter | None) -> Code:
    if adapter is None:
        return code

    def adapt(run: Run) -> Any:
        value = code(run)
        return None if value is None else adapter(run, value)

    return adapt


# --- fields ---------------------------------------------------------------------------------------


def fields_of_variable(slot: int, path: tuple[tuple[str, str], ...]) -> Code:
    """Fields of fields of a variable that is an object or null, each by its property and its name in CEL."""
    cost = 1 + len(path)
    if len(path) == 1:
        ((property, name),) = path

        def field(run: Run) -> Any:
            run.spent += 2
            value = (run.slots[slot] or NOTHING).get(property)
            if value is None:
                raise no_such_key(name)
            return value

        return field

    def fields(run: Run) -> Any:
        run.spent += cost
        value = run.slots[slot] or NOTHING
        for property, name in path:
            value = value.get(property)
            if value is None:
                raise no_such_key(name)
        return value

    return fields


def field_of_object(operand: Code, property: str, name: str) -> Code:
    def field(run: Run) -> Any:
        value = operand(run).get(property)
        run.spent += 1
        if value is None:
            raise no_such_key(name)
        return value

    return field


def key_of_map(operand: Code, key: str) -> Code:
    def value_of_key(run: Run) -> Any:
        value = operand(run).get(key, ABSENT)
        run.spent += 1
        if value is ABSENT:
            raise no_such_key(key)
        return value

    return value_of_key


def field_of_anything(operand: Code, name: str) -> Code:
    def field(run: Run) -> Any:
        value = found_field(operand(run), name)
        run.spent += 1
        if value is ABSENT:
            raise no_such_key(name)
        return value

    return field


def found_field(value: Any, name: str) -> Any:
    """A selection from a value of any type; from an optional the result is optional."""
    if type(value) is dict:
        return value.get(name, ABSENT)
    if type(value) is OptionalValue:
        return NONE if value is NONE else optional(found_field(value.value, name))
    return ABSENT


def optional(found: Any) -> OptionalValue:
    return NONE if found is ABSENT else OptionalValue(found)


# --- presence -------------------------------------------------------------------------------------


def has_fields_of_variable(slot: int, path: tuple[tuple[str, str], ...], last: str) -> Code:
    cost = 1 + len(path)

    def has(run: Run) -> bool:
        run.spent += cost
        value = run.slots[slot] or NOTHING
        for property, name in path:
            value = value.get(property)
            if value is None:
                raise no_such_key(name)
        return value.get(last) is not None

    return has


def has_field_of_object(operand: Code, property: str) -> Code:
    return lambda run: operand(run).get(property) is not None


def has_field_of_anything(operand: Code, name: str) -> Code:
    def has(run: Run) -> bool:
        value = operand(run)
        if type(value) is OptionalValue:
            return value is not NONE and found_field(value.value, name) is not ABSENT
        return found_field(value, name) is not ABSENT

    return has


# --- optional parts -------------------------------------------------------------------------------


def optional_field(operand: Code, name: str, of_object: bool, adapter: Adapter | None) -> Code:
    """`operand.?name`; a null property of an object counts as missing."""

    def find(run: Run) -> OptionalValue:
        value = operand(run)
        run.spent += 1
        if type(value) is OptionalValue:
            if value is NONE:
                return NONE
            value = value.value
        found = found_field(value, name)
        if found is ABSENT or (found is None and of_object):
            return NONE
        if type(found) is OptionalValue:
            return found
        return OptionalValue(found if adapter is None or found is None else adapter(run, found))

    return find


def optional_index(operand: Code, key: Code) -> Code:
    def find(run: Run) -> OptionalValue:
        value = operand(run)
        wanted = key(run)
        run.spent += 1
        if type(value) is OptionalValue:
            if value is NONE:
                return NONE
            value = value.value
        return optional(_found_at(value, wanted))

    return find


def _found_at(value: Any, key: Any) -> Any:
    if type(value) is dict:
        return value[key] if has_key(value, key) else ABSENT
    if type(value) in LISTS:
        if type(key) not in NUMBERS:
            return index_list(value, key)
        return value[int(key)] if 0 <= key < len(value) and key % 1 == 0 else ABSENT
    raise no_such_overload()


# --- indices --------------------------------------------------------------------------------------


def index_of(operand: Code, key: Code, cost: int) -> Code:
    """`operand[key]`; the cost is that of the index itself."""

    def element(run: Run) -> Any:
        value = operand(run)
        wanted = key(run)
        run.spent += cost
        if type(value) is dict and type(wanted) is str:
            found = value.get(wanted, ABSENT)
            if found is ABSENT:
                raise no_such_key(wanted)
            return found
        if type(value) is list and type(wanted) is int:
            if not 0 <= wanted < len(value):
                raise EvaluationError(f"index out of bounds: {wanted}")
            return value[wanted]
        if type(value) is OptionalValue:
            return NONE if value is NONE else optional(_found_at(value.value, wanted))
        return index(value, wanted)

    return element


#: raised by implementations for values of another type than declared: objects may violate their schemas
UNFIT: Final = (TypeError, AttributeError, ValueError, LookupError, ArithmeticError)

Implementation = Callable[..., Any]
Values = tuple[Any, ...]
Application = Callable[[Run, Values], Any]


# --- functions ------------------------------------------------------------------------------------


def call(overload: Overload, arguments: Sequence[Code]) -> Code:
    """Calls the one overload that matches the static types."""
    implementation = overload.implementation
    assert implementation is not None
    slow = overload.id in costs.SLOW_CALLS
    if overload.cost is None and not isinstance(implementation, Metered) and not slow:
        if len(arguments) == 1:
            return _unary(implementation, *arguments)
        if len(arguments) == 2:
            return _binary(implementation, *arguments)
    application = _application(overload)

    def applied(run: Run) -> Any:
        return application(run, tuple([argument(run) for argument in arguments]))

    return applied


def _unary(implementation: Implementation, argument: Code) -> Code:
    def unary(run: Run) -> Any:
        value = argument(run)
        run.spent += 1
        try:
            return implementation(value)
        except UNFIT:
            raise no_such_overload() from None

    return unary


def _binary(implementation: Implementation, left: Code, right: Code) -> Code:
    def binary(run: Run) -> Any:
        one, other = left(run), right(run)
        run.spent += 1
        try:
            return implementation(one, other)
        except UNFIT:
            raise no_such_overload() from None

    return binary


def _application(overload: Overload) -> Application:
    """The application of an overload to values.  It pays its cost in advance, unless the cost depends on the result."""
    assert overload.implementation is not None
    implementation = _with_meter(overload.implementation)
    cost = overload.cost or _one
    work = costs.SLOW_CALLS.get(overload.id, 0)

    def paid_before(run: Run, values: Values) -> Any:
        try:
            run.pay(cost(values, None))
            if work:
                run.work(work)
            return implementation(run, *values)
        except UNFIT:
            raise no_such_overload() from None

    def paid_afterwards(run: Run, values: Values) -> Any:
        try:
            result = implementation(run, *values)
        except UNFIT:
            raise no_such_overload() from None
        run.pay(cost(values, result))
        return result

    return paid_afterwards if cost in costs.AFTERWARDS else paid_before


def _one(_: Values, __: Any) -> int:
    return 1


def _with_meter(implementation: Implementation) -> Implementation:
    if isinstance(implementation, Metered):
        return implementation.function
    return lambda _, *values: implementation(*values)


def dispatch(function: str, overloads: Sequence[Overload], arguments: Sequence[Code]) -> Code:
    """Calls the first overload that matches the values.  It is cached by the values' classes."""
    chosen: dict[tuple[type, ...], Application | None] = {}
    operator = not function[0].isalpha()

    def choose(values: Values) -> Application | None:
        for overload in overloads:
            if overload.implementation is not None and all(map(has_type, values, overload.arguments)):
                return _application(overload)
        return None

    def dispatched(run: Run) -> Any:
        values = tuple([argument(run) for argument in arguments])
        classes = tuple(map(type, values))
        if classes not in chosen:
            chosen[classes] = choose(values)
        application = chosen[classes]
        if application is None:
            signature = "" if operator else f": {function}({', '.join(map(type_name, values))})"
            raise EvaluationError(f"no such overload{signature}")
        return application(run, values)

    return dispatched


def with_pattern(implementation: Implementation, pattern: Any, arguments: Sequence[Code]) -> Code:
    """A match against a compiled pattern; the second argument is its text."""

    def match(run: Run) -> Any:
        values = [argument(run) for argument in arguments]
        run.pay(costs.of_match((values[0], values[1]), None))
        try:
            return implementation(run, values[0], pattern, *values[2:])
        except UNFIT:
            raise no_such_overload() from None

    return match


# --- equality -------------------------------------------------------------------------------------


def equality(left: Code, right: Code, *, negated: bool) -> Code:
    def compare(run: Run) -> bool:
        one, other = left(run), right(run)
        if type(one) is str and type(other) is str:
            run.spent += ceil(min(len(one), len(other)) * TRAVERSAL)
            return (one == other) is not negated
        run.spent += costs.of_equality((one, other), None)
        return equal(run, one, other) is not negated

    return compare


def plain_equality(left: Code, right: Code, *, negated: bool) -> Code:
    """Compares JSON values for which Python's equality is that of CEL.  Not for loops, because no meter counts it."""

    def compare(run: Run) -> bool:
        one, other = left(run), right(run)
        run.spent += costs.of_equality((one, other), None)
        return bool(one == other) is not negated

    return compare


def membership(value: Code, elements: list[Any]) -> Code:
    """Membership in a list literal, which costs nothing."""
    texts = frozenset(elements) if all(type(element) is str for element in elements) else None

    def is_in(run: Run) -> bool:
        wanted = value(run)
        if texts is not None:
            return type(wanted) is str and wanted in texts
        return is_member(run, wanted, elements)

    return is_in


def is_simple(elements: list[Any]) -> bool:
    """Whether cel-go looks a value up in these, instead of comparing it with each."""
    return all(type(element) in (bool, str) or type(element) in NUMBERS for element in elements)


# --- logic ----------------------------------------------------------------------------------------


def logical_and(left: Code, right: Code) -> Code:
    return _logical(left, right, decisive=False)


def logical_or(left: Code, right: Code) -> Code:
    return _logical(left, right, decisive=True)


def _logical(left: Code, right: Code, *, decisive: bool) -> Code:
    """The decisive value on either side is the result, even if the other side is an error."""

    def decide(run: Run) -> bool:
        try:
            first: object = left(run)
        except EvaluationError as error:
            if _or_error(right, run, error) is decisive:
                return decisive
            raise
        if first is decisive:
            return decisive
        second: object = right(run)
        if second is decisive:
            return decisive
        if type(first) is bool and type(second) is bool:
            return second
        raise no_such_overload()

    return decide


def _or_error(code: Code, run: Run, error: EvaluationError) -> object:
    try:
        return code(run)
    except EvaluationError:
        raise error from None


def conditional(condition: Code, then: Code, otherwise: Code) -> Code:
    def choose(run: Run) -> Any:
        holds = condition(run)
        if holds is True:
            return then(run)
        if holds is False:
            return otherwise(run)
        raise no_such_overload()

    return choose


def negation(operand: Code) -> Code:
    def negate(run: Run) -> bool:
        value = operand(run)
        run.spent += 1
        if type(value) is not bool:
            raise no_such_overload()
        return not value

    return negate


def not_strictly_false(operand: Code) -> Code:
    def holds(run: Run) -> bool:
        run.spent += 1
        try:
            return operand(run) is not False
        except EvaluationError:
            return True

    return holds


def optional_or(optional: Code, otherwise: Code) -> Code:
    def choose(run: Run) -> Any:
        value = optional(run)
        if type(value) is not OptionalValue:
            raise no_such_overload()
        return otherwise(run) if value is NONE else value

    return choose


def optional_or_value(optional: Code, otherwise: Code) -> Code:
    def choose(run: Run) -> Any:
        value = optional(run)
        if type(value) is not OptionalValue:
            raise no_such_overload()
        return otherwise(run) if value is NONE else value.value

    return choose


class LoopVariables:
    """The slots of a loop's variables; `second` is None if it has only one."""

    __slots__ = ("first", "second")

    def __init__(self, first: int, second: int | None) -> None:
        self.first = first
        self.second = second

    def elements(self, collection: Any) -> Iterable[Any]:
        """The values of the loop: elements or keys, or pairs of index or key and value for two variables."""
        if type(collection) in LISTS:
            return collection if self.second is None else enumerate(collection)
        if type(collection) is dict:
            return collection if self.second is None else collection.items()
        raise no_such_overload()

    def set(self, run: Run, element: Any) -> None:
        if self.second is None:
            run.slots[self.first] = element
        else:
            run.slots[self.first], run.slots[self.second] = element


def bind(value: Code, slot: int, then: Code) -> Code:
    def bound(run: Run) -> Any:
        run.slots[slot] = value(run)
        return then(run)

    return bound


def search(collection: Code, variables: LoopVariables, test: Code, *, decisive: bool) -> Code:
    """`all`, which a false test decides, and `exists`, which a true one does; errors matter only if none does."""
    asking = 3 if decisive else 2  #: cost of the condition before each element, with `!accumulator`

    def searched(run: Run) -> bool:
        elements = variables.elements(collection(run))
        error: EvaluationError | None = None
        run.spent += 1
        for element in elements:
            variables.set(run, element)
            run.spent += asking + 1
            if run.spent > run.limit:
                raise OverBudget
            try:
                outcome: object = test(run)
            except EvaluationError as raised:
                error = error or raised
                continue
            if outcome is decisive:
                return decisive
            if type(outcome) is not bool:
                error = error or no_such_overload()
        if error is not None:
            raise error
        return not decisive

    return searched


def build_list(collection: Code, variables: LoopVariables, test: Code | None, element_of: Code, creation: int) -> Code:
    """`map` and `filter`.  `creation`: the cost of the list with one element that each step adds."""
    adding = 2 + creation

    def build(run: Run) -> list[Any]:
        built: list[Any] = []
        run.spent += 1
        for element in variables.elements(collection(run)):
            variables.set(run, element)
            if run.spent > run.limit:
                raise OverBudget
            if test is not None and not passes(test, run):
                continue
            built.append(element_of(run))
            run.spent += adding
        return built

    return build


def passes(test: Code, run: Run) -> bool:
    """A filtered element costs one read of the unchanged accumulator."""
    outcome = test(run)
    if outcome is True:
        return True
    run.spent += 1
    if outcome is not False:
        raise no_such_overload()
    return False


def build_map(
    collection: Code, variables: LoopVariables, test: Code | None, key_of: Code | None, value_of: Code
) -> Code:
    """`transformMap`, and, without a key, `transformMapEntry`, whose values are maps of the entries to add."""

    def build(run: Run) -> dict[Any, Any]:
        built: dict[Any, Any] = {}
        run.spent += 1
        for element in variables.elements(collection(run)):
            variables.set(run, element)
            if run.spent > run.limit:
                raise OverBudget
            if test is not None and not passes(test, run):
                continue
            run.spent += 2
            entries = value_of(run) if key_of is None else {key_of(run): value_of(run)}
            if type(entries) is not dict:
                raise no_such_overload()
            insert(built, entries)
        return built

    return build


def insert(built: dict[Any, Any], entries: dict[Any, Any]) -> None:
    for key, value in entries.items():
        if has_key(built, key):
            raise EvaluationError(f"insert failed: key {shown_key(key)} already exists")
        built[key] = value


def fold(
    collection: Code,
    variables: LoopVariables,
    slot: int,
    init: Code,
    condition: Code,
    step: Code,
    result: Code,
) -> Code:
    """Any other comprehension."""

    def folded(run: Run) -> Any:
        elements = variables.elements(collection(run))
        run.slots[slot] = init(run)
        for element in elements:
            variables.set(run, element)
            if condition(run) is False:
                break
            run.slots[slot] = step(run)
            if run.spent > run.limit:
                raise OverBudget
        return result(run)

    return folded


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


class ClosureCompiler:
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
            return adapted(raw, self._adapters.of(node.type))
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
            return fields_of_variable(slot, steps) if steps else variable(slot)
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
            return field_of_object(operand, of.fields[field].property, field)
        if of.kind is TypeKind.MAP:
            return key_of_map(operand, field)
        return field_of_anything(operand, _property(of, field))

    def _indexed(self, operand: Code, key: Expression) -> Code:
        """A path of fields as an index is a part of the path, and has no further cost."""
        cost = 0 if isinstance(key, ast.Identifier | ast.Select) else 1
        return index_of(operand, self.compile(key), cost)

    # --- nodes ------------------------------------------------------------------------------------

    def _identifier(self, node: ast.Identifier) -> Code:
        if node.name in self._computed:
            return self._computed[node.name]
        return variable(self._scopes[node.name][-1].slot)

    def _select(self, node: ast.Select) -> Code:
        of = node.operand.type
        if not node.test_only:
            return self._selected(self.compile(node.operand), of, node.field)
        path = self._path(node.operand)
        if of.kind is TypeKind.OBJECT and path is not None:
            return has_fields_of_variable(*path, of.fields[node.field].property)
        operand = self._raw(node.operand) or self.compile(node.operand)
        if of.kind is TypeKind.OBJECT:
            return has_field_of_object(operand, of.fields[node.field].property)
        return has_field_of_anything(operand, _property(of, node.field))

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
        return dispatch(node.function, node.overloads, [self.compile(operand) for operand in operands])

    def _call_overload(self, node: ast.FunctionCall, overload: Overload, operands: list[Expression]) -> Code:
        arguments = [self.compile(operand) for operand in operands]
        if any(map(_uncertain, operands, overload.arguments)):
            return dispatch(node.function, (overload,), arguments)
        if overload.id in regexes.WITH_COMPILED and isinstance(operands[1], ast.Literal):
            try:
                pattern = regexes.compiled(str(operands[1].value))
            except EvaluationError:
                return call(overload, arguments)
            return with_pattern(regexes.WITH_COMPILED[overload.id], pattern, arguments)
        return call(overload, arguments)

    def _equality(self, node: ast.FunctionCall) -> Code:
        left, right = node.arguments
        negated = node.function == ast.NOT_EQUAL
        if not self._loops and self._adapters.plain(left.type) and self._adapters.plain(right.type):
            one, other = self._raw(left), self._raw(right)
            if one is not None and other is not None:
                return plain_equality(one, other, negated=negated)
        return equality(self.compile(left), self.compile(right), negated=negated)

    def _membership(self, node: ast.FunctionCall) -> Code:
        value, container = node.arguments
        elements = self._value(container)
        if type(elements) is list and is_simple(elements):
            return membership(self.compile(value), elements)
        operands = [self.compile(value), self.compile(container)]
        if len(node.overloads) == 1 and container.type.kind not in _UNKNOWN:
            return call(node.overloads[0], operands)
        return dispatch(node.function, node.overloads, operands)

    def _index(self, node: ast.FunctionCall) -> Code:
        operand, key = node.arguments
        return self._indexed(self.compile(operand), key)

    def _optional_index(self, node: ast.FunctionCall) -> Code:
        return optional_index(*map(self.compile, node.arguments))

    def _optional_select(self, node: ast.FunctionCall) -> Code:
        operand, name = node.arguments
        assert isinstance(name, ast.Literal) and isinstance(name.value, str)
        of = operand.type.parameters[0] if is_optional(operand.type) else operand.type
        object_like = of.kind is TypeKind.OBJECT
        property = _property(of, name.value)
        raw = self._raw(operand) if operand.type.kind in (TypeKind.OBJECT, TypeKind.MAP) else None
        if raw is None:
            return optional_field(self.compile(operand), property, object_like, None)
        return optional_field(raw, property, object_like, self._adapters.of(node.type.parameters[0]))

    # --- loops ------------------------------------------------------------------------------------

    def _comprehension(self, node: ast.Comprehension) -> Code:
        collection = self.compile(node.range)
        init = self.compile(node.init)
        slot = self._enter(node.accumulator)
        if isinstance(node.range, ast.ListLiteral) and not node.range.elements:
            code = bind(init, slot, self.compile(node.result))
            self._leave(node.accumulator)
            return code
        self._loops += 1
        first = self._enter(node.variable)
        second = self._enter(node.second_variable) if node.second_variable else None
        variables = LoopVariables(first, second)
        code = self._loop(node, collection, variables) or self._fold(node, collection, variables, slot, init)
        if node.second_variable:
            self._leave(node.second_variable)
        self._leave(node.variable)
        self._leave(node.accumulator)
        self._loops -= 1
        return code

    def _fold(self, node: ast.Comprehension, collection: Code, variables: LoopVariables, slot: int, init: Code) -> Code:
        """The result of a macro has no name of the iteration variables, so it may be compiled in their scope."""
        parts = [self.compile(part) for part in (node.condition, node.step, node.result)]
        return fold(collection, variables, slot, init, *parts)

    def _enter(self, name: str) -> int:
        self._scopes.setdefault(name, []).append(_Variable(self.slots, raw=False))
        self.slots += 1
        return self.slots - 1

    def _leave(self, name: str) -> None:
        self._scopes[name].pop()

    def _loop(self, node: ast.Comprehension, collection: Code, variables: LoopVariables) -> Code | None:
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
                return search(collection, variables, self.compile(argument), decisive=decisive)
            case ast.FunctionCall(function=ast.CONDITIONAL, arguments=[condition, step, rest]) if is_accumulator(rest):
                test = self.compile(condition)
            case step:
                pass
        match step:
            case ast.FunctionCall(function=ast.ADD, arguments=[accumulator, ast.ListLiteral(elements=[element])]) if (
                is_accumulator(accumulator) and isinstance(node.init, ast.ListLiteral) and not node.init.elements
            ):
                creation = costs.LIST_CREATION if self._value(element) is NO_VALUE else 0
                return build_list(collection, variables, test, self.compile(element), creation)
            case ast.FunctionCall(function=ast.MAP_INSERT, arguments=[accumulator, *parts]) if is_accumulator(
                accumulator
            ):
                key = self.compile(parts[0]) if len(parts) == 2 else None
                return build_map(collection, variables, test, key, self.compile(parts[-1]))
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
        for at, element in enumerate(elements):
            value = element(run)
            if at not in optional:
                made.append(value)
            elif value is not NONE:
                made.append(_inside(value))
        return made

    return make


_COMPILERS: Final[Mapping[type, Callable[[ClosureCompiler, Any], Code]]] = {
    ast.Identifier: ClosureCompiler._identifier,
    ast.Select: ClosureCompiler._select,
    ast.FunctionCall: ClosureCompiler._call,
    ast.ListLiteral: ClosureCompiler._list,
    ast.MapLiteral: ClosureCompiler._map,
    ast.StructLiteral: ClosureCompiler._struct,
    ast.Comprehension: ClosureCompiler._comprehension,
}
_SPECIAL: Final[Mapping[str, Callable[..., Code]]] = {
    ast.AND: logical_and,
    ast.OR: logical_or,
    ast.NOT: negation,
    ast.CONDITIONAL: conditional,
    ast.NOT_STRICTLY_FALSE: not_strictly_false,
}
_LAZY: Final[Mapping[str, Callable[..., Code]]] = {
    optionals.OR: optional_or,
    optionals.OR_VALUE: optional_or_value,
}
_BY_NAME: Final[Mapping[str, Callable[[ClosureCompiler, ast.FunctionCall], Code]]] = {
    ast.EQUAL: ClosureCompiler._equality,
    ast.NOT_EQUAL: ClosureCompiler._equality,
    ast.IN: ClosureCompiler._membership,
    ast.INDEX: ClosureCompiler._index,
    ast.OPTIONAL_INDEX: ClosureCompiler._optional_index,
    ast.OPTIONAL_SELECT: ClosureCompiler._optional_select,
}


# --- programs -----------------------------------------------------------------------------------


NOTHING_COMPUTED: Final[Mapping[str, Code]] = MappingProxyType({})


class ClosureProgram:
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
        compiler = ClosureCompiler(variables, adapters, computed)
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
        except UNFIT:
            raise no_such_overload() from None
        if run.spent > run.limit:
            raise OverBudget
        return value
