"""Delivers machines to the SyncTarget of their Cluster.

A label selects the machines of a Cluster, and an EdgePlacement in each workspace with such machines leads them to the
SyncTarget.  The placement kernel decides about the copies: what is copied, which of several objects has a name, and
when a copy is withdrawn.  A deleted machine keeps its reservation until its copy is deleted.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

import msgspec
import orjson

from farflung.apis.edge.names import AUTHOR, EDGE_PLACEMENTS, PLACE, WORKLOAD_PROJECTED
from farflung.apis.globalscheduler.names import DELIVERS_TO, DELIVERY_PREFIX
from farflung.apis.kcp.names import LOCATIONS
from farflung.client.errors import AlreadyExists, NotFound, UpdateConflict
from farflung.client.rest import Client
from farflung.controllers.mailbox.triggers import Mailboxes
from farflung.controllers.status_summarizer.health import CopyProblem
from farflung.lib.groups import discard_from
from farflung.machinery.errors import Obj
from farflung.machines import statuses
from farflung.machines.binder import MachineBinder
from farflung.machines.clusters import ClusterController
from farflung.machines.context import SchedulerContext
from farflung.machines.engine.values import SiteKey
from farflung.machines.rights import SiteRights
from farflung.machines.subjects import COPY, POD, ObservedSubject, SchedulingSubject
from farflung.placement.name_owners import owned_scope
from farflung.placement.names import PLACING_NOT_ALLOWED, PODS, SEPARATOR, ObjectRef, located
from farflung.placement.types import ApiBinding, Workspace
from farflung.runtime.cache import CacheChange, Key
from farflung.runtime.controller import Controller
from farflung.runtime.informer import Informer

LOOKUP_RETRY: Final = 1.0  #: seconds until the path of a SyncTarget may be resolved
UNSERVED_RETRY: Final = 60.0  #: seconds between two attempts to write to a workspace without the edge API
NO_EDGE_API: Final = CopyProblem(
    "NoEdgeAPI",
    "the workspace has no edge API, so its machines are not delivered; "
    "run `kubectl kcp bind apiexport root:espw:edge.kcp.io` in it",
)


NOT_ALLOWED: Final = CopyProblem(
    PLACING_NOT_ALLOWED,
    "the author of the spec may not place on a Location of this Cluster; ask its owner for the verb "
    f'"{PLACE}" on {LOCATIONS.plural}.{LOCATIONS.group}',
)


# --- mailboxes ------------------------------------------------------------------------------------


class SiteMailboxes:
    """The mailboxes of the SyncTargets that represent sites."""

    def __init__(self, clusters: ClusterController, workspaces: Informer[Workspace]) -> None:
        self._clusters = clusters
        self._workspaces = workspaces
        self._index = Mailboxes()
        self._sites: dict[str, set[SiteKey]] = {}  #: by mailbox; also former ones

    def cluster(self, site: SiteKey) -> str:
        """The logical cluster of the site's mailbox; empty: none yet."""
        name = self._clusters.mailbox_name(site)
        self._sites.setdefault(name, set()).add(site)
        key = self._index.workspace(name)
        workspace = None if key is None else self._workspaces.cache.get(key)
        return "" if workspace is None else workspace.cluster

    def is_mailbox(self, cluster: str) -> bool:
        """Pods in mailboxes are copies."""
        return self._index.of_cluster(cluster) is not None

    def sites(self, cluster: str) -> list[SiteKey]:
        """The sites of the mailbox with that logical cluster."""
        return sorted(self._sites.get(self._index.of_cluster(cluster) or "", ()))

    def on_workspace(self, change: CacheChange[Workspace]) -> list[SiteKey]:
        """The sites whose mailbox changed."""
        return sorted(site for name in self._index.on_workspace(change) for site in self._sites.get(name, ()))


# --- EdgePlacements -------------------------------------------------------------------------------


class Delivery(NamedTuple):
    workspace: str  #: the logical cluster of the machines
    site: SiteKey


class ExistingPlacement(NamedTuple):
    uid: str
    owner: str  #: the annotation of its site
    spec: Obj
    problem: CopyProblem | None  #: of its copies
    has_author: bool = True


_binding: Final = msgspec.json.Decoder(ApiBinding)


