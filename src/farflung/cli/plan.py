"""`farflung plan`: where EdgePlacements of files would lead, compared with where those in the hub lead now.

The server is asked what `kubectl apply` would make of each, without doing it; the scheduler's engine says where that
leads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any, Final

import click
import orjson

from farflung.cli.connection import Hub, placement_of, workspace_name
from farflung.cli.explain import changes, entries
from farflung.cli.manifests import Manifest
from farflung.cli.printing import TABLE, count, machine_readable
from farflung.client.errors import ClientError, Conflict, Refused
from farflung.controllers.edge_scheduler import decide, inventory
from farflung.controllers.edge_scheduler.decide import PLACEMENTS
from farflung.controllers.edge_scheduler.engine import Engine
from farflung.controllers.edge_scheduler.inventory import slices_of
from farflung.controllers.edge_scheduler.slices import destinations_of
from farflung.machinery.errors import Obj
from farflung.machinery.patch import merge

ATTEMPTS: Final = 3  #: while others write
LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
NEW, CHANGED, SAME = "new", "changed", "unchanged"


class RefusedError(Exception):
    """Why there is no plan for a placement."""


async def plan(hub: Hub, wanted: Sequence[Manifest]) -> Obj:
    """All that can be said, as it is printed for programs.  `wanted` was checked."""
    for manifest in wanted[:1]:
        await placement_of(hub, manifest.obj["metadata"]["name"])  # whether there is such an API at all
    engine = (await inventory.read(hub.root)).engine()
    placements = [await _planned(hub, engine, manifest) for manifest in wanted]
    good = [one for one in placements if "error" not in one]
    return {
        "workspace": workspace_name(hub),
        "placements": placements,
        "summary": {
            "added": sum(len(one["added"]) for one in good),
            "removed": sum(len(one["removed"]) for one in good),
            "unchanged": sum(len(one["unchanged"]) for one in good),
            "errors": len(placements) - len(good),
        },
    }


def check(manifests: Iterable[Manifest]) -> list[Manifest]:
    """EdgePlacements with names, each once; click.ClickException otherwise."""
    found: dict[str, Manifest] = {}
    for source, obj in manifests:
        if (obj["apiVersion"], obj["kind"]) != (PLACEMENTS.api_version, PLACEMENTS.kind):
            what = f"{obj['apiVersion']} {obj['kind']}"
            wanted = f"{PLACEMENTS.api_version} {PLACEMENTS.kind}"
            raise click.ClickException(f"{source}: this is a {what}, and only {wanted}s can be planned")
        metadata = obj.get("metadata")
        name = metadata.get("name") if isinstance(metadata, dict) else None
        if not isinstance(name, str) or not name:
            raise click.ClickException(f"{source}: the EdgePlacement has no metadata.name")
        if name in found:
            raise click.ClickException(f"{source}: the EdgePlacement {name} is in {found[name].source} already")
        found[name] = Manifest(source, obj)
    if not found:
        raise click.ClickException("there is no EdgePlacement in what was given")
    return list(found.values())


# --- one placement --------------------------------------------------------------------------------


async def _planned(hub: Hub, engine: Engine, manifest: Manifest) -> Obj:
    name = manifest.obj["metadata"]["name"]
    try:
        return {"name": name, "source": manifest.source, **await _change(hub, engine, manifest.obj)}
    except (RefusedError, Refused) as error:
        return {"name": name, "source": manifest.source, "error": str(error)}


async def _change(hub: Hub, engine: Engine, wanted: Obj) -> Obj:
    what, document = await _rehearsed(hub, wanted)
    placement = decide.parse_placement(document)
    if placement.problem:
        raise RefusedError(placement.problem)
    observed = await slices_of(hub.workspace, placement.key.name)
    engine.put_placement(placement)
    resolution = engine.resolve(placement.key, decide.previous(placement, observed))
    if resolution.problem:
        raise RefusedError(resolution.problem)
    before = {destination for obj in observed for destination in destinations_of(obj)}
    after = set(resolution.destinations)
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


async def _rehearsed(hub: Hub, wanted: Obj) -> tuple[str, Obj]:
    """What would be stored, and what that is to what is there."""
    name = wanted["metadata"]["name"]
    for attempt in range(ATTEMPTS):
        live = await placement_of(hub, name)
        try:
            if live is None:
                return NEW, await hub.workspace.create(PLACEMENTS, wanted)
            if live["metadata"].get("deletionTimestamp"):
                raise RefusedError("it is being deleted")
            after = await hub.workspace.update(PLACEMENTS, applied(live, wanted))
            return SAME if after.get("spec") == live.get("spec") else CHANGED, after
        except Conflict:
            if attempt == ATTEMPTS - 1:
                raise
    raise ClientError("others write it all the time")


def applied(live: Obj, wanted: Obj) -> Obj:
    """What `kubectl apply` makes of an object: what the file says, without what the file said last time and says no
    more; what others said besides stays."""
    annotations = live["metadata"].get("annotations") or {}
    try:
        last = orjson.loads(annotations.get(LAST_APPLIED) or "{}")
    except orjson.JSONDecodeError:
        last = {}
    after: Obj = merge.apply(deepcopy(live), _patch(last if isinstance(last, dict) else {}, wanted))
    return after


def _patch(last: Mapping[str, Any], wanted: Mapping[str, Any]) -> Obj:
    dropped = {key: None for key in last if key not in wanted}
    return dropped | {
        key: _patch(last[key], value) if isinstance(value, dict) and isinstance(last.get(key), dict) else value
        for key, value in wanted.items()
    }


# --- for people -----------------------------------------------------------------------------------


def is_change(answer: Obj) -> bool:
    return bool(answer["summary"]["added"] or answer["summary"]["removed"])


def printed(answer: Obj, output: str, *, verbose: bool = False) -> str:
    if output != TABLE:
        return machine_readable(answer, output)
    parts = ["\n".join(_placement(one, verbose)) for one in answer["placements"]]
    if len(parts) > 1:
        counts = {key: f"{number} {key}" for key, number in answer["summary"].items() if key != "errors"}
        errors = answer["summary"]["errors"]
        wrong = f"; {count(errors, 'placement')} cannot be planned" if errors else ""
        parts.append(f"{count(len(parts), 'EdgePlacement')}: {', '.join(counts.values())}{wrong}.")
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
