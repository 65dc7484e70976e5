"""The present in memory, against a dict that is sorted for every question."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from farflung.store.base import Change, Entry
from farflung.store.state import BLOCK, CurrentState, SortedKeys

words = st.text("ab-/0é", max_size=3)


@given(st.lists(words), st.data())
def test_sorted_keys_agree_with_a_sorted_list(start: list[str], data: st.DataObject) -> None:
    twin = set(start)
    keys = SortedKeys(sorted(twin))
    for word in data.draw(st.lists(words, max_size=20)):
        if word in twin:
            twin.remove(word)
            keys.remove(word)
        else:
            twin.add(word)
            keys.add(word)
    ordered = sorted(twin)
    probe = data.draw(words)
    count = data.draw(st.integers(0, 10))
    assert keys.rank(probe) == sum(word <= probe for word in ordered)
    assert keys.following(probe, count) == [word for word in ordered if word > probe][:count]


def test_sorted_keys_stay_sorted_over_many_blocks() -> None:
    count = 6 * BLOCK
    shuffled = [f"{number * 7919 % count:06}" for number in range(count)]
    keys = SortedKeys()
    for word in shuffled:
        keys.add(word)
    assert keys.following("", count) == sorted(shuffled)
    assert keys.rank("999999") == count
    assert keys.following(f"{BLOCK:06}", 3) == [f"{BLOCK + step:06}" for step in (1, 2, 3)]
    for word in shuffled[: count // 2]:
        keys.remove(word)
    left = sorted(shuffled[count // 2 :])
    assert keys.following("", count) == left
    assert [keys.rank(word) for word in left] == list(range(1, len(left) + 1))
    for word in left:
        keys.remove(word)
    assert keys.following("", count) == []
    assert keys.rank("999999") == 0


def key(name: str, resource: str = "configmaps") -> str:
    return f"/core/{resource}/root/default/{name}"


def test_a_resource_is_unchanged_since_its_own_last_change() -> None:
    present = CurrentState([Entry(key("a"), b"", 5)], 7)
    assert present.unchanged_since("/core/configmaps/", 7)
    assert not present.unchanged_since("/core/configmaps/", 6)
    present.apply(Change(8, key("s", "secrets"), Entry(key("s", "secrets"), b"", 8), None))
    assert present.unchanged_since("/core/configmaps/root/", 7)
    assert not present.unchanged_since("/core/secrets/", 7)
    assert present.unchanged_since("/core/pods/", 7)


def test_a_resource_without_objects_takes_no_place_and_has_changed_nonetheless() -> None:
    old = Entry(key("a"), b"", 5)
    present = CurrentState([old, Entry(key("s", "secrets"), b"", 6)], 7)
    present.apply(Change(8, key("a"), None, old))
    assert list(present.storage_prefixes()) == ["/core/secrets/"]
    assert not present.unchanged_since("/core/configmaps/", 7)
    assert present.unchanged_since("/core/configmaps/", 8)
    assert present.unchanged_since("/core/secrets/", 7)
    present.apply(Change(9, key("b"), Entry(key("b"), b"", 9), None))
    assert not present.unchanged_since("/core/configmaps/", 8)
    assert [entry.key for entry in present.page("/core/configmaps/", after="", limit=0).entries] == [key("b")]


names = st.sampled_from([f"{letter}{number}" for letter in "ab" for number in range(6)])


@given(st.sets(names), st.dictionaries(names, st.booleans()), st.integers(0, 5), st.sampled_from(["", "a3", "b5"]))
def test_a_page_of_the_past_agrees_with_undoing_every_change(
    now: set[str], changed: dict[str, bool], limit: int, after: str
) -> None:
    present = CurrentState([Entry(key(name), b"now", 2) for name in now], 9)
    undone = {key(name): Entry(key(name), b"then", 1) if existed else None for name, existed in changed.items()}
    then = {key(name): b"now" for name in now} | {name: entry and entry.value for name, entry in undone.items()}
    expected = sorted(name for name, value in then.items() if value is not None and (not after or name > key(after)))
    page = present.page_before("/core/configmaps/", after=after and key(after), limit=limit, revision=1, undone=undone)
    shown = expected[:limit] if limit else expected
    assert [(entry.key, entry.value) for entry in page.entries] == [(name, then[name]) for name in shown]
    assert page.remaining == len(expected) - len(shown)
