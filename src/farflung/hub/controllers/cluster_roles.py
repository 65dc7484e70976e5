"""Default ClusterRoles and ClusterRoleBindings, and aggregated ClusterRoles.

At start, missing default roles and bindings are created, and missing rules, subjects and labels are added.  Nothing is
removed, and objects with the annotation `autoupdate: "false"` are not changed.

An aggregated role has the rules of all non-aggregated roles that it contains, directly or over other aggregated roles.
So nested aggregated roles are complete at once, and two roles that contain each other do not loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import count
from typing import Final, NamedTuple

import orjson

from farflung.apis.resource import Resource
from farflung.hub.auth.default_roles import API_VERSION, AUTO_UPDATE
from farflung.hub.auth.escalation import uncovered
from farflung.hub.auth.rbac import CLUSTER_BINDINGS, CLUSTER_ROLES, rule_of
from farflung.hub.catalog import objects
from farflung.hub.catalog.objects import cluster_in
from farflung.hub.controllers.loopback import LoopbackClient, collection_path, object_path
from farflung.hub.controllers.reconcile_queue import ReconcileQueue
from farflung.hub.controllers.stored_kinds import StoredKinds
from farflung.hub.request.media_types import APPLY_PATCH
from farflung.machinery.errors import Obj
from farflung.machinery.label_index import LabelIndex, SelectorIndex
from farflung.machinery.selectors import Labels, LabelSelector, selector_of
from farflung.store.base import Change, Entry, Store, Subscription

WORKERS: Final = 4
AT_ONCE: Final = 2_000  #: rules that are added before other tasks run
MANAGER: Final = "clusterrole-aggregation-controller"


class RoleSource(NamedTuple):
    roles: Callable[[], Iterable[tuple[str, Iterable[Obj]]]]  #: roles and bindings by cluster
    changes: str = ""  #: key of the Workspace on which the clusters depend; empty: they never change


class DefaultRolesController:
    """Creates roles and bindings at the start, and in clusters that are created later."""

    def __init__(self, store: Store, kinds: StoredKinds, client: LoopbackClient, source: RoleSource) -> None:
        self._store = store
        self._resources = {
            "ClusterRole": kinds.builtin(CLUSTER_ROLES),
            "ClusterRoleBinding": kinds.builtin(CLUSTER_BINDINGS),
        }
        self._client = client
        self._source = source
        self._wanted: dict[str, list[Obj]] = {}  #: by cluster
        self._subscription: Subscription | None = None
        self.queue: ReconcileQueue[str] = ReconcileQueue("default-roles", self._reconcile, workers=1)

    def start(self) -> None:
        self._add_clusters()
        if self._source.changes:
            self._subscription = self._store.subscribe(self._source.changes, self._add_clusters)

    def stop(self) -> None:
        if self._subscription is not None:
            self._subscription.cancel()

    def _add_clusters(self, changes: Sequence[Change] = ()) -> None:
        found: dict[str, list[Obj]] = {}
        for cluster, wanted in self._source.roles():
            found.setdefault(cluster, []).extend(wanted)
        for cluster in found.keys() - self._wanted.keys():
            self.queue.add(cluster)
        self._wanted = found

    async def _reconcile(self, cluster: str) -> None:
        """Concurrent requests share a commit."""
        await asyncio.gather(*(self._ensure(cluster, wanted) for wanted in self._wanted.get(cluster, ())))

    async def _ensure(self, cluster: str, wanted: Obj) -> None:
        resource = self._resources[wanted["kind"]]
        key = objects.key(resource, cluster, "", wanted["metadata"]["name"])
        entry = self._store.get(key)
        if entry is None:
            await self._client.request("POST", collection_path(resource, cluster), wanted)
            return
        present = objects.decode(entry)
        if "roleRef" in wanted and present.get("roleRef") != wanted["roleRef"]:
            await self._replace(resource, cluster, key, present, wanted)
        elif completed := complete(present, wanted):
            await self._client.request("PUT", object_path(resource, key), completed)

    async def _replace(self, resource: Resource, cluster: str, key: str, present: Obj, wanted: Obj) -> None:
        """The roleRef of a binding is immutable, so the binding is deleted and created."""
        if is_auto_updated(present):
            uid = present["metadata"]["uid"]
            await self._client.delete(object_path(resource, key), policy="Background", uid=uid)
            await self._client.request("POST", collection_path(resource, cluster), wanted)


def is_auto_updated(present: Obj) -> bool:
    return (present["metadata"].get("annotations") or {}).get(AUTO_UPDATE) != "false"


def complete(present: Obj, wanted: Obj) -> Obj | None:
    """The object with missing parts added; None if it is complete."""
    if not is_auto_updated(present):
        return None
    changed = present | {"metadata": with_metadata(present["metadata"], wanted["metadata"])}
    if "subjects" in wanted:
        subjects = present.get("subjects") or []
        changed["subjects"] = subjects + [one for one in wanted["subjects"] if one not in subjects]
    elif "aggregationRule" in wanted:
        selectors = (present.get("aggregationRule") or {}).get("clusterRoleSelectors") or []
        more = [one for one in wanted["aggregationRule"]["clusterRoleSelectors"] if one not in selectors]
        changed["aggregationRule"] = {"clusterRoleSelectors": selectors + more}
    else:
        rules = present.get("rules") or []
        changed["rules"] = rules + lacking(rules, wanted["rules"])
    return changed if changed != present else None


def with_metadata(present: Obj, wanted: Obj) -> Obj:
    """Labels and annotations that a client changed are kept."""
    parts = {part: wanted[part] | (present.get(part) or {}) for part in ("labels", "annotations")}
    return present | parts


def lacking(present: list[Obj], wanted: list[Obj]) -> list[Obj]:
    owned = [rule_of(rule) for rule in present]
    return [rule for rule in wanted if uncovered(owned, [rule_of(rule)])]


class ClusterRoleIndex:
    """The labels and selectors of the ClusterRoles of one cluster."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}  #: of roles, by key
        self._keys: dict[int, str] = {}
        self._labels = LabelIndex()  #: of roles
        self._selectors = SelectorIndex()  #: of aggregated roles
        self._selecting: dict[int, str] = {}  #: number of a selector → key of its role
        self._aggregated: dict[str, dict[int, LabelSelector]] = {}  #: key of a role → its selectors, by number
        self._next = count()

    def __bool__(self) -> bool:
        return bool(self._numbers)

    @property
    def aggregated(self) -> Collection[str]:
        """The keys of aggregated roles."""
        return self._aggregated.keys()

    def put(self, key: str, labels: Labels, selectors: Iterable[LabelSelector]) -> None:
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = next(self._next)
            self._keys[number] = key
        self._labels.put(number, labels)
        self._forget_selectors(key)
        found = {next(self._next): selector for selector in selectors}
        for selecting, selector in found.items():
            self._selectors.put(selecting, selector)
            self._selecting[selecting] = key
        if found:
            self._aggregated[key] = found

    def remove(self, key: str) -> None:
        number = self._numbers.pop(key, None)
        if number is not None:
            del self._keys[number]
            self._labels.remove(number)
            self._forget_selectors(key)

    def _forget_selectors(self, key: str) -> None:
        for number in self._aggregated.pop(key, ()):
            self._selectors.remove(number)
            del self._selecting[number]

    def containing(self, key: str, labels: Labels) -> set[str]:
        """The aggregated roles that select a role with these labels."""
        return {self._selecting[number] for number in self._selectors.matching(labels)} - {key}

    def parts(self, key: str) -> list[str]:
        """The roles that a role selects, by selector and name."""
        return [
            part
            for selector in self._aggregated.get(key, {}).values()
            for part in sorted(map(self._keys.__getitem__, self._labels.select(selector)))
            if part != key
        ]


