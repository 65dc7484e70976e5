"""`farflung plan`: the destinations of EdgePlacements, the copies in mailboxes, and the Clusters of virtual machines,
if files were applied or deleted.

The server dry-runs each object.  The engines of the schedulers and of the translator compute the result.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from copy import deepcopy
from typing import Any, Final, NamedTuple

import orjson

from farflung.apis.edge.names import EDGE_PLACEMENTS
from farflung.apis.globalscheduler.names import GLOBALSCHEDULER_GROUP
from farflung.apis.kcp.names import CLUSTER_ANNOTATION, COMPUTE
from farflung.apis.names import LAST_APPLIED, NAMESPACES, Collection
from farflung.client.discovery import DiscoveredResource, ServedResources, discover
from farflung.client.errors import ClientError, NotFound, Refused, UpdateConflict
from farflung.controllers.edge_scheduler import decide
from farflung.inspect import inventory, placement_model, plan_machines, scheduler_lease
from farflung.inspect.customize import in_namespace
from farflung.inspect.errors import InspectError
from farflung.inspect.explain import entries
from farflung.inspect.hub import HubClient, get_placement, workspace_name
from farflung.inspect.inventory import slices_of
from farflung.inspect.manifests import Manifest
from farflung.inspect.plan_copies import CopyPlan, change_document
from farflung.inspect.plan_machines import DryRunObject, is_machine_object
from farflung.machinery.errors import Obj
from farflung.machinery.patch import merge
from farflung.machines.files.configuration import SchedulerConfiguration
from farflung.placement.resolve import Resolver
from farflung.placement.types import destinations_of, parse_placement, previous


async def plan(
    hub: HubClient,
    wanted: Sequence[Manifest],
    *,
    delete: bool = False,
    configured: SchedulerConfiguration | None = None,
) -> Obj:
    """The result for JSON and YAML.  `wanted`: checked; `configured`: of the global scheduler."""
    placements, others = _sorted_out(wanted)
    served = await discover(hub.workspace)
    cluster, configured = await _cluster(hub), configured or SchedulerConfiguration()
    new = {one.obj["metadata"]["name"] for one in others if one.obj["kind"] == "Namespace"}
    if _needs_no_placements(served, wanted):
        about_objects = [await _about(hub, served, None, one, new, delete=delete) for one in others]
        return _result(hub, [], about_objects, [], await _place_machines(hub, cluster, about_objects, configured))
    await get_placement(
        hub, placements[0].obj["metadata"]["name"] if placements else "-"
    )  # fails if the workspace has no edge API
    known = await inventory.read(hub.root)
    copies = CopyPlan(placement_model.locations_of(known.locations), hub.root, hub.provider, cluster)
    await copies.read(hub.workspace, served, cluster)
    engine = known.engine()
    about_placements = [await _planned(hub, engine, copies, one, delete=delete) for one in placements]
    about_objects = [await _about(hub, served, copies, one, new, delete=delete) for one in others]
    remarks = await _place_machines(hub, cluster, about_objects, configured)
    destinations = await _destinations(copies, about_objects)
    return _result(hub, about_placements, about_objects, destinations, [*sorted(set(copies.remarks)), *remarks])


def _needs_no_placements(served: ServedResources, wanted: Sequence[Manifest]) -> bool:
    """Virtual machines can be planned in workspaces without the edge API."""
    is_served = served.find_kind(EDGE_PLACEMENTS.group, EDGE_PLACEMENTS.version, EDGE_PLACEMENTS.kind) is not None
    objs = [one.obj for one in wanted]
    return not is_served and any(map(is_machine_object, objs)) and not any(map(_is_placement, objs))


def _result(
    hub: HubClient, placements: list[Obj], objects: list[Obj], destinations: list[Obj], remarks: Sequence[str]
) -> Obj:
    return {
        "workspace": workspace_name(hub),
        "placements": placements,
        "objects": objects,
        "destinations": destinations,
        "remarks": list(remarks),
        "summary": _summary(placements, objects, destinations),
    }


async def _place_machines(
    hub: HubClient, cluster: str, objects: Iterable[Obj], configured: SchedulerConfiguration
) -> list[str]:
    """Adds decisions to virtual machines, Allocations and Clusters; returns remarks."""
    machines = [one for one in objects if "dry_run" in one]
    if not machines:
        return []
    found = await plan_machines.decisions(hub, cluster, [one.pop("dry_run") for one in machines], configured)
    for one, decision in zip(machines, found, strict=True):
        one["decision"] = decision
    return await scheduler_lease.remarks(hub.root, configured)


async def _destinations(copies: CopyPlan, about_objects: Iterable[Obj]) -> list[Obj]:
    copy_changes = await copies.copy_changes()
    for one in about_objects:
        one |= {"goesTo": copies.goes_to(one.pop("part"))} if "part" in one else {}
    told = copies.changed_syncer_configs(copy_changes)
    destinations = [
        {
            **copies.destination(mailbox),
            **change_document(copy_changes.get(mailbox, [])),
            "syncerConfig": told.get(mailbox, []),
        }
        for mailbox in copy_changes.keys() | told.keys()
    ]
    destinations.sort(key=lambda one: [one[key] for key in ("locationName", "syncTargetName", "mailbox")])
    return destinations


def _summary(placements: Sequence[Obj], objects: Sequence[Obj], destinations: Sequence[Obj]) -> Obj:
    good = [one for one in placements if "error" not in one]
    wrong = sum("error" in one for one in (*placements, *objects))
    return {
        **{key: sum(len(one[key]) for one in good) for key in ("added", "removed", "unchanged")},
        "errors": wrong,
        "unplaced": sum(not one.get("decision", {}).get("placed", True) for one in objects),
        **{f"{key}Copies": sum(len(one[key]) for one in destinations) for key in ("created", "changed", "deleted")},
        "heldCopies": sum(copy["held"] for one in destinations for copy in one["deleted"]),
        "changedSyncerConfigs": sum(bool(one["syncerConfig"]) for one in destinations),
        "problems": sum(len(one["problems"]) for one in destinations),
    }


def _sorted_out(wanted: Sequence[Manifest]) -> tuple[list[Manifest], list[Manifest]]:
    """Placements, and other objects."""
    placements = [one for one in wanted if _is_placement(one.obj)]
    return placements, [one for one in wanted if not _is_placement(one.obj)]


def _is_placement(obj: Obj) -> bool:
    return (obj["apiVersion"], obj["kind"]) == (EDGE_PLACEMENTS.api_version, EDGE_PLACEMENTS.kind)


async def _cluster(hub: HubClient) -> str:
    """The logical cluster of the workspace, from its namespaces."""
    namespaces = await hub.workspace.list(NAMESPACES)
    clusters = {one["metadata"].get("annotations", {}).get(CLUSTER_ANNOTATION, "") for one in namespaces}
    return max(clusters, default="")


def check(manifests: Iterable[Manifest], namespace: str = "default") -> list[Manifest]:
    """Objects with a name, each once, with the default namespace if they are namespaced.  Raises
    InspectError."""
    found: dict[tuple[str, str, str, str], Manifest] = {}
    for source, obj in manifests:
        kind = obj["kind"]
        given = obj.get("metadata")
        metadata = given if isinstance(given, dict) else {}
        name = metadata.get("name")
        if not isinstance(name, str) or not name:
            raise InspectError(f"{source}: the {kind} has no metadata.name")
        if not isinstance(obj["apiVersion"], str) or not isinstance(metadata.get("namespace") or "", str):
            raise InspectError(f"{source}: apiVersion and metadata.namespace must be strings")
        wanted = in_namespace(obj, namespace)
        key = (obj["apiVersion"], kind, wanted["metadata"].get("namespace") or "", name)
        if key in found:
            raise InspectError(f"{source}: the {kind} {name} is in {found[key].source} already")
        found[key] = Manifest(source, wanted)
    if not found:
        raise InspectError("no objects in the files")
    return list(found.values())


# --- one object ------------------------------------------------------------------------------------


async def _about(
    hub: HubClient, served: ServedResources, copies: CopyPlan | None, manifest: Manifest, new: Set[str], *, delete: bool
) -> Obj:
    """`new`: namespaces that are created too.  Includes input of `_place_machines` and `_destinations`."""
    metadata = manifest.obj["metadata"]
    names = {"namespace": metadata.get("namespace") or "", "name": metadata["name"], "source": manifest.source}
    head = {"kind": manifest.obj["kind"], **names}
    try:
        resource = _resource(hub, served, manifest.obj)
        obj = manifest.obj if resource.namespaced else _without_namespace(manifest.obj)
        result = await dry_run_object(hub, resource.collection, obj, new, delete=delete)
    except (DryRunRefused, Refused) as error:
        return {**head, "error": _quotable(manifest.obj, error)}
    gone = result.spec == GONE
    about = {**head, "namespace": result.document["metadata"].get("namespace") or "", "spec": result.spec}
    if copies is not None:
        about["part"] = copies.change(resource.collection, result.document, gone=gone)
    if is_machine_object(result.document):
        about["dry_run"] = DryRunObject(result.document, gone)
    return about


def _resource(hub: HubClient, served: ServedResources, obj: Obj) -> DiscoveredResource:
    group, _, version = obj["apiVersion"].rpartition("/")
    found = served.find_kind(group, version, obj["kind"])
    if found is None:
        where = workspace_name(hub)
        export = "kubernetes" if "." not in group else group if group == GLOBALSCHEDULER_GROUP else ""
        advice = (
            f"; bind it with `kubectl kcp bind apiexport {COMPUTE}:{export}` or select another workspace"
            if export
            else ""
        )
        raise DryRunRefused(f"the workspace {where} does not serve {obj['kind']} in {obj['apiVersion']}{advice}")
    return found


def _without_namespace(obj: Obj) -> Obj:
    return {**obj, "metadata": {key: value for key, value in obj["metadata"].items() if key != "namespace"}}


def _quotable(obj: Obj, error: Exception) -> str:
    """Without the server's message for Secrets, which may quote their values."""
    if obj["kind"] == "Secret" and isinstance(error, Refused):
        return error.reason or str(error.status)
    return str(error)


