"""Clusters and the SyncTargets that represent them, and the status of Clusters.  Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, NamedTuple

import msgspec

from farflung.apis.globalscheduler.names import TAKES_MACHINES
from farflung.machinery import quantity, times
from farflung.machinery.errors import Obj
from farflung.machines.engine.sites import SiteUsage
from farflung.machines.engine.values import (
    ANYWHERE,
    UNSCHEDULABLE,
    Amount,
    Capacity,
    Geo,
    Health,
    Point,
    Site,
    SiteKey,
    SiteTaint,
    Whole,
)
from farflung.machines.failover import (
    UNHEALTHY,
    HealthCause,
    RefusalRecord,
    describe_cluster_refusals,
    find_causes,
    read_cluster_refusals,
    write_cluster_refusals,
)
from farflung.machines.object_readers import Metadata
from farflung.machines.statuses import find_condition, remove_condition, set_condition
from farflung.placement.types import StatusCondition, SyncTarget

READY: Final = "Ready"
TARGET: Final = "SyncTarget"  #: condition of a Cluster with a SyncTarget: whether it exists
MEBIBYTE: Final = 1 << 20
HEALTHY: Final = (Health.READY, Health.SELLOUT, Health.UNKNOWN)


class TargetShare(NamedTuple):
    """The part of a SyncTarget's capacity that a Cluster has."""

    first: SiteKey | None = None  #: the Cluster that uses the SyncTarget; None: this one
    vcpus: int = 0  #: reserved by the other Clusters of this SyncTarget
    memory: int = 0


UNSHARED: Final = TargetShare()


class SyncTargetRef(msgspec.Struct, frozen=True):
    name: str
    workspace: str = ""  #: a path or a logical cluster; empty: that of the Cluster


@dataclass(frozen=True, slots=True)
class ObservedCluster:
    site: Site  #: without its SyncTarget
    version: str
    created: str
    generation: int
    target: SyncTargetRef | None  #: the SyncTarget that represents it
    status: Obj

    @property
    def refusals(self) -> RefusalRecord | None:
        return read_cluster_refusals(self.status, self.generation)


class _Region(msgspec.Struct, frozen=True):
    region: str = ""
    availabilityzone: str = ""


class _Operator(msgspec.Struct, frozen=True):
    operator: str = ""


class _OfferedFlavor(msgspec.Struct):
    flavorid: str
    totalcapacity: Whole = 0


class _OfferedStorage(msgspec.Struct):
    typeid: str
    storagecapacity: Whole = 0


class _ClusterSpec(msgspec.Struct):
    geolocation: Geo = ANYWHERE
    region: _Region = _Region()
    operator: _Operator = _Operator()
    flavors: list[_OfferedFlavor] = []
    storage: list[_OfferedStorage] = []
    eipcapacity: Whole | None = None
    cpucapacity: Whole = 0
    memcapacity: Whole = 0
    serverprice: Amount | None = None
    unschedulable: bool = False
    taints: list[SiteTaint] = []
    exclusivetenants: list[str] = []
    coordinates: Point | None = None
    synctarget: SyncTargetRef | None = None

    @property
    def capacity(self) -> Capacity:
        """Repeated entries are summed.  0 vcpus or memory mean unlimited, because clients send 0 for unknown; 0 eips
        mean none."""
        flavors, storage = Counter[str](), Counter[str]()
        for flavor in self.flavors:
            flavors[flavor.flavorid] += flavor.totalcapacity
        for one in self.storage:
            storage[one.typeid] += one.storagecapacity
        return Capacity(flavors, self.cpucapacity or None, self.memcapacity or None, storage, self.eipcapacity)


class _Cluster(msgspec.Struct):
    metadata: Metadata
    spec: msgspec.Raw = msgspec.Raw(b"{}")
    status: msgspec.Raw = msgspec.Raw(b"{}")


_cluster: Final = msgspec.json.Decoder(_Cluster)
_spec: Final = msgspec.json.Decoder(_ClusterSpec)


