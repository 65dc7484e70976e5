"""Fields of objects that may have any content, and texts that are safe to print.  Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

from farflung.apis.kcp.names import CLUSTER_ANNOTATION
from farflung.machinery import times
from farflung.machinery.errors import Obj

MAX_LINE_TEXT: Final = 200  #: longest text in a line


def at(obj: Any, *path: str) -> Any:
    """None if missing, also if a parent is not an object."""
    for name in path:
        if not isinstance(obj, dict):
            return None
        obj = obj.get(name)
    return obj


def text(obj: Any, *path: str) -> str:
    """Empty if it is not a string."""
    found = at(obj, *path)
    return found if isinstance(found, str) else ""


def number(obj: Any, *path: str) -> int:
    """0 if it is not a positive integer."""
    found = at(obj, *path)
    return found if isinstance(found, int) and not isinstance(found, bool) and found > 0 else 0


def objects(obj: Any, *path: str) -> Iterator[Obj]:
    """Objects in a list."""
    found = at(obj, *path)
    yield from (one for one in found if isinstance(one, dict)) if isinstance(found, list) else ()


def texts(obj: Any, *path: str) -> dict[str, str]:
    """A map of strings, like labels."""
    found = at(obj, *path)
    pairs = found.items() if isinstance(found, dict) else ()
    return {key: value for key, value in pairs if isinstance(value, str)}


def moment(obj: Any, *path: str) -> datetime | None:
    try:
        return times.parse(text(obj, *path))
    except times.TimeError:
        return None


def condition(obj: Any, type: str) -> Obj:
    """Of its status; empty if there is none of this type."""
    return next((one for one in objects(obj, "status", "conditions") if one.get("type") == type), {})


def name_of(obj: Any) -> str:
    return text(obj, "metadata", "name")


def cluster_of(obj: Any) -> str:
    """Its logical cluster; empty if unknown."""
    return texts(obj, "metadata", "annotations").get(CLUSTER_ANNOTATION, "")


def line(words: str, longest: int = MAX_LINE_TEXT) -> str:
    """For a terminal: one line, without control characters, bounded."""
    plain = " ".join("".join(char if char.isprintable() else " " for char in words[: 4 * longest]).split())
    return plain if len(plain) <= longest else f"{plain[: longest - 1]}…"


def ago(since: datetime | None, now: datetime) -> str:
    """The age; empty if unknown.  Times in the future count as now."""
    return "" if since is None else times.human(max(now, since) - since)
