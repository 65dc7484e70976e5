"""What `kubectl get` shows of disruption budgets."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from farflung.apis.printing import age_of, name_of, part
from farflung.machinery.errors import Obj
from farflung.machinery.table import AGE, NAME, Column, Printer


def budget_cells(obj: Obj, now: datetime) -> list[Any]:
    spec = part(obj, "spec")
    return [
        name_of(obj),
        str(spec.get("minAvailable", "N/A")),
        str(spec.get("maxUnavailable", "N/A")),
        part(obj, "status").get("disruptionsAllowed", 0),
        age_of(obj, now),
    ]


POD_DISRUPTION_BUDGETS: Final = Printer(
    (
        NAME,
        Column("Min Available", description="The minimum number of pods that must be available."),
        Column("Max Unavailable", description="The maximum number of pods that may be unavailable."),
        Column(
            "Allowed Disruptions",
            "integer",
            description="Calculated number of pods that may be disrupted at this time.",
        ),
        AGE,
    ),
    budget_cells,
)
