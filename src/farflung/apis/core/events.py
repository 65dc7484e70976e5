"""Events of `v1` and `events.k8s.io/v1`: validation and printer columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

from farflung.apis.core import printers as core_printers
from farflung.apis.core.kinds import EVENT_FIELDS
from farflung.apis.resource import Group, SelectableFields
from farflung.apis.rows import (
    Always,
    Check,
    CheckFunction,
    Format,
    IfPresent,
    Optional,
    Required,
    RequiredPointer,
    Struct,
    Validation,
)
from farflung.apis.validation import Errors, Rules, check_immutable
from farflung.machinery import names
from farflung.machinery.errors import FieldError, Obj, invalid_value
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
    return core_printers.EVENTS.cells({OLDER_NAMES.get(name, name): value for name, value in event.items()}, now)


EVENTS: Final = Printer(core_printers.EVENTS.columns, event_cells)


# --- Events in their newer form.  They are the core group's events, and stored as such ------------

EVENTS_GROUP: Final = Group("events.k8s.io", "v1", "io.k8s.api.events.v1.")

NEWER_NAMES: Final = {"reportingComponent": "reportingController"}

#: the core group's fields under their newer names; they read the stored form
REGARDING_FIELDS: Final[SelectableFields] = {
    NEWER_NAMES.get(name, name.replace("involvedObject.", "regarding.")): read
    for name, read in EVENT_FIELDS.items()
    if name != "source"
}

RESOURCES: Final = (
    EVENTS_GROUP.stored(
        "events",
        "Event",
        short_names=("ev",),
        printer=EVENTS,
        stored_as=("", "v1"),
        selectable=REGARDING_FIELDS,
    ),
)


# --- Rules of Events, and their two shapes --------------------------------------------------------

GROUP: Final = "events.k8s.io"
NEW_API_VERSION: Final = f"{GROUP}/v1"

#: core name → the name in events.k8s.io
RENAMED: Final[Mapping[str, str]] = {
    "involvedObject": "regarding",
    "message": "note",
    "reportingComponent": "reportingController",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
}
RENAMED_BACK: Final[Mapping[str, str]] = {new: old for old, new in RENAMED.items()}
#: what Go writes although it is empty; a callable makes a new value for each object
CORE_ALWAYS: Final[Mapping[str, Any]] = {
    "involvedObject": dict,
    "source": dict,
    "firstTimestamp": None,
    "lastTimestamp": None,
    "eventTime": None,
    "reportingComponent": "",
    "reportingInstance": "",
}
NEW_ALWAYS: Final[Mapping[str, Any]] = {
    "eventTime": None,
    "regarding": dict,
    "deprecatedSource": dict,
    "deprecatedFirstTimestamp": None,
    "deprecatedLastTimestamp": None,
}


def to_events_v1(obj: Obj) -> Obj:
    """A core Event as events.k8s.io/v1 shows it."""
    event = {RENAMED.get(member, member): value for member, value in obj.items()}
    event["apiVersion"] = NEW_API_VERSION
    for member in ("reportingController", "reportingInstance"):
        if not event.get(member):
            event.pop(member, None)
    default_new_event(event)
    return event


def to_core(obj: Obj) -> Obj:
    """An Event of events.k8s.io/v1 as core/v1 shows it, and as it is stored."""
    event = {RENAMED_BACK.get(member, member): value for member, value in obj.items()}
    event["apiVersion"] = "v1"
    default_core_event(event)
    return event


def default_core_event(obj: Obj) -> None:
    _fill(obj, CORE_ALWAYS)


def default_new_event(obj: Obj) -> None:
    _fill(obj, NEW_ALWAYS)


def _fill(obj: Obj, always: Mapping[str, Any]) -> None:
    for member, value in always.items():
        if member not in obj:
            obj[member] = value() if callable(value) else value


# --- validation, which names fields as the core shape does ----------------------------------------


def check_namespace(event: Obj, path: str, errors: Errors) -> None:
    namespace = event["metadata"].get("namespace", "")
    involved = (event.get("involvedObject") or {}).get("namespace", "")
    if event.get("eventTime") is None:
        matches = involved == namespace or (not involved and namespace == "default")
    else:
        matches = involved != "" or namespace in ("default", "kube-system")
    if not matches:
        errors.append(invalid_value("involvedObject.namespace", involved, "does not match event.namespace"))


def refuse(condition: Callable[[Any], bool], detail: str) -> CheckFunction:
    """Like `Invalid`, but the error does not show the value."""

    def check(value: Any, field: str, errors: Errors) -> None:
        if condition(value):
            errors.append(invalid_value(field, "", detail))

    return check


def at_most(limit: int) -> CheckFunction:
    return refuse(lambda text: names.size(text) > limit, f"can have at most {limit} characters")


validate_core_event: Final = Validation(
    Check(check_namespace),
    IfPresent(
        "eventTime",
        Required("reportingComponent", named="reportingController"),
        Always("reportingComponent", Format(names.qualified_name), named="reportingController"),
        *(Required(member, at_most(128)) for member in ("reportingInstance", "action", "reason")),
        Optional("message", at_most(1024)),
    ),
)


def validate_event(obj: Obj) -> list[FieldError]:
    return validate_core_event(to_core(obj))


def check_type(type_: str, field: str, errors: Errors) -> None:
    if type_ not in ("Normal", "Warning"):
        errors.append(invalid_value(field, "", f"has invalid value: {type_}"))


SERIES: Final = Struct(
    "series",
    Always("count", refuse(lambda count: count < 2, "should be at least 2"), zero=0),
    RequiredPointer("lastObservedTime"),
)
UNSET: Final = refuse(bool, "needs to be unset")
NEW_EVENT: Final = Validation(
    SERIES,
    RequiredPointer("eventTime"),
    Always("type", check_type),
    *(Optional(member, UNSET) for member in ("firstTimestamp", "lastTimestamp", "count", "source")),
)
CHANGED_SERIES: Final = Validation(SERIES)


def validate_new_event(obj: Obj) -> list[FieldError]:
    """Validation of new Events in events.k8s.io, in addition to that of both groups."""
    return NEW_EVENT(to_core(obj))


#: core names of what does not change, in the order of comparison
FIXED: Final = (
    "involvedObject", "reason", "message", "source", "firstTimestamp", "lastTimestamp", "count", "type", "eventTime",
    "action", "related", "reportingComponent", "reportingInstance",
)  # fmt: skip


def validate_event_update(new: Obj, old: Obj) -> list[FieldError]:
    """Through events.k8s.io only the series of an Event changes."""
    after, before = to_core(new), to_core(old)
    errors: Errors = CHANGED_SERIES(after) if after.get("series") != before.get("series") else []
    for member in FIXED:
        check_immutable(after.get(member), before.get(member), NEWER_NAMES.get(member, member), errors)
    return errors


RULES: Final[Mapping[tuple[str, str], Rules]] = {
    ("", "Event"): Rules(
        name=names.path_segment,
        default=default_core_event,
        validate=validate_core_event,
        create_on_update=True,
    ),
    (GROUP, "Event"): Rules(
        name=names.dns_subdomain,
        default=default_new_event,
        validate=validate_event,
        validate_create=validate_new_event,
        validate_update=validate_event_update,
        create_on_update=True,
    ),
}
