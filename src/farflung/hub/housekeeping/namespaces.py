"""The end of a namespace: its content is deleted, and when nothing is left, it goes too."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

from farflung.apis.resource import Resource
from farflung.hub import objects
from farflung.hub.housekeeping.inside import Inside, object_path
from farflung.hub.housekeeping.kept import KeptKinds, home_of
from farflung.hub.housekeeping.ownership import identity_of, is_concerned, uid_of
from farflung.hub.housekeeping.termination import Remains, conditions
from farflung.hub.housekeeping.work import OVERTAKEN, Unfinished, Work
from farflung.hub.namespaces import is_terminating, namespace_key
from farflung.machinery.errors import ApiError, Obj
from farflung.machinery.times import format_seconds
from farflung.store.base import Change, Entry, Store, Subscription

WORKERS: Final = 4
AT_ONCE: Final = 8  #: objects of one namespace that are deleted at a time
FINALIZER: Final = "kubernetes"
NAMESPACES: Final = "/core/namespaces/"
PODS: Final = "/core/pods/"


@dataclass(frozen=True, slots=True)
class Pace:
    """In seconds."""

    #: Before a deleted namespace's content goes.  Kubernetes waits for five, for the sake of its caches; we have none,
    #: but clients that look right after the deletion count on finding what was there.
    grace: float = 3.0
    #: Before a namespace that was held is looked at again, once some of its content has gone.
    again: float = 3.0


USUAL_PACE: Final = Pace()


class Scope(NamedTuple):
    cluster: str
    namespace: str


def scope_of(key: str) -> Scope:
    """The namespace that a key names, or that an object's key is in."""
    return Scope(*key.split("/", 5)[3:5])


class Namespaces:
    def __init__(
        self, store: Store, kinds: KeptKinds, inside: Inside, clock: Callable[[], datetime], pace: Pace
    ) -> None:
        self._store = store
        self._kinds = kinds
        self._inside = inside
        self._clock = clock
        self._pace = pace
        self._resource = kinds.of_key(NAMESPACES)
        self._homes = {home_of(resource) for resource in kinds.namespaced}
        self._pods = [resource for resource in kinds.namespaced if home_of(resource) == PODS]
        self._others = [resource for resource in kinds.namespaced if home_of(resource) != PODS]
        self._terminating: set[Scope] = set()
        self._subscriptions: list[Subscription] = []
        self.work: Work[Scope] = Work("namespaces", self._look, workers=WORKERS)

    def start(self) -> None:
        subscribe = self._store.subscribe
        self._subscriptions = [subscribe(home, self._hear_content) for home in self._homes]
        self._subscriptions.append(subscribe(NAMESPACES, self._hear))
        for entry in self._store.list(NAMESPACES).entries:
            if is_terminating(entry):
                self._terminate(entry, after=0)

    def stop(self) -> None:
        for subscription in self._subscriptions:
            subscription.cancel()

    # --- what happens -----------------------------------------------------------------------------

    def _hear(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if change.entry is None:
                self._terminating.discard(scope_of(change.key))
            elif is_terminating(change.entry):
                self._terminate(change.entry, after=self._pace.grace)

    def _terminate(self, entry: Entry, *, after: float) -> None:
        scope = scope_of(entry.key)
        self.work.add_later(scope, self._pace.again if scope in self._terminating else after)
        self._terminating.add(scope)

    def _hear_content(self, changes: Sequence[Change]) -> None:
        """However fast its content dwindles, a terminating namespace is looked at only now and then."""
        if not self._terminating:
            return
        for change in changes:
            scope = scope_of(change.key)
            if scope in self._terminating and (change.entry is None or change.previous is None):
                self.work.add_later(scope, self._pace.again)

    def _entries(self, resource: Resource, scope: Scope) -> Sequence[Entry]:
        return self._store.list(objects.prefix(resource, *scope)).entries

    # --- what is done about it --------------------------------------------------------------------

    async def _look(self, scope: Scope) -> None:
        key = namespace_key(*scope)
        entry = self._store.get(key)
        if entry is None or not is_terminating(entry) or not finalizers_of(objects.decode(entry)):
            return
        remains = await self._empty(scope)
        await self._tell(key, remains)
        if remains.failures:
            raise Unfinished("; ".join(remains.failures))
        if not remains.resources:
            await self._finalize(key)

    async def _empty(self, scope: Scope) -> Remains:
        """Delete everything: first the Pods, because they use the rest, and the rest when there are none."""
        remains = Remains()
        for resources in (self._pods, self._others):
            await self._delete_all(resources, scope, remains)
            self._count_all(resources, scope, remains)
            if remains.resources:
                break
        return remains

    async def _delete_all(self, resources: Iterable[Resource], scope: Scope, remains: Remains) -> None:
        for resource in resources:
            doomed = [entry for entry in self._entries(resource, scope) if not is_going(entry)]
            for start in range(0, len(doomed), AT_ONCE):
                answers = await asyncio.gather(
                    *(self._delete(resource, entry) for entry in doomed[start : start + AT_ONCE])
                )
                await asyncio.sleep(0)
                if failures := [answer for answer in answers if answer]:
                    remains.failures.append(failures[0])
                    break

    async def _delete(self, resource: Resource, entry: Entry) -> str:
        """Why it could not be deleted."""
        try:
            await self._inside.delete(object_path(resource, entry.key), policy="Background", uid=uid_of(entry))
        except ApiError as error:
            return "" if error.code in OVERTAKEN else error.message
        return ""

    def _count_all(self, resources: Iterable[Resource], scope: Scope, remains: Remains) -> None:
        for resource in resources:
            entries = self._entries(resource, scope)
            if entries:
                remains.resources[resource.plural, resource.group] = len(entries)
            for entry in entries:
                remains.finalizers.update(identity_of(entry).finalizers or ())

    async def _tell(self, key: str, remains: Remains) -> None:
        entry = self._store.get(key)
        if entry is None:
            return
        namespace = objects.decode(entry)
        present = namespace.get("status", {}).get("conditions", [])
        wanted = conditions(present, remains, format_seconds(self._clock()))
        if wanted != present:
            change = {"status": {"conditions": wanted}}
            path = object_path(self._resource, key) + "/status"
            await self._inside.patch(path, change, uid=namespace["metadata"]["uid"], revision=entry.revision)

    async def _finalize(self, key: str) -> None:
        entry = self._store.get(key)
        if entry is None:
            return
        namespace = objects.decode(entry)
        finalizers = finalizers_of(namespace)
        if FINALIZER in finalizers:
            namespace["spec"]["finalizers"] = [one for one in finalizers if one != FINALIZER]
            await self._inside.request("PUT", object_path(self._resource, key) + "/finalize", namespace)


def finalizers_of(namespace: Obj) -> list[str]:
    """Those who must be done before it goes.  With none, it was finished by hand before it was deleted."""
    return namespace.get("spec", {}).get("finalizers") or []


def is_going(entry: Entry) -> bool:
    """Deleted already, and only waiting for somebody else: the garbage collector's finalizers are not needed here."""
    if not is_concerned(entry.value):
        return False
    identity = identity_of(entry)
    return identity.deletionTimestamp is not None and not identity.mark
