"""Every object that was heard of, by the workspace it is in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

import msgspec

from farflung.controllers.placement_translator.values import Kind, Part

NAMESPACES: Final = Kind("", "namespaces")
DEFINITIONS: Final = Kind("apiextensions.k8s.io", "customresourcedefinitions")
NO_LABELS: Final[Mapping[str, str]] = {}


class PlacementKey(NamedTuple):
    cluster: str
    name: str

    def __str__(self) -> str:
        return f"{self.cluster}|{self.name}"


class Seen(msgspec.Struct, frozen=True):
    """An object as it was last heard of."""

    document: bytes  #: JSON
    version: int  #: its resourceVersion
    api_version: str  #: the version of the API in which it was read, without the group
    uid: str = ""
    generation: int = 0
    labels: Mapping[str, str] = NO_LABELS
    annotated: int = 0  #: a hash of its annotations
    alive: bool = True  #: nobody has deleted it
    system: bool = False  #: every cluster has its own, and it goes nowhere
    ours: bool = False  #: it is a copy that a translator made
    placements: frozenset[PlacementKey] = frozenset()  #: for which it was made
    customizer: str = ""  #: the one it names, as `namespace/name`
    expands: bool = False  #: whether parameters in it are replaced

    def says_the_same(self, other: Seen) -> bool:
        """Whether nothing but what is reported of it can be another.  Unknown of kinds without generations."""
        return (
            0 < self.generation == other.generation
            and self.uid == other.uid
            and self.alive == other.alive
            and self.api_version == other.api_version
            and self.annotated == other.annotated
            and self.labels == other.labels
        )


class World:
    def __init__(self) -> None:
        self._objects: dict[str, dict[Part, Seen]] = {}
        self._inside: dict[tuple[str, str], set[Part]] = {}  #: (cluster, namespace) → what is in it

    def get(self, cluster: str, part: Part) -> Seen | None:
        return self._objects.get(cluster, _NOTHING).get(part)

    def parts(self, cluster: str) -> Mapping[Part, Seen]:
        return self._objects.get(cluster, _NOTHING)

    def inside(self, cluster: str, namespace: str) -> Iterator[Part]:
        yield from self._inside.get((cluster, namespace), ())

    def put(self, cluster: str, part: Part, seen: Seen) -> Seen | None:
        """What was known before."""
        objects = self._objects.setdefault(cluster, {})
        before = objects.get(part)
        objects[part] = seen
        if before is None and part.namespace:
            self._inside.setdefault((cluster, part.namespace), set()).add(part)
        return before

    def remove(self, cluster: str, part: Part) -> Seen | None:
        """What was known before."""
        objects = self._objects.get(cluster)
        before = objects.pop(part, None) if objects is not None else None
        if before is None:
            return None
        if not objects:
            del self._objects[cluster]
        if part.namespace:
            inside = self._inside[cluster, part.namespace]
            inside.discard(part)
            if not inside:
                del self._inside[cluster, part.namespace]
        return before


_NOTHING: Final[dict[Part, Seen]] = {}