# --- one placement --------------------------------------------------------------------------------


async def _planned(hub: HubClient, engine: Resolver, copies: CopyPlan, manifest: Manifest, *, delete: bool) -> Obj:
    name = manifest.obj["metadata"]["name"]
    try:
        change = await (_deletion(hub, copies, name) if delete else _change(hub, engine, copies, manifest.obj))
        return {"name": name, "source": manifest.source, **change}
    except (DryRunRefused, Refused) as error:
        return {"name": name, "source": manifest.source, "error": str(error)}


async def _deletion(hub: HubClient, copies: CopyPlan, name: str) -> Obj:
    await hub.workspace.delete(EDGE_PLACEMENTS, name)
    before = {one for obj in await slices_of(hub.workspace, name) for one in destinations_of(obj)}
    copies.place(name, None, ())
    nothing: list[Obj] = []
    return {
        "spec": GONE,
        "matching": 0,
        "chosen": 0,
        "added": nothing,
        "removed": entries(before),
        "unchanged": nothing,
    }


async def _change(hub: HubClient, engine: Resolver, copies: CopyPlan, wanted: Obj) -> Obj:
    what, document = await dry_run_placement(hub, wanted)
    placement = parse_placement(document)
    if placement.problem:
        raise DryRunRefused(placement.problem)
    observed = await slices_of(hub.workspace, placement.key.name)
    engine.put_placement(placement)
    resolution = engine.resolve(placement.key, previous(placement, observed))
    if resolution.problem:
        raise DryRunRefused(resolution.problem)
    before = {destination for obj in observed for destination in destinations_of(obj)}
    after = set(resolution.destinations)
    copies.place(placement.key.name, document, after)
    return {
        "spec": what,
        "matching": resolution.matching,
        "chosen": resolution.chosen,
        "added": entries(after - before),
        "removed": entries(before - after),
        "unchanged": entries(before & after),
        **_warning(decide.status(placement, resolution, None, "")),
    }


