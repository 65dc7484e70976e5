"""The graph of owner references, and the garbage collector's decisions about one object.

    owner absent                           remove the reference; delete an object that loses its last owner
    owner deleted in the foreground        delete dependents first; blockOwnerDeletion holds the owner until then
    owner deleted with orphan propagation  remove the reference and keep the dependents
    foreground deletions in a circle       one object stops blocking its owner

Each decision depends on one object, the states of its owners, and a summary of its dependents.  It is one write, and
that write triggers the next decision, so a cascade resumes at any point after a restart.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

import msgspec

from farflung.machinery.names import FOREGROUND, ORPHAN
from farflung.store.base import Entry

# --- objects --------------------------------------------------------------------------------------


class OwnerReference(msgspec.Struct, frozen=True, gc=False):
    apiVersion: str
    kind: str
    name: str
    uid: str
    blockOwnerDeletion: bool | None = None


class OwnershipMetadata(msgspec.Struct, frozen=True):
    """The part of an object's metadata that garbage collection depends on."""

    uid: str
    deletionTimestamp: str | None = None
    ownerReferences: tuple[OwnerReference, ...] | None = None
    finalizers: tuple[str, ...] | None = None

    @property
    def references(self) -> tuple[OwnerReference, ...]:
        return self.ownerReferences or ()

    @property
    def mark(self) -> str:
        """The garbage collector's finalizer of an object that is being deleted, or empty."""
        if self.deletionTimestamp is not None and self.finalizers:
            for mark in (ORPHAN, FOREGROUND):
                if mark in self.finalizers:
                    return mark
        return ""


class _Object(msgspec.Struct):
    metadata: OwnershipMetadata


_decode = msgspec.json.Decoder(_Object).decode


def ownership_of(entry: Entry) -> OwnershipMetadata:
    return _decode(entry.value).metadata


# --- decisions ------------------------------------------------------------------------------------


class OwnerState(Enum):
    PRESENT = "exists, and does not propagate a deletion"
    ABSENT = "does not exist, or another object has its name"
    WAITING = "being deleted in the foreground, after its dependents"
    ORPHANING = "being deleted, orphaning its dependents"
    UNCLEAR = "of a kind that is not served, or that cannot own this object"


@dataclass(frozen=True, slots=True)
class DependentsSummary:
    any: bool = False
    blocking: bool = False  #: some block the deletion of the object
    circular: bool = False  #: the object blocks an owner that waits, over other owners, for the object itself


@dataclass(frozen=True, slots=True)
class NoAction:
    """No action."""


@dataclass(frozen=True, slots=True)
class DeleteDependent:
    policy: str


@dataclass(frozen=True, slots=True)
class RemoveOwners:
    """Remove the references to these owners."""

    uids: frozenset[str]


@dataclass(frozen=True, slots=True)
class Unblock:
    """Set blockOwnerDeletion to false."""


@dataclass(frozen=True, slots=True)
class RemoveFinalizer:
    """Remove a finalizer of the garbage collector."""

    finalizer: str


Action = NoAction | DeleteDependent | RemoveOwners | Unblock | RemoveFinalizer
POLICIES: Final = {"": "Background", ORPHAN: "Orphan", FOREGROUND: "Foreground"}


def decide(metadata: OwnershipMetadata, owners: Sequence[OwnerState], dependents: DependentsSummary) -> Action:
    """`owners`: the states of the object's owner references, in their order."""
    uids = [reference.uid for reference in metadata.references]

    def owners_in(state: OwnerState) -> frozenset[str]:
        return frozenset(uid for uid, actual in zip(uids, owners, strict=True) if actual is state)

    if orphaned := owners_in(OwnerState.ORPHANING):
        return RemoveOwners(orphaned)
    if metadata.deletionTimestamp is not None:
        mark = metadata.mark
        is_held = dependents.any if mark == ORPHAN else dependents.blocking
        if mark and not is_held:
            return RemoveFinalizer(mark)
        return Unblock() if mark == FOREGROUND and dependents.circular else NoAction()
    if not owners or OwnerState.UNCLEAR in owners:
        return NoAction()
    waiting = owners_in(OwnerState.WAITING)
    if present := owners_in(OwnerState.PRESENT):
        lost = (waiting | owners_in(OwnerState.ABSENT)) - present
        return RemoveOwners(lost) if lost else NoAction()
    if waiting and dependents.circular:
        return Unblock()
    return DeleteDependent("Foreground" if waiting and dependents.any else _own_policy(metadata))


def _own_policy(metadata: OwnershipMetadata) -> str:
    """The propagation policy that a finalizer of the object asks for."""
    finalizers = metadata.finalizers or ()
    return POLICIES[next((mark for mark in (ORPHAN, FOREGROUND) if mark in finalizers), "")]


# --- the graph ------------------------------------------------------------------------------------


class OwnerNode(NamedTuple):
    """An owner by store key and uid.  The key is empty if the owner's kind is not served."""

    key: str
    uid: str


class OwnerEdge(NamedTuple):
    owner: OwnerNode
    blocks: bool  #: blockOwnerDeletion


class OwnerGraph:
    """OwnerGraph by owner and owners by dependent.  It contains only objects with owner references."""

    def __init__(self) -> None:
        self._owners: dict[str, dict[OwnerNode, bool]] = {}  #: dependent → its owners, and whether it blocks them
        self._dependents: dict[OwnerNode, dict[str, bool]] = {}  #: owner → its dependents, and whether they block it
        self._blocking: dict[OwnerNode, int] = {}  #: owner → number of dependents that block it, if any

    def __contains__(self, key: str) -> bool:
        return key in self._owners

    def set(self, key: str, edges: Iterable[OwnerEdge]) -> bool:
        """Replace an object's owner references.  Returns whether they changed."""
        old = self._owners.get(key, {})
        new: dict[OwnerNode, bool] = {}
        for edge in edges:
            new[edge.owner] = edge.blocks or new.get(edge.owner, False)
        if new == old:
            return False
        for owner in old.keys() - new.keys():
            dependents = self._dependents[owner]
            self._count(owner, -dependents.pop(key))
            if not dependents:
                del self._dependents[owner]
        for owner, blocks in new.items():
            dependents = self._dependents.setdefault(owner, {})
            self._count(owner, blocks - dependents.get(key, False))
            dependents[key] = blocks
        if new:
            self._owners[key] = new
        else:
            del self._owners[key]
        return True

    def _count(self, owner: OwnerNode, difference: int) -> None:
        count = self._blocking.pop(owner, 0) + difference
        if count:
            self._blocking[owner] = count

    def owners(self, key: str) -> Collection[OwnerNode]:
        return self._owners.get(key, {}).keys()

    def blocked_by(self, key: str) -> list[str]:
        """The keys of the owners that an object blocks."""
        return [owner.key for owner, blocks in self._owners.get(key, {}).items() if blocks]

    def dependents(self, owner: OwnerNode) -> Collection[str]:
        """The keys of an owner's dependents."""
        return self._dependents.get(owner, {}).keys()

    def owners_under(self, prefix: str) -> list[OwnerNode]:
        """Owners with dependents whose key has a prefix, whether they still exist or not."""
        return [owner for owner in self._dependents if owner.key.startswith(prefix)]

    def is_blocked(self, owner: OwnerNode) -> bool:
        return owner in self._blocking
