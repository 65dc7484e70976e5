"""Sets of field paths, in the form in which `fieldsV1` carries them.

A set is a tree of dicts.  A path is in the set if its node is empty or has the marker ".".  Other nodes are only
parents of paths:

    {"f:data": {}}                             .data
    {"f:data": {".": {}, "f:a": {}}}           .data and .data.a
    {"f:ports": {'k:{"port":80}': {}}}         .ports[port=80]

At the top, `{}` is the empty set.  A node is never `{".": {}}`: that is written as `{}`.  Sets share nodes with each
other and with objects, so they are never changed in place.  An operation that changes nothing returns its first
operand, which callers compare with `is`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import orjson

from farflung.machinery.errors import Place, bad_request, go_quote, place_text

Fields = dict[str, Any]  #: a set, or a node in one

MEMBER: Final[Fields] = {}  #: the node of a path in the set without paths below it
SELF: Final = "."
MAX_DEPTH: Final = 128  #: deeper fields are owned as a whole


def is_member(node: Fields) -> bool:
    return not node or SELF in node


def as_member(node: Fields) -> Fields:
    """The node with its own path added."""
    return node if is_member(node) else {SELF: MEMBER, **node}


def path(*names: str) -> Fields:
    """The set of one path of field names: `path("spec", "replicas")`."""
    node = MEMBER
    for name in reversed(names):
        node = {f"f:{name}": node}
    return node


def has(fields: Fields, single: Fields) -> bool:
    """Whether the path of `single`, a set made by `path`, is in the set."""
    while single:
        ((key, single),) = single.items()
        below = fields.get(key)
        if below is None:
            return False
        fields = below
    return is_member(fields)


# --- algebra --------------------------------------------------------------------------------------


def union(first: Fields, second: Fields) -> Fields:
    """The union of two sets, or of the contents of two nodes that both have paths below them."""
    changed: Fields | None = None
    for key, theirs in second.items():
        mine = first.get(key)
        both = theirs if mine is None else _node_union(mine, theirs)
        if both is not mine:
            changed = dict(first) if changed is None else changed
            changed[key] = both
    return first if changed is None else changed


def _node_union(first: Fields, second: Fields) -> Fields:
    if not second:
        return as_member(first)
    if not first:
        return as_member(second)
    return union(first, second)


def difference(first: Fields, second: Fields) -> Fields:
    """The paths of the first that are not in the second.  Removing .a does not remove .a.b."""
    changed: Fields | None = None
    for key, theirs in second.items():
        mine = first.get(key)
        if mine is None:
            continue
        left = _node_difference(mine, theirs)
        if left is not mine:
            changed = dict(first) if changed is None else changed
            if left is None:
                del changed[key]
            else:
                changed[key] = left
    return first if changed is None else changed


def _node_difference(first: Fields, second: Fields) -> Fields | None:
    if not first:
        return None if is_member(second) else first
    left = difference(first, second or {SELF: MEMBER})
    if left is first:
        return first
    return _normal(left)


def intersection(first: Fields, second: Fields) -> Fields:
    common: Fields = {}
    for key, mine in first.items():
        theirs = second.get(key)
        if theirs is not None:
            both = _node_intersection(mine, theirs)
            if both is not None:
                common[key] = both
    return common


def _node_intersection(first: Fields, second: Fields) -> Fields | None:
    if not first:
        return MEMBER if is_member(second) else None
    if not second:
        return MEMBER if SELF in first else None
    return _normal(intersection(first, second))


def without_trees(first: Fields, second: Fields) -> Fields:
    """The paths of the first that are neither in the second nor below a path of it."""
    left: Fields = {}
    for key, mine in first.items():
        theirs = second.get(key)
        if theirs is None:
            left[key] = mine
        elif not is_member(theirs):
            rest = mine if not mine else _normal(without_trees(mine, theirs))
            if rest is not None:
                left[key] = rest
    return left


def _normal(inside: Fields) -> Fields | None:
    """The rest of a node after a removal below it; None if nothing remains."""
    if not inside:
        return None
    return MEMBER if len(inside) == 1 and SELF in inside else inside


# --- wire -----------------------------------------------------------------------------------------


def parse(fields: Any) -> Fields:
    """A client's `fieldsV1` as a set in normal form.  Raises ApiError."""
    if fields is None:
        return {}
    return _parse(fields, MAX_DEPTH)


def _parse(fields: Any, depth: int) -> Fields:
    if not isinstance(fields, dict):
        raise bad_request("fieldsV1: every level must be an object")
    if not depth:
        raise bad_request("fieldsV1: nested too deeply")
    inside: Fields = {}
    for key, below in fields.items():
        if key == SELF:
            inside[SELF] = MEMBER
            continue
        element = _parse_element(key)
        if element is None:
            continue
        node = _normal(_parse(below, depth - 1))
        node = MEMBER if node is None else node
        inside[element] = _node_union(inside[element], node) if element in inside else node
    return inside


def _parse_element(key: str) -> str | None:
    """A path element in normal form; None for an unknown kind of element, which is ignored."""
    if key[1:2] != ":":
        raise bad_request(f"fieldsV1: missing colon: {key}")
    kind, text = key[0], key[2:]
    if kind == "f":
        return key
    if kind not in "vki":
        return None
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        raise bad_request(f"fieldsV1: not a path element: {key}") from None
    if not _fits(kind, value):
        raise bad_request(f"fieldsV1: not a path element: {key}")
    return f"{kind}:{orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()}"


def _fits(kind: str, value: Any) -> bool:
    match kind:
        case "k":
            return isinstance(value, dict) and all(map(is_scalar, value.values()))
        case "i":
            return type(value) is int
        case _:
            return is_scalar(value)


def is_scalar(value: Any) -> bool:
    return not isinstance(value, dict | list)


# --- text -----------------------------------------------------------------------------------------


def paths(fields: Fields) -> Iterator[str]:
    """The paths as text, `.spec.ports[port=80].name`, parents first."""
    return map(place_text, places(fields))


def places(fields: Fields, place: Place = None) -> Iterator[Place]:
    elements = sorted((key for key in fields if key != SELF), key=_order)
    for key in elements:
        if is_member(fields[key]):
            yield place, element_text(key)
    for key in elements:
        if fields[key]:
            yield from places(fields[key], (place, element_text(key)))


def _order(key: str) -> tuple[int, str]:
    return "fkvi".index(key[0]), key


def element_text(key: str) -> str:
    kind, text = key[0], key[2:]
    match kind:
        case "f":
            return f".{text}"
        case "k":
            pairs = orjson.loads(text).items()
            return "[" + ",".join(f"{name}={_value_text(value)}" for name, value in pairs) + "]"
        case "v":
            return f"[={_value_text(orjson.loads(text))}]"
        case _:
            return f"[{text}]"


def _value_text(value: Any) -> str:
    return go_quote(value) if isinstance(value, str) else orjson.dumps(value).decode()
