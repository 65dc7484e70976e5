"""Readers of Pods and Allocations: their requests, and the annotations and status that bind them.

The schemas of the kinds have checked the fields, so a request that cannot be decoded has one problem.  Rules about
several fields are checked here, and their problems are reported with their paths."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import zip_longest
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec
import orjson
from msgspec import Meta, Struct, field

from farflung.apis.edge.authors import author_of
from farflung.apis.edge.names import STATUS_RETURNED_FROM
from farflung.apis.globalscheduler.names import DELIVERED
from farflung.apis.globalscheduler.selection import MAX_COPIES, MAX_FLAVORS, MAX_RESOURCES
from farflung.apis.kcp.names import CLUSTER_ANNOTATION
from farflung.controllers.placing_rights.decide import workspace_author
from farflung.machinery import names
from farflung.machines.engine.claims import compute_claim
from farflung.machines.engine.values import (
    ANYWHERE,
    Flavor,
    FlavorChoice,
    Geo,
    Item,
    LabelRule,
    LocalStrategy,
    MachineRequest,
    MachineToleration,
    Point,
    Preference,
    RegionChoice,
    Reservation,
    SiteKey,
    SiteSelector,
    Spot,
    Whole,
)
from farflung.machines.failover import read_machine_refusals
from farflung.machines.statuses import is_returned, is_scheduled
from farflung.machines.subjects import (
    ALLOCATION,
    BOUND_CLUSTER,
    BOUND_FLAVOR,
    LAST_REFUSAL,
    REFUSED_BY,
    ObservedSubject,
)

FINISHED_PHASES: Final = ("Failed", "Succeeded")  #: a finished machine uses no resources
#: values of `spec.schedulerName` of Pods that this scheduler binds
SCHEDULER_NAMES: Final = ("", "default-scheduler", "global-scheduler")
MAX_PROBLEM: Final = 1024  #: characters
NULL: Final = msgspec.Raw(b"null")
DELIVERED_BYTES: Final = DELIVERED.encode()
IGNORED: Final = ObservedSubject("", "")  #: not a virtual machine
#: how many values an operator needs; None: one or more
VALUE_COUNTS: Final = {"exists": 0, "!": 0, "=": 1, "==": 1, "!=": 1, "gt": 1, "lt": 1, "in": None, "notin": None}
EMPTY_SPOT: Final = Spot()
WHOLE_NUMBER: Final = re.compile(r"-?[0-9]{1,19}")
T = TypeVar("T")
Copies = Annotated[int, Meta(ge=1, le=MAX_COPIES)]


class InvalidRequestError(ValueError):
    """The request is invalid.  `errors`: each names the path of a field."""

    def __init__(self, *errors: str) -> None:
        self.errors = errors
        super().__init__("; ".join(errors)[:MAX_PROBLEM])


# --- objects --------------------------------------------------------------------------------------


class Metadata(Struct, rename="camel", gc=False):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    annotations: dict[str, str] = {}
    labels: dict[str, str] = {}
    creation_timestamp: str = ""
    deletion_timestamp: str | None = None

    @property
    def cluster(self) -> str:
        """The logical cluster."""
        return self.annotations.get(CLUSTER_ANNOTATION, "")


class _Strategy(Struct, frozen=True):
    location: Literal["", "centralize", "discrete", "spread"] = field(default="", name="location_strategy")
    region: Literal["", "alone"] = field(default="", name="region_strategy")


class _Affinity(Struct, frozen=True):
    required: tuple[LabelRule, ...] = ()
    preferred: tuple[Preference, ...] = ()


class _Selector(Struct, frozen=True):
    geo_location: Geo = ANYWHERE
    regions: tuple[RegionChoice, ...] = ()
    operator: str = ""
    site_id: str = ""
    strategy: _Strategy = _Strategy()
    min_clusters: Whole = 0
    max_clusters: Whole = 0
    cluster_affinity: _Affinity = _Affinity()
    stack_affinity: tuple[LabelRule, ...] = ()
    stack_antiaffinity: tuple[LabelRule, ...] = ()
    near: Point | None = None


class _Machines(Struct):
    flavors: Annotated[tuple[FlavorChoice, ...], Meta(min_length=1, max_length=MAX_FLAVORS)]
    storage: dict[str, Whole] = {}
    need_eip: bool = False

    def times(self, number: int) -> Item:
        """Clients of the original send an empty spot with every flavor: it counts as none."""
        flavors = tuple([FlavorChoice(one.id) if one.spot == EMPTY_SPOT else one for one in self.flavors])
        storage = tuple(sorted((kind, size) for kind, size in self.storage.items() if size))
        return Item(flavors, number, storage, self.need_eip)


class _Resource(_Machines):
    count: Copies = 1

    @property
    def item(self) -> Item:
        return self.times(self.count)


class _CommonInfo(Struct, frozen=True):
    count: Copies = 1
    selector: _Selector = _Selector()


class _VirtualMachine(_Machines):
    """`spec.virtualMachine` in snake_case."""

    resource_common_info: _CommonInfo = _CommonInfo()

    @property
    def item(self) -> Item:
        return self.times(self.resource_common_info.count)


class _PodSpec(Struct, rename="camel", gc=False):
    virtual_machine: msgspec.Raw = NULL
    node_name: str = ""
    cluster_name: str = ""
    scheduler_name: str = ""
    scheduling_gates: list[msgspec.Raw] = []
    tolerations: msgspec.Raw = msgspec.Raw(b"[]")
    node_selector: dict[str, str] = {}
    priority: int = 0


class _Pod(Struct, gc=False):
    metadata: Metadata
    spec: _PodSpec = msgspec.field(default_factory=_PodSpec)
    status: msgspec.Raw = msgspec.Raw(b"{}")


class _Group(Struct):
    resources: Annotated[tuple[_Resource, ...], Meta(min_length=1, max_length=MAX_RESOURCES)]
    labels: dict[str, str] = {}


class _AllocationSpec(Struct):
    resource_group: _Group
    selector: _Selector = _Selector()
    replicas: Copies = 1
    priority: int = 0
    tolerations: tuple[MachineToleration, ...] = ()


class _Placement(Struct):
    replica: Whole
    cluster: _PlacedCluster
    flavors: tuple[str, ...] = ()

    @property
    def site(self) -> SiteKey:
        return SiteKey(self.cluster.workspace, self.cluster.namespace, self.cluster.name)


class _PlacedCluster(Struct):
    name: str
    workspace: str = ""
    namespace: str = ""


class _AllocationStatus(Struct, rename={"observed_generation": "observedGeneration"}):
    phase: str = ""
    placements: list[_Placement] = []
    resources: list[_Resource] = []
    observed_generation: int = 0


class _Allocation(Struct):
    metadata: Metadata
    spec: msgspec.Raw = NULL
    status: msgspec.Raw = msgspec.Raw(b"{}")


class _Phase(Struct, gc=False):
    phase: str = ""


class _Kind(Struct, gc=False):
    kind: str = ""


_pod_decoder: Final = msgspec.json.Decoder(_Pod)
_phase_decoder: Final = msgspec.json.Decoder(_Phase)
_allocation_decoder: Final = msgspec.json.Decoder(_Allocation)
_spec_decoder: Final = msgspec.json.Decoder(_AllocationSpec, strict=False)  # prices may be texts
_status_decoder: Final = msgspec.json.Decoder(_AllocationStatus, strict=False)


# --- requests -------------------------------------------------------------------------------------


def read_request(document: bytes) -> MachineRequest:
    """The request of a Pod or an Allocation, also of a bound one.  Raises InvalidRequestError."""
    if msgspec.json.decode(document, type=_Kind).kind != ALLOCATION:
        return _pod_request(_pod_decoder.decode(document))
    found = _allocation_decoder.decode(document)
    return _allocation_request(found, _status_decoder.decode(found.status))


def _pod_request(pod: _Pod) -> MachineRequest:
    machine, tolerations = _machine(pod), _tolerations(pod)
    common = machine.resource_common_info
    path = "spec.virtualMachine.resourceCommonInfo.selector"
    _check([*_selector_problems(common.selector, path, _camel_case), *_toleration_problems(tolerations)])
    nodes = [LabelRule(key, "in", (value,)) for key, value in sorted(pod.spec.node_selector.items())]
    return MachineRequest(
        pod.metadata.uid,
        (machine.item,),
        _site_selector(common.selector, tolerations, nodes),
        tenant=pod.metadata.cluster,
        labels=pod.metadata.labels,
        priority=pod.spec.priority,
    )


def _machine(pod: _Pod) -> _VirtualMachine:
    """Raises InvalidRequestError."""
    found = _in_snake_case(msgspec.json.decode(pod.spec.virtual_machine))
    return _tried("spec.virtualMachine", lambda: msgspec.convert(found, _VirtualMachine, strict=False))


def _tolerations(pod: _Pod) -> tuple[MachineToleration, ...]:
    """Raises InvalidRequestError."""
    found = _in_snake_case(msgspec.json.decode(pod.spec.tolerations))
    return _tried("spec.tolerations", lambda: msgspec.convert(found, tuple[MachineToleration, ...]))


def _allocation_request(allocation: _Allocation, status: _AllocationStatus) -> MachineRequest:
    spec = _tried("spec", lambda: _spec_decoder.decode(allocation.spec))
    _check([*_selector_problems(spec.selector, "spec.selector", str), *_toleration_problems(spec.tolerations)])
    return MachineRequest(
        allocation.metadata.uid,
        tuple([one.item for one in spec.resource_group.resources]),
        _site_selector(spec.selector, spec.tolerations, ()),
        replicas=spec.replicas,
        tenant=allocation.metadata.cluster,
        labels=allocation.metadata.labels | spec.resource_group.labels,
        priority=spec.priority,
        current=tuple([one.site for one in status.placements]),
        numbered=True,
    )


def _site_selector(
    selector: _Selector, tolerations: tuple[MachineToleration, ...], nodes: Iterable[LabelRule]
) -> SiteSelector:
    return SiteSelector(
        selector.geo_location,
        tuple([RegionChoice(one.region, tuple(dict.fromkeys(filter(None, one.zones)))) for one in selector.regions]),
        selector.operator,
        selector.site_id,
        LocalStrategy(selector.strategy.location or LocalStrategy.CENTRALIZE),
        selector.strategy.region == "alone",
        selector.min_clusters,
        selector.max_clusters,
        (*nodes, *selector.cluster_affinity.required),
        selector.cluster_affinity.preferred,
        selector.stack_affinity,
        selector.stack_antiaffinity,
        selector.near,
        tolerations,
    )


def _tried(path: str, decode: Callable[[], T]) -> T:
    try:
        return decode()
    except msgspec.ValidationError as error:
        raise InvalidRequestError(f"{path}: {error}") from None


# --- the spelling of Pods -------------------------------------------------------------------------

#: fields of Pods that Allocations have under another name
OTHER_NAMES: Final = {
    "localStrategy": "location_strategy",
    "stackAntiAffinity": "stack_antiaffinity",
    "availablityZone": "availability_zone",
}
_hump: Final = re.compile("(?<=[a-z])(?=[A-Z])")


@lru_cache(1024)
def _snake_case(name: str) -> str:
    return OTHER_NAMES.get(name) or _hump.sub("_", name).lower()


def _camel_case(name: str) -> str:
    known = next((camel for camel, snake in OTHER_NAMES.items() if snake == name), "")
    first, *others = name.split("_")
    return known or first + "".join(map(str.capitalize, others))


def _in_snake_case(value: Any) -> Any:
    """The fields of a Pod with their names in an Allocation.  Lists in two spellings are joined."""
    if isinstance(value, list):
        return [_in_snake_case(one) for one in value]
    if not isinstance(value, dict):
        return value
    found: dict[str, Any] = {}
    for name, one in sorted(value.items()):
        spelled, inner = _snake_case(name), _in_snake_case(one)
        found[spelled] = found[spelled] + inner if spelled in found and isinstance(inner, list) else inner
    return found


# --- rules about several fields -------------------------------------------------------------------


def _check(problems: list[str]) -> None:
    if problems:
        raise InvalidRequestError(*problems)


def _toleration_problems(tolerations: tuple[MachineToleration, ...]) -> Iterator[str]:
    for at, one in enumerate(tolerations):
        if not one.key and one.operator != "Exists":
            yield f"spec.tolerations[{at}].operator: must be Exists without a key"


def _selector_problems(selector: _Selector, path: str, spelled: Callable[[str], str]) -> Iterator[str]:
    if 0 < selector.max_clusters < selector.min_clusters:
        yield f"{path}.{spelled('max_clusters')}: must not be less than the minimum"
    affinity, name = selector.cluster_affinity, spelled("cluster_affinity")
    preferred = {f"{name}.preferred[{at}].requirements": one.requirements for at, one in enumerate(affinity.preferred)}
    rules = {
        f"{name}.required": affinity.required,
        **preferred,
        spelled("stack_affinity"): selector.stack_affinity,
        spelled("stack_antiaffinity"): selector.stack_antiaffinity,
    }
    for name, some in rules.items():
        for at, one in enumerate(some):
            if why := _rule_problem(one):
                yield f"{path}.{name}[{at}].{why}"


def _rule_problem(rule: LabelRule) -> str:
    """The field and its problem; empty: none."""
    if wrong := names.qualified_name(rule.key):
        return f"key: {wrong[0]}"
    wanted, number = VALUE_COUNTS.get(rule.operator), len(rule.values)
    if wanted is None and not number:
        return f"values: must have an entry for the operator {rule.operator}"
    if wanted not in (None, number):
        entries = "entry" if wanted == 1 else "entries"
        return f"values: must have {wanted or 'no'} {entries} for the operator {rule.operator}"
    if rule.operator in ("gt", "lt") and not WHOLE_NUMBER.fullmatch(rule.values[0]):
        return f"values: must be a whole number for the operator {rule.operator}"
    return ""


# --- observed subjects ----------------------------------------------------------------------------


class SubjectDecoder:
    def __init__(self, catalogue: Mapping[str, Flavor], *, by_workspace: bool = False) -> None:
        """`by_workspace`: the server records no authors; the workspaces of subjects count as theirs."""
        self._catalogue = catalogue
        self._by_workspace = by_workspace

    def _authored(self, metadata: Metadata, observed: ObservedSubject) -> ObservedSubject:
        author = workspace_author(metadata.cluster) if self._by_workspace else author_of(metadata.annotations)
        request = observed.request
        return replace(observed, author=author, request=None if request is None else replace(request, author=author))

    def pod(self, document: bytes) -> ObservedSubject:
        pod = _pod_decoder.decode(document)
        return IGNORED if pod.spec.virtual_machine == NULL else self._authored(pod.metadata, self._machine(pod))

    def _machine(self, pod: _Pod) -> ObservedSubject:
        metadata, spec = pod.metadata, pod.spec
        bound_to = spec.node_name or spec.cluster_name
        is_finished = _phase_decoder.decode(pod.status).phase in FINISHED_PHASES
        if bound_to or is_finished:
            return self._bound(pod, bound_to, is_finished=is_finished)
        if metadata.deletion_timestamp is not None or is_ignored(spec.scheduler_name, spec.scheduling_gates):
            return ObservedSubject(metadata.uid, metadata.resource_version)
        request, problem = _request_or_problem(lambda: _pod_request(pod))
        return ObservedSubject(
            metadata.uid,
            metadata.resource_version,
            metadata.generation,
            request,
            problem,
            pending=True,
            tolerations=() if request is None else request.selector.tolerations,
            refused_by=_refused_by(metadata),
            refusal=metadata.annotations.get(LAST_REFUSAL, ""),
            status_outdated=DELIVERED_BYTES in bytes(pod.status),
            status=bytes(pod.status),
        )

    def _bound(self, pod: _Pod, bound_to: str, *, is_finished: bool) -> ObservedSubject:
        metadata = pod.metadata
        site = SiteKey.parse(metadata.annotations.get(BOUND_CLUSTER, ""))
        if site is not None and site.name != bound_to:
            site = None  # it is not of this binding
        observed = ObservedSubject(
            metadata.uid,
            metadata.resource_version,
            returned_from=metadata.annotations.get(STATUS_RETURNED_FROM, ""),
            label=metadata.labels.get(BOUND_CLUSTER, ""),
        )
        if is_finished:
            return replace(observed, finished_at=site)
        try:
            tolerations = _tolerations(pod)
        except InvalidRequestError:
            tolerations = ()
        return replace(
            observed,
            reservations=(self._pod_reservation(pod, site or SiteKey("", "", bound_to)),),
            foreign_cluster="" if site else bound_to,
            tolerations=tolerations,
            refused_by=_refused_by(metadata),
            status_outdated=site is not None and not _is_status_current(metadata, bytes(pod.status)),
            terminating=metadata.deletion_timestamp is not None,
        )

    def _pod_reservation(self, pod: _Pod, site: SiteKey) -> Reservation:
        """Without an annotation, the flavor is the first one."""
        metadata = pod.metadata
        try:
            items = [_machine(pod).item]
        except InvalidRequestError:  # it was bound by another client
            items = []
        flavors = [metadata.annotations.get(BOUND_FLAVOR) or item.flavors[0].id for item in items]
        claim = compute_claim(items, flavors, self._catalogue)
        return Reservation(metadata.uid, site, claim, metadata.cluster, tuple(sorted(metadata.labels.items())))

    def allocation(self, document: bytes) -> ObservedSubject:
        found = _allocation_decoder.decode(document)
        metadata, status = found.metadata, _status_decoder.decode(found.status)
        if status.phase in FINISHED_PHASES:
            return ObservedSubject(metadata.uid, metadata.resource_version)
        request, problem = _request_or_problem(lambda: _allocation_request(found, status))
        reservations = tuple(self._allocation_reservations(metadata, status, request))
        settled = bool(reservations) and status.observed_generation == metadata.generation
        observed = ObservedSubject(
            metadata.uid,
            metadata.resource_version,
            metadata.generation,
            request,
            problem,
            pending=not settled and metadata.deletion_timestamp is None,
            reservations=reservations,
            tolerations=() if request is None else request.selector.tolerations,
            status=bytes(found.status),
        )
        return self._authored(metadata, observed)

    def _allocation_reservations(
        self, metadata: Metadata, status: _AllocationStatus, request: MachineRequest | None
    ) -> Iterator[Reservation]:
        """The resources in the status count, not those in the spec: a changed spec must not change reservations before
        it is scheduled."""
        items = tuple([one.item for one in status.resources]) or (() if request is None else request.items)
        labels = tuple(sorted((metadata.labels if request is None else request.labels).items()))
        for one in status.placements:
            flavors = [chosen or item.flavors[0].id for item, chosen in zip_longest(items, one.flavors[: len(items)])]
            claim = compute_claim(items, flavors, self._catalogue)
            yield Reservation(f"{metadata.uid}/{one.replica}", one.site, claim, metadata.cluster, labels)


def is_ignored(scheduler_name: str, gates: Sequence[object]) -> bool:
    """Whether a Pod that is not bound is left to other schedulers."""
    return scheduler_name not in SCHEDULER_NAMES or bool(gates)


def _request_or_problem(read: Callable[[], MachineRequest]) -> tuple[MachineRequest | None, str]:
    try:
        return read(), ""
    except InvalidRequestError as error:
        return None, str(error)


def _is_status_current(metadata: Metadata, status: bytes) -> bool:
    """The status has PodScheduled=True or was returned from the edge, and has no Delivered condition."""
    if DELIVERED_BYTES in status:
        return False
    return is_returned(metadata.annotations) or is_scheduled(orjson.loads(status) or {})


def _refused_by(metadata: Metadata) -> tuple[tuple[SiteKey, int], ...]:
    text = metadata.annotations.get(REFUSED_BY)
    return tuple(read_machine_refusals(text).items()) if text else ()
