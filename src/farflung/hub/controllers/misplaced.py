"""Owners in another namespace: they own nothing, and whoever named one is told so by an Event."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Final

from farflung.apis.resource import Resource
from farflung.hub import objects
from farflung.hub.controllers.loopback import Inside, collection_path
from farflung.hub.controllers.owner_graph import Identity, Reference, uid_of
from farflung.hub.controllers.stored_kinds import KeptKinds
from farflung.hub.objects import cluster_in
from farflung.machinery.errors import ApiError, Obj
from farflung.machinery.times import format_seconds
from farflung.store.base import Entry, Store

COMPONENT: Final = "garbage-collector-controller"
REASON: Final = "OwnerRefInvalidNamespace"
EVENTS: Final = "/core/events/"
NAMESPACES: Final = "/core/namespaces/"
USUAL: Final = "default"  #: where Events about a cluster's own objects are

log = logging.getLogger(__name__)


class Misplaced:
    def __init__(self, store: Store, kinds: KeptKinds, inside: Inside, clock: Callable[[], datetime]) -> None:
        self._store = store
        self._kinds = kinds
        self._inside = inside
        self._clock = clock
        self._events = kinds.builtin(EVENTS)

    async def tell(self, entry: Entry, identity: Identity) -> None:
        """Of every owner that is not where the object is, and is somewhere else."""
        for reference in identity.references:
            if self._is_elsewhere(entry.key, reference):
                await self._tell(entry, identity, reference)

    def _is_elsewhere(self, key: str, reference: Reference) -> bool:
        resource = self._kinds.of_type(cluster_in(key), reference.apiVersion, reference.kind)
        if resource is None or not resource.namespaced:
            return False
        own = objects.name_in(key)[0]
        places = self._places(resource, cluster_in(key), own, reference.name)
        return any(uid_of(found) == reference.uid for place in places if (found := self._store.get(place)))

    def _places(self, resource: Resource, cluster: str, own: str, name: str) -> Iterator[str]:
        for entry in self._store.list(f"{NAMESPACES}{cluster}/").entries:
            namespace = objects.name_in(entry.key)[1]
            if namespace != own:
                yield objects.key(resource, cluster, namespace, name)

    async def _tell(self, entry: Entry, identity: Identity, reference: Reference) -> None:
        resource = self._kinds.of_key(entry.key)
        if resource is None:
            return
        namespace, name = objects.name_in(entry.key)
        path = collection_path(self._events, cluster_in(entry.key), namespace or USUAL)
        try:
            await self._inside.request("POST", path, self._event(resource, namespace, name, identity.uid, reference))
        except ApiError as error:
            log.debug("nobody is told of the wrong owner of %s: %s", entry.key, error.reason)

    def _event(self, resource: Resource, namespace: str, name: str, uid: str, reference: Reference) -> Obj:
        now = self._clock()
        involved = {"kind": resource.kind, "apiVersion": resource.api_version, "name": name, "uid": uid}
        if namespace:
            involved["namespace"] = namespace
        owner = (
            f"[{reference.apiVersion}/{reference.kind}, namespace: {namespace}, name: {reference.name}, "
            f"uid: {reference.uid}]"
        )
        return {
            "metadata": {"name": f"{name}.{int(now.timestamp() * 1e9):x}", "namespace": namespace or USUAL},
            "involvedObject": involved,
            "reason": REASON,
            "message": f'ownerRef {owner} does not exist in namespace "{namespace}"',
            "source": {"component": COMPONENT},
            "reportingComponent": COMPONENT,
            "firstTimestamp": format_seconds(now),
            "lastTimestamp": format_seconds(now),
            "count": 1,
            "type": "Warning",
        }