def decode_cluster(document: bytes) -> ObservedCluster:
    """A Cluster with an invalid spec is unschedulable.  Raises ValueError."""
    found = _cluster.decode(document)
    metadata, status = found.metadata, msgspec.json.decode(found.status)
    try:
        spec = _spec.decode(found.spec)
    except msgspec.ValidationError:
        spec = _ClusterSpec(unschedulable=True)
    site = Site(
        SiteKey(metadata.cluster, metadata.namespace, metadata.name),
        metadata.uid,
        spec.geolocation,
        spec.region.region,
        spec.region.availabilityzone,
        spec.operator.operator,
        next((one for one in Health if one == status.get("phase", Health.READY)), Health.UNKNOWN),
        metadata.labels,
        (UNSCHEDULABLE, *spec.taints) if spec.unschedulable else tuple(spec.taints),
        frozenset(filter(None, spec.exclusivetenants)),
        spec.capacity,
        price=spec.serverprice,
        point=spec.coordinates,
        leaving=metadata.deletion_timestamp is not None,
    )
    version, created = metadata.resource_version, metadata.creation_timestamp
    return ObservedCluster(site, version, created, metadata.generation, spec.synctarget, status)


# --- SyncTargets ----------------------------------------------------------------------------------


class ObservedTarget(msgspec.Struct, frozen=True):
    uid: str
    labels: Mapping[str, str]
    ready: str  #: True, False or Unknown; empty: no condition
    since: str  #: lastTransitionTime; empty: no condition
    vcpus: int | None
    memory: int | None  #: MiB


_target: Final = msgspec.json.Decoder(SyncTarget)


def decode_target(document: bytes) -> ObservedTarget:
    target = _target.decode(document)
    condition = next((one for one in target.conditions if one.type == READY), StatusCondition(READY))
    amounts = None if target.status is None else target.status.allocatable or target.status.capacity
    vcpus, memory = _amount(amounts, "cpu"), _amount(amounts, "memory")
    return ObservedTarget(
        target.metadata.uid,
        target.metadata.labels or {},
        condition.status,
        condition.last_transition_time,
        vcpus,
        None if memory is None else memory // MEBIBYTE,
    )


