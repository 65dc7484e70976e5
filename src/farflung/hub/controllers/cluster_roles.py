"""The roles and bindings that every cluster starts with.

At a start they are made where they are missing, and given what they lack of rules, subjects and labels.  Nothing is
taken from them, and those with the annotation `autoupdate: "false"` are left alone.  One that is deleted comes back
with the next start.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import orjson

from farflung.apis.resource import Resource
from farflung.hub import objects
from farflung.hub.auth.rbac.coverage import missing
from farflung.hub.auth.rbac.defaults import API_VERSION, AUTO_UPDATE, default_bindings, default_roles
from farflung.hub.auth.rbac.policy import CLUSTER_BINDINGS, CLUSTER_ROLES
from farflung.hub.auth.rbac.rules import rule_of
from farflung.hub.controllers.loopback import Inside, collection_path, object_path
from farflung.hub.controllers.reconcile_queue import Work
from farflung.hub.controllers.stored_kinds import KeptKinds
from farflung.hub.media_types import APPLY_PATCH
from farflung.hub.objects import cluster_in
from farflung.machinery.errors import Obj
from farflung.machinery.selectors import LabelSelector, selector_of
from farflung.store.base import Change, Entry, Store, Subscription

WORKERS: Final = 4
MANAGER: Final = "clusterrole-aggregation-controller"


class DefaultRoles:
    def __init__(self, store: Store, kinds: KeptKinds, inside: Inside, clusters: Iterable[str]) -> None:
        self._store = store
        homes = {"ClusterRole": CLUSTER_ROLES, "ClusterRoleBinding": CLUSTER_BINDINGS}
        self._resources = {kind: kinds.builtin(home) for kind, home in homes.items()}
        self._inside = inside
        self._clusters = tuple(clusters)
        self._wanted = [*default_roles(), *default_bindings()]
        self.work: Work[str] = Work("default-roles", self._look, workers=1)

    def start(self) -> None:
        for cluster in self._clusters:
            self.work.add(cluster)

    def stop(self) -> None:
        pass

    async def _look(self, cluster: str) -> None:
        """All at once, so that they share a commit."""
        await asyncio.gather(*(self._ensure(cluster, wanted) for wanted in self._wanted))

    async def _ensure(self, cluster: str, wanted: Obj) -> None:
        resource = self._resources[wanted["kind"]]
        key = objects.key(resource, cluster, "", wanted["metadata"]["name"])
        entry = self._store.get(key)
        if entry is None:
            await self._inside.request("POST", collection_path(resource, cluster), wanted)
            return
        present = objects.decode(entry)
        if "roleRef" in wanted and present.get("roleRef") != wanted["roleRef"]:
            await self._replace(resource, cluster, key, present, wanted)
        elif completed := complete(present, wanted):
            await self._inside.request("PUT", object_path(resource, key), completed)

    async def _replace(self, resource: Resource, cluster: str, key: str, present: Obj, wanted: Obj) -> None:
        """A binding to another role cannot be changed into the wanted one."""
        if is_kept(present):
            uid = present["metadata"]["uid"]
            await self._inside.delete(object_path(resource, key), policy="Background", uid=uid)
            await self._inside.request("POST", collection_path(resource, cluster), wanted)


def is_kept(present: Obj) -> bool:
    """Its owner has not said to leave it alone."""
    return (present["metadata"].get("annotations") or {}).get(AUTO_UPDATE) != "false"


def complete(present: Obj, wanted: Obj) -> Obj | None:
    """The present object with all that is wanted of it; None if there is nothing to add."""
    if not is_kept(present):
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
    """What somebody has changed stays changed."""
    parts = {part: wanted[part] | (present.get(part) or {}) for part in ("labels", "annotations")}
    return present | parts


def lacking(present: list[Obj], wanted: list[Obj]) -> list[Obj]:
    owned = [rule_of(rule) for rule in present]
    return [rule for rule in wanted if missing(owned, [rule_of(rule)])]


Selectors = tuple[LabelSelector, ...]


class Aggregation:
    def __init__(self, store: Store, kinds: KeptKinds, inside: Inside) -> None:
        self._store = store
        self._cluster_roles = kinds.builtin(CLUSTER_ROLES)
        self._inside = inside
        self._selectors: dict[str, dict[str, Selectors]] = {}  #: cluster → key of an aggregated role → what it is of
        self._labels: dict[str, dict[str, dict[str, str]]] = {}  #: cluster → key of a role → its labels
        self._subscriptions: list[Subscription] = []
        self.work: Work[str] = Work("aggregated-roles", self._look, workers=WORKERS)

    def start(self) -> None:
        self._subscriptions = [self._store.subscribe(CLUSTER_ROLES, self._hear)]
        for entry in self._store.list(CLUSTER_ROLES).entries:
            self._note(entry.key, entry)
        for aggregated in self._selectors.values():
            for key in aggregated:
                self.work.add(key)

    def stop(self) -> None:
        for subscription in self._subscriptions:
            subscription.cancel()

    # --- what there is ----------------------------------------------------------------------------

    def _hear(self, changes: Sequence[Change]) -> None:
        for change in changes:
            before = self._containing(change.key)
            self._note(change.key, change.entry)
            for key in before | self._containing(change.key):
                self.work.add(key)
            if change.key in self._selectors.get(cluster_in(change.key), ()):
                self.work.add(change.key)

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
        """The aggregated roles that a role is directly a part of."""
        cluster = cluster_in(key)
        labels = self._labels.get(cluster, {}).get(key)
        if labels is None:
            return set()
        return {
            whole
            for whole, selectors in self._selectors[cluster].items()
            if whole != key and any(selector.matches(labels) for selector in selectors)
        }

    # --- what there should be ---------------------------------------------------------------------

    async def _look(self, key: str) -> None:
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
        await self._inside.request("PATCH", path, wanted, query=f"fieldManager={MANAGER}&force=true", media=APPLY_PATCH)

    def _rules_of(self, key: str) -> list[Obj]:
        """Each rule once, in the order of the selectors and, for each of them, of the names."""
        rules: dict[bytes, Obj] = {}
        for leaf in self._leaves(key):
            entry = self._store.get(leaf)
            for rule in (objects.decode(entry).get("rules") or ()) if entry is not None else ():
                rules.setdefault(orjson.dumps(rule, option=orjson.OPT_SORT_KEYS), rule)
        return list(rules.values())

    def _leaves(self, key: str) -> Iterator[str]:
        """The roles that are not aggregated, of which this one is made; those that come first, first."""
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
