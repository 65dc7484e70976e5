"""What becomes of exports and bindings after they were written.

    an export     that a crash left without identity gets it; whether its Secret still has it is told
    a binding     follows its export: its schemas, claims and annotations, its coming and going; it gets names that
                  become free
    its deletion  deletes the objects of what it bound, in its workspace, and then lets it go; copies of schemas that
                  nobody has bound any more go too

At the start everything is looked at that is not certainly as it should be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Final, Protocol

from farflung.apis.resource import Resource
from farflung.hub import objects
from farflung.hub.controllers.loopback import Inside, collection_path
from farflung.hub.controllers.reconcile_queue import Work
from farflung.hub.namespaces import is_terminating
from farflung.hub.objects import cluster_in, name_in
from farflung.hub.tenancy import api_bindings as bindings
from farflung.hub.tenancy.api_bindings import BINDINGS, FINALIZER
from farflung.hub.tenancy.api_exports import EXPORTS, SCHEMAS, Exporter, extras, identity_secret, schema_names
from farflung.hub.tenancy.binding_strategy import Binder, is_for_all
from farflung.hub.tenancy.bound_apis import (
    COPIES,
    BoundApis,
    BoundResource,
    Export,
    Facts,
    copy_key,
    facts_of,
    identities_of,
)
from farflung.hub.tenancy.direct_writes import rewritten
from farflung.machinery.errors import Obj
from farflung.machinery.times import format_seconds
from farflung.store.base import Change, Conflict, Entry, Store, Subscription, Watcher

WORKERS: Final = 8
AGAIN: Final = 0.05  #: seconds before a binding is looked at again whose objects' dependents are not dealt with yet
DEFINITIONS: Final = "/apiextensions.k8s.io/customresourcedefinitions/"
SECRETS: Final = "/core/secrets/"


class Dependents(Protocol):
    def is_behind(self, prefix: str) -> bool:
        """Whether it is not yet dealt with who depended on objects under a prefix."""


class Bindings:
    """Looks at keys of bindings and exports."""

    def __init__(
        self,
        store: Store,
        apis: BoundApis,
        binder: Binder,
        exporter: Exporter,
        inside: Inside,
        clock: Callable[[], datetime],
        collector: Dependents | None = None,
        freed: Callable[[str, str], None] = lambda cluster, group: None,
    ) -> None:
        """`collector`: it must have looked at who depends on the objects that go, while their kind is known.  `freed`:
        told of (cluster, group) with names that are free again."""
        self._store = store
        self._apis = apis
        self._binder = binder
        self._exporter = exporter
        self._inside = inside
        self._clock = clock
        self._collector = collector
        self._freed = freed
        self._identities: dict[str, set[str]] = {}  #: key of a Secret → the exports whose identity is in it
        self._subscriptions: list[Subscription] = []
        #: key of a binding → where the objects are whose end it waits for, of which it hears
        self._waiting: dict[str, dict[str, Subscription]] = {}
        self.work: Work[str] = Work("bindings", self._look, workers=WORKERS)

    def start(self) -> None:
        listeners: Sequence[tuple[str, Watcher]] = (
            (EXPORTS, self._hear_exports),
            (SCHEMAS, self._hear_schemas),
            (BINDINGS, self._hear_bindings),
            (DEFINITIONS, self._hear_definitions),
            (SECRETS, self._hear_secrets),
        )
        self._subscriptions = [self._store.subscribe(home, watcher) for home, watcher in listeners]
        for entry in self._store.list(EXPORTS).entries:
            self._follow_identity(None, entry)
            self.work.add(entry.key)
        for entry in self._store.list(COPIES).entries:
            self._look_at_copies(cluster_in(entry.key))
        for key in self._apis.all_keys():
            if not self._is_current(self._apis.in_cluster(cluster_in(key))[key]):
                self.work.add(key)

    def stop(self) -> None:
        for subscription in self._subscriptions:
            subscription.cancel()
        for key in tuple(self._waiting):
            self._wait_no_more(key)

    def _is_current(self, facts: Facts) -> bool:
        """Of what every workspace has, so much that nobody needs to read it.  Everything else is looked at."""
        if facts.export is None or not facts.valid or facts.ends or not is_for_all(facts.export):
            return False
        offer = self._binder.offered(facts.export)
        bound = {(one.uid, one.identity) for one in facts.bound}
        return offer is not None and all((one.uid, offer.identity) in bound for one in offer.resources or ())

    # --- what happens -----------------------------------------------------------------------------

    def _hear_exports(self, changes: Sequence[Change]) -> None:
        for change in changes:
            self._follow_identity(change.previous, change.entry)
            if change.entry and change.previous and offering(change.entry) == offering(change.previous):
                continue
            name = name_in(change.key)[1]
            self._look_at_bindings(Export(cluster_in(change.key), name))
            if change.entry is not None and change.previous is None:
                for key in self._apis.missing(name):
                    self.work.add(key)

    def _follow_identity(self, before: Entry | None, after: Entry | None) -> None:
        if before is not None and (key := identity_key(before)) in self._identities:
            self._identities[key].discard(before.key)
            if not self._identities[key]:
                del self._identities[key]
        if after is not None:
            self._identities.setdefault(identity_key(after), set()).add(after.key)

    def _hear_secrets(self, changes: Sequence[Change]) -> None:
        for change in changes:
            for key in self._identities.get(change.key, ()):
                self.work.add(key)

    def _look_at_bindings(self, export: Export) -> None:
        for key in self._apis.of_export(export):
            self.work.add(key)

    def _hear_schemas(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if change.entry is not None and change.previous is not None:
                continue  # what they say never changes
            cluster, name = cluster_in(change.key), name_in(change.key)[1]
            for entry in self._store.list(f"{EXPORTS}{cluster}/").entries:
                if name in schema_names(objects.decode(entry)):
                    self._look_at_bindings(Export(cluster, name_in(entry.key)[1]))

    def _hear_definitions(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if change.previous is not None:
                self._look_at_waiting(cluster_in(change.key))

    def _look_at_waiting(self, cluster: str) -> None:
        """Names may be free again."""
        for key, facts in self._apis.in_cluster(cluster).items():
            if not facts.bound or facts.clashes:
                self.work.add(key)

    def _hear_bindings(self, changes: Sequence[Change]) -> None:
        for change in changes:
            cluster = cluster_in(change.key)
            facts = self._apis.in_cluster(cluster).get(change.key)
            if change.entry is None or facts is None:
                self._wait_no_more(change.key)
                self._look_at_waiting(cluster)
                for group in bound_groups(change.previous):
                    self._freed(cluster, group)
                for identity in identities_of(facts_of(change.previous)) if change.previous is not None else ():
                    self._look_at_copies(identity)
            elif facts.ends or self._lacks_something(cluster, change.key, facts):
                self.work.add(change.key)

    def _look_at_copies(self, identity: str) -> None:
        """Of schemas, once nobody has bound any more what has an identity: nothing is stored by them."""
        if not self._apis.is_bound(identity):
            for entry in self._store.list(f"{COPIES}{identity}/").entries:
                self.work.add(entry.key)

    def _lacks_something(self, cluster: str, key: str, facts: Facts) -> bool:
        """Copies of schemas, or its names, which another one got at the same time."""
        if any(self._store.get(copy_key(one.identity, one.uid)) is None for one in facts.bound):
            return True
        places = {one.place for one in facts.bound}
        return any(
            one.place in places
            for other, found in self._apis.in_cluster(cluster).items()
            if other != key
            for one in found.bound
        )

    # --- what is done about it --------------------------------------------------------------------

    async def _look(self, key: str) -> None:
        entry = self._store.get(key)
        if entry is None:
            self._wait_no_more(key)
            return
        try:
            if key.startswith(COPIES):
                await self._drop_copy(entry)
            elif key.startswith(EXPORTS):
                await self._settle_export(entry)
            elif is_terminating(entry):
                await self._end(entry, objects.decode(entry))
            else:
                await self._settle(entry)
        except Conflict:
            self.work.add(key)  # somebody else was faster

    async def _drop_copy(self, entry: Entry) -> None:
        """A binding that is under way meanwhile lacks it, and gets it again."""
        if not self._apis.is_bound(cluster_in(entry.key)):
            await self._store.delete(entry.key, expect=entry.revision)

    async def _settle_export(self, entry: Entry) -> None:
        old, new = objects.decode(entry), objects.decode(entry)
        new["metadata"]["annotations"] = dict(new["metadata"].get("annotations") or {})
        await self._exporter.settle(cluster_in(entry.key), new, old, self._now())
        await self._write(entry, new, old)

    async def _settle(self, entry: Entry) -> None:
        binding = objects.decode(entry)
        settled = await self._binder.settle_binding(cluster_in(entry.key), binding, self._now())
        await self._write(entry, settled, binding)

    async def _write(self, entry: Entry, new: Obj, old: Obj) -> bool:
        if new == old:
            return False
        await self._store.put(entry.key, rewritten(new), expect=entry.revision)
        return True

    def _now(self) -> str:
        return format_seconds(self._clock())

    # --- the end ----------------------------------------------------------------------------------

    async def _end(self, entry: Entry, binding: Obj) -> None:
        if FINALIZER not in (binding["metadata"].get("finalizers") or ()):
            return
        homes = dict(self._own(entry.key))
        # once it is told, every object whose creation was begun before the deletion is there to be seen
        if homes and await self._write(entry, bindings.ending(binding, self._now()), binding):
            return  # which is heard, and looked at
        for prefix, resource in homes.items():
            self._wait(prefix, entry.key)
            await self._delete_all(prefix, resource)
        if any(self._store.list(prefix, limit=1).entries for prefix in homes):
            return
        if self._collector is not None and any(self._collector.is_behind(prefix) for prefix in homes):
            self.work.add_later(entry.key, AGAIN)
            return
        self._wait_no_more(entry.key)
        await self._release(entry, binding)

    def _own(self, key: str) -> Iterator[tuple[str, Resource]]:
        """Where the objects are that nobody else's binding is about; of several that go at once, the first's."""
        cluster = cluster_in(key)
        facts = self._apis.in_cluster(cluster).get(key)
        others = {
            (one.place, one.identity)
            for other, found in self._apis.in_cluster(cluster).items()
            if other != key and not (found.ends and other > key)
            for one in found.bound
        }
        for one in facts.bound if facts is not None else ():
            resource = self._resource(one, facts.export if facts is not None else None)
            if resource is not None and (one.place, one.identity) not in others:
                yield objects.prefix(resource, cluster), resource

    def _resource(self, one: BoundResource, export: Export | None) -> Resource | None:
        definition = self._apis.definition(one, export, "ending")
        return definition.resources[0] if definition is not None and definition.resources else None

    def _wait(self, prefix: str, key: str) -> None:
        waiting = self._waiting.setdefault(key, {})
        if prefix in waiting:
            return

        def hear(changes: Sequence[Change]) -> None:
            if any(change.entry is None for change in changes):
                self.work.add(key)

        waiting[prefix] = self._store.subscribe(prefix, hear)

    def _wait_no_more(self, key: str) -> None:
        for subscription in self._waiting.pop(key, {}).values():
            subscription.cancel()

    async def _delete_all(self, prefix: str, resource: Resource) -> None:
        entries = self._store.list(prefix).entries
        for namespace in {name_in(entry.key)[0] for entry in entries if not is_terminating(entry)}:
            await self._inside.delete_all(collection_path(resource, cluster_in(prefix), namespace))

    async def _release(self, entry: Entry, binding: Obj) -> None:
        finalizers = [one for one in binding["metadata"]["finalizers"] if one != FINALIZER]
        if not finalizers:
            await self._store.delete(entry.key, expect=entry.revision)
            return
        metadata = {**binding["metadata"], "finalizers": finalizers}
        await self._write(entry, {**binding, "metadata": metadata}, binding)


def identity_key(export: Entry) -> str:
    """Where the Secret is, if there is one, that has an export's identity."""
    secret = identity_secret(objects.decode(export))
    return f"{SECRETS}{cluster_in(export.key)}/{secret.namespace}/{secret.name}" if secret is not None else ""


def bound_groups(entry: Entry | None) -> set[str]:
    if entry is None:
        return set()
    status = objects.decode(entry).get("status") or {}
    return {one.get("group", "") for one in status.get("boundResources") or ()}


def offering(entry: Entry) -> tuple[object, ...]:
    """Of an export: what its bindings depend on."""
    export = objects.decode(entry)
    annotations = export["metadata"].get("annotations") or {}
    identity = (export.get("status") or {}).get("identityHash", "")
    return identity, schema_names(export), bindings.wishes(export), extras(annotations)