def decode_placement(document: bytes) -> ExistingPlacement:
    obj = orjson.loads(document)
    metadata = obj["metadata"]
    annotations = metadata.get("annotations") or {}
    owner = annotations.get(DELIVERS_TO, "")
    found = statuses.find_condition(obj.get("status") or {}, WORKLOAD_PROJECTED)
    is_wrong = found.get("status") == "False"
    problem = CopyProblem(found.get("reason", ""), found.get("message", "")) if is_wrong else None
    return ExistingPlacement(metadata.get("uid", ""), owner, obj.get("spec") or {}, problem, AUTHOR in annotations)


def decode_binding_phase(document: bytes) -> bool:
    """Whether the APIBinding is bound."""
    return _binding.decode(document).bound


def placement_name(site: SiteKey) -> str:
    return f"{DELIVERY_PREFIX}{statuses.delivery_label(site)}"


def new_placement(site: SiteKey, target: Key) -> Obj:
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


class DeliveryController:
    """Writes one EdgePlacement for each workspace with machines at a site that has a SyncTarget."""

    def __init__(
        self,
        context: SchedulerContext,
        placements: Informer[ExistingPlacement],
        clusters: ClusterController,
        labels: DeliveryLabels,
        view: Callable[[str], Client],
        on_problem: Callable[[Delivery], None],
    ) -> None:
        """`view`: the edge API of a workspace; `on_problem`: called when `problem` has another result."""
        self._state = context.state
        self._placements = placements
        self._clusters = clusters
        self._labels = labels
        self._view = view
        self._on_problem = on_problem
        self._rebuilder = context.rebuilder
        self._log = context.log
        self._existing: dict[SiteKey, set[str]] = {}  #: workspaces with an EdgePlacement
        self._unserved: dict[str, set[Delivery]] = {}  #: deliveries from workspaces without the edge API
        self.controller: Controller[Delivery] = context.controller("global-scheduler-delivery", self.reconcile)

    def problem(self, machine: Key, site: SiteKey) -> CopyProblem | None:
        """Why the machine has no copy in the mailbox of the site."""
        delivery = Delivery(machine.cluster, site)
        if self._labels.is_denied(SchedulingSubject(POD, machine), site):
            return NOT_ALLOWED
        if delivery in self._unserved.get(machine.cluster, ()):
            return NO_EDGE_API
        found = self._placement(delivery)
        if found is None or found.problem is None:
            return None
        ref, mailbox = ObjectRef(PODS, machine.namespace, machine.name), self._clusters.mailbox_name(site)
        beginnings = located(ref, mailbox), located(owned_scope(ref), mailbox)
        messages = found.problem.message.split(SEPARATOR)
        about = next((one for one in messages if one.startswith(beginnings)), "")
        return found.problem._replace(message=about) if about else None

    def _placement(self, delivery: Delivery) -> ExistingPlacement | None:
        return self._placements.cache.get(Key(delivery.workspace, "", placement_name(delivery.site)))

    # --- triggers ---------------------------------------------------------------------------------

    def on_machine(self, workspace: str, site: SiteKey) -> None:
        """A machine of the workspace is at the site, or was."""
        if self._clusters.names_target(site) or workspace in self._existing.get(site, ()):
            self.controller.queue.add(Delivery(workspace, site))

    def on_target(self, site: SiteKey) -> None:
        for workspace in sorted(self._state.workspaces(site) | self._existing.get(site, set())):
            self.controller.queue.add(Delivery(workspace, site))

    def on_placement(self, change: CacheChange[ExistingPlacement]) -> None:
        for one in (change.old, change.new):
            site = None if one is None else SiteKey.parse(one.owner)
            if site is None or change.key.name != placement_name(site):
                continue
            delivery = Delivery(change.key.cluster, site)
            if change.new is one:
                self._existing.setdefault(site, set()).add(delivery.workspace)
            else:
                discard_from(self._existing, site, delivery.workspace)
            self.controller.queue.add(delivery)
            if (change.old and change.old.problem) != (change.new and change.new.problem):
                self._on_problem(delivery)

    def on_edge_api(self, workspace: str) -> None:
        """The workspace may have the edge API now."""
        for delivery in sorted(self._unserved.get(workspace, ())):
            self.controller.queue.add(delivery)

    # --- writes -----------------------------------------------------------------------------------

    async def reconcile(self, delivery: Delivery, worker: int) -> float | None:
        workspace, site = delivery
        if not self._clusters.is_target_resolved(site):
            return LOOKUP_RETRY
        target, there = self._clusters.existing_target(site), self._placement(delivery)
        is_ours = there is not None and there.owner == site.annotation
        is_needed = target is not None and workspace in self._state.workspaces(site)
        if target is None or not is_needed or self._labels.denies(delivery):
            discard_from(self._unserved, workspace, delivery)
            if there is not None and is_ours:
                if self._rebuilder.failing:  # the engine may lack machines
                    return UNSERVED_RETRY
                await self._remove(delivery, there.uid)
            return None
        if there is not None and not is_ours:
            self._log.warning("another owner's EdgePlacement has this name", key=workspace, name=placement_name(site))
            return UNSERVED_RETRY
        wanted = new_placement(site, target)
        is_same = there is not None and all(there.spec.get(one) == value for one, value in wanted["spec"].items())
        if is_same and there is not None and there.has_author:
            return None
        if self._labels.has_stale(delivery):
            return None  # enqueued again when the label is removed
        if there is None:
            return await self._create(delivery, wanted) if self._labels.delivers(delivery) else None
        patch = {"metadata": {"uid": there.uid, "annotations": {AUTHOR: "me"}}, "spec": wanted["spec"]}
        self._placements.assume(await self._view(workspace).patch(EDGE_PLACEMENTS, placement_name(site), patch))
        return None

    async def _create(self, delivery: Delivery, wanted: Obj) -> float | None:
        was_unserved = delivery in self._unserved.get(delivery.workspace, ())
        try:
            created = await self._view(delivery.workspace).create(EDGE_PLACEMENTS, wanted)
        except AlreadyExists:
            return 1.0  # not observed yet
        except NotFound:
            self._unserved.setdefault(delivery.workspace, set()).add(delivery)
            self._log.info("no delivery: the workspace has no edge API", v=1, workspace=delivery.workspace)
            if was_unserved:
                return UNSERVED_RETRY
            self._rebuilder.attempt(delivery, lambda: self._on_problem(delivery))
            return 1.0  # the API may have been bound in the meantime
        discard_from(self._unserved, delivery.workspace, delivery)
        self._placements.assume(created)
        if was_unserved:
            self._rebuilder.attempt(delivery, lambda: self._on_problem(delivery))
        return None

    async def _remove(self, delivery: Delivery, uid: str) -> None:
        key = Key(delivery.workspace, "", placement_name(delivery.site))
        version = self._placements.cache.version(key)
        with contextlib.suppress(NotFound, UpdateConflict):
            await self._view(delivery.workspace).delete(EDGE_PLACEMENTS, key.name, uid=uid)
        self._placements.forget(key, version)


