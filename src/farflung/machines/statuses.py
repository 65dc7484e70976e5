"""Bindings, conditions and the status of Allocations, as they are written.  Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from hashlib import sha256
from typing import Final

import orjson

from farflung.apis.edge.names import STATUS_RETURNED_FROM
from farflung.apis.globalscheduler.names import DELIVERED, GLOBALSCHEDULER_GROUP
from farflung.apis.names import POD_SCHEDULED
from farflung.machinery.errors import Obj
from farflung.machines.engine.values import Item, PlacedReplica, Site, SiteKey, Spot
from farflung.machines.failover import add_machine_refusal, describe_machine_refusal
from farflung.machines.subjects import (
    BOUND_CLUSTER,
    BOUND_FLAVOR,
    LAST_REFUSAL,
    REFUSED_BY,
    ObservedSubject,
    PlacedSubject,
)
from farflung.runtime.cache import Key

SITE: Final = f"{GLOBALSCHEDULER_GROUP}/site-id"
SCORE: Final = f"{GLOBALSCHEDULER_GROUP}/score"
BOUND: Final = "Bound"
NOT_SCHEDULED: Final = "NotScheduled"
UNSCHEDULABLE: Final = "Unschedulable"
INVALID: Final = "Invalid"
MAX_LABEL_NAME: Final = 40  #: of a Cluster in a label


def bound_annotations(chosen: PlacedReplica, site: Site) -> dict[str, str]:
    return {
        BOUND_CLUSTER: chosen.site.annotation,
        BOUND_FLAVOR: chosen.flavors[0],
        SITE: f"{site.region}--{site.zone}",
        SCORE: f"{chosen.score:.2f}",
    }


def binding(key: Key, observed: ObservedSubject, chosen: PlacedReplica, site: Site, labels: Mapping[str, str]) -> Obj:
    """The resourceVersion lets the server refuse it if the Pod changed since the decision."""
    target = {"apiVersion": "globalscheduler.com/v1", "kind": "Cluster", "name": chosen.site.name}
    if chosen.site.namespace:
        target["namespace"] = chosen.site.namespace
    metadata = {
        "name": key.name,
        "namespace": key.namespace,
        "uid": observed.uid,
        "resourceVersion": observed.version,
        "annotations": bound_annotations(chosen, site),
        "labels": labels,
    }
    return {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}


def delivery_label(site: SiteKey) -> str:
    """Unique per Cluster, because Clusters in several namespaces may share a name."""
    return f"{site.name[:MAX_LABEL_NAME].rstrip('.-')}-{sha256('|'.join(site).encode()).hexdigest()[:16]}"


def delivery_labels(site: SiteKey) -> dict[str, str]:
    return {BOUND_CLUSTER: delivery_label(site)}


def unbind_patch(obj: Obj, refused_by: SiteKey | None, now: datetime) -> Obj:
    """A merge patch that removes the binding, and records the Cluster that refused the machine, if any."""
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


def has_condition(status: bytes, reason: str, message: str, type: str = POD_SCHEDULED) -> bool:
    """Whether the status already has this condition, as False."""
    found = find_condition(_status(status), type)
    return (found.get("status"), found.get("reason"), found.get("message")) == ("False", reason, message)


def _status(document: bytes) -> Obj:
    status = orjson.loads(document)
    return status if isinstance(status, dict) else {}


def pod_conditions(status: bytes, scheduled: str, reason: str, message: str, now: str) -> list[Obj]:
    """All conditions of a Pod, with PodScheduled replaced."""
    before = _status(status)
    return set_condition(
        before.get("conditions"),
        {"type": POD_SCHEDULED, "status": scheduled, "reason": reason, "message": message},
        now,
    )


def bound_pod_status(obj: Obj, reason: str, message: str, now: str) -> Obj | None:
    """The changed status of a bound Pod: PodScheduled, if another client removed it, and Delivered=False with the
    reason, if any.  A returned status is kept.  None: no change."""
    existing = obj.get("status")
    before: Obj = existing if isinstance(existing, dict) else {}
    changed: Obj = {}
    is_ours = is_bound(obj) and not is_returned(obj["metadata"].get("annotations"))
    if is_ours and not before.get("phase"):
        changed["phase"] = "Pending"
    if is_ours and not is_scheduled(before):
        changed["conditions"] = set_condition(before.get("conditions"), {"type": POD_SCHEDULED, "status": "True"}, now)
    old = find_condition(before, DELIVERED)
    if (old.get("reason", ""), old.get("message", "")) != (reason, message):
        known = changed.get("conditions", before.get("conditions"))
        wrong = {"type": DELIVERED, "status": "False", "reason": reason, "message": message}
        changed["conditions"] = set_condition(known, wrong, now) if reason else remove_condition(known or [], DELIVERED)
    return changed or None


def is_bound(obj: Obj) -> bool:
    """Whether this scheduler bound it."""
    site = SiteKey.parse((obj["metadata"].get("annotations") or {}).get(BOUND_CLUSTER, ""))
    spec = obj.get("spec") or {}
    return site is not None and site.name == (spec.get("nodeName") or spec.get("clusterName"))


def is_returned(annotations: Mapping[str, str] | None) -> bool:
    """Whether its status was returned from the edge."""
    return STATUS_RETURNED_FROM in (annotations or ())


def is_scheduled(status: Obj) -> bool:
    return bool(find_condition(status, POD_SCHEDULED).get("status") == "True")


def remove_condition(conditions: list[Obj], type: str) -> list[Obj]:
    return [one for one in conditions if not isinstance(one, dict) or one.get("type") != type]


def set_condition(existing: object, condition: Obj, now: str) -> list[Obj]:
    """All conditions, with this one added or replaced.  Its empty fields are omitted."""
    known = [one for one in existing if isinstance(one, dict)] if isinstance(existing, list) else []
    old = find_condition({"conditions": known}, condition["type"])
    since = old.get("lastTransitionTime") if old.get("status") == condition["status"] else None
    new = {**{name: value for name, value in condition.items() if value}, "lastTransitionTime": since or now}
    return known if old == new else [*remove_condition(known, condition["type"]), new]


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
    """Empty fields are omitted."""
    flavors = [{"flavor_id": one.id, **({"spot": _spot(one.spot)} if one.spot else {})} for one in item.flavors]
    fields = {"flavors": flavors, "count": item.number, "storage": dict(item.storage), "need_eip": item.eip}
    return {name: value for name, value in fields.items() if value}


def _spot(spot: Spot) -> Obj:
    return {
        "max_price": spot.max_price,
        "spot_duration_hours": spot.hours,
        "spot_duration_count": spot.periods,
        "interruption_policy": spot.policy,
    }


def bound_allocation_status(placed: PlacedSubject, now: str) -> Obj:
    generation = placed.observed.generation
    placements = [placement(number, chosen) for number, chosen in enumerate(placed.decision.chosen)]
    condition = {"type": PLACED, "status": "True", "reason": BOUND, "observedGeneration": generation}
    return {
        "phase": BOUND,
        "cluster_names": [one.site.name for one in placed.decision.chosen],
        "placements": placements,
        "resources": [resource(item) for item in placed.request.items],
        "conditions": set_condition(_status(placed.observed.status).get("conditions"), condition, now),
        "observedGeneration": generation,
    }


def unplaced_allocation_status(observed: ObservedSubject, reason: str, message: str, now: str) -> Obj:
    """Existing placements stay."""
    condition = {"type": PLACED, "status": "False", "reason": reason, "message": message}
    status: Obj = {"conditions": set_condition(_status(observed.status).get("conditions"), condition, now)}
    if not observed.reservations:
        status["phase"] = NOT_SCHEDULED
    return status
