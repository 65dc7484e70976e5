"""Tables: what `kubectl get` shows, computed by the server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from farflung.machinery.errors import Obj


@dataclass(frozen=True, slots=True)
class Column:
    """A column definition of a Table.  Priority 1 shows only with `-o wide`."""

    name: str
    type: str = "string"
    format: str = ""
    description: str = ""
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Printer:
    """How the objects of a kind become rows: `cells` gives one value per column."""

    columns: tuple[Column, ...]
    cells: Callable[[Obj, datetime], list[Any]]
