"""What there is: Clusters, the SyncTargets that stand for some of them, and what is said of a Cluster.  Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, NamedTuple

import msgspec
import orjson

from farflung.controllers.global_scheduler.ailments import HEALTH, Cause, causes
from farflung.controllers.global_scheduler.avoiding import Refusals, in_words, note, noted
from farflung.controllers.global_scheduler.reading import site_of
from farflung.controllers.global_scheduler.sharing import Share
from farflung.controllers.global_scheduler.subjects import Usage
from farflung.machinery import quantity, times
from farflung.machinery.errors import Obj
from farflung.scheduling.values import Health, Site

CLUSTER: Final = "kcp.io/cluster"
READY: Final = "Ready"
TARGET: Final = "SyncTarget"  #: the condition of a Cluster that one is to stand for: whether it has it
TAKING: Final = "TakesMachines"  #: the condition of a Cluster that took none of the last machines
ALONE: Final = Share()
MEBIBYTE: Final = 1 << 20
WELL: Final = (Health.READY, Health.SELLOUT, Health.UNKNOWN)


class TargetRef(NamedTuple):
    workspace: str  #: a path or a logical cluster; empty: that of the Cluster
    name: str


@dataclass(frozen=True, slots=True)
class SeenCluster:
    site: Site  #: as the Cluster says
    version: str
    created: str
    generation: int
    target: TargetRef | None  #: the SyncTarget that stands for it
    status: Obj

    @property
    def refusals(self) -> Refusals | None:
        """What is noted of machines that it did not take."""
        return noted(self.status, self.generation)


def seen_cluster(document: bytes) -> SeenCluster:
    """ValueError if it makes no sense."""
    obj = orjson.loads(document)
    metadata, spec = obj.get("metadata") or {}, obj.get("spec") or {}
    status = obj.get("status")
    cluster = (metadata.get("annotations") or {}).get(CLUSTER, "")
    generation = metadata.get("generation")
    return SeenCluster(
        site_of(obj, cluster),
        str(metadata.get("resourceVersion", "")),
        str(metadata.get("creationTimestamp", "")),
        generation if isinstance(generation, int) else 0,
        _reference(spec.get("synctarget")),
        status if isinstance(status, dict) else {},
    )


def _reference(said: object) -> TargetRef | None:
    if not isinstance(said, dict) or not isinstance(said.get("name"), str) or not said["name"]:
        return None
    workspace = said.get("workspace")
    return TargetRef(workspace if isinstance(workspace, str) else "", said["name"])


# --- SyncTargets ----------------------------------------------------------------------------------


class SeenTarget(msgspec.Struct, frozen=True):
    uid: str
    ready: str  #: True, False or Unknown; empty: nobody has said
    since: str  #: when; empty: nobody has said
    vcpus: int | None
    memory: int | None  #: MiB


class _Metadata(msgspec.Struct):
    uid: str = ""


class _Status(msgspec.Struct):
    conditions: Any = None
    allocatable: Any = None
    capacity: Any = None


class _Target(msgspec.Struct):
    metadata: _Metadata
    status: _Status = msgspec.field(default_factory=_Status)


_target: Final = msgspec.json.Decoder(_Target)


def seen_target(document: bytes) -> SeenTarget:
    target = _target.decode(document)
    condition = condition_of({"conditions": target.status.conditions}, READY)
    ready, since = condition.get("status"), condition.get("lastTransitionTime")
    amounts = target.status.allocatable or target.status.capacity
    vcpus, memory = _amount(amounts, "cpu"), _amount(amounts, "memory")
    return SeenTarget(
        target.metadata.uid,
        ready if isinstance(ready, str) else "",
        since if isinstance(since, str) else "",
        vcpus,
        None if memory is None else memory // MEBIBYTE,
    )


def _amount(amounts: object, name: str) -> int | None:
    """Whole ones; what is nearly one is none, and more than can be written is as much as can be."""
    said = amounts.get(name) if isinstance(amounts, dict) else None
    if not isinstance(said, str | int):
        return None
    try:
        return min(max(0, quantity.parse(str(said)).nanos // quantity.ONE), quantity.LARGEST_BINARY)
    except quantity.QuantityError:
        return None


def site_with(cluster: SeenCluster, target: SeenTarget | None, share: Share = ALONE) -> Site:
    """The site as it is: what is known of its SyncTarget counts for its health, and for what nobody else has said.
    Nothing new goes to one whose SyncTarget is another Cluster's."""
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
    if share.first is not None and health in WELL:
        health = Health.SELLOUT
    return replace(site, health=health, capacity=capacity, used_elsewhere=elsewhere if any(elsewhere.values()) else {})


def _is_of_target(cluster: SeenCluster) -> bool:
    """Whether its phase is what a SyncTarget said last."""
    return bool(condition_of(cluster.status, TARGET))


def _health(target: SeenTarget) -> Health:
    if target.ready in ("False", "Unknown"):
        return Health.UNREACHABLE
    return Health.READY if target.ready == "True" else Health.UNKNOWN


# --- what is said of it ---------------------------------------------------------------------------


def condition_of(status: Obj, type: str) -> Obj:
    conditions = status.get("conditions")
    found = [one for one in conditions if isinstance(one, dict)] if isinstance(conditions, list) else []
    return next((one for one in found if one.get("type") == type), {})


