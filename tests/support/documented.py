"""Which fields of a schema nobody described."""

from __future__ import annotations

from typing import Any


def undocumented(schema: Any, place: str = "") -> list[str]:
    found = []
    for name, field in schema.get("properties", {}).items():
        if place or name != "metadata":
            found += [] if field.get("description") else [f"{place}.{name}"]
            found += undocumented(field, f"{place}.{name}")
    for inner in ("items", "additionalProperties"):
        if inner in schema:
            found += [] if schema[inner].get("description") else [f"{place}[]"]
            found += undocumented(schema[inner], f"{place}[]")
    return found
