"""Project objects into mailboxes: strip, merge, customize and mark them."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
import orjson

from farflung.apis.edge.names import (
    AUTHOR,
    CREATE_ONLY,
    DOWNSYNC_OVERWRITE,
    EDGE_GROUP,
    EXECUTING_COUNT,
    PROJECTED,
    PROJECTION,
    STATUS_RETURNED_FROM,
)
from farflung.apis.kcp.names import APIS_GROUP
from farflung.apis.names import LAST_APPLIED, NAME_LABEL, RBAC_GROUP
from farflung.machinery.errors import Obj
from farflung.machinery.fields.sets import Fields, has, path
from farflung.machinery.names import version_order
from farflung.placement.customize import Customized, Customizer, customized, expands, parameters_of, reference_of
from farflung.placement.names import NAMESPACES, ObjectRef, PlacementKey, WatchedCollection
from farflung.placement.types import YES, CopyDestination, Location, ObservedObject, Projection, projection_of

if TYPE_CHECKING:  # a syncer needs no placement engine
    from farflung.placement.index import CopyReason

Section = Mapping[str, Any]
SERVICE_FIELDS: Final = ("clusterIP", "clusterIPs", "healthCheckNodePort", "ipFamilies", "ipFamilyPolicy")
HEADLESS: Final = "None"
JOB_LABELS: Final = frozenset(
    {"batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name", "controller-uid", "job-name"}
)


TOKEN_VOLUME: Final = re.compile(r"kube-api-access-[a-z0-9]{5}", re.ASCII).fullmatch
CONTAINERS: Final = ("initContainers", "containers", "ephemeralContainers")


def without_assigned(obj: Section) -> Obj:
    """The object without fields that its server assigned.  The result shares unchanged values."""
    remove = _REMOVE.get(_kind(obj))
    return {**obj} if remove is None else remove(obj)


def with_assigned(wanted: Section, observed: Section) -> Section:
    """The desired object with fields that the server assigned to the observed one and would not assign again."""
    keep = _KEEP.get(_kind(wanted))
    return wanted if keep is None else keep(wanted, observed)


def _kind(obj: Section) -> tuple[str, str]:
    group, slash, _ = obj["apiVersion"].partition("/")
    return (group if slash else ""), obj["kind"]


def _without(section: Section, keys: Iterable[str]) -> Obj:
    left = dict(section)
    for key in keys:
        left.pop(key, None)
    return left


def _relabelled(obj: Section, labels: Section) -> Obj:
    """The object with these labels; without the field if there are none."""
    metadata = _without(obj.get("metadata") or {}, ["labels"])
    if labels:
        metadata["labels"] = labels
    return {**obj, "metadata": metadata}


def _labels(obj: Section) -> Section:
    return (obj.get("metadata") or {}).get("labels") or {}


# --- sections that the server owns as a whole -----------------------------------------------------


def _is_aggregated(role: Section) -> bool:
    return bool(role.get("aggregationRule"))


def _bare_namespace(namespace: Section) -> Obj:
    return _relabelled(_without(namespace, ["spec"]), _without(_labels(namespace), [NAME_LABEL]))


def _bare_account(account: Section) -> Obj:
    return _without(account, ["secrets"])


def _bare_role(role: Section) -> Obj:
    return _without(role, ["rules"]) if _is_aggregated(role) else {**role}


def _with_found_path(binding: Section) -> Obj:
    """The APIBinding with the workspace that the hub found for it.  In a mailbox it could find another one."""
    reference = (binding.get("spec") or {}).get("reference") or {}
    found = (binding.get("status") or {}).get("apiExportPath")
    if not found or (reference.get("export") or {}).get("path"):
        return {**binding}
    named = {**reference, "export": {**(reference.get("export") or {}), "path": found}}
    return {**binding, "spec": {**binding["spec"], "reference": named}}


def _with_section(name: str) -> Callable[[Section, Section], Section]:
    def keep(wanted: Section, observed: Section) -> Section:
        return {**wanted, name: observed[name]} if name in observed else wanted

    return keep


def _aggregated_role(wanted: Section, observed: Section) -> Section:
    return _with_section("rules")(wanted, observed) if _is_aggregated(wanted) else wanted


# --- Services -------------------------------------------------------------------------------------


def _bare_service(service: Section) -> Obj:
    entries = service["metadata"].get("managedFields")
    spec = service.get("spec")
    if not entries or not spec:
        return {**service}
    owned = [one.get("fieldsV1") or {} for one in entries]
    bare = _without(spec, [name for name in SERVICE_FIELDS if name in spec and not _is_fixed(name, spec, owned)])
    if "clusterIP" in bare and "clusterIPs" not in bare:
        bare["clusterIPs"] = [bare["clusterIP"]]  # a write with only one of the two drops both
    if bare.get("ports"):
        below = [fields.get("f:spec", {}).get("f:ports") for fields in owned]
        bare["ports"] = [_bare_port(port, [one for one in below if one is not None]) for port in bare["ports"]]
    return {**service, "spec": bare}


def _is_fixed(name: str, spec: Section, owned: list[Fields]) -> bool:
    if name == "clusterIP" and spec[name] == HEADLESS:
        return True
    return any(has(fields, path("spec", name)) for fields in owned)


def _bare_port(port: Section, owned: list[Fields]) -> Section:
    if "nodePort" not in port:
        return port
    key = f'k:{{"port":{port.get("port")},"protocol":"{port.get("protocol", "TCP")}"}}'
    fixed = any(not ports or "f:nodePort" in ports.get(key, ()) for ports in owned)
    return port if fixed else _without(port, ["nodePort"])


# --- Jobs -----------------------------------------------------------------------------------------


def _bare_job(job: Section) -> Obj:
    spec = job.get("spec")
    if not spec or spec.get("manualSelector"):
        return {**job}
    bare = _without(spec, ["selector"])
    template = bare.get("template")
    if template and not JOB_LABELS.isdisjoint(_labels(template)):
        bare["template"] = _relabelled(template, _without(_labels(template), JOB_LABELS))
    obj = {**job, "spec": bare}
    return obj if JOB_LABELS.isdisjoint(_labels(job)) else _relabelled(obj, _without(_labels(job), JOB_LABELS))


def _job(wanted: Section, observed: Section) -> Section:
    spec, there = wanted.get("spec"), observed.get("spec") or {}
    if not spec or spec.get("manualSelector") or "selector" not in there:
        return wanted
    spec = {**spec, "selector": there["selector"]}
    template = spec.get("template") or {}
    generated = {key: value for key, value in _labels(there.get("template") or {}).items() if key in JOB_LABELS}
    if generated:
        spec["template"] = _relabelled(template, {**_labels(template), **generated})
    return {**wanted, "spec": spec}


# --- Pods -----------------------------------------------------------------------------------------


def _injected(spec: Section) -> list[Section]:
    """The volumes that carry the token of the pod's ServiceAccount."""
    return [one for one in spec.get("volumes") or () if "projected" in one and TOKEN_VOLUME(one.get("name") or "")]


