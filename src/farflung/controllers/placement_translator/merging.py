"""The same object from several workspaces, and the version in which they are read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from farflung.machinery.errors import Obj
from farflung.machinery.versions import version_order

# --- one object from several ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Source:
    """An object of one workspace, as `stripped` left it."""

    cluster: str
    version: int  #: its resourceVersion
    obj: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True, slots=True, order=True)
class Conflict:
    """Sources do not agree about a field.  Says where and who, never what."""

    path: str
    winner: str  #: the cluster with the most recently updated object of those that disagree
    losers: tuple[str, ...]  #: those that say something else, sorted

    def __str__(self) -> str:
        return f"{self.path}: {self.winner} wins over {', '.join(self.losers)}"


@dataclass(frozen=True, slots=True)
class Merged:
    obj: Obj | None = field(repr=False)  #: None if there is none, or all of them are being deleted
    conflicts: tuple[Conflict, ...] = ()  #: sorted


Said = list[tuple[str, Any]]  #: clusters and what they say of one field, the most recently updated first

METADATA_MAPS: Final = ("annotations", "labels")
LIKE_SPEC: Final = ("spec", "status")


def merged(sources: Sequence[Source]) -> Merged:
    """One object of all, whatever their order.

    Labels, annotations and sections that are maps in every source are merged key by key; anything else is equal, or
    the most recently updated object wins.  All have the same apiVersion, kind, namespace and name.
    """
    present = [one for one in sources if not one.obj["metadata"].get("deletionTimestamp")]
    if not present:
        return Merged(None)
    latest = sorted(present, key=lambda one: (-one.version, one.cluster))
    if len(latest) == 1:
        return Merged({**latest[0].obj, "metadata": _unmanaged(latest[0].obj["metadata"])})
    merge = _Merge([one.cluster for one in latest])
    return Merged(merge.objects([one.obj for one in latest]), tuple(sorted(merge.conflicts)))


def _unmanaged(metadata: Mapping[str, Any]) -> Obj:
    return {name: value for name, value in metadata.items() if name != "managedFields"}


class _Merge:
    def __init__(self, clusters: list[str]) -> None:
        self._clusters = clusters
        self.conflicts: list[Conflict] = []

    def objects(self, objs: list[Mapping[str, Any]]) -> Obj:
        """The most recently updated one comes first."""
        result: Obj = {"apiVersion": objs[0]["apiVersion"], "kind": objs[0]["kind"]}
        result["metadata"] = self._metadata([obj["metadata"] for obj in objs])
        for name in sorted({name for obj in objs for name in obj} - result.keys()):
            section = self._section(name, [obj.get(name) for obj in objs])
            if section is not None:
                result[name] = section
        return result

    def _metadata(self, all_metadata: list[Mapping[str, Any]]) -> Obj:
        result = _unmanaged(all_metadata[0])
        for name in METADATA_MAPS:
            _put(result, name, self._maps(f"metadata.{name}", [one.get(name) for one in all_metadata]))
        references = [
            {_reference_key(reference): reference for reference in one.get("ownerReferences") or ()}
            for one in all_metadata
        ]
        _put(result, "ownerReferences", list(self._maps("metadata.ownerReferences", references).values()))
        finalizers = {name for one in all_metadata for name in one.get("finalizers") or ()}
        _put(result, "finalizers", sorted(finalizers))
        return result

    def _section(self, name: str, sections: list[Any]) -> Any:
        if name not in LIKE_SPEC and all(type(one) is dict or one is None for one in sections):
            return self._maps(name, sections) if any(one is not None for one in sections) else None
        return self._value(name, list(zip(self._clusters, sections, strict=True)))

    def _maps(self, path: str, maps: Sequence[Mapping[str, Any] | None]) -> Obj:
        said: dict[str, Said] = {}
        for cluster, entries in zip(self._clusters, maps, strict=True):
            for key, value in (entries or {}).items():
                if value is not None:
                    said.setdefault(key, []).append((cluster, value))
        return {key: self._value(_below(path, key), said[key]) for key in sorted(said)}

    def _value(self, path: str, said: Said) -> Any:
        (winner, value), *others = said
        losers = [(cluster, other) for cluster, other in others if not same(value, other)]
        if losers:
            where = path + first_difference(value, losers[0][1])
            self.conflicts.append(Conflict(where, winner, tuple(sorted(cluster for cluster, _ in losers))))
        return value


def _put(section: Obj, name: str, value: Any) -> None:
    if value:
        section[name] = value
    else:
        section.pop(name, None)


def _reference_key(reference: Mapping[str, Any]) -> str:
    return " ".join(str(reference.get(part, "")) for part in ("apiVersion", "kind", "name"))


def _below(path: str, key: str) -> str:
    return f"{path}.{key}" if key.isidentifier() else f"{path}[{key!r}]"


# --- equality -------------------------------------------------------------------------------------


def same(one: Any, other: Any) -> bool:
    """Whether they are equal as JSON, where to be absent and to be null is the same."""
    return next(_differences(one, other), None) is None


def first_difference(one: Any, other: Any) -> str:
    """Where in them they differ first, by the alphabet: `.replicas`; empty if it is at the very top, or nowhere."""
    return next(_differences(one, other), "")


def _differences(one: Any, other: Any) -> Iterator[str]:
    left = [("", one, other)]
    while left:
        path, one, other = left.pop()
        if type(one) is dict and type(other) is dict:
            keys = sorted(one.keys() | other.keys(), reverse=True)
            left += [(_below(path, key), one.get(key), other.get(key)) for key in keys]
        elif type(one) is list and type(other) is list and len(one) == len(other):
            left += [(f"{path}[{at}]", one[at], other[at]) for at in reversed(range(len(one)))]
        elif one != other or (type(one) is bool) != (type(other) is bool):
            yield path


# --- one version of several -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Offer:
    """The versions of an API group that a workspace serves."""

    cluster: str
    versions: tuple[str, ...]
    preferred: str


@dataclass(frozen=True, slots=True)
class Agreement:
    version: str  #: empty if nobody serves any
    dropped: tuple[str, ...] = ()  #: clusters whose objects cannot be read in that version, sorted
    conflict: str = ""  #: why they are dropped


def agreed(offers: Sequence[Offer], earlier: str | None = None) -> Agreement:
    """The version in which objects of all these workspaces are read, whatever the order of the offers.

    If no version is served by all, the workspace whose best version is the worst is left out, and so on; of several
    such the one whose name comes last.  `earlier` is the last agreement: it holds while it can.
    """
    ranked = sorted(offers, key=lambda one: (_best(one), one.cluster))
    common = _common(ranked)
    while ranked and not common:
        ranked.pop()
        common = _common(ranked)
    if not ranked:
        return Agreement("", *_dropped(offers, ranked))
    candidates = common & {one.preferred for one in ranked} or common
    version = earlier if earlier in candidates else min(candidates, key=version_order)
    return Agreement(version or "", *_dropped(offers, ranked))


def _best(offer: Offer) -> tuple[bool, tuple[int, int, int, str]]:
    versions = sorted(map(version_order, offer.versions))
    return (False, versions[0]) if versions else (True, (0, 0, 0, ""))


def _common(offers: Iterable[Offer]) -> frozenset[str]:
    served = [frozenset(one.versions) for one in offers]
    return frozenset.intersection(*served) if served else frozenset()


def _dropped(offers: Sequence[Offer], kept: Sequence[Offer]) -> tuple[tuple[str, ...], str]:
    dropped = sorted({one.cluster for one in offers} - {one.cluster for one in kept})
    if not dropped:
        return (), ""
    served = ", ".join(sorted(f"{one.cluster} ({', '.join(one.versions) or 'none'})" for one in offers))
    return tuple(dropped), f"no version is served by all of {served}; left out: {', '.join(dropped)}"
