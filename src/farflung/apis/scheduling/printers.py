"""What `kubectl get` shows of priority classes."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from farflung.apis.printing import age_of, described, name_of
from farflung.machinery.errors import Obj
from farflung.machinery.table import AGE, NAME, Printer


def priority_class_cells(obj: Obj, now: datetime) -> list[Any]:
    return [
        name_of(obj),
        obj.get("value", 0),
        obj.get("globalDefault", False),
        age_of(obj, now),
        obj.get("preemptionPolicy", ""),
    ]


PRIORITY_CLASSES: Final = Printer(
    (
        NAME,
        described("Value", "scheduling.v1.PriorityClass.value", "integer"),
        described("Global-Default", "scheduling.v1.PriorityClass.globalDefault", "boolean"),
        AGE,
        described("PreemptionPolicy", "scheduling.v1.PriorityClass.preemptionPolicy"),
    ),
    priority_class_cells,
)
