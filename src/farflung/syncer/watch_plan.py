"""Which kinds are listened to, so that what the mailbox holds gets to the edge."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Final

from farflung.apis.names import Collection
from farflung.client.errors import Forbidden
from farflung.machinery.errors import Obj
from farflung.syncer.discovery import ServedKinds, Side, served_only
from farflung.syncer.downsync import Downsync
from farflung.syncer.informers import CopyInformers, KindInformers
from farflung.syncer.journal import Journal
from farflung.syncer.report import Direction, Problems, all_of
from farflung.syncer.types import Resource
from farflung.syncer.wanted import ANY, SyncScope


class DownsyncWatches:
    def __init__(
        self,
        kinds: ServedKinds,
        journal: Journal,
        copies: CopyInformers,
        objects: KindInformers[Obj],
        downsync: Downsync,
    ) -> None:
        self._kinds = kinds
        self._journal = journal
        self._copies = copies
        self._objects = objects
        self._downsync = downsync
        self._brought: frozenset[Resource] = frozenset()

    def plan(self, group: asyncio.TaskGroup, wanted: SyncScope, *, is_known: bool) -> set[Side]:
        """Listen to what is wanted, as far as both sides have it, and at the edge only to kinds that there is something
        to bring of.  The sides that lack something.  `is_known`: whether that is wanted now, or only was."""
        self._brought = frozenset(self._journal.resources())
        versions = self._versions(wanted)
        copies = {one: self._kinds.in_mailbox(one, version) for one, version in versions.items()}
        if is_known:
            self._copies.feeds.want(group, served_only(copies))
            self._copies.forget_unwatched()
            self._lose([one for one, collection in copies.items() if collection is None])
        objects = {one: self._at_edge(one, copies[one], versions[one]) for one in versions if one in self._brought}
        gone = [one for one in objects if objects[one] is None and self._objects.collection(one) is not None]
        self._objects.want(group, served_only(objects))
        for resource in gone:
            self._downsync.look_at(resource)
        lacking: set[Side] = set()
        if None in copies.values() or wanted.unknown:
            lacking.add("mailbox")
        if None in objects.values() or wanted.unknown:
            lacking.add("edge")
        return lacking

    def _versions(self, wanted: SyncScope) -> dict[Resource, str]:
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

    def is_complete(self, wanted: SyncScope) -> bool:
        """There was a list of every kind of which there may be copies, as far as the mailbox has it and lets us."""
        feeds = self._copies.feeds
        served = self._served({*feeds.resources(), *self._journal.resources(), *wanted.resources})
        return all(feeds.is_known(one) or isinstance(feeds.error(one), Forbidden) for one in served)

    def has_heard_all(self, wanted: SyncScope) -> bool:
        """Of whatever is wanted, as far as the mailbox has it and lets us."""
        feeds = self._copies.feeds
        some = {*feeds.resources(), *self._served(wanted.resources)}
        return all(feeds.is_known(one) or feeds.error(one) is not None for one in some)

    def _served(self, resources: Iterable[Resource]) -> list[Resource]:
        """By the mailbox."""
        return [one for one in resources if self._kinds.in_mailbox(one, "") is not None]


UPSYNCED: Final = "upsynced"  #: fact of the journal: the kinds that we may have put into the mailbox


class UpsyncWatches:
    def __init__(
        self,
        kinds: ServedKinds,
        journal: Journal,
        copies: KindInformers[Obj],
        objects: KindInformers[Obj],
        troubles: Problems,
        now: Callable[[], datetime],
    ) -> None:
        """`copies`: in the mailbox; `objects`: at the edge."""
        self._kinds = kinds
        self._journal = journal
        self._copies = copies
        self._objects = objects
        self._troubles = troubles
        self._now = now
        self.wanted: frozenset[Resource] = frozenset()  #: as of the last plan

    def plan(self, group: asyncio.TaskGroup, wanted: SyncScope, *, is_known: bool, is_met: bool) -> bool:
        """Listen to them.  Whether the mailbox lacks one; a kind that the edge does not have is waited for without
        asking, because its definition will be heard of.  `is_known`: whether that is wanted now, or only was; `is_met`:
        whether the mailbox is known to be ours.

        A kind that is wanted no more is still watched in the mailbox: a list that shows nothing of ours, or a refusal,
        may be wrong, and what is there is to be withdrawn when it is seen."""
        named = self._named(wanted)
        self.wanted = frozenset(named)
        every = named | self._journal.get_kinds(UPSYNCED)
        if is_known:
            self._journal.set_kinds(UPSYNCED, every)
        copies = {one: self._kinds.in_mailbox(one, "") for one in every}
        born = {one: self._kinds.at_edge(one, kind.version) for one in named if (kind := copies[one])}
        if is_met and is_known:
            self._copies.want(group, served_only(copies))
        self._objects.want(group, served_only(born))
        lacking = {one for one in named if copies[one] is None and self._kinds.at_edge(one) is not None}
        self._tell(named, lacking if is_known else set())
        return bool(lacking)

    def _named(self, wanted: SyncScope) -> set[Resource]:
        named: set[Resource] = set()
        for one in wanted.upsync:
            for plural in one.resources:
                named |= set(self._kinds.of_group(one.group)) if plural == ANY else {Resource(one.group, plural)}
        return named

    def _tell(self, named: set[Resource], lacking: set[Resource]) -> None:
        for resource in sorted(named):
            if resource in lacking:
                sentence = f"the mailbox does not serve {resource.plural}: what there is of them stays at the edge"
                self._troubles.put(all_of(resource), Direction.UP, "NotServed", sentence, self._now())
            else:
                self._troubles.clear(all_of(resource), Direction.UP)
