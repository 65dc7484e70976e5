"""The step of the StatefulSet controller."""

from __future__ import annotations

from typing import Final

from farflung.apis.names import CONTROLLER_HASH, PODS, Collection
from farflung.controllers.workload.client import WorkloadClient
from farflung.controllers.workload.model.objects import is_terminating
from farflung.controllers.workload.model.revisions import truncate_history
from farflung.controllers.workload.model.steps import WorkloadPlan
from farflung.controllers.workload.owner_controller import OwnerController
from farflung.controllers.workload.statefulset.decide import observe, ordinal, plan_pods, plan_status, revisions_in_use
from farflung.machinery.errors import Obj

NAME: Final = "statefulset-controller"


class StatefulSetController(OwnerController):
    def __init__(self, client: WorkloadClient) -> None:
        super().__init__(client, NAME, client.stateful_sets, client.revisions, client.pods)

    def may_own(self, owner: Obj, collection: Collection, child: Obj) -> bool:
        return collection != PODS or ordinal(owner, child) is not None

    async def step(self, owner: Obj, *children: tuple[Obj, ...]) -> float | None:
        revisions, pods = children
        if is_terminating(owner) or (update := await self.current_revision(owner, revisions, CONTROLLER_HASH)) is None:
            return None
        before = observe(owner, pods, revisions, update, self.client.now())

        def plan(pods: list[Obj], failure: str) -> WorkloadPlan:
            after = plan_status(observe(owner, pods, revisions, update, self.client.now()))
            history = truncate_history(owner, revisions, revisions_in_use(before))
            return WorkloadPlan((*after.steps, *history), after.requeue_after)

        return await self.maintain_pods(owner, plan_pods(before, self._claims(owner)), plan)

    def _claims(self, owner: Obj) -> frozenset[str]:
        """Names of the claims in its namespace; empty if it has no claim templates."""
        if not owner["spec"].get("volumeClaimTemplates"):
            return frozenset()
        namespace = owner["metadata"]["namespace"]
        claims = (claim["metadata"] for claim in self.client.claims.all())
        return frozenset(metadata["name"] for metadata in claims if metadata["namespace"] == namespace)
