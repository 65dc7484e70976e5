"""Requests and decisions about virtual machines, as results of `explain` and `plan`."""

from __future__ import annotations

from typing import Final

from msgspec import UNSET, UnsetType

from farflung.inspect.results import Result
from farflung.machines.engine.policy import SchedulerPolicy
from farflung.machines.engine.values import Item, LabelRule, MachineRequest, ResourceClaim, SchedulingDecision, SiteKey


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
    name: str
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
            {name: value for name, value in selector.geo._asdict().items() if value} or UNSET,
            [RegionWish(one.region, list(one.zones)) for one in selector.regions] or UNSET,
            selector.operator or UNSET,
            selector.site or UNSET,
            list(map(_requirement, selector.required)) or UNSET,
            list(map(_requirement, selector.affinity)) or UNSET,
            list(map(_requirement, selector.antiaffinity)) or UNSET,
            UNSET if selector.near is None else PointWish(*selector.near),
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
        item.name,
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
