"""The division of values into fields by type: the walks of field ownership and server-side apply.

    FieldShape     a leaf: scalars, and values that are replaced as a whole
    StructShape    named fields
    Map            string keys
    Deduced        any JSON: objects have fields by key, other values are leaves
    ListMap        items identified by the values of their key fields
    ListSet        items identified by their value

What a shape computes for values of its type:

    added      the fields of a new value
    claimed    the fields that an applied value claims
    changes    the difference of two values
    merged     an applied value merged into the live one
    pruned     the value without fields that a manager no longer applies

A value of another type is a leaf.  A list item without a key raises `Unkeyed`.

A shape is made from its schema node when it is first needed, and kept: nothing is looked up per object.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from types import NoneType
from typing import Any, Final, NamedTuple

import orjson

from farflung.machinery.errors import Obj
from farflung.machinery.fields.builtin import empty_object, key_default
from farflung.machinery.fields.sets import (
    MAX_DEPTH,
    MEMBER,
    SELF,
    Fields,
    as_member,
    difference,
    is_member,
    is_scalar,
    path,
)
from farflung.machinery.schema.model import LIST, MAP, OBJECT, Schema

METADATA: Final = path("metadata")
MAX_PLANS: Final = 512  #: per struct: clients choose which fields they set
#: the identity of an object and fields that the server sets; they have no owner
UNOWNED: Final = frozenset({"apiVersion", "kind"})
UNOWNED_METADATA: Final = frozenset(
    {
        "clusterName",
        "creationTimestamp",
        "generation",
        "managedFields",
        "name",
        "namespace",
        "resourceVersion",
        "selfLink",
        "uid",
    }
)


def no_reference(name: str) -> Schema:
    raise LookupError(name)


#: metadata of objects whose own schema does not describe it
OBJECT_META: Final[Schema] = Schema(
    {
        "type": "object",
        "properties": {
            **{
                name: {"type": "string"}
                for name in (*UNOWNED_METADATA, "deletionTimestamp", "generateName")
                if name not in ("generation", "managedFields")
            },
            "annotations": {"type": "object", "additionalProperties": {"type": "string"}},
            "deletionGracePeriodSeconds": {"type": "integer"},
            "finalizers": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
            "generation": {"type": "integer"},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            "managedFields": {"type": "array", "items": {"type": "object"}},
            "ownerReferences": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        **{name: {"type": "string"} for name in ("apiVersion", "kind", "name", "uid")},
                        **{name: {"type": "boolean"} for name in ("blockOwnerDeletion", "controller")},
                    },
                    "x-kubernetes-map-type": "atomic",
                },
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["uid"],
            },
        },
    },
    no_reference,
)


Emptied = list[tuple[Obj, str]]  #: an object, and a key of it whose null is to be removed


class Unkeyed(ValueError):
    """An item of a list has no key."""


class Changes(NamedTuple):
    """The difference between two values: added or changed fields, and removed fields."""

    taken: Fields | None
    removed: Fields | None


NOTHING: Final = Changes(None, None)
REPLACED: Final = Changes(MEMBER, None)


class FieldShape:
    """A leaf."""

    __slots__ = ()

    def added(self, value: Any) -> Fields:
        """The node of a new value: every path in it."""
        return MEMBER

    def claimed(self, value: Any) -> Fields | None:
        """The node of an applied value: its leaves and items, but not the containers around them."""
        return MEMBER

    def changes(self, old: Any, new: Any) -> Changes:
        return NOTHING if old == new else REPLACED

    def merged(self, live: Any, applied: Any) -> Any:
        """The applied value merged into the live one.  The result shares parts with both."""
        return applied

    def pruned(self, value: Any, last: Fields, kept: Fields, emptied: Emptied) -> Any:
        """The value without fields that are in `last` and not in `kept`; None if this empties it.

        A field that becomes empty stays as a null until its owners are computed; `emptied` gets these nulls.
        """
        return value


LEAF: Final = FieldShape()


class ChildShape(NamedTuple):
    """The shape of the values of a key."""

    shape: FieldShape
    named: bool  #: a struct's field, not an entry of a map
    compared: bool  #: compare the whole values first; False for recursive types


class ObjectShape(FieldShape):
    """JSON objects: structs and maps."""

    __slots__ = ()

    def field(self, name: str) -> ChildShape | None:
        """None for a field without owners."""
        raise NotImplementedError

    def child(self, name: str) -> FieldShape:
        found = self.field(name)
        return LEAF if found is None else found.shape

    def added(self, value: Any) -> Fields:
        if not value or type(value) is not dict:
            return MEMBER
        node = {SELF: MEMBER}
        for name, item in value.items():
            field = self.field(name)
            if field is not None:
                node[f"f:{name}"] = MEMBER if field.shape is LEAF else field.shape.added(item)
        return node if len(node) > 1 else MEMBER

    def claimed(self, value: Any) -> Fields | None:
        if not value or type(value) is not dict:
            return None
        node: Fields = {}
        for name, item in value.items():
            field = self.field(name)
            if field is None:
                continue
            below = field.shape.claimed(item)
            if not field.named or item is None or item == {}:
                below = MEMBER if below is None else as_member(below)
            if below is not None:
                node[f"f:{name}"] = below
        return node or None

    def changes(self, old: Any, new: Any) -> Changes:
        before = old if type(old) is dict else {}
        after = new if type(new) is dict else {}
        if not before and not after:
            return NOTHING if old == new else REPLACED
        taken: Fields = {}
        removed: Fields = {}
        for name, item in after.items():
            field = self.field(name)
            if field is None:
                continue
            if name not in before:
                taken[f"f:{name}"] = field.shape.added(item)
            elif field.compared and before[name] == item:
                continue
            else:
                _note(f"f:{name}", field.shape.changes(before[name], item), taken, removed)
        for name, item in before.items():
            if name not in after:
                field = self.field(name)
                if field is not None:
                    removed[f"f:{name}"] = field.shape.added(item)
        return Changes(taken or None, removed or None)

    def merged(self, live: Any, applied: Any) -> Any:
        if not live or type(live) is not dict:
            return applied
        if not applied or type(applied) is not dict:
            return live
        both = dict(live)
        for name, item in applied.items():
            both[name] = self.child(name).merged(live[name], item) if name in live else item
        return both

    def pruned(self, value: Any, last: Fields, kept: Fields, emptied: Emptied) -> Any:
        if not value or type(value) is not dict:
            return value
        left = dict(value)
        for element, mine in last.items():
            name = element[2:]
            if element[0] != "f" or name not in left:
                continue
            field = self.field(name)
            if field is None:
                continue
            others = kept.get(element)
            if _is_unclaimed(mine, others, named=field.named):
                del left[name]
            elif mine:
                left[name] = field.shape.pruned(left[name], mine, others or {}, emptied)
                if left[name] is None:
                    emptied.append((left, name))
        return left or None


def _note(element: str, changes: Changes, taken: Fields, removed: Fields) -> None:
    if changes.taken is not None:
        taken[element] = changes.taken
    if changes.removed is not None:
        removed[element] = changes.removed


def _is_unclaimed(mine: Fields, others: Fields | None, *, named: bool) -> bool:
    """Whether no other manager claims a field.  A claim of a part of a struct's field is a claim of the field."""
    if named:
        return others is None
    return is_member(mine) and (others is None or not is_member(others))


