"""The step of the ReplicaSet controller."""

from __future__ import annotations

from typing import Final

from farflung.controllers.workload.client import WorkloadClient
from farflung.controllers.workload.owner_controller import OwnerController
from farflung.controllers.workload.replicaset.decide import plan_pods, plan_status
from farflung.machinery.errors import Obj

NAME: Final = "replicaset-controller"


class ReplicaSetController(OwnerController):
    def __init__(self, client: WorkloadClient) -> None:
        super().__init__(client, NAME, client.replica_sets, client.pods)

    async def step(self, owner: Obj, *children: tuple[Obj, ...]) -> float | None:
        (pods,) = children
        steps = plan_pods(owner, pods, self.client.suffix)
        return await self.maintain_pods(
            owner, steps, lambda pods, failure: plan_status(owner, pods, failure, self.client.now())
        )
