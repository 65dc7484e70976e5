"""What is written when something is placed or not: Bindings, conditions, and the status of Allocations.  Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from hashlib import sha256
from typing import Final

import orjson

from farflung.controllers.global_scheduler.refusals import add_machine_refusal, describe_machine_refusal
from farflung.controllers.global_scheduler.subjects import (
    BOUND_CLUSTER,
    BOUND_FLAVOR,
    GROUP,
    LAST_REFUSAL,
    REFUSED_BY,
    ObservedSubject,
    PlacedSubject,
)
from farflung.machinery.errors import Obj
from farflung.placement.project import RETURNED
from farflung.runtime.cache import Key
from farflung.scheduling.values import Item, PlacedReplica, Site, SiteKey, Spot

SITE: Final = f"{GROUP}/site-id"
SCORE: Final = f"{GROUP}/score"
SCHEDULED: Final = "PodScheduled"
DELIVERED: Final = "Delivered"  #: the condition of a Pod that is not where it is bound to
BOUND: Final = "Bound"
NOT_SCHEDULED: Final = "NotScheduled"
UNSCHEDULABLE: Final = "Unschedulable"
INVALID: Final = "Invalid"
MAX_LABEL_NAME: Final = 40  #: characters of a Cluster's name in a label


def bound_annotations(chosen: PlacedReplica, site: Site) -> dict[str, str]:
    """Of a Pod that is bound to a site."""
    key = chosen.site
    return {
        BOUND_CLUSTER: f"{key.cluster}|{key.namespace}/{key.name}",
        BOUND_FLAVOR: chosen.flavors[0],
        SITE: f"{site.region}--{site.zone}",
        SCORE: f"{chosen.score:.2f}",
    }


def binding(key: Key, seen: ObservedSubject, chosen: PlacedReplica, site: Site) -> Obj:
    """Of a Pod to a Cluster, if it still asks for what was decided on."""
    target = {"apiVersion": "globalscheduler.com/v1", "kind": "Cluster", "name": chosen.site.name}
    if chosen.site.namespace:
        target["namespace"] = chosen.site.namespace
    metadata = {
        "name": key.name,
        "namespace": key.namespace,
        "uid": seen.uid,
        "resourceVersion": seen.version,
        "annotations": bound_annotations(chosen, site),
    }
    return {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}


def delivery_label(site: SiteKey) -> str:
    """What says where something is bound to: Clusters of several namespaces may have the same name."""
    return f"{site.name[:MAX_LABEL_NAME].rstrip('.-')}-{sha256('|'.join(site).encode()).hexdigest()[:16]}"


def delivery_labels(site: SiteKey) -> dict[str, str]:
    """By which what is bound there is selected."""
    return {BOUND_CLUSTER: delivery_label(site)}


def bind_patch(seen: ObservedSubject, chosen: PlacedReplica, site: Site) -> Obj:
    """The same as a merge patch, for servers that know no Bindings."""
    metadata: Obj = {"uid": seen.uid, "resourceVersion": seen.version, "annotations": bound_annotations(chosen, site)}
    return {"metadata": metadata, "spec": {"nodeName": chosen.site.name, "clusterName": chosen.site.name}}


def unbind_patch(obj: Obj, refused_by: SiteKey | None, now: datetime) -> Obj:
    """As a merge patch: it is nowhere, as it was before, but for a note that a Cluster refused it, and why."""
    annotations: dict[str, str | None] = dict.fromkeys((BOUND_CLUSTER, BOUND_FLAVOR, SITE, SCORE))
    if refused_by is not None:
        before = (obj["metadata"].get("annotations") or {}).get(REFUSED_BY, "")
        note, status = add_machine_refusal(before, refused_by), obj.get("status")
        why = find_condition(status, DELIVERED).get("message") if isinstance(status, dict) else None
        annotations |= {REFUSED_BY: note, LAST_REFUSAL: describe_machine_refusal(note, refused_by, str(why or ""), now)}
    metadata = {
        "uid": obj["metadata"]["uid"],
        "resourceVersion": obj["metadata"]["resourceVersion"],
        "annotations": annotations,
        "labels": {BOUND_CLUSTER: None},
    }
    return {"metadata": metadata, "spec": {"nodeName": None, "clusterName": None}}


def find_condition(status: Obj, type: str) -> Obj:
    conditions = status.get("conditions")
    found = [one for one in conditions if isinstance(one, dict)] if isinstance(conditions, list) else []
    return next((one for one in found if one.get("type") == type), {})


def has_condition(status: bytes, reason: str, message: str, type: str = SCHEDULED) -> bool:
    """Whether a status says already that something is not placed, and why."""
    found = find_condition(_status(status), type)
    return (found.get("status"), found.get("reason"), found.get("message")) == ("False", reason, message)


def _status(document: bytes) -> Obj:
    status = orjson.loads(document)
    return status if isinstance(status, dict) else {}


def pod_conditions(status: bytes, scheduled: str, reason: str, message: str, now: str) -> list[Obj]:
    """All conditions of a Pod, with that one."""
    before = _status(status)
    return _with(before, {"type": SCHEDULED, "status": scheduled, "reason": reason, "message": message}, now)


def bound_pod_status(obj: Obj, reason: str, message: str, now: str) -> Obj | None:
    """What the status of a Pod has to say, if it is bound: that it is, which servers without Bindings do not write, and
    why it is not there, if there is a reason.  What came back from there stays.  None: it says so already."""
    said = obj.get("status")
    before: Obj = said if isinstance(said, dict) else {}
    changed: Obj = {}
    is_ours = is_bound(obj) and not is_returned(obj["metadata"].get("annotations"))
    if is_ours and not before.get("phase"):
        changed["phase"] = "Pending"
    if is_ours and not is_scheduled(before):
        changed["conditions"] = _with(before, {"type": SCHEDULED, "status": "True"}, now)
    old = find_condition(before, DELIVERED)
    if (old.get("reason", ""), old.get("message", "")) != (reason, message):
        known = {"conditions": changed.get("conditions", before.get("conditions"))}
        wrong = {"type": DELIVERED, "status": "False", "reason": reason, "message": message}
        changed["conditions"] = _with(known, wrong, now) if reason else _without(known, DELIVERED)
    return changed or None


def is_bound(obj: Obj) -> bool:
    """By us."""
    noted, spec = (obj["metadata"].get("annotations") or {}).get(BOUND_CLUSTER, ""), obj.get("spec") or {}
    name = spec.get("nodeName") or spec.get("clusterName")
    return bool(name) and noted.endswith(f"/{name}")


def is_returned(annotations: Mapping[str, str] | None) -> bool:
    """Whether a status is that of the copy at an edge."""
    return RETURNED in (annotations or ())


def is_half_bound(obj: Obj) -> bool:
    """It is to be brought somewhere, and is bound to nothing."""
    spec = obj.get("spec") or {}
    return BOUND_CLUSTER in (obj["metadata"].get("labels") or {}) and not (
        spec.get("nodeName") or spec.get("clusterName")
    )


def is_scheduled(status: Obj) -> bool:
    return bool(find_condition(status, SCHEDULED).get("status") == "True")


def _without(before: Obj, type: str) -> list[Obj]:
    return [one for one in before["conditions"] if not isinstance(one, dict) or one.get("type") != type]


def _with(before: Obj, condition: Obj, now: str) -> list[Obj]:
    said = before.get("conditions")
    others = [one for one in said if isinstance(one, dict)] if isinstance(said, list) else []
    old = next((one for one in others if one.get("type") == condition["type"]), {})
    since = old.get("lastTransitionTime") if old.get("status") == condition["status"] else None
    new = {**{name: value for name, value in condition.items() if value}, "lastTransitionTime": since or now}
    return [*(one for one in others if one.get("type") != condition["type"]), new]


# --- Allocations ----------------------------------------------------------------------------------

PLACED: Final = "Scheduled"  #: the condition of an Allocation


def placement(replica: int, chosen: PlacedReplica) -> Obj:
    key = chosen.site
    return {
        "replica": replica,
        "cluster": {"workspace": key.cluster, "namespace": key.namespace, "name": key.name},
        "flavors": list(chosen.flavors),
        "score": round(chosen.score, 2),
    }


def resource(item: Item) -> Obj:
    """As an Allocation says it; what nobody asked for is left out."""
    flavors = [{"flavor_id": one.id, **({"spot": _spot(one.spot)} if one.spot else {})} for one in item.flavors]
    said = {"flavors": flavors, "count": item.number, "storage": dict(item.storage), "need_eip": item.eip}
    return {name: value for name, value in said.items() if value}


def _spot(spot: Spot) -> Obj:
    return {
        "max_price": spot.max_price,
        "spot_duration_hours": spot.hours,
        "spot_duration_count": spot.periods,
        "interruption_policy": spot.policy,
    }


def bound_allocation_status(placed: PlacedSubject, now: str) -> Obj:
    """Its status: every replica has its Cluster."""
    generation = placed.seen.generation
    placements = [placement(number, chosen) for number, chosen in enumerate(placed.decision.chosen)]
    condition = {"type": PLACED, "status": "True", "reason": BOUND, "observedGeneration": generation}
    return {
        "phase": BOUND,
        "cluster_names": [one.site.name for one in placed.decision.chosen],
        "placements": placements,
        "resources": [resource(item) for item in placed.request.items],
        "conditions": _with(_status(placed.seen.status), condition, now),
        "observedGeneration": generation,
    }


def unplaced_allocation_status(seen: ObservedSubject, reason: str, message: str, now: str) -> Obj:
    """Its status.  What is placed stays where it is."""
    condition = {"type": PLACED, "status": "False", "reason": reason, "message": message}
    status: Obj = {"conditions": _with(_status(seen.status), condition, now)}
    if not seen.held:
        status["phase"] = NOT_SCHEDULED
    return status
