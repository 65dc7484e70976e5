"""Events of `v1` and `events.k8s.io/v1`: validation and printer columns."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from farflung.apis.core import printers as core_printers
from farflung.apis.core.kinds import EVENT_FIELDS
from farflung.apis.resource import Group, SelectableFields
from farflung.apis.validation import Errors, Rules, check_immutable, check_name
from farflung.machinery import names
from farflung.machinery.errors import FieldError, Obj, invalid_value, required
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
    return core_printers.event_cells({OLDER_NAMES.get(name, name): value for name, value in event.items()}, now)


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
TEXT_LIMIT: Final = 128
MESSAGE_LIMIT: Final = 1024
TYPES: Final = ("Normal", "Warning")

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


def validate_core_event(obj: Obj) -> list[FieldError]:
    errors: Errors = []
    namespace = obj["metadata"].get("namespace", "")
    involved = (obj.get("involvedObject") or {}).get("namespace", "")
    if obj.get("eventTime") is None:
        matches = involved == namespace or (not involved and namespace == "default")
    else:
        matches = involved != "" or namespace in ("default", "kube-system")
    if not matches:
        errors.append(invalid_value("involvedObject.namespace", involved, "does not match event.namespace"))
    if obj.get("eventTime") is not None:
        _check_reporter(obj, errors)
    return errors


def _check_reporter(event: Obj, errors: Errors) -> None:
    """Validates the reporting fields of an Event with an eventTime."""
    controller = event.get("reportingComponent", "")
    if not controller:
        errors.append(required("reportingController"))
    check_name(names.qualified_name, controller, "reportingController", errors)
    for member in ("reportingInstance", "action", "reason"):
        text = event.get(member, "")
        if not text:
            errors.append(required(member))
        _check_length(text, TEXT_LIMIT, member, errors)
    _check_length(event.get("message", ""), MESSAGE_LIMIT, "message", errors)


def _check_length(text: str, limit: int, field: str, errors: Errors) -> None:
    if names.size(text) > limit:
        errors.append(invalid_value(field, "", f"can have at most {limit} characters"))


def validate_event(obj: Obj) -> list[FieldError]:
    return validate_core_event(to_core(obj))


def validate_new_event(obj: Obj) -> list[FieldError]:
    """Validation of new Events in events.k8s.io, in addition to that of both groups."""
    event = to_core(obj)
    errors: Errors = []
    _check_series(event, errors)
    if event.get("eventTime") is None:
        errors.append(required("eventTime"))
    kind = event.get("type", "")
    if kind not in TYPES:
        errors.append(invalid_value("type", "", f"has invalid value: {kind}"))
    for member in ("firstTimestamp", "lastTimestamp", "count", "source"):
        if event.get(member):
            errors.append(invalid_value(member, "", "needs to be unset"))
    return errors


def _check_series(event: Obj, errors: Errors) -> None:
    series = event.get("series")
    if series is None:
        return
    if series.get("count", 0) < 2:
        errors.append(invalid_value("series.count", "", "should be at least 2"))
    if series.get("lastObservedTime") is None:
        errors.append(required("series.lastObservedTime"))


#: core name → the name messages of events.k8s.io give it, in the order they are compared
FIXED: Final[Mapping[str, str]] = {
    "involvedObject": "involvedObject",
    "reason": "reason",
    "message": "message",
    "source": "source",
    "firstTimestamp": "firstTimestamp",
    "lastTimestamp": "lastTimestamp",
    "count": "count",
    "type": "type",
    "eventTime": "eventTime",
    "action": "action",
    "related": "related",
    "reportingComponent": "reportingController",
    "reportingInstance": "reportingInstance",
}


def validate_event_update(new: Obj, old: Obj) -> list[FieldError]:
    """Through events.k8s.io only the series of an Event changes."""
    after, before = to_core(new), to_core(old)
    errors: Errors = []
    if after.get("series") != before.get("series"):
        _check_series(after, errors)
    for member, field in FIXED.items():
        check_immutable(after.get(member), before.get(member), field, errors)
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
