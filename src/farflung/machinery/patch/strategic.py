"""Strategic merge patch: a merge patch that knows which lists are keyed, with its directives.

    $patch: replace | delete | merge         on a map, or on an item of a keyed list
    $setElementOrder/<list>: [...]           the order the merged list gets
    $deleteFromPrimitiveList/<list>: [...]   values to take out of a list of scalars
    $retainKeys: [...]                       the only keys that stay

Which lists merge, and by which key, is in the schema (`x-kubernetes-patch-strategy`, `-merge-key`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from farflung.machinery import go_text
from farflung.machinery.errors import Obj, bad_request
from farflung.machinery.schema.model import LIST, Schema

DIRECTIVE: Final = "$patch"
RETAIN_KEYS: Final = "$retainKeys"
ELEMENT_ORDER: Final = "$setElementOrder/"
DELETE_FROM: Final = "$deleteFromPrimitiveList/"


def apply(document: Obj, patch: Obj, schema: Schema) -> Obj:
    """The patched document.  Both are the caller's copies and may be taken apart."""
    return _merge_map(document, patch, schema)


def _merge_map(original: Obj, patch: Obj, schema: Schema | None) -> Obj:
    if DIRECTIVE in patch:
        return _by_directive(patch)
    _retain_keys(original, patch)
    _merge_ordered_lists(original, patch, schema)
    for name, value in patch.items():
        if name.startswith(DELETE_FROM):
            field = name.removeprefix(DELETE_FROM)
            if isinstance(original.get(field), list) and isinstance(value, list):
                deleted = {one for one in value if not isinstance(one, dict | list)}
                original[field] = [one for one in original[field] if isinstance(one, dict | list) or one not in deleted]
        elif value is None:
            original.pop(name, None)
        else:
            original[name] = _merged(original.get(name), value, _member(schema, name))
    return original


def _by_directive(patch: Obj) -> Obj:
    match patch.pop(DIRECTIVE):
        case "replace":
            return _plain(patch)  # type: ignore[no-any-return]
        case "delete":
            return {}
        case unknown:
            raise bad_request(f"unknown {DIRECTIVE} directive: {unknown}")


def _merged(original: Any, patch: Any, schema: Schema | None) -> Any:
    if isinstance(original, dict) and isinstance(patch, dict):
        if schema is not None and "replace" in schema.strategies:
            return _plain(patch)
        return _merge_map(original, patch, schema)
    if isinstance(original, list) and isinstance(patch, list) and schema is not None and "merge" in schema.strategies:
        # merge, then order the items of the patch and those that only the server has
        merged, order = _combined(original, patch, schema)
        return _in_order(merged, order, original, schema.merge_key)
    return _plain(patch)


def _member(schema: Schema | None, name: str) -> Schema | None:
    return schema.field(name) if schema is not None else None


def _plain(value: Any) -> Any:
    """A value that is taken as it is: without directives and without nulls."""
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items() if one is not None and not _is_directive(name)}
    if isinstance(value, list):
        kept = [one for one in value if not (isinstance(one, dict) and set(one) == {DIRECTIVE})]
        return [_plain(one) for one in kept]
    return value


def _is_directive(name: str) -> bool:
    return name in (DIRECTIVE, RETAIN_KEYS) or name.startswith((ELEMENT_ORDER, DELETE_FROM))


def _retain_keys(original: Obj, patch: Obj) -> None:
    if RETAIN_KEYS not in patch:
        return
    retained = patch.pop(RETAIN_KEYS)
    if not isinstance(retained, list):
        raise bad_request(f"{RETAIN_KEYS} must be a list of names")
    kept = set(map(str, retained))
    for name in patch:
        if name not in kept and not _is_directive(name):
            raise bad_request("invalid patch format of retainKeys")
    for name in original.keys() - kept:
        del original[name]


# --- lists ----------------------------------------------------------------------------------------


def _combined(original: list[Any], patch: list[Any], schema: Schema) -> tuple[list[Any], list[Any]]:
    """(the merged items in no particular order, the patch's own items)."""
    if not any(isinstance(one, dict) for one in (*original, *patch)):
        return _distinct([*original, *patch]), patch
    key = schema.merge_key
    if not key:
        raise bad_request(f"cannot merge lists without merge key for {schema.items.name}")
    kept, wanted = _special_items(original, patch, key)
    if kept is None:
        return wanted, wanted
    places = {_key_of(item, key): place for place, item in reversed([*enumerate(kept)])}
    for item in wanted:
        place = places.setdefault(_key_of(item, key), len(kept))
        if place == len(kept):
            kept.append(_plain(item))
        else:
            kept[place] = _merge_map(kept[place], item, schema.items)
    return kept, wanted


