"""The step of the Job controller, and the finalizers of pods without a Job."""

from __future__ import annotations

from typing import Final

from farflung.apis.names import PODS
from farflung.controllers.workload.client import WorkloadClient
from farflung.controllers.workload.job.decide import decide, is_tracked, release_step
from farflung.controllers.workload.model.ownership import controller_reference
from farflung.controllers.workload.owner_controller import OwnerController
from farflung.machinery.errors import Obj
from farflung.runtime.cache import CacheChange, Key
from farflung.runtime.manager import Manager

NAME: Final = "job-controller"


class JobController(OwnerController):
    def __init__(self, client: WorkloadClient) -> None:
        super().__init__(client, NAME, client.jobs, client.pods)
        self.orphans = client.controller("job-orphans", self.release, workers=1)
        client.pods.informer.subscribe(self._on_pod)
        client.jobs.informer.subscribe(self._on_job)

    def join(self, manager: Manager) -> None:
        super().join(manager)
        self.client.join(manager, self.orphans)

    async def step(self, owner: Obj, *children: tuple[Obj, ...]) -> float | None:
        (pods,) = children
        plan = decide(owner, pods, self.client.suffix, self.client.now())
        await self.perform(owner, plan.steps)
        return plan.requeue_after

    # --- finalizers of pods whose Job does not exist ----------------------------------------------

    def _on_pod(self, change: CacheChange[Obj]) -> None:
        if change.new is not None and is_tracked(change.new):
            self.orphans.queue.add(change.key)

    def _on_job(self, change: CacheChange[Obj]) -> None:
        if change.old is not None and change.new is None:
            self.orphans.queue.add_all(self.client.pods.children.keys_of(change.old["metadata"]["uid"]))

    async def release(self, key: Key, worker: int) -> float | None:
        client = self.client
        pod = client.pods.get(key)
        if pod is None or not is_tracked(pod):
            return None
        owner = controller_reference(pod)
        if owner is None or client.jobs.owners.key(owner["uid"]) is None:
            await client.perform(NAME, pod, PODS, [release_step(pod)])
        return None
