"""Informers of several kinds on one side: of any objects, and of the copies in the mailbox with their journal."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Generic, TypeVar

from farflung.apis.names import Collection
from farflung.client.rest import EVERYTHING, Client, ListOptions
from farflung.machinery.errors import Obj
from farflung.placement.names import GroupResource, ObjectRef
from farflung.runtime.cache import CacheChange, Key
from farflung.runtime.environment import Environment
from farflung.runtime.informer import Informer
from farflung.syncer.context import SyncerContext
from farflung.syncer.copies import MailboxCopy, copy_from_entry, read_copy
from farflung.syncer.journal import ORPHAN_CAUSE

T = TypeVar("T")


def never(resource: GroupResource, collection: Collection, informer: Informer[T]) -> None:
    """Resume nothing."""


@dataclass(frozen=True, slots=True)
class InformerHandlers(Generic[T]):
    changed: Callable[
        [ObjectRef, str, T | None], None
    ]  #: the object, its logical cluster, its new value; None: deleted
    failed: Callable[[GroupResource, Exception], None]
    listed: Callable[[GroupResource], None] = lambda resource: None  #: after the first list of a kind
    relisted: Callable[[], None] = lambda: None  #: when the server cannot resume a watch
    resume: Callable[[GroupResource, Collection, Informer[T]], None] = (
        never  #: may resume a new informer from a known state
    )


class KindInformers(Generic[T]):
    """One informer for each kind."""

    def __init__(
        self,
        client: Client,
        env: Environment,
        decode: Callable[[GroupResource, bytes], T],
        handlers: InformerHandlers[T],
        selection: ListOptions = EVERYTHING,
    ) -> None:
        self._client = client
        self._env = env
        self._decode = decode
        self._handlers = handlers
        self._selection = selection
        self._collections: dict[GroupResource, Collection] = {}
        self._informers: dict[GroupResource, Informer[T]] = {}
        self._running: dict[GroupResource, asyncio.Task[None]] = {}
        self._objects: dict[GroupResource, dict[ObjectRef, T]] = {}
        self._errors: dict[GroupResource, Exception] = {}
        self._listed: set[GroupResource] = set()

    def watch(self, group: asyncio.TaskGroup, collections: Mapping[GroupResource, Collection]) -> None:
        """Watch these kinds, and stop all others."""
        for resource in [one for one, collection in self._collections.items() if collections.get(one) != collection]:
            self.stop(resource)
        for resource, collection in collections.items():
            if resource not in self._collections:
                self._start(group, resource, collection)

    def _start(self, group: asyncio.TaskGroup, resource: GroupResource, collection: Collection) -> None:
        def fail(what: str, error: Exception) -> None:
            if self._informers.get(resource) is informer:
                self._errors[resource] = error
                self._handlers.failed(resource, error)

        decode = partial(self._decode, resource)
        informer: Informer[T] = Informer(self._client, collection, decode, self._env, fail, self._selection)
        informer.relisted = self._handlers.relisted
        self._objects[resource] = {}
        self._collections[resource] = collection
        self._informers[resource] = informer
        self._handlers.resume(resource, collection, informer)
        for key, value in informer.cache.items():
            self._objects[resource][ObjectRef(resource, key.namespace, key.name)] = value
        informer.subscribe(lambda change: self._handle(resource, informer, change))
        running = self._run(resource, informer)
        self._running[resource] = group.create_task(running, name=f"informer of {collection.plural}")

    async def _run(self, resource: GroupResource, informer: Informer[T]) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(informer.run())
            await informer.synced.wait()
            self._errors.pop(resource, None)
            self._listed.add(resource)
            self._handlers.listed(resource)

    def stop(self, resource: GroupResource) -> None:
        """Stop the informer of a kind and forget its objects, without calling handlers."""
        self._running.pop(resource).cancel()
        del self._informers[resource], self._collections[resource], self._objects[resource]
        self._errors.pop(resource, None)
        self._listed.discard(resource)

    def stop_all(self) -> None:
        for resource in self.kinds():
            self.stop(resource)

    def _handle(self, resource: GroupResource, informer: Informer[T], change: CacheChange[T]) -> None:
        if self._informers.get(resource) is not informer:
            return  # it was stopped, and another one may have been started since
        ref = ObjectRef(resource, change.key.namespace, change.key.name)
        objects = self._objects[resource]
        if change.new is not None:
            objects[ref] = change.new
        else:
            objects.pop(ref, None)
        self._handlers.changed(ref, change.key.cluster, change.new)

    # --- the cache --------------------------------------------------------------------------------

    def get(self, ref: ObjectRef) -> T | None:
        return self._objects.get(ref.resource, {}).get(ref)

    def of(self, resource: GroupResource) -> Mapping[ObjectRef, T]:
        """All objects of a kind, as a live view."""
        return self._objects.get(resource, {})

    def kinds(self) -> list[GroupResource]:
        return list(self._objects)

    def collection(self, resource: GroupResource) -> Collection | None:
        return self._collections.get(resource)

    def is_listed(self, resource: GroupResource) -> bool:
        """Whether the kind was listed, and the handler `listed` was called.  Between the two, the journal does not know
        yet which copies the list lacks."""
        return resource in self._listed

    def error(self, resource: GroupResource) -> Exception | None:
        """The last error of a kind that was not listed yet."""
        return None if self.is_listed(resource) else self._errors.get(resource)

    def positions(self) -> Iterator[tuple[GroupResource, Collection, int]]:
        """For each listed kind, the resourceVersion up to which all changes arrived."""
        for resource in self._listed:
            yield resource, self._collections[resource], self._informers[resource].cache.delivered

    # --- own writes -------------------------------------------------------------------------------

    def assume(self, resource: GroupResource, written: Obj) -> None:
        if informer := self._informers.get(resource):
            informer.assume(written)

    def forget(self, ref: ObjectRef, cluster: str = "") -> None:
        if informer := self._informers.get(ref.resource):
            informer.forget(Key(cluster, ref.namespace, ref.name))


#: facts of the journal
CONFIGURED: Final = "configured"  #: hash of the last SyncerConfigs
EARLIER: Final = "earlier"  #: kinds of which the mailbox may hold copies with our finalizer and without a journal entry
KINDS: Final = "kinds"  #: every kind of which the syncer ever watched copies


class CopyInformers:
    """Informers of copies, which resume from the journal."""

    def __init__(self, context: SyncerContext, handlers: InformerHandlers[MailboxCopy]) -> None:
        self.informers: KindInformers[MailboxCopy] = KindInformers(
            context.options.mailbox, context.mailbox_env, read_copy, replace(handlers, resume=self._resume)
        )
        self._journal = context.journal
        self._log = context.log
        self._resumed: set[GroupResource] = set()

    def _resume(self, resource: GroupResource, collection: Collection, informer: Informer[MailboxCopy]) -> None:
        position = self._journal.positions().get(resource)
        entries = list(self._journal.entries_of(resource))
        if position is None or position.version != collection.version or not position.revision:
            return
        if any(entry.orphaned for entry in entries):
            return  # the last list may have been incomplete
        if not entries and self.awaits_list(resource):
            return  # a watch may end before it delivers the copies that a list shows at once
        informer.resume(list(map(copy_from_entry, entries)), int(position.revision))
        self._resumed.add(resource)

    # --- listing again ----------------------------------------------------------------------------

    def relist_all(self) -> None:
        """Stop all informers, and resume none of them.  A hub that was restored from a backup may again hold copies
        that were withdrawn since, of kinds that the SyncerConfigs do not name any more."""
        self.list_all_again()
        self._relist([*self._journal.positions(), *self.informers.kinds()])

    def configure(self, content_hash: str) -> None:
        """List again what was resumed, if the SyncerConfigs changed: the journal has entries only of copies that the
        earlier ones named."""
        if content_hash != self._journal.get_fact(CONFIGURED):
            self._add_kinds_to_list(self._resumed)
            self._relist(self._resumed.copy() if self.informers.kinds() else list(self._journal.positions()))
            self._journal.set_fact(CONFIGURED, content_hash)

    def forget_unwatched(self) -> None:
        """List a kind that is no longer watched when it is named again: the journal has no entries of copies that were
        not named when their events arrived."""
        for resource, position in list(self._journal.positions().items()):
            if position.revision and self.informers.collection(resource) is None:
                self._journal.set_revision(resource, "", "")

    def _relist(self, resources: Iterable[GroupResource]) -> None:
        for resource in resources:
            self._journal.set_revision(resource, "", "")
            if self.informers.collection(resource) is not None:
                self.informers.stop(resource)
        self._resumed.difference_update(resources)

    # --- the journal ------------------------------------------------------------------------------

    def record_positions(self) -> list[GroupResource]:
        """Write the resourceVersion of each kind to the journal.  One that decreases shows a restored hub.  Returns the
        kinds with changes since the last call."""
        changed = []
        for resource, collection, version in self.informers.positions():
            before, now = self._journal.revision_of(resource), str(version)
            if before == now:
                continue
            if before and version < int(before):
                self._log.warning("the hub was restored from a backup", before=before, now=version)
                self._journal.set_fact(ORPHAN_CAUSE, f"HubRestored: the hub was at {before} and is at {version} again")
            changed.append(resource)
            self._journal.set_revision(resource, collection.version, now)
        return changed

    def remember_kinds(self) -> None:
        """Record which kinds are watched, before the syncer adds its finalizer to the first copy of them: after a crash
        the journal may lack the entry, and the SyncerConfigs may not name the kind any more."""
        self._journal.set_kinds(KINDS, self._journal.get_kinds(KINDS).union(self.informers.kinds()))

    def list_all_again(self) -> None:
        """The mailbox may hold copies with our finalizer and without an entry, of every kind that was ever watched."""
        self._add_kinds_to_list(self._journal.get_kinds(KINDS))

    def read_last_report(self, status: Obj) -> None:
        """Without a journal, take from the last report of which kinds the mailbox may hold copies with our
        finalizer."""
        through = [one for one in status.get("syncedThrough") or () if isinstance(one, dict)]
        names = [(one.get("group"), one.get("resource")) for one in through]
        resources = {GroupResource(*map(str, one)) for one in names if all(isinstance(text, str) for text in one)}
        self._journal.set_kinds(EARLIER, resources)

    def kinds_to_list(self) -> list[GroupResource]:
        """Kinds that have to be listed once, and were not yet."""
        left = sorted(one for one in self._journal.get_kinds(EARLIER) if not self.informers.is_listed(one))
        self._journal.set_kinds(EARLIER, left)
        return left

    def awaits_list(self, resource: GroupResource) -> bool:
        """Whether a kind is watched until it was listed once, as of the last plan."""
        return resource in self._journal.get_kinds(EARLIER)

    def _add_kinds_to_list(self, resources: Iterable[GroupResource]) -> None:
        self._journal.set_kinds(EARLIER, self._journal.get_kinds(EARLIER).union(resources))
