"""One object of one mailbox, as it should be.  Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from farflung.controllers.placement_translator.customizing import Customizer, customized, parameters_of, reference_of
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
    place = min((one.place for one in chosen or wanted), key=lambda one: (one.location, one.cluster))
    latest = max(sources, key=lambda one: (one.version, one.cluster))
    after = customized(
        result.obj, _customizer(result.obj, customizer_of(latest.cluster)), _parameters(place, locations)
    )
    if after.problem:
        return Desired(None, after.problem, result.conflicts)
    remarks = tuple(f"nothing is known under %({name})" for name in after.unknown)
    remarks += tuple(f"{path} leads nowhere" for path in after.unused)
    return Desired(projected(after.obj, create_only=create_only, sources=marks), "", result.conflicts, remarks)


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
