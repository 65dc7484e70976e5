"""The `fieldPath` of a validation rule: `.spec.ports`, `['a-b'].c`."""

from __future__ import annotations

import re
from typing import Any, Final

from farflung.machinery.errors import Obj

_FIELD_PART: Final = re.compile(r"\.(?P<name>[^.\[\]']+)|\['(?P<quoted>(?:[^'\\]|\\[abfnrtv'\\])*)'\]")
_FIELD_ESCAPE: Final = re.compile(r"\\(.)")
_FIELD_ESCAPES: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def resolve_field_path(text: str, schema: Obj) -> str | None:
    """The path as messages write it: `spec.labels[a]`.  None if the schema has no such field."""
    path = ""
    at = 0
    within: Any = schema
    while at < len(text):
        match = _FIELD_PART.match(text, at)
        if match is None or not isinstance(within, dict):
            return None
        name = match["name"]
        if name is None:
            name = _FIELD_ESCAPE.sub(lambda escape: _FIELD_ESCAPES.get(escape[1], escape[1]), match["quoted"])
        if within.get("properties"):
            within = within["properties"].get(name)
            path = f"{path}.{name}" if path else name
        else:
            within = within.get("additionalProperties")
            path = f"{path}[{name}]"
        if within is None or within is False:
            return None
        at = match.end()
    return path
