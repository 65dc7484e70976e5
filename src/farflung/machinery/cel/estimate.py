"""Static cost estimates of expressions, as cel-go computes them, with the size limits of a schema.

    estimate(checked, root).high      the maximum cost if `self` has the type `root`

Kubernetes refuses rules by this number, so it is the same number, with its oddities: a path like `self.items[0].name`
is looked up in the schema from its second part on, and its first part is ignored.
"""

from __future__ import annotations

from functools import reduce
from typing import Final, NamedTuple

from farflung.machinery.cel.call_estimates import (
    IMPOSSIBLE,
    NOTHING,
    ONE,
    TRAVERSAL,
    UNKNOWN,
    Bounds,
    CallEstimate,
    Operand,
    exactly,
    matching,
)
from farflung.machinery.cel.call_estimates import estimate as estimate_call
from farflung.machinery.cel.environment import Checked
from farflung.machinery.cel.language import ast
from farflung.machinery.cel.language.ast import Expression
from farflung.machinery.cel.language.types import Type, TypeKind, is_optional

LIST_COST: Final = exactly(10)
MAP_COST: Final = exactly(30)
STRUCT_COST: Final = exactly(40)
SCALARS: Final = frozenset(
    {TypeKind.BOOL, TypeKind.DOUBLE, TypeKind.DURATION, TypeKind.INT, TypeKind.TIMESTAMP, TypeKind.UINT}
)
SELECTABLE: Final = frozenset({TypeKind.MAP, TypeKind.OBJECT, TypeKind.PARAMETER})
COMPARISONS: Final = frozenset(
    {f"{order}_{of}" for order in ("less", "less_equals", "greater", "greater_equals") for of in ("string", "bytes")}
    | {"equals", "not_equals"}
)

Path = tuple[str, ...]


def estimate(checked: Checked, root: Type) -> Bounds:
    return _Estimator(root).cost(checked.tree)


class _Entries(NamedTuple):
    """The sizes of the keys and values of a list or map."""

    kind: TypeKind
    key: Bounds
    value: Bounds

    def union(self, other: _Entries | None) -> _Entries | None:
        return other and _Entries(self.kind, self.key.union(other.key), self.value.union(other.value))


class _Local(NamedTuple):
    """A variable of a macro."""

    path: Path
    size: Bounds | None
    entries: _Entries | None


class _Arguments(NamedTuple):
    operands: list[Operand]
    costs: list[Bounds]
    together: Bounds  #: all costs


