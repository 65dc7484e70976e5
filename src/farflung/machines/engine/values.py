"""Requests, sites and decisions of the scheduling engine.

A *stack* is the atomic unit: all its items are placed on one site.  A request asks for replicas of a stack, which may
be on different sites.  A *site* is a cluster that virtual machines can be bound to.

Structs are decoded from the fields of Allocations, whose names are theirs, unless a field has another one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec import Meta, Struct

from farflung.apis.edge.authors import Author
from farflung.machinery.selectors import LabelSelector
from farflung.machinery.selectors import Requirement as LabelRequirement

OPERATORS = {"=": "in", "==": "in", "!=": "notin"}
MAX_INTEGER: Final = 2**53
Whole: TypeAlias = Annotated[int, Meta(ge=0, le=MAX_INTEGER)]
Amount: TypeAlias = Annotated[float, Meta(ge=0, le=MAX_INTEGER)]


class SiteKey(NamedTuple):
    """The key of a Cluster object."""

    cluster: str  #: the logical cluster; empty: the site is from a file
    namespace: str
    name: str

    def __str__(self) -> str:
        return "/".join(part for part in (self.namespace, self.name) if part)

    @property
    def annotation(self) -> str:
        """The text in annotations: `<logical cluster>|<namespace>/<name>`; of a site from a file the name."""
        return f"{self.cluster}|{self.namespace}/{self.name}" if self.cluster or self.namespace else self.name

    @classmethod
    def parse(cls, annotation: str) -> SiteKey | None:
        """None if the text is invalid."""
        cluster, bar, rest = annotation.rpartition("|")
        namespace, slash, name = rest.rpartition("/")
        return cls(cluster, namespace, name) if name and (bar or not slash) else None


class Geo(Struct, frozen=True, gc=False):
    """In a request, an empty field means any."""

    country: str = ""
    area: str = ""
    province: str = ""
    city: str = ""


ANYWHERE: Final = Geo()


class Point(Struct, frozen=True, gc=False):
    """Degrees."""

    latitude: Annotated[float, Meta(ge=-90, le=90)]
    longitude: Annotated[float, Meta(ge=-180, le=180)]


class LabelRule(Struct, frozen=True, gc=False):
    """A label requirement.  `operator`: in, notin, =, ==, !=, exists, !, gt, lt."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class Preference(Struct, frozen=True, gc=False):
    weight: Annotated[int, Meta(ge=1, le=100)]
    requirements: tuple[LabelRule, ...]


