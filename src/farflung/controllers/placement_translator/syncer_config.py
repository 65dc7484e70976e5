"""What a syncer is told to do: the spec of the SyncerConfig `the-one`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from farflung.controllers.placement_translator.engine import Engine
from farflung.controllers.placement_translator.kinds import Category, category
from farflung.controllers.placement_translator.values import Kind, Part
from farflung.controllers.placement_translator.what import UpsyncSet
from farflung.controllers.placement_translator.world import DEFINITIONS, PlacementKey, World
from farflung.machinery.errors import Obj

THE_ONE: Final = "the-one"  #: the name of the SyncerConfig that is kept in every mailbox


class Told(NamedTuple):
    """What the spec says, in whatever order."""

    namespaces: frozenset[str] = frozenset()
    kinds: frozenset[Kind] = frozenset()
    parts: frozenset[Part] = frozenset()
    versions: Mapping[Kind, str] = {}
    upsync: frozenset[UpsyncSet] = frozenset()

    def spec(self) -> Obj:
        return spec_of(**self._asdict())

    def joined(self, other: Told) -> Told:
        """What either says.  The versions of `other` count."""
        return Told(
            self.namespaces | other.namespaces,
            self.kinds | other.kinds,
            self.parts | other.parts,
            {**self.versions, **other.versions},
            self.upsync | other.upsync,
        )


def together(
    engine: Engine, world: World, placements: Iterable[PlacementKey], namespaced: Callable[[str], Mapping[Kind, str]]
) -> Told:
    """What placements want that are understood.  `namespaced`: the kinds that a cluster serves in namespaces, with
    their versions, which are known of whole namespaces only; of others the mailbox knows them."""
    namespaces: set[str] = set()
    parts: set[Part] = set()
    kinds: dict[Kind, str] = {}
    upsync: set[UpsyncSet] = set()
    for key in placements:
        what = engine.what(key)
        assert what is not None
        upsync.update(what.upsync)
        whole = engine.whole_namespaces(key)
        namespaces |= whole
        if whole:
            kinds |= namespaced(key.cluster)
        selected = engine.selected(key)
        parts.update(part for part, how in selected.items() if not how.whole_namespace)
        parts.update(_definitions(world, key.cluster, {part.kind for part in selected}))
    return Told(frozenset(namespaces), frozenset(kinds), frozenset(parts), kinds, frozenset(upsync))


def _definitions(world: World, cluster: str, kinds: Iterable[Kind]) -> Iterator[Part]:
    """Those that go along with what is selected."""
    for kind in kinds:
        definition = Part(DEFINITIONS, "", f"{kind.resource}.{kind.group}")
        if world.get(cluster, definition) is not None:
            yield definition


def told_by(spec: Mapping[str, Any]) -> Told:
    """What a spec says that was written by `Told.spec`.  Somebody else may have written to it since."""
    versions: dict[Kind, str] = {}

    def kind_of(one: Mapping[str, Any]) -> Kind:
        kind = Kind(one.get("group") or "", one.get("resource") or "")
        versions[kind] = one.get("apiVersion") or ""
        return kind

    scope = spec.get("namespaceScope") or {}
    kinds = frozenset(kind_of(one) for one in scope.get("resources") or ())
    parts = {
        Part(kind_of(one), within.get("namespace") or "", name)
        for one in spec.get("namespacedObjects") or ()
        for within in one.get("objectsByNamespace") or ()
        for name in within.get("names") or ()
    }
    parts |= {
        Part(kind_of(one), "", name) for one in spec.get("clusterScope") or () for name in one.get("objects") or ()
    }
    lists = ("resources", "namespaces", "names")
    upsync = frozenset(
        UpsyncSet(one.get("apiGroup") or "", *(tuple(one.get(name) or ()) for name in lists))
        for one in spec.get("upsync") or ()
    )
    known = {kind: version for kind, version in versions.items() if version}
    return Told(frozenset(scope.get("namespaces") or ()), kinds, frozenset(parts), known, upsync)


def spec_of(
    *,
    namespaces: Iterable[str] = (),
    kinds: Iterable[Kind] = (),
    parts: Iterable[Part] = (),
    versions: Mapping[Kind, str],
    upsync: Iterable[UpsyncSet] = (),
) -> Obj:
    """The spec of `the-one`: equal for equal sets, and sorted.

    `namespaces`, of which everything goes to the edge that is of one of `kinds`, which are in namespaces; `parts`, that
    go there one by one.  A part that goes there with its namespace is not said again; nor is one of a kind that goes no
    further than to the mailbox, or of which no version is known."""
    all_kinds = {kind for kind in kinds if kind in versions and category(kind) is Category.EDGE}
    whole = set(namespaces)
    inside: dict[Kind, dict[str, set[str]]] = {}
    outside: dict[Kind, set[str]] = {}
    for kind, namespace, name in parts:
        if not namespace:
            outside.setdefault(kind, set()).add(name)
        elif namespace not in whole or kind not in all_kinds:
            inside.setdefault(kind, {}).setdefault(namespace, set()).add(name)
    spec: Obj = {"namespaceScope": {}}
    if whole:
        spec["namespaceScope"] = {
            "namespaces": sorted(whole),
            "resources": [_resource(kind, versions) for kind in sorted(all_kinds)],
        }
    if some := _going(inside, versions):
        spec["namespacedObjects"] = [
            {**_resource(kind, versions), "objectsByNamespace": _by_namespace(inside[kind])} for kind in some
        ]
    if some := _going(outside, versions):
        spec["clusterScope"] = [{**_resource(kind, versions), "objects": sorted(outside[kind])} for kind in some]
    if sets := sorted(set(upsync)):
        spec["upsync"] = [_upsync(one) for one in sets]
    return spec


def _going(kinds: Iterable[Kind], versions: Mapping[Kind, str]) -> list[Kind]:
    return sorted(kind for kind in kinds if kind in versions and category(kind) is Category.EDGE)


def _resource(kind: Kind, versions: Mapping[Kind, str]) -> Obj:
    return {"apiVersion": versions[kind], "group": kind.group, "resource": kind.resource}


def _by_namespace(names: Mapping[str, set[str]]) -> list[Obj]:
    return [{"namespace": namespace, "names": sorted(names[namespace])} for namespace in sorted(names)]


def _upsync(one: UpsyncSet) -> Obj:
    """The lists are as people wrote them."""
    said: Obj = {"apiGroup": one.group, "names": list(one.names), "namespaces": list(one.namespaces)}
    return {**{key: value for key, value in said.items() if value}, "resources": list(one.resources)}