class _Estimator:
    def __init__(self, root: Type) -> None:
        self._root = root
        self._paths: dict[int, Path] = {}
        self._sizes: dict[int, Bounds] = {}
        self._entries: dict[int, _Entries] = {}
        self._locals: dict[str, list[_Local]] = {}

    def cost(self, node: Expression) -> Bounds:
        match node:
            case ast.Literal():
                return NOTHING
            case ast.Identifier():
                local = self._local(node)
                self._paths[node.id] = local.path if local else (node.name,)
                return ONE
            case ast.Select():
                return self._select(node)
            case ast.FunctionCall():
                return self._call(node)
            case ast.ListLiteral():
                return self._list(node)
            case ast.MapLiteral():
                return self._map(node)
            case ast.Comprehension():
                return self._bind(node) if _is_bind(node) else self._comprehension(node)
        return STRUCT_COST

    def _select(self, node: ast.Select) -> Bounds:
        cost = self.cost(node.operand)
        if node.test_only:
            return cost
        self._paths[node.id] = (*self._path(node.operand), node.field)
        return cost.plus(ONE) if node.operand.type.kind in SELECTABLE else cost

    def _list(self, node: ast.ListLiteral) -> Bounds:
        cost, size = LIST_COST, IMPOSSIBLE if node.elements else NOTHING
        for element in node.elements:
            cost = cost.plus(self.cost(element))
            size = size.union(self._size_or_unknown(element))
        self._entries[node.id] = _Entries(TypeKind.LIST, ONE, size)
        return cost

    def _map(self, node: ast.MapLiteral) -> Bounds:
        cost = MAP_COST
        keys = values = IMPOSSIBLE if node.entries else NOTHING
        for entry in node.entries:
            cost = cost.plus(self.cost(entry.key)).plus(self.cost(entry.value))
            keys = keys.union(self._size_or_unknown(entry.key))
            values = values.union(self._size_or_unknown(entry.value))
        self._entries[node.id] = _Entries(TypeKind.MAP, keys, values)
        return cost

    # --- macros -----------------------------------------------------------------------------------

    def _comprehension(self, node: ast.Comprehension) -> Bounds:
        cost = self.cost(node.range).plus(self.cost(node.init))
        self._enter(node.accumulator, self._value_of(node.init))
        first, second = self._element_variables(node)
        self._enter(node.variable, first)
        if node.second_variable:
            self._enter(node.second_variable, second)
        each = self.cost(node.condition).plus(self.cost(node.step))
        if node.second_variable:
            self._leave(node.second_variable)
        self._leave(node.variable)
        cost = cost.plus(self.cost(node.result))
        self._leave(node.accumulator)
        count = self._size_or_unknown(node.range)
        self._set_result(node, count)
        return cost.plus(count.times(each))

    def _set_result(self, node: ast.Comprehension, count: Bounds) -> None:
        if isinstance(node.init, ast.Literal):
            size = self._size(node.init)
            if size is not None:
                self._sizes[node.id] = size
        elif isinstance(node.init, ast.ListLiteral | ast.MapLiteral):
            self._sizes[node.id] = count
            entries = self._entries_of(node.step)
            if entries is not None:
                self._entries[node.id] = entries

    def _element_variables(self, node: ast.Comprehension) -> tuple[_Local, _Local]:
        entries = self._entries_of(node.range)
        path = self._path(node.range)
        is_list = (entries.kind if entries else node.range.type.kind) is TypeKind.LIST
        key, value = (entries.key, entries.value) if entries else (None, None)
        values = _Local((*path, "@items" if is_list else "@values"), value, None)
        if node.second_variable:
            return _Local((*path, "@indices" if is_list else "@keys"), key, None), values
        return (values if is_list else _Local((*path, "@keys"), key, None)), values

    def _bind(self, node: ast.Comprehension) -> Bounds:
        cost = self.cost(node.range).plus(self.cost(node.init))
        self._enter(node.accumulator, self._value_of(node.init))
        cost = cost.plus(self.cost(node.result))
        self._leave(node.accumulator)
        self._copy(node, node.result)
        return cost

    def _value_of(self, node: Expression) -> _Local:
        return _Local(self._path(node), self._size(node), self._entries_of(node))

    def _enter(self, name: str, local: _Local) -> None:
        self._locals.setdefault(name, []).append(local)

    def _leave(self, name: str) -> None:
        self._locals[name].pop()

    # --- calls ------------------------------------------------------------------------------------

    def _call(self, node: ast.FunctionCall) -> Bounds:
        if node.function == "dyn" and node.target is None:
            cost = self.cost(node.arguments[0])
            self._copy(node, node.arguments[0])
            return cost.plus(ONE)
        costs = [self.cost(argument) for argument in node.arguments]
        operands = [self._operand(argument) for argument in node.arguments]
        arguments = _Arguments(operands, costs, reduce(Bounds.plus, costs, NOTHING))
        if not node.overloads:
            return NOTHING
        total, target = NOTHING, None
        if node.target is not None:
            total, target = self.cost(node.target), self._operand(node.target)
        cost, size = IMPOSSIBLE, None
        for overload in node.overloads:
            each = self._overload(node, overload.id, target, arguments)
            cost = cost.union(each.cost)
            if each.size is not None:
                size = each.size if size is None else size.union(each.size)
            size = self._indexed(node, overload.id, size)
        if size is not None:
            self._sizes[node.id] = size
        return total.plus(cost)

    def _indexed(self, node: ast.FunctionCall, overload: str, size: Bounds | None) -> Bounds | None:
        if overload in ("index_list", "index_map"):
            container = node.arguments[0]
            entries = self._entries_of(container)
            self._paths[node.id] = (*self._path(container), "@items" if overload == "index_list" else "@values")
            size = entries.value if entries else None
        return size if size is not None else self._size(node)

    def _overload(
        self, node: ast.FunctionCall, overload: str, target: Operand | None, arguments: _Arguments
    ) -> CallEstimate:
        operands, costs, together = arguments
        known = estimate_call(node.function, overload, target, operands)
        if known is not None:
            return CallEstimate(known.cost.plus(together), known.size)
        sizes = [operand.size for operand in operands]
        if overload in ("logical_or", "logical_and"):
            return CallEstimate(Bounds(costs[0].low, costs[0].plus(costs[1]).high))
        if overload == "conditional":
            self._join_entries(node, node.arguments[1], node.arguments[2])
            return CallEstimate(costs[0].plus(costs[1].union(costs[2])), sizes[1].union(sizes[2]))
        if overload in ("add_string", "add_bytes", "add_list") and len(sizes) == 2:
            self._join_entries(node, *node.arguments)
            size = sizes[0].plus(sizes[1])
            own = ONE if overload == "add_list" else size.scaled(TRAVERSAL)
            return CallEstimate(own.plus(together), size)
        cost, result = _builtin(overload, target, sizes)
        return CallEstimate(cost.plus(together), result)

    def _operand(self, node: Expression) -> Operand:
        size = self._size(node)
        path = self._path(node)
        elements = self._schema_size((*path, "@items")) if path and path[0] != ast.ACCUMULATOR else None
        literal = node.value if isinstance(node, ast.Literal) else None
        return Operand(node.type, UNKNOWN if size is None else size, elements or UNKNOWN, literal)

    # --- sizes ------------------------------------------------------------------------------------

    def _local(self, node: Expression) -> _Local | None:
        scope = self._locals.get(node.name) if isinstance(node, ast.Identifier) else None
        return scope[-1] if scope else None

    def _path(self, node: Expression) -> Path:
        local = self._local(node)
        return local.path if local else self._paths.get(node.id, ())

    def _entries_of(self, node: Expression) -> _Entries | None:
        if node.id in self._entries:
            return self._entries[node.id]
        local = self._local(node)
        return local.entries if local else None

    def _join_entries(self, node: Expression, one: Expression, other: Expression) -> None:
        entries = self._entries_of(one)
        joined = entries.union(self._entries_of(other)) if entries else None
        if joined is not None:
            self._entries[node.id] = joined

    def _copy(self, node: Expression, source: Expression) -> None:
        size, entries = self._size(source), self._entries_of(source)
        if size is not None:
            self._sizes[node.id] = size
        if entries is not None:
            self._entries[node.id] = entries

    def _size_or_unknown(self, node: Expression) -> Bounds:
        size = self._size(node)
        return UNKNOWN if size is None else size

    def _size(self, node: Expression) -> Bounds | None:
        if node.id in self._sizes:
            return self._sizes[node.id]
        written = _written_size(node)
        if written is not None:
            return exactly(written)
        size = self._schema_size(self._path(node))
        if size is not None:
            self._sizes[node.id] = size
            return size
        if _is_scalar(node.type):
            return ONE
        local = self._local(node)
        return local.size if local else None

    def _schema_size(self, path: Path) -> Bounds | None:
        if not path:
            return None
        at = self._root
        for name in path[1:]:
            if name in ("@items", "@values") and at.kind in (TypeKind.LIST, TypeKind.MAP):
                at = at.parameters[-1]
            elif name == "@keys" and at.kind is TypeKind.MAP:
                at = at.parameters[0]
            elif name in at.fields:
                at = at.fields[name].type
            else:
                return None
        return Bounds(0, at.max_size or 0)


