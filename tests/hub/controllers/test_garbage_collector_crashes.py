"""The garbage collector on random graphs, killed between any two writes, against a twin that knows no index, no queue
and no wake-ups: it looks at everything again and again until nothing changes.

In which order objects are looked at is nobody's promise, and sometimes the end depends on it: an owner that waits for
its dependents in the foreground, and for somebody else's finalizer as well, may be seen waiting or not.  So the twin
looks in every order, and the collector must end in one of its ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from examples import examples
from house import House, owned_by
from hypothesis import example, given, settings
from hypothesis import strategies as st
from memory_store import MemoryStore

from farflung.hub.catalog import objects
from farflung.machinery.errors import Obj
from farflung.store.base import Entry, Revision

HOLD = "example.com/hold"
#: where objects are: two namespaces, or the cluster itself
SCOPES = ("default", "kube-public", "")
Shape = dict[str, tuple[set[str], bool, str]]
FINALIZERS = {"Background": "", "Foreground": "foregroundDeletion", "Orphan": "orphan"}


class Mortal(MemoryStore):
    """After some writes every further one waits for ever, as in a process that is about to be killed."""

    left: int | None = None

    def __init__(self) -> None:
        super().__init__(stamp=objects.stamp)
        self.stuck = asyncio.Event()

    async def _live(self) -> None:
        if self.left is None:
            return
        if self.left == 0:
            self.stuck.set()
            await asyncio.Event().wait()
        self.left -= 1

    async def put(self, key: str, value: bytes, *, expect: Revision) -> Entry:
        await self._live()
        return await super().put(key, value, expect=expect)

    async def delete(self, key: str, *, expect: Revision) -> Revision:
        await self._live()
        return await super().delete(key, expect=expect)


# --- the twin -------------------------------------------------------------------------------------


UNKNOWN = ("absent", "unclear")  #: states of what cannot be the owner


@dataclass
class Thing:
    scope: str
    owners: dict[int, bool]  #: number → whether it blocks
    held: bool
    deleted: bool = False
    mark: str = ""


@dataclass
class Twin:
    things: dict[int, Thing] = field(default_factory=dict)

    def delete(self, number: int, policy: str) -> None:
        thing = self.things[number]
        thing.deleted, thing.mark = True, FINALIZERS[policy]
        self._let_go(number)

    def release(self, number: int) -> None:
        self.things[number].held = False
        self._let_go(number)

    def _let_go(self, number: int) -> None:
        thing = self.things[number]
        if thing.deleted and not thing.held and not thing.mark:
            del self.things[number]

    def copy(self) -> Twin:
        return Twin({number: replace(thing, owners=dict(thing.owners)) for number, thing in self.things.items()})

    def identity(self) -> object:
        return tuple(
            (number, tuple(sorted(thing.owners.items())), thing.held, thing.deleted, thing.mark)
            for number, thing in sorted(self.things.items())
        )

    def after_looks(self) -> Iterator[Twin]:
        """What one look can make of it."""
        for number in self.things:
            changed = self.copy()
            if changed._look(number):
                yield changed

    def _look(self, number: int) -> bool:
        """Whether there was something to do."""
        thing = self.things[number]
        states = {owner: self._state(thing, owner) for owner in thing.owners}
        if orphaned := [owner for owner, state in states.items() if state == "orphaning"]:
            return self._disown(thing, orphaned)
        if thing.deleted:
            return self._finish(number, thing)
        if not states or "unclear" in states.values():
            return False
        waiting = [owner for owner, state in states.items() if state == "waiting"]
        absent = [owner for owner, state in states.items() if state == "absent"]
        if "present" in states.values():
            return self._disown(thing, waiting + absent)
        if waiting and self._circular(number):
            return self._unblock(thing)
        self.delete(number, "Foreground" if waiting and any(self._dependents(number)) else "Background")
        return True

    def _finish(self, number: int, thing: Thing) -> bool:
        dependents = list(self._dependents(number))
        holding = dependents if thing.mark == "orphan" else [one for one in dependents if one.owners[number]]
        if thing.mark and not holding:
            thing.mark = ""
            self._let_go(number)
            return True
        return thing.mark == "foregroundDeletion" and self._circular(number) and self._unblock(thing)

    def _state(self, thing: Thing, owner: int) -> str:
        where = SCOPES[owner % len(SCOPES)]
        if where and not thing.scope:
            return "unclear"
        if owner not in self.things or where not in ("", thing.scope):
            return "absent"
        marks = {"": "present", "orphan": "orphaning", "foregroundDeletion": "waiting"}
        return marks[self.things[owner].mark]

    def _dependents(self, number: int) -> Iterator[Thing]:
        for thing in self.things.values():
            if number in thing.owners and self._state(thing, number) not in UNKNOWN:
                yield thing

    def _circular(self, number: int) -> bool:
        seen: set[int] = set()
        ahead = self._held_by(self.things[number])
        while ahead:
            owner = ahead.pop()
            if owner == number:
                return True
            thing = self.things.get(owner)
            if owner not in seen and thing is not None and thing.mark == "foregroundDeletion":
                seen.add(owner)
                ahead += self._held_by(thing)
        return False

    def _held_by(self, thing: Thing) -> list[int]:
        """The owners whose deletion a thing blocks, if they can be its owners."""
        return [one for one, blocks in thing.owners.items() if blocks and self._state(thing, one) not in UNKNOWN]

    @staticmethod
    def _disown(thing: Thing, owners: list[int]) -> bool:
        for owner in owners:
            del thing.owners[owner]
        return bool(owners)

    @staticmethod
    def _unblock(thing: Thing) -> bool:
        changed = any(thing.owners.values())
        thing.owners = dict.fromkeys(thing.owners, False)
        return changed

    def shape(self) -> Shape:
        """What is left: each with its owners, whether it is being deleted, and what for."""
        return {
            f"o{number}": ({f"o{owner}" for owner in thing.owners}, thing.deleted, thing.mark)
            for number, thing in self.things.items()
        }


def ends_of(twins: Iterable[Twin]) -> list[Twin]:
    """Where looking at everything, in whatever order, ends."""
    ahead, seen, ends = list(twins), set[object](), list[Twin]()
    while ahead:
        twin = ahead.pop()
        if (identity := twin.identity()) not in seen:
            seen.add(identity)
            further = list(twin.after_looks())
            ahead += further
            if not further:
                ends.append(twin)
    return ends


# --- the real one ---------------------------------------------------------------------------------


def kind_of(number: int) -> tuple[str, str]:
    scope = SCOPES[number % len(SCOPES)]
    return ("configmaps", scope) if scope else ("clusterroles", "")


async def plant(house: House, twin: Twin) -> None:
    made: dict[int, Obj] = {}
    for number, thing in twin.things.items():
        kind, scope = kind_of(number)
        finalizers = [HOLD] if thing.held else []
        made[number] = await house.create(kind, f"o{number}", scope, finalizers=finalizers)
    for number, thing in twin.things.items():
        if thing.owners:
            kind, scope = kind_of(number)
            references = [owned_by(made[owner], block=blocks) for owner, blocks in thing.owners.items()]
            await house.patch(kind, f"o{number}", {"metadata": {"ownerReferences": references}}, scope)


async def shape_of(house: House) -> Shape:
    found: Shape = {}
    for kind, scope in map(kind_of, range(len(SCOPES))):
        listed = await house.client.request("GET", house.path(kind, namespace=scope))
        for item in listed["items"]:
            metadata = item["metadata"]
            if metadata["name"].startswith("o") and metadata["name"][1:].isdigit():
                owners = {one["name"] for one in metadata.get("ownerReferences", [])}
                marks = [one for one in metadata.get("finalizers", []) if one != HOLD]
                found[metadata["name"]] = (owners, "deletionTimestamp" in metadata, "".join(marks))
    return found


async def settle(house: House, store: Mortal, crashes: list[int]) -> None:
    """Let it work, and be killed and started anew after so many writes, each time."""
    for writes in crashes:
        store.left, store.stuck = writes, asyncio.Event()
        done = asyncio.create_task(house.controllers.finished())
        stuck = asyncio.create_task(store.stuck.wait())
        async with asyncio.timeout(60):
            await asyncio.wait([done, stuck], return_when=asyncio.FIRST_COMPLETED)
        done.cancel()
        stuck.cancel()
        await house.stop()
        store.left = None
        await house.restart()
    await house.settle()


@st.composite
def gardens(draw: st.DrawFn) -> Twin:
    size = draw(st.integers(1, 7))
    owners = st.dictionaries(st.integers(0, size - 1), st.booleans(), max_size=3)
    held = st.sampled_from([False, False, True])
    return Twin({number: Thing(kind_of(number)[1], draw(owners), draw(held)) for number in range(size)})


deeds = st.lists(
    st.tuples(
        st.integers(0, 6),
        st.sampled_from(["Background", "Foreground", "Orphan", "release"]),
        st.lists(st.integers(0, 6), max_size=2),
    ),
    min_size=1,
    max_size=4,
)


Deeds = list[tuple[int, str, list[int]]]


@settings(max_examples=examples(30))
@given(gardens(), deeds)
# a cluster-scoped object that names an object of a namespace: that reference makes no circle
@example(
    Twin({0: Thing("default", {}, False), 1: Thing("kube-public", {2: True}, True), 2: Thing("", {1: True}, False)}),
    [(2, "Foreground", [])],
)
async def test_after_any_deletions_and_kills_the_result_is_that_of_the_twin(twin: Twin, done: Deeds) -> None:
    await compare(twin, done)


async def compare(twin: Twin, done: Deeds) -> None:
    store = Mortal()
    async with House(store) as house:
        await house.stop()
        await plant(house, twin)
        await house.restart()
        await settle(house, store, [])
        twins = await as_seen(house, [twin])
        for number, deed, crashes in done:
            thing = twins[0].things.get(number)
            if thing is None or (deed == "release") != thing.deleted or (deed == "release" and not thing.held):
                continue
            kind, scope = kind_of(number)
            if deed == "release":
                left = [thing.mark] if thing.mark else None
                await house.patch(kind, f"o{number}", {"metadata": {"finalizers": left}}, scope)
            else:
                await house.delete(kind, f"o{number}", scope, policy=deed)
            for one in twins:
                if deed == "release":
                    one.release(number)
                else:
                    one.delete(number, deed)
            await settle(house, store, crashes)
            twins = await as_seen(house, twins)


async def as_seen(house: House, twins: list[Twin]) -> list[Twin]:
    """The ends of the twins that look like what is there: there must be one."""
    ends, seen = ends_of(twins), await shape_of(house)
    alike = [one for one in ends if one.shape() == seen]
    assert alike, (seen, [one.shape() for one in ends])
    return alike
