"""What `kubectl get` shows of events in their newer form: the same as of the older one."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from farflung.apis.core import printers
from farflung.machinery.errors import Obj
from farflung.machinery.table import Printer

#: the older names of what is printed
OLDER_NAMES: Final = {
    "regarding": "involvedObject",
    "note": "message",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}


def event_cells(event: Obj, now: datetime) -> list[Any]:
    return printers.event_cells({OLDER_NAMES.get(name, name): value for name, value in event.items()}, now)


EVENTS: Final = Printer(printers.EVENTS.columns, event_cells)
