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
from farflung.placement.names import GroupResource, Part
from farflung.runtime.cache import CacheChange, Key
from farflung.runtime.informer import Informer
from farflung.runtime.reflector import Environment
from farflung.syncer.context import SyncerContext
from farflung.syncer.copies import MailboxCopy, copy_from_entry, read_copy
from farflung.syncer.journal import SUSPICION

T = TypeVar("T")


def never(kind: GroupResource, collection: Collection, informer: Informer[T]) -> None:
    """Resume nothing."""


@dataclass(frozen=True, slots=True)
class InformerHandlers(Generic[T]):
    changed: Callable[[Part, str, T | None], None]  #: the object, its logical cluster, its new value; None: deleted
    failed: Callable[[GroupResource, Exception], None]
    listed: Callable[[GroupResource], None] = lambda kind: None  #: after the first list of a kind
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
        self._objects: dict[GroupResource, dict[Part, T]] = {}
        self._errors: dict[GroupResource, Exception] = {}
        self._listed: set[GroupResource] = set()

    def watch(self, group: asyncio.TaskGroup, collections: Mapping[GroupResource, Collection]) -> None:
        """Watch these kinds, and stop all others."""
        for kind in [one for one, collection in self._collections.items() if collections.get(one) != collection]:
            self.stop(kind)
        for kind, collection in collections.items():
            if kind not in self._collections:
                self._start(group, kind, collection)

    def _start(self, group: asyncio.TaskGroup, kind: GroupResource, collection: Collection) -> None:
        def fail(what: str, error: Exception) -> None:
            if self._informers.get(kind) is informer:
                self._errors[kind] = error
                self._handlers.failed(kind, error)

        decode = partial(self._decode, kind)
        informer: Informer[T] = Informer(self._client, collection, decode, self._env, fail, self._selection)
        informer.relisted = self._handlers.relisted
        self._objects[kind] = {}
        self._collections[kind] = collection
        self._informers[kind] = informer
        self._handlers.resume(kind, collection, informer)
        for key, value in informer.cache.items():
            self._objects[kind][Part(kind, key.namespace, key.name)] = value
        informer.subscribe(lambda change: self._handle(kind, informer, change))
        running = self._run(kind, informer)
        self._running[kind] = group.create_task(running, name=f"informer of {collection.plural}")

    async def _run(self, kind: GroupResource, informer: Informer[T]) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(informer.run())
            await informer.synced.wait()
            self._errors.pop(kind, None)
            self._listed.add(kind)
            self._handlers.listed(kind)

    def stop(self, kind: GroupResource) -> None:
        """Stop the informer of a kind and forget its objects, without calling handlers."""
        self._running.pop(kind).cancel()
        del self._informers[kind], self._collections[kind], self._objects[kind]
        self._errors.pop(kind, None)
        self._listed.discard(kind)

    def stop_all(self) -> None:
        for kind in self.kinds():
            self.stop(kind)

    def _handle(self, kind: GroupResource, informer: Informer[T], change: CacheChange[T]) -> None:
        if self._informers.get(kind) is not informer:
            return  # it was stopped, and another one may have been started since
        part = Part(kind, change.key.namespace, change.key.name)
        objects = self._objects[kind]
        if change.new is not None:
            objects[part] = change.new
        else:
            objects.pop(part, None)
        self._handlers.changed(part, change.key.cluster, change.new)

    # --- the cache --------------------------------------------------------------------------------

    def get(self, part: Part) -> T | None:
        return self._objects.get(part.kind, {}).get(part)

    def of(self, kind: GroupResource) -> Mapping[Part, T]:
        """All objects of a kind, as a live view."""
        return self._objects.get(kind, {})

    def kinds(self) -> list[GroupResource]:
        return list(self._objects)

    def collection(self, kind: GroupResource) -> Collection | None:
        return self._collections.get(kind)

    def is_listed(self, kind: GroupResource) -> bool:
        """Whether the kind was listed, and the handler `listed` was called.  Between the two, the journal does not know
        yet which copies the list lacks."""
        return kind in self._listed

    def error(self, kind: GroupResource) -> Exception | None:
        """The last error of a kind that was not listed yet."""
        return None if self.is_listed(kind) else self._errors.get(kind)

    def positions(self) -> Iterator[tuple[GroupResource, Collection, int]]:
        """For each listed kind, the resourceVersion up to which all changes arrived."""
        for kind in self._listed:
            yield kind, self._collections[kind], self._informers[kind].cache.delivered

    # --- own writes -------------------------------------------------------------------------------

    def assume(self, kind: GroupResource, written: Obj) -> None:
        if informer := self._informers.get(kind):
            informer.assume(written)

    def forget(self, part: Part, cluster: str = "") -> None:
        if informer := self._informers.get(part.kind):
            informer.forget(Key(cluster, part.namespace, part.name))


