"""`farflung plan`: where EdgePlacements of files would lead, compared with where those in the hub lead now, and what
would become of the copies in mailboxes, also if other objects of the files were applied; and to which Clusters virtual
machines would be bound.

The server is asked what `kubectl apply` would make of each, without doing it; the schedulers' engines say where that
leads, and the translator's what goes there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from typing import Final

import click

from farflung.apis.edge.names import EDGE_GROUP, EDGE_PLACEMENTS
from farflung.apis.globalscheduler.names import GLOBALSCHEDULER_GROUP
from farflung.apis.kcp.names import CLUSTER_ANNOTATION
from farflung.apis.names import NAMESPACES
from farflung.cli import inventory, placement_model, plan_machines, scheduler_lease
from farflung.cli.connection import Hub, placement_of, workspace_name
from farflung.cli.customize import in_namespace
from farflung.cli.differences import line, syncer_config_lines
from farflung.cli.dry_run import GONE, RefusedError, rehearsed_object, rehearsed_placement
from farflung.cli.explain import changes, entries
from farflung.cli.global_scheduler import COMPUTE
from farflung.cli.inventory import slices_of
from farflung.cli.manifests import Manifest
from farflung.cli.output import TABLE, machine_readable
from farflung.cli.plan_copies import Plan, shown
from farflung.cli.plan_machines import Becoming, is_concerned
from farflung.cli.scheduler_configuration import Configuration
from farflung.client.discovery import Resource, Served, discover
from farflung.client.errors import Refused
from farflung.controllers.edge_scheduler import decide
from farflung.lib.words import count
from farflung.machinery.errors import Obj
from farflung.placement.names import Kind, Part
from farflung.placement.resolve import Resolver
from farflung.placement.syncer_config import THE_ONE
from farflung.placement.types import destinations_of, parse_placement, previous

NAMED: Final = 5  #: destinations that are named where several are alike
SYNCER_CONFIGS: Final = Kind(EDGE_GROUP, "syncerconfigs")


async def plan(
    hub: Hub, wanted: Sequence[Manifest], *, delete: bool = False, configured: Configuration | None = None
) -> Obj:
    """All that can be said, as it is printed for programs.  `wanted` was checked; `delete`: it would be deleted;
    `configured`: what the global scheduler was told."""
    placements, others = _sorted_out(wanted)
    served = await discover(hub.workspace)
    cluster, configured = await _cluster(hub), configured or Configuration()
    new = {one.obj["metadata"]["name"] for one in others if one.obj["kind"] == "Namespace"}
    if _needs_no_placements(served, wanted):
        about_objects = [await _about(hub, served, None, one, new, delete=delete) for one in others]
        return _answer(hub, [], about_objects, [], await _place_machines(hub, cluster, about_objects, configured))
    await placement_of(hub, placements[0].obj["metadata"]["name"] if placements else "-")  # is there such an API at all
    known = await inventory.read(hub.root)
    copies = Plan(placement_model.locations_of(known.locations), hub.root, hub.provider, cluster)
    await copies.read(hub.workspace, served, cluster)
    engine = known.engine()
    about_placements = [await _planned(hub, engine, copies, one, delete=delete) for one in placements]
    about_objects = [await _about(hub, served, copies, one, new, delete=delete) for one in others]
    remarks = await _place_machines(hub, cluster, about_objects, configured)
    destinations = await _destinations(copies, about_objects)
    return _answer(hub, about_placements, about_objects, destinations, [*sorted(set(copies.remarks)), *remarks])


def _needs_no_placements(served: Served, wanted: Sequence[Manifest]) -> bool:
    """Virtual machines go to Clusters also where nobody can say where other workloads go."""
    is_served = served.find_kind(EDGE_PLACEMENTS.group, EDGE_PLACEMENTS.version, EDGE_PLACEMENTS.kind) is not None
    objs = [one.obj for one in wanted]
    return not is_served and any(map(is_concerned, objs)) and not any(map(_is_placement, objs))


def _answer(
    hub: Hub, placements: list[Obj], objects: list[Obj], destinations: list[Obj], remarks: Sequence[str]
) -> Obj:
    return {
        "workspace": workspace_name(hub),
        "placements": placements,
        "objects": objects,
        "destinations": destinations,
        "remarks": list(remarks),
        "summary": _summary(placements, objects, destinations),
    }


async def _place_machines(hub: Hub, cluster: str, objects: Iterable[Obj], configured: Configuration) -> list[str]:
    """Say of virtual machines and Allocations where they go, and of Clusters what leaves them; and return remarks."""
    machines = [one for one in objects if "becoming" in one]
    if not machines:
        return []
    found = await plan_machines.decisions(hub, cluster, [one.pop("becoming") for one in machines], configured)
    for one, decision in zip(machines, found, strict=True):
        one["decision"] = decision
    return await scheduler_lease.remarks(hub.root, configured)


async def _destinations(copies: Plan, about_objects: Iterable[Obj]) -> list[Obj]:
    fates = await copies.fates()
    for one in about_objects:
        one |= {"goesTo": copies.goes_to(one.pop("part"))} if "part" in one else {}
    told = copies.told(fates)
    destinations = [
        {**copies.destination(mailbox), **shown(fates.get(mailbox, [])), "syncerConfig": told.get(mailbox, [])}
        for mailbox in fates.keys() | told.keys()
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
    """Placements, and others."""
    placements = [one for one in wanted if _is_placement(one.obj)]
    return placements, [one for one in wanted if not _is_placement(one.obj)]


def _is_placement(obj: Obj) -> bool:
    return (obj["apiVersion"], obj["kind"]) == (EDGE_PLACEMENTS.api_version, EDGE_PLACEMENTS.kind)


async def _cluster(hub: Hub) -> str:
    """Of the workspace: each object says it, and every workspace has a default namespace."""
    namespaces = await hub.workspace.list(NAMESPACES)
    clusters = {one["metadata"].get("annotations", {}).get(CLUSTER_ANNOTATION, "") for one in namespaces}
    return max(clusters, default="")


def check(manifests: Iterable[Manifest], namespace: str = "default") -> list[Manifest]:
    """Objects with names, each once, and with `namespace` if they have none and may have one; click.ClickException
    otherwise."""
    found: dict[tuple[str, str, str, str], Manifest] = {}
    for source, obj in manifests:
        kind = obj["kind"]
        given = obj.get("metadata")
        metadata = given if isinstance(given, dict) else {}
        name = metadata.get("name")
        if not isinstance(name, str) or not name:
            raise click.ClickException(f"{source}: the {kind} has no metadata.name")
        if not isinstance(obj["apiVersion"], str) or not isinstance(metadata.get("namespace") or "", str):
            raise click.ClickException(f"{source}: apiVersion and metadata.namespace must be strings")
        wanted = in_namespace(obj, namespace)
        key = (obj["apiVersion"], kind, wanted["metadata"].get("namespace") or "", name)
        if key in found:
            raise click.ClickException(f"{source}: the {kind} {name} is in {found[key].source} already")
        found[key] = Manifest(source, wanted)
    if not found:
        raise click.ClickException("there is no object in what was given")
    return list(found.values())


# --- one object ------------------------------------------------------------------------------------


async def _about(
    hub: Hub, served: Served, copies: Plan | None, manifest: Manifest, new: Set[str], *, delete: bool
) -> Obj:
    """`new`: namespaces that would be made, too.  With what `_place_machines` and `_destinations` need of it."""
    metadata = manifest.obj["metadata"]
    names = {"namespace": metadata.get("namespace") or "", "name": metadata["name"], "source": manifest.source}
    head = {"kind": manifest.obj["kind"], **names}
    try:
        resource = _resource(hub, served, manifest.obj)
        obj = manifest.obj if resource.namespaced else _without_namespace(manifest.obj)
        becomes = await rehearsed_object(hub, resource.collection, obj, new, delete=delete)
    except (RefusedError, Refused) as error:
        return {**head, "error": _quotable(manifest.obj, error)}
    gone = becomes.spec == GONE
    about = {**head, "namespace": becomes.document["metadata"].get("namespace") or "", "spec": becomes.spec}
    if copies is not None:
        about["part"] = copies.change(resource.collection, becomes.document, gone=gone)
    if is_concerned(becomes.document):
        about["becoming"] = Becoming(becomes.document, gone)
    return about


def _resource(hub: Hub, served: Served, obj: Obj) -> Resource:
    group, _, version = obj["apiVersion"].rpartition("/")
    found = served.find_kind(group, version, obj["kind"])
    if found is None:
        where = workspace_name(hub)
        export = "kubernetes" if "." not in group else group if group == GLOBALSCHEDULER_GROUP else ""
        advice = (
            f"; is it the right one? There, `kubectl kcp bind apiexport {COMPUTE}:{export}` binds it" if export else ""
        )
        raise RefusedError(f"the workspace {where} does not serve {obj['kind']} in {obj['apiVersion']}{advice}")
    return found


def _without_namespace(obj: Obj) -> Obj:
    return {**obj, "metadata": {key: value for key, value in obj["metadata"].items() if key != "namespace"}}


def _quotable(obj: Obj, error: Exception) -> str:
    """The server may quote values of Secrets."""
    if obj["kind"] == "Secret" and isinstance(error, Refused):
        return error.reason or str(error.status)
    return str(error)


# --- one placement --------------------------------------------------------------------------------


async def _planned(hub: Hub, engine: Resolver, copies: Plan, manifest: Manifest, *, delete: bool) -> Obj:
    name = manifest.obj["metadata"]["name"]
    try:
        change = await (_deletion(hub, copies, name) if delete else _change(hub, engine, copies, manifest.obj))
        return {"name": name, "source": manifest.source, **change}
    except (RefusedError, Refused) as error:
        return {"name": name, "source": manifest.source, "error": str(error)}


async def _deletion(hub: Hub, copies: Plan, name: str) -> Obj:
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


async def _change(hub: Hub, engine: Resolver, copies: Plan, wanted: Obj) -> Obj:
    what, document = await rehearsed_placement(hub, wanted)
    placement = parse_placement(document)
    if placement.problem:
        raise RefusedError(placement.problem)
    observed = await slices_of(hub.workspace, placement.key.name)
    engine.put_placement(placement)
    resolution = engine.resolve(placement.key, previous(placement, observed))
    if resolution.problem:
        raise RefusedError(resolution.problem)
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


# --- for people -----------------------------------------------------------------------------------


def is_change(answer: Obj) -> bool:
    summary = answer["summary"]
    kinds = ("added", "removed", "createdCopies", "changedCopies", "deletedCopies", "changedSyncerConfigs")
    moved = any(plan_machines.is_change(one["decision"]) for one in answer["objects"] if "decision" in one)
    return moved or any(summary[key] for key in kinds)


def printed(answer: Obj, output: str, *, verbose: bool = False) -> str:
    if output != TABLE:
        return machine_readable(answer, output)
    parts = ["\n".join(_placement(one, verbose)) for one in answer["placements"]]
    parts += ["\n".join(_object(one)) for one in answer["objects"]]
    parts += ["\n".join(lines) for lines in copied(answer["destinations"])]
    if len(answer["placements"]) > 1:
        counts = [f"{answer['summary'][key]} {key}" for key in ("added", "removed", "unchanged")]
        errors = sum("error" in one for one in answer["placements"])
        wrong = f"; {count(errors, 'placement')} cannot be planned" if errors else ""
        parts.append(f"{count(len(answer['placements']), 'EdgePlacement')}: {', '.join(counts)}{wrong}.")
    parts += [f"remark: {remark}" for remark in answer["remarks"]]
    return "\n\n".join(parts)


def _placement(one: Obj, verbose: bool) -> Iterator[str]:
    head = f"EdgePlacement {one['name']}"
    if error := one.get("error"):
        yield f"{head}: error: {error}"
        return
    yield f"{head} ({one['spec']})"
    yield from changes(("+", one["added"]), ("-", one["removed"]), (" ", one["unchanged"] if verbose else ()))
    if warning := one.get("warning"):
        yield f"warning: {warning}"
    yield ", ".join(f"{len(one[key])} {key}" for key in ("added", "removed", "unchanged"))


def _object(one: Obj) -> Iterator[str]:
    within = f"{one['namespace']}/{one['name']}" if one["namespace"] else one["name"]
    head = f"{one['kind']} {within}"
    if error := one.get("error"):
        yield f"{head}: error: {error}"
        return
    yield f"{head} ({one['spec']})"
    yield from plan_machines.lines(one.get("decision", {}))
    number = len(one.get("goesTo", ()))
    if one["spec"] != GONE and (number or "decision" not in one):
        yield f"goes to {count(number, 'destination')}" if number else "goes nowhere: no EdgePlacement selects it"


def copied(destinations: Sequence[Obj]) -> Iterator[list[str]]:
    """Destinations with the same changes together."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for one in destinations:
        alike.setdefault(tuple(_copies(one)), []).append(f"{one['locationName']}/{one['syncTargetName']}")
    for lines, names in alike.items():
        more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        yield [f"{count(len(names), 'destination')}: {', '.join(names[:NAMED])}{more}", *lines]


def _copies(one: Obj) -> Iterator[str]:
    if one["syncerConfig"]:
        yield f"~ {Part(SYNCER_CONFIGS, '', THE_ONE)}"
        yield from (f"    {each}" for each in syncer_config_lines(one["syncerConfig"]))
    for copy in one["created"]:
        yield f"+ {_named(copy)}"
    for copy in one["changed"]:
        yield f"~ {_named(copy)}"
        yield from (f"    {line(each)}" for each in copy["differences"])
    for copy in one["deleted"]:
        yield f"- {_named(copy)}{' (held until it is confirmed)' if copy['held'] else ''}"
    for copy in one["beingWithdrawn"]:
        anew = ", and made anew when it is gone" if copy["anew"] else ""
        yield f"{'+' if anew else '-'} {_named(copy)} (being withdrawn{anew})"
    yield from (f"! {problem}" for problem in one["problems"])


def _named(copy: Obj) -> str:
    return str(Part(Kind(copy["group"], copy["resource"]), copy["namespace"], copy["name"]))
