"""Decisions of the edge scheduler: slices and status of one EdgePlacement.  Pure.

Up to `LIMIT` destinations form one SinglePlacementSlice with the name of its EdgePlacement.  More destinations are
sorted and cut: each slice ends before the destination with the least hash among those that could be next.  So a cut
hardly depends on the other destinations, and a change usually touches one slice.  The first slice has the name of the
EdgePlacement, every other one the hash of its first destination.

An EdgePlacement with a problem (`resolution.problem`) keeps its slices, but destinations that its author lost, and its
status reports the problem.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from farflung.apis.edge.authors import Author
from farflung.apis.edge.names import (
    AUTHOR,
    EDGE_PLACEMENTS,
    PLACE,
    SELECTED_COUNT,
    SINGLE_PLACEMENT_SLICES,
    SOURCE_PLACEMENT,
)
from farflung.apis.kcp.names import LOCATIONS
from farflung.lib.words import count
from farflung.machinery import names
from farflung.machinery.errors import Obj, go_quote
from farflung.placement.names import PLACING_NOT_ALLOWED
from farflung.placement.resolve import Resolution
from farflung.placement.types import (
    DIGITS,
    Destination,
    Placement,
    destinations_of,
    is_extra,
    owners,
    short_hash,
    source_label,
)
from farflung.runtime.plan import Create, Delete, Update, UpdateStatus, Write

LIMIT: Final = 5_000
_SLICE: Final = {"apiVersion": SINGLE_PLACEMENT_SLICES.api_version, "kind": SINGLE_PLACEMENT_SLICES.kind}
_OWNER: Final = {"apiVersion": EDGE_PLACEMENTS.api_version, "kind": EDGE_PLACEMENTS.kind}


# --- desired slices -------------------------------------------------------------------------------


def sliced(placement: Placement, destinations: Sequence[Destination], limit: int = LIMIT) -> list[Obj]:
    """The desired slices.  `destinations` is sorted."""
    parts = list(_cut(destinations, limit))
    name = placement.key.name
    labels = {SOURCE_PLACEMENT: source_label(name)} if len(parts) > 1 else {}
    return [
        {
            **_SLICE,
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
    suffix = short_hash(placement.uid, *first)
    return f"{placement.key.name[: names.DNS_SUBDOMAIN_LENGTH - DIGITS - 1].rstrip('-.')}-{suffix}"


def _entry(destination: Destination) -> Obj:
    cluster, location, target, uid = destination
    return {"cluster": cluster, "locationName": location, "syncTargetName": target, "syncTargetUID": uid}


def owner_reference(placement: Placement) -> Obj:
    return {**_OWNER, "name": placement.key.name, "uid": placement.uid}


# --- from the one to the other --------------------------------------------------------------------


def plan_slices(placement: Placement, desired: Sequence[Obj], observed: Iterable[Mapping[str, Any]]) -> list[Write]:
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
        label, wanted = (
            (metadata.get("labels") or {}).get(SOURCE_PLACEMENT),
            desired["metadata"].get("labels", {}).get(SOURCE_PLACEMENT),
        )
        return bool(
            observed.get("destinations") != desired["destinations"]
            or list(owners(observed)) != desired["metadata"]["ownerReferences"]
            or label != wanted
        )

    def _create(self, name: str) -> Create:
        return Create(self._placement.key.cluster, SINGLE_PLACEMENT_SLICES, "", name, self._desired[name])

    def _update(self, name: str, destinations: list[Obj]) -> Update:
        """Keeps the fields of other clients."""
        observed, desired = self._observed[name], self._desired[name]
        metadata = {key: value for key, value in observed["metadata"].items() if key != "managedFields"}
        ours = list(owners(observed))
        others = [one for one in metadata.get("ownerReferences") or () if one not in ours]
        metadata["ownerReferences"] = [*others, *desired["metadata"]["ownerReferences"]]
        labels = {key: value for key, value in (metadata.pop("labels", None) or {}).items() if key != SOURCE_PLACEMENT}
        labels |= desired["metadata"].get("labels", {})
        if labels:
            metadata["labels"] = labels
        obj = {**_SLICE, "metadata": metadata, "destinations": destinations}
        return Update(self._placement.key.cluster, SINGLE_PLACEMENT_SLICES, "", name, obj)

    def _delete(self, name: str) -> Delete:
        uid = self._observed[name]["metadata"].get("uid", "")
        return Delete(self._placement.key.cluster, SINGLE_PLACEMENT_SLICES, "", name, uid)


READY: Final = "Ready"
NOTHING_SELECTED: Final = (
    "no object of the workspace matches spec.namespaceSelector, spec.downsync or spec.nonNamespacedObjects; compare "
    "them with the objects, and with the labels of their namespaces: kubectl get namespaces --show-labels"
)
SHOWN_OBJECTS: Final = 3  #: failing objects in a message


def desired(placement: Placement, resolution: Resolution, limit: int = LIMIT) -> list[Obj] | None:
    """The desired slices; None if the placement has a problem, and keeps all of its slices."""
    return None if resolution.problem and not resolution.lost else sliced(placement, resolution.destinations, limit)


def plan(placement: Placement, wanted: Sequence[Obj] | None, observed: Iterable[Mapping[str, Any]]) -> list[Write]:
    """`observed`: the slice with the name of the placement, and those that it owns; others are ignored."""
    return [] if wanted is None else plan_slices(placement, wanted, observed)


def status(placement: Placement, resolution: Resolution, observed: Mapping[str, Any] | None, now: str) -> Obj | None:
    """The desired status of the placement; None if it has it.  `now`: a timestamp.  The placement translator writes the
    number of selected objects, which decides about Ready too."""
    before = observed or {}
    conditions = [dict(one) for one in before.get("conditions") or () if isinstance(one, dict)]
    ready = _ready(placement, resolution, before.get(SELECTED_COUNT))
    at = next((at for at, one in enumerate(conditions) if one.get("type") == READY), None)
    if at is None:
        conditions.append({**ready, "lastTransitionTime": now})
    elif {key: value for key, value in conditions[at].items() if key != "lastTransitionTime"} != ready:
        conditions[at] = {**ready, "lastTransitionTime": now}
    matching = before.get("matchingLocationCount") or 0 if resolution.problem else resolution.matching
    after = {
        **before,
        "specGeneration": placement.generation,
        "matchingLocationCount": matching,
        "conditions": conditions,
    }
    return None if after == before else after


def _ready(placement: Placement, resolution: Resolution, selected: int | None) -> Obj:
    if resolution.problem:
        return _condition("False", "Error", "InvalidSpec", resolution.problem)
    if resolution.failing:
        shown = ", ".join(resolution.failing[:SHOWN_OBJECTS])
        return _condition(
            "False",
            "Error",
            "SchedulerFailed",
            f"destinations stay, because the edge scheduler fails to process {shown}; change or delete that object, "
            'and report the scheduler\'s log line "engine failed and will be rebuilt"',
        )
    if placement.author is None:
        return _condition(
            "False",
            "Warning",
            "AuthorUnknown",
            "its author is not recorded, so it keeps its destinations and gets no new ones; a user who may place on "
            f"its Locations has to change its spec, or to run: {claim(placement.key.name)}",
        )
    if resolution.undecided:
        return _condition(
            "False",
            "Error",
            "AccessReviewFailed",
            "it keeps its destinations and gets no new ones, because the edge scheduler cannot review on which "
            "Locations its author may place; report the scheduler's log line \"placing-rights controller didn't sync\"",
        )
    return _ready_if_enough(placement, resolution, selected)


def _ready_if_enough(placement: Placement, resolution: Resolution, selected: int | None) -> Obj:
    matching = resolution.matching
    match = "matches" if matching == 1 else "match"
    left_out = _left_out(placement.author) if resolution.left_out and placement.author is not None else None
    further = "" if left_out is None else f"; {left_out.message}"
    if placement.number is not None and resolution.chosen < placement.number:
        found = f"{resolution.chosen} of {count(placement.number, 'Location')} can be used; {matching} {match}{further}"
        return _condition("False", "Warning", "NotEnoughLocations", found)
    if not resolution.destinations:
        if left_out is not None and not matching:
            return _condition("False", "Warning", left_out.reason, left_out.message)
        nothing = "has no" if matching == 1 else "none of them has a"
        found = f"{count(matching, 'Location')} {match}, and {nothing} SyncTarget that can be used"
        return _condition(
            "False", "Warning", "NoDestinations", f"{found}{further}" if matching else "no Location matches"
        )
    if selected == 0 and not placement.workload.upsync:
        return _condition("False", "Warning", "NothingSelected", NOTHING_SELECTED)
    ready = {"type": READY, "status": "True", "reason": "Resolved"}
    return ready if left_out is None else ready | {"message": left_out.message}


class _LeftOut(NamedTuple):
    reason: str
    message: str


def _left_out(author: Author) -> _LeftOut:
    """Why matching Locations are left out.  Does not say which or how many, because they are other tenants'."""
    if not author.user:
        message = "the edge scheduler does not trust this workspace: name it with --trust-workspaces"
        return _LeftOut("WorkspaceNotTrusted", message)
    return _LeftOut(
        PLACING_NOT_ALLOWED,
        f"matching Locations are left out, because the author of the spec, {go_quote(author.user)}, may not place "
        f'there; ask their owners for the verb "{PLACE}" on {LOCATIONS.plural}.{LOCATIONS.group} and for access to '
        "their workspace",
    )


def claim(name: str) -> str:
    """The command that makes its user the author of an EdgePlacement without one."""
    return f"kubectl annotate edgeplacement {name} {AUTHOR}=me"


def _condition(status: str, severity: str, reason: str, message: str) -> Obj:
    return {"type": READY, "status": status, "severity": severity, "reason": reason, "message": message}


def plan_status(placement: Placement, obj: Mapping[str, Any], resolution: Resolution, now: str) -> list[Write]:
    """`obj`: the EdgePlacement as it was read."""
    after = status(placement, resolution, obj.get("status"), now)
    if after is None:
        return []
    cluster, name = placement.key
    return [UpdateStatus(cluster, EDGE_PLACEMENTS, "", name, {**obj, "status": after})]
