"""Hear of the copies in the mailbox, and go on where the journal left off."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from farflung.client.resource import Collection
from farflung.client.rest import Client
from farflung.lib.klog import Logger
from farflung.machinery.errors import Obj
from farflung.runtime.informer import Informer
from farflung.runtime.reflector import Environment
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
        env: Environment,
        log: Logger,
        *,
        heard: Heard[Copy],
        listed: Callable[[Resource], None],
        relisted: Callable[[], None],
        trouble: Callable[[Resource, Exception], None],
    ) -> None:
        """The callbacks are those of `Feeds`."""
        self.feeds: Feeds[Copy] = Feeds(
            mailbox, copying.read, heard, env, trouble, resume=self._resume, listed=listed, relisted=relisted
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
