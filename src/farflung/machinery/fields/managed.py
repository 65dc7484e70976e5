"""Field ownership, `metadata.managedFields`.

    after_create    ownership of a new object
    after_update    ownership after an update or a patch, or of a new object with managedFields
    after_scale     ownership of the parent after its scale was written
    for_scale       ownership of a scale, for server-side apply to it
    from_scale      ownership of the parent after its scale was applied
    ignore_time_changes   the old entries, if only their times differ

Functions return entries and never change their arguments.  An unchanged entry is returned as the same dict, and an
unchanged list as the same list.  An empty list means that the object has no `managedFields`.
"""

from __future__ import annotations

from typing import Any, Final

from farflung.machinery.errors import ApiError, Obj, bad_request
from farflung.machinery.fields.sets import Fields, difference, has, parse, path, union, without_trees
from farflung.machinery.fields.shapes import Unkeyed, shape_of
from farflung.machinery.schema.model import Schema

APPLY: Final = "Apply"
UPDATE: Final = "Update"
OPERATIONS: Final = (APPLY, UPDATE)

MAX_UPDATE_ENTRIES: Final = 10  #: if an object has more, the oldest Update entries are merged
ANCIENT: Final = "ancient-changes"  #: the manager of merged Update entries

REPLICAS: Final = path("spec", "replicas")
SCALE_VERSION: Final = "autoscaling/v1"

Entries = list[Obj]


def after_create(
    new: Obj,
    schema: Schema,
    *,
    manager: str,
    api_version: str,
    now: str,
    subresource: str = "",
    reset: Fields | None = None,
) -> Entries:
    """The owners of an object that `manager` creates without `managedFields`."""
    try:
        taken = shape_of(schema).created(new)
    except Unkeyed:
        return []
    except RecursionError:
        raise bad_request("the object is nested too deeply") from None
    if taken and reset and not taken.keys().isdisjoint(reset):
        taken = without_trees(taken, reset)
    return [entry(manager, UPDATE, api_version, now, taken, subresource)] if taken else []


def after_update(
    new: Obj,
    old: Obj | None,
    schema: Schema,
    *,
    manager: str,
    api_version: str,
    now: str,
    subresource: str = "",
    reset: Fields | None = None,
) -> Entries:
    """The owners of `new`, which `manager` writes over `old`; `old` is None on create.

    `new` has the client's values and defaults, but nothing else that the server adds.  `reset` are the paths that the
    server will drop.  If `managedFields` in `new` are missing or invalid, those of `old` stay; if they are empty, they
    are reset.
    """
    entries = _entries_before(new, old, subresource)
    if not entries:
        if old is not None:
            return entries  # they were reset; the next apply owns its fields again
        return after_create(
            new, schema, manager=manager, api_version=api_version, now=now, subresource=subresource, reset=reset
        )
    shape = shape_of(schema)
    try:
        taken, removed = shape.changes(shape.empty if old is None else old, new)
    except Unkeyed:
        return entries
    except RecursionError:
        raise bad_request("the object is nested too deeply") from None
    if reset:
        taken = without_trees(taken, reset) if taken else None
        removed = without_trees(removed, reset) if removed else None
    author = entry(manager, UPDATE, api_version, now, {}, subresource)
    return arranged(handed_over(entries, taken or {}, removed or {}, author))


def _entries_before(new: Obj, old: Obj | None, subresource: str) -> Entries:
    metadata = new.get("metadata") or {}
    sent = metadata.get("managedFields")
    live: Entries = [] if old is None else (old.get("metadata") or {}).get("managedFields") or []
    if subresource or sent is None or sent == live:
        return live
    if _means_reset(sent):
        return []
    try:
        return decoded(sent) or live
    except ApiError:
        return live


def _means_reset(sent: Any) -> bool:
    if not isinstance(sent, list):
        return False
    return not sent or (len(sent) == 1 and isinstance(sent[0], dict) and not any(sent[0].values()))


def handed_over(entries: Entries, taken: Fields, removed: Fields, author: Obj) -> Entries:
    """The entries after `author` set the fields `taken`, and others were removed.  The `fieldsV1` of `author` is
    ignored."""
    identity = identity_of(author)
    mine: Fields = {}
    result: Entries = []
    for one in entries:
        fields = one.get("fieldsV1") or {}
        if taken and identity_of(one) == identity:
            mine = union(mine, fields)
            continue
        left = difference(difference(fields, taken), removed)
        if left:
            result.append(one if left is fields else {**one, "fieldsV1": left})
    mine = difference(union(mine, taken), removed) if taken else mine
    if mine:
        result.append({**author, "fieldsV1": mine})
    return entries if len(result) == len(entries) and all(map(_same, result, entries)) else result


def _same(first: Obj, second: Obj) -> bool:
    return first is second


def ignore_time_changes(new: Obj, old: Obj) -> Entries:
    """The entries to store for `new`: those of `old` if the objects differ only in the times of their entries."""
    entries: Entries = new["metadata"].get("managedFields") or []
    before: Entries = old["metadata"].get("managedFields") or []
    if entries is before or len(entries) != len(before):
        return entries
    if any(_timeless(one) != _timeless(other) for one, other in zip(entries, before, strict=True)):
        return entries
    try:
        return before if _without_owners(new) == _without_owners(old) else entries
    except RecursionError:
        return entries  # nested too deeply to compare: written once more than needed


