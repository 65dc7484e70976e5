"""Every backend against a dumb twin: the log as a list of lines, replayed for every question."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest
from examples import examples
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from memory_store import MemoryStore, stream

from farflung.store.base import ABSENT, FIRST, Change, Compacted, Conflict, FutureRevision, Page, Store
from farflung.store.compaction import PER_SECOND
from farflung.store.sqlite.store import SqliteStore

T = TypeVar("T")

KEYS = [
    *(f"/core/configmaps/{cluster}/{name}" for cluster in ("one", "one-b", "two") for name in ("x", "y/z", "y-a/z")),
    *(f"/core/configmapsets/one/y/{name}" for name in "abc"),
]
PREFIXES = [
    "/core/configmaps/",
    "/core/configmaps/one/",
    "/core/configmaps/one/y/",
    "/core/configmapsets/one/",
    "/apps/deployments/",
]

keys = st.sampled_from(KEYS)
prefixes = st.sampled_from(PREFIXES)
limits = st.integers(0, 4)
afters = st.sampled_from(["", *KEYS])
steps_back = st.integers(-1, 12)
Told = list[tuple[int, str, bytes | None, bytes | None]]


class Model:
    """The log as a list of (revision, key, value)."""

    def __init__(self) -> None:
        self.lines: list[tuple[int, str, bytes | None]] = []
        self.revision = FIRST
        self.oldest = FIRST
        self.gaps: list[tuple[int, int]] = []

    def reopen(self, now: float) -> None:
        first = max(self.revision, int(now * PER_SECOND))
        if self.revision != FIRST and first != self.revision:
            self.gaps.append((self.revision, first))
            self.revision = first

    def end_of_gap(self, revision: int) -> int:
        return next((first for last, first in self.gaps if last < revision < first), revision)

    def write(self, key: str, value: bytes | None) -> int:
        self.revision += 1
        self.lines.append((self.revision, key, value))
        return self.revision

    def state(self, at: int) -> dict[str, tuple[int, bytes]]:
        state: dict[str, tuple[int, bytes]] = {}
        for revision, key, value in self.lines:
            if revision <= at:
                state.pop(key, None)
                if value is not None:
                    state[key] = (revision, value)
        return state

    def actual(self, key: str) -> int:
        return self.state(self.revision).get(key, (ABSENT, b""))[0]

    def changes(self, prefix: str, since: int, until: int) -> Told:
        return [
            (revision, key, value, self.state(revision - 1).get(key, (0, None))[1])
            for revision, key, value in self.lines
            if since < revision <= until and key.startswith(prefix)
        ]


def told(changes: Sequence[Change]) -> Told:
    return [
        (
            change.revision,
            change.key,
            change.entry.value if change.entry else None,
            change.previous.value if change.previous else None,
        )
        for change in changes
    ]


def stamp(value: bytes, revision: int) -> bytes:
    return b"%b@%d" % (value.split(b"@")[0], revision)


class Comparison(RuleBasedStateMachine):
    """Does the same to a store and to the model, and asks both the same."""

    async def open(self, directory: Path) -> Store:
        raise NotImplementedError

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.directory = tempfile.TemporaryDirectory()
        self.store = self.run(self.open(Path(self.directory.name)))
        self.model = Model()
        self.watches: list[tuple[str, int, AsyncIterator[Change]]] = []

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    def teardown(self) -> None:
        self.check_watches()
        self.run(self.store.close())
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()
        self.directory.cleanup()

    @rule(key=keys, value=st.binary(max_size=3), off=st.sampled_from([0, 0, 0, 1, -1]))
    def put(self, key: str, value: bytes, off: int) -> None:
        actual = self.model.actual(key)
        expect = max(actual + off, ABSENT)
        if expect == actual:
            entry = self.run(self.store.put(key, value, expect=expect))
            assert entry.revision == self.model.write(key, stamp(value, entry.revision))
        else:
            with pytest.raises(Conflict) as refused:
                self.run(self.store.put(key, value, expect=expect))
            assert refused.value.actual == actual

    @rule(key=keys)
    def delete(self, key: str) -> None:
        actual = self.model.actual(key)
        if actual == ABSENT:
            with pytest.raises(Conflict):
                self.run(self.store.delete(key, expect=actual))
        else:
            revision = self.run(self.store.delete(key, expect=actual))
            assert revision == self.model.write(key, None)

    @rule(wanted=st.lists(keys, min_size=2, max_size=8))
    def many_write_at_once(self, wanted: list[str]) -> None:
        async def write() -> list[Any]:
            tries = [self.store.put(key, b"many", expect=self.model.actual(key)) for key in wanted]
            return await asyncio.gather(*tries, return_exceptions=True)

        outcomes = self.run(write())
        written = sorted((entry for entry in outcomes if not isinstance(entry, Conflict)), key=lambda e: e.revision)
        assert sorted(entry.key for entry in written) == sorted(set(wanted))
        for entry in written:
            assert entry.revision == self.model.write(entry.key, entry.value)

    @rule(prefix=prefixes, after=afters, limit=limits)
    def list_now(self, prefix: str, after: str, limit: int) -> None:
        self.compare_page(self.store.list(prefix, after=after, limit=limit), prefix, self.model.revision, after, limit)

    @rule(prefix=prefixes, after=afters, limit=limits, back=steps_back)
    def list_then(self, prefix: str, after: str, limit: int, back: int) -> None:
        at = self.model.revision - back
        question = self.store.list_at(prefix, at, after=after, limit=limit)
        if self.asks_in_vain(question, at):
            return
        self.compare_page(self.run(question), prefix, at, after, limit)

    def asks_in_vain(self, question: Coroutine[Any, Any, object], at: int) -> bool:
        is_gone = at < self.model.oldest or self.model.end_of_gap(at) != at
        refusal = Compacted if is_gone else FutureRevision if at > self.model.revision else None
        if refusal is not None:
            with pytest.raises(refusal):
                self.run(question)
        return refusal is not None

    def compare_page(self, page: Page, prefix: str, at: int, after: str, limit: int) -> None:
        state = self.model.state(at)
        matching = sorted(key for key in state if key.startswith(prefix) and key > after)
        shown = matching[:limit] if limit else matching
        assert [(entry.key, (entry.revision, entry.value)) for entry in page.entries] == [
            (key, state[key]) for key in shown
        ]
        assert page.remaining == len(matching) - len(shown)
        assert page.after == (shown[-1] if len(matching) > len(shown) else "")
        assert page.revision == at

    @rule(prefix=prefixes, back=steps_back, length=st.integers(0, 12))
    def read_changes(self, prefix: str, back: int, length: int) -> None:
        since = self.model.revision - back
        until = min(since + length, self.model.revision)
        question = self.store.changes(prefix, since=since, until=until)
        if not self.asks_in_vain(question, since):
            assert told(self.run(question)) == self.model.changes(prefix, since, until)

    @rule(prefix=prefixes, back=st.integers(0, 8))
    def start_watching(self, prefix: str, back: int) -> None:
        since = self.model.end_of_gap(max(self.model.revision - back, self.model.oldest))
        self.watches.append((prefix, since, stream(self.store, prefix, since=since)))

    @rule()
    def check_watches(self) -> None:
        async def check(prefix: str, since: int, following: AsyncIterator[Change]) -> None:
            expected = self.model.changes(prefix, since, self.model.revision)
            assert told([await anext(following) for _ in expected]) == expected

        for prefix, since, following in self.watches:
            if since >= self.model.oldest:
                self.run(check(prefix, since, following))
        self.watches.clear()

    @precondition(lambda self: self.model.revision > FIRST)
    @rule(back=st.integers(0, 15))
    def compact(self, back: int) -> None:
        before = max(self.model.revision - back, FIRST)
        self.run(self.store.compact(before))
        self.model.oldest = max(self.model.oldest, self.model.end_of_gap(before))

    @invariant()
    def both_stand_at_the_same_revision(self) -> None:
        assert self.store.revision == self.model.revision
        assert self.store.oldest == self.model.oldest

    @invariant()
    def both_have_the_same_entries(self) -> None:
        state = self.model.state(self.model.revision)
        for key in KEYS:
            entry = self.store.get(key)
            assert (entry and (entry.revision, entry.value)) == state.get(key)

    @invariant()
    def the_amounts_of_clusters_are_those_of_a_count(self) -> None:
        state = self.model.state(self.model.revision)
        for cluster in ("one", "one-b", "two", "y"):
            values = [value for key, (_, value) in state.items() if key.split("/")[3] == cluster]
            assert self.store.amount(cluster) == (len(values), sum(map(len, values)))


class InMemory(Comparison):
    async def open(self, directory: Path) -> Store:
        return MemoryStore(stamp=stamp)


class OnDisk(Comparison):
    lines = 20_000
    now = 0.0  #: seconds, of the store's clock

    async def open(self, directory: Path) -> Store:
        return await SqliteStore.open(directory / "store.db", stamp=stamp, lines=self.lines, clock=lambda: self.now)

    @rule(ahead=st.integers(-5, 15))
    def reopen(self, ahead: int) -> None:
        """With a clock that is not as far as the store's revision, or further."""
        self.check_watches()
        self.run(self.store.close())
        self.now = (self.model.revision + ahead) / PER_SECOND
        self.store = self.run(self.open(Path(self.directory.name)))
        self.model.reopen(self.now)


class OnDiskWithAShortMemory(OnDisk):
    lines = 4


@pytest.mark.parametrize("machine", [InMemory, OnDisk, OnDiskWithAShortMemory])
def test_a_store_agrees_with_a_list_of_log_lines(machine: type[Comparison]) -> None:
    effort = settings(
        max_examples=examples(20),
        stateful_step_count=30,
        suppress_health_check=list(HealthCheck),
        database=None,
    )
    run_state_machine_as_test(machine, settings=effort)