def age_of(refusals: Refusals | None, now: datetime) -> float:
    """Seconds since that is known."""
    return 0.0 if refusals is None else _age(refusals.last, now) or 0.0


def ages_of(cluster: SeenCluster, site: Site, target: SeenTarget | None, now: datetime) -> dict[Cause, float]:
    """Seconds for which each thing that is wrong with it is known to be so already.  Its SyncTarget may have been well
    for a while when nobody looked, so its health is not counted for longer than that says."""
    found = {cause: _age(taint.since, now) for cause, taint in causes(site) if cause != HEALTH}
    ready = condition_of(cluster.status, READY)
    if site.health not in WELL and ready.get("status") == "False":
        known = [ready.get("lastTransitionTime"), *([] if target is None else [target.since])]
        found[HEALTH] = min((age for one in known if (age := _age(one, now)) is not None), default=None)
    return {cause: age for cause, age in found.items() if age is not None}


def _age(moment: object, now: datetime) -> float | None:
    if not isinstance(moment, str):
        return None
    try:
        return (now - times.parse(moment)).total_seconds()
    except times.TimeError:
        return None


class TargetWord(NamedTuple):
    """What the condition of a Cluster says about its SyncTarget."""

    status: str
    reason: str
    message: str = ""


def word_of(target: TargetRef, *, found: bool, reached: bool = True, share: Share = ALONE) -> TargetWord:
    """`found`: whether the SyncTarget is there; `reached`: whether its workspace is, as far as is known."""
    if not reached:
        return TargetWord("False", "NotFound", f"there is no workspace {target.workspace}")
    if not found:
        where = f"workspace {target.workspace}" if target.workspace else "workspace of the Cluster"
        return TargetWord("False", "NotFound", f"there is no SyncTarget {target.name} in the {where}")
    if share.first is None:
        return TargetWord("True", "Found")
    said = f"the SyncTarget {target.name} is that of the Cluster {share.first}, which was there first"
    where = f" (in the logical cluster {share.first.cluster})"
    return TargetWord("False", "Taken", f"{said}{where}, so nothing new goes here")


def status_of(
    cluster: SeenCluster,
    site: Site,
    usage: Usage,
    now: datetime,
    word: TargetWord | None,
    refusals: Refusals | None = None,
) -> Obj:
    """What is to be written of it; empty: it says so already.  `word`: about its SyncTarget, if it names one;
    `refusals`: of the last machines.

    Without one, its phase is what somebody else says, and Ready until then; but not what one said that stands for it no
    more."""
    before = cluster.status
    wanted: Obj = {
        "stacks": usage.stacks,
        "used": _used(usage),
        "observedGeneration": cluster.generation,
    }
    if cluster.target is not None or _is_of_target(cluster) or not before.get("phase"):
        wanted["phase"] = site.health.value
    changed = {name: value for name, value in wanted.items() if before.get(name) != value}
    if "used" in changed:
        changed["used"] = _replacing(before.get("used"), wanted["used"])
    status = {Health.READY: "True", Health.SELLOUT: "True", Health.UNKNOWN: "Unknown"}.get(site.health, "False")
    conditions = _with(before.get("conditions"), READY, status, site.health.value, now=now)
    if word is not None:
        conditions = _with(conditions, TARGET, *word, now=now)
    elif _is_of_target(cluster):
        conditions = _without(conditions, TARGET)
    if refusals is not None and refusals.several:
        conditions = _with(conditions, TAKING, "False", "Refused", in_words(refusals), now=now)
    elif condition_of(before, TAKING):
        conditions = _without(conditions, TAKING)
    noted_now = None if refusals is None else note(refusals, cluster.generation)
    if before.get("refusals") != noted_now:
        changed["refusals"] = noted_now
    if conditions != before.get("conditions"):
        changed["conditions"] = conditions
    return changed


def _used(usage: Usage) -> Obj:
    return {
        "flavors": dict(usage.flavors),
        "vcpus": usage.vcpus,
        "memory": usage.memory,
        "storage": dict(usage.storage),
        "eips": usage.eips,
    }


def _replacing(before: object, wanted: Obj) -> Obj:
    """As a merge patch, which keeps what it does not name."""
    found = dict(wanted)
    for name in ("flavors", "storage"):
        old = before.get(name) if isinstance(before, dict) else None
        found[name] = {**dict.fromkeys(old if isinstance(old, dict) else {}, None), **wanted[name]}
    return found


def _without(conditions: list[Obj], type: str) -> list[Obj]:
    return [one for one in conditions if one.get("type") != type]


def _with(said: object, type: str, status: str, reason: str, message: str = "", *, now: datetime) -> list[Obj]:
    """All conditions, with this one."""
    known = [one for one in said if isinstance(one, dict)] if isinstance(said, list) else []
    old = condition_of({"conditions": known}, type)
    new: Obj = {"type": type, "status": status, "reason": reason, **({"message": message} if message else {})}
    new["lastTransitionTime"] = (
        old["lastTransitionTime"]
        if old.get("status") == status and old.get("lastTransitionTime")
        else times.format_seconds(now)
    )
    if old and all(old.get(name) == value for name, value in new.items()):
        return known
    return [*(one for one in known if one.get("type") != type), new]
