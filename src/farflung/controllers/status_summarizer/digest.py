"""What counts of one copy.  Pure.

A status comes from a cluster that may say anything: every field may be of any type and size.  What is not as it should
be counts as if it were not there, and what is more than anybody reads is left out: the same of equal statuses.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, TypeVar

import orjson

from farflung.controllers.placement_translator.values import Kind
from farflung.controllers.status_summarizer.values import Digest
from farflung.controllers.status_summarizer.verdicts import moment, verdict_of

DEPTH: Final = 6  #: names in a path
NUMBERS: Final = 64
CONDITIONS: Final = 32
TEXTS: Final = 16
TEXT_DEPTH: Final = 2  #: names in the path of a text

_OBJECTS: Final = 64  #: within a status that are looked into
_FIELDS: Final = 256  #: an object with more of them is a table, and is not looked into
_ENTRIES: Final = 64  #: of a list of conditions that are looked at

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,62}")  #: of a field: without dots, which paths have
_BOOKKEEPING: Final = ("Generation", "collisionCount")  #: ends of names of numbers that mean nothing together
_TYPE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,62}")  #: of a condition
_STATUSES: Final = ("True", "False", "Unknown")
_WORD: Final = re.compile(r"[A-Z][A-Za-z]{0,62}")
_STATE: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,62}")
_STATES: Final = frozenset({"health", "phase", "result", "state", "status"})  #: where words may have any form

#: The hub gives these a status of zeros when they are created.
_CREATED_WITH_ZEROS: Final = frozenset(
    {
        Kind("", "replicationcontrollers"),
        Kind("apps", "daemonsets"),
        Kind("apps", "replicasets"),
        Kind("apps", "statefulsets"),
        Kind("policy", "poddisruptionbudgets"),
    }
)

V = TypeVar("V")


def digest_of(kind: Kind, document: bytes) -> Digest:
    """Of a copy as its mailbox has it, in JSON.

    Numbers: those of objects within objects, down to DEPTH, not those of lists.  Texts: words such as `Running`, and
    in fields such as `phase` words of any form, so neither addresses nor times.  If there are too many, those that are
    less deep count, and of these the first by their paths.  Of two conditions of a type the first counts.
    """
    copy = _decoded(document)
    status = _object(copy.get("status"))
    observed = _observed(_object(copy.get("metadata")).get("managedFields"))
    if not status or (kind in _CREATED_WITH_ZEROS and not observed and not any(status.values())):
        return Digest()
    conditions = _conditions(status.get("conditions"))
    numbers, texts = _leaves(status)
    return Digest(
        reporting=True,
        observed=observed,
        numbers=numbers,
        conditions=_statuses(conditions),
        texts=texts,
        verdict=verdict_of(kind, _object(copy.get("spec")), status, conditions),
    )


def _decoded(document: bytes) -> Mapping[str, Any]:
    try:
        return _object(orjson.loads(document))
    except orjson.JSONDecodeError:
        return {}  # deeper than the hub takes, or with numbers that are greater


def _object(value: object) -> Mapping[str, Any]:
    return value if type(value) is dict else {}


def _list(value: object) -> list[Any]:
    return value if type(value) is list else []


def _observed(managed: object) -> str:
    """When the status was written last."""
    newest = ""
    for entry in _list(managed):
        if type(entry) is dict and entry.get("subresource") == "status":
            newest = max(newest, moment(entry.get("time")))
    return newest


# --- conditions -----------------------------------------------------------------------------------


def _conditions(listed: object) -> dict[str, Mapping[str, Any]]:
    """By their types."""
    found: dict[str, Mapping[str, Any]] = {}
    for entry in _list(listed)[:_ENTRIES]:
        name = _object(entry).get("type")
        if type(name) is str and _TYPE.fullmatch(name):
            found.setdefault(name, entry)
    return found


def _statuses(conditions: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    found = {}
    for name in sorted(conditions)[:CONDITIONS]:
        status = conditions[name].get("status")
        found[name] = status if status in _STATUSES else "Unknown"
    return found


# --- numbers and texts ----------------------------------------------------------------------------


def _leaves(status: Mapping[str, Any]) -> tuple[dict[str, int | float], dict[str, str]]:
    """By their paths, level by level."""
    numbers: dict[str, int | float] = {}
    texts: dict[str, str] = {}
    level: list[tuple[str, Mapping[str, Any]]] = [("", status)]
    looked_into = 0
    for depth in range(1, DEPTH + 1):
        deeper: list[tuple[str, Mapping[str, Any]]] = []
        for prefix, fields in level:
            for name, value in fields.items() if len(fields) <= _FIELDS else ():
                form = type(value)
                if form is list or form is bool or value is None or not _NAME.fullmatch(name):
                    continue
                if form is dict:
                    deeper.append((f"{prefix}{name}.", value))
                elif form is not str:
                    if not name.endswith(_BOOKKEEPING):
                        numbers[prefix + name] = value
                elif depth <= TEXT_DEPTH and (_STATE if name in _STATES else _WORD).fullmatch(value):
                    texts[prefix + name] = value
        looked_into += len(level)
        level = sorted(deeper)[: _OBJECTS - looked_into]
    return _limited(numbers, NUMBERS), _limited(texts, TEXTS)


def _limited(found: dict[str, V], limit: int) -> dict[str, V]:
    if len(found) <= limit:
        return found
    return {path: found[path] for path in sorted(found, key=lambda path: (path.count("."), path))[:limit]}
