"""Conversion of objects between mailbox and edge, marks, and comparison.

for_edge(copy)          what to apply at the edge for a copy in the mailbox
for_mailbox(object)     what to write to the mailbox for an object of the edge

Arguments are never changed; results share unchanged parts with them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final

import orjson

from farflung.apis.edge.names import (
    CREATE_ONLY,
    DOWNSYNC_OVERWRITE,
    DOWNSYNCED,
    PODS_STUCK,
    PROJECTED,
    PROJECTION,
    UPSYNCED,
)
from farflung.controllers.status_summarizer.health import CopyProblem
from farflung.machinery.errors import Obj
from farflung.machinery.quantity import QuantityError
from farflung.machinery.quantity import parse as quantity
from farflung.placement.names import STATUS_BY_HUB, GroupResource
from farflung.placement.project import NEVER, strip, with_assigned
from farflung.placement.types import YES

DIGITS: Final = 16  #: length of a hash
OBSERVED: Final = "observedGeneration"
OLD_MARK: Final = "true"  #: value of the mark that the first syncers wrote
_OURS: Final = frozenset({PROJECTED, PROJECTION, DOWNSYNCED, UPSYNCED, DOWNSYNC_OVERWRITE, CREATE_ONLY})
#: fields with quantities, or maps of them
_QUANTITIES: Final = frozenset(
    {
        "averageValue",
        "capacity",
        "default",
        "defaultRequest",
        "divisor",
        "hard",
        "limits",
        "max",
        "maxLimitRequestRatio",
        "min",
        "podFixed",
        "requests",
        "sizeLimit",
    }
)


# --- marks ----------------------------------------------------------------------------------------


def mark(kind: str, namespace: str, name: str) -> str:
    """The mark names its object, because controllers copy annotations to the objects that they create."""
    return f"{kind}/{namespace}/{name}" if namespace else f"{kind}/{name}"


def is_downsynced(obj: Mapping[str, Any]) -> bool:
    """Whether an object of the edge has our mark: the syncer changes or deletes no others."""
    value = _annotations(obj).get(DOWNSYNCED)
    return value == _mark_of(obj) or (value == OLD_MARK and _texts(obj, "labels").get(PROJECTED) == YES)


def is_upsynced(obj: Mapping[str, Any]) -> bool:
    """Whether an object of the mailbox came from the edge.  No controller there copies annotations."""
    return _annotations(obj).get(UPSYNCED) in (_mark_of(obj), OLD_MARK)


def is_create_only(obj: Mapping[str, Any]) -> bool:
    """Whether the syncer creates it and never updates it, by annotation of the placement or of the object."""
    annotations = _annotations(obj)
    return annotations.get(DOWNSYNC_OVERWRITE) == NEVER or annotations.get(CREATE_ONLY) == NEVER


def _mark_of(obj: Mapping[str, Any]) -> str:
    metadata = obj.get("metadata") or {}
    return mark(obj.get("kind") or "", metadata.get("namespace") or "", metadata.get("name") or "")


def _annotations(obj: Mapping[str, Any]) -> Mapping[str, Any]:
    return _texts(obj, "annotations")


def _texts(obj: Mapping[str, Any], field: str) -> Mapping[str, Any]:
    found = (obj.get("metadata") or {}).get(field)
    return found if isinstance(found, dict) else {}


# --- down -----------------------------------------------------------------------------------------


def for_edge(copy: Mapping[str, Any]) -> Obj:
    """What to apply at the edge for a copy: the user's fields, and our marks."""
    obj = strip(copy)
    obj["metadata"] = _marked(obj, {PROJECTED: YES}, DOWNSYNCED)
    return obj


def _marked(obj: Obj, labels: Mapping[str, str], by: str) -> Obj:
    """Its metadata with these labels and the mark `by`, without other marks."""
    metadata: Obj = {**obj["metadata"]}
    kept = {key: text for key, text in _annotations(obj).items() if key not in (DOWNSYNCED, UPSYNCED)}
    metadata["annotations"] = dict(sorted({**kept, by: _mark_of(obj)}.items()))
    if both := {**_texts(obj, "labels"), **labels}:
        metadata["labels"] = dict(sorted(both.items()))
    return metadata


def encoded(desired: Mapping[str, Any]) -> bytes:
    """Equal for equal objects.  Raises ValueError for objects that cannot be JSON, such as very deep ones."""
    try:
        return orjson.dumps(desired, option=orjson.OPT_SORT_KEYS)
    except TypeError as error:
        raise ValueError(f"it cannot be written as JSON: {error}") from error


def hash_of(desired: bytes) -> str:
    """Of an `encoded` object."""
    return hashlib.sha256(desired).hexdigest()[:DIGITS]


def owned_fields(live: Mapping[str, Any], manager: str) -> str:
    """A hash of the fields that the manager owns by server-side apply; empty if it owns none.

    Another client that changes one of them takes its ownership, so the hash changes."""
    entries = (live.get("metadata") or {}).get("managedFields")
    owned = [
        one.get("fieldsV1")
        for one in (entries if isinstance(entries, list) else ())
        if isinstance(one, dict)
        and one.get("manager") == manager
        and one.get("operation") == "Apply"
        and not one.get("subresource")
    ]
    if not owned:
        return ""
    try:
        return hash_of(b"\n".join(sorted(encoded({"fields": fields}) for fields in owned)))
    except ValueError:
        return ""  # nothing that we applied is nested so deeply