def _bare_pod(pod: Section) -> Obj:
    spec = pod.get("spec")
    if not spec:
        return {**pod}
    bare = _without(spec, ["nodeName"])
    if "virtualMachine" in spec and not spec.get("priority"):
        bare.pop("priority", None)  # the cluster has a default of its own
    if injected := _injected(spec):
        names = {one["name"] for one in injected}
        _put(bare, "volumes", [one for one in spec["volumes"] if one not in injected])
        for field in CONTAINERS:
            if field in bare:
                bare[field] = [_unmounted(one, names) for one in bare[field] or ()]
    return {**pod, "spec": bare}


def _put(section: Obj, name: str, entries: list[Any]) -> None:
    if entries:
        section[name] = entries
    else:
        section.pop(name, None)


def _unmounted(container: Section, names: set[str]) -> Section:
    mounts = container.get("volumeMounts")
    if not mounts:
        return container
    bare = dict(container)
    _put(bare, "volumeMounts", [one for one in mounts if one.get("name") not in names])
    return bare


def _pod(wanted: Section, observed: Section) -> Section:
    spec, there = wanted.get("spec"), observed.get("spec") or {}
    if not spec:
        return wanted
    spec = dict(spec)
    if "nodeName" in there:
        spec.setdefault("nodeName", there["nodeName"])
    if injected := _injected(there):
        names = {one["name"] for one in injected}
        spec["volumes"] = [*(spec.get("volumes") or ()), *injected]
        for field in CONTAINERS:
            if spec.get(field):
                mounts = {one.get("name"): _mounts(one, names) for one in there.get(field) or ()}
                spec[field] = [_mounted(one, mounts.get(one.get("name"), [])) for one in spec[field]]
    return {**wanted, "spec": spec}


