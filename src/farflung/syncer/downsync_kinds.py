"""Which kinds are listened to, so that what the mailbox holds gets to the edge."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from farflung.client.errors import Forbidden
from farflung.client.resource import Collection
from farflung.machinery.errors import Obj
from farflung.syncer.discovering import Side
from farflung.syncer.downsync import Downsync
from farflung.syncer.feeds import Feeds
from farflung.syncer.journal import Journal
from farflung.syncer.kinds import Kinds, found
from farflung.syncer.remembered_copies import RememberedCopies
from farflung.syncer.values import Resource
from farflung.syncer.wanted import Wanted


class DownsyncKinds:
    def __init__(
        self, kinds: Kinds, journal: Journal, copies: RememberedCopies, objects: Feeds[Obj], downsync: Downsync
    ) -> None:
        self._kinds = kinds
        self._journal = journal
        self._copies = copies
        self._objects = objects
        self._downsync = downsync
        self._brought: frozenset[Resource] = frozenset()

    def plan(self, group: asyncio.TaskGroup, wanted: Wanted, *, is_known: bool) -> set[Side]:
        """Listen to what is wanted, as far as both sides have it, and at the edge only to kinds that there is something
        to bring of.  The sides that lack something.  `is_known`: whether that is wanted now, or only was."""
        self._brought = frozenset(self._journal.resources())
        versions = self._versions(wanted)
        copies = {one: self._kinds.in_mailbox(one, version) for one, version in versions.items()}
        if is_known:
            self._copies.feeds.want(group, found(copies))
            self._copies.forget_unwatched()
            self._lose([one for one, collection in copies.items() if collection is None])
        objects = {one: self._at_edge(one, copies[one], versions[one]) for one in versions if one in self._brought}
        gone = [one for one in objects if objects[one] is None and self._objects.collection(one) is not None]
        self._objects.want(group, found(objects))
        for resource in gone:
            self._downsync.look_at(resource)
        lacking: set[Side] = set()
        if None in copies.values() or wanted.unknown:
            lacking.add("mailbox")
        if None in objects.values() or wanted.unknown:
            lacking.add("edge")
        return lacking

    def _versions(self, wanted: Wanted) -> dict[Resource, str]:
        """Of each kind of which there may be copies for us, the one that is asked for; empty: any."""
        earlier = self._copies.earlier()
        versions = {**dict.fromkeys([*self._served(earlier), *self._journal.resources()], ""), **wanted.resources}
        for resource in self._journal.resources():
            entry = next(iter(self._journal.entries_of(resource)))
            versions[resource] = versions[resource] or entry.version
        return versions

    def _at_edge(self, resource: Resource, copies: Collection | None, version: str) -> Collection | None:
        return self._kinds.at_edge(resource, version if copies is None else copies.version)

    def _lose(self, resources: list[Resource]) -> None:
        """With its definition every copy of a kind goes.  If it comes back, it is listed."""
        for resource in resources:
            self._journal.set_revision(resource, "", "")
            self._downsync.hear_list(resource)

    # --- what is heard so far ---------------------------------------------------------------------

    def has_brought(self, resource: Resource) -> bool:
        """Whether there was something to bring of a kind, as of the plan."""
        return resource in self._brought

    def is_complete(self, wanted: Wanted) -> bool:
        """There was a list of every kind of which there may be copies, as far as the mailbox has it and lets us."""
        feeds = self._copies.feeds
        served = self._served({*feeds.resources(), *self._journal.resources(), *wanted.resources})
        return all(feeds.is_known(one) or isinstance(feeds.error(one), Forbidden) for one in served)

    def has_heard_all(self, wanted: Wanted) -> bool:
        """Of whatever is wanted, as far as the mailbox has it and lets us."""
        feeds = self._copies.feeds
        some = {*feeds.resources(), *self._served(wanted.resources)}
        return all(feeds.is_known(one) or feeds.error(one) is not None for one in some)

    def _served(self, resources: Iterable[Resource]) -> list[Resource]:
        """By the mailbox."""
        return [one for one in resources if self._kinds.in_mailbox(one, "") is not None]
