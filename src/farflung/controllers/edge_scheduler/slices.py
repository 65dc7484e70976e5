"""Destinations as SinglePlacementSlices, and what is to be written so that the slices that are there become those.

Up to `limit` destinations are one slice, named like its placement.  More are sorted and cut: each slice ends before the
destination with the least hash among those that could be next.  Where it is cut hardly depends on what else there is,
so a change touches one slice, seldom more.  A slice is named after the destination that it begins with, but the first
one keeps the name of the placement.
"""

from __future__ import annotations

import hashlib
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from farflung.client.resource import Collection
from farflung.controllers.edge_scheduler.values import Destination, Placement
from farflung.machinery import names
from farflung.machinery.errors import Obj
from farflung.runtime.plan import Create, Delete, Update, Write

PLACEMENTS: Final = Collection("edge.kcp.io", "v1alpha1", "edgeplacements", "EdgePlacement")
SLICES: Final = Collection("edge.kcp.io", "v1alpha1", "singleplacementslices", "SinglePlacementSlice")
SOURCE: Final = "edge.kcp.io/source-placement"  #: the label that slices have if a placement has more than one
LIMIT: Final = 5_000
FIELDS: Final = ("cluster", "locationName", "syncTargetName", "syncTargetUID")  #: of an entry
DIGITS: Final = 12  #: of a hash in a name


# --- what should be there -------------------------------------------------------------------------


def sliced(placement: Placement, destinations: Sequence[Destination], limit: int = LIMIT) -> list[Obj]:
    """The slices that should be there.  `destinations` is sorted."""
    parts = list(_cut(destinations, limit))
    name = placement.key.name
    labels = {SOURCE: source_label(name)} if len(parts) > 1 else {}
    return [
        {
            "apiVersion": SLICES.api_version,
            "kind": SLICES.kind,
            "metadata": {
                "name": _part_name(placement, part[0]) if at else name,
                **({"labels": labels} if labels else {}),
                "ownerReferences": [owner_reference(placement)],
            },
            "destinations": [_entry(destination) for destination in part],
        }
        for at, part in enumerate(parts)
    ]


