"""What `kubectl get` shows of where group versions are served from."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from farflung.apis.printing import age_of, name_of, part
from farflung.machinery.errors import Obj
from farflung.machinery.table import AGE, NAME, Column, Printer


def service_cells(obj: Obj, now: datetime) -> list[Any]:
    service = part(obj, "spec").get("service")
    where = f"{service.get('namespace', '')}/{service.get('name', '')}" if service else "Local"
    return [name_of(obj), where, availability(part(obj, "status")), age_of(obj, now)]


def availability(status: Obj) -> str:
    conditions = status.get("conditions") or ()
    available: Obj = next((one for one in conditions if one.get("type") == "Available"), {})
    word: str = available.get("status", "Unknown")
    reason = available.get("reason")
    return f"{word} ({reason})" if reason and word != "True" else word


API_SERVICES: Final = Printer(
    (
        NAME,
        Column("Service", description="The reference to the service that hosts this API endpoint."),
        Column("Available", description="Whether this service is available."),
        AGE,
    ),
    service_cells,
)
