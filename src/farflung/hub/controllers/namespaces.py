"""Deletion of namespaces: deletes their content, reports what remains, and removes the finalizer at the end.

Conditions have the reasons and messages of Kubernetes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, NamedTuple

from farflung.apis.resource import Resource
from farflung.hub.catalog import objects
from farflung.hub.controllers.loopback import LoopbackClient, collection_path, object_path
from farflung.hub.controllers.owner_graph import ownership_of
from farflung.hub.controllers.reconcile_queue import STALE, ReconcileQueue, Unfinished
from farflung.hub.controllers.stored_kinds import KindsChange, StoredKinds, StoredKindsWatch
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
    """Delays in seconds."""

    #: Before the content of a deleted namespace is deleted.  Kubernetes waits five seconds for its caches.  The hub has
    #: none, but some clients expect the content right after the deletion.
    grace: float = 3.0
    again: float = 3.0  #: before a namespace with finalizers is checked again
    gather: float = 0.1  #: in which changes of a quota's usage are collected


DEFAULT_PACE: Final = Pace()


class NamespaceRef(NamedTuple):
    cluster: str
    namespace: str


def namespace_ref(key: str) -> NamespaceRef:
    """The namespace of a Namespace's key, or of a namespaced object's key."""
    return NamespaceRef(*key.split("/", 5)[3:5])


class NamespaceController:
    def __init__(
        self, store: Store, kinds: StoredKinds, client: LoopbackClient, clock: Callable[[], datetime], pace: Pace
    ) -> None:
        self._store = store
        self._kinds = kinds
        self._client = client
        self._clock = clock
        self._pace = pace
        self._resource = kinds.builtin(NAMESPACES)
        self._terminating: set[NamespaceRef] = set()
        self._subscription: Subscription | None = None
        self._content = StoredKindsWatch(store, kinds, self._on_content)
        kinds.listen(self._on_kinds)
        self.queue: ReconcileQueue[NamespaceRef] = ReconcileQueue("namespaces", self._reconcile, workers=WORKERS)

    def start(self) -> None:
        self._subscription = self._store.subscribe(NAMESPACES, self._on_changes)
        for entry in self._store.list(NAMESPACES).entries:
            if objects.is_terminating(entry):
                self._terminate(entry, after=0)

    def stop(self) -> None:
        self._content.stop()
        if self._subscription is not None:
            self._subscription.cancel()

    # --- changes ----------------------------------------------------------------------------------

    def _on_changes(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if change.entry is None:
                self._terminating.discard(namespace_ref(change.key))
                if not self._terminating:
                    self._content.stop()
                self.queue.forget(namespace_ref(change.key))  # a new namespace of that name has its own grace
            elif objects.is_terminating(change.entry):
                self._terminate(change.entry, after=self._pace.grace)

    def _terminate(self, entry: Entry, *, after: float) -> None:
        scope = namespace_ref(entry.key)
        self.queue.add_later(scope, self._pace.again if scope in self._terminating else after)
        self._terminating.add(scope)
        self._content.start()

    def _on_content(self, changes: Sequence[Change]) -> None:
        """Called while namespaces terminate.  However fast its content dwindles, a namespace is looked at only now and
        then."""
        for change in changes:
            scope = namespace_ref(change.key)
            is_created_or_deleted = change.entry is None or change.previous is None
            if is_created_or_deleted and scope in self._terminating and is_content(change):
                self.queue.add_later(scope, self._pace.again)

    def _on_kinds(self, change: KindsChange) -> None:
        """A kind that appears may have objects in a namespace that is about to go."""
        for scope in self._terminating:
            if scope.cluster == change.cluster:
                self.queue.add_later(scope, self._pace.again)

    def _entries(self, resource: Resource, scope: NamespaceRef) -> Sequence[Entry]:
        return self._store.list(objects.prefix(resource, *scope)).entries

    # --- reconciling ------------------------------------------------------------------------------

    async def _reconcile(self, scope: NamespaceRef) -> None:
        key = objects.namespace_key(*scope)
        entry = self._store.get(key)
        if entry is None or not objects.is_terminating(entry) or not finalizers_of(objects.decode(entry)):
            return
        remains = await self._delete_content(scope)
        await self._report(key, remains)
        if remains.failures:
            raise Unfinished("; ".join(remains.failures))
        if not remains.resources:
            await self._finalize(key)

    async def _delete_content(self, scope: NamespaceRef) -> Remains:
        """Delete the Pods first, and all else when no Pod is left, because Pods use the other objects."""
        remains = Remains()
        content = self._kinds.namespaced(scope.cluster)
        pods = [resource for resource in content if resource.storage_prefix == PODS]
        others = [resource for resource in content if resource.storage_prefix != PODS]
        for resources in (pods, others):
            for resource in resources:
                if any(not is_terminating_content(entry) for entry in self._entries(resource, scope)):
                    await self._delete(resource, scope, remains)
            self._count(resources, scope, remains)
            if remains.resources:
                break
        return remains

    async def _delete(self, resource: Resource, scope: NamespaceRef, remains: Remains) -> None:
        try:
            await self._client.delete_all(collection_path(resource, *scope))
        except ApiError as error:
            if error.code in STALE:
                self.queue.add_later(scope, self._pace.again)
            else:
                remains.failures.append(error.message)

    def _count(self, resources: Iterable[Resource], scope: NamespaceRef, remains: Remains) -> None:
        for resource in resources:
            entries = self._entries(resource, scope)
            if entries:
                remains.resources[resource.plural, resource.group] = len(entries)
            for entry in entries:
                remains.finalizers.update(ownership_of(entry).finalizers or ())

    async def _report(self, key: str, remains: Remains) -> None:
        entry = self._store.get(key)
        if entry is None:
            return
        namespace = objects.decode(entry)
        present = namespace.get("status", {}).get("conditions", [])
        wanted = termination_conditions(present, remains, format_seconds(self._clock()))
        if wanted != present:
            change = {"status": {"conditions": wanted}}
            path = object_path(self._resource, key) + "/status"
            await self._client.patch(path, change, uid=namespace["metadata"]["uid"], revision=entry.revision)

    async def _finalize(self, key: str) -> None:
        entry = self._store.get(key)
        if entry is None:
            return
        namespace = objects.decode(entry)
        finalizers = finalizers_of(namespace)
        if FINALIZER in finalizers:
            namespace["spec"]["finalizers"] = [one for one in finalizers if one != FINALIZER]
            await self._client.request("PUT", object_path(self._resource, key) + "/finalize", namespace)


def finalizers_of(namespace: Obj) -> list[str]:
    """The finalizers of the spec.  A client may have removed them before the deletion."""
    return namespace.get("spec", {}).get("finalizers") or []


def is_content(change: Change) -> bool:
    """Whether an object is namespaced: only such keys have five parts."""
    return change.key.count("/") == 5


def is_terminating_content(entry: Entry) -> bool:
    """Whether an object is being deleted and has no finalizer of the garbage collector, which is not needed here."""
    if not objects.may_be_collected(entry):
        return False
    identity = ownership_of(entry)
    return identity.deletionTimestamp is not None and not identity.mark


class TerminationCondition(NamedTuple):
    status: str
    reason: str
    message: str


#: the conditions of an empty namespace, in their order
FINE: Final = {
    DISCOVERY: TerminationCondition("False", "ResourcesDiscovered", "All resources successfully discovered"),
    PARSING: TerminationCondition("False", "ParsedGroupVersions", "All legacy kube types successfully parsed"),
    CONTENT: TerminationCondition(
        "False", "ContentDeleted", "All content successfully deleted, may be waiting on finalization"
    ),
    REMAINING: TerminationCondition("False", "ContentRemoved", "All content successfully removed"),
    FINALIZERS: TerminationCondition("False", "ContentHasNoFinalizers", "All content-preserving finalizers finished"),
}


@dataclass(slots=True)
class Remains:
    """The content of a namespace that is not deleted yet."""

    resources: Counter[tuple[str, str]] = field(default_factory=Counter)  #: (plural, group) → objects
    finalizers: Counter[str] = field(default_factory=Counter)  #: finalizer → objects that it holds
    failures: list[str] = field(default_factory=list)  #: errors of delete requests

    def findings(self) -> dict[str, TerminationCondition]:
        found = dict(FINE)
        if self.failures:
            start = f"Failed to delete all resource types, {len(self.failures)} remaining: "
            found[CONTENT] = TerminationCondition(
                "True", "ContentDeletionFailed", start + ", ".join(sorted(self.failures))
            )
        if self.resources:
            counts = [
                f"{name}.{group} has {count} resource instances" for (name, group), count in self.resources.items()
            ]
            start = "Some resources are remaining: "
            found[REMAINING] = TerminationCondition("True", "SomeResourcesRemain", start + ", ".join(sorted(counts)))
        if self.finalizers:
            counts = [f"{name} in {count} resource instances" for name, count in self.finalizers.items()]
            start = "Some content in the namespace has finalizers remaining: "
            found[FINALIZERS] = TerminationCondition("True", "SomeFinalizersRemain", start + ", ".join(sorted(counts)))
        return found


def termination_conditions(present: Sequence[Obj], remains: Remains, now: str) -> list[Obj]:
    """A Namespace's conditions, with those of this controller brought up to date."""
    updated = list(present)
    for kind, finding in remains.findings().items():
        index = next((index for index, one in enumerate(updated) if one.get("type") == kind), None)
        if index is None:
            updated.append(condition(kind, finding, now))
        else:
            old = updated[index]
            since = old.get("lastTransitionTime") if old.get("status") == finding.status else now
            updated[index] = condition(kind, finding, since)
    return updated


def condition(kind: str, finding: TerminationCondition, since: str | None) -> Obj:
    return {
        "type": kind,
        "status": finding.status,
        "lastTransitionTime": since,
        "reason": finding.reason,
        "message": finding.message,
    }
