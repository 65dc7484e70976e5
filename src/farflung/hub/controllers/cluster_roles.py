"""The roles and bindings that every cluster starts with.

At a start they are made where they are missing, and given what they lack of rules, subjects and labels.  Nothing is
taken from them, and those with the annotation `autoupdate: "false"` are left alone.  One that is deleted comes back
with the next start.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from farflung.apis.resource import Resource
from farflung.hub import objects
from farflung.hub.auth.rbac.coverage import missing
from farflung.hub.auth.rbac.defaults import AUTO_UPDATE, default_bindings, default_roles
from farflung.hub.auth.rbac.policy import CLUSTER_BINDINGS, CLUSTER_ROLES
from farflung.hub.auth.rbac.rules import rule_of
from farflung.hub.controllers.loopback import Inside, collection_path, object_path
from farflung.hub.controllers.reconcile_queue import Work
from farflung.hub.controllers.stored_kinds import KeptKinds
from farflung.machinery.errors import Obj
from farflung.store.base import Store


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
