"""Events in their newer form.  They are the core group's events, and stored as such."""

from __future__ import annotations

from typing import Final

from farflung.apis.core.v1 import EVENT_FIELDS
from farflung.apis.events import printers
from farflung.apis.group import Group
from farflung.apis.resource import SelectableFields

EVENTS: Final = Group("events.k8s.io", "v1", "io.k8s.api.events.v1.")

NEWER_NAMES: Final = {"reportingComponent": "reportingController"}

#: the core group's fields under their newer names; they read the stored form
REGARDING_FIELDS: Final[SelectableFields] = {
    NEWER_NAMES.get(name, name.replace("involvedObject.", "regarding.")): read
    for name, read in EVENT_FIELDS.items()
    if name != "source"
}

RESOURCES: Final = (
    EVENTS.stored(
        "events",
        "Event",
        short_names=("ev",),
        printer=printers.EVENTS,
        stored_as=("", "v1"),
        selectable=REGARDING_FIELDS,
    ),
)
