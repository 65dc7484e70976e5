"""`farflung customize`: objects of files as they would go to a Location.

The Location, and the Customizers that objects name, are in files or in a hub; a hub is asked only for what is not in
files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import click
import orjson

from farflung.apis.builtin.kinds import BUILTIN
from farflung.apis.edge.kinds import KINDS as EDGE
from farflung.apis.edge.names import CUSTOMIZERS
from farflung.apis.kcp.kinds import KINDS as KCP
from farflung.apis.kcp.names import CLUSTER_ANNOTATION, LOCATIONS, SYNC_TARGETS
from farflung.cli import inventory
from farflung.cli.connection import Asking, Hub, ask, workspace_name
from farflung.cli.inventory import Inventory
from farflung.cli.manifests import Manifest, manifests
from farflung.cli.output import yaml_text
from farflung.client.errors import NotFound
from farflung.machinery.errors import Obj
from farflung.placement.customize import (
    Customizer,
    Parameters,
    customized,
    parameters_of,
    parse_customizer,
    reference_of,
)
from farflung.placement.project import stripped
from farflung.placement.types import Location, parse_location, parse_target

Customizers = Mapping[str, Customizer]  #: by their names, with their namespaces

NAMESPACE: Final = "default"
CLUSTER_NAME: Final = "cluster.name"
#: kinds that are known to have none
UNNAMESPACED: Final = frozenset(
    [
        *((one.group, one.kind) for one in BUILTIN if not one.namespaced),
        *((one.group, one.kind) for one in (*KCP.values(), *EDGE.values()) if not one.namespaced),
    ]
)


@dataclass(frozen=True, slots=True)
class Place:
    parameters: Parameters
    vague: str = ""  #: why it is not known which cluster it is


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked for; all names are of files or of what is in a hub."""

    objects: Sequence[Manifest]
    location: str = ""
    location_file: str = ""
    customizer_files: Sequence[str] = ()
    target: str = ""  #: the SyncTarget
    namespace: str = NAMESPACE  #: of what has none


@dataclass(frozen=True, slots=True)
class Answer:
    objects: list[Obj] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def answer(question: Question, asking: Asking) -> Answer:
    """click.ClickException if there is none at all."""
    place = place_in_file(question) if question.location_file else None
    known: Customizers | None = customizers_in_files(question) if question.customizer_files else None
    if place is None or (known is None and named(question)):
        place, known = ask(asking, lambda hub: completed(hub, question, place, known))
    return answered(question, place, known or {})


async def completed(
    hub: Hub, question: Question, place: Place | None, known: Customizers | None
) -> tuple[Place, Customizers]:
    """With what is not in files."""
    if place is None:
        place = await place_in_hub(hub, question)
    if known is None:
        known = await customizers_in_hub(hub, named(question))
    return place, known


# --- the objects ----------------------------------------------------------------------------------


def objects(found: Sequence[Manifest]) -> Sequence[Manifest]:
    """Those that are to be customized.  click.ClickException if they are none."""
    for source, obj in found:
        _check(source, obj)
    if not found:
        raise click.ClickException("there is no object in what was given")
    return found


def _check(source: str, obj: Obj) -> None:
    metadata = obj.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str) or not metadata["name"]:
        raise click.ClickException(f"{source}: the {obj['kind']} has no metadata.name")
    if not isinstance(metadata.get("namespace") or "", str) or not isinstance(obj["apiVersion"], str):
        raise click.ClickException(f"{source}: apiVersion and metadata.namespace must be strings")
    for name in ("labels", "annotations"):
        texts = metadata.get(name) or {}
        if not isinstance(texts, dict) or not all(isinstance(text, str) for text in texts.values()):
            raise click.ClickException(f"{source}: metadata.{name} must be a map of strings")


def in_namespace(obj: Obj, namespace: str) -> Obj:
    """As a server would have it."""
    group = obj["apiVersion"].rpartition("/")[0]
    if obj["metadata"].get("namespace") or (group, obj["kind"]) in UNNAMESPACED:
        return obj
    return {**obj, "metadata": {**obj["metadata"], "namespace": namespace}}


def named(question: Question) -> list[str]:
    """The Customizers that objects name, sorted."""
    references = [reference_of(in_namespace(obj, question.namespace)) for _, obj in question.objects]
    return sorted({str(one) for one in references if one is not None and not one.problem})


# --- from files -----------------------------------------------------------------------------------


def place_in_file(question: Question) -> Place:
    found = _of_kind(LOCATIONS.kind, [question.location_file])
    if len(found) != 1:
        raise click.ClickException(f"{question.location_file}: there are {len(found)} Locations in it, and not one")
    metadata = found[0].obj["metadata"]
    annotations = metadata.get("annotations") or {}
    parameters = parameters_of(
        metadata.get("labels") or {},
        annotations,
        location=metadata["name"],
        cluster=question.target,
        workspace=annotations.get(CLUSTER_ANNOTATION, ""),
    )
    return Place(parameters, "say with --sync-target which one it is")


