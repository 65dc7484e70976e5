"""What a syncer keeps in memory of a copy and of its object at the edge, and the journal entry of a copy."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import orjson

from farflung.apis.edge.names import (
    CREATE_ONLY,
    DOWNSYNC_OVERWRITE,
    DOWNSYNCED,
    PROJECTED,
    SYNCER_FINALIZER,
    SYNCER_MANAGER,
)
from farflung.machinery.errors import Obj
from farflung.placement.names import GroupResource, ObjectRef, is_system
from farflung.runtime.cache import CachedObject, Key
from farflung.syncer.conversion import encoded, for_edge, hash_of, is_create_only, is_upsynced, returned_status
from farflung.syncer.journal import NOTHING_OWNED, JournalEntry

#: annotations and labels of an object at the edge that decisions depend on
MARKS: Final = (DOWNSYNCED, CREATE_ONLY, DOWNSYNC_OVERWRITE, PROJECTED)


@dataclass(frozen=True, slots=True)
class MailboxCopy:
    version: str  #: of its API
    kind: str
    uid: str
    revision: int
    desired: bytes  #: what is to be applied at the edge
    create_only: bool
    withdrawn: bool  #: being deleted
    finalizers: tuple[str, ...] | None  #: None: only ours is known
    has_finalizer: bool  #: the syncer's is among them
    generation: int | None  #: None: an earlier version wrote the journal; 0: the kind has none
    is_local: bool  #: it came from the edge, or every cluster creates its own
    status: str  #: hash of its status; empty: none

    @property
    def returned(self) -> str:
        """For the journal: `HASH/GENERATION`; earlier versions wrote the hash alone."""
        return self.status if self.generation is None else f"{self.status}/{self.generation}"


def read_copy(resource: GroupResource, document: bytes) -> MailboxCopy:
    """Raises ValueError for anything but an object."""
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
        has_finalizer=SYNCER_FINALIZER in finalizers,
        generation=generation_of(metadata),
        is_local=is_upsynced(obj) or is_system(resource, obj),
        status=status_digest(returned_status(obj)),
    )


def generation_of(metadata: Obj) -> int:
    found = metadata.get("generation")
    return found if type(found) is int else 0


def status_digest(status: Obj | None) -> str:
    return hash_of(encoded(status)) if status else ""


def read_edge_object(resource: GroupResource, document: bytes) -> Obj:
    """The parts of an object at the edge that decisions depend on: marks, our managedFields, status."""
    obj: Obj = orjson.loads(document)
    metadata = obj["metadata"]
    kept: Obj = {
        name: metadata[name]
        for name in ("name", "namespace", "uid", "resourceVersion", "generation", "deletionTimestamp")
        if name in metadata
    }
    for field in ("annotations", "labels"):
        texts = metadata.get(field) or {}
        kept[field] = {name: texts[name] for name in MARKS if name in texts}
    kept["managedFields"] = [one for one in metadata.get("managedFields") or () if one.get("manager") == SYNCER_MANAGER]
    result: Obj = {"apiVersion": obj.get("apiVersion"), "kind": obj.get("kind"), "metadata": kept}
    if "status" in obj:
        result["status"] = obj["status"]
    return result


# --- the journal ----------------------------------------------------------------------------------


def updated_entry(ref: ObjectRef, copy: MailboxCopy, before: JournalEntry | None, incarnation: str) -> JournalEntry:
    """The journal entry after a copy was observed.  A copy that is being deleted and has another uid than the applied
    one does not withdraw it: a restored hub has such copies.  If nothing is left of the applied one, the syncer applied
    this copy, and was killed before the journal had it."""
    mine = before is None or before.uid == copy.uid
    if before is not None and not mine and before.owned == NOTHING_OWNED:
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
        "has_finalizer": copy.has_finalizer,
        "returned": copy.returned,
    }
    if before is not None:
        return replace(before, **fresh)
    return JournalEntry(ref=ref, namespaced=bool(ref.namespace), **fresh)


def copy_from_entry(entry: JournalEntry) -> CachedObject[MailboxCopy]:
    """The copy as last observed."""
    status, _, generation = entry.returned.partition("/")
    copy = MailboxCopy(
        version=entry.version,
        kind=entry.kind,
        uid=entry.uid,
        revision=entry.revision,
        desired=entry.desired,
        create_only=entry.create_only,
        withdrawn=entry.withdrawn,
        finalizers=None,
        has_finalizer=entry.has_finalizer,
        generation=int(generation) if generation.isdigit() else None,
        is_local=False,
        status=status,
    )
    return CachedObject(Key(entry.incarnation, entry.ref.namespace, entry.ref.name), entry.revision, copy)
