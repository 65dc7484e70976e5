"""Hear of the objects of several kinds on one side, as long as they are wanted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Final, Generic, TypeVar

from farflung.apis.names import Collection
from farflung.client.rest import EVERYTHING, Client, ListOptions
from farflung.lib.klog import Logger
from farflung.machinery.errors import Obj
from farflung.runtime.cache import Change, Key
from farflung.runtime.informer import Informer
from farflung.runtime.reflector import Environment
from farflung.syncer import copies as copying
from farflung.syncer.copies import MailboxCopy
from farflung.syncer.journal import SUSPICION, Journal
from farflung.syncer.types import Part, Resource

T = TypeVar("T")

ChangeHandler = Callable[[Part, str, "T | None"], None]
ResumeHook = Callable[[Resource, Collection, "Informer[T]"], None]


def never(resource: Resource, collection: Collection, informer: Informer[T]) -> None:
    """Nothing is known from before."""


class KindInformers(Generic[T]):
    """One informer for each kind."""

    def __init__(
        self,
        client: Client,
        decode: Callable[[Resource, bytes], T],
        heard: ChangeHandler[T],
        env: Environment,
        trouble: Callable[[Resource, Exception], None],
        *,
        selection: ListOptions = EVERYTHING,
        resume: ResumeHook[T] = never,
        listed: Callable[[Resource], None] = lambda resource: None,
        relisted: Callable[[], None] = lambda: None,
    ) -> None:
        """`heard` is told of each change, after it is known: the object, the cluster that it says it is in, and what
        there is now; `listed` of a kind that is known as a whole from now on.  `relisted` is called when the server
        cannot resume a watch.  `resume` may let a new informer go on from what was known before."""
        self._client = client
        self._decode = decode
        self._heard = heard
        self._env = env
        self._trouble = trouble
        self._selection = selection
        self._resume = resume
        self._listed = listed
        self._relisted = relisted
        self._collections: dict[Resource, Collection] = {}
        self._informers: dict[Resource, Informer[T]] = {}
        self._running: dict[Resource, asyncio.Task[None]] = {}
        self._known: dict[Resource, dict[Part, T]] = {}
        self._errors: dict[Resource, Exception] = {}
        self._listed_kinds: set[Resource] = set()  #: of which there was a whole list, after `listed` was called

    def want(self, group: asyncio.TaskGroup, collections: Mapping[Resource, Collection]) -> None:
        """These, and no others."""
        for resource in [one for one, how in self._collections.items() if collections.get(one) != how]:
            self.stop(resource)
        for resource, collection in collections.items():
            if resource not in self._collections:
                self._start(group, resource, collection)

    def _start(self, group: asyncio.TaskGroup, resource: Resource, collection: Collection) -> None:
        def trouble(what: str, error: Exception) -> None:
            self._errors[resource] = error
            self._trouble(resource, error)

        decode = partial(self._decode, resource)
        informer = Informer(self._client, collection, decode, self._env, trouble, self._selection)
        informer.relisted = self._relisted
        self._known[resource] = {}
        self._collections[resource] = collection
        self._informers[resource] = informer
        self._resume(resource, collection, informer)
        for key, value in informer.cache.items():
            self._known[resource][Part(resource, key.namespace, key.name)] = value
        informer.subscribe(lambda change: self._hear(resource, change))
        running = self._run(resource, informer)
        self._running[resource] = group.create_task(running, name=f"informer of {collection.plural}")

    async def _run(self, resource: Resource, informer: Informer[T]) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(informer.run())
            await informer.synced.wait()
            self._errors.pop(resource, None)
            self._listed_kinds.add(resource)
            self._listed(resource)

    def stop(self, resource: Resource) -> None:
        """Nothing is known of the kind any more, and nobody is told."""
        self._running.pop(resource).cancel()
        del self._informers[resource], self._collections[resource], self._known[resource]
        self._errors.pop(resource, None)
        self._listed_kinds.discard(resource)

    def stop_all(self) -> None:
        for resource in self.resources():
            self.stop(resource)

    def _hear(self, resource: Resource, change: Change[T]) -> None:
        part = Part(resource, change.key.namespace, change.key.name)
        known = self._known.get(resource)
        if known is None:
            return  # whoever heard of the one before this one stopped it
        if change.new is not None:
            known[part] = change.new
        else:
            known.pop(part, None)
        self._heard(part, change.key.cluster, change.new)

    # --- what is known ----------------------------------------------------------------------------

    def get(self, part: Part) -> T | None:
        return self._known.get(part.resource, {}).get(part)

    def of(self, resource: Resource) -> Mapping[Part, T]:
        """All of a kind.  It changes as changes are heard of."""
        return self._known.get(resource, {})

    def resources(self) -> list[Resource]:
        return list(self._known)

    def collection(self, resource: Resource) -> Collection | None:
        return self._collections.get(resource)

    def is_known(self, resource: Resource) -> bool:
        """Whether there was a whole list of the kind, and `listed` was called.  In between, the journal does not know
        yet which copies the list lacks."""
        return resource in self._listed_kinds

    def error(self, resource: Resource) -> Exception | None:
        """What went wrong last with a kind of which there was no whole list yet."""
        return None if self.is_known(resource) else self._errors.get(resource)

    def heard(self) -> Iterator[tuple[Resource, Collection, int]]:
        """Up to which version everything was heard of, of each kind of which there was a whole list."""
        for resource in self._listed_kinds:
            yield resource, self._collections[resource], self._informers[resource].cache.heard

    # --- what we did ourselves --------------------------------------------------------------------

    def assume(self, resource: Resource, written: Obj) -> None:
        if informer := self._informers.get(resource):
            informer.assume(written)

    def forget(self, part: Part, cluster: str = "") -> None:
        if informer := self._informers.get(part.resource):
            informer.forget(Key(cluster, part.namespace, part.name))


CONFIGURED: Final = "configured"  #: facts of the journal: what was wanted when we last heard of the mailbox
EARLIER: Final = "earlier"  #: kinds of which the mailbox may hold copies with our finalizer that no entry is about
KINDS: Final = "kinds"  #: every kind of which the syncer ever watched copies


class CopyInformers:
    def __init__(
        self,
        mailbox: Client,
        journal: Journal,
        env: Environment,
        log: Logger,
        *,
        heard: ChangeHandler[MailboxCopy],
        listed: Callable[[Resource], None],
        relisted: Callable[[], None],
        trouble: Callable[[Resource, Exception], None],
    ) -> None:
        """The callbacks are those of `Feeds`."""
        self.feeds: KindInformers[MailboxCopy] = KindInformers(
            mailbox, copying.read_copy, heard, env, trouble, resume=self._resume, listed=listed, relisted=relisted
        )
        self._journal = journal
        self._log = log
        self._resumed: set[Resource] = set()

    def _resume(self, resource: Resource, collection: Collection, informer: Informer[MailboxCopy]) -> None:
        heard = self._journal.heard().get(resource)
        entries = list(self._journal.entries_of(resource))
        if heard is None or heard.version != collection.version or not heard.revision:
            return
        if any(entry.orphaned for entry in entries):
            return  # perhaps not all was said that there was
        if not entries and self.is_earlier(resource):
            return  # a watch may end before it delivers the copies that a list shows at once
        remembered = list(map(copying.copy_from_entry, entries))
        informer.resume(remembered, int(heard.revision))
        self._resumed.add(resource)

    # --- hearing everything once more -------------------------------------------------------------

    def list_all_again(self) -> None:
        """Stop all feeds, and resume none of them.  A hub that was restored from a backup may again hold copies that
        were withdrawn since, of kinds that are not wanted any more."""
        self.doubt()
        self._list_again([*self._journal.heard(), *self.feeds.resources()])

    def configure(self, digest: str) -> None:
        """Who went on from before knows only what was wanted then."""
        if digest != self._journal.get_fact(CONFIGURED):
            self._add_earlier(self._resumed)
            self._list_again(self._resumed.copy() if self.feeds.resources() else list(self._journal.heard()))
            self._journal.set_fact(CONFIGURED, digest)

    def forget_unwatched(self) -> None:
        """List a kind that is no longer watched when it is wanted again: the journal has no entries of copies that were
        not wanted when their events arrived."""
        for resource, heard in list(self._journal.heard().items()):
            if heard.revision and self.feeds.collection(resource) is None:
                self._journal.set_revision(resource, "", "")

    def _list_again(self, resources: Iterable[Resource]) -> None:
        for resource in resources:
            self._journal.set_revision(resource, "", "")
            if self.feeds.collection(resource) is not None:
                self.feeds.stop(resource)
        self._resumed.difference_update(resources)

    # --- what is remembered -----------------------------------------------------------------------

    def note(self) -> list[Resource]:
        """How far the mailbox was heard; a version that goes back is a hub that was restored.  The kinds of which
        something was heard since the last time."""
        news = []
        for resource, collection, version in self.feeds.heard():
            before, now = self._journal.revision_of(resource), str(version)
            if before == now:
                continue
            if before and version < int(before):
                self._log.warning("the hub went back", before=before, now=version)
                self._journal.set_fact(SUSPICION, f"WentBack: the hub was at {before} and is at {version} again")
            news.append(resource)
            self._journal.set_revision(resource, collection.version, now)
        return news

    def remember_kinds(self) -> None:
        """Note of which kinds copies are watched, before the syncer adds its finalizer to the first of them: after a
        crash the journal may lack the entry, and the configuration may not name the kind any more."""
        self._journal.set_kinds(KINDS, self._journal.get_kinds(KINDS).union(self.feeds.resources()))

    def doubt(self) -> None:
        """The mailbox may hold copies with our finalizer that no entry is about, of every kind that was watched."""
        self._add_earlier(self._journal.get_kinds(KINDS))

    def learn(self, said: Obj) -> None:
        """Whoever remembers nothing hears from the last report of which kinds there may be copies that wait for us."""
        through = [one for one in said.get("syncedThrough") or () if isinstance(one, dict)]
        kinds = [(one.get("group"), one.get("resource")) for one in through]
        known = {Resource(*map(str, one)) for one in kinds if all(isinstance(text, str) for text in one)}
        self._journal.set_kinds(EARLIER, known)

    def earlier(self) -> list[Resource]:
        """Of these, those that were not listed yet."""
        left = sorted(one for one in self._journal.get_kinds(EARLIER) if not self.feeds.is_known(one))
        self._journal.set_kinds(EARLIER, left)
        return left

    def is_earlier(self, resource: Resource) -> bool:
        """Whether copies of a kind are watched until they were listed once, as of the last plan."""
        return resource in self._journal.get_kinds(EARLIER)

    def _add_earlier(self, resources: Iterable[Resource]) -> None:
        self._journal.set_kinds(EARLIER, self._journal.get_kinds(EARLIER).union(resources))