def _special_items(original: list[Any], patch: list[Any], key: str) -> tuple[list[Any] | None, list[Any]]:
    """Carry out `$patch` items.  (What stays of the original, or None if it is replaced; the ordinary items.)"""
    ordinary, deleted, replaced = [], set(), False
    for item in patch:
        directive = item.get(DIRECTIVE) if isinstance(item, dict) else None
        if directive is None:
            _key_of(item, key)
            ordinary.append(item)
        elif directive == "delete":
            if key not in item:
                raise bad_request("delete patch type with no merge key defined")
            deleted.add(_key_of(item, key))
        elif directive == "replace":
            replaced = True
        elif directive == "merge":
            ordinary.append({name: value for name, value in item.items() if name != DIRECTIVE})
        else:
            raise bad_request(f"unknown {DIRECTIVE} directive: {directive}")
    if replaced:
        return None, [_plain(item) for item in ordinary]
    return [item for item in original if _key_of(item, key) not in deleted], ordinary


def _key_of(item: Any, key: str) -> Any:
    """The value of an item's merge key, as something that can be compared and hashed."""
    if not isinstance(item, dict) or key not in item:
        raise bad_request(f"map: {go_text.plain(item)} does not contain declared merge key: {key}")
    value = item[key]
    return value if isinstance(value, str | int | float | bool | None) else go_text.plain(value)


def _merge_ordered_lists(original: Obj, patch: Obj, schema: Schema | None) -> None:
    """Merge the lists whose order the patch sets, and remove them from the patch."""
    for directive in [name for name in patch if name.startswith(ELEMENT_ORDER)]:
        order = patch.pop(directive)
        name = directive.removeprefix(ELEMENT_ORDER)
        member = _member(schema, name)
        if not isinstance(order, list) or member is None or member.kind != LIST:
            raise bad_request(f"{directive} must be the order of a list")
        present = original.get(name)
        wanted = patch.pop(name, None)
        if not isinstance(present, list):
            present = []
        if not present and wanted is None:
            continue
        if isinstance(wanted, list):
            _check_order(wanted, order, name, member.merge_key)
        merged = _combined(list(present), wanted, member)[0] if isinstance(wanted, list) else present
        original[name] = _in_order(merged, order, present, member.merge_key)


def _check_order(patch: list[Any], order: list[Any], name: str, key: str) -> None:
    """The items of a patch must be in its $setElementOrder, in that order."""
    named = [item for item in patch if not (isinstance(item, dict) and DIRECTIVE in item)]
    rest = iter([_identity(item, key) for item in order])
    if not all(_identity(item, key) in rest for item in named):
        wanted = f"{ELEMENT_ORDER}{name} list:\n{go_text.plain(order)}\n"
        raise bad_request(f"The order in patch list:\n{go_text.plain(patch)}\n doesn't match {wanted}")


def _identity(item: Any, key: str) -> Any:
    return _key_of(item, key) if isinstance(item, dict) else item


def _in_order(merged: list[Any], order: Sequence[Any], server: Sequence[Any], key: str) -> list[Any]:
    """Items named in `order` come in that order, the others in the server's; where both are known to the server their
    old order decides; otherwise items of the patch come first."""

    def identity(item: Any) -> Any:
        return _identity(item, key)

    wanted = _ranks(map(identity, order))
    before = _ranks(map(identity, server))
    named = [item for item in merged if identity(item) in wanted]
    others = [item for item in merged if identity(item) not in wanted]
    named.sort(key=lambda item: wanted[identity(item)])
    others.sort(key=lambda item: before.get(identity(item), len(before)))
    result: list[Any] = []
    left, right = 0, 0
    while left < len(others) and right < len(named):
        left_rank, right_rank = before.get(identity(others[left])), before.get(identity(named[right]))
        if left_rank is not None and right_rank is not None and left_rank < right_rank:
            result.append(others[left])
            left += 1
        else:
            result.append(named[right])
            right += 1
    return result + others[left:] + named[right:]


def _ranks(identities: Any) -> dict[Any, int]:
    ranks: dict[Any, int] = {}
    for identity in identities:
        if isinstance(identity, list | dict):
            raise bad_request("a list of lists has no order to set")
        ranks.setdefault(identity, len(ranks))
    return ranks


def _distinct(values: list[Any]) -> list[Any]:
    seen: list[Any] = []
    known: set[Any] = set()
    for value in values:
        if isinstance(value, list):
            raise bad_request("cannot merge lists of lists")
        if value not in known:
            known.add(value)
            seen.append(value)
    return seen
