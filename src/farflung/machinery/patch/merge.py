"""JSON merge patch (RFC 7386): objects merge, null deletes, everything else replaces."""

from __future__ import annotations

from typing import Any


def apply(document: Any, patch: Any) -> Any:
    """The patched document.  Dicts of the document are changed in place; it is the caller's copy."""
    if not isinstance(patch, dict):
        return patch
    if not isinstance(document, dict):
        document = {}
    for key, value in patch.items():
        if value is None:
            document.pop(key, None)
        elif isinstance(value, dict):
            document[key] = apply(document.get(key), value)
        else:
            document[key] = value
    return document
