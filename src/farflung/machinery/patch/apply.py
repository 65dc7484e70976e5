"""Server-side apply: the result of applying a manager's configuration to an object.

A manager owns the fields of the last configuration it applied.  Apply merges the new configuration into the live
object by the schema.  It removes fields that the manager owned and no longer applies, unless they have other owners.
It refuses to change fields of other owners, unless it is forced.

The result is the object before defaulting and validation.  Defaults that the server sets later have no
owner.  Afterwards `managed.ignore_time_changes` drops a change that consists of times only.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import orjson

from farflung.machinery.errors import ApiError, Obj, bad_request, first_texts, go_quote
from farflung.machinery.fields.check import untypable
from farflung.machinery.fields.managed import APPLY, UPDATE, Entries, arranged, entry, identity_of
from farflung.machinery.fields.sets import Fields, difference, intersection, paths, places, union, without_trees
from farflung.machinery.fields.shapes import METADATA, UNOWNED_METADATA, Emptied, Root, Unkeyed, shape_of
from farflung.machinery.schema.model import Schema

BEFORE_FIRST_APPLY: Final = "before-first-apply"  #: the owner of an object's fields before its first apply

KUBECTL: Final = "kubectl"  #: the manager whose client-side configuration is updated, too
LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
MAX_ANNOTATIONS: Final = 256 * 1024  #: bytes of all annotations of an object


def apply(
    live: Obj | None,
    applied: Obj,
    schema: Schema,
    *,
    manager: str,
    force: bool,
    api_version: str,
    now: str,
    kind: str = "",
    subresource: str = "",
    reset: Fields | None = None,
) -> Obj:
    """The object with its new `managedFields`.  Raises ApiError for conflicts and invalid configurations.

    `live` is None if the object does not exist.  With `kind`, the configuration must be of this kind.  `reset` are the
    paths that the server will drop; they get no owner.  The result shares parts with `live` and `applied`.  If nothing
    changes, it equals `live`.
    """
    _check(applied, schema, api_version, kind)
    applier = _Applier(shape_of(schema), manager, api_version, now, subresource, reset or {})
    try:
        result = _applied(applier, live, applied, force)
        return _with_last_applied(result, applied) if manager == KUBECTL else result
    except Unkeyed as error:
        raise bad_request(f"failed to create typed live object ({_named(live or {})}): {error}") from None
    except (RecursionError, orjson.JSONEncodeError):
        raise bad_request("the object is nested too deeply") from None


# --- what may be applied --------------------------------------------------------------------------


def _check(applied: Obj, schema: Schema, api_version: str, kind: str) -> None:
    if applied.get("apiVersion") != api_version or (kind and applied.get("kind") != kind):
        raise bad_request(f"invalid object type: {_type_text(applied)}")
    metadata = applied.get("metadata")
    if isinstance(metadata, dict) and metadata.get("managedFields") is not None:
        raise bad_request("metadata.managedFields must be nil")
    try:
        problems = untypable(applied, schema)
    except RecursionError:
        raise bad_request("the object is nested too deeply") from None
    if problems:
        raise bad_request(f"failed to create typed patch object ({_named(applied)}): {problems}")


def _named(obj: Obj) -> str:
    metadata = obj.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    return f"{_text(metadata, 'namespace')}/{_text(metadata, 'name')}; {_type_text(obj)}"


def _type_text(obj: Obj) -> str:
    group, _, version = _text(obj, "apiVersion").rpartition("/")
    return f"{group}/{version}, Kind={_text(obj, 'kind')}"


def _text(obj: Obj, name: str) -> str:
    value = obj.get(name)
    return value if isinstance(value, str) else ""


# --- merging --------------------------------------------------------------------------------------


class _Conflicts(Exception):
    def __init__(self, found: list[tuple[Obj, Fields]]) -> None:
        super().__init__()
        self.found = found  #: entries, and the fields of theirs that would change


@dataclass(frozen=True, slots=True)
class _Applier:
    """The manager, and the shape that divides objects into fields."""

    shape: Root
    manager: str
    api_version: str
    now: str
    subresource: str
    reset: Fields

    def entry(self, time: str, fields: Fields) -> Obj:
        return entry(self.manager, APPLY, self.api_version, time, fields, self.subresource)


def _applied(applier: _Applier, live: Obj | None, applied: Obj, force: bool) -> Obj:
    try:
        return _merged(applier, live, applied, force)
    except _Conflicts as conflicts:
        found = conflicts.found
        if applier.manager == KUBECTL and live is not None:
            allowed = _unchanged_since_last_applied(applier, live)
            found = [(one, difference(fields, allowed)) for one, fields in found]
            found = [(one, fields) for one, fields in found if fields]
            if not found:
                return _merged(applier, live, applied, True)
        raise _refusal(found) from None


def _merged(applier: _Applier, live: Obj | None, applied: Obj, force: bool) -> Obj:
    shape = applier.shape
    entries = _owners(applier, live)
    base = shape.empty if live is None else live
    claims = without_trees(shape.claimed(applied) or {}, applier.reset)
    identity = identity_of(applier.entry("", {}))
    last = next((one for one in entries if identity_of(one) == identity), None)
    others = [one for one in entries if one is not last]

    merged = shape.merged(base, applied) if live is not None else dict(applied)
    emptied: Emptied = []
    if last is not None:
        kept = union(claims, METADATA)  # metadata is never removed as a whole
        for one in others:
            kept = union(kept, one["fieldsV1"])
        merged = shape.pruned(merged, last["fieldsV1"], kept, emptied) or {}
    changes = shape.changes(base, merged)
    for holder, name in emptied:
        del holder[name]
    same = live is not None and changes == (None, None) and _same_identity(live, applied)

    taken = without_trees(changes.taken or {}, applier.reset)
    removed = without_trees(changes.removed or {}, applier.reset)
    left = _left_to_others(others, taken, removed, force)
    mine = _own_entry(applier, last, claims, same=same)
    result = dict(live) if live is not None and same else merged
    return _with_owners(result, live, arranged([*left, *mine]))


def _owners(applier: _Applier, live: Obj | None) -> Entries:
    if live is None:
        return []
    entries: Entries = live["metadata"].get("managedFields") or []
    if entries:
        return entries
    everything = without_trees(applier.shape.changes(applier.shape.empty, live).taken or {}, applier.reset)
    if not everything:
        return []
    return [entry(BEFORE_FIRST_APPLY, UPDATE, applier.api_version, applier.now, everything, applier.subresource)]


def _same_identity(live: Obj, applied: Obj) -> bool:
    """Whether the configuration equals the live object in the metadata that has no owner."""
    metadata = applied.get("metadata") or {}
    mentioned = (UNOWNED_METADATA & metadata.keys()) - {"managedFields"}
    return all(live["metadata"].get(name) == metadata[name] for name in mentioned)


def _left_to_others(others: Entries, taken: Fields, removed: Fields, force: bool) -> Entries:
    conflicts = [(one, fields) for one in others if (fields := intersection(one["fieldsV1"], taken))]
    if conflicts and not force:
        raise _Conflicts(conflicts)
    left: Entries = []
    for one in others:
        fields = difference(difference(one["fieldsV1"], taken), removed)
        if fields:
            left.append(one if fields is one["fieldsV1"] else {**one, "fieldsV1": fields})
    return left


def _own_entry(applier: _Applier, last: Obj | None, claims: Fields, *, same: bool) -> Entries:
    """The time of an entry is that of the last apply which changed the object."""
    if not claims:
        return []
    before = "" if last is None else last.get("time") or ""
    mine = applier.entry(before if same else applier.now, claims)
    return [last] if last is not None and mine == last else [mine]


def _with_owners(obj: Obj, live: Obj | None, entries: Entries) -> Obj:
    before = [] if live is None else live["metadata"].get("managedFields") or []
    metadata = {name: value for name, value in (obj.get("metadata") or {}).items() if name != "managedFields"}
    if entries:
        metadata["managedFields"] = before if entries == before else entries
    return {**obj, "metadata": metadata}


# --- conflicts ------------------------------------------------------------------------------------


def _refusal(conflicts: list[tuple[Obj, Fields]]) -> ApiError:
    ordered = sorted(conflicts, key=lambda conflict: orjson.dumps(identity_of(conflict[0])))
    counts = [sum(1 for _ in places(fields)) for _, fields in ordered]
    shown = iter(first_texts(path for _, fields in ordered for path in paths(fields)))
    causes: list[Obj] = []
    lines: list[str] = []
    for (one, _), count in zip(ordered, counts, strict=True):
        manager = _manager_text(one)
        found = [
            {"reason": "FieldManagerConflict", "message": f"conflict with {manager}", "field": field}
            for field in islice(shown, count)
        ]
        if found:
            lines += [f"conflicts with {manager}:", *(f"- {cause['field']}" for cause in found)]
        causes += found
    if len(causes) < sum(counts):
        lines.append(f"and {sum(counts) - len(causes)} conflicts more")
    if sum(counts) == 1:
        message = f"1 conflict: {causes[0]['message']}: {causes[0]['field']}"
    else:
        message = f"{sum(counts)} conflicts: " + "\n".join(lines)
    return ApiError(409, "Conflict", f"Apply failed with {message}", {"causes": causes})


def _manager_text(one: Obj) -> str:
    text = go_quote(one.get("manager") or "")
    if one.get("subresource"):
        text += f" with subresource {go_quote(one['subresource'])}"
    return text if one["operation"] == APPLY else f"{text} using {one['apiVersion']}"


# --- client-side apply ----------------------------------------------------------------------------


def _unchanged_since_last_applied(applier: _Applier, live: Obj) -> Fields:
    """Fields that kubectl applied on the client's side, and that still have its values: kubectl's own."""
    configuration = _last_applied(live)
    if configuration.get("apiVersion") != applier.api_version or not isinstance(configuration.get("metadata"), dict):
        return {}
    try:
        claims = applier.shape.claimed(configuration) or {}
        taken, removed = applier.shape.changes(configuration, live)
    except Unkeyed:
        return {}
    return difference(difference(claims, taken or {}), removed or {})


def _last_applied(obj: Obj) -> Obj:
    try:
        configuration: Any = orjson.loads(_annotations(obj).get(LAST_APPLIED) or "{}")
    except orjson.JSONDecodeError:
        return {}
    return configuration if isinstance(configuration, dict) else {}


def _annotations(obj: Obj) -> dict[str, Any]:
    metadata = obj.get("metadata") or {}
    return metadata.get("annotations") or {}


def _with_last_applied(obj: Obj, applied: Obj) -> Obj:
    """The object with the applied configuration as its client-side configuration, if it has one."""
    annotations = _annotations(obj)
    if not annotations.get(LAST_APPLIED):
        return obj
    annotations = {**annotations, LAST_APPLIED: _as_last_applied(applied)}
    size = sum(len(name.encode()) + len((value or "").encode()) for name, value in annotations.items())
    if size > MAX_ANNOTATIONS:
        del annotations[LAST_APPLIED]
    return {**obj, "metadata": {**obj["metadata"], "annotations": annotations}}


def _as_last_applied(applied: Obj) -> str:
    """The configuration as kubectl writes it: Go's JSON, keys sorted, without itself."""
    metadata = applied.get("metadata") or {}
    if LAST_APPLIED in (metadata.get("annotations") or {}):
        annotations = {name: value for name, value in metadata["annotations"].items() if name != LAST_APPLIED}
        applied = {**applied, "metadata": {**metadata, "annotations": annotations}}
    return go_json(applied) + "\n"


def go_json(value: Any) -> str:
    """Compact JSON with sorted keys and with the escapes that Go makes inside strings."""
    text = orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
    return text.translate(GO_ESCAPES)


GO_ESCAPES: Final = {ord(char): f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"}