def _amount(amounts: object, name: str) -> int | None:
    """Rounded down, and limited to the largest quantity."""
    given = amounts.get(name) if isinstance(amounts, dict) else None
    if not isinstance(given, str | int):
        return None
    try:
        return min(max(0, quantity.parse(str(given)).nanos // quantity.ONE), quantity.LARGEST_BINARY)
    except quantity.QuantityError:
        return None


def merge_target(cluster: ObservedCluster, target: ObservedTarget | None, share: TargetShare = UNSHARED) -> Site:
    """The site with the health of its SyncTarget, and its capacity where the Cluster has none.  A Cluster whose
    SyncTarget represents another Cluster is sold out."""
    site = cluster.site
    if cluster.target is None:
        return replace(site, health=Health.READY) if _is_of_target(cluster) else site
    if target is None:
        return replace(site, health=Health.OFFLINE)
    capacity = site.capacity
    if capacity.vcpus is None and target.vcpus is not None:
        capacity = replace(capacity, vcpus=target.vcpus)
    if capacity.memory is None and target.memory is not None:
        capacity = replace(capacity, memory=target.memory)
    health, elsewhere = _health(target), {"vcpus": share.vcpus, "memory": share.memory}
    if share.first is not None and health in HEALTHY:
        health = Health.SELLOUT
    return replace(site, health=health, capacity=capacity, used_elsewhere=elsewhere if any(elsewhere.values()) else {})


def unresolved_site(cluster: ObservedCluster) -> Site:
    """The site of a Cluster whose SyncTarget, and so its capacity, is not known yet.  It accepts no new machines."""
    site = cluster.site
    return replace(site, health=Health.SELLOUT) if site.health in HEALTHY else site


def _is_of_target(cluster: ObservedCluster) -> bool:
    """Whether a SyncTarget determined its phase."""
    return bool(find_condition(cluster.status, TARGET))


def _health(target: ObservedTarget) -> Health:
    if target.ready in ("False", "Unknown"):
        return Health.UNREACHABLE
    return Health.READY if target.ready == "True" else Health.UNKNOWN


# --- status ---------------------------------------------------------------------------------------


def refusal_age(refusals: RefusalRecord | None, now: datetime) -> float:
    """Seconds since the last refusal."""
    return 0.0 if refusals is None else _age(refusals.last, now) or 0.0


def cause_ages(
    cluster: ObservedCluster, site: Site, target: ObservedTarget | None, now: datetime
) -> dict[HealthCause, float]:
    """For how long each cause of bad health has existed, in seconds.  The shorter time of Cluster and SyncTarget
    counts:
    the SyncTarget may have been ready while the scheduler was down."""
    found = {cause: _age(taint.since, now) for cause, taint in find_causes(site) if cause != UNHEALTHY}
    ready = find_condition(cluster.status, READY)
    if site.health not in HEALTHY and ready.get("status") == "False":
        known = [ready.get("lastTransitionTime"), *([] if target is None else [target.since])]
        found[UNHEALTHY] = min((age for one in known if (age := _age(one, now)) is not None), default=None)
    return {cause: age for cause, age in found.items() if age is not None}


def _age(moment: object, now: datetime) -> float | None:
    if not isinstance(moment, str):
        return None
    try:
        return (now - times.parse(moment)).total_seconds()
    except times.TimeError:
        return None


class TargetCondition(NamedTuple):
    status: str
    reason: str
    message: str = ""


def target_condition(
    target: SyncTargetRef, *, found: bool, reached: bool = True, share: TargetShare = UNSHARED
) -> TargetCondition:
    """`found`: whether the SyncTarget exists; `reached`: whether its workspace may exist."""
    if not reached:
        return TargetCondition("False", "NotFound", f"no workspace {target.workspace}")
    if not found:
        where = f"workspace {target.workspace}" if target.workspace else "workspace of the Cluster"
        return TargetCondition("False", "NotFound", f"no SyncTarget {target.name} in the {where}")
    if share.first is None:
        return TargetCondition("True", "Found")
    message = f"SyncTarget {target.name} already represents the Cluster {share.first}"
    where = f" (in the logical cluster {share.first.cluster})"
    return TargetCondition("False", "Taken", f"{message}{where}; this Cluster accepts no new machines")


def plan_status(
    cluster: ObservedCluster,
    site: Site,
    usage: SiteUsage,
    now: datetime,
    condition: TargetCondition | None,
    refusals: RefusalRecord | None = None,
) -> Obj:
    """The changed fields of the status; empty: no change.  `condition`: of its SyncTarget, if it names one.

    Without a SyncTarget, the phase belongs to other writers, and is Ready until they set it.
    """
    before, written = cluster.status, times.format_seconds(now)
    wanted: Obj = {
        "stacks": len(usage.stacks),
        "used": _used(usage),
        "observedGeneration": cluster.generation,
    }
    if cluster.target is not None or _is_of_target(cluster) or not before.get("phase"):
        wanted["phase"] = site.health.value
    changed = {name: value for name, value in wanted.items() if before.get(name) != value}
    if "used" in changed:
        changed["used"] = _replacing(before.get("used"), wanted["used"])
    status = {Health.READY: "True", Health.SELLOUT: "True", Health.UNKNOWN: "Unknown"}.get(site.health, "False")
    conditions = set_condition(
        before.get("conditions"), {"type": READY, "status": status, "reason": site.health.value}, written
    )
    if condition is not None:
        conditions = set_condition(conditions, {"type": TARGET, **condition._asdict()}, written)
    elif _is_of_target(cluster):
        conditions = remove_condition(conditions, TARGET)
    if refusals is not None and refusals.several:
        text = describe_cluster_refusals(refusals)
        taking = {"type": TAKES_MACHINES, "status": "False", "reason": "Refused", "message": text}
        conditions = set_condition(conditions, taking, written)
    elif find_condition(before, TAKES_MACHINES):
        conditions = remove_condition(conditions, TAKES_MACHINES)
    noted_now = None if refusals is None else write_cluster_refusals(refusals, cluster.generation)
    if before.get("refusals") != noted_now:
        changed["refusals"] = noted_now
    if conditions != before.get("conditions"):
        changed["conditions"] = conditions
    return changed


def _used(usage: SiteUsage) -> Obj:
    return {
        "flavors": dict(sorted(usage.flavors.items())),
        "vcpus": usage.vcpus,
        "memory": usage.memory,
        "storage": dict(sorted(usage.storage.items())),
        "eips": usage.eips,
    }


def _replacing(before: object, wanted: Obj) -> Obj:
    """As a merge patch, with null for removed keys."""
    found = dict(wanted)
    for name in ("flavors", "storage"):
        old = before.get(name) if isinstance(before, dict) else None
        found[name] = {**dict.fromkeys(old if isinstance(old, dict) else {}, None), **wanted[name]}
    return found
