"""What objects say that matters to who places virtual machines, out of the bytes that they come in.  Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

import msgspec
import orjson

from farflung.controllers.global_scheduler import reading, statuses
from farflung.controllers.global_scheduler.reading import (
    InvalidRequestError,
    allocation_request,
    pod_request,
    reservation_of_pod,
    reservations_of_allocation,
)
from farflung.controllers.global_scheduler.refusing import noted
from farflung.controllers.global_scheduler.subjects import Seen
from farflung.controllers.placement_translator.projecting import RETURNED
from farflung.machinery.errors import Obj
from farflung.scheduling.values import Flavor, MachineRequest, Reservation, SiteKey, Toleration

CLUSTER: Final = "kcp.io/cluster"  #: the annotation that says in which logical cluster an object is
OURS: Final = ("", "default-scheduler", "global-scheduler")  #: schedulers that a pod may ask for
LONGEST_PROBLEM: Final = 1024  #: characters
NULL: Final = msgspec.Raw(b"null")
DELIVERED: Final = statuses.DELIVERED.encode()
NOTHING: Final = Seen("", "")  #: what is none of ours


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


_pod: Final = msgspec.json.Decoder(_Pod)
_phase: Final = msgspec.json.Decoder(_Phase)


class Seeing:
    def __init__(
        self, catalogue: Mapping[str, Flavor], expected: Callable[[str], tuple[Reservation, ...]] = lambda uid: ()
    ) -> None:
        """`catalogue`: the flavors there are; `expected`: what is being written about who has this uid, which is known
        when it is heard of, and need not be read again."""
        self._catalogue = catalogue
        self._expected = expected

    def pod(self, document: bytes) -> Seen:
        pod = _pod.decode(document)
        metadata, spec = pod.metadata, pod.spec
        if spec.virtual_machine == NULL:
            return NOTHING
        bound_to = spec.node_name or spec.cluster_name
        if _phase.decode(pod.status).phase in reading.ENDED:
            site = reading.noted_site(_noted(metadata, reading.CLUSTER))
            there = site if site is not None and site.name == bound_to else None
            return Seen(
                metadata.uid,
                metadata.resource_version,
                ended_at=there,
                returned_from=_noted(metadata, RETURNED),
                mark=_mark(metadata),
                created=metadata.creation_timestamp,
            )
        if metadata.deletion_timestamp is not None and not bound_to:
            return Seen(metadata.uid, metadata.resource_version)
        if bound_to:
            return self._bound(document, pod, bound_to)
        if spec.scheduler_name not in OURS or spec.scheduling_gates:
            return Seen(metadata.uid, metadata.resource_version)
        request, problem = _understood(pod_request, orjson.loads(document), _cluster(metadata))
        return Seen(
            metadata.uid,
            metadata.resource_version,
            metadata.generation,
            request,
            problem,
            asks=True,
            tolerations=_tolerations(spec),
            refused_by=_refused_by(metadata),
            refusal=_noted(metadata, reading.LAST_REFUSAL),
            unsettled=DELIVERED in bytes(pod.status) or reading.CLUSTER in (metadata.labels or ()),
            status=bytes(pod.status),
        )

    def _bound(self, document: bytes, pod: _Pod, bound_to: str) -> Seen:
        metadata = pod.metadata
        told = _noted(metadata, reading.CLUSTER)
        guest_of = "" if told.endswith(f"/{bound_to}") else bound_to
        held = self._expected(metadata.uid)
        if not held or told != "{}|{}/{}".format(*held[0].site):
            read = reservation_of_pod(orjson.loads(document), _cluster(metadata), self._catalogue)
            held = () if read is None else (read,)
        return Seen(
            metadata.uid,
            metadata.resource_version,
            held=held,
            guest_of=guest_of,
            tolerations=_tolerations(pod.spec),
            refused_by=_refused_by(metadata),
            unsettled=not guest_of and not _is_settled(metadata, bytes(pod.status)),
            ending=metadata.deletion_timestamp is not None,
            returned_from=_noted(metadata, RETURNED),
            mark=_mark(metadata),
            created=metadata.creation_timestamp,
        )

    def allocation(self, document: bytes) -> Seen:
        obj = orjson.loads(document)
        metadata = msgspec.convert(obj.get("metadata"), _Metadata)
        cluster = _cluster(metadata)
        status = obj.get("status")
        status = status if isinstance(status, dict) else {}
        held = tuple(reservations_of_allocation(obj, cluster, self._catalogue))
        if status.get("phase") == "Failed":
            return Seen(metadata.uid, metadata.resource_version)
        request, problem = _understood(allocation_request, obj, cluster)
        settled = bool(held) and status.get("observedGeneration") == metadata.generation
        return Seen(
            metadata.uid,
            metadata.resource_version,
            metadata.generation,
            request,
            problem,
            asks=not settled and metadata.deletion_timestamp is None,
            held=held,
            tolerations=() if request is None else request.selector.tolerations,
            status=orjson.dumps(status),
        )


def _understood(
    read: Callable[[Obj, str], MachineRequest], obj: Obj, cluster: str
) -> tuple[MachineRequest | None, str]:
    """Without the names of items, so that those who ask for the same ask the same."""
    try:
        request = read(obj, cluster)
        return replace(request, items=tuple([item._replace(name="") for item in request.items])), ""
    except InvalidRequestError as error:
        return None, "; ".join(map(str, error.errors))[:LONGEST_PROBLEM]


def _cluster(metadata: _Metadata) -> str:
    return _noted(metadata, CLUSTER)


def _is_settled(metadata: _Metadata, status: bytes) -> bool:
    """It says that it is placed, or what its edge says, and nothing that is wrong about that."""
    if DELIVERED in status:
        return False
    return statuses.is_returned(metadata.annotations) or statuses.is_scheduled(orjson.loads(status) or {})


def _mark(metadata: _Metadata) -> str:
    return (metadata.labels or {}).get(reading.CLUSTER, "")


def _noted(metadata: _Metadata, name: str) -> str:
    return (metadata.annotations or {}).get(name, "")


def _refused_by(metadata: _Metadata) -> tuple[tuple[SiteKey, int], ...]:
    text = _noted(metadata, reading.REFUSED_BY)
    return tuple(noted(text).items()) if text else ()


def _tolerations(spec: _PodSpec) -> tuple[Toleration, ...]:
    return tuple(
        [
            Toleration(one.key, one.operator, one.value, one.effect, one.toleration_seconds)
            for one in spec.tolerations or ()
        ]
    )
