"""The step of the Deployment controller."""

from __future__ import annotations

from typing import Final

from farflung.client.errors import AlreadyExists, Refused, UpdateConflict
from farflung.controllers.workload.client import WorkloadClient
from farflung.controllers.workload.deployment.decide import decide, report_create_error, template_without_hash
from farflung.controllers.workload.model.ownership import controller_reference
from farflung.controllers.workload.model.pods import is_finished
from farflung.controllers.workload.owner_controller import OwnerController
from farflung.machinery.errors import Obj
from farflung.runtime.cache import CacheChange
from farflung.runtime.plan import Create

NAME: Final = "deployment-controller"


class DeploymentController(OwnerController):
    def __init__(self, client: WorkloadClient) -> None:
        super().__init__(client, NAME, client.deployments, client.replica_sets)
        client.pods.informer.subscribe(self._on_pod)

    def _on_pod(self, change: CacheChange[Obj]) -> None:
        """The Recreate strategy waits for the last pod to finish."""
        if change.old is None or (change.new is not None and not is_finished(change.new)):
            return
        reference = controller_reference(change.old)
        key = self.client.replica_sets.owners.key(reference["uid"]) if reference is not None else None
        replica_set = self.client.replica_sets.get(key) if key is not None else None
        owner = controller_reference(replica_set) if replica_set is not None else None
        if owner is not None and (found := self.client.deployments.owners.key(owner["uid"])) is not None:
            self.controller.queue.add(found)

    async def step(self, owner: Obj, *children: tuple[Obj, ...]) -> float | None:
        (replica_sets,) = children
        plan = decide(owner, replica_sets, self._busy(replica_sets), self.client.now())
        template = template_without_hash(owner)
        try:
            await self.perform_hashed(owner, plan.steps, lambda found: template_without_hash(found) == template)
        except (AlreadyExists, UpdateConflict):
            raise
        except Refused as error:
            first = plan.steps[0]
            if isinstance(first.write, Create) and first.failed is not None:
                message = f"{first.failed.message}{error}"
                await self.perform(owner, report_create_error(owner, message, self.client.now()))
            raise
        return plan.requeue_after

    def _busy(self, replica_sets: tuple[Obj, ...]) -> frozenset[str]:
        """The uids of those with unfinished pods."""
        client = self.client
        uids = (one["metadata"]["uid"] for one in replica_sets)
        return frozenset(
            uid for uid in uids if any(not is_finished(pod) for pod in client.children_of(uid, client.pods))
        )
