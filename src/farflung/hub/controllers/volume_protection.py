"""Claims and volumes are not taken from those who use them: a deleted one goes when nobody does any more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from farflung.hub import objects
from farflung.hub.admission.protection import CLAIM, VOLUME
from farflung.hub.controllers.loopback import Inside, object_path
from farflung.hub.controllers.reconcile_queue import Work
from farflung.hub.controllers.stored_kinds import KeptKinds
from farflung.hub.namespaces import is_terminating
from farflung.machinery.errors import Obj
from farflung.store.base import Change, Entry, Store, Subscription

WORKERS: Final = 2
CLAIMS: Final = "/core/persistentvolumeclaims/"
VOLUMES: Final = "/core/persistentvolumes/"
PODS: Final = "/core/pods/"


class Protection:
    def __init__(self, store: Store, kinds: KeptKinds, inside: Inside) -> None:
        self._store = store
        self._inside = inside
        self._claims = kinds.builtin(CLAIMS)
        self._volumes = kinds.builtin(VOLUMES)
        self._pods = kinds.builtin(PODS)
        self._subscriptions: list[Subscription] = []
        self.work: Work[str] = Work("protection", self._look, workers=WORKERS)

    def start(self) -> None:
        subscribe = self._store.subscribe
        self._subscriptions = [
            subscribe(CLAIMS, self._hear),
            subscribe(VOLUMES, self._hear),
            subscribe(PODS, self._hear_pods),
        ]
        for home in (CLAIMS, VOLUMES):
            for entry in self._store.list(home).entries:
                if is_terminating(entry):
                    self.work.add(entry.key)

    def stop(self) -> None:
        for subscription in self._subscriptions:
            subscription.cancel()

    def _hear(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if change.entry is not None and is_terminating(change.entry):
                self.work.add(change.key)

    def _hear_pods(self, changes: Sequence[Change]) -> None:
        """A pod that goes lets go of its claims."""
        for change in changes:
            if change.entry is None and change.previous is not None:
                namespace, _ = objects.name_in(change.key)
                for name in claims_of(change.previous):
                    self.work.add(objects.key(self._claims, objects.cluster_in(change.key), namespace, name))

    async def _look(self, key: str) -> None:
        entry = self._store.get(key)
        if entry is None or not is_terminating(entry):
            return
        is_claim = key.startswith(CLAIMS)
        resource, finalizer = (self._claims, CLAIM) if is_claim else (self._volumes, VOLUME)
        obj = objects.decode(entry)
        finalizers = obj["metadata"].get("finalizers") or []
        if finalizer not in finalizers or (self._is_mounted(key) if is_claim else is_bound(obj)):
            return
        left = [one for one in finalizers if one != finalizer]
        change = {"metadata": {"finalizers": left or None}}
        await self._inside.patch(
            object_path(resource, key), change, uid=obj["metadata"]["uid"], revision=entry.revision
        )

    def _is_mounted(self, key: str) -> bool:
        """Whether a pod that was given a node uses the claim.  Claims are seldom deleted, so pods are not indexed."""
        namespace, name = objects.name_in(key)
        pods = self._store.list(objects.prefix(self._pods, objects.cluster_in(key), namespace)).entries
        return any(name in claims_of(pod) for pod in pods)


def is_bound(volume: Obj) -> bool:
    return (volume.get("status") or {}).get("phase") == "Bound"


def claims_of(entry: Entry) -> frozenset[str]:
    """The claims that a pod holds: none before it has a node."""
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
