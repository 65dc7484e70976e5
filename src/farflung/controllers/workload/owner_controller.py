"""The loop of every workload controller: adopt and release the children of one owner, then take the next step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from farflung.apis.names import Collection
from farflung.client.errors import AlreadyExists, Refused, UpdateConflict
from farflung.controllers.workload.client import WorkloadCache, WorkloadClient
from farflung.controllers.workload.model.ownership import ClaimedChildren, claim_children, controller_reference
from farflung.controllers.workload.model.revisions import find_current, record_template, revision_data
from farflung.controllers.workload.model.steps import WorkloadPlan, WriteStep, count_collision
from farflung.machinery.errors import Obj
from farflung.runtime.cache import CacheChange, Key
from farflung.runtime.controller import Controller
from farflung.runtime.manager import Manager


class OwnerController:
    """One key per owner.  A subclass defines `step`."""

    def __init__(self, client: WorkloadClient, name: str, owners: WorkloadCache, *children: WorkloadCache) -> None:
        self.client = client
        self.name = name
        self.owners = owners
        self.children = children
        self.controller: Controller[Key] = client.controller(name, self.reconcile)
        owners.informer.subscribe(lambda change: self.controller.queue.add(change.key))
        for cache in children:
            cache.informer.subscribe(self._on_child)

    def join(self, manager: Manager) -> None:
        self.client.join(manager, self.controller)

    @property
    def collection(self) -> Collection:
        return self.owners.collection

    def _on_child(self, change: CacheChange[Obj]) -> None:
        self.controller.queue.add_all(self.owners.owners.affected_by(change))

    async def reconcile(self, key: Key, worker: int) -> float | None:
        owner = self.owners.get(key)
        if owner is None:
            return None
        await self.client.resolve_unknown_writes(owner["metadata"]["uid"])
        claimed = [self._claim(owner, cache) for cache in self.children]
        if steps := [step for one in claimed for step in one.steps]:
            await self.perform(owner, steps)
            return None  # the writes queue it again
        return await self.step(owner, *(one.owned for one in claimed))

    def _claim(self, owner: Obj, children: WorkloadCache) -> ClaimedChildren:
        candidates = self.client.candidates(owner, children)
        return claim_children(
            owner,
            self.collection,
            children.collection,
            candidates,
            lambda child: self.may_own(owner, children.collection, child),
        )

    def may_own(self, owner: Obj, collection: Collection, child: Obj) -> bool:
        """Whether the owner may have this child of the collection, if its selector matches."""
        return True

    async def step(self, owner: Obj, *children: tuple[Obj, ...]) -> float | None:
        """Take the next step.  `children`: those that the owner controls, by kind.  Seconds after which to reconcile
        again, or None."""
        raise NotImplementedError

    # --- parts of steps ---------------------------------------------------------------------------

    async def perform(self, owner: Obj, steps: Iterable[WriteStep]) -> None:
        await self.client.perform(self.name, owner, self.collection, steps)

    async def perform_hashed(self, owner: Obj, steps: Sequence[WriteStep], same: Callable[[Obj], bool]) -> None:
        """Like `perform`, for a first step that creates an object with a hash in its name.  If an object of that name
        exists and is not the owner's own, `collisionCount` is increased, which changes the next hash."""
        try:
            await self.perform(owner, steps)
        except AlreadyExists:
            write = steps[0].write
            found = await self.client.api.get(write.collection, write.name, write.namespace)
            reference = controller_reference(found)
            ours = reference is not None and reference.get("uid") == owner["metadata"]["uid"]
            if not ours or not same(found):
                await self.perform(owner, [count_collision(self.collection, owner)])
            raise

    async def current_revision(self, owner: Obj, revisions: tuple[Obj, ...], hash_label: str) -> Obj | None:
        """The ControllerRevision of the current template; None if it was written just now, which queues the owner."""
        step = record_template(owner, self.collection, revisions, hash_label)
        if step is None:
            return find_current(owner, revisions)
        data = revision_data(owner)
        await self.perform_hashed(owner, [step], lambda found: bool(found.get("data") == data))
        return None

    async def maintain_pods(
        self, owner: Obj, steps: Iterable[WriteStep], plan_status: Callable[[list[Obj], str], WorkloadPlan]
    ) -> float | None:
        """Perform steps on the pods, then plan and write the status, with the new pods and the server's refusal."""
        refusal: Refused | None = None
        try:
            await self.perform(owner, steps)
        except (UpdateConflict, AlreadyExists):
            raise
        except Refused as error:
            refusal = error
        pods = self.client.children_of(owner["metadata"]["uid"], self.client.pods)
        plan = plan_status(pods, "" if refusal is None else str(refusal))
        await self.perform(owner, plan.steps)
        if refusal is not None:
            raise refusal
        return plan.requeue_after
