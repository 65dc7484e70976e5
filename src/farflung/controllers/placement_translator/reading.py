"""Objects as they are heard of, as far as the translator cares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
import orjson

from farflung.controllers.placement_translator import customizing, projecting
from farflung.controllers.placement_translator.engine import Place
from farflung.controllers.placement_translator.kinds import is_system, may_be_system
from farflung.controllers.placement_translator.values import Kind
from farflung.controllers.placement_translator.what import What, parse_what
from farflung.controllers.placement_translator.world import NO_LABELS, PlacementKey, Seen


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = "0"
    generation: int = 0
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    deletion_timestamp: str | None = None


class _Headed(msgspec.Struct, frozen=True):
    metadata: _Metadata


_headed: Final = msgspec.json.Decoder(_Headed)
#: annotations of objects that are different in each place
_MARKS: Final = frozenset(
    prefix + name for prefix in customizing.PREFIXES for name in (customizing.EXPAND, customizing.CUSTOMIZER)
)


def seen_object(kind: Kind, api_version: str, document: bytes) -> Seen:
    """Of any kind.  Only what may be a system object, or asks to be customized, is read as a whole."""
    metadata = _headed.decode(document).metadata
    annotations = metadata.annotations or {}
    ours = (metadata.labels or {}).get(projecting.PROJECTED) == projecting.YES
    customizer, expands = "", False
    if not ours and not _MARKS.isdisjoint(annotations):
        obj = {"metadata": {"annotations": annotations, "namespace": metadata.namespace}}
        reference = customizing.reference_of(obj)
        customizer, expands = "" if reference is None else str(reference), customizing.expands(obj)
    return Seen(
        document=document,
        version=int(metadata.resource_version),
        api_version=api_version,
        uid=metadata.uid,
        generation=metadata.generation,
        labels=metadata.labels or NO_LABELS,
        annotated=hash(tuple(annotations.items())),
        alive=metadata.deletion_timestamp is None,
        system=not ours and may_be_system(kind) and is_system(kind, orjson.loads(document)),
        ours=ours,
        placements=_made_for(annotations) if ours else frozenset(),
        customizer=customizer,
        expands=expands,
    )


def _made_for(annotations: Mapping[str, str]) -> frozenset[PlacementKey]:
    sources = projecting.projection_of({"metadata": {"annotations": annotations}}).sources
    pairs = (source.partition("|") for source in sources)
    return frozenset(PlacementKey(cluster, name) for cluster, _, name in pairs if name)


# --- placements and their slices ------------------------------------------------------------------


class SeenPlacement(msgspec.Struct, frozen=True):
    document: bytes
    what: What
    uid: str
    generation: int
    annotations: Mapping[str, str]
    alive: bool


def seen_placement(document: bytes) -> SeenPlacement:
    metadata = _headed.decode(document).metadata
    return SeenPlacement(
        document,
        parse_what(orjson.loads(document)),
        metadata.uid,
        metadata.generation,
        metadata.annotations or {},
        metadata.deletion_timestamp is None,
    )


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


class SeenSlice(msgspec.Struct, frozen=True):
    owner: str  #: the uid of the placement
    placement: str  #: its name
    places: tuple[tuple[str, Place], ...]  #: by mailbox, sorted


def seen_slice(document: bytes) -> SeenSlice:
    found = _slice.decode(document)
    owner = next((one for one in found.metadata.owner_references or () if one.kind == "EdgePlacement"), _Owner())
    places = sorted(
        (f"{one.cluster}-mb-{one.sync_target_uid}", Place(one.cluster, one.location_name, one.sync_target_name))
        for one in found.destinations or ()
    )
    return SeenSlice(owner.uid, owner.name or found.metadata.name, tuple(places))


# --- places ---------------------------------------------------------------------------------------


class SeenLocation(msgspec.Struct, frozen=True):
    """What customization sees of a Location."""

    labels: Mapping[str, str]
    annotations: Mapping[str, str]


def seen_location(document: bytes) -> SeenLocation:
    metadata = _headed.decode(document).metadata
    return SeenLocation(metadata.labels or {}, metadata.annotations or {})
