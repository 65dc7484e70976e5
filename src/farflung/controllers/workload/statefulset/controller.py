"""Wiring and reconcile loop of the StatefulSet controller."""

from __future__ import annotations

from typing import Final

from farflung.apis.names import CONTROLLER_HASH, STATEFUL_SETS
from farflung.controllers.workload.client import WorkloadClient
from farflung.controllers.workload.model.objects import is_terminating
from farflung.controllers.workload.model.revisions import find_current, record_template, revision_data, truncate_history
from farflung.controllers.workload.statefulset.decide import (
    StatefulSetState,
    observe,
    ordinal,
    plan_pods,
    plan_status,
    revisions_in_use,
)
from farflung.machinery.errors import Obj
from farflung.runtime.cache import Key
from farflung.runtime.manager import Manager

NAME: Final = "statefulset-controller"


class StatefulSetController:
    def __init__(self, client: WorkloadClient) -> None:
        self._client = client
        self.controller = client.controller(NAME, self.reconcile)
        client.watch_owners(self.controller, client.stateful_sets, client.pods, client.revisions)

    def join(self, manager: Manager) -> None:
        self._client.join(manager, self.controller)

    async def reconcile(self, key: Key, worker: int) -> float | None:
        client, cache = self._client, self._client.stateful_sets
        owner = cache.get(key)
        if owner is None or is_terminating(owner):
            return None
        await client.resolve_unknown_writes(owner["metadata"]["uid"])
        revisions = client.claim(owner, cache, client.revisions)
        pods = client.claim(owner, cache, client.pods, lambda pod: ordinal(owner, pod) is not None)
        if steps := (*revisions.steps, *pods.steps):
            await client.perform(NAME, owner, STATEFUL_SETS, steps)
            return None
        if (step := record_template(owner, STATEFUL_SETS, revisions.owned, CONTROLLER_HASH)) is not None:
            data = revision_data(owner)
            await client.perform_hashed(
                NAME, owner, STATEFUL_SETS, [step], lambda found: bool(found.get("data") == data)
            )
            return None
        update = find_current(owner, revisions.owned)
        assert update is not None
        return await self._maintain(observe(owner, pods.owned, revisions.owned, update, client.now()), revisions.owned)

    async def _maintain(self, state: StatefulSetState, revisions: tuple[Obj, ...]) -> float | None:
        client, owner = self._client, state.owner
        refusal = await client.try_perform(NAME, owner, STATEFUL_SETS, plan_pods(state, self._claims(owner)))
        pods = client.children_of(owner["metadata"]["uid"], client.pods)
        plan = plan_status(observe(owner, pods, revisions, state.update, client.now()))
        steps = (*plan.steps, *truncate_history(owner, revisions, revisions_in_use(state)))
        await client.perform(NAME, owner, STATEFUL_SETS, steps)
        if refusal is not None:
            raise refusal
        return plan.requeue_after

    def _claims(self, owner: Obj) -> frozenset[str]:
        """Names of the claims in its namespace; empty if it has no claim templates."""
        if not owner["spec"].get("volumeClaimTemplates"):
            return frozenset()
        namespace = owner["metadata"]["namespace"]
        claims = (claim["metadata"] for claim in self._client.claims.all())
        return frozenset(metadata["name"] for metadata in claims if metadata["namespace"] == namespace)
