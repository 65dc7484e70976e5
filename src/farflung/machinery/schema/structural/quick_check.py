"""A fast validation of a value against its schema.  Every write runs it, and nearly every write passes.

A node is compiled to a table from the Python type of a value to a function that checks values of this type.  Most are
`always` or `never`, which need not be called.  Objects of a kind have few different sets of fields; each set has a
plan: the checks that remain.

Accepted values are valid.  A refused value may be valid too: `report.py` decides, and lists the errors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from farflung.machinery.schema.structural import formats
from farflung.machinery.schema.structural.json_values import LEAST, MAX_INTEGER, identical, is_multiple, is_whole, same
from farflung.machinery.schema.structural.node import TOGETHER, SchemaNode, inner_first, work_of
from farflung.machinery.schema.walk import LARGEST_PLAN, MAX_PLANS
from farflung.machinery.turns import Steps

Fits = Callable[[Any], bool]
Table = dict[type, Fits]

CLASSES: Final[dict[type, tuple[str, ...]]] = {
    str: ("string",),
    bool: ("boolean",),
    int: ("integer", "number"),
    float: ("number", "integer"),
    dict: ("object",),
    list: ("array",),
}


def always(value: Any) -> bool:
    return True


def never(value: Any) -> bool:
    return False


class QuickCheck:
    """The tables of a schema's nodes, each made when it is first needed.

    Nodes of anyOf, oneOf, allOf and not do not define the types of lists; other nodes, which are `structural`, do.
    """

    __slots__ = ("_tables",)

    def __init__(self) -> None:
        self._tables: dict[tuple[int, bool], tuple[SchemaNode, Table]] = {}  # a node that is kept keeps its identity

    def fits(self, node: SchemaNode, value: Any, *, structural: bool = False) -> bool:
        """Whether a value is valid.  `structural`: without duplicates in lists of type set or map."""
        return self.table(node, structural)[type(value)](value)

    def steps(self, root: SchemaNode) -> Steps[None]:
        """Make the tables of all nodes, inner ones first."""
        order = yield from inner_first((root, True), checked_within)
        for at, (node, structural) in enumerate(order):
            if at % TOGETHER == 0:
                yield work_of(len(order) - at)
            self.table(node, structural)

    def table(self, node: SchemaNode, structural: bool) -> Table:
        found = self._tables.get((id(node), structural))
        if found is None:
            found = self._tables[id(node), structural] = node, self._made(node, structural)
        return found[1]

    def _made(self, node: SchemaNode, structural: bool) -> Table:
        checks: dict[type, Iterable[Fits]] = {
            str: _strings(node),
            bool: (),
            int: _numbers(node, lambda value: LEAST <= value <= MAX_INTEGER),
            float: _numbers(node, is_whole),
            list: self._lists(node, structural),
            dict: self._objects(node, structural),
        }
        table = {exact: self._of(node, exact, found) for exact, found in checks.items()}
        allowed = (node.nullable or not node.types) and (node.enum is None or None in node.enum)
        table[type(None)] = always if allowed else never
        return table

    def _of(self, node: SchemaNode, exact: type, checks: Iterable[Fits]) -> Fits:
        """The check of values of one Python type."""
        if node.types and not any(name in node.types for name in CLASSES[exact]):
            return never
        if node.format and not node.types and exact not in (str, list):
            return never
        return conjunction([*self._junctors(node, exact), *checks, *_enumerated(node, exact)])

    def _junctors(self, node: SchemaNode, exact: type) -> Iterable[Fits]:
        any_of = [self.table(one, False)[exact] for one in node.any_of]
        if any_of and always not in any_of:
            yield lambda value: any(fits(value) for fits in any_of)
        one_of = [self.table(one, False)[exact] for one in node.one_of]
        if one_of:
            yield lambda value: sum(fits(value) for fits in one_of) == 1
        for one in node.all_of:
            yield self.table(one, False)[exact]
        if node.none_of is not None:
            excluded = self.table(node.none_of, False)[exact]
            yield never if excluded is always else lambda value: not excluded(value)

    def _lists(self, node: SchemaNode, structural: bool) -> Iterable[Fits]:
        yield _sized(node.min_items, node.max_items)
        if node.items is not None:
            yield _all(self.table(node.items, structural))
        if node.unique_items or (structural and node.list_type == "set"):
            yield _distinct
        if structural and node.list_type == "map":
            yield _distinct_by(node.list_keys)

    def _objects(self, node: SchemaNode, structural: bool) -> Iterable[Fits]:
        yield _sized(node.min_properties, node.max_properties)
        known = {name: self.table(one, structural) for name, one in node.properties.items()}
        if node.values is None:
            if node.required or not all(map(_is_open, known.values())):
                yield _fields(known, frozenset(node.required))
            return
        if node.required:
            required = frozenset(node.required)
            yield lambda value: value.keys() >= required
        yield _entries(known, self.table(node.values, structural))


def checked_within(place: tuple[SchemaNode, bool]) -> Iterator[tuple[SchemaNode, bool]]:
    node, structural = place
    for one in (*node.any_of, *node.one_of, *node.all_of, node.none_of):
        if one is not None:
            yield one, False
    for one in (*node.properties.values(), node.values, node.items):
        if one is not None:
            yield one, structural


def conjunction(checks: Sequence[Fits]) -> Fits:
    checks = [check for check in checks if check is not always]
    if never in checks:
        return never
    match checks:
        case []:
            return always
        case [one]:
            return one
        case [one, two]:
            return lambda value: one(value) and two(value)
        case [one, two, three]:
            return lambda value: one(value) and two(value) and three(value)
        case _:
            return lambda value: all(check(value) for check in checks)


# --- scalars ----------------------------------------------------------------------------------------


def _strings(node: SchemaNode) -> Iterable[Fits]:
    yield _sized(node.min_length, node.max_length)
    if node.pattern is not None:
        yield node.pattern.matches
    if node.format:
        yield formats.check_of(node.format)


def _sized(least: int | None, most: int | None) -> Fits:
    low = least or 0
    if most is None:
        return always if low <= 0 else lambda value: len(value) >= low
    high = most
    return lambda value: low <= len(value) <= high


def _numbers(node: SchemaNode, is_integer: Fits) -> Iterable[Fits]:
    """`is_integer`: whether an int or a float is an integer to the API, which has 64 bits."""
    if node.types and "number" not in node.types:
        yield is_integer
    least, most, step = node.minimum, node.maximum, node.multiple_of
    if least is not None:
        low = least
        yield (lambda value: value > low) if node.exclusive_minimum else (lambda value: value >= low)
    if most is not None:
        high = most
        yield (lambda value: value < high) if node.exclusive_maximum else (lambda value: value <= high)
    if step is not None:
        factor = step
        yield lambda value: is_multiple(value, factor)


def _enumerated(node: SchemaNode, exact: type) -> Iterable[Fits]:
    """Kubernetes compares numbers by value, so 1 is equal to 1.0."""
    if node.enum is None:
        return
    if exact is str:
        texts = frozenset(one for one in node.enum if type(one) is str)
        yield lambda value: value in texts
    else:
        allowed = node.enum
        yield lambda value: any(same(value, one) for one in allowed)


# --- lists ------------------------------------------------------------------------------------------


def _all(table: Table) -> Fits:
    if all(check is always for check in table.values()):
        return always

    def fits(value: Iterable[Any]) -> bool:
        classes = set(map(type, value))
        if len(classes) == 1:
            check = table[classes.pop()]
            return check is always or all(map(check, value))
        return all(table[item.__class__](item) for item in value)

    return fits


def _distinct(value: list[Any]) -> bool:
    try:
        if len(set(value)) == len(value):
            return True
    except TypeError:
        pass  # not all of them are scalars
    return len({identical(item) for item in value}) == len(value)


def _distinct_by(keys: Sequence[str]) -> Fits:
    """Accepts only items whose keys are scalars and differ."""
    if not keys:
        return lambda value: len(value) < 2
    [first, *others] = keys

    def differ(value: list[Any]) -> bool:
        try:
            if not others:
                return len({item[first] for item in value}) == len(value)
            return len({tuple(item[key] for key in keys) for item in value}) == len(value)
        except (TypeError, KeyError):
            return False

    return differ


# --- objects ----------------------------------------------------------------------------------------


def _is_open(table: Table) -> bool:
    return all(check is always for check in table.values())


def _fields(known: dict[str, Table], required: frozenset[str]) -> Fits:
    """An object with named properties."""
    plans: dict[tuple[tuple[str, ...], tuple[type, ...]], Sequence[tuple[str, Fits]]] = {}

    def planned(value: dict[str, Any]) -> Sequence[tuple[str, Fits]]:
        if not value.keys() >= required:
            return REFUSED
        checks = [(name, known[name][item.__class__]) for name, item in value.items() if name in known]
        if any(check is never for _, check in checks):
            return REFUSED
        return [(name, check) for name, check in checks if check is not always]

    def fits(value: dict[str, Any]) -> bool:
        signature = tuple(value), tuple(map(type, value.values()))
        plan = plans.get(signature)
        if plan is None:
            plan = planned(value)
            if len(plans) < MAX_PLANS and len(value) <= LARGEST_PLAN and value.keys() <= known.keys():
                plans[signature] = plan
        if plan is REFUSED:
            return False
        for name, check in plan:
            if not check(value[name]):
                break
        else:
            return True
        return False

    return fits


REFUSED: Final[Sequence[tuple[str, Fits]]] = ((("", never)),)


def _entries(known: dict[str, Table], rest: Table) -> Fits:
    """An object that is a map."""
    if not known:
        fits_all = _all(rest)
        return fits_all if fits_all is always else lambda value: fits_all(value.values())
    return lambda value: all(known.get(name, rest)[item.__class__](item) for name, item in value.items())