class MachineToleration(Struct, frozen=True, gc=False):
    """As in Kubernetes: an empty key with the operator Exists tolerates everything."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    seconds: int | None = msgspec.field(default=None, name="toleration_seconds")  #: of NoExecute; None: forever


class SiteTaint(Struct, frozen=True, gc=False):
    key: str
    value: str = ""
    effect: str = "NoSchedule"  #: NoSchedule, PreferNoSchedule or NoExecute
    since: str = msgspec.field(default="", name="timeAdded")  #: RFC 3339, of NoExecute


UNSCHEDULABLE: Final = SiteTaint("globalscheduler.com/unschedulable")  #: of a cordoned site

# --- requests -------------------------------------------------------------------------------------


class Spot(Struct, frozen=True, gc=False):
    max_price: Amount = 0.0  #: 0: any
    hours: Whole = msgspec.field(default=0, name="spot_duration_hours")  #: 0: open-ended
    periods: Whole = msgspec.field(default=0, name="spot_duration_count")
    policy: Literal["", "delay", "immediate"] = msgspec.field(default="", name="interruption_policy")


class FlavorChoice(Struct, frozen=True, gc=False):
    id: str = msgspec.field(name="flavor_id")
    spot: Spot | None = None


class Item(NamedTuple):
    """Identical virtual machines."""

    flavors: tuple[FlavorChoice, ...]  #: alternatives, the preferred one first
    number: int = 1
    storage: tuple[tuple[str, int], ...] = ()  #: (type, GiB) per machine
    eip: bool = False  #: each machine needs a public address


class RegionChoice(Struct, frozen=True, gc=False):
    region: str = ""  #: empty: any
    zones: tuple[str, ...] = msgspec.field(default=(), name="availability_zone")  #: any of them; empty: all


class LocalStrategy(StrEnum):
    CENTRALIZE = "centralize"  #: on as few sites as possible
    DISCRETE = "discrete"  #: in proportion to capacity
    SPREAD = "spread"  #: as evenly as possible


@dataclass(frozen=True, slots=True)
class SiteSelector:
    geo: Geo = ANYWHERE
    regions: tuple[RegionChoice, ...] = ()  #: any of them; empty: all
    operator: str = ""  #: of the network; empty: any
    site: str = ""  #: name or `region--zone`; empty: any
    strategy: LocalStrategy = LocalStrategy.CENTRALIZE
    region_alone: bool = False  #: all replicas in one region
    min_clusters: int = 0  #: 0: any
    max_clusters: int = 0
    required: tuple[LabelRule, ...] = ()  #: labels of the site
    preferred: tuple[Preference, ...] = ()
    affinity: tuple[LabelRule, ...] = ()  #: labels of stacks on the site
    antiaffinity: tuple[LabelRule, ...] = ()
    near: Point | None = None
    tolerations: tuple[MachineToleration, ...] = ()


@dataclass(frozen=True, slots=True)
class MachineRequest:
    uid: str  #: of the Pod or the Allocation
    items: tuple[Item, ...]
    selector: SiteSelector = field(default_factory=SiteSelector)
    replicas: int = 1
    tenant: str = ""  #: the logical cluster of its workspace
    labels: Mapping[str, str] = field(default_factory=dict)
    priority: int = 0
    current: tuple[SiteKey, ...] = ()  #: sites of its replicas, for the Steady scorer
    author: Author | None = None  #: None: not recorded
    numbered: bool = False  #: of an Allocation: reservations have the uid `<uid>/<number>`, even a single one


# --- sites ----------------------------------------------------------------------------------------


class Flavor(NamedTuple):
    """A machine size of the catalogue."""

    id: str
    vcpus: int = 0
    memory: int = 0  #: MiB
    disk: int = 0  #: GiB
    name: str = ""
    kind: str = "vm"  #: resource type


class Health(StrEnum):
    READY = "Ready"
    SELLOUT = "Sellout"  #: no new machines; existing ones stay
    OFFLINE = "Offline"
    DOWN = "Down"
    UNREACHABLE = "Unreachable"
    UNKNOWN = "Unknown"  #: not reported; treated as healthy


@dataclass(frozen=True, slots=True)
class Capacity:
    """Total capacity.  None: limited by flavors only."""

    flavors: Mapping[str, int] = field(default_factory=dict)  #: id → number; others are not offered
    vcpus: int | None = None
    memory: int | None = None  #: MiB
    storage: Mapping[str, int] = field(default_factory=dict)  #: type → GiB; others are not offered
    eips: int | None = None
    spot: Mapping[str, Any] = field(default_factory=dict)  #: flavor id → pools, see fit.py


@dataclass(frozen=True, slots=True)
class Site:
    key: SiteKey
    uid: str = ""
    geo: Geo = ANYWHERE
    region: str = ""
    zone: str = ""
    operator: str = ""
    health: Health = Health.UNKNOWN
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[SiteTaint, ...] = ()
    tenants: frozenset[str] = frozenset()  #: tenants that may use it; empty: all
    capacity: Capacity = field(default_factory=Capacity)
    used_elsewhere: Mapping[str, int] = field(default_factory=dict)  #: vcpus and memory used outside the scheduler
    price: float | None = None
    point: Point | None = None
    leaving: bool = False  #: terminating


# --- decisions ------------------------------------------------------------------------------------


class SpotPool(NamedTuple):
    """A pool of spot machines of one flavor."""

    flavor: str
    delay: bool  #: by the policy `delay`; otherwise `immediate`
    hours: int = 0  #: of a block; 0: open-ended


class ResourceClaim(NamedTuple):
    """The resources that one replica uses, computed by `claims.compute_claim`."""

    flavors: tuple[tuple[str, int], ...]  #: (id, number), sorted
    vcpus: int = 0
    memory: int = 0
    storage: tuple[tuple[str, int], ...] = ()
    eips: int = 0
    spot: tuple[tuple[SpotPool, int], ...] = ()  #: spot machines use neither flavors nor vcpus nor memory


class PlacedReplica(NamedTuple):
    site: SiteKey
    flavors: tuple[str, ...]  #: for each item of the request
    score: float  #: 0 to 100
    claim: ResourceClaim


@dataclass(frozen=True, slots=True)
class SchedulingDecision:
    """All replicas are placed, or none."""

    chosen: tuple[PlacedReplica, ...] = ()
    reasons: Mapping[str, int] = field(default_factory=dict)  #: refusal → number of sites
    sites: int = 0  #: number of sites
    message: str = ""  #: "0/12 clusters fit: 7 wrong region, 5 out of c6.large.2"; empty if it is placed

    @property
    def is_placed(self) -> bool:
        return bool(self.chosen)


class Reservation(NamedTuple):
    """The resources of a placed replica.  `uid`: of the Pod, or `<uid of the Allocation>/<replica>`."""

    uid: str
    site: SiteKey
    claim: ResourceClaim
    tenant: str = ""
    labels: tuple[tuple[str, str], ...] = ()


def label_selector(requirements: Iterable[LabelRule]) -> LabelSelector:
    """A selector for all requirements; an invalid one never matches."""
    return LabelSelector(tuple(_label_requirement(one) for one in requirements))


def tolerates(toleration: MachineToleration, taint: SiteTaint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in ("Equal", "") and toleration.value == taint.value


def find_untolerated(
    taints: Iterable[SiteTaint], tolerations: Iterable[MachineToleration], effects: frozenset[str]
) -> list[SiteTaint]:
    tolerations = tuple(tolerations)
    return [
        taint for taint in taints if taint.effect in effects and not any(tolerates(one, taint) for one in tolerations)
    ]


def _label_requirement(one: LabelRule) -> LabelRequirement:
    operator = OPERATORS.get(one.operator, one.operator)
    if operator in ("exists", "!"):
        return LabelRequirement(one.key, operator)
    if operator in ("in", "notin") or (operator in ("gt", "lt") and _is_single_integer(one.values)):
        return LabelRequirement(one.key, operator, one.values)
    return LabelRequirement(one.key, "in", ())


def _is_single_integer(values: tuple[str, ...]) -> bool:
    try:
        return len(values) == 1 and int(values[0]) is not None
    except ValueError:
        return False