def _timeless(one: Obj) -> Obj:
    return {**one, "time": None}


def _without_owners(obj: Obj) -> Obj:
    return {**obj, "metadata": {**obj["metadata"], "managedFields": None, "resourceVersion": None}}


def after_scale(entries: Entries, *, manager: str, api_version: str, replicas: Fields = REPLICAS) -> Entries:
    """Owners of an object whose number of replicas `manager` changed through the scale subresource.

    `api_version` is the object's; `replicas` is the path of the number in it.  A number without an owner gets none.  As
    in Kubernetes, the entry has no time.
    """
    if not any(has(one.get("fieldsV1") or {}, replicas) for one in entries):
        return entries
    author = entry(manager, UPDATE, api_version, "", {}, "scale")
    return arranged(handed_over(entries, replicas, {}, author))


def for_scale(entries: Entries, replicas: Fields) -> Entries:
    """Owners of a Scale: the owners of the object's replicas, which are at the path `replicas`."""
    return [
        {**one, "apiVersion": SCALE_VERSION, "fieldsV1": REPLICAS}
        for one in entries
        if has(one.get("fieldsV1") or {}, replicas)
    ]


def from_scale(entries: Entries, scaled: Entries, *, api_version: str, replicas: Fields) -> Entries:
    """Owners of an object after an apply to its Scale, which then has the owners `scaled`.  As in Kubernetes, new
    owners have no time."""
    owners = {_author(one): one for one in scaled if has(one["fieldsV1"], REPLICAS)}
    result: Entries = []
    for one in entries:
        fields = one.get("fieldsV1") or {}
        if not has(fields, replicas) or owners.pop(_author(one), None) is not None:
            result.append(one)
        elif left := difference(fields, replicas):
            result.append({**one, "fieldsV1": left})
    result += [
        entry(one.get("manager") or "", one["operation"], api_version, "", replicas, one.get("subresource") or "")
        for one in owners.values()
    ]
    return arranged(result)


def _author(one: Obj) -> tuple[str, str, str]:
    return one.get("manager") or "", one["operation"], one.get("subresource") or ""


# --- entries --------------------------------------------------------------------------------------


def entry(manager: str, operation: str, api_version: str, time: str, fields: Fields, subresource: str) -> Obj:
    """One entry.  An empty time is omitted."""
    made: Obj = {"manager": manager, "operation": operation, "apiVersion": api_version}
    if time:
        made["time"] = time
    made["fieldsType"] = "FieldsV1"
    made["fieldsV1"] = fields
    if subresource:
        made["subresource"] = subresource
    return made


def identity_of(one: Obj) -> tuple[str, str, str, str]:
    """Entries with equal identities are merged.  That of an Apply entry does not depend on the version."""
    operation = one["operation"]
    version = "" if operation == APPLY else one["apiVersion"]
    return one.get("manager") or "", operation, version, one.get("subresource") or ""


def decoded(sent: Any) -> Entries:
    """A client's entries in normal form.  Raises ApiError."""
    if not isinstance(sent, list):
        raise bad_request("metadata.managedFields: must be a list")
    entries = [_decoded_entry(one) for one in sent]
    return list({identity_of(one): one for one in entries}.values())


def _decoded_entry(one: Any) -> Obj:
    if not isinstance(one, dict) or one.get("operation") not in OPERATIONS:
        raise bad_request("metadata.managedFields: operation must be `Apply` or `Update`")
    if one.get("fieldsType") != "FieldsV1":
        raise bad_request("metadata.managedFields: fieldsType must be `FieldsV1`")
    texts = [one.get(name) or "" for name in ("manager", "apiVersion", "time", "subresource")]
    if not all(isinstance(text, str) for text in texts) or not texts[1]:
        raise bad_request("metadata.managedFields: manager, apiVersion, time and subresource must be strings")
    manager, api_version, time, subresource = texts
    return entry(manager, one["operation"], api_version, time, parse(one.get("fieldsV1")), subresource)


def arranged(entries: Entries) -> Entries:
    """The entries in their stored order, with the oldest merged if they are too many."""
    if len(entries) > MAX_UPDATE_ENTRIES:
        entries = _capped(entries)
    if len(entries) < 2:
        return entries
    ordered = sorted(entries, key=_order)
    return entries if all(map(_same, ordered, entries)) else ordered


def _order(one: Obj) -> tuple[str, str]:
    """Sort key: operation and time.  Entries of the same second keep their order."""
    return one["operation"], one.get("time") or ""


def _capped(entries: Entries) -> Entries:
    """Merge Update entries of the same version, the oldest first, until few enough are left."""
    updates = sorted((one for one in entries if one["operation"] == UPDATE), key=_order)
    excess = len(updates) - MAX_UPDATE_ENTRIES
    oldest: dict[str, Obj] = {}
    merged: set[int] = set()
    for one in updates:
        if excess <= 0:
            break
        version = one["apiVersion"]
        if version not in oldest:
            oldest[version] = one
            merged.add(id(one))
            continue
        together = union(oldest[version]["fieldsV1"], one["fieldsV1"])
        oldest[version] = entry(ANCIENT, UPDATE, version, one.get("time") or "", together, "")
        merged.add(id(one))
        excess -= 1
    return [one for one in entries if id(one) not in merged] + list(oldest.values())
