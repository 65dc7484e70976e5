"""Protection of claims and volumes in use: removes the finalizer of a deleted one when its last use ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from farflung.apis.core.claims import CLAIM, VOLUME
from farflung.hub.catalog import objects
from farflung.hub.controllers.loopback import LoopbackClient, object_path
from farflung.hub.controllers.reconcile_queue import ReconcileQueue
from farflung.hub.controllers.stored_kinds import StoredKinds
from farflung.machinery.errors import Obj
from farflung.store.base import Change, Entry, Store, Subscription

WORKERS: Final = 2
CLAIMS: Final = "/core/persistentvolumeclaims/"
VOLUMES: Final = "/core/persistentvolumes/"
PODS: Final = "/core/pods/"


class VolumeProtectionController:
    def __init__(self, store: Store, kinds: StoredKinds, client: LoopbackClient) -> None:
        self._store = store
        self._client = client
        self._claims = kinds.builtin(CLAIMS)
        self._volumes = kinds.builtin(VOLUMES)
        self._pods = kinds.builtin(PODS)
        self._subscriptions: list[Subscription] = []
        self.queue: ReconcileQueue[str] = ReconcileQueue("protection", self._reconcile, workers=WORKERS)

    def start(self) -> None:
        subscribe = self._store.subscribe
        self._subscriptions = [
            subscribe(CLAIMS, self._on_changes),
            subscribe(VOLUMES, self._on_changes),
            subscribe(PODS, self._on_pods),
        ]
        for prefix in (CLAIMS, VOLUMES):
            for entry in self._store.list(prefix).entries:
                if objects.is_terminating(entry):
                    self.queue.add(entry.key)

    def stop(self) -> None:
        for subscription in self._subscriptions:
            subscription.cancel()

    def _on_changes(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if change.entry is not None and objects.is_terminating(change.entry):
                self.queue.add(change.key)

    def _on_pods(self, changes: Sequence[Change]) -> None:
        """A deleted pod no longer uses its claims."""
        for change in changes:
            if change.entry is None and change.previous is not None:
                namespace, _ = objects.name_in(change.key)
                for name in claims_of(change.previous):
                    self.queue.add(objects.key(self._claims, objects.cluster_in(change.key), namespace, name))

    async def _reconcile(self, key: str) -> None:
        entry = self._store.get(key)
        if entry is None or not objects.is_terminating(entry):
            return
        is_claim = key.startswith(CLAIMS)
        resource, finalizer = (self._claims, CLAIM) if is_claim else (self._volumes, VOLUME)
        obj = objects.decode(entry)
        finalizers = obj["metadata"].get("finalizers") or []
        if finalizer not in finalizers or (self._is_mounted(key) if is_claim else is_bound(obj)):
            return
        left = [one for one in finalizers if one != finalizer]
        change = {"metadata": {"finalizers": left or None}}
        await self._client.patch(
            object_path(resource, key), change, uid=obj["metadata"]["uid"], revision=entry.revision
        )

    def _is_mounted(self, key: str) -> bool:
        """Whether a pod with a node uses the claim.  Claims are rarely deleted, so pods are not indexed."""
        namespace, name = objects.name_in(key)
        pods = self._store.list(objects.prefix(self._pods, objects.cluster_in(key), namespace)).entries
        return any(name in claims_of(pod) for pod in pods)


def is_bound(volume: Obj) -> bool:
    return (volume.get("status") or {}).get("phase") == "Bound"


def claims_of(entry: Entry) -> frozenset[str]:
    """The claims that a pod uses: none before it has a node."""
    if b'"persistentVolumeClaim"' not in entry.value and b'"ephemeral"' not in entry.value:
        return frozenset()
    pod = objects.decode(entry)
    spec = pod.get("spec") or {}
    return frozenset(_claims(pod["metadata"]["name"], spec)) if spec.get("nodeName") else frozenset()


def _claims(pod: str, spec: Obj) -> Iterator[str]:
    for volume in spec.get("volumes") or ():
        if claim := volume.get("persistentVolumeClaim"):
            yield claim.get("claimName", "")
        elif volume.get("ephemeral") is not None:
            yield f"{pod}-{volume['name']}"
