"""What `farflung plan` says of virtual machines and Allocations: to which Clusters they would be bound; and what would
leave Clusters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import orjson

from farflung.apis.kcp.names import CLUSTER_ANNOTATION
from farflung.cli.connection import Hub
from farflung.cli.machine_output import NAMED, bound_to, decided, found_of, names_of, placement_of
from farflung.cli.machine_world import Known, cluster_key, is_cluster, kind_of, read
from farflung.cli.scheduler_configuration import Configuration
from farflung.controllers.global_scheduler.inventory import ObservedCluster, decode_cluster
from farflung.controllers.global_scheduler.subjects import ObservedSubject, SchedulingSubject
from farflung.machinery.errors import Obj
from farflung.runtime.cache import Key
from farflung.scheduling.values import Reservation


class Becoming(NamedTuple):
    """What an object of a file would be."""

    document: Obj
    gone: bool


def is_concerned(obj: Obj) -> bool:
    """Whether it is a Cluster, or something that is bound to one."""
    return bool(kind_of(obj)) or is_cluster(obj)


async def decisions(hub: Hub, cluster: str, becoming: Sequence[Becoming], configured: Configuration) -> list[Obj]:
    """One for each, as if nothing else happened.  Clusters are there first, or gone.  The others are decided one after
    the other, those with a higher priority first, and what one of them takes the next one has not.  `cluster`: of the
    workspace."""
    clusters = [one for one in becoming if is_cluster(one.document)]
    wanted = [one for one in becoming if not is_cluster(one.document)]
    known = await read(
        hub, configured, {cluster_key(one.document, cluster): _cluster(one, cluster) for one in clusters}
    )
    found = iter(_decisions(known, cluster, wanted))
    return [_about(known, one, cluster) if is_cluster(one.document) else next(found) for one in becoming]


def _cluster(one: Becoming, cluster: str) -> ObservedCluster | None:
    """None if it is gone, or makes no sense."""
    if one.gone:
        return None
    try:
        return decode_cluster(orjson.dumps(_noted(one.document, cluster)))
    except ValueError:
        return None


def _about(known: Known, one: Becoming, cluster: str) -> Obj:
    if not one.gone:
        return {}
    holders = known.world.subjects_at(cluster_key(one.document, cluster))
    return {"leaving": [{"kind": kind, **key._asdict()} for kind, key in sorted(holders)]}


def _noted(document: Obj, cluster: str, **metadata: str) -> Obj:
    """With the workspace, which what is only checked does not have, perhaps."""
    before = document["metadata"]
    annotations = {**(before.get("annotations") or {}), CLUSTER_ANNOTATION: cluster}
    return {**document, "metadata": {**before, **metadata, "annotations": annotations}}


def _decisions(known: Known, cluster: str, wanted: Sequence[Becoming]) -> list[Obj]:
    subjects = [_subject(one.document, cluster) for one in wanted]
    before = [_held(known, subject) for subject in subjects]
    for subject, one in zip(subjects, wanted, strict=True):
        if one.gone:
            known.world.observe(subject, None, 0.0)
    seen = [_seen(known, one.document, cluster) for one in wanted]
    order = sorted(range(len(wanted)), key=lambda at: (-_priority(seen[at]), at))
    found = {
        at: {"released": _placements(before[at])}
        if wanted[at].gone
        else _decide(known, subjects[at], seen[at], before[at])
        for at in order
    }
    return [found[at] for at in range(len(wanted))]


def _subject(document: Obj, cluster: str) -> SchedulingSubject:
    metadata = document["metadata"]
    return SchedulingSubject(kind_of(document), Key(cluster, metadata.get("namespace") or "", metadata["name"]))


def _seen(known: Known, document: Obj, cluster: str) -> ObservedSubject:
    """What is only checked has no uid yet, perhaps."""
    metadata = document["metadata"]
    uid = metadata.get("uid") or f"{metadata.get('namespace')}/{metadata['name']}"
    return known.observed(kind_of(document), orjson.dumps(_noted(document, cluster, uid=uid)))


def _held(known: Known, subject: SchedulingSubject) -> tuple[Reservation, ...]:
    seen = known.world.observed(subject)
    return () if seen is None else known.world.reservations(seen.uid)


def _priority(seen: ObservedSubject) -> int:
    return 0 if seen.request is None else seen.request.priority


def _decide(known: Known, subject: SchedulingSubject, seen: ObservedSubject, before: tuple[Reservation, ...]) -> Obj:
    if seen.problem:
        return {"placed": False, "message": f"it cannot be understood: {seen.problem}", "reasons": {}}
    if before and not seen.pending:
        return {"placed": True, "stays": _placements(before)}
    if seen.request is None or not seen.pending:
        return {"placed": False, "message": "the global scheduler leaves it alone", "reasons": {}}
    engine, excluded = known.world.engine, known.world.excluded(seen.request, 0.0, subject)
    known.world.observe(subject, None, 0.0)
    decision = engine.decide(seen.request, excluded=excluded)
    engine.reserve(engine.reservations_of(seen.request, decision) if decision.is_placed else before)
    stays = {"stays": _placements(before)} if before and not decision.is_placed else {}
    return {**found_of(decision), **stays}


def _placements(held: Sequence[Reservation]) -> list[Obj]:
    return [placement_of(number, one.site, one.claim) for number, one in enumerate(held)]


# --- for people -----------------------------------------------------------------------------------


def lines(decision: Obj) -> Iterator[str]:
    if leaving := decision.get("leaving"):
        yield _leaving([f"{one['kind']} {one['namespace']}/{one['name']}" for one in leaving])
    if "released" in decision:
        places = decision["released"]
        yield f"is not {bound_to(places, names_of(places))} any more" if places else "was not bound"
        return
    stays, chosen = decision.get("stays", ()), decision.get("chosen", ())
    names = names_of([*stays, *chosen])
    if stays:
        why = "" if decision["placed"] else f", because it fits nowhere: {decision['message']}"
        yield f"stays {bound_to(stays, names)}{why}"
    elif "placed" in decision:
        yield from decided(decision, names)


def _leaving(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    verb = "is bound to it, and leaves" if len(names) == 1 else "are bound to it, and leave"
    return f"{', '.join(names[:NAMED])}{more} {verb} if there is room elsewhere"


def is_change(decision: Obj) -> bool:
    return any(decision.get(name) for name in ("released", "chosen", "leaving"))
