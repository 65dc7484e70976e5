"""The controller of DaemonSets."""

from __future__ import annotations

from typing import Final

from farflung.client.errors import AlreadyExists, Conflict, Refused
from farflung.controllers.workload.client import Workshop
from farflung.controllers.workload.daemonset.decide import REVISION, Whole, about_pods, about_status, used, whole
from farflung.controllers.workload.objects import DAEMON_SETS, is_terminating
from farflung.controllers.workload.pod_scheduler.triggers import is_other_node
from farflung.controllers.workload.revisions import data_of, forgetting, hash_of, present, recording
from farflung.machinery.errors import Obj
from farflung.runtime.cache import Change, Key
from farflung.runtime.manager import Manager

NAME: Final = "daemonset-controller"


class DaemonSetController:
    def __init__(self, workshop: Workshop) -> None:
        self._workshop = workshop
        self.controller = workshop.controller(NAME, self.reconcile)
        workshop.own(self.controller, workshop.daemon_sets, workshop.pods, workshop.revisions)
        workshop.nodes.informer.subscribe(self._on_node)

    def join(self, manager: Manager) -> None:
        self._workshop.join(manager, self.controller)

    def _on_node(self, change: Change[Obj]) -> None:
        if is_other_node(change):
            for key in self._workshop.daemon_sets.owners.every():
                self.controller.queue.add(key)

    async def reconcile(self, key: Key, worker: int) -> float | None:
        workshop, shelf = self._workshop, self._workshop.daemon_sets
        owner = shelf.get(key)
        if owner is None or is_terminating(owner):
            return None
        await workshop.settle(owner["metadata"]["uid"])
        revisions = workshop.claimed(owner, shelf, workshop.revisions)
        pods = workshop.claimed(owner, shelf, workshop.pods)
        if steps := (*revisions.steps, *pods.steps):
            await workshop.perform(NAME, owner, DAEMON_SETS, steps)
            return None
        if (step := recording(owner, DAEMON_SETS, revisions.owned, REVISION)) is not None:
            data = data_of(owner)
            await workshop.perform_naming(
                NAME, owner, DAEMON_SETS, [step], lambda found: bool(found.get("data") == data)
            )
            return None
        update = present(owner, revisions.owned)
        assert update is not None
        return await self._maintain(self._whole(owner, pods.owned, hash_of(update, REVISION)), revisions.owned)

    def _whole(self, owner: Obj, pods: tuple[Obj, ...] | list[Obj], hashed: str) -> Whole:
        nodes = [node for node in self._workshop.nodes.all() if not is_terminating(node)]
        return whole(owner, pods, nodes, hashed, self._workshop.now())

    async def _maintain(self, one: Whole, revisions: tuple[Obj, ...]) -> float | None:
        workshop, owner = self._workshop, one.owner
        refusal: Refused | None = None
        try:
            await workshop.perform(NAME, owner, DAEMON_SETS, about_pods(one, workshop.suffix))
        except (Conflict, AlreadyExists):
            raise
        except Refused as error:
            refusal = error
        pods = workshop.of(owner["metadata"]["uid"], workshop.pods)
        plan = about_status(self._whole(owner, pods, one.hashed))
        steps = (*plan.steps, *forgetting(owner, revisions, used(one, revisions, REVISION)))
        await workshop.perform(NAME, owner, DAEMON_SETS, steps)
        if refusal is not None:
            raise refusal
        return plan.again
