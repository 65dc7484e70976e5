"""Requests and decisions about virtual machines, for JSON and YAML."""

from __future__ import annotations

from typing import Final

from farflung.machinery.errors import Obj
from farflung.machines.engine.policy import SchedulerPolicy
from farflung.machines.engine.values import Item, LabelRule, MachineRequest, ResourceClaim, SchedulingDecision, SiteKey

#: fields of a SiteSelector with another name in the output
PRINTED: Final = {"affinity": "stackAffinity", "antiaffinity": "stackAntiAffinity", "preferred": "preferences"}


def request_document(request: MachineRequest, policy: SchedulerPolicy) -> Obj:
    """With the fields that the policy ignores."""
    selector = request.selector
    where = {
        "geo": {name: value for name, value in selector.geo._asdict().items() if value},
        "regions": [{"region": one.region, "zones": list(one.zones)} for one in selector.regions],
        "operator": selector.operator,
        "site": selector.site,
        "clusterAffinity": [_requirement(one) for one in selector.required],
        "stackAffinity": [_requirement(one) for one in selector.affinity],
        "stackAntiAffinity": [_requirement(one) for one in selector.antiaffinity],
        "near": None if selector.near is None else selector.near._asdict(),
        "preferences": len(selector.preferred),
        "tolerations": len(selector.tolerations),
    }
    how = {
        "strategy": selector.strategy.value,
        "oneRegion": selector.region_alone,
        "minClusters": selector.min_clusters,
        "maxClusters": selector.max_clusters,
    }
    overlooked = {PRINTED.get(wish, wish): plugin for wish, plugin in policy.overlooked(selector).items()}
    return {
        "replicas": request.replicas,
        "priority": request.priority,
        "items": [_item_value(one) for one in request.items],
        "where": {name: value for name, value in where.items() if value},
        "how": {name: value for name, value in how.items() if value},
        **({"overlooked": overlooked} if overlooked else {}),
    }


def _item_value(item: Item) -> Obj:
    return {
        "name": item.name,
        "number": item.number,
        "flavors": [one.id for one in item.flavors],
        **({"spot": [one.id for one in item.flavors if one.spot]} if any(one.spot for one in item.flavors) else {}),
        **({"storage": dict(item.storage)} if item.storage else {}),
        **({"publicAddress": True} if item.eip else {}),
    }


def _requirement(one: LabelRule) -> str:
    return f"{one.key} {one.operator} {','.join(one.values)}".rstrip()


def decision_document(decision: SchedulingDecision) -> Obj:
    if not decision.is_placed:
        return {"placed": False, "message": decision.message, "reasons": dict(decision.reasons)}
    return {
        "placed": True,
        "chosen": [
            {"replica": number, **site_document(one.site), "flavors": list(one.flavors), "score": one.score}
            for number, one in enumerate(decision.chosen)
        ],
    }


def placement_document(replica: int, site: SiteKey, claim: ResourceClaim) -> Obj:
    """The reservation of one replica."""
    flavors = [flavor for flavor, _ in claim.flavors] + [pool.flavor for pool, _ in claim.spot]
    return {"replica": replica, **site_document(site), "flavors": flavors}


def site_document(site: SiteKey) -> Obj:
    return {"workspace": site.cluster, "namespace": site.namespace, "name": site.name}
