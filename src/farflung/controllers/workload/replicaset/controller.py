"""Wiring and reconcile loop of the ReplicaSet controller."""

from __future__ import annotations

from typing import Final

from farflung.apis.names import REPLICA_SETS
from farflung.controllers.workload.client import WorkloadClient
from farflung.controllers.workload.replicaset.decide import plan_pods, plan_status
from farflung.runtime.cache import Key
from farflung.runtime.manager import Manager

NAME: Final = "replicaset-controller"


class ReplicaSetController:
    def __init__(self, client: WorkloadClient) -> None:
        self._client = client
        self.controller = client.controller(NAME, self.reconcile)
        client.watch_owners(self.controller, client.replica_sets, client.pods)

    def join(self, manager: Manager) -> None:
        self._client.join(manager, self.controller)

    async def reconcile(self, key: Key, worker: int) -> float | None:
        client, cache = self._client, self._client.replica_sets
        replica_set = cache.get(key)
        if replica_set is None:
            return None
        uid = replica_set["metadata"]["uid"]
        await client.resolve_unknown_writes(uid)
        claimed = client.claim(replica_set, cache, client.pods)
        if claimed.steps:
            await client.perform(NAME, replica_set, REPLICA_SETS, claimed.steps)
            return None  # the writes queue it again
        steps = plan_pods(replica_set, claimed.owned, client.suffix)
        refusal = await client.try_perform(NAME, replica_set, REPLICA_SETS, steps)
        failure = str(refusal) if refusal is not None else ""
        plan = plan_status(replica_set, client.children_of(uid, client.pods), failure, client.now())
        await client.perform(NAME, replica_set, REPLICA_SETS, plan.steps)
        if refusal is not None:
            raise refusal
        return plan.requeue_after
