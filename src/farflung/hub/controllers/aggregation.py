"""ClusterRoles that are made of others: each has the rules of all that its selectors match.

What an aggregated role consists of is worked out down to roles that are not aggregated themselves.  So several that
depend on each other are complete at once, and two that contain each other come to rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import orjson

from farflung.hub import objects
from farflung.hub.auth.rbac.defaults import API_VERSION
from farflung.hub.auth.rbac.policy import CLUSTER_ROLES
from farflung.hub.controllers.loopback import Inside, object_path
from farflung.hub.controllers.reconcile_queue import Work
from farflung.hub.controllers.stored_kinds import KeptKinds
from farflung.hub.media_types import APPLY_PATCH
from farflung.hub.objects import cluster_in
from farflung.machinery.errors import Obj
from farflung.machinery.selectors import LabelSelector, selector_of
from farflung.store.base import Change, Entry, Store, Subscription

WORKERS: Final = 4
MANAGER: Final = "clusterrole-aggregation-controller"

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