class ClusterRoleAggregationController:
    def __init__(self, store: Store, kinds: StoredKinds, client: LoopbackClient) -> None:
        self._store = store
        self._cluster_roles = kinds.builtin(CLUSTER_ROLES)
        self._client = client
        self._indexes: dict[str, ClusterRoleIndex] = {}  #: by cluster
        self._labels: dict[str, Labels] = {}  #: of roles, by key
        self._subscriptions: list[Subscription] = []
        self.queue: ReconcileQueue[str] = ReconcileQueue("aggregated-roles", self._reconcile, workers=WORKERS)

    def start(self) -> None:
        self._subscriptions = [self._store.subscribe(CLUSTER_ROLES, self._on_changes)]
        for entry in self._store.list(CLUSTER_ROLES).entries:
            self._note(entry.key, entry)
        for index in self._indexes.values():
            for key in index.aggregated:
                self.queue.add(key)

    def stop(self) -> None:
        for subscription in self._subscriptions:
            subscription.cancel()

    # --- changes ----------------------------------------------------------------------------------

    def _on_changes(self, changes: Sequence[Change]) -> None:
        for change in changes:
            before = self._containing(change.key)
            self._note(change.key, change.entry)
            for key in before | self._containing(change.key):
                self.queue.add(key)
            if change.key in self._index(change.key).aggregated:
                self.queue.add(change.key)

    def _note(self, key: str, entry: Entry | None) -> None:
        cluster = cluster_in(key)
        index = self._indexes.setdefault(cluster, ClusterRoleIndex())
        if entry is None:
            self._labels.pop(key, None)
            index.remove(key)
        else:
            labels = self._labels[key] = objects.labels_of(entry)
            aggregates = b'"aggregationRule"' in entry.value
            index.put(key, labels, selectors_of(objects.decode(entry)) if aggregates else ())
        if not index:
            del self._indexes[cluster]

    def _index(self, key: str) -> ClusterRoleIndex:
        return self._indexes.get(cluster_in(key)) or ClusterRoleIndex()

    def _containing(self, key: str) -> set[str]:
        """The aggregated roles that select a role."""
        labels = self._labels.get(key)
        return set() if labels is None else self._index(key).containing(key, labels)

    # --- reconciling ------------------------------------------------------------------------------

    async def _reconcile(self, key: str) -> None:
        entry = self._store.get(key)
        if entry is None or key not in self._index(key).aggregated:
            return
        role = objects.decode(entry)
        rules = await self._rules_of(key)
        if rules == (role.get("rules") or []) or "deletionTimestamp" in role["metadata"]:
            return
        identity = {"name": role["metadata"]["name"], "uid": role["metadata"]["uid"]}
        wanted = {"apiVersion": API_VERSION, "kind": "ClusterRole", "metadata": identity, "rules": rules}
        path = object_path(self._cluster_roles, key)
        await self._client.request("PATCH", path, wanted, query=f"fieldManager={MANAGER}&force=true", media=APPLY_PATCH)

    async def _rules_of(self, key: str) -> list[Obj]:
        """Each rule once, ordered by selector and role name.  A role that changes meanwhile is reconciled again."""
        rules: dict[bytes, Obj] = {}
        for leaf in self._leaves(key):
            entry = self._store.get(leaf)
            found = (objects.decode(entry).get("rules") or []) if entry is not None else []
            for start in range(0, len(found), AT_ONCE):
                for rule in found[start : start + AT_ONCE]:
                    rules.setdefault(orjson.dumps(rule, option=orjson.OPT_SORT_KEYS), rule)
                await asyncio.sleep(0)
        return list(rules.values())

    def _leaves(self, key: str) -> Iterator[str]:
        """The non-aggregated roles that an aggregated role contains, in order."""
        seen, waiting = {key}, [iter(self._index(key).parts(key))]
        while waiting:
            part = next(waiting[-1], None)
            if part is None:
                waiting.pop()
            elif part not in seen:
                seen.add(part)
                if part in self._index(part).aggregated:
                    waiting.append(iter(self._index(part).parts(part)))
                else:
                    yield part


def selectors_of(role: Obj) -> Iterator[LabelSelector]:
    aggregation = role.get("aggregationRule") or {}
    return map(selector_of, aggregation.get("clusterRoleSelectors") or ())
