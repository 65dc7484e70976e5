"""The end of a namespace: its content is deleted, and when nothing is left, it goes too."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, NamedTuple

from farflung.apis.resource import Resource
from farflung.hub import objects
from farflung.hub.controllers.loopback import Inside, collection_path, object_path
from farflung.hub.controllers.owner_graph import identity_of, is_concerned
from farflung.hub.controllers.reconcile_queue import OVERTAKEN, Unfinished, Work
from farflung.hub.controllers.stored_kinds import Hearing, KeptKinds, Turnover
from farflung.hub.namespaces import is_terminating, namespace_key
from farflung.hub.objects import home_of
from farflung.machinery.errors import ApiError, Obj
from farflung.machinery.times import format_seconds
from farflung.store.base import Change, Entry, Store, Subscription

WORKERS: Final = 4
FINALIZER: Final = "kubernetes"
NAMESPACES: Final = "/core/namespaces/"
PODS: Final = "/core/pods/"
DISCOVERY: Final = "NamespaceDeletionDiscoveryFailure"
PARSING: Final = "NamespaceDeletionGroupVersionParsingFailure"
CONTENT: Final = "NamespaceDeletionContentFailure"
REMAINING: Final = "NamespaceContentRemaining"
FINALIZERS: Final = "NamespaceFinalizersRemaining"


@dataclass(frozen=True, slots=True)
class Pace:
    """In seconds."""

    #: Before a deleted namespace's content goes.  Kubernetes waits for five, for the sake of its caches; we have none,
    #: but clients that look right after the deletion count on finding what was there.
    grace: float = 3.0
    #: Before a namespace that was held is looked at again, once some of its content has gone.
    again: float = 3.0
    #: In which changes of what a quota counts gather, before its status tells.
    gather: float = 0.1


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
        self._resource = kinds.builtin(NAMESPACES)
        self._terminating: set[Scope] = set()
        self._subscription: Subscription | None = None
        self._content = Hearing(store, kinds, self._hear_content)
        kinds.listen(self._hear_kinds)
        self.work: Work[Scope] = Work("namespaces", self._look, workers=WORKERS)

    def start(self) -> None:
        self._content.start()
        self._subscription = self._store.subscribe(NAMESPACES, self._hear)
        for entry in self._store.list(NAMESPACES).entries:
            if is_terminating(entry):
                self._terminate(entry, after=0)

    def stop(self) -> None:
        self._content.stop()
        if self._subscription is not None:
            self._subscription.cancel()

    # --- what happens -----------------------------------------------------------------------------

    def _hear(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if change.entry is None:
                self._terminating.discard(scope_of(change.key))
                self.work.forget(scope_of(change.key))  # another one of that name has a grace of its own
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
            came_or_went = change.entry is None or change.previous is None
            if came_or_went and scope in self._terminating and is_content(change):
                self.work.add_later(scope, self._pace.again)

    def _hear_kinds(self, turnover: Turnover) -> None:
        """A kind that appears may have objects in a namespace that is about to go."""
        for scope in self._terminating:
            if scope.cluster == turnover.cluster:
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
        content = self._kinds.namespaced(scope.cluster)
        pods = [resource for resource in content if home_of(resource) == PODS]
        others = [resource for resource in content if home_of(resource) != PODS]
        for resources in (pods, others):
            await self._delete_all(resources, scope, remains)
            self._count_all(resources, scope, remains)
            if remains.resources:
                break
        return remains

    async def _delete_all(self, resources: Iterable[Resource], scope: Scope, remains: Remains) -> None:
        for resource in resources:
            if any(not is_going(entry) for entry in self._entries(resource, scope)):
                await self._delete(resource, scope, remains)

    async def _delete(self, resource: Resource, scope: Scope, remains: Remains) -> None:
        try:
            await self._inside.delete_all(collection_path(resource, *scope))
        except ApiError as error:
            if error.code in OVERTAKEN:
                self.work.add_later(scope, self._pace.again)
            else:
                remains.failures.append(error.message)

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
        wanted = termination_conditions(present, remains, format_seconds(self._clock()))
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


def is_content(change: Change) -> bool:
    """Of a namespace, not beside it: only keys of objects in namespaces have five parts."""
    return change.key.count("/") == 5


def is_going(entry: Entry) -> bool:
    """Deleted already, and only waiting for somebody else: the garbage collector's finalizers are not needed here."""
    if not is_concerned(entry.value):
        return False
    identity = identity_of(entry)
    return identity.deletionTimestamp is not None and not identity.mark


class Verdict(NamedTuple):
    status: str
    reason: str
    message: str


#: each condition, in their order, when there is nothing to tell
FINE: Final = {
    DISCOVERY: Verdict("False", "ResourcesDiscovered", "All resources successfully discovered"),
    PARSING: Verdict("False", "ParsedGroupVersions", "All legacy kube types successfully parsed"),
    CONTENT: Verdict("False", "ContentDeleted", "All content successfully deleted, may be waiting on finalization"),
    REMAINING: Verdict("False", "ContentRemoved", "All content successfully removed"),
    FINALIZERS: Verdict("False", "ContentHasNoFinalizers", "All content-preserving finalizers finished"),
}


@dataclass(slots=True)
class Remains:
    """What is left in a namespace after its content was deleted."""

    resources: Counter[tuple[str, str]] = field(default_factory=Counter)  #: (plural, group) → objects
    finalizers: Counter[str] = field(default_factory=Counter)  #: finalizer → objects that it holds
    failures: list[str] = field(default_factory=list)  #: why something could not even be deleted

    def verdicts(self) -> dict[str, Verdict]:
        found = dict(FINE)
        if self.failures:
            told = f"Failed to delete all resource types, {len(self.failures)} remaining: "
            found[CONTENT] = Verdict("True", "ContentDeletionFailed", told + ", ".join(sorted(self.failures)))
        if self.resources:
            counts = [
                f"{name}.{group} has {count} resource instances" for (name, group), count in self.resources.items()
            ]
            told = "Some resources are remaining: "
            found[REMAINING] = Verdict("True", "SomeResourcesRemain", told + ", ".join(sorted(counts)))
        if self.finalizers:
            counts = [f"{name} in {count} resource instances" for name, count in self.finalizers.items()]
            told = "Some content in the namespace has finalizers remaining: "
            found[FINALIZERS] = Verdict("True", "SomeFinalizersRemain", told + ", ".join(sorted(counts)))
        return found


def termination_conditions(present: Sequence[Obj], remains: Remains, now: str) -> list[Obj]:
    """A Namespace's conditions, with those of this controller brought up to date."""
    updated = list(present)
    for kind, verdict in remains.verdicts().items():
        place = next((place for place, one in enumerate(updated) if one.get("type") == kind), None)
        if place is None:
            updated.append(condition(kind, verdict, now))
        else:
            old = updated[place]
            since = old.get("lastTransitionTime") if old.get("status") == verdict.status else now
            updated[place] = condition(kind, verdict, since)
    return updated


def condition(kind: str, verdict: Verdict, since: str | None) -> Obj:
    return {
        "type": kind,
        "status": verdict.status,
        "lastTransitionTime": since,
        "reason": verdict.reason,
        "message": verdict.message,
    }
