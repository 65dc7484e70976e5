"""The controller of Deployments."""

from __future__ import annotations

from typing import Final

from farflung.client.errors import AlreadyExists, Conflict, Refused
from farflung.controllers.workload.client import Workshop
from farflung.controllers.workload.deployment.decide import decide, refused
from farflung.controllers.workload.deployment.rollout import template_of
from farflung.controllers.workload.objects import DEPLOYMENTS
from farflung.controllers.workload.ownership import controller_of
from farflung.controllers.workload.pods import is_finished
from farflung.controllers.workload.steps import Plan
from farflung.machinery.errors import Obj
from farflung.runtime.cache import Change, Key
from farflung.runtime.manager import Manager
from farflung.runtime.plan import Create

NAME: Final = "deployment-controller"


class DeploymentController:
    def __init__(self, workshop: Workshop) -> None:
        self._workshop = workshop
        self.controller = workshop.controller(NAME, self.reconcile)
        workshop.own(self.controller, workshop.deployments, workshop.replica_sets)
        workshop.pods.informer.subscribe(self._on_pod)

    def join(self, manager: Manager) -> None:
        self._workshop.join(manager, self.controller)

    def _on_pod(self, change: Change[Obj]) -> None:
        """Who recreates waits for the last pod to end; everybody else is told by ReplicaSets."""
        if change.old is None or (change.new is not None and not is_finished(change.new)):
            return
        reference = controller_of(change.old)
        key = self._workshop.replica_sets.owners.key(reference["uid"]) if reference is not None else None
        replica_set = self._workshop.replica_sets.get(key) if key is not None else None
        owner = controller_of(replica_set) if replica_set is not None else None
        if owner is not None and (found := self._workshop.deployments.owners.key(owner["uid"])) is not None:
            self.controller.queue.add(found)

    async def reconcile(self, key: Key, worker: int) -> float | None:
        workshop = self._workshop
        deployment = workshop.deployments.get(key)
        if deployment is None:
            return None
        await workshop.settle(deployment["metadata"]["uid"])
        claimed = workshop.claimed(deployment, workshop.deployments, workshop.replica_sets)
        if claimed.steps:
            await workshop.perform(NAME, deployment, DEPLOYMENTS, claimed.steps)
            return None
        plan = decide(deployment, claimed.owned, self._busy(claimed.owned), workshop.now())
        await self._perform(deployment, plan)
        return plan.again

    def _busy(self, replica_sets: tuple[Obj, ...]) -> frozenset[str]:
        uids = (one["metadata"]["uid"] for one in replica_sets)
        workshop = self._workshop
        return frozenset(uid for uid in uids if any(not is_finished(pod) for pod in workshop.of(uid, workshop.pods)))

    async def _perform(self, deployment: Obj, plan: Plan) -> None:
        workshop = self._workshop
        template = template_of(deployment)
        try:
            await workshop.perform_naming(
                NAME, deployment, DEPLOYMENTS, plan.steps, lambda found: template_of(found) == template
            )
        except (AlreadyExists, Conflict):
            raise
        except Refused as error:
            first = plan.steps[0]
            if isinstance(first.write, Create) and first.failed is not None:
                steps = refused(deployment, f"{first.failed.message}{error}", workshop.now())
                await workshop.perform(NAME, deployment, DEPLOYMENTS, steps)
            raise
