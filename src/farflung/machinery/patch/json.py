"""JSON patch (RFC 6902), with the deviations of Kubernetes' implementation:

- `replace` of a missing key adds it, and a copy from a missing key copies null
- `test` of a missing path equals null, and an operation without a value has the value null
- negative list indices count from the end
"""

from __future__ import annotations

from typing import Any, Final

import orjson

from farflung.machinery.errors import NAMES, ApiError, bad_request

MAX_OPERATIONS: Final = 10_000
MAX_COPIED: Final = 3 * 1024 * 1024  #: bytes, of all copies of a patch together: a few dozen could fill any memory
OPERATION_FIELDS: Final = frozenset({"op", "from", "path", "value"})


class _Rejected(Exception):
    pass


def rejected() -> ApiError:
    """Kubernetes' error for every patch that cannot be applied."""
    message = "the server rejected our request due to an error in our request"
    return ApiError(422, "Invalid", message, {})


def check(operations: Any) -> list[str]:
    """The unknown fields of the operations.  Raises ApiError for an invalid patch."""
    if not isinstance(operations, list):
        kind = NAMES.get(type(operations), "null")
        why = f"json: cannot unmarshal {kind} into Go value of type []handlers.jsonPatchOp"
        raise bad_request(f"error decoding patch: {why}")
    if len(operations) > MAX_OPERATIONS:
        found = f"The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {len(operations)}"
        raise _too_large(found)
    return [
        f'json patch unknown field "[{position}].{field}"'
        for position, operation in enumerate(operations)
        if isinstance(operation, dict)
        for field in sorted(operation.keys() - OPERATION_FIELDS)
    ]


def apply(document: Any, operations: list[Any]) -> Any:
    """The patched document.  The one given is changed in place; it is the caller's copy."""
    copies = _Copies()
    try:
        for operation in operations:
            if not isinstance(operation, dict):
                raise _Rejected
            document = _apply_one(document, operation, copies)
    except _Rejected:
        raise rejected() from None
    return document


class _Copies:
    """Makes them, and counts their bytes."""

    def __init__(self) -> None:
        self._size = 0

    def of(self, value: Any) -> Any:
        try:
            text = orjson.dumps(value)
        except orjson.JSONEncodeError:  # deeper than anything that is stored
            raise _Rejected from None
        self._size += len(text)
        if self._size > MAX_COPIED:
            grown = f"the accumulated size increase of copy is {self._size}, exceeding the limit {MAX_COPIED}"
            raise _too_large(f"Unable to complete the copy, {grown}")
        return orjson.loads(text)


def _too_large(why: str) -> ApiError:
    return ApiError(413, "RequestEntityTooLarge", f"Request entity too large: {why}")


def _apply_one(document: Any, operation: dict[str, Any], copies: _Copies) -> Any:
    path = operation.get("path")
    if not isinstance(path, str):
        raise _Rejected
    keys = _keys(path)
    value = operation.get("value")
    match operation.get("op"):
        case "add":
            return _put(document, keys, value, insert=True)
        case "replace":
            return _put(document, keys, value, insert=False)
        case "remove":
            _remove(document, keys)
        case "move":
            source = _keys(operation.get("from"))
            moved = _get(document, source)
            if moved is _MISSING:
                raise _Rejected
            _remove(document, source)
            return _put(document, keys, moved, insert=True)
        case "copy":
            copied = _get(document, _keys(operation.get("from")))
            return _put(document, keys, None if copied is _MISSING else copies.of(copied), insert=True)
        case "test":
            found = _get(document, keys)
            if (None if found is _MISSING else found) != value:
                raise _Rejected
        case _:
            raise _Rejected
    return document


_MISSING: Final = object()


def _keys(path: Any) -> list[str]:
    """The steps of a pointer.  A path without its leading slash loses its first step, as upstream."""
    if not isinstance(path, str):
        raise _Rejected
    return [step.replace("~1", "/").replace("~0", "~") for step in path.split("/")[1:]]


def _get(document: Any, keys: list[str]) -> Any:
    for key in keys:
        if isinstance(document, dict):
            document = document.get(key, _MISSING)
        elif isinstance(document, list):
            document = document[_index(key, len(document))]
        else:
            raise _Rejected
        if document is _MISSING:
            return _MISSING
    return document


def _parent(document: Any, keys: list[str]) -> Any:
    parent = _get(document, keys[:-1])
    if not isinstance(parent, dict | list):
        raise _Rejected
    return parent


def _put(document: Any, keys: list[str], value: Any, *, insert: bool) -> Any:
    if not keys:
        return value
    parent, key = _parent(document, keys), keys[-1]
    if isinstance(parent, dict):
        parent[key] = value
    elif insert:
        parent.insert(len(parent) if key == "-" else _index(key, len(parent) + 1), value)
    else:
        parent[_index(key, len(parent))] = value
    return document


def _remove(document: Any, keys: list[str]) -> None:
    if not keys:
        raise _Rejected
    parent, key = _parent(document, keys), keys[-1]
    if isinstance(parent, list):
        del parent[_index(key, len(parent))]
    elif key in parent:
        del parent[key]
    else:
        raise _Rejected


def _index(key: str, length: int) -> int:
    digits = key.removeprefix("-")
    if not digits.isascii() or not digits.isdigit() or len(digits) > 9:
        raise _Rejected
    index = int(key)
    if not -length <= index < length:
        raise _Rejected
    return index + length if index < 0 else index
