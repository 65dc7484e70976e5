"""Who owns whom, and what follows from it: the garbage collector's decisions, without its actions.

    owner gone                          its dependents lose the reference; one that loses its last goes too
    owner waits (foregroundDeletion)    its dependents go first; those with blockOwnerDeletion hold it
    owner lets go (orphan)              its dependents lose the reference and stay
    owners wait in a circle             one of them stops holding the next

Every object is decided on alone, from the state of its owners and a word about its dependents, and every decision
is one write to that object.  The write is a change, the change is looked at: so a cascade walks by itself, and can be
taken up by anyone at any point.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

import msgspec

from farflung.machinery.names import FOREGROUND, ORPHAN
from farflung.store.base import Entry

# --- what is known of an object -------------------------------------------------------------------


class Reference(msgspec.Struct, frozen=True, gc=False):
    """One of an object's owners, as the object names it."""

    apiVersion: str
    kind: str
    name: str
    uid: str
    blockOwnerDeletion: bool | None = None


class Identity(msgspec.Struct, frozen=True):
    """The part of an object's metadata that decides who goes with whom."""

    uid: str
    deletionTimestamp: str | None = None
    ownerReferences: tuple[Reference, ...] | None = None
    finalizers: tuple[str, ...] | None = None

    @property
    def references(self) -> tuple[Reference, ...]:
        return self.ownerReferences or ()

    @property
    def mark(self) -> str:
        """The garbage collector's finalizer that the object is being deleted with, if there is one."""
        if self.deletionTimestamp is not None and self.finalizers:
            for mark in (ORPHAN, FOREGROUND):
                if mark in self.finalizers:
                    return mark
        return ""


class _Object(msgspec.Struct):
    metadata: Identity


_decode = msgspec.json.Decoder(_Object).decode
_MANAGED_FIELDS: Final = b'"managedFields":['


def identity_of(entry: Entry) -> Identity:
    return _decode(entry.value).metadata


def is_concerned(value: bytes) -> bool:
    """Whether an encoded object may have owners or be on its way out.  Cheap, as it is asked of every write: what
    matters stands before the managedFields."""
    end = value.find(_MANAGED_FIELDS)
    if end < 0:
        end = len(value)
    return value.find(b'"ownerReferences"', 0, end) >= 0 or value.find(b'"deletionTimestamp"', 0, end) >= 0


# --- what to do with it ---------------------------------------------------------------------------


class Owner(Enum):
    """The state of an object that another one calls its owner."""

    PRESENT = "there, and nothing says that its dependents should go"
    ABSENT = "not there, or another object has its name now"
    WAITING = "being deleted, after its dependents"
    ORPHANING = "being deleted, without its dependents"
    UNCLEAR = "of a kind that is not served, or that cannot own this object"


@dataclass(frozen=True, slots=True)
class Following:
    """What an object's dependents are like."""

    any: bool = False
    blocking: bool = False  #: some hold it until they are gone
    circular: bool = False  #: it holds an owner that waits for an owner … that waits for the object itself


@dataclass(frozen=True, slots=True)
class Leave:
    """Nothing is to be done, or not yet."""


@dataclass(frozen=True, slots=True)
class Delete:
    policy: str


@dataclass(frozen=True, slots=True)
class Disown:
    """Remove the references to these owners."""

    uids: frozenset[str]


@dataclass(frozen=True, slots=True)
class Unblock:
    """Hold no owner any longer."""


@dataclass(frozen=True, slots=True)
class Release:
    """Remove a finalizer of the garbage collector."""

    finalizer: str


Action = Leave | Delete | Disown | Unblock | Release
POLICIES: Final = {"": "Background", ORPHAN: "Orphan", FOREGROUND: "Foreground"}


