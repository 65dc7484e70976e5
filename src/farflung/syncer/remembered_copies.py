"""Hear of the copies in the mailbox, and go on where the journal left off."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import orjson

from farflung.client.errors import Forbidden
from farflung.client.resource import Collection
from farflung.client.rest import Client
from farflung.informer.informer import Informer
from farflung.informer.reflector import Surroundings
from farflung.lib.klog import Logger
from farflung.machinery.errors import Obj
from farflung.syncer import copies as copying
from farflung.syncer.copies import Copy
from farflung.syncer.feeds import Feeds, Heard
from farflung.syncer.journal import Journal
from farflung.syncer.serving import SUSPICION
from farflung.syncer.values import Resource

CONFIGURED: Final = "configured"  #: facts of the journal: what was wanted when we last heard of the mailbox
EARLIER: Final = "earlier"  #: kinds of which the mailbox may hold copies with our finalizer that no entry is about
KINDS: Final = "kinds"  #: every kind of which the syncer ever watched copies


class RememberedCopies:
    def __init__(
        self,
        mailbox: Client,
        journal: Journal,
        outside: Surroundings,
        log: Logger,
        *,
        heard: Heard[Copy],
        listed: Callable[[Resource], None],
        trouble: Callable[[Resource, Exception], None],
    ) -> None:
        """Whom to tell is as `Feeds` says."""
        self.feeds: Feeds[Copy] = Feeds(
            mailbox, copying.read, heard, outside, trouble, resume=self._resume, listed=listed
        )
        self._journal = journal
        self._log = log
        self._resumed: set[Resource] = set()

    def _resume(self, resource: Resource, collection: Collection, informer: Informer[Copy]) -> None:
        heard = self._journal.heard().get(resource)
        entries = list(self._journal.entries_of(resource))
        if heard is None or heard.version != collection.version or not heard.revision:
            return
        if any(entry.orphaned for entry in entries):
            return  # perhaps not all was said that there was
        if not entries and self.is_earlier(resource):
            return  # a watch may end before it delivers the copies that a list shows at once
        remembered = list(map(copying.remembered, entries))
        informer.resume(remembered, int(heard.revision))
        self._resumed.add(resource)

    # --- hearing everything once more -------------------------------------------------------------

    def list_all_again(self) -> None:
        """Nobody goes on from what was heard so far.  All feeds stop.  A hub that was restored from a backup may hold
        copies again that were withdrawn since, of kinds that are not wanted any more."""
        self.doubt()
        self._list_again([*self._journal.heard(), *self.feeds.resources()])

    def configure(self, digest: str) -> None:
        """Who went on from before knows only what was wanted then."""
        if digest != self._journal.get_fact(CONFIGURED):
            self._add_earlier(self._resumed)
            self._list_again(self._resumed.copy() if self.feeds.resources() else list(self._journal.heard()))
            self._journal.set_fact(CONFIGURED, digest)

    def forget_unwatched(self) -> None:
        """A kind that is watched no more is listed when it is wanted again: entries do not name the copies that were
        not wanted when they were heard of."""
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
        known = set(self._read(KINDS))
        if not known.issuperset(self.feeds.resources()):
            self._write(KINDS, known.union(self.feeds.resources()))

    def doubt(self) -> None:
        """The mailbox may hold copies with our finalizer that no entry is about, of every kind that was watched."""
        self._add_earlier(self._read(KINDS))

    def learn(self, said: Obj) -> None:
        """Whoever remembers nothing hears from the last report of which kinds there may be copies that wait for us."""
        through = [one for one in said.get("syncedThrough") or () if isinstance(one, dict)]
        kinds = [(one.get("group"), one.get("resource")) for one in through]
        self._write(EARLIER, {Resource(*map(str, one)) for one in kinds if all(isinstance(text, str) for text in one)})

    def earlier(self) -> list[Resource]:
        """Of these, those that were not listed yet, and that we may list."""
        told = self._read(EARLIER)
        left = [one for one in told if not self._is_done(one)]
        if left != told:
            self._write(EARLIER, left)
        return left

    def _is_done(self, resource: Resource) -> bool:
        return self.feeds.is_known(resource) or isinstance(self.feeds.error(resource), Forbidden)

    def is_earlier(self, resource: Resource) -> bool:
        """Whether copies of a kind are watched until they were listed once, as of the last plan."""
        return resource in self._read(EARLIER)

    def _add_earlier(self, resources: Iterable[Resource]) -> None:
        self._write(EARLIER, {*self._read(EARLIER), *resources})

    def _read(self, fact: str) -> list[Resource]:
        return [Resource(*one) for one in orjson.loads(self._journal.get_fact(fact) or "[]")]

    def _write(self, fact: str, resources: Iterable[Resource]) -> None:
        self._journal.set_fact(fact, orjson.dumps(list(map(list, sorted(resources)))).decode())