#: of a set of names: the node without the paths below the names, and (element, name, shape) of names with such paths
StructPlan = tuple[Fields, tuple[tuple[str, str, FieldShape], ...]]


class StructShape(ObjectShape):
    """Objects have few different sets of names; each set has a plan."""

    __slots__ = ("_depth", "_fields", "_plans", "_rest", "_schema")

    def __init__(self, schema: Schema, depth: int) -> None:
        self._schema = schema
        self._depth = depth
        self._fields: dict[str, ChildShape | None] = {}
        self._plans: dict[tuple[str, ...], StructPlan] = {}
        open_ended = bool(schema.definition.get("x-kubernetes-preserve-unknown-fields"))
        self._rest = ChildShape(deduced(depth), named=False, compared=False) if open_ended else None

    def field(self, name: str) -> ChildShape | None:
        try:
            return self._fields[name]
        except KeyError:
            shape = self._member(name)
            if shape is not None:
                field = self._fields[name] = ChildShape(shape, named=True, compared=True)
                return field
            return self._rest

    def added(self, value: Any) -> Fields:
        if not value or type(value) is not dict:
            return MEMBER
        names = tuple(value)
        node, below = self._plans.get(names) or self._planned(names)
        if below:
            node = node.copy()
            for element, name, shape in below:
                node[element] = shape.added(value[name])
        return node

    def _planned(self, names: tuple[str, ...]) -> StructPlan:
        known = [(f"f:{name}", name, field.shape) for name in names if (field := self.field(name)) is not None]
        node = {SELF: MEMBER, **{element: MEMBER for element, _, _ in known}} if known else MEMBER
        plan = node, tuple(one for one in known if one[2] is not LEAF)
        if len(self._plans) < MAX_PLANS and self.declares(names):
            self._plans[names] = plan
        return plan

    def declares(self, names: tuple[str, ...]) -> bool:
        """Whether the schema has all these fields.  Other names can be any text."""
        return self._fields.keys() >= set(names)

    def _member(self, name: str) -> FieldShape | None:
        member = self._schema.member(name)
        if member is not None:
            return _made(member, self._depth + 1)
        if self._schema.definition.get("x-kubernetes-embedded-resource"):
            return {"apiVersion": LEAF, "kind": LEAF, "metadata": _made(OBJECT_META, self._depth + 1)}.get(name)
        return None


