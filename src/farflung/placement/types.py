"""Typed values of the kinds that placement reads, one reader per kind."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple

import msgspec
import orjson

from farflung.apis.edge.authors import Author, author_of
from farflung.apis.edge.names import EDGE_PLACEMENTS, PROJECTED, PROJECTION, SOURCE_PLACEMENT, SYNC_TARGET_NAME
from farflung.apis.kcp.names import CLUSTER_ANNOTATION, ExportReference
from farflung.apis.names import LAST_APPLIED
from farflung.machinery import names
from farflung.machinery.errors import Obj, go_quote
from farflung.machinery.selectors import (
    EVERYTHING,
    InvalidFieldError,
    LabelSelector,
    Selector,
    check_key,
    describe_mismatch,
    parse_label_selector,
)
from farflung.placement import customize
from farflung.placement.names import GroupResource, ObjectKey, PlacementKey, is_system, may_be_system
from farflung.placement.select import WhereFilter, WorkloadSelector, parse_workload_selector

NOTHING: Final[Mapping[str, str]] = {}
EMPTY_DOCUMENT: Final = b"{}"


class Destination(NamedTuple):
    """One entry of a slice."""

    cluster: str
    location: str
    target: str
    uid: str  #: of the target


class Effect(StrEnum):
    NO_SCHEDULE = "NoSchedule"
    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    NO_EXECUTE = "NoExecute"


class Taint(msgspec.Struct, frozen=True, gc=False):
    key: str
    value: str
    effect: Effect

    def __str__(self) -> str:
        """As kubectl writes it."""
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


class Toleration(msgspec.Struct, frozen=True, gc=False):
    """An empty key and a missing effect stand for any."""

    key: str = ""
    value: str | None = None  #: None: any
    effect: Effect | None = None

    def tolerates(self, taint: Taint) -> bool:
        return (
            (not self.key or self.key == taint.key)
            and (self.value is None or self.value == taint.value)
            and (self.effect is None or self.effect is taint.effect)
        )


class Location(msgspec.Struct, frozen=True, gc=False):
    key: ObjectKey
    labels: Mapping[str, str] = NOTHING
    instances: LabelSelector | None = EVERYTHING  #: of SyncTargets; None if it is invalid
    problem: str = ""  #: why it is invalid
    taints: tuple[Taint, ...] = ()
    document: bytes = EMPTY_DOCUMENT  #: JSON for `spec.where`
    annotations: Mapping[str, str] = NOTHING


class TargetForScheduling(msgspec.Struct, frozen=True, gc=False):
    """The fields of a SyncTarget that decide destinations.  Heartbeats do not change it, so they resolve nothing."""

    key: ObjectKey
    uid: str
    labels: Mapping[str, str] = NOTHING
    taints: tuple[Taint, ...] = ()  #: with UNSCHEDULABLE for `spec.unschedulable`
    document: bytes = EMPTY_DOCUMENT


class PlacingRight(msgspec.Struct, frozen=True):
    """On which Locations of one workspace an author may place."""

    everywhere: bool = False
    names: frozenset[str] = frozenset()

    def allows(self, location: str) -> bool:
        return self.everywhere or location in self.names


class Placement(msgspec.Struct, frozen=True):
    """An EdgePlacement."""

    key: ObjectKey
    uid: str = ""
    generation: int = 0
    selectors: tuple[LabelSelector, ...] = ()
    number: int | None = None  #: of Locations; None: all
    spread_by: tuple[str, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    where: WhereFilter | None = None
    problem: str = ""  #: why the fields above are invalid; then they are empty.  See `find_problem`
    workload: WorkloadSelector = WorkloadSelector()  #: the objects that it selects
    annotations: Mapping[str, str] = NOTHING
    is_terminating: bool = False  #: it has a deletionTimestamp
    document: bytes = EMPTY_DOCUMENT  #: JSON
    created: str = ""
    author: Author | None = None  #: None: not recorded

    def find_problem(self) -> str:
        """Why it is invalid; also looks into the expression, which takes longer.  Raises TurnOver if the current task
        has an allowance that is too small."""
        return self.problem or ("" if self.where is None else self.where.problem)


MAX_SELECTORS: Final = 1_000  #: of Locations
UNSEEN_ANNOTATIONS: Final = (LAST_APPLIED,)
UNSEEN_STATUS: Final = ("lastSyncerHeartbeatTime",)  #: changes with every heartbeat


class _Metadata(msgspec.Struct, rename="camel"):
    name: str
    uid: str = ""
    generation: int = 0
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None


class _Object(msgspec.Struct):
    metadata: _Metadata
    spec: msgspec.Raw = msgspec.Raw(b"null")
    status: msgspec.Raw = msgspec.Raw(b"null")


class _Toleration(msgspec.Struct):
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class _PlacementSpec(msgspec.Struct, rename="camel"):
    location_selectors: list[Selector] | None = None
    number_of_locations: int | None = None
    spread_by: list[str] | None = None
    tolerations: list[_Toleration] | None = None
    where: str | None = None


class _Taint(msgspec.Struct):
    key: str = ""
    value: str = ""
    effect: str = ""


class _LocationSpec(msgspec.Struct, rename="camel"):
    instance_selector: msgspec.Raw = msgspec.Raw(b"null")
    taints: list[_Taint] | None = None


class _TargetSpec(msgspec.Struct):
    unschedulable: bool | None = None
    taints: list[_Taint] | None = None


_OBJECT: Final = msgspec.json.Decoder(_Object)
_PLACEMENT: Final = msgspec.json.Decoder(_PlacementSpec | None)
_LOCATION: Final = msgspec.json.Decoder(_LocationSpec | None)
_TARGET: Final = msgspec.json.Decoder(_TargetSpec | None)
_SELECTOR: Final = msgspec.json.Decoder(Selector | None)
_STATUS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw] | None)


def parse_placement(obj: Obj | bytes, cluster: str = "") -> Placement:
    """`cluster`: by default that of the object's annotation.  Raises msgspec.ValidationError for objects that no server
    returns."""
    document = obj if isinstance(obj, bytes) else msgspec.json.encode(obj)
    found, key = _read(document, cluster)
    try:
        fields = _placement(_PLACEMENT.decode(found.spec) or _PlacementSpec())
    except InvalidFieldError as problem:
        fields = {"problem": str(problem)}
    except msgspec.ValidationError as error:
        fields = {"problem": describe_mismatch("spec", error)}
    return Placement(
        key,
        found.metadata.uid,
        found.metadata.generation,
        workload=parse_workload_selector(document),
        annotations=found.metadata.annotations or NOTHING,
        is_terminating=found.metadata.deletion_timestamp is not None,
        document=document,
        created=found.metadata.creation_timestamp or "",
        author=author_of(found.metadata.annotations or NOTHING),
        **fields,
    )


def placement_problem(obj: Obj) -> str:
    """Why the spec of an EdgePlacement is invalid, beginning with the path of the field; empty if it is not."""
    placement = parse_placement(obj, "-")
    return placement.find_problem() or placement.workload.problem


def parse_location(obj: Obj | bytes, cluster: str = "") -> Location:
    found, key = _read(obj, cluster)
    labels, annotations, document = found.metadata.labels or {}, found.metadata.annotations or NOTHING, _document(found)
    try:
        spec = _LOCATION.decode(found.spec) or _LocationSpec()
    except msgspec.ValidationError as error:
        return Location(key, labels, None, describe_mismatch("spec", error), (), document, annotations)
    taints = tuple(_taints(spec.taints))
    try:
        return Location(key, labels, _instances(spec), "", taints, document, annotations)
    except InvalidFieldError as problem:
        return Location(key, labels, None, str(problem), taints, document, annotations)


def parse_target(obj: Obj | bytes, cluster: str = "") -> TargetForScheduling:
    """A SyncTarget with an invalid spec is unschedulable."""
    found, key = _read(obj, cluster)
    try:
        spec = _TARGET.decode(found.spec) or _TargetSpec()
    except msgspec.ValidationError:
        spec = _TargetSpec(unschedulable=True)
    taints = (*((UNSCHEDULABLE,) if spec.unschedulable else ()), *_taints(spec.taints))
    return TargetForScheduling(key, found.metadata.uid, found.metadata.labels or {}, taints, _document(found))


def _read(obj: Obj | bytes, cluster: str) -> tuple[_Object, ObjectKey]:
    found = _OBJECT.decode(obj if isinstance(obj, bytes) else msgspec.json.encode(obj))
    return found, ObjectKey(
        cluster or (found.metadata.annotations or {}).get(CLUSTER_ANNOTATION, ""), found.metadata.name
    )


def _document(found: _Object) -> bytes:
    """The object for `spec.where`, with all sections."""
    annotations = dict(found.metadata.annotations or {})
    for name in UNSEEN_ANNOTATIONS:
        annotations.pop(name, None)
    try:
        status = _STATUS.decode(found.status) or {}
    except msgspec.ValidationError:
        status = {}
    for name in UNSEEN_STATUS:
        status.pop(name, None)
    metadata = {"name": found.metadata.name, "labels": found.metadata.labels or {}, "annotations": annotations}
    spec = {} if bytes(found.spec) == b"null" else found.spec
    return msgspec.json.encode({"metadata": metadata, "spec": spec, "status": status})


# --- fields ---------------------------------------------------------------------------------------


def _placement(spec: _PlacementSpec) -> dict[str, Any]:
    number = spec.number_of_locations
    if number is not None and number < 0:
        raise InvalidFieldError(f"spec.numberOfLocations: Invalid value: {number}: must be greater than or equal to 0")
    if len(spec.location_selectors or ()) > MAX_SELECTORS:
        amount = len(spec.location_selectors or ())
        raise InvalidFieldError(f"spec.locationSelectors: Too many: {amount}: must have at most {MAX_SELECTORS} items")
    for at, label in enumerate(spec.spread_by or ()):
        check_key(label, f"spec.spreadBy[{at}]")
    return {
        "selectors": tuple(
            parse_label_selector(one, f"spec.locationSelectors[{at}]")
            for at, one in enumerate(spec.location_selectors or ())
        ),
        "number": number,
        "spread_by": tuple(dict.fromkeys(spec.spread_by or ())),
        "tolerations": tuple(
            _toleration(one, f"spec.tolerations[{at}]") for at, one in enumerate(spec.tolerations or ())
        ),
        "where": None if spec.where is None else WhereFilter(spec.where),
    }


def _toleration(one: _Toleration, path: str) -> Toleration:
    effect = _effect(one.effect)
    if one.effect and effect is None:
        supported = ", ".join(go_quote(effect) for effect in Effect)
        raise InvalidFieldError(
            f"{path}.effect: Unsupported value: {go_quote(one.effect)}: supported values: {supported}"
        )
    match one.operator or "Equal":
        case "Equal" if not one.key:
            raise InvalidFieldError(
                f"{path}.operator: Invalid value: {go_quote(one.operator)}: must be Exists without a key"
            )
        case "Equal":
            return Toleration(one.key, one.value, effect)
        case "Exists" if one.value:
            raise InvalidFieldError(
                f"{path}.value: Invalid value: {go_quote(one.value)}: must be empty if operator is Exists"
            )
        case "Exists":
            return Toleration(one.key, None, effect)
        case operator:
            why = 'supported values: "Equal", "Exists"'
            raise InvalidFieldError(f"{path}.operator: Unsupported value: {go_quote(operator)}: {why}")


def _taints(taints: list[_Taint] | None) -> list[Taint]:
    """Taints with an unknown effect are ignored."""
    found = [(taint, _effect(taint.effect)) for taint in taints or ()]
    return [Taint(taint.key, taint.value, effect) for taint, effect in found if effect is not None]


def _effect(text: str) -> Effect | None:
    return Effect(text) if text in Effect._value2member_map_ else None


def _instances(spec: _LocationSpec) -> LabelSelector:
    path = "spec.instanceSelector"
    try:
        selector = _SELECTOR.decode(spec.instance_selector)
    except msgspec.ValidationError as error:
        raise InvalidFieldError(describe_mismatch(path, error)) from None
    return EVERYTHING if selector is None else parse_label_selector(selector, path)


#: the taint of SyncTargets with `spec.unschedulable`
UNSCHEDULABLE: Final = Taint("edge.kcp.io/unschedulable", "", Effect.NO_SCHEDULE)
NO_LABELS: Final[Mapping[str, str]] = {}
NO_PLACEMENTS: Final[frozenset[PlacementKey]] = frozenset()


class ObservedObject(msgspec.Struct, frozen=True):
    """An object in the cache, with the fields that placement uses."""

    document: bytes  #: JSON
    version: int  #: its resourceVersion
    api_version: str  #: in which it was read, without the group
    uid: str = ""
    generation: int = 0
    labels: Mapping[str, str] = NO_LABELS
    annotated: int = 0  #: a hash of its annotations
    is_terminating: bool = False  #: it has a deletionTimestamp
    system: bool = False  #: every cluster creates its own; never copied
    ours: bool = False  #: it is a copy
    placements: frozenset[PlacementKey] = NO_PLACEMENTS  #: of a copy
    tenants: tuple[str, ...] = ()  #: of a copy: see `Projection`
    created: str = ""  #: of a copy
    customizer: str = ""  #: its Customizer, as `namespace/name`
    expands: bool = False  #: its parameters are replaced

    def differs_only_in_status(self, other: ObservedObject) -> bool:
        """Whether at most the status differs.  False for kinds without generations."""
        return (
            0 < self.generation == other.generation
            and self.uid == other.uid
            and self.is_terminating == other.is_terminating
            and self.api_version == other.api_version
            and self.annotated == other.annotated
            and self.labels == other.labels
        )


class CopyDestination(NamedTuple):
    """A destination of a placement: the Location and the SyncTarget of a mailbox."""

    cluster: str
    location: str
    target: str
    others: tuple[str, ...] = ()  #: further Locations that select the SyncTarget, sorted

    @property
    def locations(self) -> tuple[str, ...]:
        return (self.location, *self.others)


YES: Final = "yes"


class Projection(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the translator wrote into a copy."""

    annotations: tuple[str, ...] = ()  #: their keys, sorted
    tenants: tuple[str, ...] = msgspec.field(default=(), name="families")  #: of its sources, sorted
    hash: str = ""  #: of the content; empty if the content itself is compared
    labels: tuple[str, ...] = ()  #: their keys, sorted
    placements: tuple[str, ...] = msgspec.field(default=(), name="sources")  #: as `cluster|name`, sorted


