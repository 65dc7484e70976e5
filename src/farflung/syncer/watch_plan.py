"""Which kinds the syncer watches on each side, for downsync and for upsync."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Set
from typing import Final

from farflung.apis.names import Collection
from farflung.client.errors import Forbidden
from farflung.machinery.errors import Obj
from farflung.placement.names import GroupResource
from farflung.placement.syncer_config import ANY
from farflung.syncer.context import SyncerContext
from farflung.syncer.discovery import Side, served_only
from farflung.syncer.downsync import Downsync
from farflung.syncer.informers import CopyInformers, KindInformers
from farflung.syncer.report import Direction, Problems, all_of
from farflung.syncer.sync_scope import SyncScope


class DownsyncWatches:
    def __init__(
        self, context: SyncerContext, copies: CopyInformers, objects: KindInformers[Obj], downsync: Downsync
    ) -> None:
        self._kinds = context.kinds
        self._journal = context.journal
        self._copies = copies
        self._objects = objects
        self._downsync = downsync
        self._entered: frozenset[GroupResource] = frozenset()

    def plan(self, group: asyncio.TaskGroup, scope: SyncScope, *, is_known: bool) -> set[Side]:
        """Watch the kinds of the scope in the mailbox, and those with journal entries at the edge, as far as both sides
        serve them.  Returns the sides that lack a kind.  `is_known`: whether the scope is current."""
        self._entered = frozenset(self._journal.kinds())
        versions = self._versions(scope)
        copies = {one: self._kinds.in_mailbox(one, version) for one, version in versions.items()}
        if is_known:
            self._copies.informers.watch(group, served_only(copies))
            self._copies.forget_unwatched()
            self._lose_kinds([one for one, collection in copies.items() if collection is None])
        objects = {one: self._at_edge(one, copies[one], versions[one]) for one in versions if one in self._entered}
        unserved = [one for one in objects if objects[one] is None and self._objects.collection(one) is not None]
        self._objects.watch(group, served_only(objects))
        for resource in unserved:
            self._downsync.enqueue_kind(resource)
        lacking: set[Side] = set()
        if None in copies.values() or scope.unknown:
            lacking.add("mailbox")
        if None in objects.values() or scope.unknown:
            lacking.add("edge")
        return lacking

    def _versions(self, scope: SyncScope) -> dict[GroupResource, str]:
        """Kinds of which the mailbox may hold copies for this syncer → the requested version; empty: any."""
        kinds_to_list = self._copies.kinds_to_list()
        versions = {**dict.fromkeys([*self._served(kinds_to_list), *self._journal.kinds()], ""), **scope.resources}
        for resource in self._journal.kinds():
            entry = next(iter(self._journal.entries_of(resource)))
            versions[resource] = versions[resource] or entry.version
        return versions

    def _at_edge(self, resource: GroupResource, copies: Collection | None, version: str) -> Collection | None:
        return self._kinds.at_edge(resource, version if copies is None else copies.version)

    def _lose_kinds(self, resources: list[GroupResource]) -> None:
        """The mailbox does not serve these kinds any more, which deletes their copies.  List them later."""
        for resource in resources:
            self._journal.set_revision(resource, "", "")
            self._downsync.on_list(resource)

    # --- progress of the lists --------------------------------------------------------------------

    def has_entries(self, resource: GroupResource) -> bool:
        """Whether the journal had entries of a kind at the last plan."""
        return resource in self._entered

    def is_complete(self, scope: SyncScope) -> bool:
        """Whether every kind of which the mailbox may hold copies was listed, if the mailbox serves and allows it."""
        informers = self._copies.informers
        served = self._served({*informers.kinds(), *self._journal.kinds(), *scope.resources})
        return all(informers.is_listed(one) or isinstance(informers.error(one), Forbidden) for one in served)

    def is_listed(self, scope: SyncScope) -> bool:
        """Whether every kind of the scope was listed, or failed, if the mailbox serves it."""
        informers = self._copies.informers
        some = {*informers.kinds(), *self._served(scope.resources)}
        return all(informers.is_listed(one) or informers.error(one) is not None for one in some)

    def _served(self, resources: Iterable[GroupResource]) -> list[GroupResource]:
        return [one for one in resources if self._kinds.in_mailbox(one, "") is not None]


UPSYNCED: Final = "upsynced"  #: fact of the journal: kinds of which the syncer may have created objects in the mailbox


class UpsyncWatches:
    def __init__(
        self, context: SyncerContext, copies: KindInformers[Obj], objects: KindInformers[Obj], problems: Problems
    ) -> None:
        """`copies`: in the mailbox; `objects`: at the edge."""
        self._kinds = context.kinds
        self._journal = context.journal
        self._copies = copies
        self._objects = objects
        self._problems = problems
        self._now = context.options.now
        self.named: frozenset[GroupResource] = frozenset()  #: as of the last plan

    def plan(
        self,
        group: asyncio.TaskGroup,
        scope: SyncScope,
        unlisted: Set[GroupResource],
        *,
        is_known: bool,
        is_mailbox_known: bool,
    ) -> set[Side]:
        """Watch the kinds to upsync on both sides.  Returns the sides that lack one.  `unlisted`: kinds that the edge
        defines, and does not list yet; `is_known`: whether the scope is current; `is_mailbox_known`: whether the
        mailbox is identified.

        The syncer still watches a kind in the mailbox that the scope does not name any more.  A list without our
        objects, or a refusal, may be wrong, and our objects are to be withdrawn when they appear."""
        named = self._named(scope, unlisted)
        for unnamed in self.named - named:
            self._problems.clear(all_of(unnamed), Direction.UP)
        self.named = frozenset(named)
        every = named | self._journal.get_kinds(UPSYNCED)
        if is_known:
            self._journal.set_kinds(UPSYNCED, every)
        copies = {one: self._kinds.in_mailbox(one, "") for one in every}
        objects = {one: self._kinds.at_edge(one, kind.version) for one in named if (kind := copies[one])}
        if is_mailbox_known and is_known:
            self._copies.watch(group, served_only(copies))
        self._objects.watch(group, served_only(objects))
        unserved = {one for one in named if self._kinds.at_edge(one) is None}
        uncopied = {one for one in named - unserved if copies[one] is None}
        self._report(named, uncopied if is_known else set(), unserved & unlisted)
        lacking: set[Side] = set()
        if uncopied:
            lacking.add("mailbox")
        if unserved or named & unlisted:
            lacking.add("edge")
        return lacking

    def _named(self, scope: SyncScope, unlisted: Set[GroupResource]) -> set[GroupResource]:
        named: set[GroupResource] = set()
        for one in scope.upsync:
            if ANY in one.resources:
                named.update(self._kinds.of_group(one.group))
                named.update(late for late in unlisted if late.group == one.group)
            named.update(GroupResource(one.group, plural) for plural in one.resources if plural != ANY)
        return named

    def _report(self, named: set[GroupResource], uncopied: set[GroupResource], unlisted: set[GroupResource]) -> None:
        for resource in sorted(named):
            if resource in uncopied:
                reason = f"the mailbox does not serve {resource.resource}"
            elif resource in unlisted:
                reason = f"the edge defines {resource.resource}, but does not list it in its discovery"
            else:
                self._problems.clear(all_of(resource), Direction.UP)
                continue
            sentence = f"{reason}: its objects stay at the edge only"
            self._problems.put(all_of(resource), Direction.UP, "NotServed", sentence, self._now())
