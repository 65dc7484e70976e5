"""Default ClusterRoles and ClusterRoleBindings, and aggregated ClusterRoles.

At start, missing default roles and bindings are created, and missing rules, subjects and labels are added.  Nothing is
removed, and objects with the annotation `autoupdate: "false"` are not changed.

An aggregated role has the rules of all non-aggregated roles that it contains, directly or over other aggregated roles.
So nested aggregated roles are complete at once, and two roles that contain each other do not loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import orjson

from farflung.apis.resource import Resource
from farflung.hub.auth.default_roles import API_VERSION, AUTO_UPDATE, default_bindings, default_roles
from farflung.hub.auth.escalation import uncovered
from farflung.hub.auth.rbac import CLUSTER_BINDINGS, CLUSTER_ROLES, rule_of
from farflung.hub.catalog import objects
from farflung.hub.catalog.objects import cluster_in
from farflung.hub.controllers.loopback import LoopbackClient, collection_path, object_path
from farflung.hub.controllers.reconcile_queue import ReconcileQueue
from farflung.hub.controllers.stored_kinds import StoredKinds
from farflung.hub.request.media_types import APPLY_PATCH
from farflung.machinery.errors import Obj
from farflung.machinery.selectors import LabelSelector, selector_of
from farflung.store.base import Change, Entry, Store, Subscription

WORKERS: Final = 4
MANAGER: Final = "clusterrole-aggregation-controller"


class DefaultRolesController:
    def __init__(self, store: Store, kinds: StoredKinds, client: LoopbackClient, clusters: Iterable[str]) -> None:
        self._store = store
        self._resources = {
            "ClusterRole": kinds.builtin(CLUSTER_ROLES),
            "ClusterRoleBinding": kinds.builtin(CLUSTER_BINDINGS),
        }
        self._client = client
        self._clusters = tuple(clusters)
        self._wanted = [*default_roles(), *default_bindings()]
        self.queue: ReconcileQueue[str] = ReconcileQueue("default-roles", self._reconcile, workers=1)

    def start(self) -> None:
        for cluster in self._clusters:
            self.queue.add(cluster)

    def stop(self) -> None:
        pass

    async def _reconcile(self, cluster: str) -> None:
        """Concurrent requests share a commit."""
        await asyncio.gather(*(self._ensure(cluster, wanted) for wanted in self._wanted))

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


Selectors = tuple[LabelSelector, ...]


class ClusterRoleAggregationController:
    def __init__(self, store: Store, kinds: StoredKinds, client: LoopbackClient) -> None:
        self._store = store
        self._cluster_roles = kinds.builtin(CLUSTER_ROLES)
        self._client = client
        self._selectors: dict[str, dict[str, Selectors]] = {}  #: cluster → key of an aggregated role → its selectors
        self._labels: dict[str, dict[str, dict[str, str]]] = {}  #: cluster → key of a role → its labels
        self._subscriptions: list[Subscription] = []
        self.queue: ReconcileQueue[str] = ReconcileQueue("aggregated-roles", self._reconcile, workers=WORKERS)

    def start(self) -> None:
        self._subscriptions = [self._store.subscribe(CLUSTER_ROLES, self._on_changes)]
        for entry in self._store.list(CLUSTER_ROLES).entries:
            self._note(entry.key, entry)
        for aggregated in self._selectors.values():
            for key in aggregated:
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
            if change.key in self._selectors.get(cluster_in(change.key), ()):
                self.queue.add(change.key)

    def _note(self, key: str, entry: Entry | None) -> None:
        cluster = cluster_in(key)
        selectors = self._selectors.setdefault(cluster, {})
        labels = self._labels.setdefault(cluster, {})
        selectors.pop(key, None)
        labels.pop(key, None)
        if entry is not None:
            labels[key] = objects.labels_of(entry)
            if b'"aggregationRule"' in entry.value and (found := selectors_of(objects.decode(entry))):
                selectors[key] = found
        if not labels:
            del self._selectors[cluster], self._labels[cluster]

    def _containing(self, key: str) -> set[str]:
        """The aggregated roles that select a role."""
        cluster = cluster_in(key)
        labels = self._labels.get(cluster, {}).get(key)
        if labels is None:
            return set()
        return {
            whole
            for whole, selectors in self._selectors[cluster].items()
            if whole != key and any(selector.matches(labels) for selector in selectors)
        }

    # --- reconciling ------------------------------------------------------------------------------

    async def _reconcile(self, key: str) -> None:
        entry = self._store.get(key)
        if entry is None or key not in self._selectors.get(cluster_in(key), ()):
            return
        role = objects.decode(entry)
        rules = self._rules_of(key)
        if rules == (role.get("rules") or []) or "deletionTimestamp" in role["metadata"]:
            return
        identity = {"name": role["metadata"]["name"], "uid": role["metadata"]["uid"]}
        wanted = {"apiVersion": API_VERSION, "kind": "ClusterRole", "metadata": identity, "rules": rules}
        path = object_path(self._cluster_roles, key)
        await self._client.request("PATCH", path, wanted, query=f"fieldManager={MANAGER}&force=true", media=APPLY_PATCH)

    def _rules_of(self, key: str) -> list[Obj]:
        """Each rule once, ordered by selector and role name."""
        rules: dict[bytes, Obj] = {}
        for leaf in self._leaves(key):
            entry = self._store.get(leaf)
            for rule in (objects.decode(entry).get("rules") or ()) if entry is not None else ():
                rules.setdefault(orjson.dumps(rule, option=orjson.OPT_SORT_KEYS), rule)
        return list(rules.values())

    def _leaves(self, key: str) -> Iterator[str]:
        """The non-aggregated roles that an aggregated role contains, in order."""
        cluster = cluster_in(key)
        seen, waiting = {key}, [iter(self._parts(cluster, key))]
        while waiting:
            part = next(waiting[-1], None)
            if part is None:
                waiting.pop()
            elif part not in seen:
                seen.add(part)
                if part in self._selectors[cluster]:
                    waiting.append(iter(self._parts(cluster, part)))
                else:
                    yield part

    def _parts(self, cluster: str, key: str) -> list[str]:
        labels = sorted(self._labels[cluster].items())
        return [
            part
            for selector in self._selectors[cluster].get(key, ())
            for part, of_part in labels
            if part != key and selector.matches(of_part)
        ]


def selectors_of(role: Obj) -> Selectors:
    aggregation = role.get("aggregationRule") or {}
    return tuple(map(selector_of, aggregation.get("clusterRoleSelectors") or ()))