def _mounts(container: Section, names: set[str]) -> list[Section]:
    return [one for one in container.get("volumeMounts") or () if one.get("name") in names]


def _mounted(container: Section, mounts: list[Section]) -> Section:
    return {**container, "volumeMounts": [*(container.get("volumeMounts") or ()), *mounts]} if mounts else container


_REMOVE: Final[Mapping[tuple[str, str], Callable[[Section], Obj]]] = {
    ("", "Namespace"): _bare_namespace,
    ("", "Pod"): _bare_pod,
    ("", "Service"): _bare_service,
    ("", "ServiceAccount"): _bare_account,
    (APIS_GROUP, "APIBinding"): _with_found_path,
    ("batch", "Job"): _bare_job,
    (RBAC_GROUP, "ClusterRole"): _bare_role,
}


#: not Services: the server keeps addresses and ports that an update omits
_KEEP: Final[Mapping[tuple[str, str], Callable[[Section, Section], Section]]] = {
    ("", "Namespace"): _with_section("spec"),
    ("", "Pod"): _pod,
    ("", "ServiceAccount"): _with_section("secrets"),
    ("batch", "Job"): _job,
    (RBAC_GROUP, "ClusterRole"): _aggregated_role,
}


NEVER: Final = "false"
HEAD: Final = frozenset({"apiVersion", "kind", "metadata", "status"})  #: every other section is content
DIGITS: Final = 16  #: of a hash
GLANCES: Final = 8  #: levels on which whole values are compared first; on all levels this would take quadratic time
SYSTEM: Final = "kcp.io"
#: kinds to which servers add nothing; their content is compared and not hashed, because a hash reveals short secrets
LITERAL: Final = frozenset({("v1", "ConfigMap"), ("v1", "Secret")})
_encode: Final = msgspec.json.Encoder(order="sorted").encode


# --- desired copies -------------------------------------------------------------------------------


def strip(obj: Mapping[str, Any]) -> Obj:
    """The part of a source that users wrote, without fields of its server, kcp and kubectl.

    `managedFields` tell which addresses of a Service a user set.
    """
    bare = without_assigned(obj)
    bare.pop("status", None)
    metadata = bare["metadata"]
    kept: Obj = {"name": metadata["name"]}
    if namespace := metadata.get("namespace"):
        kept["namespace"] = namespace
    for section in ("labels", "annotations"):
        if entries := {key: value for key, value in (metadata.get(section) or {}).items() if _travels(key)}:
            kept[section] = entries
    bare["metadata"] = kept
    return bare


def _travels(key: str) -> bool:
    """Whether a label or an annotation is copied: not one of the system or of placement."""
    prefix, slash, _ = key.partition("/")
    if slash and prefix != EDGE_GROUP and (prefix == SYSTEM or prefix.endswith(f".{SYSTEM}")):
        return False
    return key not in (AUTHOR, PROJECTED, PROJECTION, EXECUTING_COUNT, STATUS_RETURNED_FROM, LAST_APPLIED)


def make_copy(
    obj: Mapping[str, Any], *, create_only: bool = False, placements: Iterable[str] = (), tenants: Iterable[str] = ()
) -> Obj:
    """The copy of a stripped, merged and customized object.  `placements`: as `cluster|name`; `tenants`:
    of their workspaces.

    `create_only`: never update it.  An annotation of the source can request the same.
    """
    content = _content(obj)
    metadata = obj["metadata"]
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    projection = Projection(
        annotations=tuple(sorted(annotations)),
        tenants=tuple(sorted(tenants)),
        hash="" if _is_literal(obj) else _hash(content),
        labels=tuple(sorted(labels)),
        placements=tuple(sorted(placements)),
    )
    ours = {PROJECTION: _encode(projection).decode()}
    if create_only or annotations.get(CREATE_ONLY) == NEVER:
        ours[DOWNSYNC_OVERWRITE] = NEVER
    marked = {
        **metadata,
        "labels": dict(sorted({**labels, PROJECTED: YES}.items())),
        "annotations": dict(sorted({**annotations, **ours}.items())),
    }
    return {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "metadata": marked, **content}


def content_hash(obj: Mapping[str, Any]) -> str:
    """Of everything but its metadata and status."""
    return _hash(_content(obj))