class MetadataShape(StructShape):
    """The metadata of a whole object."""

    __slots__ = ()

    def __init__(self, schema: Schema) -> None:
        super().__init__(schema, 1)
        self._fields.update(dict.fromkeys(UNOWNED_METADATA))


class Root(StructShape):
    """A whole object."""

    __slots__ = ("_new", "_structs", "empty")

    def __init__(self, schema: Schema) -> None:
        super().__init__(schema, 0)
        self.empty: Final[Obj] = empty_object(schema)  #: a new object is compared with it
        self._new: Final = NewStruct(self, self.empty)
        self._structs: Final[Obj] = {name: {} for name, value in self.empty.items() if isinstance(value, dict)}
        metadata = schema.member("metadata") if describes_metadata(schema) else None
        self._fields.update(dict.fromkeys(UNOWNED))
        self._fields["metadata"] = ChildShape(MetadataShape(metadata or OBJECT_META), named=True, compared=False)

    def claimed(self, value: Any) -> Fields | None:
        claims = super().claimed(value)
        return None if claims is None else difference(claims, METADATA) or None

    def changes(self, old: Any, new: Any) -> Changes:
        return super().changes({**self._structs, **old}, {**self._structs, **new})

    def created(self, new: Obj) -> Fields | None:
        """The fields of a new object: the same as `changes(self.empty, new).taken`, but faster."""
        return self._new.taken(new)


#: of a set of names: the node with every name, (element, name, shape) of new fields that are no leaves, and
#: (element, name, struct or shape, empty value) of the fields that the empty value has, too
NewStructPlan = tuple[
    Fields,
    tuple[tuple[str, str, FieldShape], ...],
    tuple[tuple[str, str, "NewStruct | FieldShape", Any], ...],
]


class NewStruct:
    """A struct of a new object that Go's empty value has, too.  The creator owns the fields that differ from it."""

    __slots__ = ("_empty", "_plans", "_shape", "_structs")

    def __init__(self, shape: StructShape, empty: Obj) -> None:
        self._shape = shape
        self._empty = empty
        self._structs: dict[str, NewStruct] = {}
        self._plans: dict[tuple[str, ...], NewStructPlan] = {}

    def taken(self, value: Any) -> Fields | None:
        """`changes(empty, value).taken` of the shape."""
        if not value or type(value) is not dict:
            return self._shape.changes(self._empty, value).taken
        names = tuple(value)
        node, below, present = self._plans.get(names) or self._planned(names)
        if not below and not present:
            return node or None
        node = node.copy()
        for element, name, shape in below:
            node[element] = shape.added(value[name])
        for element, name, part, empty in present:
            item = value[name]
            taken = part.taken(item) if isinstance(part, NewStruct) else part.changes(empty, item).taken
            if taken is None:
                del node[element]
            else:
                node[element] = taken
        return node or None

    def _planned(self, names: tuple[str, ...]) -> NewStructPlan:
        known = [(f"f:{name}", name, field.shape) for name in names if (field := self._shape.field(name)) is not None]
        plan = (
            {element: MEMBER for element, _, _ in known},
            tuple(one for one in known if one[1] not in self._empty and one[2] is not LEAF),
            tuple((*one[:2], self._part(*one[1:]), self._empty[one[1]]) for one in known if one[1] in self._empty),
        )
        if len(self._plans) < MAX_PLANS and self._shape.declares(names):
            self._plans[names] = plan
        return plan

    def _part(self, name: str, shape: FieldShape) -> NewStruct | FieldShape:
        empty = self._empty[name]
        if not isinstance(shape, StructShape) or type(empty) is not dict:
            return shape
        return self._structs.setdefault(name, NewStruct(shape, empty))


