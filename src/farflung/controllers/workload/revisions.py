"""Former templates of StatefulSets and DaemonSets, kept as ControllerRevisions.  Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import orjson

from farflung.client.resource import Collection
from farflung.controllers.workload.objects import REVISIONS, is_terminating, labels, notes
from farflung.controllers.workload.ownership import reference_to
from farflung.controllers.workload.steps import Step, create, delete, update
from farflung.machinery.errors import Obj

LONGEST_PREFIX: Final = 223
LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"  #: no vowels: no words by accident
OFFSET: Final = 2166136261
PRIME: Final = 16777619


def data_of(owner: Obj) -> Obj:
    """The patch that brings the owner back to its present template; in the order in which kubectl writes it when it
    compares the two."""
    patch = {"spec": {"template": {**owner["spec"]["template"], "$patch": "replace"}}}
    ordered: Obj = orjson.loads(orjson.dumps(patch, option=orjson.OPT_SORT_KEYS))
    return ordered


def template_in(revision: Obj) -> Obj:
    template: Obj = revision["data"]["spec"]["template"]
    return {name: value for name, value in template.items() if name != "$patch"}


def present(owner: Obj, revisions: Iterable[Obj]) -> Obj | None:
    """The revision of the present template, if there is one; of several the newest."""
    wanted = data_of(owner)
    equal = [one for one in revisions if one.get("data") == wanted and not is_terminating(one)]
    return max(equal, key=_number, default=None)


def recording(owner: Obj, collection: Collection, revisions: Iterable[Obj], hash_label: str) -> Step | None:
    """Makes a revision of the present template, or makes the one there is the newest; None if it is."""
    known = list(revisions)
    newest = max((_number(one) for one in known), default=0)
    found = present(owner, known)
    if found is None:
        return Step(create(REVISIONS, _made(owner, collection, newest + 1, hash_label)))
    if _number(found) < newest:
        return Step(update(REVISIONS, {**found, "revision": newest + 1}))
    return None


def forgetting(owner: Obj, revisions: Iterable[Obj], used: frozenset[str]) -> tuple[Step, ...]:
    """`used`: the names of those that somebody still needs."""
    limit = owner["spec"].get("revisionHistoryLimit")
    idle = sorted(
        (one for one in revisions if one["metadata"]["name"] not in used and not is_terminating(one)), key=_number
    )
    most = 10 if limit is None else int(limit)
    return tuple(Step(delete(REVISIONS, one)) for one in idle[: max(0, len(idle) - most)])


def _made(owner: Obj, collection: Collection, number: int, hash_label: str) -> Obj:
    data = data_of(owner)
    hashed = short_hash(data, (owner.get("status") or {}).get("collisionCount"))
    template = (owner["spec"]["template"].get("metadata") or {}).get("labels") or {}
    metadata: Obj = {
        "name": f"{owner['metadata']['name'][:LONGEST_PREFIX]}-{hashed}",
        "namespace": owner["metadata"]["namespace"],
        "labels": {**template, hash_label: hashed},
        "ownerReferences": [reference_to(owner, collection)],
    }
    if copied := {key: value for key, value in notes(owner).items() if key != LAST_APPLIED}:
        metadata["annotations"] = copied
    return {
        "apiVersion": REVISIONS.api_version,
        "kind": REVISIONS.kind,
        "metadata": metadata,
        "data": data,
        "revision": number,
    }


def hash_of(revision: Obj, hash_label: str) -> str:
    return labels(revision).get(hash_label, "")


def _number(revision: Obj) -> int:
    return int(revision.get("revision") or 0)


def short_hash(content: Any, collisions: int | None = None) -> str:
    """Equal contents, equal texts, on every machine.  `collisions`: how often the text was somebody else's before."""
    data = orjson.dumps(content, option=orjson.OPT_SORT_KEYS)
    if collisions is not None:
        data += collisions.to_bytes(8, "little")
    return "".join(ALPHABET[ord(digit) % len(ALPHABET)] for digit in str(_fnv1a(data)))


def _fnv1a(data: bytes) -> int:
    number = OFFSET
    for byte in data:
        number = (number ^ byte) * PRIME & 0xFFFFFFFF
    return number