def _content(obj: Mapping[str, Any]) -> Obj:
    content = {name: section for name, section in obj.items() if name not in HEAD}
    if "stringData" in content and obj["kind"] == "Secret" and obj["apiVersion"] == "v1":
        texts = content.pop("stringData") or {}
        encoded = {key: base64.b64encode(str(text).encode()).decode() for key, text in texts.items()}
        content["data"] = {**(content.get("data") or {}), **encoded}
    return content


def _is_literal(obj: Mapping[str, Any]) -> bool:
    return (obj["apiVersion"], obj["kind"]) in LITERAL


def _hash(content: Obj) -> str:
    return hashlib.sha256(orjson.dumps(content, option=orjson.OPT_SORT_KEYS)).hexdigest()[:DIGITS]


# --- observed copies ------------------------------------------------------------------------------


def is_ours(observed: Mapping[str, Any]) -> bool:
    """Whether the object is a copy.  Other objects must not be changed or deleted."""
    return bool((observed["metadata"].get("labels") or {}).get(PROJECTED) == YES)


# --- updates --------------------------------------------------------------------------------------


def update_of(observed: Mapping[str, Any], wanted: Mapping[str, Any]) -> Obj | None:
    """The update of a copy; None if it is up to date.

    It keeps labels and annotations of other writers, finalizers, the status and fields that the server assigned.
    Defaults of the server are not a difference.  For a copy that is never updated, only that annotation is written.
    """
    annotations: Obj = wanted["metadata"]["annotations"]
    if annotations.get(DOWNSYNC_OVERWRITE) == NEVER:
        return _left_alone(observed)
    known = _with_tenants(annotations, observed)
    if known is not annotations:
        annotations, wanted = known, {**wanted, "metadata": {**wanted["metadata"], "annotations": known}}
    aim = with_assigned(wanted, observed)
    if _is_marked(observed["metadata"], wanted["metadata"]) and _holds(observed, aim):
        return None
    before = projection_of(observed)
    metadata = _metadata(observed)
    metadata["labels"] = _merged(metadata.get("labels"), {*before.labels}, wanted["metadata"]["labels"])
    metadata["annotations"] = _merged(
        metadata.get("annotations"), {*before.annotations, DOWNSYNC_OVERWRITE}, annotations
    )
    result = {**aim, "metadata": metadata}
    if "status" in observed:
        result["status"] = observed["status"]
    return result


def _with_tenants(wanted: Obj, observed: Mapping[str, Any]) -> Obj:
    """The annotations, with the tenants of the copy if the tenants of its sources are not known."""
    there = (observed["metadata"].get("annotations") or {}).get(PROJECTION)
    if there is None or there == wanted[PROJECTION]:
        return wanted
    projection = projection_of({"metadata": {"annotations": wanted}})
    if projection.tenants:
        return wanted
    tenants = projection_of(observed).tenants
    return {**wanted, PROJECTION: _encode(msgspec.structs.replace(projection, tenants=tenants)).decode()}


def _left_alone(observed: Mapping[str, Any]) -> Obj | None:
    annotations = observed["metadata"].get("annotations") or {}
    if annotations.get(DOWNSYNC_OVERWRITE) == NEVER:
        return None
    metadata = _metadata(observed)
    metadata["annotations"] = {**annotations, DOWNSYNC_OVERWRITE: NEVER}
    return {**observed, "metadata": metadata}


def released(observed: Mapping[str, Any]) -> Obj:
    """A copy without placements, to be deleted when nothing needs it."""
    metadata = _metadata(observed)
    projection = _encode(msgspec.structs.replace(projection_of(observed), placements=())).decode()
    metadata["annotations"] = {**(metadata.get("annotations") or {}), PROJECTION: projection}
    return {**observed, "metadata": metadata}


def _metadata(observed: Mapping[str, Any]) -> Obj:
    return {name: value for name, value in observed["metadata"].items() if name != "managedFields"}


def _merged(there: Obj | None, before: set[str], wanted: Obj) -> Obj:
    left = {key: value for key, value in (there or {}).items() if key not in before}
    return dict(sorted({**left, **wanted}.items()))


