"""What a syncer has to know of a copy in the mailbox, and of what was made of it at the edge.  Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import orjson

from farflung.apis.edge.names import DOWNSYNC_OVERWRITE, DOWNSYNCED, PROJECTED, SYNCER_FINALIZER
from farflung.machinery.errors import Obj
from farflung.placement.names import Kind, is_system
from farflung.runtime.cache import CachedObject, Key
from farflung.syncer.conversion import digest, encoded, for_edge, is_create_only, is_upsynced, returned_status
from farflung.syncer.journal import GONE, JournalEntry
from farflung.syncer.types import CREATE_ONLY, MANAGER, Part, Resource

#: of the annotations and labels of an object at the edge, those that decide what becomes of it
TELLING: Final = (DOWNSYNCED, CREATE_ONLY, DOWNSYNC_OVERWRITE, PROJECTED)


@dataclass(frozen=True, slots=True)
class MailboxCopy:
    version: str  #: of its API
    kind: str
    uid: str
    revision: int
    desired: bytes  #: what is to be applied at the edge
    create_only: bool
    withdrawn: bool  #: it is being deleted
    finalizers: tuple[str, ...] | None  #: None: nobody knows them but ours
    guarded: bool  #: ours is among them
    stays: bool  #: it came from the edge, or every cluster makes one for itself
    status: str  #: digest of what it says of itself; empty: nothing


def read_copy(resource: Resource, document: bytes) -> MailboxCopy:
    """Raises ValueError for what is no object."""
    obj = orjson.loads(document)
    metadata = obj["metadata"] if isinstance(obj, dict) and isinstance(obj.get("metadata"), dict) else {}
    version = metadata.get("resourceVersion")
    if not (isinstance(version, str) and version.isascii() and version.isdigit()):
        raise ValueError("an object without a resourceVersion")
    finalizers = tuple(str(one) for one in metadata.get("finalizers") or ())
    return MailboxCopy(
        version=str(obj.get("apiVersion") or "").rpartition("/")[2],
        kind=str(obj.get("kind") or ""),
        uid=str(metadata.get("uid") or ""),
        revision=int(version),
        desired=encoded(for_edge(obj)),
        create_only=is_create_only(obj),
        withdrawn="deletionTimestamp" in metadata,
        finalizers=finalizers,
        guarded=SYNCER_FINALIZER in finalizers,
        stays=is_upsynced(obj) or is_system(Kind(*resource), obj),
        status=status_digest(obj),
    )


def status_digest(obj: Obj) -> str:
    status = returned_status(obj)
    return digest(encoded(status)) if status else ""


def read_edge_object(resource: Resource, document: bytes) -> Obj:
    """Of an object at the edge, what decides what becomes of it: its marks, what of it is ours, and its status."""
    obj: Obj = orjson.loads(document)
    metadata = obj["metadata"]
    kept: Obj = {
        name: metadata[name]
        for name in ("name", "namespace", "uid", "resourceVersion", "deletionTimestamp")
        if name in metadata
    }
    for field in ("annotations", "labels"):
        texts = metadata.get(field) or {}
        kept[field] = {name: texts[name] for name in TELLING if name in texts}
    kept["managedFields"] = [one for one in metadata.get("managedFields") or () if one.get("manager") == MANAGER]
    result: Obj = {"apiVersion": obj.get("apiVersion"), "kind": obj.get("kind"), "metadata": kept}
    if "status" in obj:
        result["status"] = obj["status"]
    return result


# --- the journal ----------------------------------------------------------------------------------


def updated_entry(part: Part, copy: MailboxCopy, before: JournalEntry | None, incarnation: str) -> JournalEntry:
    """What the journal says once a copy was seen.  One that is being deleted, and is not the one that we brought, says
    nothing about what we brought: a hub that was restored from a backup shows such.  Unless nothing is left of what we
    remember: then we brought another one since, and were killed before that was written down."""
    mine = before is None or before.uid == copy.uid
    if before is not None and not mine and before.owned == GONE:
        before = None
    if before is not None and copy.withdrawn and not mine:
        return replace(before, orphaned=True, withdrawn=False)
    fresh: dict[str, Any] = {
        "version": copy.version,
        "kind": copy.kind,
        "uid": copy.uid,
        "revision": copy.revision,
        "incarnation": incarnation,
        "desired": copy.desired,
        "create_only": copy.create_only,
        "withdrawn": copy.withdrawn,
        "orphaned": False,
        "guarded": copy.guarded,
        "returned": copy.status,
    }
    if before is not None:
        return replace(before, **fresh)
    return JournalEntry(part=part, namespaced=bool(part.namespace), **fresh)


def copy_from_entry(entry: JournalEntry) -> CachedObject[MailboxCopy]:
    """The copy, as it was when the journal heard of it last."""
    copy = MailboxCopy(
        version=entry.version,
        kind=entry.kind,
        uid=entry.uid,
        revision=entry.revision,
        desired=entry.desired,
        create_only=entry.create_only,
        withdrawn=entry.withdrawn,
        finalizers=None,
        guarded=entry.guarded,
        stays=False,
        status=entry.returned,
    )
    return CachedObject(Key(entry.incarnation, entry.part.namespace, entry.part.name), entry.revision, copy)
