"""What a syncer must never do, whatever happens: held against every write on both sides, at the moment it is done."""

from __future__ import annotations

from typing import Any

import orjson
from syncing import Link
from watched_store import SYNCER, WatchedStore, Write

from farflung.apis.edge.names import DOWNSYNCED, PROJECTED, SYNCER_FINALIZER
from farflung.machinery.errors import Obj
from farflung.placement.names import GroupResource, ObjectRef, is_system
from farflung.syncer.conversion import is_create_only, is_downsynced, is_upsynced
from farflung.syncer.edge import IGNORED_RESOURCES

ORIGIN = "test.example.org/origin"  #: annotation: which write of which copy made it so
EDGE = "root"  #: the cluster that an edge is, in its own store
NAMESPACES = GroupResource("", "namespaces")
DEFINITIONS = GroupResource("apiextensions.k8s.io", "customresourcedefinitions")


class Laws:
    def __init__(self, link: Link) -> None:
        self.broken: list[str] = []
        self.deceived = False  #: whether lists of the edge held less than there was
        self.released: set[str] = set()  #: origins that somebody let go
        self.origins: dict[ObjectRef, set[str]] = {}  #: of all copies that there ever were
        self._link = link
        self._copies: dict[str, str] = {}  #: the uid of the copy, by origin
        self._withdrawn: set[str] = set()  #: uids of copies that were there and being deleted while their mailbox lived
        self._followed: dict[ObjectRef, int] = {}  #: the newest origin of copies withdrawn while the syncer held them
        self._kept: set[str] = set()  #: of these, those that were made only once
        self._let_go: set[str] = set()  #: uids of copies that the syncer let go, since the hub was restored last
        self._born: dict[str, int] = {}  #: by uid of objects at the edge: how much the syncer had asked until then

    def _hub(self) -> WatchedStore:
        store = self._link.fleet.hub.store
        assert isinstance(store, WatchedStore)
        return store

    def _edge(self) -> WatchedStore:
        store = self._link.edge.store
        assert isinstance(store, WatchedStore)
        return store

    # --- in the hub -------------------------------------------------------------------------------

    def see_hub(self, write: Write) -> None:
        if write.after is not None and (origin := origin_of(write.after)):
            uid = write.after["metadata"]["uid"]
            self._copies[origin] = uid
            self.origins.setdefault(write.ref, set()).add(origin)
            if is_going(write.after) and not self._ends(write.cluster):
                self._withdrawn.add(uid)
                if SYNCER_FINALIZER in _finalizers(write.after):
                    self._followed[write.ref] = int(origin)
                if is_create_only(write.after):
                    self._kept.add(uid)
        if write.writer == SYNCER and (wrong := self._wrong_in_hub(write)):
            self.broken.append(f"in the hub, {write.ref}: {wrong}")
        if write.writer == SYNCER and write.before is not None and _lets_go(write.before, write.after):
            self._let_go.add(write.before["metadata"]["uid"])

    def forgive(self) -> None:
        """The hub was restored: what was let go may be there again, and what was withdrawn may not be."""
        self._let_go.clear()
        self._followed.clear()

    def _ends(self, cluster: str) -> bool:
        found = self._cluster(cluster)
        return found is None or is_going(found)

    def _cluster(self, cluster: str) -> Obj | None:
        entry = self._hub().get(f"/core.kcp.io/logicalclusters/{cluster}/cluster")
        return None if entry is None else orjson.loads(entry.value)

    def _wrong_in_hub(self, write: Write) -> str:
        cluster = self._cluster(write.cluster) or {"metadata": {}}
        if (cluster["metadata"].get("annotations") or {}).get("kcp.io/path") != self._link.path:
            return "the syncer wrote outside of its mailbox"
        before, after = write.before, write.after
        if before is None:
            return "" if after is not None and is_upsynced(after) else "the syncer made what did not come from the edge"
        if is_upsynced(before):
            return ""
        if after is None:
            return self._wrong_release(write.ref, before) if is_going(before) else "the syncer deleted a copy"
        if _essence(before) != _essence(after):
            return f"the syncer changed a copy from {_essence(before)} to {_essence(after)}"
        if SYNCER_FINALIZER in _finalizers(before) and SYNCER_FINALIZER not in _finalizers(after):
            return self._wrong_release(write.ref, before)
        return ""

    def _wrong_release(self, ref: ObjectRef, copy: Obj) -> str:
        """Before it is let go in the hub, it is gone at the edge."""
        if not is_going(copy):
            return "the syncer let go of a copy that nobody deletes"
        live = self._edge().held(EDGE).get(ref)
        if live is None or not is_downsynced(live) or is_create_only(live) or is_create_only(copy):
            return ""
        ours = self._copies.get(origin_of(live)) == copy["metadata"]["uid"]
        return "the syncer let go of a copy that is at the edge" if ours else ""

    # --- at the edge ------------------------------------------------------------------------------

    def see_edge(self, write: Write) -> None:
        if write.before is None and write.after is not None:
            self._born[write.after["metadata"]["uid"]] = len(self._link.down.requests)
        if write.writer == SYNCER and (wrong := self._wrong_at_edge(write)):
            self.broken.append(f"at the edge, {write.ref}: {wrong}")

    def _wrong_at_edge(self, write: Write) -> str:
        before, after = write.before, write.after
        ends = after is None or is_going(after)
        if before is None:
            if after is None or not is_downsynced(after):
                return "the syncer made what is not marked"
            again = self._copies.get(origin_of(after)) in self._let_go
            return "the syncer brought back what it had let go" if again else ""
        if not is_downsynced(before):
            if ends:
                return "the syncer deleted what is not marked"
            same = after is not None and is_downsynced(after) and _unmarked(before) == _unmarked(after)
            return "" if same else "the syncer changed what is not marked"
        if after is not None and not is_downsynced(after):
            return "the syncer unmarked something"
        if ends and not is_going(before):
            return self._wrong_end(write.ref, before)
        return ""

    def _wrong_end(self, ref: ObjectRef, obj: Obj) -> str:
        if not self._may_go(ref, obj):
            return f"the syncer deleted what nobody withdrew, from {origin_of(obj)}"
        if ref.resource in (NAMESPACES, DEFINITIONS):
            for inner, other in self._edge().held(EDGE).items():
                if is_in(inner, ref) and not self._may_go_along(inner, other):
                    return f"the syncer deleted it with {inner} in it, from {origin_of(other) or 'somebody else'}"
        return ""

    def may_stay(self, obj: Obj) -> bool:
        """Whether what has no copy any more was withdrawn as something that was made only once."""
        return is_create_only(obj) or self._copies.get(origin_of(obj)) in self._kept

    def _may_go(self, ref: ObjectRef, obj: Obj) -> bool:
        """It was released; or its copy was withdrawn, or a later copy of the same name that the syncer had taken up, be
        it in another mailbox."""
        origin = origin_of(obj)
        withdrawn = self._copies.get(origin) in self._withdrawn or int(origin or 0) <= self._followed.get(ref, -1)
        return origin in self.released or withdrawn

    def _may_go_along(self, ref: ObjectRef, obj: Obj) -> bool:
        metadata = obj["metadata"]
        return bool(
            (is_downsynced(obj) and (self._may_go(ref, obj) or is_create_only(obj)))
            or metadata.get("ownerReferences")
            or is_going(obj)
            or is_system(ref.resource, obj)
            or ref.resource.resource in IGNORED_RESOURCES
            or not self._was_seen(ref, metadata["uid"])
        )

    def _was_seen(self, ref: ObjectRef, uid: str) -> bool:
        """Whether the syncer has asked for what there is since it was made, and was told the truth: who looks first and
        deletes then cannot know what was made between the two."""
        if self.deceived:
            return False
        root = f"/apis/{ref.resource.group}/" if ref.resource.group else "/api/v1/"
        return any(
            one.method == "GET"
            and one.target.startswith(root)
            and f"/{ref.resource.resource}?" in one.target
            and "watch=" not in one.target
            for one in self._link.down.requests[self._born.get(uid, 0) :]
        )


