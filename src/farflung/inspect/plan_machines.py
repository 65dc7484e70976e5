"""Virtual machines, Allocations and Clusters in `farflung plan`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import orjson
from msgspec import UNSET
from msgspec.structs import replace

from farflung.apis.kcp.names import CLUSTER_ANNOTATION
from farflung.inspect.hub import HubClient
from farflung.inspect.scheduler_model import (
    BoundReplica,
    LeavingMachine,
    MachineDecision,
    SchedulerSnapshot,
    bound_replica,
    cluster_key,
    is_cluster,
    kind_of,
    read,
    summarize_decision,
)
from farflung.machinery.errors import Obj
from farflung.machines.engine.values import Reservation
from farflung.machines.files.configuration import SchedulerConfiguration
from farflung.machines.inventory import ObservedCluster, decode_cluster
from farflung.machines.subjects import ObservedSubject, SchedulingSubject
from farflung.runtime.cache import Key


class DryRunObject(NamedTuple):
    """An object of a file after a dry run."""

    document: Obj
    deleted: bool


def is_machine_object(obj: Obj) -> bool:
    """Whether it is a Cluster, a virtual machine or an Allocation."""
    return bool(kind_of(obj)) or is_cluster(obj)


async def decisions(
    hub: HubClient, cluster: str, dry_run: Sequence[DryRunObject], configured: SchedulerConfiguration
) -> tuple[list[MachineDecision], list[str]]:
    """One decision per object, and remarks.  Clusters are changed first.  Then machines are placed one after the other,
    by priority, each with the capacity that the previous ones leave.  `cluster`: of the workspace."""
    clusters = [one for one in dry_run if is_cluster(one.document)]
    wanted = [one for one in dry_run if not is_cluster(one.document)]
    known = await read(
        hub, configured, {cluster_key(one.document, cluster): _cluster(one, cluster) for one in clusters}
    )
    for one in wanted:
        await known.review(_observed(known, one.document, cluster).author)
    found = iter(_decisions(known, cluster, wanted))
    about = [_about(known, one, cluster) if is_cluster(one.document) else next(found) for one in dry_run]
    return about, known.rights.remarks


def _cluster(one: DryRunObject, cluster: str) -> ObservedCluster | None:
    """None if it is deleted or invalid."""
    if one.deleted:
        return None
    try:
        return decode_cluster(orjson.dumps(_in_cluster(one.document, cluster)))
    except ValueError:
        return None


def _about(known: SchedulerSnapshot, one: DryRunObject, cluster: str) -> MachineDecision:
    if not one.deleted:
        return MachineDecision()
    holders = known.state.subjects_at(cluster_key(one.document, cluster))
    return MachineDecision(leaving=[LeavingMachine(kind, *key) for kind, key in sorted(holders)])


def _in_cluster(document: Obj, cluster: str, **metadata: str) -> Obj:
    """With the workspace, which the result of a dry run may lack."""
    before = document["metadata"]
    annotations = {**(before.get("annotations") or {}), CLUSTER_ANNOTATION: cluster}
    return {**document, "metadata": {**before, **metadata, "annotations": annotations}}


def _decisions(known: SchedulerSnapshot, cluster: str, wanted: Sequence[DryRunObject]) -> list[MachineDecision]:
    metadata = [one.document["metadata"] for one in wanted]
    keys = [Key(cluster, one.get("namespace") or "", one["name"]) for one in metadata]
    subjects = [SchedulingSubject(kind_of(one.document), key) for one, key in zip(wanted, keys, strict=True)]
    former = [known.state.observed(subject) for subject in subjects]
    before = [() if one is None else known.state.reservations(one.uid) for one in former]
    for subject, one in zip(subjects, wanted, strict=True):
        if one.deleted:
            known.state.observe(subject, None, 0.0)
    seen = [_observed(known, one.document, cluster) for one in wanted]
    priorities = [0 if one.request is None else one.request.priority for one in seen]
    order = sorted(range(len(wanted)), key=lambda at: (-priorities[at], at))
    found = {
        at: MachineDecision(released=_placements(before[at]))
        if wanted[at].deleted
        else _decide(known, subjects[at], seen[at], before[at])
        for at in order
    }
    return [found[at] for at in range(len(wanted))]


def _observed(known: SchedulerSnapshot, document: Obj, cluster: str) -> ObservedSubject:
    """With a uid, which the result of a dry run may lack."""
    metadata = document["metadata"]
    uid = metadata.get("uid") or f"{metadata.get('namespace')}/{metadata['name']}"
    return known.observed(kind_of(document), orjson.dumps(_in_cluster(document, cluster, uid=uid)))


def _decide(
    known: SchedulerSnapshot, subject: SchedulingSubject, seen: ObservedSubject, before: tuple[Reservation, ...]
) -> MachineDecision:
    if seen.problem:
        return MachineDecision(placed=False, message=f"invalid request: {seen.problem}", reasons={})
    if before and not seen.pending:
        return MachineDecision(placed=True, stays=_placements(before))
    if seen.request is None or not seen.pending:
        return MachineDecision(placed=False, message="the global scheduler ignores it", reasons={})
    engine, excluded = known.state.engine, known.state.excluded(seen.request, 0.0, subject)
    known.state.observe(subject, None, 0.0)
    decision = engine.decide(seen.request, excluded=excluded)
    engine.reserve(engine.reservations_of(seen.request, decision) if decision.is_placed else before)
    stays = _placements(before) if before and not decision.is_placed else UNSET
    return replace(summarize_decision(decision), stays=stays)


def _placements(held: Sequence[Reservation]) -> list[BoundReplica]:
    return [bound_replica(number, one.site, one.claim) for number, one in enumerate(held)]
