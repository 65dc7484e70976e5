"""What is asked for, what there is, and what is decided.

A *stack* is the atomic unit: all its items land in one site.  A request is for some replicas of a stack, which may land
in different sites.  A *site* is a cluster that virtual machines can be bound to.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, NamedTuple

from farflung.machinery.selectors import LabelSelector
from farflung.machinery.selectors import Requirement as LabelRequirement

OPERATORS = {"=": "in", "==": "in", "!=": "notin"}


class SiteKey(NamedTuple):
    """Where a Cluster is described."""

    cluster: str  #: the logical cluster of its workspace; empty: it is from a file
    namespace: str
    name: str

    def __str__(self) -> str:
        return "/".join(part for part in (self.namespace, self.name) if part)


class Geo(NamedTuple):
    """In a request, what is empty means any."""

    country: str = ""
    area: str = ""
    province: str = ""
    city: str = ""


ANYWHERE: Final = Geo()


class Point(NamedTuple):
    """Degrees."""

    latitude: float
    longitude: float


class Requirement(NamedTuple):
    """About labels.  `operator`: in, notin, =, ==, !=, exists, !, gt, lt."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class Preference(NamedTuple):
    weight: int  #: 1 to 100
    requirements: tuple[Requirement, ...]


class Toleration(NamedTuple):
    """As Kubernetes has it: an empty key with the operator Exists tolerates everything."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    seconds: int | None = None  #: for how long NoExecute is tolerated; None: for ever


class Taint(NamedTuple):
    key: str
    value: str = ""
    effect: str = "NoSchedule"  #: NoSchedule, PreferNoSchedule or NoExecute
    since: str = ""  #: RFC 3339, of NoExecute


UNSCHEDULABLE: Final = Taint("globalscheduler.com/unschedulable")  #: of a site that is to take nothing new

# --- what is asked for ----------------------------------------------------------------------------


class Spot(NamedTuple):
    max_price: float = 0.0  #: 0: any
    hours: int = 0  #: 0: open-ended
    periods: int = 0
    policy: str = ""  #: delay, or immediate


class FlavorWish(NamedTuple):
    id: str
    spot: Spot | None = None


class Item(NamedTuple):
    """Some virtual machines that are alike."""

    name: str
    flavors: tuple[FlavorWish, ...]  #: any of them, the best liked first
    number: int = 1
    storage: tuple[tuple[str, int], ...] = ()  #: (type, GiB) for each of them
    eip: bool = False  #: each needs a public address


class RegionWish(NamedTuple):
    region: str = ""  #: empty: any
    zones: tuple[str, ...] = ()  #: any of them; empty: all


class LocalStrategy(StrEnum):
    CENTRALIZE = "centralize"  #: as few sites as possible
    DISCRETE = "discrete"  #: in proportion to what they can take
    SPREAD = "spread"  #: as evenly as possible


@dataclass(frozen=True, slots=True)
class Selector:
    geo: Geo = ANYWHERE
    regions: tuple[RegionWish, ...] = ()  #: any of them; empty: all
    operator: str = ""  #: of the network; empty: any
    site: str = ""  #: the name of the only one that will do, or its `region--zone`; empty: any
    strategy: LocalStrategy = LocalStrategy.CENTRALIZE
    region_alone: bool = False  #: all replicas in one region
    min_clusters: int = 0  #: 0: whatever
    max_clusters: int = 0
    required: tuple[Requirement, ...] = ()  #: of labels of the site
    preferred: tuple[Preference, ...] = ()
    affinity: tuple[Requirement, ...] = ()  #: of labels of stacks that are there
    antiaffinity: tuple[Requirement, ...] = ()
    near: Point | None = None
    tolerations: tuple[Toleration, ...] = ()


@dataclass(frozen=True, slots=True)
class Request:
    uid: str  #: of the Pod or the Allocation
    items: tuple[Item, ...]
    selector: Selector = field(default_factory=Selector)
    replicas: int = 1
    tenant: str = ""  #: the logical cluster of its workspace
    labels: Mapping[str, str] = field(default_factory=dict)
    priority: int = 0
    current: tuple[SiteKey, ...] = ()  #: where its replicas are already, for who likes it steady
    numbered: bool = False  #: of an Allocation: what it holds has `<uid>/<number>` as uid, even the only replica


# --- what there is --------------------------------------------------------------------------------


class Flavor(NamedTuple):
    """Of the catalogue."""

    id: str
    vcpus: int = 0
    memory: int = 0  #: MiB
    disk: int = 0  #: GiB
    name: str = ""
    kind: str = "vm"  #: the type of resources that it runs on


class Health(StrEnum):
    READY = "Ready"
    SELLOUT = "Sellout"  #: nothing new, what is there stays
    OFFLINE = "Offline"
    DOWN = "Down"
    UNREACHABLE = "Unreachable"
    UNKNOWN = "Unknown"  #: nobody has said; nothing is wrong with it


@dataclass(frozen=True, slots=True)
class Capacity:
    """In all, whoever uses it.  None: nobody has said, so there is no limit but that of the flavors."""

    flavors: Mapping[str, int] = field(default_factory=dict)  #: id → how many; what is not named is not offered
    vcpus: int | None = None
    memory: int | None = None  #: MiB
    storage: Mapping[str, int] = field(default_factory=dict)  #: type → GiB; what is not named is not there
    eips: int | None = None
    spot: Mapping[str, Any] = field(default_factory=dict)  #: flavor id → pools, as the original has them


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
    taints: tuple[Taint, ...] = ()
    tenants: frozenset[str] = frozenset()  #: the only ones that may use it; empty: all
    capacity: Capacity = field(default_factory=Capacity)
    used_elsewhere: Mapping[str, int] = field(default_factory=dict)  #: vcpus, memory: what others use beside stacks
    price: float | None = None
    point: Point | None = None
    leaving: bool = False  #: it is being deleted


# --- what is decided ------------------------------------------------------------------------------


class SpotPool(NamedTuple):
    """What spot machines of a flavor are taken from, apart from what others take."""

    flavor: str
    delay: bool  #: by the policy `delay`; otherwise `immediate`
    hours: int = 0  #: of a block; 0: open-ended


class Claim(NamedTuple):
    """What one replica of a stack takes of its site.  `claims.claim_of` computes it."""

    flavors: tuple[tuple[str, int], ...]  #: id → how many, sorted
    vcpus: int = 0
    memory: int = 0
    storage: tuple[tuple[str, int], ...] = ()
    eips: int = 0
    spot: tuple[tuple[SpotPool, int], ...] = ()  #: which take neither flavors nor vcpus nor memory


class Chosen(NamedTuple):
    """One replica, placed."""

    site: SiteKey
    flavors: tuple[str, ...]  #: for each item of the request
    score: float  #: 0 to 100
    claim: Claim


@dataclass(frozen=True, slots=True)
class Decision:
    """Either all replicas are placed, or none."""

    chosen: tuple[Chosen, ...] = ()
    reasons: Mapping[str, int] = field(default_factory=dict)  #: why sites do not fit → how many
    sites: int = 0  #: how many there were
    message: str = ""  #: "0/12 clusters fit: 7 wrong region, 5 out of c6.large.2"; empty if it is placed

    @property
    def is_placed(self) -> bool:
        return bool(self.chosen)


class Reservation(NamedTuple):
    """What a stack holds.  `uid`: of the Pod, or `<uid of the Allocation>/<number of the replica>`."""

    uid: str
    site: SiteKey
    claim: Claim
    tenant: str = ""
    labels: tuple[tuple[str, str], ...] = ()


def selector_of(requirements: Iterable[Requirement]) -> LabelSelector:
    """All of them.  A requirement that makes no sense is never met."""
    return LabelSelector(tuple(_requirement(one) for one in requirements))


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in ("Equal", "") and toleration.value == taint.value


def untolerated(taints: Iterable[Taint], tolerations: Iterable[Toleration], effects: frozenset[str]) -> list[Taint]:
    """Those with one of the effects."""
    tolerations = tuple(tolerations)
    return [
        taint for taint in taints if taint.effect in effects and not any(tolerates(one, taint) for one in tolerations)
    ]


def _requirement(one: Requirement) -> LabelRequirement:
    operator = OPERATORS.get(one.operator, one.operator)
    if operator in ("exists", "!"):
        return LabelRequirement(one.key, operator)
    if operator in ("in", "notin") or (operator in ("gt", "lt") and _is_bound(one.values)):
        return LabelRequirement(one.key, operator, one.values)
    return LabelRequirement(one.key, "in", ())


def _is_bound(values: tuple[str, ...]) -> bool:
    try:
        return len(values) == 1 and int(values[0]) is not None
    except ValueError:
        return False