# --- labels ---------------------------------------------------------------------------------------


class DeliveryLabels:
    """Sets and removes the delivery label of bound machines when the SyncTarget of their Cluster changes.  The Binding
    to a Cluster with a SyncTarget has set it already."""

    def __init__(
        self, context: SchedulerContext, clusters: ClusterController, binder: MachineBinder, rights: SiteRights
    ) -> None:
        self._state = context.state
        self._clusters = clusters
        self._rights = rights
        self._binder = binder
        self._rebuilder = context.rebuilder
        self.controller: Controller[SchedulingSubject] = context.controller("global-scheduler-labels", self.reconcile)

    def on_machine(self, subject: SchedulingSubject, observed: ObservedSubject, site: SiteKey) -> None:
        if self._desired(observed, site) != observed.label:
            self.controller.queue.add(subject)

    def on_target(self, site: SiteKey) -> None:
        """The SyncTarget of the site changed."""
        for subject, observed in self._machines(site):
            self.on_machine(subject, observed, site)

    def has_stale(self, delivery: Delivery) -> bool:
        """Whether the EdgePlacement would deliver finished machines again, because they still have the label."""
        return any(
            observed.label and not self._desired(observed, delivery.site) for observed in self._machines_of(delivery)
        )

    def is_denied(self, subject: SchedulingSubject, site: SiteKey) -> bool:
        """Whether the author of a machine may not use its site."""
        observed, target = self._state.observed(subject), self._clusters.target_key(site)
        return observed is not None and target is not None and self._rights.may_use(observed.author, target) is False

    def delivers(self, delivery: Delivery) -> bool:
        """Whether a machine of the workspace is delivered to the site."""
        return any(self._desired(observed, delivery.site) for observed in self._machines_of(delivery))

    def denies(self, delivery: Delivery) -> bool:
        """Whether no author of the machines of the workspace may use the site."""
        target = self._clusters.target_key(delivery.site)
        return target is not None and all(
            self._rights.may_use(observed.author, target) is False for observed in self._machines_of(delivery)
        )

    def _machines_of(self, delivery: Delivery) -> Iterable[ObservedSubject]:
        for subject, observed in self._machines(delivery.site):
            if subject.key.cluster == delivery.workspace:
                yield observed

    def _machines(self, site: SiteKey) -> Iterable[tuple[SchedulingSubject, ObservedSubject]]:
        for subject in self._state.machines(site):
            if (observed := self._state.observed(subject)) is not None:
                yield subject, observed

    def _desired(self, observed: ObservedSubject, site: SiteKey) -> str:
        """The label that it must have.  A finished machine is not run again elsewhere.  While it is not known what the
        author may use, the label stays."""
        target = self._clusters.target_key(site)
        if target is None:
            return "" if self._clusters.names_target(site) is False else observed.label
        if (may_use := self._rights.may_use(observed.author, target)) is not True:
            return "" if may_use is False else observed.label
        if observed.finished_at is not None and not (observed.label and observed.returned_from == target.name):
            return ""
        return statuses.delivery_label(site)

    async def reconcile(self, subject: SchedulingSubject, worker: int) -> float | None:
        observed = self._state.observed(subject)
        site = None if observed is None else observed.site
        if observed is None or site is None or self._state.is_in_progress(observed.uid):
            return None
        if not self._clusters.is_target_resolved(site):
            return LOOKUP_RETRY
        wanted = self._desired(observed, site)
        if wanted == observed.label:
            return None
        if not wanted and self._rebuilder.failing:  # the engine may lack its Cluster
            return UNSERVED_RETRY
        with contextlib.suppress(NotFound):
            await self._binder.set_label(subject, observed, wanted or None)
        return None