def _is_marked(there: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether the copy has the desired labels and annotations.  The projection lists their keys, so no key is left
    over."""
    labels: Obj = there.get("labels") or {}
    annotations: Obj = there.get("annotations") or {}
    if DOWNSYNC_OVERWRITE in annotations and DOWNSYNC_OVERWRITE not in wanted["annotations"]:
        return False
    ours: tuple[Obj, Obj] = wanted["labels"], wanted["annotations"]
    return ours[0].items() <= labels.items() and ours[1].items() <= annotations.items()


def _holds(observed: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether the copy has the desired content, given that its projection has the desired hash."""
    if _is_literal(wanted):
        return all(
            _same(observed.get(name), wanted.get(name))
            for name in observed.keys() | wanted.keys()
            if name not in HEAD and (name != "type" or name in wanted)
        )
    return all(_covers(observed.get(name), section) for name, section in wanted.items() if name not in HEAD)


def _same(there: Any, wanted: Any) -> bool:
    """Absent, null and empty are the same."""
    return bool(there == wanted) or (wanted in (None, {}, []) and there is None) or (wanted is None and there == {})


def _covers(there: Any, wanted: Any) -> bool:
    """Whether `there` has the desired value, apart from further fields in maps."""
    level, glances = [(there, wanted)], GLANCES
    while level:
        below: list[tuple[Any, Any]] = []
        for there, wanted in level:
            if glances > 0 and there == wanted:
                continue
            if there is None and wanted in (None, {}, []):
                continue  # servers drop empty values
            if type(wanted) is dict and type(there) is dict:
                below += [(there.get(key), value) for key, value in wanted.items() if value is not None]
            elif type(wanted) is list and type(there) is list and len(there) == len(wanted):
                below += zip(there, wanted, strict=True)
            elif type(wanted) in (dict, list) or there != wanted:
                return False
        level, glances = below, glances - 1
    return True


# --- merging --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SourceObject:
    """A stripped object of one workspace."""

    cluster: str
    version: int  #: its resourceVersion
    obj: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True, slots=True, order=True)
class MergeConflict:
    """Sources have different values in a field.  Contains no values, because they may be secret."""

    path: str
    winner: str  #: the cluster with the most recently updated object
    losers: tuple[str, ...]  #: clusters with other values, sorted

    def __str__(self) -> str:
        return f"{self.path}: {self.winner} wins over {', '.join(self.losers)}"


@dataclass(frozen=True, slots=True)
class MergedObject:
    obj: Obj | None = field(repr=False)  #: None if there is no source, or all are being deleted
    conflicts: tuple[MergeConflict, ...] = ()  #: sorted


FieldValues = list[tuple[str, Any]]  #: cluster and value of one field, the most recently updated first
METADATA_MAPS: Final = ("annotations", "labels")
LIKE_SPEC: Final = ("spec", "status")


def merge(sources: Sequence[SourceObject]) -> MergedObject:
    """Merge objects of the same apiVersion, kind, namespace and name.  Their order does not matter.

    Labels, annotations and sections that are maps in every source are merged key by key.  For other values, the most
    recently updated object wins.
    """
    present = [one for one in sources if not one.obj["metadata"].get("deletionTimestamp")]
    if not present:
        return MergedObject(None)
    latest = sorted(present, key=lambda one: (-one.version, one.cluster))
    if len(latest) == 1:
        return MergedObject({**latest[0].obj, "metadata": _unmanaged(latest[0].obj["metadata"])})
    merge = _Merge([one.cluster for one in latest])
    return MergedObject(merge.objects([one.obj for one in latest]), tuple(sorted(merge.conflicts)))


def _unmanaged(metadata: Mapping[str, Any]) -> Obj:
    return {name: value for name, value in metadata.items() if name != "managedFields"}


