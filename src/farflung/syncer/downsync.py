"""Downsync: apply copies of the mailbox at the edge, revert drift, delete withdrawn objects, and return status."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import orjson

from farflung.apis.edge.names import SYNCER_MANAGER
from farflung.apis.names import Collection
from farflung.client.errors import ClientError, NotFound, UpdateConflict
from farflung.controllers.status_summarizer.health import ROLLED_OUT, find_rollout
from farflung.lib.workqueue import WorkQueue
from farflung.machinery.errors import Obj
from farflung.placement.names import DEFINITIONS, NAMESPACES, GroupResource, ObjectRef
from farflung.syncer.context import SyncerContext
from farflung.syncer.conversion import (
    hash_of,
    is_downsynced,
    owned_fields,
    takes_status,
    translated_status,
    with_stuck_pod,
)
from farflung.syncer.copies import MailboxCopy, status_digest, updated_entry
from farflung.syncer.decide import (
    Action,
    ApplyObject,
    ApplyReason,
    AwaitDeletion,
    DeleteObject,
    DriftBackoff,
    LeaveObject,
    LeaveReason,
    ReleaseCopy,
    decide,
)
from farflung.syncer.edge import EdgeClient
from farflung.syncer.journal import IN_DOUBT, NOTHING_OWNED, JournalEntry, JournalError
from farflung.syncer.mailbox import MailboxClient
from farflung.syncer.report import Direction, Problems, Progress, describe_error

RELEASED: Final = ""  #: in place of the uid of a copy: an operator released the orphan
POLL_SECONDS: Final = 1.0  #: seconds until the syncer checks an object that has no events
PODS_CHECKED: Final = 10.0  #: seconds between two looks at the Pods of a workload with an unfinished rollout
RECHECK_SECONDS: Final = 30.0  #: seconds until the syncer checks again what no event may announce


class NotServedError(ClientError):
    """A side does not serve the kind."""


@dataclass(slots=True)
class WriteCounts:
    """Numbers of successful writes."""

    applied: int = 0
    deleted: int = 0
    drift: int = 0
    statuses: int = 0


class Downsync:
    """Two controllers have the queues, for objects and for status, so that a slow or unreachable hub does not keep the
    syncer from reverting drift."""

    def __init__(
        self,
        context: SyncerContext,
        mailbox: MailboxClient,
        edge: EdgeClient,
        problems: Problems,
        progress: Progress,
        covers: Callable[[ObjectRef], bool],
    ) -> None:
        """`covers`: whether the SyncerConfigs select a copy."""
        self.queue: WorkQueue[ObjectRef] = WorkQueue(context.env.monotonic)
        self.status_queue: WorkQueue[ObjectRef] = WorkQueue(context.env.monotonic)
        self.writes = WriteCounts()
        self._mailbox = mailbox
        self._edge = edge
        self._journal = context.journal
        self._problems = problems
        self._progress = progress
        self._covers = covers
        self._now = context.options.now
        self._monotonic = context.env.monotonic
        self._log = context.log
        self._adopt = context.options.adopt
        self._waiting: dict[str, set[ObjectRef]] = {}  #: objects that wait for their namespace, by its name
        self._drift = DriftBackoff()

    # --- events -----------------------------------------------------------------------------------

    def on_copy(self, ref: ObjectRef, cluster: str, copy: MailboxCopy | None) -> None:
        entry = self._journal.get(ref)
        if copy is None:
            self._lose_copy(ref, entry)
            return
        if copy.is_local or (entry is None and not self._should_sync(ref, copy)):
            return
        new = updated_entry(ref, copy, entry, cluster)
        self._journal.put(new)
        if entry is None or (entry.desired, entry.withdrawn, entry.orphaned) != (
            new.desired,
            new.withdrawn,
            new.orphaned,
        ):
            self._progress.start(ref, copy.revision)
            self.queue.add(ref)
        elif copy.withdrawn or (entry.has_finalizer and not new.has_finalizer):
            self.queue.add(ref)
        if entry is not None:
            self.status_queue.add(ref)  # another client may have changed the status, or the copy has a new generation

    def _should_sync(self, ref: ObjectRef, copy: MailboxCopy) -> bool:
        """A copy with our finalizer may have been applied, even if the journal lacks it.  A copy that is being deleted
        without it was not."""
        return copy.has_finalizer or (not copy.withdrawn and self._covers(ref))

    def _lose_copy(self, ref: ObjectRef, entry: JournalEntry | None) -> None:
        """The copy disappeared without being withdrawn, so its object stays at the edge as an orphan.  A copy with our
        finalizer may have been applied, even if the journal does not say so."""
        if entry is None:
            return
        if not entry.applied and (entry.owned == NOTHING_OWNED or not entry.has_finalizer):
            self._journal.drop(ref)
            self._enqueue_waiting(ref)
        elif not entry.orphaned:
            self._journal.put(replace(entry, orphaned=True, withdrawn=False))
        self.queue.add(ref)
        self._enqueue_containers(ref)

    def on_list(self, resource: GroupResource) -> None:
        """All copies of a kind were listed: entries without a copy lost it."""
        known = self._mailbox.copies.of(resource)
        for entry in [one for one in self._journal.entries_of(resource) if one.ref not in known]:
            if not entry.orphaned and entry.uid:
                self._lose_copy(entry.ref, entry)

    def on_object(self, ref: ObjectRef, cluster: str, obj: Obj | None) -> None:
        """An object at the edge changed."""
        if self._journal.get(ref) is not None:
            self.queue.add(ref)
            self.status_queue.add(ref)

    def enqueue_kind(self, resource: GroupResource) -> None:
        for entry in self._journal.entries_of(resource):
            self.queue.add(entry.ref)
            self.status_queue.add(entry.ref)

    def release_orphans(self, cluster: str) -> int:
        """An operator allowed the deletion of all orphans.  `cluster`: the logical cluster of the mailbox with the
        annotation."""
        orphans = [entry for entry in self._journal.entries() if entry.orphaned]
        for entry in orphans:
            self._journal.put(replace(entry, orphaned=False, withdrawn=True, uid=RELEASED, incarnation=cluster))
            self.queue.add(entry.ref)
        return len(orphans)

    def restore_released(self) -> None:
        """Released objects become orphans again: the mailbox with the annotation was replaced."""
        for entry in [one for one in self._journal.entries() if one.uid == RELEASED and not one.orphaned]:
            self._lose_copy(entry.ref, entry)

    def _enqueue_containers(self, ref: ObjectRef) -> None:
        """The namespace and the definition of an object: they may wait for its deletion, or report that it stays."""
        if ref.namespace:
            self.queue.add(ObjectRef(NAMESPACES, "", ref.namespace))
        self.queue.add(definition_of(ref.resource))

    def _enqueue_waiting(self, ref: ObjectRef) -> None:
        """The objects that wait for a namespace, when it exists at the edge or has no entry any more."""
        if ref.resource == NAMESPACES:
            for waiting in self._waiting.pop(ref.name, ()):
                self.queue.add(waiting)

    # --- one object -------------------------------------------------------------------------------

    async def reconcile(self, ref: ObjectRef, worker: int) -> float | None:
        entry = self._journal.get(ref)
        if entry is None:
            self._clear_problem(ref)
            return None
        try:
            return await self._reconcile(ref, entry)
        except ClientError as error:
            if not isinstance(error, UpdateConflict):  # another writer was faster; the object is reconciled again
                self._report(ref, Direction.DOWN, *describe_error(ref, error))
            raise

    async def _reconcile(self, ref: ObjectRef, entry: JournalEntry) -> float | None:
        copy = self._mailbox.copies.get(ref)
        if copy is not None and copy.withdrawn and copy.has_finalizer and copy.uid != entry.uid:
            await self._mailbox.remove_finalizer(ref, copy)
        collection = self._edge.kinds.at_edge(ref.resource, entry.version)
        if collection is None:
            return await self._without_kind(ref, entry)
        if not self._edge.objects.is_listed(ref.resource):
            error = self._edge.objects.error(ref.resource)
            if isinstance(error, ClientError):
                raise error
            return None  # reconciled again after the list
        if not self._is_held(entry):
            if copy is None:
                return None
            if not entry.applied and not self._covers(ref):
                self._drop(ref)  # it is not selected any more, and was never applied
                return None
            await self._mailbox.add_finalizer(ref, copy)
            entry = self._journal.get(ref) or entry
            if not self._is_held(entry):
                return None  # it was deleted, and the event will arrive
        if not entry.withdrawn and not self._has_namespace(ref):
            return None
        if not entry.withdrawn and not entry.applied:
            await self._flush()  # after a crash, the journal must know what may be at the edge
            known = self._journal.get(ref)
            if known is None or not self._is_held(known):
                return None  # it changed meanwhile, and is reconciled again
            entry = known
        live = await self._live(collection, ref, entry)
        return await self._execute(decide(entry, live, self._adopt), ref, entry, collection)

    def _is_held(self, entry: JournalEntry) -> bool:
        """Before an object is applied, its copy must not be deletable without notice."""
        return entry.has_finalizer or entry.withdrawn or entry.orphaned

    async def _without_kind(self, ref: ObjectRef, entry: JournalEntry) -> float | None:
        """Without the kind, the edge has none of its objects, so a withdrawal is complete."""
        if entry.withdrawn and self._edge.kinds.edge_lacks(ref.resource):
            return await self._finish_withdrawal(ref, entry)
        raise NotServedError(f"the edge does not serve {ref.resource.resource} {entry.version}".strip())

    def _has_namespace(self, ref: ObjectRef) -> bool:
        """Whether its namespace exists at the edge, if the syncer applies it.  If not, the object waits for it."""
        namespace = self._journal.get(ObjectRef(NAMESPACES, "", ref.namespace)) if ref.namespace else None
        if namespace is None or namespace.applied or namespace.edge_uid:
            return True
        self._waiting.setdefault(ref.namespace, set()).add(ref)
        return False

    async def _live(self, collection: Collection, ref: ObjectRef, entry: JournalEntry) -> Obj | None:
        """The cached object, if that is enough.  Objects of others, and those of servers without managedFields, are
        compared as a whole."""
        cached = self._edge.objects.get(ref)
        if cached is not None and is_downsynced(cached) and (entry.owned or not entry.applied or entry.withdrawn):
            return cached
        return await self._edge.read(collection, ref)

    async def _execute(
        self, action: Action, ref: ObjectRef, entry: JournalEntry, collection: Collection
    ) -> float | None:
        match action:
            case ApplyObject():
                if entry.orphaned and not entry.applied and not action.uid:
                    self._drop(ref)  # it was never applied, and its copy was deleted
                    return None
                if action.why is ApplyReason.DRIFT and (pause := self._drift.pause(ref, self._monotonic())):
                    return pause
                await self._apply(action, ref, entry, collection)
                self._mark_synced(ref, entry)
                return self._drift.pause(ref, self._monotonic()) or None
            case DeleteObject():
                return await self._delete(action, ref, entry, collection)
            case ReleaseCopy():
                return await self._finish_withdrawal(ref, entry)
            case AwaitDeletion():
                return None if self._edge.objects.get(ref) is not None else POLL_SECONDS
            case LeaveObject(LeaveReason.NOT_MANAGED, sentence):
                self._progress.finish(ref)
                self._report(ref, Direction.DOWN, "NotManaged", sentence)
                return RECHECK_SECONDS
        self._mark_synced(ref, entry)
        return None

    def _mark_synced(self, ref: ObjectRef, entry: JournalEntry) -> None:
        self._clear_problem(ref)
        if ref.resource == NAMESPACES:
            now = self._journal.get(ref)
            if now is not None and not now.applied and not now.edge_uid:  # created by others, and used as it is
                self._journal.put(replace(now, edge_uid="theirs"))
            self._enqueue_waiting(ref)

    async def _apply(self, action: ApplyObject, ref: ObjectRef, entry: JournalEntry, collection: Collection) -> None:
        desired = orjson.loads(entry.desired)
        if action.uid:
            desired["metadata"]["uid"] = action.uid
        if action.version:
            desired["metadata"]["resourceVersion"] = action.version
        self._doubt(ref)
        answer = await self._edge.client.apply(collection, desired, force=bool(action.uid))
        now = self._journal.get(ref) or replace(entry, orphaned=True)  # if its copy was deleted meanwhile
        owned, uid = owned_fields(answer, SYNCER_MANAGER), answer["metadata"].get("uid") or ""
        self._journal.put(replace(now, applied=hash_of(entry.desired), owned=owned, edge_uid=uid))
        self._edge.objects.assume(ref.resource, answer)
        self.status_queue.add(ref)
        self.writes.applied += 1
        if action.why is ApplyReason.DRIFT:
            self.writes.drift += 1
            if sentence := self._drift.record_correction(ref, self._monotonic()):
                self._report(ref, Direction.DOWN, "Contested", sentence)
        self._log.info("applied", v=2, object=str(ref), why=action.why.value)

    def reapply_all(self) -> None:
        """The journal may be older than the last writes: apply all objects once more."""
        for ref in list(self._journal.refs()):
            self._doubt(ref)

    def _doubt(self, ref: ObjectRef) -> None:
        """An apply had no answer.  The owners of the fields do not tell whether it happened."""
        entry = self._journal.get(ref)
        if entry is not None and entry.applied:
            self._journal.put(replace(entry, applied=IN_DOUBT))

    async def _delete(
        self, action: DeleteObject, ref: ObjectRef, entry: JournalEntry, collection: Collection
    ) -> float | None:
        if not self._is_withdrawn(ref, entry):
            return RECHECK_SECONDS  # or sooner, when the copy's event or the list of copies arrives
        await self._mailbox.check(entry.incarnation)
        if action.container:
            inside = self._inside(ref)
            orphans = [str(entry.ref) for entry in inside if entry.orphaned]
            if inside and not orphans:
                return RECHECK_SECONDS  # or sooner, when the last of them is deleted
            if obstacle := orphans[0] if orphans else await self._edge.foreign_object_in(ref):
                sentence = f"{ref} was withdrawn and stays, because it contains an object that was not withdrawn: "
                sentence += obstacle
                self._report(ref, Direction.DOWN, "NotEmpty", sentence)
                return RECHECK_SECONDS
        try:
            await self._edge.client.delete(
                collection, ref.name, ref.namespace, uid=action.uid, propagation="Background"
            )
        except NotFound as error:
            if not error.is_about(ref.name):
                raise
            self._edge.objects.forget(ref)
            return await self._release_copy(ref, entry)
        self._mark_deleted(ref, entry)
        self.writes.deleted += 1
        self._log.info("deleted", v=2, object=str(ref))
        return None if self._edge.objects.get(ref) is not None else POLL_SECONDS

    def _mark_deleted(self, ref: ObjectRef, entry: JournalEntry) -> None:
        """The syncer deleted the object, so its absence is not drift."""
        now = self._journal.get(ref)
        if now is not None and now.withdrawn and now.uid == entry.uid:
            self._journal.put(replace(now, applied=""))

    async def _finish_withdrawal(self, ref: ObjectRef, entry: JournalEntry) -> float | None:
        """Nothing is left to delete.  An object that stays at the edge, because it is created only once or is not ours
        any more, is forgotten only if its copy was withdrawn; so is one that was applied and is absent, because the
        edge may have lost it.  Raises MailboxTerminatingError if the whole mailbox is being deleted."""
        if entry.applied or self._edge.objects.get(ref) is not None:
            if not self._is_withdrawn(ref, entry):
                return RECHECK_SECONDS  # as in `_delete`
            await self._mailbox.check(entry.incarnation)
        return await self._release_copy(ref, entry)

    def _is_withdrawn(self, ref: ObjectRef, entry: JournalEntry) -> bool:
        """Whether the copy exists and is being deleted, or an operator released the orphan."""
        if entry.uid == RELEASED:
            return True
        copy = self._mailbox.copies.get(ref)
        return copy is not None and copy.withdrawn and copy.uid == entry.uid

    def _inside(self, container: ObjectRef) -> list[JournalEntry]:
        """Entries in a namespace, or of the kind of a definition."""
        namespace = container.name if container.resource == NAMESPACES else None
        refs = [
            one
            for one in self._journal.refs()
            if one.namespace == namespace or definition_of(one.resource) == container
        ]
        return [entry for ref in refs if (entry := self._journal.get(ref)) is not None]

    async def _release_copy(self, ref: ObjectRef, entry: JournalEntry) -> float | None:
        """The object is deleted at the edge, or was never ours: remove the finalizer.  The journal must not say any
        more that it is applied: after a crash, the syncer would take it for an orphan and apply it again."""
        self._journal.put(replace(entry, applied="", owned=NOTHING_OWNED, edge_uid=""))
        copy = self._mailbox.copies.get(ref)
        if copy is not None and copy.has_finalizer and copy.withdrawn:
            await self._flush()
            await self._mailbox.remove_finalizer(ref, copy)
        self._drop(ref)
        return None

    def _drop(self, ref: ObjectRef) -> None:
        """Forget an object of which nothing is at the edge."""
        self._journal.drop(ref)
        self._clear_problem(ref)
        self._enqueue_waiting(ref)
        self._enqueue_containers(ref)

    async def _flush(self) -> None:
        """If the disk is full, the syncer continues with its memory."""
        try:
            await asyncio.to_thread(self._journal.flush)
        except JournalError as error:
            self._log.error(error, "cannot write the journal")

    def _clear_problem(self, ref: ObjectRef) -> None:
        self._progress.finish(ref)
        if not self._drift.pause(ref, self._monotonic()):
            self._problems.clear(ref, Direction.DOWN)

    def _report(self, ref: ObjectRef, direction: Direction, reason: str, message: str) -> None:
        if self._problems.put(ref, direction, reason, message, self._now()):
            self._log.warning("cannot sync", object=str(ref), direction=direction.value, reason=reason)

    # --- its status -------------------------------------------------------------------------------

    async def return_status(self, ref: ObjectRef, worker: int) -> float | None:
        entry, copy, live = self._journal.get(ref), self._mailbox.copies.get(ref), self._edge.objects.get(ref)
        if entry is None or copy is None or live is None or not self._may_return_status(entry, copy, live):
            self._problems.clear(ref, Direction.STATUS)
            return None
        generation = copy.generation
        if generation is None and (generation := await self._mailbox.generation(ref)) is None:
            return None
        is_applied = entry.create_only or entry.applied == hash_of(entry.desired)
        status = translated_status(live, generation, is_applied=is_applied)
        again = None
        if status and ref.resource in ROLLED_OUT:
            spec = orjson.loads(entry.desired).get("spec") or {}
            if find_rollout(ref.resource, spec, status) is not None:
                status, again = await self._with_stuck_pod(ref, spec.get("selector"), status), PODS_CHECKED
        if not status or status_digest(status) == copy.status:
            self._problems.clear(ref, Direction.STATUS)
            return again
        try:
            await self._mailbox.set_status(ref, copy, status)
        except ClientError as error:
            self._report(ref, Direction.STATUS, *describe_error(ref, error))
            raise
        self.writes.statuses += 1
        self._problems.clear(ref, Direction.STATUS)
        return again

    async def _with_stuck_pod(self, ref: ObjectRef, selector: object, status: Obj) -> Obj:
        """The workload does not know why its rollout does not finish."""
        try:
            problem = await self._edge.stuck_pod(ref.namespace, selector) if selector else None
        except ClientError:
            return status  # without permission to list Pods, or without an answer
        return status if problem is None else with_stuck_pod(status, problem)

    def _may_return_status(self, entry: JournalEntry, copy: MailboxCopy, live: Obj) -> bool:
        current = not entry.withdrawn and not entry.orphaned and entry.uid == copy.uid
        return current and takes_status(entry.ref.resource) and is_downsynced(live)


def definition_of(resource: GroupResource) -> ObjectRef:
    """The CustomResourceDefinition of a kind, if it is not built in."""
    return ObjectRef(DEFINITIONS, "", f"{resource.resource}.{resource.group}")
