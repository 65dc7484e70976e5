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

from farflung.apis.names import Collection
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
    """Writes that turn the observed slices into the desired ones.  Each slice is written at most once.

    If the writes are applied in this order, a destination that is observed and desired is present throughout: a slice
    drops such a destination only while another slice has it, and deletions are last.  Slices that exchange
    destinations cannot all drop theirs first, so one of them gets its desired destinations and keeps those that
    others still need; the next plan removes them.

    Repeated plans end, also if only some of their writes succeed: every write decreases

        the number of desired destinations that are absent from their slice
        + the number of slices that are missing, differ or are superfluous

    and the plan is empty when this number is 0.  After one whole plan every desired slice has its destinations, so the
    second plan only drops and deletes, and the third is empty.
    """
    return _Plan(placement, desired, observed).writes()


class _Plan:
    """Looks only at slices that have to change: an unchanged slice keeps its destinations throughout."""

    def __init__(self, placement: Placement, desired: Sequence[Obj], observed: Iterable[Mapping[str, Any]]) -> None:
        self._placement = placement
        self._desired = {obj["metadata"]["name"]: obj for obj in desired}
        self._observed = {obj["metadata"]["name"]: obj for obj in observed}
        self._missing = [name for name in self._desired if name not in self._observed]
        self._changed = [name for name in self._desired if name in self._observed and self._differs(name)]
        self._superfluous = [
            name for name, obj in self._observed.items() if name not in self._desired and is_extra(placement, obj)
        ]
        self._new = {name: set(destinations_of(self._desired[name])) for name in (*self._missing, *self._changed)}
        self._old = {name: set(destinations_of(self._observed[name])) for name in (*self._changed, *self._superfluous)}
        self._needed = {destination for part in self._new.values() for destination in part}
        #: in how many slices a destination is after the writes so far
        self._copies = Counter(destination for part in self._old.values() for destination in part)

    def writes(self) -> list[Write]:
        writes: list[Write] = []
        for name in self._missing:
            self._copies.update(self._new[name])
            writes.append(self._create(name))
        waiting = self._changed
        while waiting:
            later = []
            for name in waiting:
                if self._may_drop(name):
                    self._copies.subtract(self._old[name] - self._new[name])
                    self._copies.update(self._new[name] - self._old[name])
                    writes.append(self._update(name, self._desired[name]["destinations"]))
                else:
                    later.append(name)
            if len(later) == len(waiting):
                writes.append(self._extend(later))
            waiting = later
        return [*writes, *map(self._delete, sorted(self._superfluous, reverse=True))]

    def _may_drop(self, name: str) -> bool:
        """Whether every needed destination that the slice has to drop is in another slice, too."""
        dropped = self._old[name] - self._new[name]
        return all(self._copies[destination] > 1 for destination in dropped & self._needed)

    def _extend(self, waiting: list[str]) -> Update:
        """Give one of the slices that wait for each other its new destinations, and let it keep the old ones that are
        needed.  It is removed from `waiting`.

        There is one that lacks a new destination.  Otherwise each would have all of its own, a needed destination that
        another one has to drop would be in two slices, and none would wait."""
        name = next(name for name in waiting if not self._new[name] <= self._old[name])
        waiting.remove(name)
        self._copies.update(self._new[name] - self._old[name])
        return self._update(name, list(map(_entry, sorted(self._new[name] | (self._old[name] & self._needed)))))

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
