"""Pruning, dropping nulls and defaulting of custom resources, in one walk.

Kubernetes does these one after the other.  Each walks from the root to the leaves and handles one object at a time, so
here all three handle an object before its fields.

    prune      fields that the schema does not know
    nulls      of fields that may not be null and have no default; the others get their default
    default    fields that are not there
    numbers    in the form in which Go writes them

A node is compiled to a function that changes a value in place.  Nodes at which nothing can happen have none.  Values
that are not of their schema's type are left alone: they will be refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import orjson

from farflung.machinery.errors import Obj
from farflung.machinery.schema.structural.node import IDENTITY, SchemaNode
from farflung.machinery.schema.structural.numbers import canonical_number, canonicalize_numbers
from farflung.machinery.schema.structural.quick_check import LARGEST_PLAN, MOST_PLANS

Unknown = list[tuple[Any, str]]  #: objects, and the names of fields in them that are not known
Change = Callable[[Any, Unknown], None]  #: changes a dict or a list in place, but for what is unknown in it


class EnabledSteps(NamedTuple):
    """Which of these are done."""

    prune: bool
    default: bool  #: and nulls
    numbers: bool


class FieldPlan(NamedTuple):
    """The changes of objects with a certain set of fields."""

    unknown: list[str]
    missing: list[tuple[str, Callable[[], Any]]]  #: fields, and what makes their defaults
    below: list[tuple[str, type, Change]]  #: fields to go on with if they are of a type
    numbers: list[str]  #: fields that may be numbers


NOTHING: Final = FieldPlan([], [], [], [])


def compiled(node: SchemaNode, steps: EnabledSteps) -> Change | None:
    """The change of a whole object; apiVersion, kind and metadata are never pruned."""
    return _Compiler(steps).objects(node, root=True, kept=False)


def changes(node: SchemaNode, steps: EnabledSteps) -> list[tuple[type, Change]]:
    """The changes of any value, by its type."""
    return _Compiler(steps).changes(node)


class _Compiler:
    def __init__(self, steps: EnabledSteps) -> None:
        self._steps = steps

    def changes(self, node: SchemaNode, *, kept: bool = False) -> list[tuple[type, Change]]:
        """The changes of values of a node, by their type.  `kept`: unknown fields stay, because an enclosing list
        preserves them."""
        found: list[tuple[type, Change]] = []
        if not node.types or "object" in node.types:
            in_object = self.objects(node, root=False, kept=kept)
            found += [(dict, in_object)] if in_object is not None else []
        if not node.types or "array" in node.types:
            in_list = self._lists(node, kept=kept)
            found += [(list, in_list)] if in_list is not None else []
        return found

    # --- objects ----------------------------------------------------------------------------------

    def objects(self, node: SchemaNode, *, root: bool, kept: bool) -> Change | None:
        if node.values is not None and not node.properties:
            return self._map(node.values)
        emptied = self._steps.prune and (node.open or not (kept or node.preserving))
        if not (node.properties or node.values or root or node.embedded or emptied):
            return _canonicalize if self._steps.numbers else None  # the schema says nothing about its fields
        fields = _Fields(self, node, root=root, kept=kept)
        return fields.change if fields.does_something else None

    def _map(self, values: SchemaNode) -> Change | None:
        """An object whose fields are all of one kind."""
        changes = self.changes(values)
        drops_nulls = self._steps.default and not values.nullable
        default = copier(values.default) if values.has_default else None
        numbers = self._steps.numbers and may_be_number(values)
        if not (changes or drops_nulls or numbers):
            return None

        def change(value: Obj, unknown: Unknown) -> None:
            if drops_nulls and None in value.values():
                for name in [name for name, item in value.items() if item is None]:
                    if default is None:
                        del value[name]
                    else:
                        value[name] = default()
            if numbers:
                for name, item in value.items():
                    if type(item) is float or type(item) is int:
                        value[name] = canonical_number(item)
            for exact, deeper in changes:
                for item in value.values():
                    if item.__class__ is exact:
                        deeper(item, unknown)

        return change

    def below(self, node: SchemaNode, name: str, *, root: bool) -> list[tuple[type, Change]]:
        """The changes of a property.  apiVersion, kind and metadata are not pruned, but may have defaults."""
        if name in IDENTITY and (root or node.embedded):
            return _Compiler(self._steps._replace(prune=False)).changes(node.properties[name])
        return self.changes(node.properties[name])

    def rest(self, node: SchemaNode) -> list[tuple[type, Change]]:
        """The changes of fields that are no properties.  If additional properties have no schema, they are emptied."""
        if node.values is not None:
            return self.changes(node.values)
        if node.open and self._steps.prune:
            return [(dict, _emptied), (list, _emptied)]
        return [(dict, _canonicalize), (list, _canonicalize)] if self._steps.numbers else []

    @property
    def steps(self) -> EnabledSteps:
        return self._steps

    # --- lists ------------------------------------------------------------------------------------

    def _lists(self, node: SchemaNode, *, kept: bool) -> Change | None:
        kept = kept or node.preserving
        if node.items is None:
            return _emptied if self._steps.prune and not kept else _canonicalize if self._steps.numbers else None
        changes = self.changes(node.items, kept=kept)
        default = copier(node.items.default) if self._fills(node.items) else None
        numbers = self._steps.numbers and may_be_number(node.items)
        if not changes and default is None and not numbers:
            return None

        def change(value: list[Any], unknown: Unknown) -> None:
            if default is not None and None in value:
                value[:] = [default() if item is None else item for item in value]
            if numbers:
                value[:] = [
                    canonical_number(item) if type(item) is float or type(item) is int else item for item in value
                ]
            for exact, deeper in changes:
                for item in value:
                    if item.__class__ is exact:
                        deeper(item, unknown)

        return change

    def _fills(self, node: SchemaNode) -> bool:
        """Whether nulls get the default."""
        return self._steps.default and node.has_default and not node.nullable


class _Fields:
    """The change of an object.  Objects have few different sets of fields; each set has a plan."""

    def __init__(self, compiler: _Compiler, node: SchemaNode, *, root: bool, kept: bool) -> None:
        steps = compiler.steps
        self._node = node
        identity = IDENTITY if root or node.embedded else frozenset()
        self._known = identity.union(node.properties)
        self._closed = steps.prune and not (kept or node.preserving or node.open)
        self._below = {name: compiler.below(node, name, root=root) for name in node.properties}
        self._rest = [] if self._closed else compiler.rest(node)
        self._defaults = {
            name: copier(one.default) for name, one in node.properties.items() if one.has_default and steps.default
        }
        self._drops_nulls = steps.default and bool(node.properties or node.values)
        self._numbers = frozenset(name for name, one in node.properties.items() if may_be_number(one) and steps.numbers)
        self._other_numbers = steps.numbers and not self._closed and (not node.values or may_be_number(node.values))
        self._plans: dict[tuple[str, ...], FieldPlan] = {}

    @property
    def does_something(self) -> bool:
        return bool(
            self._closed
            or self._defaults
            or self._drops_nulls
            or self._rest
            or self._numbers
            or self._other_numbers
            or any(self._below.values())
        )

    def change(self, value: Obj, unknown: Unknown) -> None:
        if self._drops_nulls and None in value.values():
            self._drop_nulls(value)
        names = tuple(value)
        plan = self._plans.get(names)
        if plan is None:
            plan = self._planned(names)
            if len(self._plans) < MOST_PLANS and len(names) <= LARGEST_PLAN and self._known.issuperset(names):
                self._plans[names] = plan
        if plan is NOTHING:
            return
        strangers, missing, below, numbers = plan
        for name in strangers:
            unknown.append((value, name))
        for name, default in missing:
            value[name] = default()
        for name in numbers:
            item = value[name]
            if type(item) is float or type(item) is int:
                value[name] = canonical_number(item)
        for name, exact, deeper in below:
            item = value[name]
            if item.__class__ is exact:
                deeper(item, unknown)

    def _planned(self, names: tuple[str, ...]) -> FieldPlan:
        unknown = [name for name in names if name not in self._known] if self._closed else []
        present = frozenset(names)
        missing = [(name, default) for name, default in self._defaults.items() if name not in present]
        there = [*names, *(name for name, _ in missing)]
        below = [(name, *change) for name in there for change in self._changes(name)]
        numbers = [name for name in names if self._may_be_number(name)]
        plan = FieldPlan(unknown, missing, below, numbers)
        return plan if any(plan) else NOTHING

    def _changes(self, name: str) -> list[tuple[type, Change]]:
        return self._below.get(name, []) if name in self._known else self._rest

    def _may_be_number(self, name: str) -> bool:
        return self._other_numbers if name not in self._known else name in self._numbers

    def _drop_nulls(self, value: Obj) -> None:
        """Deletes nulls of fields that are not nullable; defaults replace some."""
        for name in [name for name, item in value.items() if item is None]:
            one = self._node.field(name)
            if one is None or one.nullable:
                continue
            if name not in self._node.properties and one.has_default:
                value[name] = copier(one.default)()
            else:
                del value[name]


def _emptied(value: Any, unknown: Unknown) -> None:
    """Nothing is known of what is in here.  Lists stay, however deep, but the objects in them are emptied."""
    rest = [value]
    for item in rest:
        if type(item) is dict:
            unknown += [(item, name) for name in item]
        elif type(item) is list:
            rest += item


def _canonicalize(value: Any, unknown: Unknown) -> None:
    canonicalize_numbers(value)


def may_be_number(node: SchemaNode) -> bool:
    return not node.types or not NUMBER_TYPES.isdisjoint(node.types)


NUMBER_TYPES: Final = frozenset({"integer", "number"})


def copier(value: Any) -> Callable[[], Any]:
    """A function that gives a fresh copy of a default."""
    if type(value) in (dict, list) and not value:
        return type(value)
    if type(value) not in (dict, list):
        return lambda: value
    encoded = orjson.dumps(value)
    return lambda: orjson.loads(encoded)