class Map(ObjectShape):
    __slots__ = ("_entry",)

    def __init__(self, values: FieldShape) -> None:
        self._entry = ChildShape(values, named=False, compared=values is LEAF)

    def field(self, name: str) -> ChildShape | None:
        return self._entry

    def added(self, value: Any) -> Fields:
        if self._entry.shape is LEAF and value and type(value) is dict:
            node = {f"f:{name}": MEMBER for name in value}
            node[SELF] = MEMBER
            return node
        return super().added(value)


class Deduced(Map):
    """Values without a declared type."""

    __slots__ = ()

    def claimed(self, value: Any) -> Fields | None:
        return super().claimed(value) if type(value) is dict else MEMBER

    def changes(self, old: Any, new: Any) -> Changes:
        if {type(old), type(new)} <= {dict, NoneType} and old != new:
            return super().changes(old, new)
        below = {key: node for key, node in self.added(old).items() if key != SELF}
        return NOTHING if old == new else Changes(self.added(new), below or None)

    def merged(self, live: Any, applied: Any) -> Any:
        both = type(live) is dict and (type(applied) is dict or applied is None)
        return super().merged(live, applied) if both else applied


class List(FieldShape):
    """Lists whose items have an identity."""

    __slots__ = ("_items",)

    def __init__(self, items: FieldShape) -> None:
        self._items = items

    def element(self, item: Any) -> str:
        """The item's path element.  Raises Unkeyed."""
        raise NotImplementedError

    def added(self, value: Any) -> Fields:
        if not value or type(value) is not list:
            return MEMBER
        elements = list(map(self.element, value))
        node = {SELF: MEMBER, **dict.fromkeys(elements, MEMBER)}
        if self._items is LEAF:
            return node
        if len(node) > len(elements):
            node.update(zip(elements, map(self._items.added, value), strict=True))
        else:  # items with the same element are one leaf
            for element, items in self._indexed(value).items():
                node[element] = self._items.added(items[0]) if len(items) == 1 else MEMBER
        return node

    def claimed(self, value: Any) -> Fields | None:
        if not value or type(value) is not list:
            return None
        node: Fields = {}
        for element, items in self._indexed(value).items():
            below = self._items.claimed(items[0]) if len(items) == 1 else None
            node[element] = MEMBER if below is None else as_member(below)
        return node

    def changes(self, old: Any, new: Any) -> Changes:
        before = self._indexed(old) if type(old) is list else {}
        after = self._indexed(new) if type(new) is list else {}
        if not before and not after:
            return NOTHING if old == new else REPLACED
        taken: Fields = {}
        removed: Fields = {}
        for element in {**before, **after}:
            changes = self._item_changes(before.get(element, []), after.get(element, []))
            _note(element, changes, taken, removed)
        return Changes(taken or None, removed or None)

    def _item_changes(self, old: list[Any], new: list[Any]) -> Changes:
        """Items with the same element are one leaf."""
        if old == new:
            return NOTHING
        if len(old) == 1 and len(new) == 1:
            return self._items.changes(old[0], new[0])
        if len(old) > 1 and len(new) > 1:
            return REPLACED
        return Changes(self._all(new), self._all(old))

    def _all(self, items: list[Any]) -> Fields | None:
        if not items:
            return None
        return self._items.added(items[0]) if len(items) == 1 else MEMBER

    def _indexed(self, value: Iterable[Any]) -> dict[str, list[Any]]:
        index: dict[str, list[Any]] = {}
        for item in value:
            index.setdefault(self.element(item), []).append(item)
        return index

    def merged(self, live: Any, applied: Any) -> Any:
        if not live or type(live) is not list:
            return applied
        if not applied or type(applied) is not list:
            return live
        return self._interleaved(live, {self.element(item): item for item in applied})

    def _interleaved(self, live: list[Any], applied: dict[str, Any]) -> list[Any]:
        """The applied items in their order.  Items that are only live stay before the shared item that followed
        them."""
        names = [self.element(item) for item in live]
        index = self._indexed(live)
        shared = [name for name in reversed(applied) if name in index]
        awaited = shared.pop() if shared else None
        result: list[Any] = []
        position = 0
        for name, item in applied.items():
            while position < len(names) and names[position] != awaited:
                if names[position] not in applied:
                    result.append(live[position])
                position += 1
            if name == awaited:
                position += 1
                awaited = shared.pop() if shared else None
            present = index.get(name, [])
            result.append(self._items.merged(present[0], item) if len(present) == 1 else item)
        result += [item for name, item in zip(names[position:], live[position:], strict=True) if name not in applied]
        return result

    def pruned(self, value: Any, last: Fields, kept: Fields, emptied: Emptied) -> Any:
        if not value or type(value) is not list:
            return value
        left: list[Any] = []
        for item in value:
            element = self.element(item)
            mine, others = last.get(element), kept.get(element)
            if mine is None:
                left.append(item)
            elif not _is_unclaimed(mine, others, named=False):
                left.append(self._items.pruned(item, mine, others or {}, emptied) if mine else item)
        return left or None


