"""The model of the global scheduler, read once for `explain` and `plan`: its objects, its Lease, and results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from math import isinf
from typing import Final, NamedTuple, TypeVar

import msgspec
import orjson
from msgspec import UNSET, UnsetType
from msgspec.structs import asdict

from farflung.apis.edge.authors import Author
from farflung.apis.globalscheduler.names import ALLOCATIONS, CLUSTERS, FILES_ANNOTATION
from farflung.apis.kcp.names import CLUSTER_ANNOTATION, COMPUTE, COMPUTE_EXPORT, LOGICAL_CLUSTERS, SYNC_TARGETS
from farflung.apis.names import LEASES, PODS
from farflung.client.errors import Forbidden, NotFound
from farflung.client.rest import Client
from farflung.controllers.placing_rights.decide import RightKey
from farflung.inspect import fields
from farflung.inspect.hub import HubClient, Inventory, everywhere, read_inventory, server_time
from farflung.inspect.placing_rights import ReviewedRights
from farflung.inspect.results import Result
from farflung.machinery import times
from farflung.machinery.errors import Obj
from farflung.machinery.times import format_seconds
from farflung.machines.controller import NAME
from farflung.machines.decide import SchedulerState
from farflung.machines.engine.engine import SchedulingEngine
from farflung.machines.engine.policy import SchedulerPolicy
from farflung.machines.engine.values import (
    Item,
    LabelRule,
    MachineRequest,
    MachineToleration,
    ResourceClaim,
    SchedulingDecision,
    SiteKey,
)
from farflung.machines.failover import HEALTH_TAINTS, FailoverOptions
from farflung.machines.files.configuration import SchedulerConfiguration
from farflung.machines.inventory import (
    ObservedCluster,
    ObservedTarget,
    TargetShare,
    cause_ages,
    decode_cluster,
    decode_target,
    merge_target,
    refusal_age,
)
from farflung.machines.object_readers import SubjectDecoder
from farflung.machines.rights import NO_AUTHOR, closing_reason
from farflung.machines.subjects import ALLOCATION, POD, ObservedSubject, SchedulingSubject
from farflung.machines.triggers import TargetShares
from farflung.placement.names import is_mailbox_name
from farflung.placement.types import Location
from farflung.runtime.cache import Key


class RegionWish(Result, frozen=True):
    region: str
    zones: list[str]


class PointWish(Result, frozen=True):
    latitude: float
    longitude: float


class RequestSelectors(Result, frozen=True):
    """The selectors of a request."""

    geo: dict[str, str] | UnsetType
    regions: list[RegionWish] | UnsetType
    operator: str | UnsetType
    site: str | UnsetType
    cluster_affinity: list[str] | UnsetType
    stack_affinity: list[str] | UnsetType
    stack_anti_affinity: list[str] | UnsetType
    near: PointWish | UnsetType
    preferences: int | UnsetType
    tolerations: int | UnsetType


class How(Result, frozen=True):
    """The strategy of a request."""

    strategy: str
    one_region: bool | UnsetType
    min_clusters: int | UnsetType
    max_clusters: int | UnsetType


class RequestedItem(Result, frozen=True):
    number: int
    flavors: list[str]
    spot: list[str] | UnsetType  #: flavors
    storage: dict[str, int] | UnsetType
    public_address: bool | UnsetType


class RequestSummary(Result, frozen=True):
    replicas: int
    priority: int
    items: list[RequestedItem]
    where: RequestSelectors
    how: How
    overlooked: dict[str, str] | UnsetType  #: fields of `where` that the policy ignores, and the plugin that it lacks


class BoundReplica(Result, frozen=True):
    """A replica and its Cluster."""

    replica: int
    workspace: str
    namespace: str
    name: str
    flavors: list[str]
    score: float | UnsetType = UNSET


class UnwellCluster(Result, frozen=True):
    """A Cluster from which replicas may be evicted."""

    workspace: str
    namespace: str
    name: str
    phase: str
    is_unhealthy: bool = msgspec.field(name="ails")  #: not only tainted
    since: str | UnsetType
    evicted_at: str | None = msgspec.field(name="leaves")  #: when the machine is evicted; None: never
    is_suspended: bool = msgspec.field(name="held")  #: evictions are stopped


class LeavingMachine(Result, frozen=True):
    """It is bound to a deleted Cluster."""

    kind: str
    cluster: str
    namespace: str
    name: str


class MachineDecision(Result, frozen=True):
    placed: bool | UnsetType = UNSET
    message: str | UnsetType = UNSET
    reasons: dict[str, int] | UnsetType = UNSET
    chosen: list[BoundReplica] | UnsetType = UNSET
    stays: list[BoundReplica] | UnsetType = UNSET
    released: list[BoundReplica] | UnsetType = UNSET
    leaving: list[LeavingMachine] | UnsetType = UNSET  #: machines at a deleted Cluster

    @property
    def is_change(self) -> bool:
        return bool(self.released or self.chosen or self.leaving)


#: fields of a SiteSelector with another name in results
PRINTED: Final = {"affinity": "stackAffinity", "antiaffinity": "stackAntiAffinity", "preferred": "preferences"}


def summarize_request(request: MachineRequest, policy: SchedulerPolicy) -> RequestSummary:
    selector = request.selector
    overlooked = {PRINTED.get(wish, wish): plugin for wish, plugin in policy.overlooked(selector).items()}
    return RequestSummary(
        request.replicas,
        request.priority,
        list(map(_item, request.items)),
        RequestSelectors(
            {name: value for name, value in asdict(selector.geo).items() if value} or UNSET,
            [RegionWish(one.region, list(one.zones)) for one in selector.regions] or UNSET,
            selector.operator or UNSET,
            selector.site or UNSET,
            list(map(_requirement, selector.required)) or UNSET,
            list(map(_requirement, selector.affinity)) or UNSET,
            list(map(_requirement, selector.antiaffinity)) or UNSET,
            UNSET if selector.near is None else PointWish(selector.near.latitude, selector.near.longitude),
            len(selector.preferred) or UNSET,
            len(selector.tolerations) or UNSET,
        ),
        How(
            selector.strategy.value,
            selector.region_alone or UNSET,
            selector.min_clusters or UNSET,
            selector.max_clusters or UNSET,
        ),
        overlooked or UNSET,
    )


def _item(item: Item) -> RequestedItem:
    return RequestedItem(
        item.number,
        [one.id for one in item.flavors],
        [one.id for one in item.flavors if one.spot] or UNSET,
        dict(item.storage) or UNSET,
        bool(item.eip) or UNSET,
    )


def _requirement(one: LabelRule) -> str:
    return f"{one.key} {one.operator} {','.join(one.values)}".rstrip()


def summarize_decision(decision: SchedulingDecision) -> MachineDecision:
    if not decision.is_placed:
        return MachineDecision(placed=False, message=decision.message, reasons=dict(decision.reasons))
    chosen = [
        BoundReplica(number, *site_name(one.site), list(one.flavors), one.score)
        for number, one in enumerate(decision.chosen)
    ]
    return MachineDecision(placed=True, chosen=chosen)


def bound_replica(replica: int, site: SiteKey, claim: ResourceClaim) -> BoundReplica:
    """The reservation of one replica."""
    flavors = [flavor for flavor, _ in claim.flavors] + [pool.flavor for pool, _ in claim.spot]
    return BoundReplica(replica, *site_name(site), flavors)


def site_name(site: SiteKey) -> tuple[str, str, str]:
    """Workspace, namespace and name."""
    return site.cluster, site.namespace, site.name


T = TypeVar("T")

KINDS = {POD: PODS, ALLOCATION: ALLOCATIONS}


class _Metadata(msgspec.Struct):
    name: str = ""
    namespace: str = ""
    annotations: dict[str, str] | None = None


class _Named(msgspec.Struct):
    metadata: _Metadata


_named = msgspec.json.Decoder(_Named)


class SchedulerSnapshot(NamedTuple):
    """`state` was read at 0 seconds, which is `now`."""

    state: SchedulerState
    decoder: SubjectDecoder
    now: datetime
    inventory: Inventory
    rights: ReviewedRights
    closed: dict[Author | None, Mapping[SiteKey, str]]  #: sites that are closed to an author, with the reason

    async def review(self, author: Author | None) -> None:
        """Find the sites that are closed to an author.  Those that the user of the command may not review are open."""
        if author in self.closed:
            return
        found = dict[SiteKey, str]()
        locations: dict[str, dict[str, Location]] = {}
        for one in self.inventory.locations:
            locations.setdefault(one.key.cluster, {})[one.key.name] = one
        labels = {(one.key.cluster, one.key.name): one.labels for one in self.inventory.targets}
        for site, target in self.state.targets():
            right = None if author is None else await self.rights.right(RightKey(author, target.cluster))
            there, selected = locations.get(target.cluster, {}), labels.get((target.cluster, target.name), {})
            if author is None:
                found[site] = NO_AUTHOR
            elif right is not None and (reason := closing_reason(right, there, selected)):
                found[site] = reason
        self.closed[author] = found

    def health(self, key: SiteKey, tolerations: Iterable[MachineToleration]) -> UnwellCluster | None:
        """For a machine with these tolerations.  None: the site is healthy or unknown."""
        site = self.state.engine.site(key)
        if site is None or key not in self.state.unhealthy:
            return None
        since, due = self.state.unhealthy_since(key), self.state.eviction_due(key, tolerations)
        return UnwellCluster(
            *site_name(key),
            site.health.value,
            site.health in HEALTH_TAINTS,
            (since and _moment(self.now.timestamp() + since)) or UNSET,
            _moment(self.now.timestamp() + due),
            self.state.is_eviction_suspended,
        )

    def observed(self, kind: str, document: bytes) -> ObservedSubject:
        return self.decoder.pod(document) if kind == POD else self.decoder.allocation(document)


def kind_of(obj: Obj) -> str:
    """POD for a virtual machine, ALLOCATION, or empty for other objects."""
    if (obj.get("apiVersion"), obj.get("kind")) == (ALLOCATIONS.api_version, ALLOCATION):
        return ALLOCATION
    spec = obj.get("spec")
    is_machine = isinstance(spec, dict) and spec.get("virtualMachine") is not None
    return POD if is_machine and (obj.get("apiVersion"), obj.get("kind")) == (PODS.api_version, POD) else ""


def is_cluster(obj: Obj) -> bool:
    return (obj.get("apiVersion"), obj.get("kind")) == (CLUSTERS.api_version, CLUSTERS.kind)


def cluster_key(obj: Obj, cluster: str) -> SiteKey:
    return SiteKey(cluster, obj["metadata"].get("namespace") or "", obj["metadata"]["name"])


async def read(
    hub: HubClient,
    configured: SchedulerConfiguration,
    changed_clusters: Mapping[SiteKey, ObservedCluster | None] | None = None,
) -> SchedulerSnapshot:
    """Raises HiddenError.

    `changed_clusters`: Clusters that replace the existing ones; None: deleted.
    """
    compute = hub.root.workspace(COMPUTE)
    now = await server_time(hub)
    rights, closed = ReviewedRights(hub), dict[Author | None, Mapping[SiteKey, str]]()
    there = await everywhere(compute, CLUSTERS, _or_none(decode_cluster))
    is_delivered = any(
        one is not None and one.target is not None for one in [*there, *(changed_clusters or {}).values()]
    )
    known = SchedulerSnapshot(
        SchedulerState(
            SchedulingEngine(configured.policy, configured.flavors),
            FailoverOptions(),
            lambda author: closed.get(author, {}),
        ),
        SubjectDecoder(configured.flavors, by_workspace=not await rights.records_authors()),
        now,
        await read_inventory(hub.root) if is_delivered else Inventory((), ()),
        rights,
        closed,
    )
    changed = {one.site.key: one for one in there if one is not None} | dict(changed_clusters or {})
    clusters = [one for one in changed.values() if one is not None]
    targets = await _targets(hub.root, [one for one in clusters if one.target is not None])
    for site in configured.sites:
        known.state.put_site(site, 0.0)
    pods = await everywhere(compute, PODS, _keyed(known.decoder.pod), export=COMPUTE_EXPORT)
    beside = await hub.mailboxes() or {}
    mailboxes = {cluster for name, cluster in beside.items() if is_mailbox_name(name)}  # Pods in them are copies
    allocations = await everywhere(compute, ALLOCATIONS, _keyed(known.decoder.allocation))
    for kind, found in ((POD, pods), (ALLOCATION, allocations)):
        for key, seen in found:
            if seen is not None and seen.uid and key.cluster not in mailboxes:
                known.state.observe(SchedulingSubject(kind, key), seen, 0.0)
    _put_sites(known, clusters, targets)
    return known


def _put_sites(
    known: SchedulerSnapshot,
    clusters: Sequence[ObservedCluster],
    targets: Mapping[tuple[str, str, str], tuple[Key, ObservedTarget]],
) -> None:
    """Call it when all reservations are known."""
    sharing = TargetShares()
    for one in clusters:
        if one.site.key in targets:
            sharing.add(targets[one.site.key][0], one.created, one.site.key)
    for one in clusters:
        key, target = targets.get(one.site.key, (None, None))
        share = TargetShare() if key is None else sharing.share(key, one.site.key, known.state.engine.usage)
        site = merge_target(one, target, share)
        known.state.put_site(site, 0.0, ages=cause_ages(one, site, target, known.now))
        known.state.set_target(one.site.key, key)
        known.state.set_refusals(one.site.key, one.refusals, refusal_age(one.refusals, known.now), 0.0)


async def _targets(
    root: Client, clusters: Iterable[ObservedCluster]
) -> Mapping[tuple[str, str, str], tuple[Key, ObservedTarget]]:
    """The SyncTargets of Clusters."""
    wanted = {one.site.key: one.target for one in clusters if one.target is not None}
    if not wanted:
        return {}
    there = dict(await everywhere(root, SYNC_TARGETS, _keyed(decode_target)))
    paths = {one.workspace for one in wanted.values() if ":" in one.workspace}
    logical = {path: await _logical_cluster(root.workspace(path)) for path in sorted(paths)}
    found: dict[tuple[str, str, str], tuple[Key, ObservedTarget]] = {}
    for key, target in wanted.items():
        where = Key(logical.get(target.workspace, target.workspace or key.cluster), "", target.name)
        if (seen := there.get(where)) is not None:
            found[key] = where, seen
    return found


async def _logical_cluster(workspace: Client) -> str:
    try:
        obj = await workspace.get(LOGICAL_CLUSTERS, "cluster")
    except (NotFound, Forbidden):
        return ""  # no such workspace
    return str((obj["metadata"].get("annotations") or {}).get(CLUSTER_ANNOTATION, ""))


def _keyed(read: Callable[[bytes], T]) -> Callable[[bytes], tuple[Key, T | None]]:
    def keyed(document: bytes) -> tuple[Key, T | None]:
        metadata = _named.decode(document).metadata
        cluster = (metadata.annotations or {}).get(CLUSTER_ANNOTATION, "")
        return Key(cluster, metadata.namespace, metadata.name), _or_none(read)(document)

    return keyed


def _or_none(read: Callable[[bytes], T]) -> Callable[[bytes], T | None]:
    """None for an invalid object, which the scheduler ignores."""

    def tried(document: bytes) -> T | None:
        try:
            return read(document)
        except ValueError:
            return None

    return tried


def _moment(seconds: float) -> str | None:
    if isinf(seconds):
        return None
    try:
        return format_seconds(datetime.fromtimestamp(seconds, UTC))
    except (ValueError, OverflowError, OSError):  # beyond the last date
        return None


MAX_PROBLEM: Final = 1000  #: characters of a problem
SILENT: Final = timedelta(
    minutes=1
)  #: without renewal, after which the holder counts as dead; tolerates clock differences


class ScheduledFiles(Result, frozen=True):
    """The configuration files of the running scheduler."""

    options: list[str]
    sites: int
    when: str  #: they were last valid
    problem: str
    since: str


class SchedulerStatus(Result, frozen=True):
    works: bool  #: the Lease is held
    heard: str  #: the last renewal
    files: ScheduledFiles | None

    @property
    def is_well(self) -> bool:
        return self.works and not (self.files and self.files.problem)


async def lease_of(root: Client) -> Obj | None:
    """Empty: not found; None: not visible."""
    try:
        return await root.workspace(COMPUTE).get(LEASES, NAME, "default")
    except NotFound:
        return {}
    except Forbidden:
        return None


def read_lease(lease: Obj, now: datetime) -> SchedulerStatus:
    heard = fields.moment(lease, "spec", "renewTime")
    is_held = bool(fields.text(lease, "spec", "holderIdentity"))
    works = is_held and (heard is None or now - heard < SILENT)
    return SchedulerStatus(works, "" if heard is None else times.format_seconds(heard), _files(lease))


def _files(lease: Obj) -> ScheduledFiles | None:
    """None: no files, or the Lease is not held."""
    if not fields.text(lease, "spec", "holderIdentity"):
        return None
    annotation = fields.texts(lease, "metadata", "annotations").get(FILES_ANNOTATION, "")
    try:
        found = orjson.loads(annotation)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(found, dict):
        return None
    options = found.get("options")
    return ScheduledFiles(
        [one for one in options if isinstance(one, str)] if isinstance(options, list) else [],
        fields.number(found, "sites"),
        *(fields.text(found, name) for name in ("when", "problem", "since")),
    )


def has_sites(lease: Obj | None) -> bool:
    """Whether machines may be bound although there are no Clusters."""
    files = _files(lease or {})
    return files is not None and files.sites > 0


async def remarks(root: Client, configured: SchedulerConfiguration) -> list[str]:
    """For `explain` and `plan`.  `configured`: by the options of the command."""
    files = _files(await lease_of(root) or {})
    return [] if files is None else list(_remarks(files, named=configured != SchedulerConfiguration()))


def _remarks(files: ScheduledFiles, *, named: bool) -> Iterator[str]:
    if not named:
        yield f"the global scheduler uses {fields.line(' '.join(files.options))}; this command does not"
    if files.problem:
        yield f"its files are invalid since {fields.line(files.since)}: {describe_problem(files)}"


def describe_problem(files: ScheduledFiles) -> str:
    return f"{fields.line(files.problem, MAX_PROBLEM)}; the version of {fields.line(files.when)} stays in use"