def _warning(status: Obj | None) -> dict[str, str]:
    ready = status["conditions"][0] if status else {}
    return {"warning": ready["message"]} if ready.get("status") == "False" else {}


# --- dry runs -------------------------------------------------------------------------------------

ATTEMPTS: Final = 3  #: after conflicts
NEW, CHANGED, SAME, GONE = "new", "changed", "unchanged", "deleted"


class DryRunRefused(Exception):
    """Why an object cannot be planned."""


class DryRunResult(NamedTuple):
    """The result of a dry run."""

    spec: str  #: NEW, CHANGED, SAME, GONE
    document: Obj


async def dry_run_placement(hub: HubClient, wanted: Obj) -> tuple[str, Obj]:
    """What would be stored, and whether that is new, changed or unchanged."""
    name = wanted["metadata"]["name"]
    for attempt in range(ATTEMPTS):
        live = await get_placement(hub, name)
        try:
            if live is None:
                return NEW, await hub.workspace.create(EDGE_PLACEMENTS, wanted)
            if live["metadata"].get("deletionTimestamp"):
                raise DryRunRefused("it is being deleted")
            after = await hub.workspace.update(EDGE_PLACEMENTS, applied(live, wanted))
            return SAME if after.get("spec") == live.get("spec") else CHANGED, after
        except UpdateConflict:
            if attempt == ATTEMPTS - 1:
                raise
    raise ClientError("too many conflicts with other writers")


