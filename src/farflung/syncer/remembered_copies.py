"""Hear of the copies in the mailbox, and go on where the journal left off."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import orjson

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
EARLIER: Final = "earlier"  #: kinds that somebody who was forgotten may have brought


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
        remembered = list(map(copying.remembered, entries))
        informer.resume(remembered, int(heard.revision))
        self._resumed.add(resource)

    # --- hearing everything once more -------------------------------------------------------------

    def list_all_again(self) -> None:
        """Nobody goes on from what was heard so far.  All feeds stop."""
        self._list_again([*self._journal.heard(), *self.feeds.resources()])

    def configure(self, digest: str) -> None:
        """Who went on from before knows only what was wanted then."""
        if digest != self._journal.get_fact(CONFIGURED):
            self._list_again(self._resumed.copy() if self.feeds.resources() else list(self._journal.heard()))
            self._journal.set_fact(CONFIGURED, digest)

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

    def learn(self, said: Obj) -> None:
        """Whoever remembers nothing hears from the last report of which kinds there may be copies that wait for us."""
        kinds = {
            (one.get("group"), one.get("resource")) for one in said.get("syncedThrough") or () if isinstance(one, dict)
        }
        known = sorted(one for one in kinds if all(isinstance(text, str) for text in one))
        self._journal.set_fact(EARLIER, orjson.dumps(known).decode())

    def earlier(self) -> list[Resource]:
        """Of these, those that were not listed yet."""
        told = [Resource(*one) for one in orjson.loads(self._journal.get_fact(EARLIER) or "[]")]
        left = [one for one in told if not self.feeds.is_known(one)]
        if left != told:
            self._journal.set_fact(EARLIER, orjson.dumps(list(map(list, left))).decode())
        return left
