"""APIExports and APIBindings.

    APIExport   gets a missing identity, and reports whether its Secret still has it
    APIBinding  follows the schemas, claims and annotations of its export, and binds names that become free.  Deleting
                it deletes the objects of the bound resources in its workspace.
    schema copy is deleted with the last binding of its identity

At start everything is reconciled that is not known to be current.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Final, Protocol

from farflung.apis.kcp.names import API_BINDING_FINALIZER
from farflung.apis.resource import Resource
from farflung.hub.catalog import objects
from farflung.hub.catalog.objects import cluster_in, name_in
from farflung.hub.controllers.loopback import LoopbackClient, collection_path
from farflung.hub.controllers.reconcile_queue import ReconcileQueue
from farflung.hub.tenancy import api_bindings as bindings
from farflung.hub.tenancy.api_bindings import BINDINGS
from farflung.hub.tenancy.api_exports import (
    EXPORTS,
    SCHEMAS,
    Exporter,
    ExportKey,
    extras,
    identity_secret,
    schema_names,
)
from farflung.hub.tenancy.binding_strategy import Binder, is_hub_export
from farflung.hub.tenancy.bound_apis import (
    COPIES,
    BindingState,
    BoundApis,
    BoundResource,
    binding_state,
    copy_key,
    identities_of,
)
from farflung.hub.tenancy.direct_writes import encode_stored
from farflung.lib.groups import discard_from
from farflung.machinery.errors import Obj
from farflung.machinery.times import format_seconds
from farflung.store.base import Change, Conflict, Entry, Store, Subscription, Watcher

WORKERS: Final = 8
RECHECK_SECONDS: Final = 0.05  #: seconds to wait for the garbage collector
DEFINITIONS: Final = "/apiextensions.k8s.io/customresourcedefinitions/"
SECRETS: Final = "/core/secrets/"


class Collector(Protocol):
    def is_behind(self, prefix: str) -> bool:
        """Whether dependents of deleted objects under a prefix are not handled yet."""


class APIServices(Protocol):
    @property
    def apis(self) -> BoundApis: ...
    @property
    def binder(self) -> Binder: ...
    @property
    def exporter(self) -> Exporter: ...


class APIBindingController:
    """Reconciles keys of bindings, exports and schema copies."""

    def __init__(
        self,
        services: APIServices,
        store: Store,
        client: LoopbackClient,
        clock: Callable[[], datetime],
        collector: Collector | None = None,
        release_names: Callable[[str, str], None] = lambda cluster, group: None,
    ) -> None:
        """`collector`: must handle the dependents of deleted objects while their kind is served.  `release_names`:
        called with (cluster, group) when names become free."""
        self._store = store
        self._apis = services.apis
        self._binder = services.binder
        self._exporter = services.exporter
        self._client = client
        self._clock = clock
        self._collector = collector
        self._release_names = release_names
        self._identities: dict[str, set[str]] = {}  #: key of a Secret → exports whose identity is in it
        self._exporters: dict[tuple[str, str], set[ExportKey]] = {}  #: cluster and name of a schema → its exports
        self._subscriptions: list[Subscription] = []
        #: key of a deleted binding → subscriptions to the prefixes of its remaining objects
        self._waiting: dict[str, dict[str, Subscription]] = {}
        self.queue: ReconcileQueue[str] = ReconcileQueue("bindings", self._reconcile, workers=WORKERS)

    def start(self) -> None:
        listeners: Sequence[tuple[str, Watcher]] = (
            (EXPORTS, self._on_exports),
            (SCHEMAS, self._on_schemas),
            (BINDINGS, self._on_bindings),
            (DEFINITIONS, self._on_definitions),
            (SECRETS, self._on_secrets),
        )
        self._subscriptions = [self._store.subscribe(prefix, watcher) for prefix, watcher in listeners]
        for entry in self._store.list(EXPORTS).entries:
            self._follow_identity(None, entry)
            self._follow_schemas(None, entry)
            self.queue.add(entry.key)
        for entry in self._store.list(COPIES).entries:
            self._enqueue_copies(cluster_in(entry.key))
        for key in self._apis.all_keys():
            if not self._is_current(self._apis.in_cluster(cluster_in(key))[key]):
                self.queue.add(key)

    def stop(self) -> None:
        for subscription in self._subscriptions:
            subscription.cancel()
        for key in tuple(self._waiting):
            self._stop_waiting(key)

    def _is_current(self, state: BindingState) -> bool:
        """Whether a binding to an export of root needs no reconcile.  Other bindings are always reconciled at start."""
        if state.export is None or not state.valid or state.ends or not is_hub_export(state.export):
            return False
        offer = self._binder.offered(state.export)
        bound = {(one.uid, one.identity) for one in state.bound}
        return offer is not None and all((one.uid, offer.identity) in bound for one in offer.resources or ())

    # --- changes ----------------------------------------------------------------------------------

    def _on_exports(self, changes: Sequence[Change]) -> None:
        for change in changes:
            self._follow_identity(change.previous, change.entry)
            self._follow_schemas(change.previous, change.entry)
            if change.entry and change.previous and offer_fields(change.entry) == offer_fields(change.previous):
                continue
            name = name_in(change.key)[1]
            self._enqueue_bindings(ExportKey(cluster_in(change.key), name))
            if change.entry is not None and change.previous is None:
                for key in self._apis.missing(name):
                    self.queue.add(key)

    def _follow_identity(self, before: Entry | None, after: Entry | None) -> None:
        if before is not None and (key := identity_key(before)) in self._identities:
            discard_from(self._identities, key, before.key)
        if after is not None:
            self._identities.setdefault(identity_key(after), set()).add(after.key)

    def _follow_schemas(self, before: Entry | None, after: Entry | None) -> None:
        for export, place in exported_schemas(before):
            discard_from(self._exporters, place, export)
        for export, place in exported_schemas(after):
            self._exporters.setdefault(place, set()).add(export)

    def _on_secrets(self, changes: Sequence[Change]) -> None:
        for change in changes:
            for key in self._identities.get(change.key, ()):
                self.queue.add(key)

    def _enqueue_bindings(self, export: ExportKey) -> None:
        for key in self._apis.of_export(export):
            self.queue.add(key)

    def _on_schemas(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if change.entry is not None and change.previous is not None:
                continue  # schemas are immutable
            for export in self._exporters.get((cluster_in(change.key), name_in(change.key)[1]), ()):
                self._enqueue_bindings(export)

    def _on_definitions(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if change.previous is not None:
                self._enqueue_waiting(cluster_in(change.key))

    def _enqueue_waiting(self, cluster: str) -> None:
        """Enqueue the bindings that wait for names."""
        for key, state in self._apis.in_cluster(cluster).items():
            if not state.bound or state.clashes:
                self.queue.add(key)

    def _on_bindings(self, changes: Sequence[Change]) -> None:
        for change in changes:
            cluster = cluster_in(change.key)
            state = self._apis.in_cluster(cluster).get(change.key)
            if change.entry is None or state is None:
                self._stop_waiting(change.key)
                self._enqueue_waiting(cluster)
                for group in bound_groups(change.previous):
                    self._release_names(cluster, group)
                for identity in identities_of(binding_state(change.previous)) if change.previous is not None else ():
                    self._enqueue_copies(identity)
            elif state.ends or self._is_incomplete(cluster, change.key, state):
                self.queue.add(change.key)

    def _enqueue_copies(self, identity: str) -> None:
        """Enqueue the schema copies of an identity without bindings."""
        if not self._apis.is_bound(identity):
            for entry in self._store.list(f"{COPIES}{identity}/").entries:
                self.queue.add(entry.key)

    def _is_incomplete(self, cluster: str, key: str, state: BindingState) -> bool:
        """Whether schema copies are missing, or another binding got the same names concurrently."""
        if any(self._store.get(copy_key(one.identity, one.uid)) is None for one in state.bound):
            return True
        resources = {one.group_resource for one in state.bound}
        return any(
            one.group_resource in resources
            for other, found in self._apis.in_cluster(cluster).items()
            if other != key
            for one in found.bound
        )

    # --- reconciling ------------------------------------------------------------------------------

    async def _reconcile(self, key: str) -> None:
        entry = self._store.get(key)
        if entry is None:
            self._stop_waiting(key)
            return
        try:
            if key.startswith(COPIES):
                if not self._apis.is_bound(cluster_in(key)):
                    await self._store.delete(key, expect=entry.revision)
            elif key.startswith(EXPORTS):
                await self._update_export(entry)
            elif objects.is_terminating(entry):
                await self._finalize(entry, objects.decode(entry))
            else:
                await self._update_binding(entry)
        except Conflict:
            self.queue.add(key)  # another client wrote the object

    async def _update_export(self, entry: Entry) -> None:
        old, new = objects.decode(entry), objects.decode(entry)
        new["metadata"]["annotations"] = dict(new["metadata"].get("annotations") or {})
        await self._exporter.finish_export(cluster_in(entry.key), new, old, self._now())
        await self._write(entry, new, old)

    async def _update_binding(self, entry: Entry) -> None:
        binding = objects.decode(entry)
        bound = await self._binder.finish_binding(cluster_in(entry.key), binding, self._now())
        await self._write(entry, bound, binding)

    async def _write(self, entry: Entry, new: Obj, old: Obj) -> bool:
        if new == old:
            return False
        await self._store.put(entry.key, encode_stored(new), expect=entry.revision)
        return True

    def _now(self) -> str:
        return format_seconds(self._clock())

    # --- deletion ---------------------------------------------------------------------------------

    async def _finalize(self, entry: Entry, binding: Obj) -> None:
        if API_BINDING_FINALIZER not in (binding["metadata"].get("finalizers") or ()):
            return
        prefixes = dict(self._own(entry.key))
        # once it is written, every object is visible whose creation began before the deletion
        if prefixes and await self._write(entry, bindings.terminating_binding(binding, self._now()), binding):
            return  # the write triggers the next reconcile
        for prefix, resource in prefixes.items():
            self._wait(prefix, entry.key)
            await self._delete_all(prefix, resource)
        if any(self._store.list(prefix, limit=1).entries for prefix in prefixes):
            return
        if self._collector is not None and any(self._collector.is_behind(prefix) for prefix in prefixes):
            self.queue.add_later(entry.key, RECHECK_SECONDS)
            return
        self._stop_waiting(entry.key)
        await self._remove_finalizer(entry, binding)

    def _own(self, key: str) -> Iterator[tuple[str, Resource]]:
        """Prefixes of objects that no other binding of the cluster has bound.  Of several bindings that are deleted at
        once, the first deletes them."""
        cluster = cluster_in(key)
        state = self._apis.in_cluster(cluster).get(key)
        others = {
            (one.group_resource, one.identity)
            for other, found in self._apis.in_cluster(cluster).items()
            if other != key and not (found.ends and other > key)
            for one in found.bound
        }
        for one in state.bound if state is not None else ():
            resource = self._resource(one, state.export if state is not None else None)
            if resource is not None and (one.group_resource, one.identity) not in others:
                yield objects.prefix(resource, cluster), resource

    def _resource(self, one: BoundResource, export: ExportKey | None) -> Resource | None:
        definition = self._apis.definition(one, export, "ending")
        return definition.resources[0] if definition is not None and definition.resources else None

    def _wait(self, prefix: str, key: str) -> None:
        waiting = self._waiting.setdefault(key, {})
        if prefix in waiting:
            return

        def on_changes(changes: Sequence[Change]) -> None:
            if any(change.entry is None for change in changes):
                self.queue.add(key)

        waiting[prefix] = self._store.subscribe(prefix, on_changes)

    def _stop_waiting(self, key: str) -> None:
        for subscription in self._waiting.pop(key, {}).values():
            subscription.cancel()

    async def _delete_all(self, prefix: str, resource: Resource) -> None:
        entries = self._store.list(prefix).entries
        for namespace in {name_in(entry.key)[0] for entry in entries if not objects.is_terminating(entry)}:
            await self._client.delete_all(collection_path(resource, cluster_in(prefix), namespace))

    async def _remove_finalizer(self, entry: Entry, binding: Obj) -> None:
        finalizers = [one for one in binding["metadata"]["finalizers"] if one != API_BINDING_FINALIZER]
        if not finalizers:
            await self._store.delete(entry.key, expect=entry.revision)
            return
        metadata = {**binding["metadata"], "finalizers": finalizers}
        await self._write(entry, {**binding, "metadata": metadata}, binding)


def exported_schemas(export: Entry | None) -> list[tuple[ExportKey, tuple[str, str]]]:
    """Each schema once, by cluster and name."""
    if export is None:
        return []
    cluster = cluster_in(export.key)
    key = ExportKey(cluster, name_in(export.key)[1])
    return [(key, (cluster, name)) for name in dict.fromkeys(schema_names(objects.decode(export)))]


def identity_key(export: Entry) -> str:
    """The key of the Secret with an export's identity; empty without one."""
    secret = identity_secret(objects.decode(export))
    return f"{SECRETS}{cluster_in(export.key)}/{secret.namespace}/{secret.name}" if secret is not None else ""


def bound_groups(entry: Entry | None) -> set[str]:
    if entry is None:
        return set()
    status = objects.decode(entry).get("status") or {}
    return {one.get("group", "") for one in status.get("boundResources") or ()}


def offer_fields(entry: Entry) -> tuple[object, ...]:
    """The fields of an export that its bindings depend on."""
    export = objects.decode(entry)
    annotations = export["metadata"].get("annotations") or {}
    identity = (export.get("status") or {}).get("identityHash", "")
    return identity, schema_names(export), bindings.permission_claims(export), extras(annotations)
