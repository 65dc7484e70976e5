"""Wiring and reconcile loop of the Job controller."""

from __future__ import annotations

from typing import Final

from farflung.apis.names import JOBS, PODS
from farflung.controllers.workload.client import WorkloadClient
from farflung.controllers.workload.job.decide import decide, is_tracked, release_step
from farflung.controllers.workload.model.ownership import controller_reference
from farflung.machinery.errors import Obj
from farflung.runtime.cache import CacheChange, Key
from farflung.runtime.manager import Manager

NAME: Final = "job-controller"


class JobController:
    def __init__(self, client: WorkloadClient) -> None:
        self._client = client
        self.controller = client.controller(NAME, self.reconcile)
        self.strays = client.controller("job-strays", self.release, workers=1)
        client.watch_owners(self.controller, client.jobs, client.pods)
        client.pods.informer.subscribe(self._on_pod)
        client.jobs.informer.subscribe(self._on_job)

    def join(self, manager: Manager) -> None:
        self._client.join(manager, self.controller)
        self._client.join(manager, self.strays)

    async def reconcile(self, key: Key, worker: int) -> float | None:
        client = self._client
        job = client.jobs.get(key)
        if job is None:
            return None
        await client.resolve_unknown_writes(job["metadata"]["uid"])
        claimed = client.claim(job, client.jobs, client.pods)
        if claimed.steps:
            await client.perform(NAME, job, JOBS, claimed.steps)
            return None
        plan = decide(job, claimed.owned, client.suffix, client.now())
        await client.perform(NAME, job, JOBS, plan.steps)
        return plan.requeue_after

    # --- finalizers of pods whose Job does not exist ----------------------------------------------

    def _on_pod(self, change: CacheChange[Obj]) -> None:
        if change.new is not None and is_tracked(change.new):
            self.strays.queue.add(change.key)

    def _on_job(self, change: CacheChange[Obj]) -> None:
        if change.old is not None and change.new is None:
            for key in self._client.pods.children.keys_of(change.old["metadata"]["uid"]):
                self.strays.queue.add(key)

    async def release(self, key: Key, worker: int) -> float | None:
        client = self._client
        pod = client.pods.get(key)
        if pod is None or not is_tracked(pod):
            return None
        owner = controller_reference(pod)
        if owner is None or client.jobs.owners.key(owner["uid"]) is None:
            await client.perform(NAME, pod, PODS, [release_step(pod)])
        return None
