"""The controller of StatefulSets."""

from __future__ import annotations

from typing import Final

from farflung.client.errors import AlreadyExists, Conflict, Refused
from farflung.controllers.workload.client import Workshop
from farflung.controllers.workload.objects import STATEFUL_SETS, is_terminating
from farflung.controllers.workload.revisions import data_of, forgetting, present, recording
from farflung.controllers.workload.statefulset.decide import HASH, Whole, about_pods, about_status, ordinal, used, whole
from farflung.machinery.errors import Obj
from farflung.runtime.cache import Key
from farflung.runtime.manager import Manager

NAME: Final = "statefulset-controller"


class StatefulSetController:
    def __init__(self, workshop: Workshop) -> None:
        self._workshop = workshop
        self.controller = workshop.controller(NAME, self.reconcile)
        workshop.own(self.controller, workshop.stateful_sets, workshop.pods, workshop.revisions)

    def join(self, manager: Manager) -> None:
        self._workshop.join(manager, self.controller)

    async def reconcile(self, key: Key, worker: int) -> float | None:
        workshop, shelf = self._workshop, self._workshop.stateful_sets
        owner = shelf.get(key)
        if owner is None or is_terminating(owner):
            return None
        await workshop.settle(owner["metadata"]["uid"])
        revisions = workshop.claimed(owner, shelf, workshop.revisions)
        pods = workshop.claimed(owner, shelf, workshop.pods, lambda pod: ordinal(owner, pod) is not None)
        if steps := (*revisions.steps, *pods.steps):
            await workshop.perform(NAME, owner, STATEFUL_SETS, steps)
            return None
        if (step := recording(owner, STATEFUL_SETS, revisions.owned, HASH)) is not None:
            data = data_of(owner)
            await workshop.perform_naming(
                NAME, owner, STATEFUL_SETS, [step], lambda found: bool(found.get("data") == data)
            )
            return None
        update = present(owner, revisions.owned)
        assert update is not None
        return await self._maintain(whole(owner, pods.owned, revisions.owned, update, workshop.now()), revisions.owned)

    async def _maintain(self, one: Whole, revisions: tuple[Obj, ...]) -> float | None:
        workshop, owner = self._workshop, one.owner
        refusal: Refused | None = None
        try:
            await workshop.perform(NAME, owner, STATEFUL_SETS, about_pods(one, self._claims(owner)))
        except (Conflict, AlreadyExists):
            raise
        except Refused as error:
            refusal = error
        pods = workshop.of(owner["metadata"]["uid"], workshop.pods)
        plan = about_status(whole(owner, pods, revisions, one.update, workshop.now()))
        steps = (*plan.steps, *forgetting(owner, revisions, used(one)))
        await workshop.perform(NAME, owner, STATEFUL_SETS, steps)
        if refusal is not None:
            raise refusal
        return plan.again

    def _claims(self, owner: Obj) -> frozenset[str]:
        """The names of those in its namespace, if it has any."""
        if not owner["spec"].get("volumeClaimTemplates"):
            return frozenset()
        namespace = owner["metadata"]["namespace"]
        claims = (claim["metadata"] for claim in self._workshop.claims.all())
        return frozenset(metadata["name"] for metadata in claims if metadata["namespace"] == namespace)
