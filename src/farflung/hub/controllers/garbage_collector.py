"""The garbage collector: listens to the store, looks at what may be affected, and does what `ownership` decides."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import datetime
from typing import Final

from farflung.apis.resource import Resource
from farflung.hub import objects
from farflung.hub.controllers.loopback import Inside, collection_path, object_path
from farflung.hub.controllers.owner_graph import (
    Action,
    Delete,
    Dependents,
    Disown,
    Following,
    Hold,
    Identity,
    Leave,
    Owner,
    Place,
    Reference,
    Release,
    Unblock,
    decide,
    identity_of,
    is_concerned,
)
from farflung.hub.controllers.reconcile_queue import Work
from farflung.hub.controllers.stored_kinds import Hearing, KeptKinds, Turnover
from farflung.hub.namespaces import is_terminating
from farflung.hub.objects import cluster_in
from farflung.machinery.errors import ApiError, Obj
from farflung.machinery.names import FOREGROUND, ORPHAN
from farflung.machinery.times import format_seconds
from farflung.store.base import Change, Entry, Store

WORKERS: Final = 8
FARTHEST: Final = 1000  #: owners of owners that are looked through for a circle
#: they come and go by the thousand, and nobody owns them
NOT_COLLECTED: Final = frozenset({"/core/events/"})

log = logging.getLogger(__name__)
COMPONENT: Final = "garbage-collector-controller"
REASON: Final = "OwnerRefInvalidNamespace"
EVENTS: Final = "/core/events/"
NAMESPACES: Final = "/core/namespaces/"
USUAL: Final = "default"  #: where Events about a cluster's own objects are


class Collector:
    def __init__(self, store: Store, kinds: KeptKinds, inside: Inside, clock: Callable[[], datetime]) -> None:
        self._store = store
        self._kinds = kinds
        self._inside = inside
        self._dependents = Dependents()
        self._marked: dict[str, str] = {}  #: key → the finalizer with which the object is being deleted
        self._misplaced = Misplaced(store, kinds, inside, clock)
        self._fresh: set[str] = set()  #: dependents whose references were not looked at yet
        self._unclear: set[str] = set()  #: dependents that name an owner whose kind is not served
        self._hearing = Hearing(store, kinds, self._hear, without=NOT_COLLECTED)
        kinds.listen(self._hear_kinds)
        self.work: Work[str] = Work("garbage-collector", self._look, workers=WORKERS)

    def start(self) -> None:
        """Hear of everything from now on, and look at everything that is there already."""
        self._hearing.start()
        for home in self._kinds.homes - NOT_COLLECTED:
            self._look_through(home)

    def _look_through(self, prefix: str) -> None:
        for entry in self._store.list(prefix).entries:
            if is_concerned(entry.value):
                self._note(entry)
                self.work.add(entry.key)

    def stop(self) -> None:
        self._hearing.stop()

    # --- what happens -----------------------------------------------------------------------------

    def _hear(self, changes: Sequence[Change]) -> None:
        for change in changes:
            entry = change.entry
            if entry is None:
                self._gone(change)
            elif is_concerned(entry.value) or change.key in self._dependents:
                self._note(entry)

    def _hear_kinds(self, turnover: Turnover) -> None:
        """Objects of a new kind may have owners, and be the owners that others name."""
        cluster = turnover.cluster
        for home in turnover.came - NOT_COLLECTED:
            self._look_through(f"{home}{cluster}/")
        for key in [key for key in self._unclear if cluster_in(key) == cluster]:
            if entry := self._store.get(key):
                self._note(entry)
                self.work.add(key)

    def _note(self, entry: Entry) -> None:
        """Keep the index, and look at whoever a written object concerns."""
        key, identity = entry.key, identity_of(entry)
        owners = self._dependents.owners(key)
        if self._dependents.set(key, self._holds(key, identity)):
            self._fresh.add(key)
            self.work.add(key)
            self._look_at_marked(owners)
        mark, before = identity.mark, self._marked.get(key, "")
        if mark:
            self._marked[key] = mark
            self.work.add(key)
        elif before:
            del self._marked[key]
        if mark and mark != before:
            self._look_at_dependents(Place(key, identity.uid))

    def _gone(self, change: Change) -> None:
        assert change.previous is not None, "what is deleted was there"
        key = change.key
        self._marked.pop(key, None)
        self._unclear.discard(key)
        self._fresh.discard(key)
        self._look_at_dependents(Place(key, objects.uid_of(change.previous)))
        if key in self._dependents:
            owners = self._dependents.owners(key)
            self._dependents.set(key, ())
            self._look_at_marked(owners)

    def _look_at_marked(self, owners: Collection[Place]) -> None:
        for owner in owners:
            if owner.key in self._marked:
                self.work.add(owner.key)

    def _look_at_dependents(self, owner: Place) -> None:
        for key in self._dependents.of(owner):
            self.work.add(key)

    # --- who belongs to whom ----------------------------------------------------------------------

    def _holds(self, key: str, identity: Identity) -> list[Hold]:
        """An object's references, unclear ones too: when one of those goes, the others may decide."""
        holds = [Hold(self._place(key, one), bool(one.blockOwnerDeletion)) for one in identity.references]
        if any(not hold.owner.key for hold in holds):
            self._unclear.add(key)
        else:
            self._unclear.discard(key)
        return holds

    def _place(self, key: str, reference: Reference) -> Place:
        """Where the owner that an object names is: where it must be, or, if its kind has gone, where it was.  Without a
        key if there is no telling."""
        place = self._usual_place(key, reference)
        if place is not None:
            return place
        group = reference.apiVersion.rpartition("/")[0] or "core"
        for known in self._dependents.owners(key):
            if known.uid == reference.uid and known.key.startswith(f"/{group}/"):
                return known
        return Place("", reference.uid)

    def _usual_place(self, key: str, reference: Reference) -> Place | None:
        """Where the owner that an object names must be: in the object's cluster and namespace, or in its cluster.
        None if there is no such kind, or a namespaced one is said to own a cluster's object."""
        resource = self._kinds.of_type(cluster_in(key), reference.apiVersion, reference.kind)
        if resource is None:
            return None
        namespace = objects.name_in(key)[0] if resource.namespaced else ""
        if resource.namespaced and not namespace:
            return None
        return Place(objects.key(resource, cluster_in(key), namespace, reference.name), reference.uid)

    def _owner(self, key: str, reference: Reference) -> Owner:
        place = self._place(key, reference)
        if not place.key:
            return Owner.UNCLEAR
        entry = self._store.get(place.key)
        if entry is None or objects.uid_of(entry) != place.uid:
            return Owner.ABSENT
        if not is_concerned(entry.value):
            return Owner.PRESENT
        return {ORPHAN: Owner.ORPHANING, FOREGROUND: Owner.WAITING}.get(identity_of(entry).mark, Owner.PRESENT)

    def _following(self, key: str, identity: Identity) -> Following:
        place = Place(key, identity.uid)
        return Following(
            any=bool(self._dependents.of(place)),
            blocking=self._dependents.block(place),
            circular=self._holds_itself(key),
        )

    def _holds_itself(self, key: str) -> bool:
        """Whether the owners that an object holds, and the owners that those hold, lead back to it, all of them being
        deleted in the foreground."""
        seen: set[str] = set()
        ahead = self._dependents.held_by(key)
        while ahead and len(seen) < FARTHEST:
            owner = ahead.pop()
            if owner == key:
                return True
            if owner not in seen and self._marked.get(owner) == FOREGROUND:
                seen.add(owner)
                ahead += self._dependents.held_by(owner)
        return False

    def is_behind(self, prefix: str) -> bool:
        """Whether somebody depends on an object that was under a prefix, is gone, and was not dealt with yet."""
        for owner in self._dependents.places(prefix):
            if self._store.get(owner.key) is None and any(
                self._is_untouched(key) for key in self._dependents.of(owner)
            ):
                return True
        return False

    def _is_untouched(self, key: str) -> bool:
        """Not even deleted yet: what is, may be held by finalizers for long."""
        entry = self._store.get(key)
        return entry is not None and not is_terminating(entry) and not self._has_unclear_owner(entry)

    def _has_unclear_owner(self, entry: Entry) -> bool:
        return any(self._owner(entry.key, one) is Owner.UNCLEAR for one in identity_of(entry).references)

    # --- what is done about it --------------------------------------------------------------------

    async def _look(self, key: str) -> None:
        entry = self._store.get(key)
        if entry is None:
            return
        identity = identity_of(entry)
        owners = [self._owner(key, reference) for reference in identity.references]
        if key in self._fresh:
            self._fresh.discard(key)
            if Owner.ABSENT in owners or Owner.UNCLEAR in owners:
                await self._misplaced.tell(entry, identity)
                self.work.add(key)  # much may have happened
                return
        action = decide(identity, owners, self._following(key, identity))
        if not isinstance(action, Leave):
            log.debug("%s: %s", key, action)
            await self._act(entry, identity.uid, action)

    async def _act(self, entry: Entry, uid: str, action: Action) -> None:
        resource = self._kinds.of_key(entry.key)
        if resource is None:
            return  # its kind is going, and takes it along
        path = object_path(resource, entry.key)
        if isinstance(action, Delete):
            await self._inside.delete(path, policy=action.policy, uid=uid, revision=entry.revision)
            return
        metadata = changed_metadata(objects.decode(entry)["metadata"], action)
        await self._inside.patch(path, {"metadata": metadata}, uid=uid, revision=entry.revision)


