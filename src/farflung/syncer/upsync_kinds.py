"""Which kinds are listened to, so that what is born at the edge gets into the mailbox."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Final

from farflung.machinery.errors import Obj
from farflung.syncer.feeds import Feeds
from farflung.syncer.journal import Journal
from farflung.syncer.kinds import Kinds, found
from farflung.syncer.troubles import Direction, Troubles, all_of
from farflung.syncer.values import Resource
from farflung.syncer.wanted import ANY, Wanted

UPSYNCED: Final = "upsynced"  #: fact of the journal: the kinds that we may have put into the mailbox


class UpsyncKinds:
    def __init__(
        self,
        kinds: Kinds,
        journal: Journal,
        copies: Feeds[Obj],
        objects: Feeds[Obj],
        troubles: Troubles,
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

    def plan(self, group: asyncio.TaskGroup, wanted: Wanted, *, is_known: bool, is_met: bool) -> bool:
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
            self._copies.want(group, found(copies))
        self._objects.want(group, found(born))
        lacking = {one for one in named if copies[one] is None and self._kinds.at_edge(one) is not None}
        self._tell(named, lacking if is_known else set())
        return bool(lacking)

    def _named(self, wanted: Wanted) -> set[Resource]:
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
