"""What every store does, in sentences."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest
from memory_store import stream

from farflung.store.base import (
    ABSENT,
    FIRST,
    Change,
    Compacted,
    Conflict,
    Entry,
    FutureRevision,
    Page,
    Store,
    Unavailable,
)

MAPS = "/core/configmaps/"
ROOT = "/core/configmaps/root/"
DEFAULT = "/core/configmaps/root/default/"


def key(name: str, namespace: str = "default", cluster: str = "root", resource: str = "configmaps") -> str:
    return f"/core/{resource}/{cluster}/{namespace}/{name}"


async def create(store: Store, *names: str) -> list[Entry]:
    return [await store.put(key(name), name.encode(), expect=ABSENT) for name in names]


def names(page: Page) -> list[str]:
    return [entry.key.rsplit("/", 1)[1] for entry in page.entries]


def told(changes: Sequence[Change]) -> list[tuple[int, str, bytes | None, bytes | None]]:
    return [
        (
            change.revision,
            change.key,
            change.entry.value if change.entry else None,
            change.previous.value if change.previous else None,
        )
        for change in changes
    ]


async def take(following: AsyncIterator[Change], count: int) -> list[Change]:
    return [await anext(following) for _ in range(count)]


# Writing


async def test_an_empty_store_stands_at_the_first_revision(store: Store) -> None:
    assert (store.revision, store.oldest) == (FIRST, FIRST)
    assert store.list(MAPS) == Page([], FIRST)


async def test_an_acknowledged_write_is_seen(store: Store) -> None:
    entry = await store.put(key("a"), b"1", expect=ABSENT)
    assert store.get(key("a")) is entry
    assert (entry.key, entry.value, entry.revision) == (key("a"), b"1", store.revision)
    assert names(store.list(MAPS)) == ["a"]


async def test_every_write_gets_the_next_revision(store: Store) -> None:
    created = await store.put(key("a"), b"1", expect=ABSENT)
    updated = await store.put(key("a"), b"2", expect=created.revision)
    deleted = await store.delete(key("a"), expect=updated.revision)
    assert [created.revision, updated.revision, deleted] == [FIRST + 1, FIRST + 2, FIRST + 3]
    assert store.revision == deleted
    assert store.get(key("a")) is None


async def test_values_show_the_revision_that_wrote_them(open_store) -> None:
    store = await open_store(stamp=lambda value, revision: value + b"@%d" % revision)
    created = await store.put(key("a"), b"x", expect=ABSENT)
    assert created.value == b"x@2"
    assert store.get(key("a")).value == b"x@2"
    assert store.list(MAPS).entries[0].value == b"x@2"
    [change] = await store.changes(MAPS, since=FIRST, until=store.revision)
    assert change.entry.value == b"x@2"


async def test_creating_a_key_twice_is_a_conflict(store: Store) -> None:
    [entry] = await create(store, "a")
    with pytest.raises(Conflict) as refused:
        await store.put(key("a"), b"other", expect=ABSENT)
    assert (refused.value.key, refused.value.expected, refused.value.actual) == (key("a"), ABSENT, entry.revision)
    assert store.get(key("a")) is entry


async def test_a_stale_update_is_refused_and_names_the_actual_revision(store: Store) -> None:
    [first] = await create(store, "a")
    second = await store.put(key("a"), b"2", expect=first.revision)
    with pytest.raises(Conflict) as refused:
        await store.put(key("a"), b"3", expect=first.revision)
    assert refused.value.actual == second.revision
    assert store.get(key("a")) is second
    assert store.revision == second.revision


async def test_a_stale_delete_is_refused_and_names_the_actual_revision(store: Store) -> None:
    [first] = await create(store, "a")
    second = await store.put(key("a"), b"2", expect=first.revision)
    with pytest.raises(Conflict) as refused:
        await store.delete(key("a"), expect=first.revision)
    assert refused.value.actual == second.revision
    assert store.get(key("a")) is second


@pytest.mark.parametrize("expect", [ABSENT, 7])
async def test_what_is_not_there_cannot_be_deleted(store: Store, expect: int) -> None:
    with pytest.raises(Conflict) as refused:
        await store.delete(key("a"), expect=expect)
    assert refused.value.actual == ABSENT


async def test_what_is_not_there_cannot_be_updated(store: Store) -> None:
    with pytest.raises(Conflict) as refused:
        await store.put(key("a"), b"1", expect=FIRST)
    assert refused.value.actual == ABSENT
    assert store.revision == FIRST


async def test_a_deleted_key_can_be_created_again(store: Store) -> None:
    [first] = await create(store, "a")
    await store.delete(key("a"), expect=first.revision)
    [again] = await create(store, "a")
    assert store.get(key("a")) is again
    assert again.revision == first.revision + 2


async def test_of_many_concurrent_creators_exactly_one_wins(store: Store) -> None:
    tries = [store.put(key("a"), b"%d" % number, expect=ABSENT) for number in range(50)]
    outcomes = await asyncio.gather(*tries, return_exceptions=True)
    winners = [outcome for outcome in outcomes if isinstance(outcome, Entry)]
    losers = [outcome for outcome in outcomes if isinstance(outcome, Conflict)]
    assert (len(winners), len(losers)) == (1, 49)
    assert {loser.actual for loser in losers} == {winners[0].revision}
    assert store.get(key("a")) is winners[0]


async def test_a_writer_with_a_conflict_reads_the_winning_write(store: Store) -> None:
    [first] = await create(store, "a")

    async def lose() -> None:
        with pytest.raises(Conflict) as refused:
            await store.put(key("a"), b"loser", expect=first.revision)
        assert store.get(key("a")).revision == refused.value.actual

    winner = asyncio.create_task(store.put(key("a"), b"winner", expect=first.revision))
    await asyncio.sleep(0)
    await asyncio.gather(lose(), lose(), winner)


async def test_concurrent_writes_of_one_key_form_a_chain(store: Store) -> None:
    async def write_until_done(times: int) -> None:
        for _ in range(times):
            while True:
                entry = store.get(key("a"))
                try:
                    value = b"%d" % (int(entry.value) + 1 if entry else 1)
                    await store.put(key("a"), value, expect=entry.revision if entry else ABSENT)
                    break
                except Conflict:
                    continue

    await asyncio.gather(*(write_until_done(5) for _ in range(8)))
    assert store.get(key("a")).value == b"40"


async def test_a_write_whose_caller_went_away_happens_or_does_not_but_the_key_stays_usable(store: Store) -> None:
    caller = asyncio.create_task(store.put(key("a"), b"1", expect=ABSENT))
    await asyncio.sleep(0)
    caller.cancel()
    await asyncio.wait([caller])
    try:
        entry = await store.put(key("a"), b"2", expect=ABSENT)
    except Conflict as conflict:
        entry = await store.put(key("a"), b"2", expect=conflict.actual)
    assert store.get(key("a")) is entry


@pytest.mark.parametrize(
    "bad", ["", "a", "/core/configmaps/a", "/core/configmaps/root/default/", "/core//root/a", "/a/b/c/d/e/f"]
)
async def test_what_is_no_key_is_refused(store: Store, bad: str) -> None:
    with pytest.raises(ValueError, match="not a key"):
        await store.put(bad, b"", expect=ABSENT)


async def test_a_key_that_is_no_text_is_refused_and_harms_no_other(store: Store) -> None:
    outcomes = await asyncio.gather(
        *create_all(store, ["a", "b\ud800", "c"]),
        return_exceptions=True,
    )
    assert [type(outcome) for outcome in outcomes] == [Entry, UnicodeEncodeError, Entry]


def create_all(store: Store, wanted: Sequence[str]) -> list[object]:
    return [store.put(key(name), b"", expect=ABSENT) for name in wanted]


# Listing


async def test_a_list_is_in_key_order_and_of_its_prefix_alone(store: Store) -> None:
    await create(store, "b", "a", "c")
    await store.put(key("z", namespace="default-2"), b"", expect=ABSENT)
    await store.put(key("y", cluster="root-2"), b"", expect=ABSENT)
    await store.put(key("x", resource="configmapsets"), b"", expect=ABSENT)
    await store.put("/core/configmaps/root/unnamespaced", b"", expect=ABSENT)
    assert names(store.list(DEFAULT)) == ["a", "b", "c"]
    assert names(store.list(ROOT)) == ["z", "a", "b", "c", "unnamespaced"]
    assert names(store.list(MAPS)) == ["y", "z", "a", "b", "c", "unnamespaced"]
    assert names(store.list("/core/configmapsets/")) == ["x"]
    assert names(store.list("/core/secrets/")) == []


async def test_a_store_tells_of_which_resources_it_has_keys(store: Store) -> None:
    for key in ("/core/pods/root/a/x", "/core/pods/root/a/y", "/apps/deployments/other/a/x"):
        await store.put(key, b"{}", expect=ABSENT)
    assert sorted(store.storage_prefixes()) == ["/apps/deployments/", "/core/pods/"]


async def test_names_in_any_script_are_kept_in_order(store: Store) -> None:
    wanted = ["z", "\u00e9", "\u03a9", "\uff41", "\U0001d51e", "a\x00b", "~"]
    await create(store, *wanted)
    assert names(store.list(MAPS)) == sorted(wanted)
    at = store.revision
    await create(store, "zz")
    assert names(await store.list_at(MAPS, at)) == sorted(wanted)


async def test_pages_continue_each_other_and_count_what_remains(store: Store) -> None:
    await create(store, "e", "d", "c", "b", "a")
    first = store.list(MAPS, limit=2)
    assert (names(first), first.remaining, first.after) == (["a", "b"], 3, key("b"))
    second = store.list(MAPS, limit=2, after=first.after)
    assert (names(second), second.remaining, second.after) == (["c", "d"], 1, key("d"))
    last = store.list(MAPS, limit=2, after=second.after)
    assert (names(last), last.remaining, last.after) == (["e"], 0, "")


async def test_a_page_continues_after_a_deleted_key(store: Store) -> None:
    entries = await create(store, "a", "b", "c")
    await store.delete(key("b"), expect=entries[1].revision)
    assert names(store.list(MAPS, after=key("b"))) == ["c"]


@pytest.mark.parametrize("bad", ["", "/", "/core/", "/core/configmaps", "core/configmaps/", "/core//", "/core/\ud800/"])
async def test_what_is_no_prefix_is_refused(store: Store, bad: str) -> None:
    with pytest.raises(ValueError):
        store.list(bad)
    with pytest.raises(ValueError):
        store.subscribe(bad, lambda changes: None)
    with pytest.raises(ValueError):
        await store.list_at(bad, FIRST)
    with pytest.raises(ValueError):
        await store.changes(bad, since=FIRST, until=FIRST)


async def test_a_list_at_a_revision_pages_through_that_state_despite_later_writes(store: Store) -> None:
    entries = await create(store, "a", "b", "c", "d", "e")
    pinned = store.revision
    first = await store.list_at(MAPS, pinned, limit=2)
    await store.delete(key("c"), expect=entries[2].revision)
    await store.put(key("d"), b"changed", expect=entries[3].revision)
    await create(store, "aa", "cc", "f")
    second = await store.list_at(MAPS, pinned, limit=2, after=first.after)
    last = await store.list_at(MAPS, pinned, limit=2, after=second.after)
    assert [names(page) for page in (first, second, last)] == [["a", "b"], ["c", "d"], ["e"]]
    assert [page.remaining for page in (first, second, last)] == [3, 1, 0]
    assert {page.revision for page in (first, second, last)} == {pinned}
    assert second.entries[1].value == b"d"
    assert last.after == ""


async def test_a_list_at_the_present_shows_the_present(store: Store) -> None:
    await create(store, "a", "b")
    now = store.list(MAPS)
    pinned = await store.list_at(MAPS, store.revision)
    assert list(pinned.entries) == list(now.entries)
    assert pinned.revision == now.revision


async def test_a_list_at_an_old_revision_is_of_no_interest_to_other_resources(store: Store) -> None:
    await create(store, "a")
    pinned = store.revision
    for number in range(5):
        await store.put(key(str(number), resource="secrets"), b"", expect=ABSENT)
    assert names(await store.list_at(MAPS, pinned)) == ["a"]
    assert names(await store.list_at("/core/secrets/", pinned + 2)) == ["0", "1"]


async def test_the_future_cannot_be_listed(store: Store) -> None:
    with pytest.raises(FutureRevision) as refused:
        await store.list_at(MAPS, 99)
    assert (refused.value.requested, refused.value.current) == (99, FIRST)


# StoredKindsWatch of changes


async def test_changes_tell_what_was_created_updated_and_deleted(store: Store) -> None:
    created = await store.put(key("a"), b"1", expect=ABSENT)
    await store.put(key("s", resource="secrets"), b"-", expect=ABSENT)
    updated = await store.put(key("a"), b"2", expect=created.revision)
    await store.delete(key("a"), expect=updated.revision)
    assert told(await store.changes(MAPS, since=FIRST, until=store.revision)) == [
        (2, key("a"), b"1", None),
        (4, key("a"), b"2", b"1"),
        (5, key("a"), None, b"2"),
    ]
    assert [change.revision for change in await store.changes(ROOT, since=2, until=4)] == [4]
    assert list(await store.changes(MAPS, since=3, until=3)) == []
    with pytest.raises(FutureRevision):
        await store.changes(MAPS, since=FIRST, until=99)


async def test_a_subscriber_hears_of_every_later_change_under_its_prefix(store: Store) -> None:
    await create(store, "before")
    heard: list[Change] = []
    subscription = store.subscribe(DEFAULT, heard.extend)
    [a] = await create(store, "a")
    await store.put(key("b", namespace="other"), b"", expect=ABSENT)
    await store.put(key("c", cluster="other"), b"", expect=ABSENT)
    await store.delete(key("a"), expect=a.revision)
    assert told(heard) == [(3, key("a"), b"a", None), (6, key("a"), None, b"a")]
    subscription.cancel()
    subscription.cancel()
    await create(store, "after")
    assert len(heard) == 2


async def test_a_subscriber_of_one_key_hears_of_nothing_else(store: Store) -> None:
    heard: list[tuple[str, int]] = []
    store.subscribe("/core/pods/root/a/b", lambda changes: heard.extend((one.key, one.revision) for one in changes))
    await store.put("/core/pods/root/a/bc", b"1", expect=ABSENT)
    entry = await store.put("/core/pods/root/a/b", b"1", expect=ABSENT)
    gone = await store.delete("/core/pods/root/a/b", expect=entry.revision)
    assert heard == [("/core/pods/root/a/b", entry.revision), ("/core/pods/root/a/b", gone)]


async def test_subscribers_of_wider_prefixes_hear_of_the_same_change(store: Store) -> None:
    heard: dict[str, list[Change]] = {MAPS: [], ROOT: [], DEFAULT: []}
    for prefix, changes in heard.items():
        store.subscribe(prefix, changes.extend)
    await create(store, "a")
    [[by_resource], [by_cluster], [by_namespace]] = heard.values()
    assert by_resource is by_cluster is by_namespace


async def test_a_change_is_visible_when_its_subscriber_is_notified(store: Store) -> None:
    seen: list[bool] = []

    def look(changes: Sequence[Change]) -> None:
        seen.extend(store.get(change.key) is change.entry and store.revision >= change.revision for change in changes)

    store.subscribe(MAPS, look)
    await asyncio.gather(*create_all(store, [str(number) for number in range(20)]))
    assert seen == [True] * 20


async def test_subscribers_are_notified_before_a_write_is_acknowledged(store: Store) -> None:
    heard: list[Change] = []
    store.subscribe(MAPS, heard.extend)
    [entry] = await create(store, "a")
    assert [change.entry for change in heard] == [entry]


async def test_a_subscriber_that_fails_does_not_starve_the_others(store: Store) -> None:
    heard: list[Change] = []

    def fail(changes: Sequence[Change]) -> None:
        raise RuntimeError("no")

    store.subscribe(MAPS, fail)
    store.subscribe(MAPS, heard.extend)
    await create(store, "a", "b")
    assert [change.key for change in heard] == [key("a"), key("b")]


async def test_subscribing_or_cancelling_in_a_notification_does_not_affect_others(store: Store) -> None:
    late: list[Change] = []
    cancelled: list[Change] = []

    def meddle(changes: Sequence[Change]) -> None:
        meddler.cancel()
        victim.cancel()
        store.subscribe(ROOT, late.extend)

    meddler = store.subscribe(MAPS, meddle)
    victim = store.subscribe(MAPS, cancelled.extend)
    await create(store, "a")
    assert (late, cancelled) == ([], [])
    await create(store, "b")
    assert [change.key for change in late] == [key("b")]


async def test_a_watch_tells_first_what_happened_and_then_what_happens(store: Store) -> None:
    await create(store, "a", "b")
    following = stream(store, MAPS, since=FIRST)
    assert [change.key for change in await take(following, 2)] == [key("a"), key("b")]
    waiting = asyncio.create_task(anext(following))
    await create(store, "c")
    assert (await waiting).key == key("c")


async def test_a_watch_from_a_list_misses_nothing_and_repeats_nothing(store: Store) -> None:
    async def write(writer: int) -> None:
        for number in range(20):
            entry = await store.put(key(f"{writer}-{number}"), b"1", expect=ABSENT)
            if number % 3 == 0:
                await store.delete(entry.key, expect=entry.revision)

    writers = [asyncio.create_task(write(number)) for number in range(6)]
    while store.revision < 40:
        await asyncio.sleep(0)
    listed = store.list(ROOT)
    seen = {entry.key: entry for entry in listed.entries}
    following = stream(store, ROOT, since=listed.revision)
    await asyncio.gather(*writers)
    for change in await take(following, store.revision - listed.revision):
        assert (change.previous is None) == (change.key not in seen)
        if change.entry is None:
            del seen[change.key]
        else:
            seen[change.key] = change.entry
    assert sorted(seen) == [entry.key for entry in store.list(ROOT).entries]


# Forgetting


async def test_compacted_history_is_deleted_and_the_rest_stays(store: Store) -> None:
    entries = await create(store, "a", "b")
    updated = await store.put(key("a"), b"2", expect=entries[0].revision)
    await store.delete(key("b"), expect=entries[1].revision)
    await store.put(key("a"), b"3", expect=updated.revision)
    await store.compact(4)
    assert store.oldest == 4
    for question in (
        store.list_at(MAPS, 3),
        store.changes(MAPS, since=3, until=5),
    ):
        with pytest.raises(Compacted) as refused:
            await question
        assert (refused.value.requested, refused.value.oldest) == (3, 4)
    assert [entry.value for entry in (await store.list_at(MAPS, 4)).entries] == [b"2", b"b"]
    assert told(await store.changes(MAPS, since=4, until=6)) == [
        (5, key("b"), None, b"b"),
        (6, key("a"), b"3", b"2"),
    ]
    assert [(entry.key, entry.value) for entry in store.list(MAPS).entries] == [(key("a"), b"3")]


async def test_what_never_changed_again_survives_every_compaction(store: Store) -> None:
    await create(store, "a", "b", "c")
    await store.compact(store.revision)
    [d] = await create(store, "d")
    await store.delete(key("d"), expect=d.revision)
    await store.compact(store.revision)
    assert names(store.list(MAPS)) == ["a", "b", "c"]
    assert names(await store.list_at(MAPS, store.revision)) == ["a", "b", "c"]


async def test_compacting_again_or_less_changes_nothing(store: Store) -> None:
    await create(store, "a", "b", "c")
    await store.compact(3)
    await store.compact(3)
    await store.compact(2)
    assert store.oldest == 3


async def test_the_future_cannot_be_compacted(store: Store) -> None:
    with pytest.raises(FutureRevision):
        await store.compact(2)


async def test_a_watch_continues_through_a_compaction(store: Store) -> None:
    following = stream(store, MAPS, since=FIRST)
    reading = asyncio.create_task(anext(following))
    await create(store, "a")
    await reading
    await create(store, "b")
    await store.compact(store.revision)
    await create(store, "c")
    assert [change.key for change in await take(following, 2)] == [key("b"), key("c")]


# Closing


async def test_a_closed_store_takes_no_writes(store: Store) -> None:
    [entry] = await create(store, "a")
    await store.close()
    await store.close()
    with pytest.raises(Unavailable):
        await store.put(key("b"), b"", expect=ABSENT)
    with pytest.raises(Unavailable):
        await store.delete(key("a"), expect=entry.revision)
