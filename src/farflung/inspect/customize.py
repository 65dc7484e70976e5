"""`farflung customize`: objects as customized for a Location.

Location and Customizers come from files or from a hub; the hub is used only for those that are not in files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import orjson

from farflung.apis.builtin.kinds import BUILTIN
from farflung.apis.edge.kinds import KINDS as EDGE
from farflung.apis.edge.names import CUSTOMIZERS
from farflung.apis.kcp.kinds import KINDS as KCP
from farflung.apis.kcp.names import CLUSTER_ANNOTATION, LOCATIONS, SYNC_TARGETS
from farflung.client.errors import NotFound
from farflung.inspect.hub import HubClient, Inventory, read_inventory, workspace_name
from farflung.inspect.manifests import Manifest, manifests
from farflung.inspect.results import InspectError, Result
from farflung.machinery.errors import Obj
from farflung.placement.customize import (
    Customizer,
    Parameters,
    customized,
    parameters_of,
    parse_customizer,
    reference_of,
)
from farflung.placement.project import strip
from farflung.placement.types import Location, parse_location, parse_target

Customizers = Mapping[str, Customizer]  #: by namespace/name

NAMESPACE: Final = "default"
CLUSTER_NAME: Final = "cluster.name"
#: (group, kind) of cluster-scoped kinds
UNNAMESPACED: Final = frozenset(
    [
        *((one.group, one.kind) for one in BUILTIN if not one.namespaced),
        *((one.group, one.kind) for one in (*KCP.values(), *EDGE.values()) if not one.namespaced),
    ]
)


@dataclass(frozen=True, slots=True)
class LocationParameters:
    parameters: Parameters
    hint: str = ""  #: hint if the SyncTarget is ambiguous


@dataclass(frozen=True, slots=True)
class CustomizeRequest:
    """Names refer to files or to objects in a hub."""

    objects: Sequence[Manifest]
    location: str = ""
    location_file: str = ""
    customizer_files: Sequence[str] = ()
    target: str = ""  #: the SyncTarget
    namespace: str = NAMESPACE  #: of objects without one


class CustomizeResult(Result, frozen=True):
    objects: list[Obj] = []
    warnings: list[str] = []
    problems: list[str] = []


async def read_missing(
    hub: HubClient, request: CustomizeRequest, place: LocationParameters | None, known: Customizers | None
) -> tuple[LocationParameters, Customizers]:
    """Read from the hub what the files do not have."""
    if place is None:
        place = await location_in_hub(hub, request)
    if known is None:
        known = await customizers_in_hub(hub, named(request))
    return place, known


# --- the objects ----------------------------------------------------------------------------------


def objects(found: Sequence[Manifest]) -> Sequence[Manifest]:
    """The objects to customize.  Raises InspectError if there are none or one is invalid."""
    for source, obj in found:
        _check(source, obj)
    if not found:
        raise InspectError("no objects in the files")
    return found


def _check(source: str, obj: Obj) -> None:
    metadata = obj.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str) or not metadata["name"]:
        raise InspectError(f"{source}: the {obj['kind']} has no metadata.name")
    if not isinstance(metadata.get("namespace") or "", str) or not isinstance(obj["apiVersion"], str):
        raise InspectError(f"{source}: apiVersion and metadata.namespace must be strings")
    for name in ("labels", "annotations"):
        texts = metadata.get(name) or {}
        if not isinstance(texts, dict) or not all(isinstance(text, str) for text in texts.values()):
            raise InspectError(f"{source}: metadata.{name} must be a map of strings")


def in_namespace(obj: Obj, namespace: str) -> Obj:
    """With the default namespace, if its kind is namespaced."""
    group = obj["apiVersion"].rpartition("/")[0]
    if obj["metadata"].get("namespace") or (group, obj["kind"]) in UNNAMESPACED:
        return obj
    return {**obj, "metadata": {**obj["metadata"], "namespace": namespace}}


def named(request: CustomizeRequest) -> list[str]:
    """Names of the Customizers that the objects refer to, sorted."""
    references = [reference_of(in_namespace(obj, request.namespace)) for _, obj in request.objects]
    return sorted({str(one) for one in references if one is not None and not one.problem})


# --- from files -----------------------------------------------------------------------------------


def location_in_file(request: CustomizeRequest) -> LocationParameters:
    found = _of_kind(LOCATIONS.kind, [request.location_file])
    if len(found) != 1:
        raise InspectError(f"{request.location_file}: expected one Location, found {len(found)}")
    metadata = found[0].obj["metadata"]
    annotations = metadata.get("annotations") or {}
    parameters = parameters_of(
        metadata.get("labels") or {},
        annotations,
        location=metadata["name"],
        cluster=request.target,
        workspace=annotations.get(CLUSTER_ANNOTATION, ""),
    )
    return LocationParameters(parameters, "select the SyncTarget with --sync-target")


def customizers_in_files(request: CustomizeRequest) -> dict[str, Customizer]:
    found = _of_kind(CUSTOMIZERS.kind, request.customizer_files)
    parsed = [parse_customizer(in_namespace(obj, request.namespace)) for _, obj in found]
    return {one.name: one for one in parsed}


def _of_kind(kind: str, names: Iterable[str]) -> list[Manifest]:
    found = manifests(names)
    for source, obj in found:
        if obj["kind"] != kind:
            raise InspectError(f"{source}: expected a {kind}, found a {obj['kind']}")
        _check(source, obj)
    return found


# --- from a hub -----------------------------------------------------------------------------------


async def location_in_hub(hub: HubClient, request: CustomizeRequest) -> LocationParameters:
    cluster, _, name = request.location.rpartition(":")
    known = await (_inventory_of(hub, cluster, name) if cluster else read_inventory(hub.root))
    found = [one for one in known.locations if one.key.name == name]
    if not found:
        raise InspectError(f"Location {request.location} not found")
    if len(found) > 1:
        choices = ", ".join(sorted(f"{one.key.cluster}:{name}" for one in found))
        raise InspectError(f"{len(found)} workspaces have a Location {name}; select one of {choices}")
    return _parameters(found[0], known, request.target)


async def _inventory_of(hub: HubClient, cluster: str, name: str) -> Inventory:
    """`cluster`: path or logical cluster."""
    workspace = hub.root.workspace(cluster)
    try:
        location = parse_location(await workspace.get(LOCATIONS, name))
    except NotFound:
        return Inventory((), ())
    targets = [parse_target(one) for one in await workspace.list(SYNC_TARGETS)]
    return Inventory((location,), tuple(targets))


def _parameters(location: Location, known: Inventory, target: str) -> LocationParameters:
    instances = location.instances
    selected = [
        one.key.name
        for one in known.targets_of(location.key.cluster)
        if instances is not None and instances.matches(one.labels)
    ]
    some = f"the SyncTargets {', '.join(selected)}" if selected else "no SyncTarget"
    listed = f"the Location {location.key.name} selects {some}"
    if target and target not in selected:
        raise InspectError(f"SyncTarget {target} not found: {listed}")
    if not target and len(selected) == 1:
        target = selected[0]
    annotations = orjson.loads(location.document)["metadata"]["annotations"]
    parameters = parameters_of(
        location.labels,
        annotations,
        location=location.key.name,
        cluster=target,
        workspace=location.key.cluster,
    )
    return LocationParameters(parameters, f"{listed}; select one with --sync-target")


async def customizers_in_hub(hub: HubClient, names: Iterable[str]) -> dict[str, Customizer]:
    """Those that exist."""
    found: dict[str, Customizer] = {}
    for name in names:
        namespace, _, alone = name.partition("/")
        try:
            found[name] = parse_customizer(await hub.workspace.get(CUSTOMIZERS, alone, namespace))
        except NotFound as error:
            if not error.details:
                raise InspectError(
                    f"the workspace {workspace_name(hub)} has no Customizers: bind the edge API with "
                    f"`kubectl kcp bind apiexport {hub.provider}:edge.kcp.io` in that workspace"
                ) from None
    return found


# --- result ----------------------------------------------------------------------------------------


def customize_objects(request: CustomizeRequest, place: LocationParameters, known: Customizers) -> CustomizeResult:
    result = CustomizeResult()
    for source, obj in request.objects:
        wanted = in_namespace(_bare(source, obj), request.namespace)
        after = customized(wanted, known.get(str(reference_of(wanted))), place.parameters)
        which = f"{source}: {obj['kind']} {obj['metadata']['name']}"
        result.warnings.extend(f"{which}: {_unknown(name, place)}" for name in after.unknown)
        result.warnings.extend(f"{which}: the path {path} matches nothing" for path in after.unused)
        if after.problem:
            result.problems.append(f"{which}: {after.problem}")
        else:
            result.objects.append(_as_given(obj, after.obj))
    return result


def _bare(source: str, obj: Obj) -> Obj:
    """Without server-set fields."""
    if not obj["metadata"].get("uid"):
        return obj
    try:
        return strip(obj)
    except (AttributeError, KeyError, TypeError, ValueError):
        raise InspectError(f"{source}: not a valid {obj['kind']}") from None


def _as_given(before: Obj, after: Obj) -> Obj:
    """Without a default namespace."""
    dropped = () if "namespace" in before["metadata"] else ("namespace",)
    metadata = {name: value for name, value in after["metadata"].items() if name not in dropped}
    return {**after, "metadata": metadata}


def _unknown(name: str, place: LocationParameters) -> str:
    if name == CLUSTER_NAME:
        return f"%({name}) is not replaced: {place.hint}"
    return f"%({name}) is not replaced: the Location has no label or annotation of that name"