class _Merge:
    def __init__(self, clusters: list[str]) -> None:
        self._clusters = clusters
        self.conflicts: list[MergeConflict] = []

    def objects(self, objs: list[Mapping[str, Any]]) -> Obj:
        """`objs`: the most recently updated one first."""
        result: Obj = {"apiVersion": objs[0]["apiVersion"], "kind": objs[0]["kind"]}
        result["metadata"] = self._metadata([obj["metadata"] for obj in objs])
        for name in sorted({name for obj in objs for name in obj} - result.keys()):
            section = self._section(name, [obj.get(name) for obj in objs])
            if section is not None:
                result[name] = section
        return result

    def _metadata(self, all_metadata: list[Mapping[str, Any]]) -> Obj:
        result = _unmanaged(all_metadata[0])
        for name in METADATA_MAPS:
            _set(result, name, self._maps(f"metadata.{name}", [one.get(name) for one in all_metadata]))
        references = [
            {_reference_key(reference): reference for reference in one.get("ownerReferences") or ()}
            for one in all_metadata
        ]
        _set(result, "ownerReferences", list(self._maps("metadata.ownerReferences", references).values()))
        finalizers = {name for one in all_metadata for name in one.get("finalizers") or ()}
        _set(result, "finalizers", sorted(finalizers))
        return result

    def _section(self, name: str, sections: list[Any]) -> Any:
        if name not in LIKE_SPEC and all(type(one) is dict or one is None for one in sections):
            return self._maps(name, sections) if any(one is not None for one in sections) else None
        return self._value(name, list(zip(self._clusters, sections, strict=True)))

    def _maps(self, path: str, maps: Sequence[Mapping[str, Any] | None]) -> Obj:
        values: dict[str, FieldValues] = {}
        for cluster, entries in zip(self._clusters, maps, strict=True):
            for key, value in (entries or {}).items():
                if value is not None:
                    values.setdefault(key, []).append((cluster, value))
        return {key: self._value(_below(path, key), values[key]) for key in sorted(values)}

    def _value(self, path: str, values: FieldValues) -> Any:
        (winner, value), *others = values
        losers = [(cluster, other) for cluster, other in others if not same(value, other)]
        if losers:
            where = path + first_difference(value, losers[0][1])
            self.conflicts.append(MergeConflict(where, winner, tuple(sorted(cluster for cluster, _ in losers))))
        return value


def _set(section: Obj, name: str, value: Any) -> None:
    if value:
        section[name] = value
    else:
        section.pop(name, None)


def _reference_key(reference: Mapping[str, Any]) -> str:
    return " ".join(str(reference.get(part, "")) for part in ("apiVersion", "kind", "name"))


def _below(path: str, key: str) -> str:
    return f"{path}.{key}" if key.isidentifier() else f"{path}[{key!r}]"


# --- equality -------------------------------------------------------------------------------------


def same(one: Any, other: Any) -> bool:
    """Whether they are equal as JSON, where absent and null are the same."""
    return next(_differences(one, other), None) is None


def first_difference(one: Any, other: Any) -> str:
    """The first path that differs, in alphabetical order, like `.replicas`; empty: the root, or none."""
    return next(_differences(one, other), "")


def _differences(one: Any, other: Any) -> Iterator[str]:
    left = [("", one, other)]
    while left:
        path, one, other = left.pop()
        if type(one) is dict and type(other) is dict:
            keys = sorted(one.keys() | other.keys(), reverse=True)
            left += [(_below(path, key), one.get(key), other.get(key)) for key in keys]
        elif type(one) is list and type(other) is list and len(one) == len(other):
            left += [(f"{path}[{at}]", one[at], other[at]) for at in reversed(range(len(one)))]
        elif one != other or (type(one) is bool) != (type(other) is bool):
            yield path


# --- API versions ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ServedVersions:
    """The versions of an API group that a workspace serves."""

    cluster: str
    versions: tuple[str, ...]
    preferred: str


@dataclass(frozen=True, slots=True)
class Agreement:
    version: str  #: empty if no workspace serves any
    dropped: tuple[str, ...] = ()  #: clusters whose objects cannot be read in that version, sorted
    conflict: str = ""  #: why they are dropped


def agree(offers: Sequence[ServedVersions], earlier: str | None = None) -> Agreement:
    """The version in which objects of all these workspaces are read.  The order of the offers does not matter.

    If no version is served by all, the workspace with the lowest best version is dropped, and so on; of several
    such, the one with the greatest name.  `earlier`: the last agreement, which is kept if possible.
    """
    ranked = sorted(offers, key=lambda one: (_best(one), one.cluster))
    common = _common(ranked)
    while ranked and not common:
        ranked.pop()
        common = _common(ranked)
    if not ranked:
        return Agreement("", *_dropped(offers, ranked))
    candidates = common & {one.preferred for one in ranked} or common
    version = earlier if earlier in candidates else min(candidates, key=version_order)
    return Agreement(version or "", *_dropped(offers, ranked))


def _best(offer: ServedVersions) -> tuple[bool, tuple[int, int, int, str]]:
    versions = sorted(map(version_order, offer.versions))
    return (False, versions[0]) if versions else (True, (0, 0, 0, ""))


