"""The step of the DaemonSet controller."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from farflung.controllers.workload.client import WorkloadClient
from farflung.controllers.workload.daemonset.decide import (
    REVISION,
    DaemonSetState,
    observe,
    plan_pods,
    plan_status,
    revisions_in_use,
)
from farflung.controllers.workload.model.node_fitness import changes_node
from farflung.controllers.workload.model.objects import is_terminating
from farflung.controllers.workload.model.revisions import revision_hash, truncate_history
from farflung.controllers.workload.model.steps import WorkloadPlan
from farflung.controllers.workload.owner_controller import OwnerController
from farflung.machinery.errors import Obj
from farflung.runtime.cache import CacheChange

NAME: Final = "daemonset-controller"


class DaemonSetController(OwnerController):
    def __init__(self, client: WorkloadClient) -> None:
        super().__init__(client, NAME, client.daemon_sets, client.revisions, client.pods)
        client.nodes.informer.subscribe(self._on_node)

    def _on_node(self, change: CacheChange[Obj]) -> None:
        if changes_node(change):
            self.controller.queue.add_all(self.owners.owners.all_keys())

    async def step(self, owner: Obj, *children: tuple[Obj, ...]) -> float | None:
        revisions, pods = children
        if is_terminating(owner) or (update := await self.current_revision(owner, revisions, REVISION)) is None:
            return None
        hashed = revision_hash(update, REVISION)
        before = self._observe(owner, pods, hashed)

        def plan(pods: list[Obj], failure: str) -> WorkloadPlan:
            after = plan_status(self._observe(owner, pods, hashed))
            history = truncate_history(owner, revisions, revisions_in_use(before, revisions))
            return WorkloadPlan((*after.steps, *history), after.requeue_after)

        return await self.maintain_pods(owner, plan_pods(before, self.client.suffix), plan)

    def _observe(self, owner: Obj, pods: Iterable[Obj], hashed: str) -> DaemonSetState:
        nodes = [node for node in self.client.nodes.all() if not is_terminating(node)]
        return observe(owner, pods, nodes, hashed, self.client.now())