def applied(live: Obj, wanted: Obj) -> Obj:
    """The result of `kubectl apply`: the file's fields, without those that only the last applied file had; other fields
    stay."""
    annotations = live["metadata"].get("annotations") or {}
    try:
        last = orjson.loads(annotations.get(LAST_APPLIED) or "{}")
    except orjson.JSONDecodeError:
        last = {}
    given = {**wanted, "metadata": {"annotations": {}, **(wanted.get("metadata") or {})}}  # where kubectl stores it
    after: Obj = merge.apply(deepcopy(live), _patch(last if isinstance(last, dict) else {}, given))
    return after


def _patch(last: Mapping[str, Any], wanted: Mapping[str, Any]) -> Obj:
    dropped = {key: None for key in last if key not in wanted}
    return dropped | {
        key: _patch(last[key], value) if isinstance(value, dict) and isinstance(last.get(key), dict) else value
        for key, value in wanted.items()
    }


async def dry_run_object(
    hub: HubClient, collection: Collection, wanted: Obj, new: Set[str], *, delete: bool
) -> DryRunResult:
    name, namespace = wanted["metadata"]["name"], wanted["metadata"].get("namespace") or ""
    if delete:
        live = await hub.workspace.get(collection, name, namespace)
        await hub.workspace.delete(collection, name, namespace)
        return DryRunResult(GONE, live)
    try:
        live = await hub.workspace.get(collection, name, namespace)
    except NotFound:
        try:
            return DryRunResult(NEW, await hub.workspace.create(collection, wanted, namespace))
        except NotFound:
            if namespace not in new:
                raise
            return DryRunResult(NEW, wanted)
    if live["metadata"].get("deletionTimestamp"):
        raise DryRunRefused("it is being deleted")
    after = await hub.workspace.update(collection, applied(live, wanted))
    return DryRunResult(SAME if _content(after) == _content(live) else CHANGED, after)


def _content(obj: Obj) -> Obj:
    annotations = {key: text for key, text in (obj["metadata"].get("annotations") or {}).items() if key != LAST_APPLIED}
    metadata = {"labels": obj["metadata"].get("labels"), "annotations": annotations}
    return {**{key: value for key, value in obj.items() if key not in ("metadata", "status")}, "metadata": metadata}


def is_change(answer: Obj) -> bool:
    summary = answer["summary"]
    kinds = ("added", "removed", "createdCopies", "changedCopies", "deletedCopies", "changedSyncerConfigs")
    moved = any(plan_machines.is_change(one["decision"]) for one in answer["objects"] if "decision" in one)
    return moved or any(summary[key] for key in kinds)