def _common(offers: Iterable[ServedVersions]) -> frozenset[str]:
    served = [frozenset(one.versions) for one in offers]
    return frozenset.intersection(*served) if served else frozenset()


def _dropped(offers: Sequence[ServedVersions], kept: Sequence[ServedVersions]) -> tuple[tuple[str, ...], str]:
    dropped = sorted({one.cluster for one in offers} - {one.cluster for one in kept})
    if not dropped:
        return (), ""
    served = ", ".join(sorted(f"{one.cluster} ({', '.join(one.versions) or 'none'})" for one in offers))
    return tuple(dropped), f"no version is served by all of {served}; left out: {', '.join(dropped)}"


MAX_REMEMBERED: Final = 20_000  #: stripped objects, and copies that are equal in all mailboxes


class Desired(NamedTuple):
    obj: Obj | None  #: None: no copy is desired, or there is a problem
    problem: str = ""  #: why the copy cannot be computed
    conflicts: tuple[MergeConflict, ...] = ()
    remarks: tuple[str, ...] = ()  #: problems that do not prevent the copy
    ambiguity: str = ""  #: if another Location would produce a different copy


NOTHING: Final = Desired(None)


def contributing_clusters(ref: ObjectRef, wanted: Iterable[CopyReason], kept: Iterable[PlacementKey]) -> list[str]:
    """The clusters whose objects are merged into the copy, sorted.  A namespace that is only needed is not merged."""
    chosen = {one.placement.cluster for one in wanted if one.selected is not None or ref.resource != NAMESPACES}
    return sorted(chosen | {key.cluster for key in kept if ref.resource != NAMESPACES})


def compute_copy(
    ref: ObjectRef,
    wanted: Sequence[CopyReason],
    sources: Sequence[SourceObject],
    customizers: Mapping[tuple[str, str], Customizer],
    locations: Mapping[tuple[str, str], Location],
    kept: Iterable[PlacementKey] = (),
    tenants: Iterable[str] = (),
) -> Desired:
    """`sources`: stripped objects of the contributing clusters; `customizers`: by cluster and `namespace/name`;
    `locations`: by cluster and name; `kept`: unresolved placements of the existing copy; `tenants`: of all these
    placements."""
    if not wanted:
        return NOTHING
    marks = sorted({str(one.placement) for one in wanted} | {str(key) for key in kept})
    chosen = [one for one in wanted if one.selected is not None]
    if ref.resource == NAMESPACES and not chosen:
        return Desired(make_copy(bare_namespace(ref.name), placements=marks, tenants=tenants))
    result = merge(sources)
    if result.obj is None:
        return NOTHING
    create_only = any(one.selected is not None and one.selected.create_only for one in wanted)
    latest = max(sources, key=lambda one: (one.version, one.cluster))
    obj, customizer = result.obj, _customizer(result.obj, latest.cluster, customizers)
    destination, *others = _destinations(chosen or wanted)
    after = customized(obj, customizer, _parameters(destination, locations))
    ambiguity = ""
    if others and (reference_of(obj) is not None or expands(obj)):
        there = ((one.location, customized(obj, customizer, _parameters(one, locations))) for one in others)
        ambiguity = _ambiguity(destination.location, after, there)
    if after.problem:
        return Desired(None, after.problem, result.conflicts, ambiguity=ambiguity)
    remarks = tuple(f"the parameter %({name}) is unknown" for name in after.unknown)
    remarks += tuple(f"the path {path} does not exist" for path in after.unused)
    marked = make_copy(after.obj, create_only=create_only, placements=marks, tenants=tenants)
    return Desired(marked, "", result.conflicts, remarks, ambiguity)


def _destinations(wanted: Sequence[CopyReason]) -> list[CopyDestination]:
    """One for each Location that selects the SyncTarget of the mailbox; the first is used."""
    names = {name for one in wanted for name in one.destination.locations}
    return [wanted[0].destination._replace(location=name, others=()) for name in sorted(names)]


def _ambiguity(location: str, made: Customized, others: Iterable[tuple[str, Customized]]) -> str:
    """Names a Location that would produce a different copy; empty if there is none."""
    for other, found in others:
        if (made.obj, bool(made.problem)) != (found.obj, bool(found.problem)):
            return (
                f"the Locations {location} and {other} both select the cluster and customize the object differently; "
                f"{location} is used"
            )
    return ""