class ListMap(List):
    __slots__ = ("_keys",)

    def __init__(self, items: FieldShape, keys: Iterable[tuple[str, Any]]) -> None:
        super().__init__(items)
        self._keys = tuple((name, f"{orjson.dumps(name).decode()}:", default) for name, default in sorted(keys))

    def element(self, item: Any) -> str:
        if type(item) is not dict:
            kind = "a null element" if item is None else "non-map elements"
            raise Unkeyed(f"associative list with keys may not have {kind}")
        pairs: list[str] = []
        for name, prefix, default in self._keys:
            value = item.get(name, default)
            if type(value) is str:
                pairs.append(prefix + orjson.dumps(value).decode())
                continue
            if value is None and name not in item:
                missing = f'an element that omits key field "{name}" (and doesn\'t have default value)'
                raise Unkeyed(f"associative list with keys has {missing}")
            if not is_scalar(value):
                raise Unkeyed(f'associative list with keys has an element whose key field "{name}" is not a scalar')
            pairs.append(prefix + orjson.dumps(value).decode())
        return "k:{" + ",".join(pairs) + "}"


class ListSet(List):
    __slots__ = ()

    def element(self, item: Any) -> str:
        if type(item) is dict:
            raise Unkeyed("associative list without keys has an element that's a map type")
        if type(item) is list:
            raise Unkeyed("not supported: associative list with lists as elements")
        if item is None:
            raise Unkeyed("associative list without keys has an element that's an explicit null")
        return "v:" + orjson.dumps(item).decode()


# --- from schemas ---------------------------------------------------------------------------------


@lru_cache(maxsize=1024)
def shape_of(schema: Schema) -> Root:
    """The shape of a kind's whole objects."""
    return Root(schema)


def _made(schema: Schema, depth: int) -> FieldShape:
    if depth > MAX_DEPTH:
        return LEAF
    if schema.kind == LIST:
        return _made_list(schema, depth)
    if schema.definition.get("x-kubernetes-map-type") == "atomic":
        return LEAF
    if schema.kind == OBJECT or schema.definition.get("x-kubernetes-embedded-resource"):
        return StructShape(schema, depth)
    if schema.kind == MAP:
        return Map(_made(schema.values, depth + 1))
    return deduced(depth) if schema.definition.get("x-kubernetes-preserve-unknown-fields") else LEAF


def _made_list(schema: Schema, depth: int) -> FieldShape:
    match schema.list_type:
        case "map":
            items = schema.items
            return list_map(_made(items, depth + 1), items, schema.list_keys)
        case "set":
            return ListSet(LEAF)
        case _:
            return LEAF


def describes_metadata(schema: Schema) -> bool:
    """Whether the schema of a kind describes its metadata.  Those of custom resources need not."""
    metadata = schema.member("metadata")
    return metadata is not None and "labels" in metadata.property_names


def list_map(shape: FieldShape, items: Schema, keys: Iterable[str]) -> ListMap:
    return ListMap(shape, [(key, key_default(items, key)) for key in keys])


def deduced(depth: int) -> FieldShape:
    return _DEDUCED[min(depth, MAX_DEPTH)]


def _deduced_levels() -> list[FieldShape]:
    levels: list[FieldShape] = [LEAF]
    for _ in range(MAX_DEPTH):
        levels.append(Deduced(levels[-1]))
    return levels[::-1]


_DEDUCED: Final = _deduced_levels()
