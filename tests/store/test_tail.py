"""The newest lines of the log: all of those after the floor, and not too many."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from farflung.store.base import Change, Entry
from farflung.store.tail import Tail

KEYS = ["/a/b/c/x", "/a/b/c/y", "/a/bb/c/x"]


def log_of(moves: list[tuple[str, int]]) -> list[Change]:
    """A consistent log: a size below zero deletes, if there is something to delete."""
    entries: dict[str, Entry] = {}
    changes: list[Change] = []
    for revision, (key, size) in enumerate(moves, 2):
        previous = entries.pop(key, None)
        if size >= 0 or previous is None:
            entries[key] = Entry(key, b"x" * max(size, 0), revision)
        changes.append(Change(revision, key, entries.get(key), previous))
    return changes


logs = st.lists(st.tuples(st.sampled_from(KEYS), st.integers(-1, 9)), max_size=40).map(log_of)


@given(logs, st.integers(0, 10), st.integers(0, 30), st.integers(0, 40), st.integers(0, 40))
def test_a_tail_is_the_end_of_the_log(log: list[Change], lines: int, size: int, since: int, until: int) -> None:
    tail = Tail(1, log, lines=lines, size=size)
    since = max(since, tail.floor)
    expected = [change for change in log if since < change.revision <= until and change.key.startswith("/a/b/")]
    assert tail.changes("/a/b/", since=since, until=until) == expected
    kept = [change for change in log if change.revision > tail.floor]
    assert len(kept) <= lines
    assert sum(len(change.previous.value) for change in kept if change.previous) <= size


@given(logs, st.integers(1, 45))
def test_forgetting_raises_the_floor(log: list[Change], before: int) -> None:
    tail = Tail(1, log)
    tail.forget(before)
    assert tail.floor == before
    assert tail.changes("/a/", since=0, until=99) == [change for change in log if change.revision > before]


@given(logs, st.integers(1, 45))
def test_undoing_gives_what_was(log: list[Change], revision: int) -> None:
    tail = Tail(1, log)
    now: dict[str, Entry | None] = {}
    then: dict[str, Entry | None] = {}
    for change in log:
        now[change.key] = change.entry
        if change.revision <= revision:
            then[change.key] = change.entry
    undone = tail.undone("/a/", revision)
    assert {key: entry for key, entry in (now | undone).items() if entry} == {k: e for k, e in then.items() if e}
    assert set(undone) == {change.key for change in log if change.revision > revision}