def decide(identity: Identity, owners: Sequence[Owner], following: Following) -> Action:
    """What the garbage collector does with an object.  `owners` are the states of its references, in their order."""
    states = list(zip((reference.uid for reference in identity.references), owners, strict=True))
    if orphaned := _in(states, Owner.ORPHANING):
        return Disown(orphaned)
    if identity.deletionTimestamp is not None:
        return _finish(identity, following)
    if not states or Owner.UNCLEAR in owners:
        return Leave()
    waiting = _in(states, Owner.WAITING)
    if present := _in(states, Owner.PRESENT):
        lost = (waiting | _in(states, Owner.ABSENT)) - present
        return Disown(lost) if lost else Leave()
    if waiting and following.circular:
        return Unblock()
    return Delete("Foreground" if waiting and following.any else _own_policy(identity))


def _in(states: Iterable[tuple[str, Owner]], state: Owner) -> frozenset[str]:
    return frozenset(uid for uid, actual in states if actual is state)


def _finish(identity: Identity, following: Following) -> Action:
    mark = identity.mark
    held = following.any if mark == ORPHAN else following.blocking
    if mark and not held:
        return Release(mark)
    return Unblock() if mark == FOREGROUND and following.circular else Leave()


def _own_policy(identity: Identity) -> str:
    """An object may carry its wish since before anybody deletes it."""
    finalizers = identity.finalizers or ()
    return POLICIES[next((mark for mark in (ORPHAN, FOREGROUND) if mark in finalizers), "")]


# --- the index ------------------------------------------------------------------------------------


class Place(NamedTuple):
    """An owner: the key where it must be, and its uid."""

    key: str
    uid: str


class Hold(NamedTuple):
    """A reference to an owner; one that blocks does not let the owner go first."""

    owner: Place
    blocks: bool


class Dependents:
    """Which objects depend on which, by owner: only objects that have owners are in it."""

    def __init__(self) -> None:
        self._owners: dict[str, dict[Place, bool]] = {}  #: dependent → its owners, and whether it holds them
        self._dependents: dict[Place, dict[str, bool]] = {}  #: the same by owner
        self._blocking: dict[Place, int] = {}  #: owner → how many hold it, if any

    def __contains__(self, key: str) -> bool:
        return key in self._owners

    def set(self, key: str, holds: Iterable[Hold]) -> bool:
        """An object's references.  False if they are what they were."""
        old = self._owners.get(key, {})
        new: dict[Place, bool] = {}
        for hold in holds:
            new[hold.owner] = hold.blocks or new.get(hold.owner, False)
        if new == old:
            return False
        for owner in old.keys() - new.keys():
            self._remove(key, owner)
        for owner, blocks in new.items():
            self._put(key, owner, blocks)
        if new:
            self._owners[key] = new
        else:
            del self._owners[key]
        return True

    def _put(self, key: str, owner: Place, blocks: bool) -> None:
        dependents = self._dependents.setdefault(owner, {})
        self._count(owner, blocks - dependents.get(key, False))
        dependents[key] = blocks

    def _remove(self, key: str, owner: Place) -> None:
        dependents = self._dependents[owner]
        self._count(owner, -dependents.pop(key))
        if not dependents:
            del self._dependents[owner]

    def _count(self, owner: Place, difference: int) -> None:
        count = self._blocking.pop(owner, 0) + difference
        if count:
            self._blocking[owner] = count

    def owners(self, key: str) -> Collection[Place]:
        return self._owners.get(key, {}).keys()

    def held_by(self, key: str) -> list[str]:
        """The keys of the owners that cannot go before an object."""
        return [owner.key for owner, blocks in self._owners.get(key, {}).items() if blocks]

    def of(self, owner: Place) -> Collection[str]:
        """The keys of an owner's dependents."""
        return self._dependents.get(owner, {}).keys()

    def places(self, prefix: str) -> list[Place]:
        """The owners that somebody depends on, and that are, or were, under a prefix."""
        return [owner for owner in self._dependents if owner.key.startswith(prefix)]

    def block(self, owner: Place) -> bool:
        """Whether some of them hold it."""
        return owner in self._blocking
