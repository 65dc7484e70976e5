"""What `kubectl get` shows of runtime classes."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from farflung.apis.printing import age_of, name_of
from farflung.machinery.errors import Obj
from farflung.machinery.table import AGE, NAME, Column, Printer


def runtime_class_cells(obj: Obj, now: datetime) -> list[Any]:
    return [name_of(obj), obj.get("handler", ""), age_of(obj, now)]


RUNTIME_CLASSES: Final = Printer((NAME, Column("Handler"), AGE), runtime_class_cells)
