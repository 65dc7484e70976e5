"""Wiring and reconcile loop of the DaemonSet controller."""

from __future__ import annotations

from typing import Final

from farflung.apis.names import DAEMON_SETS
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
from farflung.controllers.workload.model.revisions import (
    find_current,
    record_template,
    revision_data,
    revision_hash,
    truncate_history,
)
from farflung.machinery.errors import Obj
from farflung.runtime.cache import CacheChange, Key
from farflung.runtime.manager import Manager

NAME: Final = "daemonset-controller"


class DaemonSetController:
    def __init__(self, client: WorkloadClient) -> None:
        self._client = client
        self.controller = client.controller(NAME, self.reconcile)
        client.watch_owners(self.controller, client.daemon_sets, client.pods, client.revisions)
        client.nodes.informer.subscribe(self._on_node)

    def join(self, manager: Manager) -> None:
        self._client.join(manager, self.controller)

    def _on_node(self, change: CacheChange[Obj]) -> None:
        if changes_node(change):
            for key in self._client.daemon_sets.owners.all_keys():
                self.controller.queue.add(key)

    async def reconcile(self, key: Key, worker: int) -> float | None:
        client, cache = self._client, self._client.daemon_sets
        owner = cache.get(key)
        if owner is None or is_terminating(owner):
            return None
        await client.resolve_unknown_writes(owner["metadata"]["uid"])
        revisions = client.claim(owner, cache, client.revisions)
        pods = client.claim(owner, cache, client.pods)
        if steps := (*revisions.steps, *pods.steps):
            await client.perform(NAME, owner, DAEMON_SETS, steps)
            return None
        if (step := record_template(owner, DAEMON_SETS, revisions.owned, REVISION)) is not None:
            data = revision_data(owner)
            await client.perform_hashed(NAME, owner, DAEMON_SETS, [step], lambda found: bool(found.get("data") == data))
            return None
        update = find_current(owner, revisions.owned)
        assert update is not None
        return await self._maintain(self._observe(owner, pods.owned, revision_hash(update, REVISION)), revisions.owned)

    def _observe(self, owner: Obj, pods: tuple[Obj, ...] | list[Obj], hashed: str) -> DaemonSetState:
        nodes = [node for node in self._client.nodes.all() if not is_terminating(node)]
        return observe(owner, pods, nodes, hashed, self._client.now())

    async def _maintain(self, state: DaemonSetState, revisions: tuple[Obj, ...]) -> float | None:
        client, owner = self._client, state.owner
        refusal = await client.try_perform(NAME, owner, DAEMON_SETS, plan_pods(state, client.suffix))
        pods = client.children_of(owner["metadata"]["uid"], client.pods)
        plan = plan_status(self._observe(owner, pods, state.hashed))
        steps = (*plan.steps, *truncate_history(owner, revisions, revisions_in_use(state, revisions)))
        await client.perform(NAME, owner, DAEMON_SETS, steps)
        if refusal is not None:
            raise refusal
        return plan.requeue_after
