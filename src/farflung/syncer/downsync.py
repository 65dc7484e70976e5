"""Bring what the mailbox holds to the edge, and keep it there; and bring back what it says of itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

import orjson

from farflung.apis.names import Collection
from farflung.client.errors import ClientError, NotFound, UpdateConflict
from farflung.lib.klog import Logger
from farflung.machinery.errors import Obj
from farflung.runtime.reflector import Environment
from farflung.runtime.workqueue import WorkQueue
from farflung.syncer.conversion import digest, is_downsynced, owned_fields, returned_status, takes_status
from farflung.syncer.copies import MailboxCopy, status_digest, updated_entry
from farflung.syncer.decide import (
    DEFINITIONS,
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
from farflung.syncer.journal import GONE, IN_DOUBT, Journal, JournalEntry, JournalError
from farflung.syncer.mailbox import MailboxClient
from farflung.syncer.report import Direction, Problems, Progress, describe_error
from farflung.syncer.types import MANAGER, Adopt, Part, Resource
from farflung.syncer.wanted import NAMESPACES

RELEASED: Final = ""  #: in the place of the uid of a copy that somebody said need not be withdrawn
AGAIN: Final = 1.0  #: seconds until we look again at what we do not hear of
STRANGERS: Final = 30.0  #: seconds until the syncer checks again what no event may announce


class NotServedError(ClientError):
    """A side does not have the kind."""


@dataclass(slots=True)
class WriteCounts:
    """What was done so far."""

    applied: int = 0
    deleted: int = 0
    drift: int = 0
    statuses: int = 0


class Downsync:
    """Both directions of what comes from the mailbox.  The queues are those of two controllers, so that a hub that is
    slow or away keeps nothing at the edge from being mended."""

    def __init__(
        self,
        mailbox: MailboxClient,
        edge: EdgeClient,
        journal: Journal,
        troubles: Problems,
        progress: Progress,
        covers: Callable[[Part], bool],
        now: Callable[[], datetime],
        env: Environment,
        log: Logger,
        adopt: Adopt,
    ) -> None:
        self.down: WorkQueue[Part] | None = None
        self.back: WorkQueue[Part] | None = None
        self.tally = WriteCounts()
        self._mailbox = mailbox
        self._edge = edge
        self._journal = journal
        self._troubles = troubles
        self._progress = progress
        self._covers = covers
        self._now = now
        self._env = env
        self._log = log
        self._adopt = adopt
        self._waiting: dict[str, set[Part]] = {}  #: for a namespace
        self._contests = DriftBackoff()

    # --- what is heard ----------------------------------------------------------------------------

    def hear_copy(self, part: Part, cluster: str, copy: MailboxCopy | None) -> None:
        entry = self._journal.get(part)
        if copy is None:
            self._lose(part, entry)
            return
        if copy.stays or (entry is None and not self._is_ours_to_bring(part, copy)):
            return
        new = updated_entry(part, copy, entry, cluster)
        self._journal.put(new)
        if entry is None or (entry.desired, entry.withdrawn, entry.orphaned) != (
            new.desired,
            new.withdrawn,
            new.orphaned,
        ):
            self._progress.began(part, copy.revision)
            self._look(part)
        elif copy.withdrawn or (entry.guarded and not new.guarded):
            self._look(part)
        if entry is not None and entry.returned != new.returned:
            self._look_back(part)

    def _is_ours_to_bring(self, part: Part, copy: MailboxCopy) -> bool:
        """One that waits for us was brought before, whatever we remember; another one that goes already is none of
        ours."""
        return copy.guarded or (not copy.withdrawn and self._covers(part))

    def _lose(self, part: Part, entry: JournalEntry | None) -> None:
        """It is not there any more, and nobody told us before: absence means nothing, so what is at the edge stays.
        One that was guarded may have been brought, whatever we remember."""
        if entry is None:
            return
        if not entry.applied and (entry.owned == GONE or not entry.guarded):
            self._journal.drop(part)
            self._look_at_waiting(part)
        elif not entry.orphaned:
            self._journal.put(replace(entry, orphaned=True, withdrawn=False))
        self._look(part)
        self._look_at_containers(part)

    def hear_list(self, resource: Resource) -> None:
        """All copies of a kind are known: what was brought before and is not among them has lost its copy."""
        known = self._mailbox.copies.of(resource)
        for entry in [one for one in self._journal.entries_of(resource) if one.part not in known]:
            if not entry.orphaned and entry.uid:
                self._lose(entry.part, entry)

    def hear_object(self, part: Part, cluster: str, obj: Obj | None) -> None:
        """Of the edge."""
        if self._journal.get(part) is not None:
            self._look(part)
            self._look_back(part)

    def look_at(self, resource: Resource) -> None:
        """At all that is known of a kind, again."""
        for entry in self._journal.entries_of(resource):
            self._look(entry.part)
            self._look_back(entry.part)

    def release_orphans(self, incarnation: str) -> int:
        """Somebody said, in this mailbox, that what nobody withdrew may go."""
        orphans = [entry for entry in self._journal.entries() if entry.orphaned]
        for entry in orphans:
            self._journal.put(replace(entry, orphaned=False, withdrawn=True, uid=RELEASED, incarnation=incarnation))
            self._look(entry.part)
        return len(orphans)

    def keep_released(self) -> None:
        """What was said in a mailbox that is no more does not count in another one."""
        for entry in [one for one in self._journal.entries() if one.uid == RELEASED and not one.orphaned]:
            self._lose(entry.part, entry)

    def _look(self, part: Part) -> None:
        if self.down is not None:
            self.down.add(part)

    def _look_at_containers(self, part: Part) -> None:
        """The namespace and the definition of an object, which may wait for its end, or must report that it stays."""
        if part.namespace:
            self._look(Part(NAMESPACES, "", part.namespace))
        self._look(definition_of(part.resource))

    def _look_at_waiting(self, part: Part) -> None:
        """The objects that wait for a namespace, when it exists at the edge or has no entry any more."""
        if part.resource == NAMESPACES:
            for waiting in self._waiting.pop(part.name, ()):
                self._look(waiting)

    def _look_back(self, part: Part) -> None:
        if self.back is not None:
            self.back.add(part)

    # --- one object, down -------------------------------------------------------------------------

    async def bring(self, part: Part, worker: int) -> float | None:
        entry = self._journal.get(part)
        if entry is None:
            self._settle(part)
            return None
        try:
            return await self._bring(part, entry)
        except ClientError as error:
            if not isinstance(error, UpdateConflict):  # somebody else was faster, and we look again
                self._report(part, Direction.DOWN, *describe_error(part, error))
            raise

    async def _bring(self, part: Part, entry: JournalEntry) -> float | None:
        copy = self._mailbox.copies.get(part)
        if copy is not None and copy.withdrawn and copy.guarded and copy.uid != entry.uid:
            await self._mailbox.release(part, copy)
        collection = self._edge.kinds.at_edge(part.resource, entry.version)
        if collection is None:
            return await self._without_kind(part, entry)
        if not self._edge.objects.is_known(part.resource):
            error = self._edge.objects.error(part.resource)
            if isinstance(error, ClientError):
                raise error
            return None  # looked at again as soon as it is
        if not self._is_guarded(entry):
            if copy is None:
                return None
            if not entry.applied and not self._covers(part):
                self._drop(part)  # it is not wanted any more, and never reached the edge
                return None
            await self._mailbox.guard(part, copy)
            entry = self._journal.get(part) or entry
            if not self._is_guarded(entry):
                return None  # it is gone by now, which is still to be heard of
        if not entry.withdrawn and not self._has_room(part):
            return None
        if not entry.withdrawn and not entry.applied:
            await self._remember()  # who crashes once it is at the edge has to know it
            known = self._journal.get(part)
            if known is None or not self._is_guarded(known):
                return None  # which was heard meanwhile, and is looked at
            entry = known
        live = await self._live(collection, part, entry)
        return await self._take(decide(entry, live, self._adopt), part, entry, collection)

    def _is_guarded(self, entry: JournalEntry) -> bool:
        """Before something is at the edge, the copy must not be able to go without a word."""
        return entry.guarded or entry.withdrawn or entry.orphaned

    async def _without_kind(self, part: Part, entry: JournalEntry) -> float | None:
        """With its definition everything of a kind goes.  That we do not remember to have brought it is not enough."""
        if entry.withdrawn and self._edge.kinds.edge_lacks(part.resource):
            return await self._end(part, entry)
        raise NotServedError(f"the edge does not serve {part.resource.plural} {entry.version}".strip())

    def _has_room(self, part: Part) -> bool:
        """Whether its namespace is there; if that is still to come, we are told."""
        namespace = self._journal.get(Part(NAMESPACES, "", part.namespace)) if part.namespace else None
        if namespace is None or namespace.applied or namespace.edge_uid:
            return True
        self._waiting.setdefault(part.namespace, set()).add(part)
        return False

    async def _live(self, collection: Collection, part: Part, entry: JournalEntry) -> Obj | None:
        """What was heard, if that is enough: of strangers, and where nobody says who owns what, everything counts."""
        heard = self._edge.objects.get(part)
        if heard is not None and is_downsynced(heard) and (entry.owned or not entry.applied or entry.withdrawn):
            return heard
        return await self._edge.read(collection, part)

    async def _take(self, step: Action, part: Part, entry: JournalEntry, collection: Collection) -> float | None:
        match step:
            case ApplyObject():
                if entry.orphaned and not entry.applied and not step.uid:
                    self._drop(part)  # it never was there, and is not wanted any more
                    return None
                if step.why is ApplyReason.DRIFT and (pause := self._contests.pause(part, self._env.monotonic())):
                    return pause
                await self._apply(step, part, entry, collection)
                self._arrived(part, entry)
                return self._contests.pause(part, self._env.monotonic()) or None
            case DeleteObject():
                return await self._delete(step, part, entry, collection)
            case ReleaseCopy():
                return await self._end(part, entry)
            case AwaitDeletion():
                return None if self._edge.objects.get(part) is not None else AGAIN
            case LeaveObject(LeaveReason.NOT_OURS, sentence):
                self._progress.ended(part)
                self._report(part, Direction.DOWN, "NotOurs", sentence)
                return STRANGERS
        self._arrived(part, entry)
        return None

    def _arrived(self, part: Part, entry: JournalEntry) -> None:
        self._settle(part)
        if part.resource == NAMESPACES:
            now = self._journal.get(part)
            if now is not None and not now.applied and not now.edge_uid:  # one that others made is used as it is
                self._journal.put(replace(now, edge_uid="theirs"))
            self._look_at_waiting(part)

    async def _apply(self, step: ApplyObject, part: Part, entry: JournalEntry, collection: Collection) -> None:
        desired = orjson.loads(entry.desired)
        if step.uid:
            desired["metadata"]["uid"] = step.uid
        if step.version:
            desired["metadata"]["resourceVersion"] = step.version
        self._doubt(part)
        answer = await self._edge.client.apply(collection, desired, force=bool(step.uid))
        now = self._journal.get(part) or replace(entry, orphaned=True)  # if its copy went meanwhile
        owned, uid = owned_fields(answer, MANAGER), answer["metadata"].get("uid") or ""
        self._journal.put(replace(now, applied=digest(entry.desired), owned=owned, edge_uid=uid))
        self._edge.objects.assume(part.resource, answer)
        self.tally.applied += 1
        if step.why is ApplyReason.DRIFT:
            self.tally.drift += 1
            if sentence := self._contests.corrected(part, self._env.monotonic()):
                self._report(part, Direction.DOWN, "Contested", sentence)
        self._log.info("applied", v=2, object=str(part), why=step.why.value)

    def doubt(self) -> None:
        """What is remembered may be older than what was done last: all of it is applied once more."""
        for part in list(self._journal.parts()):
            self._doubt(part)

    def _doubt(self, part: Part) -> None:
        """Without an answer nobody knows whether it was applied: who owns its fields is the same in either case."""
        entry = self._journal.get(part)
        if entry is not None and entry.applied:
            self._journal.put(replace(entry, applied=IN_DOUBT))

    async def _delete(
        self, step: DeleteObject, part: Part, entry: JournalEntry, collection: Collection
    ) -> float | None:
        if not self._is_withdrawn(part, entry):
            return STRANGERS  # or sooner: the copy's event, or the list of copies, is still to arrive
        await self._mailbox.check(entry.incarnation)
        if step.container:
            inside = self._inside(part)
            orphans = [str(entry.part) for entry in inside if entry.orphaned]
            if inside and not orphans:
                return STRANGERS  # or sooner, when the last of them is deleted
            if stranger := orphans[0] if orphans else await self._edge.stranger_in(part):
                sentence = f"{part} was withdrawn and stays, because it holds what nobody withdrew: {stranger}"
                self._report(part, Direction.DOWN, "NotEmpty", sentence)
                return STRANGERS
        try:
            await self._edge.client.delete(
                collection, part.name, part.namespace, uid=step.uid, propagation="Background"
            )
        except NotFound as error:
            if not error.is_about(part.name):
                raise
            self._edge.objects.forget(part)
            return await self._finish(part, entry)
        self._take_back(part, entry)
        self.tally.deleted += 1
        self._log.info("deleted", v=2, object=str(part))
        return None if self._edge.objects.get(part) is not None else AGAIN

    def _take_back(self, part: Part, entry: JournalEntry) -> None:
        """We deleted it: that it is not at the edge is what the hub wanted."""
        now = self._journal.get(part)
        if now is not None and now.withdrawn and now.uid == entry.uid:
            self._journal.put(replace(now, applied=""))

    async def _end(self, part: Part, entry: JournalEntry) -> float | None:
        """Nothing is left to delete.  What stays at the edge, because it was made only once or is not ours any more, is
        left to others only if the hub withdrew it; and only then is that forgotten which was brought and is not there,
        because an edge may have lost it.  Raises MailboxEndsError if all goes in the hub."""
        if entry.applied or self._edge.objects.get(part) is not None:
            if not self._is_withdrawn(part, entry):
                return STRANGERS  # as in `_delete`
            await self._mailbox.check(entry.incarnation)
        return await self._finish(part, entry)

    def _is_withdrawn(self, part: Part, entry: JournalEntry) -> bool:
        """The hub's word counts as long as the copy that it is about is there."""
        if entry.uid == RELEASED:
            return True
        copy = self._mailbox.copies.get(part)
        return copy is not None and copy.withdrawn and copy.uid == entry.uid

    def _inside(self, container: Part) -> list[JournalEntry]:
        """Of what we brought, what is in a namespace, or of a kind that a definition defines."""
        room = container.name if container.resource == NAMESPACES else None
        parts = [
            one for one in self._journal.parts() if one.namespace == room or definition_of(one.resource) == container
        ]
        return [entry for part in parts if (entry := self._journal.get(part)) is not None]

    async def _finish(self, part: Part, entry: JournalEntry) -> float | None:
        """It is gone at the edge, or was never ours: the hub may let it go too.  Who remembered it as applied after
        that would take it for an orphan and bring it back."""
        self._journal.put(replace(entry, applied="", owned=GONE, edge_uid=""))
        copy = self._mailbox.copies.get(part)
        if copy is not None and copy.guarded and copy.withdrawn:
            await self._remember()
            await self._mailbox.release(part, copy)
        self._drop(part)
        return None

    def _drop(self, part: Part) -> None:
        """Forget an object of which nothing is at the edge."""
        self._journal.drop(part)
        self._settle(part)
        self._look_at_waiting(part)
        self._look_at_containers(part)

    async def _remember(self) -> None:
        """What was put so far is on the disk, unless that is full: then only memory is left to go on with."""
        try:
            await asyncio.to_thread(self._journal.flush)
        except JournalError as error:
            self._log.error(error, "cannot remember")

    def _settle(self, part: Part) -> None:
        self._progress.ended(part)
        if not self._contests.pause(part, self._env.monotonic()):
            self._troubles.clear(part, Direction.DOWN)

    def _report(self, part: Part, direction: Direction, reason: str, message: str) -> None:
        if self._troubles.put(part, direction, reason, message, self._now()):
            self._log.warning("cannot sync", object=str(part), direction=direction.value, reason=reason)

    # --- one object, back -------------------------------------------------------------------------

    async def give_back(self, part: Part, worker: int) -> float | None:
        """Its status."""
        entry, copy, live = self._journal.get(part), self._mailbox.copies.get(part), self._edge.objects.get(part)
        if entry is None or copy is None or live is None or not self._speaks_for(entry, copy, live):
            self._troubles.clear(part, Direction.STATUS)
            return None
        status = returned_status(live)
        if not status or status_digest(live) == copy.status:
            self._troubles.clear(part, Direction.STATUS)
            return None
        try:
            await self._mailbox.set_status(part, copy, status)
        except ClientError as error:
            self._report(part, Direction.STATUS, *describe_error(part, error))
            raise
        self.tally.statuses += 1
        self._troubles.clear(part, Direction.STATUS)
        return None

    def _speaks_for(self, entry: JournalEntry, copy: MailboxCopy, live: Obj) -> bool:
        current = not entry.withdrawn and not entry.orphaned and entry.uid == copy.uid
        return current and takes_status(entry.part.resource) and is_downsynced(live)


def definition_of(resource: Resource) -> Part:
    """What defines the kind, if it is not built in."""
    return Part(DEFINITIONS, "", f"{resource.plural}.{resource.group}")
