"""The controller of Jobs."""

from __future__ import annotations

from typing import Final

from farflung.controllers.workload.client import Workshop
from farflung.controllers.workload.job.decide import decide
from farflung.controllers.workload.job.pods import is_tracked, released
from farflung.controllers.workload.objects import JOBS, PODS
from farflung.controllers.workload.ownership import controller_of
from farflung.machinery.errors import Obj
from farflung.runtime.cache import Change, Key
from farflung.runtime.manager import Manager

NAME: Final = "job-controller"


class JobController:
    def __init__(self, workshop: Workshop) -> None:
        self._workshop = workshop
        self.controller = workshop.controller(NAME, self.reconcile)
        self.strays = workshop.controller("job-strays", self.release, workers=1)
        workshop.own(self.controller, workshop.jobs, workshop.pods)
        workshop.pods.informer.subscribe(self._on_pod)
        workshop.jobs.informer.subscribe(self._on_job)

    def join(self, manager: Manager) -> None:
        self._workshop.join(manager, self.controller)
        self._workshop.join(manager, self.strays)

    async def reconcile(self, key: Key, worker: int) -> float | None:
        workshop = self._workshop
        job = workshop.jobs.get(key)
        if job is None:
            return None
        await workshop.settle(job["metadata"]["uid"])
        claimed = workshop.claimed(job, workshop.jobs, workshop.pods)
        if claimed.steps:
            await workshop.perform(NAME, job, JOBS, claimed.steps)
            return None
        plan = decide(job, claimed.owned, workshop.suffix, workshop.now())
        await workshop.perform(NAME, job, JOBS, plan.steps)
        return plan.again

    # --- pods whose Job is gone, and which nobody counts any more ---------------------------------

    def _on_pod(self, change: Change[Obj]) -> None:
        if change.new is not None and is_tracked(change.new):
            self.strays.queue.add(change.key)

    def _on_job(self, change: Change[Obj]) -> None:
        if change.old is not None and change.new is None:
            for key in self._workshop.pods.children.of(change.old["metadata"]["uid"]):
                self.strays.queue.add(key)

    async def release(self, key: Key, worker: int) -> float | None:
        workshop = self._workshop
        pod = workshop.pods.get(key)
        if pod is None or not is_tracked(pod):
            return None
        owner = controller_of(pod)
        if owner is None or workshop.jobs.owners.key(owner["uid"]) is None:
            await workshop.perform(NAME, pod, PODS, [released(pod)])
        return None