def bare_namespace(name: str) -> Obj:
    """A namespace that exists only for the objects in it."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def _customizer(
    obj: Mapping[str, object], cluster: str, customizers: Mapping[tuple[str, str], Customizer]
) -> Customizer | None:
    reference = reference_of(obj)
    return None if reference is None else customizers.get((cluster, str(reference)))


def _parameters(destination: CopyDestination, locations: Mapping[tuple[str, str], Location]) -> dict[str, str]:
    found = locations.get((destination.cluster, destination.location))
    labels, annotations = ({}, {}) if found is None else (found.labels, found.annotations)
    return parameters_of(
        labels, annotations, location=destination.location, cluster=destination.target, workspace=destination.cluster
    )


class CopyState(NamedTuple):
    """What decides about one object of one mailbox."""

    ref: ObjectRef
    cluster: str  #: of the mailbox
    reasons: list[CopyReason]
    served: WatchedCollection | None  #: None: the mailbox does not serve the kind
    observed: ObservedObject | None  #: the object in the mailbox
    placements: frozenset[PlacementKey]  #: that select or need it
    kept: list[PlacementKey]  #: unresolved placements of the existing copy
    sources: list[tuple[str, ObservedObject]]  #: the objects to merge, with their workspaces
    tenants: tuple[str, ...] = ()  #: of the placements
    refused: tuple[tuple[PlacementKey, str], ...] = ()  #: other placements that select it, with reasons

    @property
    def is_customized(self) -> bool:
        return any(seen.customizer or seen.expands for _, seen in self.sources)

    @property
    def has_several_versions(self) -> bool:
        """Whether the sources were read in several versions of their API."""
        return len({seen.api_version for _, seen in self.sources}) > 1


class Projector:
    """Computes copies: each source is stripped once, and copies that are equal in all mailboxes are made once."""

    def __init__(
        self,
        customizers: Mapping[tuple[str, str], Customizer],
        locations: Mapping[tuple[str, str], Location],
    ) -> None:
        """`customizers`: by cluster and `namespace/name`; `locations`: by cluster and name."""
        self._customizers = customizers
        self._locations = locations
        self._stripped: dict[tuple[str, ObjectRef], tuple[int, str, Obj]] = {}
        self._common: dict[ObjectRef, tuple[object, Desired]] = {}

    def strip(self, cluster: str, ref: ObjectRef, seen: ObservedObject) -> SourceObject:
        found = self.remembered(cluster, ref, seen.version, seen.api_version)
        if found is None:
            found = self.remember(cluster, ref, seen.version, seen.api_version, orjson.loads(seen.document))
        return found

    def remembered(self, cluster: str, ref: ObjectRef, version: int, api_version: str) -> SourceObject | None:
        found = self._stripped.get((cluster, ref))
        return SourceObject(cluster, version, found[2]) if found and found[:2] == (version, api_version) else None

    def remember(self, cluster: str, ref: ObjectRef, version: int, api_version: str, obj: Obj) -> SourceObject:
        if len(self._stripped) >= MAX_REMEMBERED:
            self._stripped.clear()
        bare = strip(obj)
        self._stripped[cluster, ref] = version, api_version, bare
        return SourceObject(cluster, version, bare)

    def compute_copy(self, copy: CopyState, sources: Sequence[SourceObject] | None = None) -> Desired:
        """`sources`: by default those of the copy, in the version in which they were observed."""
        if sources is None:
            sources = [self.strip(cluster, copy.ref, seen) for cluster, seen in copy.sources]
        if copy.is_customized:
            return self._compute(copy, sources)
        why = (
            [(one.placement, one.selected) for one in copy.reasons],
            [(one.cluster, one.version, one.obj["apiVersion"]) for one in sources],
            copy.kept,
            copy.tenants,
        )
        remembered = self._common.get(copy.ref)
        if remembered is not None and remembered[0] == why:
            return remembered[1]
        want = self._compute(copy, sources)
        if len(self._common) >= MAX_REMEMBERED:
            self._common.clear()
        self._common[copy.ref] = why, want
        return want

    def _compute(self, copy: CopyState, sources: Sequence[SourceObject]) -> Desired:
        return compute_copy(
            copy.ref, copy.reasons, sources, self._customizers, self._locations, copy.kept, copy.tenants
        )