def customizers_in_files(question: Question) -> dict[str, Customizer]:
    found = _of_kind(CUSTOMIZERS.kind, question.customizer_files)
    parsed = [parse_customizer(in_namespace(obj, question.namespace)) for _, obj in found]
    return {one.name: one for one in parsed}


def _of_kind(kind: str, names: Iterable[str]) -> list[Manifest]:
    found = manifests(names)
    for source, obj in found:
        if obj["kind"] != kind:
            raise click.ClickException(f"{source}: this is a {obj['kind']}, and not a {kind}")
        _check(source, obj)
    return found


# --- from a hub -----------------------------------------------------------------------------------


async def place_in_hub(hub: Hub, question: Question) -> Place:
    cluster, _, name = question.location.rpartition(":")
    known = await (_inventory_of(hub, cluster, name) if cluster else inventory.read(hub.root))
    found = [one for one in known.locations if one.key.name == name]
    if not found:
        raise click.ClickException(f"there is no Location {question.location}")
    if len(found) > 1:
        choices = ", ".join(sorted(f"{one.key.cluster}:{name}" for one in found))
        raise click.ClickException(f"there are {len(found)} Locations {name}; say which one: {choices}")
    return _place(found[0], known, question.target)


async def _inventory_of(hub: Hub, cluster: str, name: str) -> Inventory:
    """Of one workspace, by its path or its cluster."""
    workspace = hub.root.workspace(cluster)
    try:
        location = parse_location(await workspace.get(LOCATIONS, name))
    except NotFound:
        return Inventory((), ())
    targets = [parse_target(one) for one in await workspace.list(SYNC_TARGETS)]
    return Inventory((location,), tuple(targets))


def _place(location: Location, known: Inventory, target: str) -> Place:
    instances = location.instances
    selected = [
        one.key.name
        for one in known.targets_of(location.key.cluster)
        if instances is not None and instances.matches(one.labels)
    ]
    listed = f"the Location {location.key.name} selects {f'the SyncTargets {_list(selected)}' if selected else 'none'}"
    if target and target not in selected:
        raise click.ClickException(f"there is no SyncTarget {target} at that place: {listed}")
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
    return Place(parameters, f"{listed}; say with --sync-target which one")


def _list(names: Sequence[str]) -> str:
    return ", ".join(names)


async def customizers_in_hub(hub: Hub, names: Iterable[str]) -> dict[str, Customizer]:
    """Those that there are, of these."""
    found: dict[str, Customizer] = {}
    for name in names:
        namespace, _, alone = name.partition("/")
        try:
            found[name] = parse_customizer(await hub.workspace.get(CUSTOMIZERS, alone, namespace))
        except NotFound as error:
            if not error.details:
                raise click.ClickException(
                    f"the workspace {workspace_name(hub)} does not have the API of Customizers: in that workspace, "
                    f"`kubectl kcp bind apiexport {hub.provider}:edge.kcp.io` binds it"
                ) from None
    return found


# --- the answer -----------------------------------------------------------------------------------


def answered(question: Question, place: Place, known: Customizers) -> Answer:
    result = Answer()
    for source, obj in question.objects:
        wanted = in_namespace(_bare(source, obj), question.namespace)
        after = customized(wanted, known.get(str(reference_of(wanted))), place.parameters)
        which = f"{source}: {obj['kind']} {obj['metadata']['name']}"
        result.warnings.extend(f"{which}: {_unknown(name, place)}" for name in after.unknown)
        result.warnings.extend(f"{which}: the path {path} leads nowhere in it" for path in after.unused)
        if after.problem:
            result.problems.append(f"{which}: {after.problem}")
        else:
            result.objects.append(_as_given(obj, after.obj))
    return result


def _bare(source: str, obj: Obj) -> Obj:
    """Without what a server wrote into it."""
    if not obj["metadata"].get("uid"):
        return obj
    try:
        return stripped(obj)
    except (AttributeError, KeyError, TypeError, ValueError):
        raise click.ClickException(f"{source}: this is no {obj['kind']} that a server made") from None


def _as_given(before: Obj, after: Obj) -> Obj:
    """Without a namespace that was not there."""
    dropped = () if "namespace" in before["metadata"] else ("namespace",)
    metadata = {name: value for name, value in after["metadata"].items() if name not in dropped}
    return {**after, "metadata": metadata}


def _unknown(name: str, place: Place) -> str:
    if name == CLUSTER_NAME:
        return f"%({name}) stays as it is: {place.vague}"
    return f"%({name}) stays as it is: the Location has no label or annotation of that name"


# --- printing -------------------------------------------------------------------------------------


def printed(found: Sequence[Obj], output: str) -> str:
    """For `kubectl apply -f -`."""
    if output == "json":
        whole = found[0] if len(found) == 1 else {"apiVersion": "v1", "kind": "List", "items": list(found)}
        return orjson.dumps(whole, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE).decode()
    return "---\n".join(map(yaml_text, found))
