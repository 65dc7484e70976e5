"""The end of a CustomResourceDefinition: its objects are deleted, and when none is left, it goes too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final

from farflung.hub import objects
from farflung.hub.admission.definitions.conditions import (
    CLEANUP,
    ESTABLISHED,
    IN_PROGRESS,
    NAMES_ACCEPTED,
    condition_is,
    terminating,
    with_status,
)
from farflung.hub.controllers.garbage_collector import Collector
from farflung.hub.controllers.loopback import Inside, collection_path, object_path
from farflung.hub.controllers.reconcile_queue import Work
from farflung.hub.controllers.stored_kinds import Hearing, KeptKinds
from farflung.hub.namespaces import is_terminating
from farflung.hub.objects import cluster_in
from farflung.machinery.errors import Obj
from farflung.machinery.times import format_seconds
from farflung.store.base import Change, Entry, Store, Subscription

WORKERS: Final = 2
AGAIN: Final = 0.05  #: seconds before a definition is looked at again whose objects' dependents are not dealt with yet
HOME: Final = "/apiextensions.k8s.io/customresourcedefinitions/"


class Definitions:
    def __init__(
        self,
        store: Store,
        kinds: KeptKinds,
        inside: Inside,
        clock: Callable[[], datetime],
        collector: Collector,
        bound: Callable[[str, str], list[Obj]] = lambda cluster, group: [],
    ) -> None:
        """`collector`: it must have looked at who depends on the objects that go, while their kind is known.  `bound`:
        (cluster, group) → what the cluster serves of the group that is not its own."""
        self._store = store
        self._kinds = kinds
        self._inside = inside
        self._clock = clock
        self._collector = collector
        self._bound = bound
        self._resource = kinds.builtin(HOME)
        self._waiting: dict[str, str] = {}  #: prefix of a kind's objects → the key of its ending definition
        self._subscription: Subscription | None = None
        self._content = Hearing(store, kinds, self._hear_content)
        self.work: Work[str] = Work("definitions", self._look, workers=WORKERS)

    def start(self) -> None:
        self._content.start()
        self._subscription = self._store.subscribe(HOME, self._hear)
        for entry in self._store.list(HOME).entries:
            if is_terminating(entry) or not has_its_names(objects.decode(entry)):
                self.work.add(entry.key)

    def stop(self) -> None:
        self._content.stop()
        if self._subscription is not None:
            self._subscription.cancel()

    # --- what happens -----------------------------------------------------------------------------

    def _hear(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if change.entry is not None and is_terminating(change.entry):
                self.work.add(change.key)
            elif change.previous is not None:
                self._look_at_nameless(change.key)
                if change.entry is None:
                    self._waiting.pop(prefix_of(change.key), None)  # somebody let go of it by force
                elif not has_its_names(objects.decode(change.entry)):
                    self.work.add(change.key)

    def reconsider(self, cluster: str, group: str) -> None:
        """Names of the group are free again in a cluster."""
        self._look_at_nameless(f"{HOME}{cluster}/.{group}")

    def _look_at_nameless(self, key: str) -> None:
        """A definition went, or has other names now: another one may have waited for those it had."""
        for entry in self._siblings(key):
            if not condition_is(objects.decode(entry), NAMES_ACCEPTED):
                self.work.add(entry.key)

    def _hear_content(self, changes: Sequence[Change]) -> None:
        if not self._waiting:
            return
        for change in changes:
            if change.entry is None:
                _, group, plural, cluster, _ = change.key.split("/", 4)
                if waiting := self._waiting.get(f"/{group}/{plural}/{cluster}/"):
                    self.work.add(waiting)

    # --- what is done about it --------------------------------------------------------------------

    async def _look(self, key: str) -> None:
        entry = self._store.get(key)
        if entry is None:
            return
        definition = objects.decode(entry)
        if not is_terminating(entry):
            await self._name(entry, definition)
        elif CLEANUP in (definition["metadata"].get("finalizers") or ()):
            await self._end(entry, definition)

    async def _name(self, entry: Entry, definition: Obj) -> None:
        """Give a definition the names that it wants, if nobody else has them any more."""
        others = [objects.decode(other) for other in self._siblings(entry.key)]
        others += self._bound(cluster_in(entry.key), definition["spec"]["group"])
        status = with_status(definition, others, format_seconds(self._clock()))
        if status != definition.get("status"):
            await self._patch(entry, definition, {"status": status}, "/status")

    def _siblings(self, key: str) -> list[Entry]:
        """The other definitions of its group in its cluster."""
        end = "." + group_in(key)
        entries = self._store.list(f"{HOME}{cluster_in(key)}/").entries
        return [entry for entry in entries if entry.key.endswith(end) and entry.key != key]

    async def _end(self, entry: Entry, definition: Obj) -> None:
        key = entry.key
        if await self._tell(entry, definition):
            return  # which is heard, and looked at
        prefix = prefix_of(key)
        if self._kinds.is_builtin(prefix):
            await self._release(entry, definition)
            return
        self._waiting[prefix] = key
        await self._delete_all(prefix)
        if self._store.list(prefix, limit=1).entries:
            return
        if self._collector.is_behind(prefix):
            self.work.add_later(key, AGAIN)
            return
        self._waiting.pop(prefix, None)
        await self._release(entry, definition)

    async def _release(self, entry: Entry, definition: Obj) -> None:
        finalizers = [one for one in definition["metadata"]["finalizers"] if one != CLEANUP]
        await self._patch(entry, definition, {"metadata": {"finalizers": finalizers or None}})

    async def _tell(self, entry: Entry, definition: Obj) -> bool:
        """Whether there was something new to tell.  Once it is told, every object whose creation was begun before the
        deletion is there to be seen."""
        status = terminating(definition, IN_PROGRESS, format_seconds(self._clock()))
        if status == definition.get("status"):
            return False
        await self._patch(entry, definition, {"status": status}, "/status")
        return True

    async def _patch(self, entry: Entry, definition: Obj, change: Obj, subresource: str = "") -> None:
        path = object_path(self._resource, entry.key) + subresource
        await self._inside.patch(path, change, uid=definition["metadata"]["uid"], revision=entry.revision)

    async def _delete_all(self, prefix: str) -> None:
        resource = self._kinds.of_key(prefix)
        entries = self._store.list(prefix).entries
        if resource is None:
            await self._drop(entries)
            return
        for namespace in {objects.name_in(entry.key)[0] for entry in entries if not is_terminating(entry)}:
            await self._inside.delete_all(collection_path(resource, cluster_in(prefix), namespace))

    async def _drop(self, entries: Sequence[Entry]) -> None:
        """Objects in versions that are not served any more: there is no door to delete them through."""
        for entry in entries:
            if not objects.decode(entry)["metadata"].get("finalizers"):
                await self._store.delete(entry.key, expect=entry.revision)


def group_in(key: str) -> str:
    """The group of a definition, which is named after it."""
    return objects.name_in(key)[1].partition(".")[2]


def prefix_of(key: str) -> str:
    """Where the objects are that the definition at a key defines."""
    plural, _, group = objects.name_in(key)[1].partition(".")
    return f"/{group}/{plural}/{cluster_in(key)}/"


def has_its_names(definition: Obj) -> bool:
    """Whether it is served as it wants to be, as far as its status tells."""
    accepted = (definition.get("status") or {}).get("acceptedNames")
    is_settled = condition_is(definition, NAMES_ACCEPTED) and condition_is(definition, ESTABLISHED)
    return is_settled and accepted == definition["spec"]["names"]