_NO_PROJECTION: Final = Projection()
_decode_projection: Final = msgspec.json.Decoder(Projection).decode


def projection_of(observed: Mapping[str, Any]) -> Projection:
    """The annotation of a copy; empty if it is missing or invalid."""
    try:
        return _decode_projection((observed["metadata"].get("annotations") or {}).get(PROJECTION, "{}"))
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return _NO_PROJECTION


class _ObjectMetadata(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = "0"
    generation: int = 0
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None


class _ObjectHeader(msgspec.Struct, frozen=True):
    metadata: _ObjectMetadata


_decode_header: Final = msgspec.json.Decoder(_ObjectHeader)
#: annotations that request customization
_CUSTOMIZE_ANNOTATIONS: Final = frozenset(
    prefix + name for prefix in customize.PREFIXES for name in (customize.EXPAND, customize.CUSTOMIZER)
)


def parse_object(resource: GroupResource, api_version: str, document: bytes) -> ObservedObject:
    """Decodes only the metadata, except for kinds that can be system objects."""
    metadata = _decode_header.decode(document).metadata
    annotations = metadata.annotations or {}
    ours = (metadata.labels or {}).get(PROJECTED) == YES
    customizer, expands = "", False
    if not ours and not _CUSTOMIZE_ANNOTATIONS.isdisjoint(annotations):
        obj = {"metadata": {"annotations": annotations, "namespace": metadata.namespace}}
        reference = customize.reference_of(obj)
        customizer, expands = "" if reference is None else str(reference), customize.expands(obj)
    projection = projection_of({"metadata": {"annotations": annotations}}) if ours else _NO_PROJECTION
    return ObservedObject(
        document=document,
        version=int(metadata.resource_version),
        api_version=api_version,
        uid=metadata.uid,
        generation=metadata.generation,
        labels=metadata.labels or NO_LABELS,
        annotated=hash(tuple(annotations.items())),
        is_terminating=metadata.deletion_timestamp is not None,
        system=not ours and may_be_system(resource) and is_system(resource, orjson.loads(document)),
        ours=ours,
        placements=_made_for(projection.placements) if ours else NO_PLACEMENTS,
        tenants=projection.tenants,
        created=(metadata.creation_timestamp or "") if ours else "",
        customizer=customizer,
        expands=expands,
    )


def _made_for(placements: Iterable[str]) -> frozenset[PlacementKey]:
    pairs = (placement.partition("|") for placement in placements)
    return frozenset(PlacementKey(cluster, name) for cluster, _, name in pairs if name)


# --- slices ------------------------------------------------------------------


class _Destination(msgspec.Struct, frozen=True, rename="camel"):
    cluster: str
    location_name: str
    sync_target_name: str
    sync_target_uid: str = msgspec.field(name="syncTargetUID")


class _Owner(msgspec.Struct, frozen=True):
    kind: str = ""
    name: str = ""
    uid: str = ""


class _SliceMetadata(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    owner_references: list[_Owner] | None = None


class _Slice(msgspec.Struct, frozen=True):
    metadata: _SliceMetadata
    destinations: list[_Destination] | None = None


_slice: Final = msgspec.json.Decoder(_Slice)


class PlacementSlice(msgspec.Struct, frozen=True):
    owner: str  #: the uid of the placement
    placement: str  #: its name
    destinations: tuple[tuple[str, CopyDestination], ...]  #: by mailbox, sorted


def parse_slice(document: bytes) -> PlacementSlice:
    found = _slice.decode(document)
    owner = next((one for one in found.metadata.owner_references or () if one.kind == "EdgePlacement"), _Owner())
    destinations = sorted(
        (
            f"{one.cluster}-mb-{one.sync_target_uid}",
            CopyDestination(one.cluster, one.location_name, one.sync_target_name),
        )
        for one in found.destinations or ()
    )
    return PlacementSlice(owner.uid, owner.name or found.metadata.name, tuple(destinations))


FIELDS: Final = ("cluster", "locationName", "syncTargetName", "syncTargetUID")  #: of an entry
DIGITS: Final = 12  #: of a hash in a name


def source_label(name: str) -> str:
    """The value of the label `edge.kcp.io/source-placement`, which has at most 63 characters."""
    if len(name) <= names.LABEL_VALUE_LENGTH:
        return name
    return f"{name[: names.LABEL_VALUE_LENGTH - DIGITS - 1].rstrip('-.')}-{short_hash(name)}"


def short_hash(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:DIGITS]


# --- observed slices ------------------------------------------------------------------------------


def destinations_of(obj: Mapping[str, Any]) -> tuple[Destination, ...]:
    """In their order, without invalid entries."""
    found: list[Destination] = []
    for entry in obj.get("destinations") or ():
        try:
            parts = [entry[field] for field in FIELDS]
        except (KeyError, TypeError):
            continue
        if all(type(part) is str for part in parts):
            found.append(Destination(*parts))
    return tuple(found)


def owners(obj: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Owner references to EdgePlacements."""
    for reference in obj["metadata"].get("ownerReferences") or ():
        if reference.get("kind") == EDGE_PLACEMENTS.kind and reference.get("apiVersion", "").startswith("edge.kcp.io/"):
            yield reference


def placements_of(obj: Mapping[str, Any]) -> frozenset[str]:
    """Names of the placements to reconcile after a change of a slice: its owners, and the placement of its name."""
    return frozenset({obj["metadata"]["name"], *(reference.get("name", "") for reference in owners(obj))})


def is_extra(placement: Placement, obj: Mapping[str, Any]) -> bool:
    """Whether a slice belongs to the placement, or to an earlier one of the same name, by its label."""
    metadata = obj["metadata"]
    labelled = (metadata.get("labels") or {}).get(SOURCE_PLACEMENT) == source_label(placement.key.name)
    return labelled and any(reference.get("name") == placement.key.name for reference in owners(obj))


def previous(placement: Placement, observed: Iterable[Mapping[str, Any]]) -> frozenset[Destination]:
    """The current destinations of the placement, from its own slices and not those of an earlier one of its name."""
    return frozenset(
        destination
        for obj in observed
        if any(reference.get("uid") == placement.uid for reference in owners(obj))
        for destination in destinations_of(obj)
    )


# --- SyncTargets, Workspaces and APIBindings ------------------------------------------------------


class ObjectMeta(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    uid: str = ""
    labels: dict[str, str] | None = None
    deletion_timestamp: str | None = None
    annotations: dict[str, str] | None = None


class StatusCondition(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    type: str
    status: str = ""
    severity: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str = ""


class TargetStatus(msgspec.Struct, frozen=True, rename="camel"):
    last_syncer_heartbeat_time: str | None = None
    conditions: tuple[StatusCondition, ...] | None = None
    allocatable: Any = None
    capacity: Any = None


class SyncTarget(msgspec.Struct, frozen=True):
    """The identity and the health of a SyncTarget, for the mailbox controller, which reads every heartbeat."""

    metadata: ObjectMeta
    status: TargetStatus | None = None

    @property
    def is_terminating(self) -> bool:
        return self.metadata.deletion_timestamp is not None

    @property
    def heartbeat(self) -> str:
        """Empty if there was none."""
        return (self.status.last_syncer_heartbeat_time if self.status is not None else None) or ""

    @property
    def conditions(self) -> tuple[StatusCondition, ...]:
        return (self.status.conditions if self.status is not None else None) or ()


class WorkspaceSpec(msgspec.Struct, frozen=True):
    cluster: str = ""


class WorkspaceStatus(msgspec.Struct, frozen=True):
    phase: str = ""


class Workspace(msgspec.Struct, frozen=True):
    """A workspace below the provider workspace, mailbox or not."""

    metadata: ObjectMeta
    spec: WorkspaceSpec | None = None
    status: WorkspaceStatus | None = None

    @property
    def is_terminating(self) -> bool:
        return self.metadata.deletion_timestamp is not None

    @property
    def cluster(self) -> str:
        """Empty until it is scheduled."""
        return self.spec.cluster if self.spec is not None else ""

    @property
    def ready(self) -> bool:
        return bool(self.cluster) and self.status is not None and self.status.phase == "Ready"

    @property
    def target_name(self) -> str:
        """The annotation of a mailbox; empty for other workspaces."""
        return (self.metadata.annotations or {}).get(SYNC_TARGET_NAME, "")


class _BindingReference(msgspec.Struct, frozen=True):
    export: ExportReference | None = None


class BindingSpec(msgspec.Struct, frozen=True):
    reference: _BindingReference | None = None


class BindingStatus(msgspec.Struct, frozen=True):
    phase: str = ""


class ApiBinding(msgspec.Struct, frozen=True):
    metadata: ObjectMeta
    spec: BindingSpec | None = None
    status: BindingStatus | None = None

    @property
    def is_terminating(self) -> bool:
        return self.metadata.deletion_timestamp is not None

    @property
    def bound(self) -> bool:
        return self.status is not None and self.status.phase == "Bound"

    @property
    def export(self) -> ExportReference | None:
        reference = self.spec.reference if self.spec is not None else None
        return reference.export if reference is not None else None
