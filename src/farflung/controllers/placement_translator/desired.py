"""One object of one mailbox, as it should be.  Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from farflung.controllers.placement_translator.customizing import (
    Customized,
    Customizer,
    customized,
    expands,
    parameters_of,
    reference_of,
)
from farflung.controllers.placement_translator.engine import Place, Wanted
from farflung.controllers.placement_translator.merging import Conflict, Source, merged
from farflung.controllers.placement_translator.projecting import projected
from farflung.controllers.placement_translator.reading import SeenLocation
from farflung.controllers.placement_translator.values import Part
from farflung.controllers.placement_translator.world import NAMESPACES, PlacementKey
from farflung.machinery.errors import Obj

CustomizerOf = Callable[[str], Customizer | None]  #: by `namespace/name`


class Desired(NamedTuple):
    obj: Obj | None  #: None: nothing should be there, or nobody knows what
    problem: str = ""  #: why nobody knows
    conflicts: tuple[Conflict, ...] = ()
    remarks: tuple[str, ...] = ()  #: what people should know, though it holds nothing back
    ambiguity: str = ""  #: why it could as well be something else


NOTHING: Final = Desired(None)


def taking_part(part: Part, wanted: Iterable[Wanted], kept: Iterable[PlacementKey]) -> list[str]:
    """The clusters whose objects make up the one in the mailbox, sorted.  A namespace that is only needed says nothing
    but its name."""
    chosen = {one.placement.cluster for one in wanted if one.selected is not None or part.kind != NAMESPACES}
    return sorted(chosen | {key.cluster for key in kept if part.kind != NAMESPACES})


def desired(
    part: Part,
    wanted: Sequence[Wanted],
    sources: Sequence[Source],
    customizer_of: Callable[[str], CustomizerOf],
    locations: Callable[[Place], SeenLocation | None],
    kept: Iterable[PlacementKey] = (),
) -> Desired:
    """`sources`: stripped, of those clusters that take part and have it; `customizer_of`: those of a cluster; `kept`:
    placements for which it was made, and of which nobody knows whether they want it still."""
    if not wanted:
        return NOTHING
    marks = sorted({str(one.placement) for one in wanted} | {str(key) for key in kept})
    chosen = [one for one in wanted if one.selected is not None]
    if part.kind == NAMESPACES and not chosen:
        return Desired(projected(bare_namespace(part.name), sources=marks))
    result = merged(sources)
    if result.obj is None:
        return NOTHING
    create_only = any(one.selected is not None and one.selected.create_only for one in wanted)
    latest = max(sources, key=lambda one: (one.version, one.cluster))
    obj, customizer = result.obj, _customizer(result.obj, customizer_of(latest.cluster))
    place, *others = _places(chosen or wanted)
    after = customized(obj, customizer, _parameters(place, locations))
    ambiguity = ""
    if others and (reference_of(obj) is not None or expands(obj)):
        there = ((one.location, customized(obj, customizer, _parameters(one, locations))) for one in others)
        ambiguity = _ambiguity(place.location, after, there)
    if after.problem:
        return Desired(None, after.problem, result.conflicts, ambiguity=ambiguity)
    remarks = tuple(f"nothing is known under %({name})" for name in after.unknown)
    remarks += tuple(f"{path} leads nowhere" for path in after.unused)
    marked = projected(after.obj, create_only=create_only, sources=marks)
    return Desired(marked, "", result.conflicts, remarks, ambiguity)


def _places(wanted: Sequence[Wanted]) -> list[Place]:
    """One for each Location that leads to the mailbox, which has one SyncTarget; the first counts."""
    names = {name for one in wanted for name in one.place.locations}
    return [wanted[0].place._replace(location=name, others=()) for name in sorted(names)]


def _ambiguity(location: str, made: Customized, others: Iterable[tuple[str, Customized]]) -> str:
    """Why something else could go there; empty if all Locations make the same of it."""
    for other, found in others:
        if (made.obj, bool(made.problem)) != (found.obj, bool(found.problem)):
            different = "make different objects of it"
            return f"the Locations {location} and {other} both lead there and {different}; {location} counts"
    return ""


def bare_namespace(name: str) -> Obj:
    """A namespace that is only there because something goes into it."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def _customizer(obj: Mapping[str, object], customizer_of: CustomizerOf) -> Customizer | None:
    reference = reference_of(obj)
    return None if reference is None else customizer_of(str(reference))


def _parameters(place: Place, locations: Callable[[Place], SeenLocation | None]) -> dict[str, str]:
    found = locations(place)
    labels, annotations = ({}, {}) if found is None else (found.labels, found.annotations)
    return parameters_of(labels, annotations, location=place.location, cluster=place.target, workspace=place.cluster)