def _cut(destinations: Sequence[Destination], limit: int) -> Iterator[Sequence[Destination]]:
    if len(destinations) <= limit:
        yield destinations
        return
    hashes = list(map(_hash, destinations))
    start = 0
    while len(destinations) - start > limit:
        end = min(range(start + max(limit // 4, 1), start + limit + 1), key=hashes.__getitem__)
        yield destinations[start:end]
        start = end
    yield destinations[start:]


def _hash(destination: Destination) -> int:
    mixed = zlib.crc32("\0".join(destination).encode("utf-8", "surrogatepass")) * 0x9E3779B1 & 0xFFFFFFFF
    return mixed ^ mixed >> 15


def _part_name(placement: Placement, first: Destination) -> str:
    digest = _digest(placement.uid, *first)
    return f"{placement.key.name[: names.DNS_SUBDOMAIN_LENGTH - DIGITS - 1].rstrip('-.')}-{digest}"


def source_label(name: str) -> str:
    """How slices name their placement in a label, which has room for 63 characters."""
    if len(name) <= names.LABEL_VALUE_LENGTH:
        return name
    return f"{name[: names.LABEL_VALUE_LENGTH - DIGITS - 1].rstrip('-.')}-{_digest(name)}"


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:DIGITS]


def _entry(destination: Destination) -> Obj:
    cluster, location, target, uid = destination
    return {"cluster": cluster, "locationName": location, "syncTargetName": target, "syncTargetUID": uid}


def owner_reference(placement: Placement) -> Obj:
    return {
        "apiVersion": PLACEMENTS.api_version,
        "kind": PLACEMENTS.kind,
        "name": placement.key.name,
        "uid": placement.uid,
    }


# --- what is there --------------------------------------------------------------------------------


def destinations_of(obj: Mapping[str, Any]) -> tuple[Destination, ...]:
    """In the order in which they stand; what makes no sense is left out."""
    found: list[Destination] = []
    for entry in obj.get("destinations") or ():
        try:
            parts = [entry[field] for field in FIELDS]
        except (KeyError, TypeError):
            continue
        if all(type(part) is str for part in parts):
            found.append(Destination(*parts))
    return tuple(found)


def owners(obj: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The placements that an object says it belongs to: its owner references of that kind."""
    for reference in obj["metadata"].get("ownerReferences") or ():
        if reference.get("kind") == PLACEMENTS.kind and reference.get("apiVersion", "").startswith("edge.kcp.io/"):
            yield reference


def placements_of(obj: Mapping[str, Any]) -> frozenset[str]:
    """Names of the placements that should look again when something happens to a slice: its owners, and the one that
    is called as it is."""
    return frozenset({obj["metadata"]["name"], *(reference.get("name", "") for reference in owners(obj))})


def is_extra(placement: Placement, obj: Mapping[str, Any]) -> bool:
    """Whether a slice is one of several that were made for the placement, or for another that had its name."""
    metadata = obj["metadata"]
    labelled = (metadata.get("labels") or {}).get(SOURCE) == source_label(placement.key.name)
    return labelled and any(reference.get("name") == placement.key.name for reference in owners(obj))


def previous(placement: Placement, observed: Iterable[Mapping[str, Any]]) -> frozenset[Destination]:
    """Where the placement led before: what its slices say, but not those of another that had its name."""
    return frozenset(
        destination
        for obj in observed
        if any(reference.get("uid") == placement.uid for reference in owners(obj))
        for destination in destinations_of(obj)
    )


# --- from the one to the other --------------------------------------------------------------------


def plan(placement: Placement, desired: Sequence[Obj], observed: Iterable[Mapping[str, Any]]) -> list[Write]:
    """Writes that make of the observed slices the desired ones.

    A destination that is wanted and is there is never away in between, if the writes are done in this order: slices
    that get destinations come before those that lose them, and deletions come last.  If slices exchange destinations,
    one of them is first written with both; then the plan ends there, and has to be made again.
    """
    return _Plan(placement, desired, observed).writes()


class _Plan:
    """Only slices that are to change are looked at: what another one says is there all the time."""

    def __init__(self, placement: Placement, desired: Sequence[Obj], observed: Iterable[Mapping[str, Any]]) -> None:
        self._placement = placement
        self._desired = {obj["metadata"]["name"]: obj for obj in desired}
        self._observed = {obj["metadata"]["name"]: obj for obj in observed}
        self._missing = [name for name in self._desired if name not in self._observed]
        self._changed = [name for name in self._desired if name in self._observed and self._differs(name)]
        self._gone = [
            name for name, obj in self._observed.items() if name not in self._desired and is_extra(placement, obj)
        ]
        self._new = {name: destinations_of(self._desired[name]) for name in (*self._missing, *self._changed)}
        self._old = {name: destinations_of(self._observed[name]) for name in (*self._changed, *self._gone)}
        self._wanted = {destination for part in self._new.values() for destination in part}
        self._held = Counter(destination for part in self._old.values() for destination in set(part))

    def writes(self) -> list[Write]:
        writes: list[Write] = [self._create(name) for name in self._missing]
        for name in self._missing:
            self._held.update(self._new[name])
        waiting = self._changed
        while waiting:
            safe = [name for name in waiting if self._pass(name)]
            writes += [self._update(name, self._desired[name]["destinations"]) for name in safe]
            waiting = [name for name in waiting if name not in safe]
            if waiting and not safe:
                writes.append(self._update(waiting[0], list(map(_entry, self._both(waiting[0])))))
                return writes
        return [*writes, *map(self._delete, sorted(self._gone, reverse=True))]

    def _pass(self, name: str) -> bool:
        """Count a slice as written, unless something would be lost."""
        old, new = set(self._old[name]), set(self._new[name])
        lost = old - new
        if any(destination in self._wanted and self._held[destination] < 2 for destination in lost):
            return False
        self._held.subtract(lost)
        self._held.update(new - old)
        return True

    def _both(self, name: str) -> list[Destination]:
        kept = [destination for destination in self._old[name] if destination in self._wanted]
        return sorted({*self._new[name], *kept})

    def _differs(self, name: str) -> bool:
        observed, desired = self._observed[name], self._desired[name]
        metadata = observed["metadata"]
        label, wanted = (metadata.get("labels") or {}).get(SOURCE), desired["metadata"].get("labels", {}).get(SOURCE)
        return bool(
            observed.get("destinations") != desired["destinations"]
            or list(owners(observed)) != desired["metadata"]["ownerReferences"]
            or label != wanted
        )

    def _create(self, name: str) -> Create:
        return Create(self._placement.key.cluster, SLICES, "", name, self._desired[name])

    def _update(self, name: str, destinations: list[Obj]) -> Update:
        """What others said of the slice stays."""
        observed, desired = self._observed[name], self._desired[name]
        metadata = {key: value for key, value in observed["metadata"].items() if key != "managedFields"}
        ours = list(owners(observed))
        others = [one for one in metadata.get("ownerReferences") or () if one not in ours]
        metadata["ownerReferences"] = [*others, *desired["metadata"]["ownerReferences"]]
        labels = {key: value for key, value in (metadata.pop("labels", None) or {}).items() if key != SOURCE}
        labels |= desired["metadata"].get("labels", {})
        if labels:
            metadata["labels"] = labels
        obj = {"apiVersion": SLICES.api_version, "kind": SLICES.kind, "metadata": metadata}
        return Update(self._placement.key.cluster, SLICES, "", name, {**obj, "destinations": destinations})

    def _delete(self, name: str) -> Delete:
        uid = self._observed[name]["metadata"].get("uid", "")
        return Delete(self._placement.key.cluster, SLICES, "", name, uid)
