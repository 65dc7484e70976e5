"""Wiring and reconcile loop of the Deployment controller."""

from __future__ import annotations

from typing import Final

from farflung.apis.names import DEPLOYMENTS
from farflung.client.errors import AlreadyExists, Refused, UpdateConflict
from farflung.controllers.workload.client import WorkloadClient
from farflung.controllers.workload.deployment.decide import decide, report_create_error, template_without_hash
from farflung.controllers.workload.model.ownership import controller_reference
from farflung.controllers.workload.model.pods import is_finished
from farflung.controllers.workload.model.steps import WorkloadPlan
from farflung.machinery.errors import Obj
from farflung.runtime.cache import CacheChange, Key
from farflung.runtime.manager import Manager
from farflung.runtime.plan import Create

NAME: Final = "deployment-controller"


class DeploymentController:
    def __init__(self, client: WorkloadClient) -> None:
        self._client = client
        self.controller = client.controller(NAME, self.reconcile)
        client.watch_owners(self.controller, client.deployments, client.replica_sets)
        client.pods.informer.subscribe(self._on_pod)

    def join(self, manager: Manager) -> None:
        self._client.join(manager, self.controller)

    def _on_pod(self, change: CacheChange[Obj]) -> None:
        """The Recreate strategy waits for the last pod to finish."""
        if change.old is None or (change.new is not None and not is_finished(change.new)):
            return
        reference = controller_reference(change.old)
        key = self._client.replica_sets.owners.key(reference["uid"]) if reference is not None else None
        replica_set = self._client.replica_sets.get(key) if key is not None else None
        owner = controller_reference(replica_set) if replica_set is not None else None
        if owner is not None and (found := self._client.deployments.owners.key(owner["uid"])) is not None:
            self.controller.queue.add(found)

    async def reconcile(self, key: Key, worker: int) -> float | None:
        client = self._client
        deployment = client.deployments.get(key)
        if deployment is None:
            return None
        await client.resolve_unknown_writes(deployment["metadata"]["uid"])
        claimed = client.claim(deployment, client.deployments, client.replica_sets)
        if claimed.steps:
            await client.perform(NAME, deployment, DEPLOYMENTS, claimed.steps)
            return None
        plan = decide(deployment, claimed.owned, self._busy(claimed.owned), client.now())
        await self._perform(deployment, plan)
        return plan.requeue_after

    def _busy(self, replica_sets: tuple[Obj, ...]) -> frozenset[str]:
        uids = (one["metadata"]["uid"] for one in replica_sets)
        client = self._client
        return frozenset(
            uid for uid in uids if any(not is_finished(pod) for pod in client.children_of(uid, client.pods))
        )

    async def _perform(self, deployment: Obj, plan: WorkloadPlan) -> None:
        client = self._client
        template = template_without_hash(deployment)
        try:
            await client.perform_hashed(
                NAME, deployment, DEPLOYMENTS, plan.steps, lambda found: template_without_hash(found) == template
            )
        except (AlreadyExists, UpdateConflict):
            raise
        except Refused as error:
            first = plan.steps[0]
            if isinstance(first.write, Create) and first.failed is not None:
                steps = report_create_error(deployment, f"{first.failed.message}{error}", client.now())
                await client.perform(NAME, deployment, DEPLOYMENTS, steps)
            raise
