"""ControllerRevisions of StatefulSets and DaemonSets, and hashes for names.  Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import orjson

from farflung.apis.names import CONTROLLER_REVISIONS, LAST_APPLIED, Collection
from farflung.controllers.workload.model.objects import annotations_of, is_terminating, labels
from farflung.controllers.workload.model.ownership import owner_reference
from farflung.controllers.workload.model.steps import WriteStep, create, delete, update
from farflung.machinery.errors import Obj

LONGEST_PREFIX: Final = 223
ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"  #: no vowels: no words by accident
OFFSET: Final = 2166136261
PRIME: Final = 16777619


def revision_data(owner: Obj) -> Obj:
    """The patch that restores the owner's current template, with sorted keys as kubectl compares them."""
    patch = {"spec": {"template": {**owner["spec"]["template"], "$patch": "replace"}}}
    ordered: Obj = orjson.loads(orjson.dumps(patch, option=orjson.OPT_SORT_KEYS))
    return ordered


def template_of_revision(revision: Obj) -> Obj:
    template: Obj = revision["data"]["spec"]["template"]
    return {name: value for name, value in template.items() if name != "$patch"}


def find_current(owner: Obj, revisions: Iterable[Obj]) -> Obj | None:
    """The newest revision with the current template."""
    wanted = revision_data(owner)
    equal = [one for one in revisions if one.get("data") == wanted and not is_terminating(one)]
    return max(equal, key=_number, default=None)


def record_template(owner: Obj, collection: Collection, revisions: Iterable[Obj], hash_label: str) -> WriteStep | None:
    """Create a revision of the current template, or make the existing one the newest; None if it is."""
    known = list(revisions)
    newest = max((_number(one) for one in known), default=0)
    found = find_current(owner, known)
    if found is None:
        return WriteStep(create(CONTROLLER_REVISIONS, _new_revision(owner, collection, newest + 1, hash_label)))
    if _number(found) < newest:
        return WriteStep(update(CONTROLLER_REVISIONS, {**found, "revision": newest + 1}))
    return None


def truncate_history(owner: Obj, revisions: Iterable[Obj], used: frozenset[str]) -> tuple[WriteStep, ...]:
    """`used`: names of revisions in use, which are kept."""
    limit = owner["spec"].get("revisionHistoryLimit")
    idle = sorted(
        (one for one in revisions if one["metadata"]["name"] not in used and not is_terminating(one)), key=_number
    )
    most = 10 if limit is None else int(limit)
    return tuple(WriteStep(delete(CONTROLLER_REVISIONS, one)) for one in idle[: max(0, len(idle) - most)])


def _new_revision(owner: Obj, collection: Collection, number: int, hash_label: str) -> Obj:
    data = revision_data(owner)
    hashed = short_hash(data, (owner.get("status") or {}).get("collisionCount"))
    template = (owner["spec"]["template"].get("metadata") or {}).get("labels") or {}
    metadata: Obj = {
        "name": f"{owner['metadata']['name'][:LONGEST_PREFIX]}-{hashed}",
        "namespace": owner["metadata"]["namespace"],
        "labels": {**template, hash_label: hashed},
        "ownerReferences": [owner_reference(owner, collection)],
    }
    if copied := {key: value for key, value in annotations_of(owner).items() if key != LAST_APPLIED}:
        metadata["annotations"] = copied
    return {
        "apiVersion": CONTROLLER_REVISIONS.api_version,
        "kind": CONTROLLER_REVISIONS.kind,
        "metadata": metadata,
        "data": data,
        "revision": number,
    }


def revision_hash(revision: Obj, hash_label: str) -> str:
    return labels(revision).get(hash_label, "")


def _number(revision: Obj) -> int:
    return int(revision.get("revision") or 0)


def short_hash(content: Any, collisions: int | None = None) -> str:
    """A stable hash.  `collisions`: the owner's collisionCount."""
    data = orjson.dumps(content, option=orjson.OPT_SORT_KEYS)
    if collisions is not None:
        data += collisions.to_bytes(8, "little")
    return "".join(ALPHABET[ord(digit) % len(ALPHABET)] for digit in str(_fnv1a(data)))


def _fnv1a(data: bytes) -> int:
    number = OFFSET
    for byte in data:
        number = (number ^ byte) * PRIME & 0xFFFFFFFF
    return number