# --- comparing ------------------------------------------------------------------------------------


def identical(desired: Mapping[str, Any], live: Mapping[str, Any]) -> bool:
    """Whether an object is as desired, except for our marks: it has all desired fields, and may have more fields in
    maps. Empty fields may be absent, and quantities may be written differently."""
    below: list[tuple[Any, Any, bool]] = [(_unmarked(desired), live, False)]
    while below:
        wanted, there, amount = below.pop()
        if type(wanted) is dict and type(there) is dict:
            below += [(value, there.get(key), amount or key in _QUANTITIES) for key, value in wanted.items()]
        elif type(wanted) is list and type(there) is list and len(wanted) == len(there):
            below += [(one, other, False) for one, other in zip(wanted, there, strict=True)]
        elif there is None and wanted in (None, {}, []):
            continue
        elif not (_equal(wanted, there) or (amount and _same_quantity(wanted, there))):
            return False
    return True


def _unmarked(desired: Mapping[str, Any]) -> Obj:
    metadata: Obj = {**(desired.get("metadata") or {})}
    for field in ("labels", "annotations"):
        metadata[field] = {key: text for key, text in _texts(desired, field).items() if key not in _OURS}
    return {**desired, "metadata": metadata}


def _equal(one: Any, other: Any) -> bool:
    """As in JSON, where `true` is not a number."""
    return (type(one) is bool) is (type(other) is bool) and bool(one == other)


def _same_quantity(one: Any, other: Any) -> bool:
    if type(one) not in (str, int, float) or type(other) not in (str, int, float):
        return False
    try:
        return quantity(str(one)) == quantity(str(other))
    except QuantityError:
        return False


# --- up and back ----------------------------------------------------------------------------------


def for_mailbox(edge_object: Mapping[str, Any]) -> Obj:
    """What to write to the mailbox for an object of the edge, with its status.

    Marks of downsync are left out: a controller copied them from the owner of the object, and the translator would
    withdraw an object that looks like its copy."""
    obj = strip(edge_object)
    if "status" in edge_object:
        obj["status"] = edge_object["status"]
    for field in ("labels", "annotations"):
        if kept := {key: text for key, text in _texts(obj, field).items() if key not in _OURS}:
            obj["metadata"][field] = kept
        else:
            obj["metadata"].pop(field, None)
    obj["metadata"] = _marked(obj, {}, UPSYNCED)
    return obj


def updated_upsync(observed: Mapping[str, Any], wanted: Mapping[str, Any]) -> Obj | None:
    """The update of an upsynced object in the mailbox to `wanted`, made by `for_mailbox`; None if it needs none.

    Fields that the mailbox's server set stay, and so does the status, which has a write of its own."""
    if _content(for_mailbox(observed)) == _content(wanted):
        return None
    metadata = {key: value for key, value in observed["metadata"].items() if key != "managedFields"}
    for field in ("labels", "annotations"):
        system = _texts(observed, field).keys() - _texts(strip(observed), field).keys() - _OURS
        kept = {key: text for key, text in _texts(observed, field).items() if key in system}
        metadata[field] = dict(sorted({**kept, **_texts(wanted, field)}.items()))
    result = {**with_assigned(wanted, observed), "metadata": metadata}
    result.pop("status", None)
    if "status" in observed:
        result["status"] = observed["status"]
    return result


def _content(obj: Mapping[str, Any]) -> Obj:
    return {name: section for name, section in obj.items() if name != "status"}


def returned_status(live: Mapping[str, Any]) -> Obj | None:
    """The status of an object of the edge; None if it has none."""
    status = live.get("status")
    return status if isinstance(status, dict) else None


def translated_status(live: Mapping[str, Any], generation: int, *, is_applied: bool) -> Obj | None:
    """The status of an object of the edge for its copy in the mailbox, which has generations of its own.

    `observedGeneration`, also that of conditions, becomes `generation`, that of the copy, if the edge observed the
    object with the content of the copy; otherwise a lower one.  `is_applied`: whether the object has that content."""
    status, at_edge = returned_status(live), (live.get("metadata") or {}).get("generation")
    if status is None or not generation or type(at_edge) is not int:
        return status

    def translated(part: Mapping[str, Any]) -> Obj:
        observed = part.get(OBSERVED)
        if type(observed) is not int:
            return dict(part)
        return {**part, OBSERVED: generation if is_applied and observed >= at_edge else generation - 1}

    result = translated(status)
    if isinstance(conditions := status.get("conditions"), list):
        result["conditions"] = [translated(one) if isinstance(one, dict) else one for one in conditions]
    return result


def with_stuck_pod(status: Obj, problem: CopyProblem) -> Obj:
    """The status of a workload with the condition that a Pod of it does not start."""
    reason, message, since = problem
    condition = {"type": PODS_STUCK, "status": "True", "reason": reason, "message": message}
    conditions = status.get("conditions")
    kept = conditions if isinstance(conditions, list) else []
    return {**status, "conditions": [*kept, condition | ({"lastTransitionTime": since} if since else {})]}


def takes_status(resource: GroupResource) -> bool:
    """Whether the syncer returns the status of the kind to the mailbox."""
    return resource not in STATUS_BY_HUB