def changed_metadata(metadata: Obj, action: Action) -> Obj:
    """The fields of an object's metadata that an action changes; None where nothing is left."""
    match action:
        case Disown(uids):
            kept = [one for one in metadata["ownerReferences"] if one["uid"] not in uids]
            return {"ownerReferences": kept or None}
        case Unblock():
            return {"ownerReferences": [one | {"blockOwnerDeletion": False} for one in metadata["ownerReferences"]]}
        case Release(finalizer):
            return {"finalizers": [one for one in metadata["finalizers"] if one != finalizer] or None}
    raise AssertionError(action)


class Misplaced:
    def __init__(self, store: Store, kinds: KeptKinds, inside: Inside, clock: Callable[[], datetime]) -> None:
        self._store = store
        self._kinds = kinds
        self._inside = inside
        self._clock = clock
        self._events = kinds.builtin(EVENTS)

    async def tell(self, entry: Entry, identity: Identity) -> None:
        """Of every owner that is not where the object is, and is somewhere else."""
        for reference in identity.references:
            if self._is_elsewhere(entry.key, reference):
                await self._tell(entry, identity, reference)

    def _is_elsewhere(self, key: str, reference: Reference) -> bool:
        resource = self._kinds.of_type(cluster_in(key), reference.apiVersion, reference.kind)
        if resource is None or not resource.namespaced:
            return False
        own = objects.name_in(key)[0]
        places = self._places(resource, cluster_in(key), own, reference.name)
        return any(objects.uid_of(found) == reference.uid for place in places if (found := self._store.get(place)))

    def _places(self, resource: Resource, cluster: str, own: str, name: str) -> Iterator[str]:
        for entry in self._store.list(f"{NAMESPACES}{cluster}/").entries:
            namespace = objects.name_in(entry.key)[1]
            if namespace != own:
                yield objects.key(resource, cluster, namespace, name)

    async def _tell(self, entry: Entry, identity: Identity, reference: Reference) -> None:
        resource = self._kinds.of_key(entry.key)
        if resource is None:
            return
        namespace, name = objects.name_in(entry.key)
        path = collection_path(self._events, cluster_in(entry.key), namespace or USUAL)
        try:
            await self._inside.request("POST", path, self._event(resource, namespace, name, identity.uid, reference))
        except ApiError as error:
            log.debug("nobody is told of the wrong owner of %s: %s", entry.key, error.reason)

    def _event(self, resource: Resource, namespace: str, name: str, uid: str, reference: Reference) -> Obj:
        now = self._clock()
        involved = {"kind": resource.kind, "apiVersion": resource.api_version, "name": name, "uid": uid}
        if namespace:
            involved["namespace"] = namespace
        owner = (
            f"[{reference.apiVersion}/{reference.kind}, namespace: {namespace}, name: {reference.name}, "
            f"uid: {reference.uid}]"
        )
        return {
            "metadata": {"name": f"{name}.{int(now.timestamp() * 1e9):x}", "namespace": namespace or USUAL},
            "involvedObject": involved,
            "reason": REASON,
            "message": f'ownerRef {owner} does not exist in namespace "{namespace}"',
            "source": {"component": COMPONENT},
            "reportingComponent": COMPONENT,
            "firstTimestamp": format_seconds(now),
            "lastTimestamp": format_seconds(now),
            "count": 1,
            "type": "Warning",
        }
