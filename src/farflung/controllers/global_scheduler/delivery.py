"""Delivers machines to the SyncTarget of their Cluster, by one EdgePlacement per Cluster and workspace with machines
there."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec
import orjson

from farflung.apis.names import Collection
from farflung.client.errors import AlreadyExists, Conflict, NotFound
from farflung.client.rest import Client
from farflung.controllers.global_scheduler import statuses
from farflung.controllers.global_scheduler.binder import PODS
from farflung.controllers.global_scheduler.clusters import ClusterController
from farflung.controllers.global_scheduler.context import SchedulerContext
from farflung.controllers.global_scheduler.state import discard_from
from farflung.controllers.global_scheduler.subjects import Delivery, SyncTargetKey
from farflung.machinery.errors import Obj
from farflung.placement.names import API_BINDINGS
from farflung.placement.types import Binding
from farflung.runtime.cache import Key
from farflung.runtime.controller import Controller
from farflung.runtime.informer import Informer
from farflung.scheduling.values import SiteKey

DELIVERY_CONTROLLER: Final = "global-scheduler-delivering"
PLACEMENTS: Final = Collection("edge.kcp.io", "v1alpha1", "edgeplacements", "EdgePlacement")
PREFIX: Final = "global-scheduler-"
OWNER: Final = "globalscheduler.com/delivers-to"  #: annotation of the scheduler's EdgePlacements: their Cluster
LOOKUP_RETRY: Final = 1.0  #: seconds until the path of a SyncTarget may be resolved
UNSERVED_RETRY: Final = 60.0  #: seconds between two attempts to write to a workspace without the edge API


_binding: Final = msgspec.json.Decoder(Binding)
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
        metadata.get("uid", ""), (metadata.get("annotations") or {}).get(OWNER, ""), obj.get("spec") or {}
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
    metadata = {"name": placement_name(site), "annotations": {OWNER: owner_annotation(site)}}
    return {"apiVersion": PLACEMENTS.api_version, "kind": PLACEMENTS.kind, "metadata": metadata, "spec": spec}


def owner_annotation(site: SiteKey) -> str:
    return f"{site.cluster}|{site.namespace}/{site.name}"


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
        cluster, _, rest = found.owner.partition("|")
        namespace, _, name = rest.rpartition("/")
        site = SiteKey(cluster, namespace, name)
        if found.owner and key.name == placement_name(site):
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
        ours = there is not None and there.owner == owner_annotation(delivery.site)
        if target is None or not self._is_wanted(delivery):
            if there is not None and ours:
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
            self._placements.assume(await view.patch(PLACEMENTS, name, patch))
        return None

    def _forget(self, name: str, delivery: Delivery) -> None:
        discard_from(self._unserved, delivery.site, delivery.workspace)
        known = self._known.get(name, set())
        known.discard(delivery)
        if not known:
            self._known.pop(name, None)

    def _is_wanted(self, delivery: Delivery) -> bool:
        return delivery.workspace in self._state.workspaces(delivery.site)

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
            self._placements.assume(await self._hooks.view(delivery.workspace).create(PLACEMENTS, wanted))
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
        with contextlib.suppress(NotFound, Conflict):
            await self._hooks.view(delivery.workspace).delete(PLACEMENTS, name, uid=uid)
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