def origin_of(obj: Obj) -> str:
    return str((obj["metadata"].get("annotations") or {}).get(ORIGIN) or "")


def is_going(obj: Obj) -> bool:
    return "deletionTimestamp" in obj["metadata"]


def _lets_go(before: Obj, after: Obj | None) -> bool:
    return SYNCER_FINALIZER in _finalizers(before) and (after is None or SYNCER_FINALIZER not in _finalizers(after))


def _finalizers(obj: Obj) -> list[str]:
    found: list[str] = obj["metadata"].get("finalizers") or []
    return found


def _essence(copy: Obj) -> dict[str, Any]:
    """What of a copy a syncer may not change.  A server counts generations by itself: the status of a kind without that
    subresource is a part of the object like others."""
    counted = ("resourceVersion", "managedFields", "finalizers", "generation")
    metadata = {name: value for name, value in copy["metadata"].items() if name not in counted}
    others = [one for one in _finalizers(copy) if one != SYNCER_FINALIZER]
    return {**{name: value for name, value in copy.items() if name != "status"}, "metadata": (metadata, others)}


def _unmarked(obj: Obj) -> dict[str, Any]:
    """What a server counts by itself aside: a Deployment whose annotations change has another generation."""
    counted = ("resourceVersion", "managedFields", "generation")
    metadata = {name: value for name, value in obj["metadata"].items() if name not in counted}
    for field, mark in (("labels", PROJECTED), ("annotations", DOWNSYNCED)):
        metadata[field] = {key: text for key, text in (metadata.get(field) or {}).items() if key != mark}
    return {**obj, "metadata": metadata}


def is_in(ref: ObjectRef, container: ObjectRef) -> bool:
    if container.resource == NAMESPACES:
        return ref.namespace == container.name
    plural, _, group = container.name.partition(".")
    return ref.resource == GroupResource(group, plural)
