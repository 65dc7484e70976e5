"""Readers of Pods, Allocations and Clusters, and of the annotations and status that bind them.

Readers accept any JSON.  Problems of a request are reported with their paths.  A Cluster with an invalid spec accepts
no new machines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import msgspec
import orjson

from farflung.apis.edge.names import STATUS_RETURNED_FROM
from farflung.apis.globalscheduler.names import DELIVERED
from farflung.apis.globalscheduler.selection import MOST_COPIES, MOST_RESOURCES
from farflung.apis.kcp.names import CLUSTER_ANNOTATION
from farflung.machinery.errors import Obj
from farflung.machines.engine.claims import compute_claim
from farflung.machines.engine.values import (
    UNSCHEDULABLE,
    Capacity,
    Flavor,
    Health,
    Item,
    MachineRequest,
    MachineToleration,
    Reservation,
    ResourceClaim,
    Site,
    SiteKey,
    SiteTaint,
)
from farflung.machines.failover import read_machine_refusals
from farflung.machines.fields import (
    EFFECTS,
    MAX_INTEGER,
    MAX_TOLERATIONS,
    FieldProblems,
    FieldReader,
    read_geo,
    read_item,
    read_items,
    read_point,
    read_selector,
)
from farflung.machines.statuses import is_returned, is_scheduled
from farflung.machines.subjects import (
    BOUND_CLUSTER,
    BOUND_FLAVOR,
    LAST_REFUSAL,
    REFUSED_BY,
    ObservedSubject,
)

FINISHED_PHASES: Final = ("Failed", "Succeeded")  #: a finished machine uses no resources

MAX_OFFERS: Final = 1024
MAX_LABELS: Final = 1024
MAX_PRIORITY: Final = 2**31 - 1
SCHEDULER_NAMES: Final = (
    "",
    "default-scheduler",
    "global-scheduler",
)  #: values of `spec.schedulerName` of Pods that this scheduler binds
MAX_PROBLEM: Final = 1024  #: characters
NULL: Final = msgspec.Raw(b"null")
DELIVERED_BYTES: Final = DELIVERED.encode()
IGNORED: Final = ObservedSubject("", "")  #: not a virtual machine


class InvalidRequestError(ValueError):
    """The request is invalid.  `errors`: each begins with the path of a field."""

    def __init__(self, errors: Iterable[str]) -> None:
        self.errors = tuple(errors)
        super().__init__("; ".join(self.errors))


# --- requests -------------------------------------------------------------------------------------


def read_pod_request(obj: Obj, cluster: str) -> MachineRequest:
    """`cluster`: the logical cluster of its workspace.  Raises InvalidRequestError."""
    problems = FieldProblems()
    metadata, spec = _metadata(obj, problems), _part(obj, "spec", problems)
    described = spec.part("virtualmachine")
    common = described.part("resourcecommoninfo")
    request = MachineRequest(
        metadata.text("uid"),
        (read_item(metadata.text("name"), described, common.whole("count", 1, 1, MOST_COPIES)),),
        read_selector(common.part("selector"), spec),
        tenant=cluster,
        labels=metadata.texts_by_name("labels", MAX_LABELS),
        priority=spec.whole("priority", 0, -MAX_PRIORITY - 1, MAX_PRIORITY),
    )
    return _checked(request, problems)


def read_allocation_request(obj: Obj, cluster: str) -> MachineRequest:
    """`cluster`: the logical cluster of its workspace.  Raises InvalidRequestError."""
    problems = FieldProblems()
    metadata, spec = _metadata(obj, problems), _part(obj, "spec", problems)
    group = spec.part("resourcegroup")
    labels = metadata.texts_by_name("labels", MAX_LABELS) | group.texts_by_name("labels", MAX_LABELS)
    request = MachineRequest(
        metadata.text("uid"),
        read_items(group),
        read_selector(spec.part("selector"), spec),
        replicas=spec.whole("replicas", 1, 1, MOST_COPIES),
        tenant=cluster,
        labels=labels,
        priority=spec.whole("priority", 0, -MAX_PRIORITY - 1, MAX_PRIORITY),
        current=tuple(site for _, site, _ in _placements(obj)),
        numbered=True,
    )
    return _checked(request, problems)


def _checked(request: MachineRequest, problems: FieldProblems) -> MachineRequest:
    if not request.uid:
        problems.note("metadata.uid", "is missing")
    if problems.found:
        raise InvalidRequestError(problems.found)
    return request


def _part(obj: Any, name: str, problems: FieldProblems) -> FieldReader:
    return FieldReader(obj.get(name) if isinstance(obj, dict) else None, name, problems)


def _metadata(obj: Any, problems: FieldProblems) -> FieldReader:
    return _part(obj, "metadata", problems)


# --- sites ----------------------------------------------------------------------------------------


def read_site(obj: Obj, cluster: str) -> Site:
    """A Cluster as a site.  Invalid fields are ignored; a Cluster without a spec is unschedulable."""
    problems = FieldProblems()
    metadata, spec = _metadata(obj, problems), _part(obj, "spec", problems)
    key = SiteKey(cluster, metadata.text("namespace"), metadata.text("name"))
    region = spec.part("region")
    has_spec = isinstance(obj.get("spec"), dict)
    taints = tuple(_taints(spec))
    return Site(
        key,
        metadata.text("uid"),
        read_geo(spec.part("geolocation")),
        region.text("region"),
        region.text("availabilityzone"),
        spec.part("operator").text("operator"),
        _health(obj.get("status")),
        metadata.texts_by_name("labels", MAX_LABELS),
        (UNSCHEDULABLE, *taints) if spec.flag("unschedulable") or not has_spec else taints,
        frozenset(filter(None, spec.texts("exclusivetenants", MAX_OFFERS))),
        _capacity(spec),
        price=spec.number("serverprice", 0, MAX_INTEGER),
        point=read_point(spec.part("coordinates")) if spec.has("coordinates") else None,
        leaving=metadata.has("deletiontimestamp"),
    )


def _health(status: Any) -> Health:
    """In the original, the status is the phase itself.  A Cluster without a phase is ready."""
    phase = status.get("phase") if isinstance(status, dict) else status
    if not phase:
        return Health.READY
    return Health(phase) if isinstance(phase, str) and phase in Health._value2member_map_ else Health.UNKNOWN


def _capacity(spec: FieldReader) -> Capacity:
    """Repeated entries are summed.  0 vcpus or memory mean unlimited, because clients send 0 for unknown; 0 eips mean
    none."""
    return Capacity(
        _summed(spec, "flavors", "flavorid", "totalcapacity"),
        spec.whole("cpucapacity", 0, 0, MAX_INTEGER) or None,
        spec.whole("memcapacity", 0, 0, MAX_INTEGER) or None,
        _summed(spec, "storage", "typeid", "storagecapacity"),
        spec.whole("eipcapacity", 0, 0, MAX_INTEGER) if spec.has("eipcapacity") else None,
    )


def _summed(spec: FieldReader, name: str, key: str, amount: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for one in spec.parts(name, MAX_OFFERS):
        if kind := one.text(key):
            found[kind] = found.get(kind, 0) + one.whole(amount, 0, 0, MAX_INTEGER)
    return found


def _taints(spec: FieldReader) -> Iterator[SiteTaint]:
    """Taints with a known effect."""
    for one in spec.parts("taints", MAX_TOLERATIONS):
        if (key := one.text("key")) and (effect := one.text("effect")) in EFFECTS:
            yield SiteTaint(key, one.text("value"), effect, one.text("timeadded"))


# --- reservations ---------------------------------------------------------------------------------


def read_pod_reservation(obj: Obj, cluster: str, catalogue: Mapping[str, Flavor]) -> Reservation | None:
    """The reservation of a bound Pod, from the annotations of its binding; None if it is not bound or is finished.

    Without annotations the site is the name in the spec without a workspace, and the flavor the first one.
    """
    problems = FieldProblems()
    metadata, spec = _metadata(obj, problems), _part(obj, "spec", problems)
    name = spec.text("nodename") or spec.text("clustername")
    if not name or _part(obj, "status", problems).text("phase") in FINISHED_PHASES:
        return None
    noted = metadata.texts_by_name("annotations", MAX_INTEGER)
    site = SiteKey.parse(noted.get(BOUND_CLUSTER, ""))
    described = spec.part("virtualmachine")
    item = read_item(name, described, described.part("resourcecommoninfo").whole("count", 1, 1, MOST_COPIES))
    flavor = noted.get(BOUND_FLAVOR) or (item.flavors[0].id if item.flavors else "")
    return Reservation(
        metadata.text("uid"),
        site if site is not None and site.name == name else SiteKey("", "", name),
        compute_claim((item,) if flavor else (), (flavor,), catalogue),
        cluster,
        _sorted_labels(metadata.texts_by_name("labels", MAX_LABELS)),
    )


def read_allocation_reservations(obj: Obj, cluster: str, catalogue: Mapping[str, Flavor]) -> list[Reservation]:
    """Reservations of an Allocation's placements; none if it failed.  The resources in its status count, not those in
    its spec: a changed spec must not change reservations before it is scheduled."""
    problems = FieldProblems()
    metadata, spec, status = (_part(obj, name, problems) for name in ("metadata", "spec", "status"))
    if status.text("phase") in FINISHED_PHASES:
        return []
    group = spec.part("resourcegroup")
    items = (read_items(status) if status.has("resources") else ()) or read_items(group)
    labels = metadata.texts_by_name("labels", MAX_LABELS) | group.texts_by_name("labels", MAX_LABELS)
    uid, sorted_labels = metadata.text("uid"), _sorted_labels(labels)
    return [
        Reservation(f"{uid}/{replica}", site, _claimed(items, flavors, catalogue), cluster, sorted_labels)
        for replica, site, flavors in _placements(obj)
    ]


def _claimed(items: tuple[Item, ...], flavors: tuple[str, ...], catalogue: Mapping[str, Flavor]) -> ResourceClaim:
    """An item without a recorded flavor counts with its first one."""
    chosen = [
        flavors[at] if at < len(flavors) and flavors[at] else (item.flavors[0].id if item.flavors else "")
        for at, item in enumerate(items)
    ]
    return compute_claim(items, chosen, catalogue)


def _placements(obj: Any) -> Iterator[tuple[int, SiteKey, tuple[str, ...]]]:
    """Replica number, site and flavors of each placement.  The first entry of a replica counts."""
    known: set[int] = set()
    for one in _part(obj, "status", FieldProblems()).parts("placements", MOST_COPIES):
        replica, cluster = one.whole("replica", -1, 0, MOST_COPIES), one.part("cluster")
        if replica < 0 or replica in known or not cluster.text("name"):
            continue
        known.add(replica)
        site = SiteKey(cluster.text("workspace"), cluster.text("namespace"), cluster.text("name"))
        yield replica, site, tuple(one.texts("flavors", MOST_RESOURCES))


def _sorted_labels(labels: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(labels.items()))


class _Metadata(msgspec.Struct, rename="camel", gc=False):
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    annotations: dict[str, str] | None = None
    labels: dict[str, str] | None = None
    creation_timestamp: str = ""
    deletion_timestamp: str | None = None


class _Toleration(msgspec.Struct, rename="camel", gc=False):
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class _PodSpec(msgspec.Struct, rename="camel", gc=False):
    virtual_machine: msgspec.Raw = NULL
    node_name: str = ""
    cluster_name: str = ""
    scheduler_name: str = ""
    scheduling_gates: list[msgspec.Raw] | None = None
    tolerations: list[_Toleration] | None = None


class _Phase(msgspec.Struct, gc=False):
    phase: str = ""


class _Pod(msgspec.Struct, gc=False):
    metadata: _Metadata
    spec: _PodSpec = msgspec.field(default_factory=_PodSpec)
    status: msgspec.Raw = msgspec.Raw(b"{}")


_pod_decoder: Final = msgspec.json.Decoder(_Pod)
_phase_decoder: Final = msgspec.json.Decoder(_Phase)


class SubjectDecoder:
    def __init__(self, catalogue: Mapping[str, Flavor]) -> None:
        self._catalogue = catalogue

    def pod(self, document: bytes) -> ObservedSubject:
        pod = _pod_decoder.decode(document)
        metadata, spec = pod.metadata, pod.spec
        if spec.virtual_machine == NULL:
            return IGNORED
        bound_to = spec.node_name or spec.cluster_name
        if _phase_decoder.decode(pod.status).phase in FINISHED_PHASES:
            site = SiteKey.parse(_annotation(metadata, BOUND_CLUSTER))
            there = site if site is not None and site.name == bound_to else None
            return ObservedSubject(
                metadata.uid,
                metadata.resource_version,
                finished_at=there,
                returned_from=_annotation(metadata, STATUS_RETURNED_FROM),
                label=_delivery_label(metadata),
                created=metadata.creation_timestamp,
            )
        if metadata.deletion_timestamp is not None and not bound_to:
            return ObservedSubject(metadata.uid, metadata.resource_version)
        if bound_to:
            return self._bound(document, pod, bound_to)
        if spec.scheduler_name not in SCHEDULER_NAMES or spec.scheduling_gates:
            return ObservedSubject(metadata.uid, metadata.resource_version)
        request, problem = _decode_request(read_pod_request, orjson.loads(document), _logical_cluster(metadata))
        return ObservedSubject(
            metadata.uid,
            metadata.resource_version,
            metadata.generation,
            request,
            problem,
            pending=True,
            tolerations=_tolerations(spec),
            refused_by=_refused_by(metadata),
            refusal=_annotation(metadata, LAST_REFUSAL),
            status_outdated=DELIVERED_BYTES in bytes(pod.status),
            status=bytes(pod.status),
        )

    def _bound(self, document: bytes, pod: _Pod, bound_to: str) -> ObservedSubject:
        metadata = pod.metadata
        annotated = _annotation(metadata, BOUND_CLUSTER)
        foreign_cluster = "" if annotated.endswith(f"/{bound_to}") else bound_to
        read = read_pod_reservation(orjson.loads(document), _logical_cluster(metadata), self._catalogue)
        return ObservedSubject(
            metadata.uid,
            metadata.resource_version,
            reservations=() if read is None else (read,),
            foreign_cluster=foreign_cluster,
            tolerations=_tolerations(pod.spec),
            refused_by=_refused_by(metadata),
            status_outdated=not foreign_cluster and not _is_status_current(metadata, bytes(pod.status)),
            terminating=metadata.deletion_timestamp is not None,
            returned_from=_annotation(metadata, STATUS_RETURNED_FROM),
            label=_delivery_label(metadata),
            created=metadata.creation_timestamp,
        )

    def allocation(self, document: bytes) -> ObservedSubject:
        obj = orjson.loads(document)
        metadata = msgspec.convert(obj.get("metadata"), _Metadata)
        cluster = _logical_cluster(metadata)
        status = obj.get("status")
        status = status if isinstance(status, dict) else {}
        reservations = tuple(read_allocation_reservations(obj, cluster, self._catalogue))
        if status.get("phase") == "Failed":
            return ObservedSubject(metadata.uid, metadata.resource_version)
        request, problem = _decode_request(read_allocation_request, obj, cluster)
        settled = bool(reservations) and status.get("observedGeneration") == metadata.generation
        return ObservedSubject(
            metadata.uid,
            metadata.resource_version,
            metadata.generation,
            request,
            problem,
            pending=not settled and metadata.deletion_timestamp is None,
            reservations=reservations,
            tolerations=() if request is None else request.selector.tolerations,
            status=orjson.dumps(status),
        )


def _decode_request(
    read: Callable[[Obj, str], MachineRequest], obj: Obj, cluster: str
) -> tuple[MachineRequest | None, str]:
    """Item names are removed, so that equal requests share a shape."""
    try:
        request = read(obj, cluster)
        return replace(request, items=tuple([item._replace(name="") for item in request.items])), ""
    except InvalidRequestError as error:
        return None, "; ".join(map(str, error.errors))[:MAX_PROBLEM]


def _logical_cluster(metadata: _Metadata) -> str:
    return _annotation(metadata, CLUSTER_ANNOTATION)


def _is_status_current(metadata: _Metadata, status: bytes) -> bool:
    """The status has PodScheduled=True or was returned from the edge, and has no Delivered condition."""
    if DELIVERED_BYTES in status:
        return False
    return is_returned(metadata.annotations) or is_scheduled(orjson.loads(status) or {})


def _delivery_label(metadata: _Metadata) -> str:
    return (metadata.labels or {}).get(BOUND_CLUSTER, "")


def _annotation(metadata: _Metadata, name: str) -> str:
    return (metadata.annotations or {}).get(name, "")


def _refused_by(metadata: _Metadata) -> tuple[tuple[SiteKey, int], ...]:
    text = _annotation(metadata, REFUSED_BY)
    return tuple(read_machine_refusals(text).items()) if text else ()


def _tolerations(spec: _PodSpec) -> tuple[MachineToleration, ...]:
    return tuple(
        [
            MachineToleration(one.key, one.operator, one.value, one.effect, one.toleration_seconds)
            for one in spec.tolerations or ()
        ]
    )