# --- terminating copies ---------------------------------------------------------------------------


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
        mailboxes: SiteMailboxes,
        wake: Callable[[], None],
        *,
        longest: float,
    ) -> None:
        """`wake`: wakes the decision loop; `longest`: seconds."""
        self._state = context.state
        self._pods = pods
        self._mailboxes = mailboxes
        self._wake = wake
        self._rebuilder = context.rebuilder
        self._monotonic = context.env.monotonic
        self._longest = longest
        self._kept: dict[Key, _KeptCopy] = {}
        self._unresolved: dict[SiteKey, set[Key]] = {}  #: copies at sites whose mailbox is not known yet
        self.controller: Controller[Key] = context.controller("global-scheduler-copies", self.reconcile, workers=1)

    def on_machine(self, machine: Key, site: SiteKey) -> None:
        """The machine is at the site, or was."""
        if cluster := self._mailboxes.cluster(site):
            self._check(machine._replace(cluster=cluster))

    def on_copy(self, copy: Key, observed: ObservedSubject | None) -> None:
        """A Pod in a mailbox changed."""
        if copy in self._kept or (observed is not None and observed.terminating):
            self._check(copy)

    def on_target(self, site: SiteKey) -> None:
        """The mailbox of the site may be known now."""
        for copy in sorted(self._unresolved.pop(site, ())):
            self._check(copy)

    def check_all(self) -> None:
        """Keep the copies that were left while the scheduler was down."""
        for copy in [one for one in self._pods.cache if self._mailboxes.is_mailbox(one.cluster)]:
            self._check(copy)

    def _check(self, copy: Key) -> None:
        observed, kept = self._pods.cache.get(copy), self._kept.get(copy)
        is_left = observed is not None and self._is_left(copy, observed)
        if kept is not None and not (is_left and observed is not None and observed.uid == kept.uid):
            del self._kept[copy]
            self._release(copy)
        if is_left and observed is not None and copy not in self._kept:
            self._keep(copy, observed)

    def _is_left(self, copy: Key, observed: ObservedSubject) -> bool:
        """Whether its machine was deleted or moved."""
        if not observed.reservations:
            return False
        site = observed.reservations[0].site
        cluster = self._mailboxes.cluster(site)
        if not cluster:
            self._unresolved.setdefault(site, set()).add(copy)
        has_machine = bool(self._state.namesakes(SchedulingSubject(POD, copy), site))
        return cluster == copy.cluster and (observed.terminating or not has_machine)

    def _keep(self, copy: Key, observed: ObservedSubject) -> None:
        now = self._monotonic()
        self._kept[copy] = _KeptCopy(observed.uid, now + self._longest)
        reserved = ObservedSubject(observed.uid, observed.version, reservations=observed.reservations)
        self._state.observe(SchedulingSubject(COPY, copy), reserved, now)
        self.controller.queue.add_after(copy, self._longest)

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