def _builtin(overload: str, target: Operand | None, sizes: list[Bounds]) -> tuple[Bounds, Bounds | None]:
    """Cost and size of the results of cel-go's own functions."""
    size = sizes[0] if sizes else UNKNOWN
    match overload:
        case "string_format" if target:
            return target.size.scaled(TRAVERSAL), None
        case "string_to_bytes":
            return size.scaled(TRAVERSAL), Bounds(size.low, size.high * 4 % 2**64)
        case "bytes_to_string":
            return size.scaled(TRAVERSAL), Bounds(size.low // 4, size.high)
        case "strings_quote":
            return size.scaled(TRAVERSAL), Bounds(size.low + 2, (size.high * 2 + 2) % 2**64)
        case "starts_with_string" | "ends_with_string":
            return size.scaled(TRAVERSAL), None
        case "in_list":
            return sizes[1].scaled(1), None
        case "matches_string" if target:
            return matching(target.size, size), None
        case "contains_string" if target:
            return target.size.scaled(TRAVERSAL).times(size.scaled(TRAVERSAL)), None
        case _ if overload in COMPARISONS:
            most = min(sizes[0].high, sizes[1].high)
            return Bounds(1 if most else 0, most).scaled(TRAVERSAL), None
    return ONE, None


def _written_size(node: Expression) -> int | None:
    """The size of a literal."""
    match node:
        case ast.Literal():
            return len(node.value) if isinstance(node.value, str | bytes) else 1
        case ast.ListLiteral():
            return len(node.elements)
        case ast.MapLiteral():
            return len(node.entries)
    return None


def _is_scalar(of: Type) -> bool:
    return of.kind in SCALARS or (is_optional(of) and _is_scalar(of.parameters[0]))


def _is_bind(node: ast.Comprehension) -> bool:
    empty = isinstance(node.range, ast.ListLiteral) and not node.range.elements
    never = isinstance(node.condition, ast.Literal) and node.condition.value is False
    return empty and never and node.accumulator != ast.ACCUMULATOR
