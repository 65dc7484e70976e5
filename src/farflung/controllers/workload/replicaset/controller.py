"""The controller of ReplicaSets."""

from __future__ import annotations

from typing import Final

from farflung.client.errors import AlreadyExists, Conflict, Refused
from farflung.controllers.workload.client import Workshop
from farflung.controllers.workload.objects import REPLICA_SETS
from farflung.controllers.workload.replicaset.decide import about_pods, about_status
from farflung.runtime.cache import Key
from farflung.runtime.manager import Manager

NAME: Final = "replicaset-controller"


class ReplicaSetController:
    def __init__(self, workshop: Workshop) -> None:
        self._workshop = workshop
        self.controller = workshop.controller(NAME, self.reconcile)
        workshop.own(self.controller, workshop.replica_sets, workshop.pods)

    def join(self, manager: Manager) -> None:
        self._workshop.join(manager, self.controller)

    async def reconcile(self, key: Key, worker: int) -> float | None:
        workshop, shelf = self._workshop, self._workshop.replica_sets
        replica_set = shelf.get(key)
        if replica_set is None:
            return None
        uid = replica_set["metadata"]["uid"]
        await workshop.settle(uid)
        claimed = workshop.claimed(replica_set, shelf, workshop.pods)
        if claimed.steps:
            await workshop.perform(NAME, replica_set, REPLICA_SETS, claimed.steps)
            return None  # what was written is looked at next
        refusal: Refused | None = None
        try:
            steps = about_pods(replica_set, claimed.owned, workshop.suffix)
            await workshop.perform(NAME, replica_set, REPLICA_SETS, steps)
        except (Conflict, AlreadyExists):
            raise
        except Refused as error:
            refusal = error
        failure = str(refusal) if refusal is not None else ""
        plan = about_status(replica_set, workshop.of(uid, workshop.pods), failure, workshop.now())
        await workshop.perform(NAME, replica_set, REPLICA_SETS, plan.steps)
        if refusal is not None:
            raise refusal
        return plan.again
