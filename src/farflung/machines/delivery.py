"""Delivers machines to the SyncTarget of their Cluster: EdgePlacements, delivery labels, and copies that terminate.

There is one EdgePlacement per Cluster and workspace with machines there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec
import orjson

from farflung.apis.edge.names import EDGE_PLACEMENTS
from farflung.apis.globalscheduler.names import DELIVERS_TO
from farflung.apis.kcp.names import API_BINDINGS
from farflung.apis.names import PODS
from farflung.client.errors import AlreadyExists, NotFound, UpdateConflict
from farflung.client.rest import Client
from farflung.machinery.errors import Obj
from farflung.machines import statuses
from farflung.machines.binder import MachineBinder
from farflung.machines.clusters import ClusterController
from farflung.machines.context import SchedulerContext
from farflung.machines.decide import discard_from
from farflung.machines.engine.values import SiteKey
from farflung.machines.subjects import (
    COPY,
    POD,
    Delivery,
    ObservedSubject,
    SchedulingSubject,
    SyncTargetKey,
)
from farflung.placement.types import ApiBinding
from farflung.runtime.cache import Key
from farflung.runtime.controller import Controller
from farflung.runtime.informer import Informer

DELIVERY_CONTROLLER: Final = "global-scheduler-delivery"
PREFIX: Final = "global-scheduler-"
LOOKUP_RETRY: Final = 1.0  #: seconds until the path of a SyncTarget may be resolved
UNSERVED_RETRY: Final = 60.0  #: seconds between two attempts to write to a workspace without the edge API


_binding: Final = msgspec.json.Decoder(ApiBinding)
PODS_BINDING: Final = "global-scheduler-pods"
EXPORT: Final = {"path": "root:compute", "name": "kubernetes"}
RECHECK: Final = 60.0  #: seconds after which the APIBinding of a mailbox is checked again


class ExistingPlacement(NamedTuple):
    uid: str
    owner: str
    spec: Obj


def decode_placement(document: bytes) -> ExistingPlacement:
    obj = orjson.loads(document)
    metadata = obj["metadata"]
    return ExistingPlacement(
        metadata.get("uid", ""), (metadata.get("annotations") or {}).get(DELIVERS_TO, ""), obj.get("spec") or {}
    )


def decode_binding_phase(document: bytes) -> bool:
    """Whether the APIBinding is bound."""
    return _binding.decode(document).bound


def placement_name(site: SiteKey) -> str:
    return f"{PREFIX}{statuses.delivery_label(site)}"


def new_placement(site: SiteKey, target: SyncTargetKey) -> Obj:
    """Selects all machines of the site for its SyncTarget only, and returns their status."""
    here = f"target.metadata.annotations['kcp.io/cluster'] == {_quoted(target.cluster)}"
    spec = {
        "locationSelectors": [{}],
        "where": f"target.metadata.name == {_quoted(target.name)} && {here}",
        "wantSingletonReportedState": True,
        "downsync": [
            {"apiGroup": "", "resources": ["pods"], "labelSelectors": [{"matchLabels": statuses.delivery_labels(site)}]}
        ],
    }
    metadata = {"name": placement_name(site), "annotations": {DELIVERS_TO: site.annotation}}
    return {"apiVersion": EDGE_PLACEMENTS.api_version, "kind": EDGE_PLACEMENTS.kind, "metadata": metadata, "spec": spec}


def _quoted(text: str) -> str:
    """As a CEL string."""
    return orjson.dumps(text).decode()


@dataclass(frozen=True, slots=True)
class DeliveryHooks:
    view: Callable[[str], Client]  #: the edge API of a workspace
    mailbox_of: Callable[[SiteKey], str]  #: the logical cluster of a site's mailbox; empty: none yet
    is_clearing: Callable[[Delivery], bool]  #: machines of the workspace still have a stale delivery label
    on_served: Callable[[SiteKey], None]  #: a workspace gained or lost the edge API


class DeliveryController:
    def __init__(
        self,
        context: SchedulerContext,
        placements: Informer[ExistingPlacement],
        clusters: ClusterController,
        setup: MailboxSetup,
        hooks: DeliveryHooks,
    ) -> None:
        self._state = context.state
        self._placements = placements
        self._clusters = clusters
        self._setup = setup
        self._hooks = hooks
        self._rebuilder = context.rebuilder
        self._unserved: dict[SiteKey, set[str]] = {}
        self._log = context.log
        self._known: dict[str, set[Delivery]] = {}  #: by the name of the EdgePlacement
        self.controller: Controller[Delivery] = context.controller(DELIVERY_CONTROLLER, self.reconcile)

    def enqueue_site(self, site: SiteKey) -> None:
        """Machines or the SyncTarget of the site changed."""
        known = {one for one in self._known.get(placement_name(site), ()) if one.site == site}
        if self._clusters.is_target_resolved(site) and self._clusters.target_of(site) is None and not known:
            return
        wanted = {Delivery(workspace, site) for workspace in self._state.workspaces(site)}
        for delivery in sorted(wanted | known):
            self.controller.queue.add(delivery)
        self._known.setdefault(placement_name(site), set()).update(wanted)

    def on_placement(self, key: Key, found: ExistingPlacement) -> None:
        """An EdgePlacement of the scheduler was created, changed or deleted."""
        site = SiteKey.parse(found.owner)
        if site is not None and key.name == placement_name(site):
            delivery = Delivery(key.cluster, site)
            self._known.setdefault(key.name, set()).add(delivery)
            self.controller.queue.add(delivery)

    def on_edge_api(self, workspace: str) -> None:
        """The workspace may have the edge API now."""
        for site in sorted(site for site, unserved in self._unserved.items() if workspace in unserved):
            self.controller.queue.add(Delivery(workspace, site))

    async def reconcile(self, delivery: Delivery, worker: int) -> float | None:
        if not self._clusters.is_target_resolved(delivery.site):
            return LOOKUP_RETRY
        name, target = placement_name(delivery.site), self._clusters.target_of(delivery.site)
        there = self._placements.cache.get(Key(delivery.workspace, "", name))
        ours = there is not None and there.owner == delivery.site.annotation
        if target is None or delivery.workspace not in self._state.workspaces(delivery.site):
            if there is not None and ours:
                if self._rebuilder.failing:  # the engine may lack machines
                    return UNSERVED_RETRY
                await self._remove(delivery, name, there.uid)
            self._forget(name, delivery)
            return None
        if there is not None and not ours:
            self._log.warning("another owner's EdgePlacement has this name", key=str(delivery.workspace), name=name)
            return UNSERVED_RETRY
        if self._hooks.is_clearing(delivery):
            return None  # enqueued again when the labels are removed
        again = await self._ensure_placement(delivery, new_placement(delivery.site, target), there)
        mailbox = self._hooks.mailbox_of(delivery.site)
        if again is not None or not mailbox:  # enqueued again when the mailbox exists
            return again
        await self._setup.ensure_pods_api(mailbox)
        return RECHECK

    async def _ensure_placement(self, delivery: Delivery, wanted: Obj, there: ExistingPlacement | None) -> float | None:
        """Create or correct the EdgePlacement.  Returns seconds until a retry; None: done."""
        if there is None:
            return await self._create(delivery, wanted)
        if any(there.spec.get(field) != value for field, value in wanted["spec"].items()):
            patch = {"metadata": {"uid": there.uid}, "spec": wanted["spec"]}
            name, view = wanted["metadata"]["name"], self._hooks.view(delivery.workspace)
            self._placements.assume(await view.patch(EDGE_PLACEMENTS, name, patch))
        return None

    def _forget(self, name: str, delivery: Delivery) -> None:
        discard_from(self._unserved, delivery.site, delivery.workspace)
        known = self._known.get(name, set())
        known.discard(delivery)
        if not known:
            self._known.pop(name, None)

    def unserved(self, site: SiteKey) -> AbstractSet[str]:
        """Workspaces with machines at the site and without the edge API."""
        return self._unserved.get(site, frozenset())

    def _note_served(self, delivery: Delivery, *, served: bool) -> None:
        if served is not (delivery.workspace in self.unserved(delivery.site)):
            return
        if served:
            discard_from(self._unserved, delivery.site, delivery.workspace)
        else:
            self._unserved.setdefault(delivery.site, set()).add(delivery.workspace)
        self._hooks.on_served(delivery.site)

    async def _create(self, delivery: Delivery, wanted: Obj) -> float | None:
        try:
            self._placements.assume(await self._hooks.view(delivery.workspace).create(EDGE_PLACEMENTS, wanted))
        except AlreadyExists:
            return 1.0  # not observed yet
        except NotFound:
            is_known = delivery.workspace in self.unserved(delivery.site)
            self._note_served(delivery, served=False)
            self._log.info("no delivery: the workspace has no edge API", v=1, workspace=delivery.workspace)
            return UNSERVED_RETRY if is_known else 1.0  # the API may have been bound in the meantime
        self._note_served(delivery, served=True)
        return None

    async def _remove(self, delivery: Delivery, name: str, uid: str) -> None:
        key = Key(delivery.workspace, "", name)
        version = self._placements.cache.version(key)
        with contextlib.suppress(NotFound, UpdateConflict):
            await self._hooks.view(delivery.workspace).delete(EDGE_PLACEMENTS, name, uid=uid)
        self._placements.forget(key, version)


class MailboxSetup:
    def __init__(self, workspace: Callable[[str], Client], monotonic: Callable[[], float]) -> None:
        """`workspace`: full access to a logical cluster."""
        self._workspace = workspace
        self._monotonic = monotonic
        self._served: dict[str, float] = {}  #: when a mailbox last served Pods

    async def ensure_pods_api(self, mailbox: str) -> None:
        """Raises ClientError."""
        now = self._monotonic()
        if now < self._served.get(mailbox, -RECHECK) + RECHECK:
            return
        client = self._workspace(mailbox)
        try:
            await client.raw(f"{PODS.path('')}?limit=1")
        except NotFound:
            with contextlib.suppress(AlreadyExists):
                await client.create(API_BINDINGS, new_pods_binding())
        else:
            self._served[mailbox] = now


def new_pods_binding() -> Obj:
    spec = {"reference": {"export": EXPORT}}
    return {
        "apiVersion": API_BINDINGS.api_version,
        "kind": API_BINDINGS.kind,
        "metadata": {"name": PODS_BINDING},
        "spec": spec,
    }


# --- labels ---------------------------------------------------------------------------------------

LABEL_CONTROLLER: Final = "global-scheduler-labels"


class _LabelProblem(NamedTuple):
    """The delivery label of a bound machine is wrong."""

    site: SiteKey
    is_clearing: bool  #: it has the label and must not
    is_displaced: bool  #: it is not delivered, because of a name conflict


class DeliveryLabels:
    """Sets and removes the delivery label of bound machines when the SyncTarget of their Cluster changes.

    The scheduler's EdgePlacements select machines by this label.  A binding to a Cluster with a SyncTarget sets it;
    this controller handles later changes.  Of several machines with the same namespace and name one is delivered: by
    the Cluster that uses the SyncTarget first, then the one already delivered, then the oldest.
    """

    def __init__(
        self,
        context: SchedulerContext,
        clusters: ClusterController,
        binder: MachineBinder,
        on_change: Callable[[SiteKey], None],
    ) -> None:
        """`on_change`: called when the machines to deliver to a site change."""
        self._state = context.state
        self._clusters = clusters
        self._binder = binder
        self._on_change = on_change
        self._rebuilder = context.rebuilder
        self._states: dict[SchedulingSubject, _LabelProblem] = {}
        self._clearing: dict[Delivery, set[SchedulingSubject]] = {}
        self._displaced: dict[SiteKey, set[SchedulingSubject]] = {}
        self._waiting: dict[
            tuple[str, str], set[SchedulingSubject]
        ] = {}  #: machines in a name conflict, by namespace and name
        self.controller: Controller[SchedulingSubject] = context.controller(LABEL_CONTROLLER, self.reconcile)

    def is_clearing(self, delivery: Delivery) -> bool:
        """Whether machines of the workspace still have a wrong label.  Other workspaces have EdgePlacements of their
        own."""
        return delivery in self._clearing

    def displaced(self, site: SiteKey) -> set[SchedulingSubject]:
        """Machines at the site that a name conflict keeps from delivery."""
        return self._displaced.get(site, set())

    # --- triggers -------------------------------------------------------------------------------------

    def on_subject(self, subject: SchedulingSubject, observed: ObservedSubject | None) -> None:
        if subject.kind != POD:
            return
        site = None if observed is None else observed.site
        may_be_wrong = observed is not None and site is not None and (observed.label or self._state.has_target(site))
        if may_be_wrong or self._states:
            self._check_all(subject, site)

    def on_target(self, site: SiteKey) -> None:
        """The SyncTarget of the site changed."""
        for subject in self._state.machines(site):
            self._check_all(subject, site)

    def _check_all(self, subject: SchedulingSubject, site: SiteKey | None) -> None:
        """Check the machine and those that may be in a name conflict with it."""
        namesakes = [] if site is None else self._state.namesakes(subject, site)
        waiting = self._waiting.get((subject.key.namespace, subject.key.name), set())
        for one in sorted({subject, *namesakes, *waiting}):
            self._check(one)

    def _check(self, subject: SchedulingSubject) -> None:
        observed = self._state.observed(subject)
        site = None if observed is None else observed.site
        if observed is None or site is None:
            self._note(subject, None)
            return
        wanted = self._desired_label(subject, observed, site)
        is_displaced = not wanted and observed.finished_at is None and self._state.has_target(site)
        clearing = bool(observed.label) and not wanted
        self._note(subject, _LabelProblem(site, clearing, is_displaced) if clearing or is_displaced else None)
        if wanted != observed.label:
            self.controller.queue.add(subject)

    def _note(self, subject: SchedulingSubject, state: _LabelProblem | None) -> None:
        before, name = self._states.get(subject), (subject.key.namespace, subject.key.name)
        if state == before:
            return
        if before is not None:
            del self._states[subject]
            discard_from(self._clearing, Delivery(subject.key.cluster, before.site), subject)
            discard_from(self._displaced, before.site, subject)
            discard_from(self._waiting, name, subject)
        if state is not None:
            self._states[subject] = state
            if state.is_clearing:
                self._clearing.setdefault(Delivery(subject.key.cluster, state.site), set()).add(subject)
            if state.is_displaced:
                self._displaced.setdefault(state.site, set()).add(subject)
                self._waiting.setdefault(name, set()).add(subject)
        for site in sorted({one.site for one in (before, state) if one is not None}):
            self._on_change(site)

    # --- decisions ------------------------------------------------------------------------------------

    def _desired_label(self, subject: SchedulingSubject, observed: ObservedSubject, site: SiteKey) -> str:
        """The label that it must have.  A finished machine is not run again elsewhere."""
        target = self._clusters.target_key(site)
        if target is None:
            return "" if self._clusters.names_target(site) is False else observed.label
        if observed.finished_at is not None and not (observed.label and observed.returned_from == target.name):
            return ""
        return statuses.delivery_label(site) if self._first(subject, site) == subject else ""

    def _first(self, subject: SchedulingSubject, site: SiteKey) -> SchedulingSubject | None:
        """The machine of this name that is delivered."""
        found = self._state.namesakes(subject, site)
        if found == [subject]:
            return subject
        ranked = [(self._rank(one), one) for one in found if self._may_be_delivered(one)]
        return min(ranked)[1] if ranked else None

    def _may_be_delivered(self, subject: SchedulingSubject) -> bool:
        observed = self._state.observed(subject)
        return (
            observed is not None
            and observed.site is not None
            and (observed.finished_at is None or bool(observed.label))
        )

    def _rank(self, subject: SchedulingSubject) -> tuple[int, bool, str]:
        observed = self._state.observed(subject)
        assert observed is not None and observed.site is not None
        target = self._clusters.target_key(observed.site)
        users = [] if target is None else self._clusters.users_of(target)
        place = users.index(observed.site) if observed.site in users else len(users)
        return place, observed.label != statuses.delivery_label(observed.site), observed.created

    # --- writes ---------------------------------------------------------------------------------------

    async def reconcile(self, subject: SchedulingSubject, worker: int) -> float | None:
        observed = self._state.observed(subject)
        site = None if observed is None else observed.site
        if observed is None or site is None or self._state.is_in_progress(observed.uid):
            return None
        if not self._clusters.is_target_resolved(site):
            return LOOKUP_RETRY
        wanted = self._desired_label(subject, observed, site)
        if wanted == observed.label:
            return None
        if not wanted and self._rebuilder.failing:  # the engine may lack its Cluster
            return UNSERVED_RETRY
        if wanted and any(self._is_labeled(one) for one in self._state.namesakes(subject, site) if one != subject):
            return LOOKUP_RETRY
        with suppress(NotFound):
            await self._binder.set_label(subject, observed, wanted or None)
        return None

    def _is_labeled(self, subject: SchedulingSubject) -> bool:
        observed = self._state.observed(subject)
        return observed is not None and bool(observed.label)


# --- terminating copies ---------------------------------------------------------------------------

COPIES_CONTROLLER: Final = "global-scheduler-copies"


class _KeptCopy(NamedTuple):
    uid: str
    until: float


class TerminatingCopies:
    """Reservations of deleted or moved machines that still run at their cluster.

    A syncer keeps the copy in the mailbox by a finalizer until the cluster has deleted the machine.  So a copy without
    its machine keeps its reservation while it exists, but not longer than the default toleration of an unreachable
    cluster.
    """

    def __init__(
        self,
        context: SchedulerContext,
        pods: Informer[ObservedSubject],
        is_mailbox: Callable[[str], bool],
        mailbox_of: Callable[[SiteKey], str],
        wake: Callable[[], None],
        *,
        longest: float,
    ) -> None:
        """`is_mailbox`: whether a logical cluster is one; `mailbox_of`: the mailbox of a site, empty if unknown;
        `wake`: wakes the decision loop; `longest`: seconds."""
        self._state = context.state
        self._pods = pods
        self._is_mailbox = is_mailbox
        self._mailbox_of = mailbox_of
        self._wake = wake
        self._rebuilder = context.rebuilder
        self._monotonic = context.env.monotonic
        self._longest = longest
        self._kept: dict[Key, _KeptCopy] = {}
        self._unresolved: dict[SiteKey, set[Key]] = {}  #: copies at sites whose mailbox is not known yet
        self.controller: Controller[Key] = context.controller(COPIES_CONTROLLER, self.reconcile, workers=1)

    def on_left(self, machine: Key, site: SiteKey) -> None:
        """The machine left the site; its copy may still exist."""
        copy = self._copy_of(machine, site)
        observed = self._pods.cache.get(copy)
        if observed is not None and self._is_mailbox(copy.cluster):
            self._keep(copy, observed)

    def on_bound(self, machine: Key, site: SiteKey) -> None:
        """A machine at the site replaces a copy of the same name."""
        if not self._kept:
            return
        copy = self._copy_of(machine, site)
        observed = self._pods.cache.get(copy)
        if copy in self._kept and observed is not None and not observed.terminating:
            self._forget(copy)

    def _copy_of(self, machine: Key, site: SiteKey) -> Key:
        return Key(self._mailbox_of(site), machine.namespace, machine.name)

    def on_copy(self, copy: Key, observed: ObservedSubject | None) -> None:
        """A Pod in a mailbox changed."""
        kept = self._kept.get(copy)
        if kept is not None and (observed is None or observed.uid != kept.uid):
            self._forget(copy)
        if observed is not None and observed.terminating:
            self._keep(copy, observed)

    def check_all(self) -> None:
        """Keep the copies that were left while the scheduler was down."""
        for key in [one for one in self._pods.cache if self._is_mailbox(one.cluster)]:
            self._check(key)

    def on_target(self, site: SiteKey) -> None:
        """The SyncTarget of the site is known now."""
        for key in sorted(self._unresolved.pop(site, ())):
            self._check(key)

    def _check(self, copy: Key) -> None:
        observed = self._pods.cache.get(copy)
        site = None if observed is None else observed.site
        if observed is None or site is None:
            return
        if not self._mailbox_of(site):
            self._unresolved.setdefault(site, set()).add(copy)
        elif observed.terminating or not self._state.namesakes(SchedulingSubject(POD, copy), site):
            self._keep(copy, observed)

    def _keep(self, copy: Key, observed: ObservedSubject) -> None:
        if (
            copy in self._kept
            or not observed.reservations
            or self._mailbox_of(observed.reservations[0].site) != copy.cluster
        ):
            return
        now = self._monotonic()
        self._kept[copy] = _KeptCopy(observed.uid, now + self._longest)
        self._state.observe(
            SchedulingSubject(COPY, copy),
            ObservedSubject(observed.uid, observed.version, reservations=observed.reservations),
            now,
        )
        self.controller.queue.add_after(copy, self._longest)

    def _forget(self, copy: Key) -> None:
        del self._kept[copy]
        self._release(copy)

    def _release(self, copy: Key) -> None:
        self._state.observe(SchedulingSubject(COPY, copy), None, self._monotonic())
        self._wake()

    async def reconcile(self, copy: Key, worker: int) -> float | None:
        kept = self._kept.get(copy)
        if kept is None:
            return None
        if (left := kept.until - self._monotonic()) > 0:
            return left
        self._rebuilder.attempt((COPY, copy), lambda: self._release(copy))  # stays in `_kept`: it is not kept again
        return None