#: facts of the journal
CONFIGURED: Final = "configured"  #: digest of the last SyncerConfigs
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

    def _resume(self, kind: GroupResource, collection: Collection, informer: Informer[MailboxCopy]) -> None:
        position = self._journal.positions().get(kind)
        entries = list(self._journal.entries_of(kind))
        if position is None or position.version != collection.version or not position.revision:
            return
        if any(entry.orphaned for entry in entries):
            return  # the last list may have been incomplete
        if not entries and self.awaits_list(kind):
            return  # a watch may end before it delivers the copies that a list shows at once
        informer.resume(list(map(copy_from_entry, entries)), int(position.revision))
        self._resumed.add(kind)

    # --- listing again ----------------------------------------------------------------------------

    def relist_all(self) -> None:
        """Stop all informers, and resume none of them.  A hub that was restored from a backup may again hold copies
        that were withdrawn since, of kinds that the SyncerConfigs do not name any more."""
        self.doubt()
        self._relist([*self._journal.positions(), *self.informers.kinds()])

    def configure(self, digest: str) -> None:
        """List again what was resumed, if the SyncerConfigs changed: the journal has entries only of copies that the
        earlier ones named."""
        if digest != self._journal.get_fact(CONFIGURED):
            self._add_kinds_to_list(self._resumed)
            self._relist(self._resumed.copy() if self.informers.kinds() else list(self._journal.positions()))
            self._journal.set_fact(CONFIGURED, digest)

    def forget_unwatched(self) -> None:
        """List a kind that is no longer watched when it is named again: the journal has no entries of copies that were
        not named when their events arrived."""
        for kind, position in list(self._journal.positions().items()):
            if position.revision and self.informers.collection(kind) is None:
                self._journal.set_revision(kind, "", "")

    def _relist(self, kinds: Iterable[GroupResource]) -> None:
        for kind in kinds:
            self._journal.set_revision(kind, "", "")
            if self.informers.collection(kind) is not None:
                self.informers.stop(kind)
        self._resumed.difference_update(kinds)

    # --- the journal ------------------------------------------------------------------------------

    def record_positions(self) -> list[GroupResource]:
        """Write the resourceVersion of each kind to the journal.  One that decreases shows a restored hub.  Returns the
        kinds with changes since the last call."""
        changed = []
        for kind, collection, version in self.informers.positions():
            before, now = self._journal.revision_of(kind), str(version)
            if before == now:
                continue
            if before and version < int(before):
                self._log.warning("the hub was restored from a backup", before=before, now=version)
                self._journal.set_fact(SUSPICION, f"HubRestored: the hub was at {before} and is at {version} again")
            changed.append(kind)
            self._journal.set_revision(kind, collection.version, now)
        return changed

    def remember_kinds(self) -> None:
        """Record which kinds are watched, before the syncer adds its finalizer to the first copy of them: after a crash
        the journal may lack the entry, and the SyncerConfigs may not name the kind any more."""
        self._journal.set_kinds(KINDS, self._journal.get_kinds(KINDS).union(self.informers.kinds()))

    def doubt(self) -> None:
        """The mailbox may hold copies with our finalizer and without an entry, of every kind that was ever watched."""
        self._add_kinds_to_list(self._journal.get_kinds(KINDS))

    def read_last_report(self, status: Obj) -> None:
        """Without a journal, take from the last report of which kinds the mailbox may hold copies with our
        finalizer."""
        through = [one for one in status.get("syncedThrough") or () if isinstance(one, dict)]
        names = [(one.get("group"), one.get("resource")) for one in through]
        kinds = {GroupResource(*map(str, one)) for one in names if all(isinstance(text, str) for text in one)}
        self._journal.set_kinds(EARLIER, kinds)

    def kinds_to_list(self) -> list[GroupResource]:
        """Kinds that have to be listed once, and were not yet."""
        left = sorted(one for one in self._journal.get_kinds(EARLIER) if not self.informers.is_listed(one))
        self._journal.set_kinds(EARLIER, left)
        return left

    def awaits_list(self, kind: GroupResource) -> bool:
        """Whether a kind is watched until it was listed once, as of the last plan."""
        return kind in self._journal.get_kinds(EARLIER)

    def _add_kinds_to_list(self, kinds: Iterable[GroupResource]) -> None:
        self._journal.set_kinds(EARLIER, self._journal.get_kinds(EARLIER).union(kinds))
