"""`farflung plan`: the destinations of EdgePlacements, the copies in mailboxes, and the Clusters of virtual machines,
if files were applied or deleted.

The server dry-runs each object.  The engines of the schedulers and of the translator compute the result.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import orjson
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from farflung.apis.edge.names import EDGE_PLACEMENTS, SELECTED_COUNT
from farflung.apis.globalscheduler.names import GLOBALSCHEDULER_GROUP
from farflung.apis.kcp.names import CLUSTER_ANNOTATION, COMPUTE
from farflung.apis.names import LAST_APPLIED, NAMESPACES, Collection
from farflung.client.discovery import DiscoveredResource, ServedResources, discover
from farflung.client.errors import ClientError, NotFound, Refused, UpdateConflict
from farflung.controllers.edge_scheduler import decide
from farflung.inspect import placement_model, plan_machines, scheduler_model
from farflung.inspect.customize import in_namespace
from farflung.inspect.explain import DestinationEntry, entries
from farflung.inspect.hub import HubClient, get_placement, read_inventory, slices_of, workspace_name
from farflung.inspect.manifests import Manifest
from farflung.inspect.placing_rights import ReviewedRights
from farflung.inspect.plan_copies import CopyPlan, PlannedDestination
from farflung.inspect.plan_machines import DryRunObject, is_machine_object
from farflung.inspect.results import InspectError, Result
from farflung.inspect.scheduler_model import MachineDecision
from farflung.machinery.errors import Obj
from farflung.machinery.patch import merge
from farflung.machines.files.configuration import SchedulerConfiguration
from farflung.placement.names import ObjectRef
from farflung.placement.resolve import Resolver
from farflung.placement.types import destinations_of, parse_placement, previous


class PlannedPlacement(Result, frozen=True):
    """Its destinations, or why it cannot be planned."""

    name: str
    source: str
    error: str | UnsetType = UNSET
    spec: str | UnsetType = UNSET  #: NEW, CHANGED, SAME or GONE
    matching: int | UnsetType = UNSET
    chosen: int | UnsetType = UNSET
    selected: int | UnsetType = UNSET  #: objects
    added: list[DestinationEntry] | UnsetType = UNSET
    removed: list[DestinationEntry] | UnsetType = UNSET
    unchanged: list[DestinationEntry] | UnsetType = UNSET
    warning: str | UnsetType = UNSET


class PlannedObject(Result, frozen=True):
    kind: str
    namespace: str
    name: str
    source: str
    error: str | UnsetType = UNSET
    spec: str | UnsetType = UNSET
    decision: MachineDecision | UnsetType = UNSET  #: about virtual machines, Allocations and Clusters
    goes_to: list[str] | UnsetType = UNSET  #: mailboxes
    selected_by: list[str] | UnsetType = UNSET  #: placements, also those without destinations


class PlanSummary(Result, frozen=True):
    """Numbers of destinations, copies and problems."""

    added: int
    removed: int
    unchanged: int
    errors: int
    unplaced: int
    created_copies: int
    changed_copies: int
    deleted_copies: int
    held_copies: int
    changed_syncer_configs: int
    problems: int


class Plan(Result, frozen=True):
    workspace: str
    placements: list[PlannedPlacement]
    objects: list[PlannedObject]
    destinations: list[PlannedDestination]
    remarks: list[str]
    summary: PlanSummary

    @property
    def is_change(self) -> bool:
        summary = self.summary
        return any(one.decision.is_change for one in self.objects if one.decision) or any(
            (
                summary.added,
                summary.removed,
                summary.created_copies,
                summary.changed_copies,
                summary.deleted_copies,
                summary.changed_syncer_configs,
            )
        )


@dataclass(slots=True)
class ObjectDryRun:
    """What is known of an object before copies and machines are planned."""

    result: PlannedObject
    ref: ObjectRef | None = None  #: None: there are no placements
    machine: DryRunObject | None = None


async def plan(
    hub: HubClient,
    wanted: Sequence[Manifest],
    *,
    delete: bool = False,
    configured: SchedulerConfiguration | None = None,
) -> Plan:
    """`wanted`: checked; `configured`: of the global scheduler."""
    placements = [one for one in wanted if _is_placement(one.obj)]
    others = [one for one in wanted if not _is_placement(one.obj)]
    served = await discover(hub.workspace)
    cluster, configured = await _cluster(hub), configured or SchedulerConfiguration()
    new = {one.obj["metadata"]["name"] for one in others if one.obj["kind"] == "Namespace"}
    if _needs_no_placements(served, wanted):
        dry_runs = [await _about(hub, served, None, one, new, delete=delete) for one in others]
        remarks = await _place_machines(hub, cluster, dry_runs, configured)
        return _result(hub, [], [one.result for one in dry_runs], [], remarks)
    await get_placement(
        hub, placements[0].obj["metadata"]["name"] if placements else "-"
    )  # fails if the workspace has no edge API
    known = await read_inventory(hub.root)
    copies = CopyPlan(placement_model.locations_of(known.locations), hub.root, hub.provider, cluster)
    await copies.read(hub.workspace, served, cluster)
    rights, resolver = ReviewedRights(hub, known.locations), known.resolver()
    dry_runs = [await _about(hub, served, copies, one, new, delete=delete) for one in others]
    about_placements = [await _planned(hub, rights, resolver, copies, one, delete=delete) for one in placements]
    remarks = await _place_machines(hub, cluster, dry_runs, configured)
    destinations = await _destinations(copies)
    objects = [_with_destinations(one, copies) for one in dry_runs]
    found = [*rights.remarks, *sorted(set(copies.remarks)), *remarks]
    return _result(hub, about_placements, objects, destinations, found)


def _with_destinations(one: ObjectDryRun, copies: CopyPlan) -> PlannedObject:
    if one.ref is None:
        return one.result
    return replace(one.result, goes_to=copies.goes_to(one.ref), selected_by=copies.selected_by(one.ref))


def _needs_no_placements(served: ServedResources, wanted: Sequence[Manifest]) -> bool:
    """Virtual machines can be planned in workspaces without the edge API."""
    is_served = served.find_kind(EDGE_PLACEMENTS.group, EDGE_PLACEMENTS.version, EDGE_PLACEMENTS.kind) is not None
    objs = [one.obj for one in wanted]
    return not is_served and any(map(is_machine_object, objs)) and not any(map(_is_placement, objs))


def _result(
    hub: HubClient,
    placements: list[PlannedPlacement],
    objects: list[PlannedObject],
    destinations: list[PlannedDestination],
    remarks: list[str],
) -> Plan:
    summary = PlanSummary(
        added=sum(len(one.added or ()) for one in placements),
        removed=sum(len(one.removed or ()) for one in placements),
        unchanged=sum(len(one.unchanged or ()) for one in placements),
        errors=sum(bool(one.error) for one in placements) + sum(bool(one.error) for one in objects),
        unplaced=sum(one.decision is not UNSET and one.decision.placed is False for one in objects),
        created_copies=sum(len(one.created) for one in destinations),
        changed_copies=sum(len(one.changed) for one in destinations),
        deleted_copies=sum(len(one.deleted) for one in destinations),
        held_copies=sum(bool(copy.held) for one in destinations for copy in one.deleted),
        changed_syncer_configs=sum(bool(one.syncer_config) for one in destinations),
        problems=sum(len(one.problems) for one in destinations),
    )
    return Plan(workspace_name(hub), placements, objects, destinations, remarks, summary)


async def _place_machines(
    hub: HubClient, cluster: str, dry_runs: Iterable[ObjectDryRun], configured: SchedulerConfiguration
) -> list[str]:
    """Adds decisions to virtual machines, Allocations and Clusters; returns remarks."""
    machines = [(one, one.machine) for one in dry_runs if one.machine is not None]
    if not machines:
        return []
    found, remarks = await plan_machines.decisions(hub, cluster, [machine for _, machine in machines], configured)
    for (one, _), decision in zip(machines, found, strict=True):
        one.result = replace(one.result, decision=decision)
    return [*remarks, *await scheduler_model.remarks(hub.root, configured)]


async def _destinations(copies: CopyPlan) -> list[PlannedDestination]:
    copy_changes = await copies.copy_changes()
    configs = copies.changed_syncer_configs(copy_changes)
    destinations = [
        copies.destination(mailbox, copy_changes.get(mailbox, []), configs.get(mailbox, []))
        for mailbox in copy_changes.keys() | configs.keys()
    ]
    return sorted(destinations, key=lambda one: (one.location_name, one.sync_target_name, one.mailbox))


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
) -> ObjectDryRun:
    """`new`: namespaces that are created too."""
    metadata = manifest.obj["metadata"]
    head = PlannedObject(manifest.obj["kind"], metadata.get("namespace") or "", metadata["name"], manifest.source)
    try:
        resource = _resource(hub, served, manifest.obj)
        obj = manifest.obj if resource.namespaced else _without_namespace(manifest.obj)
        result = await dry_run_object(hub, resource.collection, obj, new, delete=delete)
    except (DryRunRefused, Refused) as error:
        return ObjectDryRun(replace(head, error=_quotable(manifest.obj, error)))
    deleted, namespace = result.spec == GONE, result.document["metadata"].get("namespace") or ""
    return ObjectDryRun(
        replace(head, namespace=namespace, spec=result.spec),
        None if copies is None else copies.change(resource.collection, result.document, deleted=deleted),
        DryRunObject(result.document, deleted) if is_machine_object(result.document) else None,
    )


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


async def _planned(
    hub: HubClient, rights: ReviewedRights, resolver: Resolver, copies: CopyPlan, manifest: Manifest, *, delete: bool
) -> PlannedPlacement:
    try:
        return await (_deletion(hub, copies, manifest) if delete else _change(hub, rights, resolver, copies, manifest))
    except (DryRunRefused, Refused) as error:
        return PlannedPlacement(manifest.obj["metadata"]["name"], manifest.source, str(error))


async def _deletion(hub: HubClient, copies: CopyPlan, manifest: Manifest) -> PlannedPlacement:
    name = manifest.obj["metadata"]["name"]
    await hub.workspace.delete(EDGE_PLACEMENTS, name)
    before = {one for obj in await slices_of(hub.workspace, name) for one in destinations_of(obj)}
    copies.place(name, None, ())
    return PlannedPlacement(name, manifest.source, UNSET, GONE, 0, 0, 0, [], entries(before, copies.paths), [])


async def _change(
    hub: HubClient, rights: ReviewedRights, resolver: Resolver, copies: CopyPlan, manifest: Manifest
) -> PlannedPlacement:
    what, document = await dry_run_placement(hub, manifest.obj)
    placement = parse_placement(document)
    if placement.problem:
        raise DryRunRefused(placement.problem)
    observed = await slices_of(hub.workspace, placement.key.name)
    placement = await rights.put(resolver, placement, previous(placement, observed))
    resolution = resolver.resolve(placement.key, previous(placement, observed))
    if resolution.problem:
        raise DryRunRefused(resolution.problem)
    before = {destination for obj in observed for destination in destinations_of(obj)}
    after = set(resolution.destinations)
    copies.place(placement.key.name, document, after)
    selected = copies.count_selected(placement.key.name)
    status = decide.status(placement, resolution, {SELECTED_COUNT: selected}, "")
    ready = status["conditions"][0] if status else {}
    return PlannedPlacement(
        placement.key.name,
        manifest.source,
        spec=what,
        matching=resolution.matching,
        chosen=resolution.chosen,
        selected=selected,
        added=entries(after - before, copies.paths),
        removed=entries(before - after, copies.paths),
        unchanged=entries(before & after, copies.paths),
        warning=ready.get("message", UNSET),
    )


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
