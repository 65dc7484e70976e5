"""watch: from where it starts, what it brings, and how it ends."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hub_harness import CONFIG_MAPS, PARTIAL, TABLE, Collector, LocalHub, Watch
from hypothesis import given
from hypothesis import strategies as st

from farflung.http.messages import Stream
from farflung.hub.assembly import watch_seconds
from farflung.hub.catalog import objects
from farflung.hub.registry import respond
from farflung.hub.registry import watch as watches
from farflung.store.sqlite.store import SqliteStore

INITIAL = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}


async def test_a_watch_from_a_list_brings_what_came_after_it(any_hub: LocalHub) -> None:
    await any_hub.config_map("a")
    listed = await any_hub.get(CONFIG_MAPS)
    await any_hub.config_map("b")

    watch = await any_hub.watch(CONFIG_MAPS, {"resourceVersion": listed.version})
    await any_hub.patch(f"{CONFIG_MAPS}/a", {"data": {"k": "v"}})
    await any_hub.delete(f"{CONFIG_MAPS}/b")

    events = await watch.next(3)
    assert watch.changes == [("ADDED", "b"), ("MODIFIED", "a"), ("DELETED", "b")]
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
    assert versions == [listed.version + 1, listed.version + 2, listed.version + 3]
    assert events[0]["object"] | {"metadata": None} == events[2]["object"] | {"metadata": None}
    assert list(events[0]) == ["type", "object"]
    watch.leave()


@pytest.mark.parametrize("version", [None, "0"])
async def test_a_watch_without_a_version_begins_with_the_present(any_hub: LocalHub, version: str | None) -> None:
    await any_hub.config_map("a")
    await any_hub.config_map("b")

    watch = await any_hub.watch(CONFIG_MAPS, {} if version is None else {"resourceVersion": version})
    await any_hub.config_map("c")

    await watch.next(3)
    assert watch.changes == [("ADDED", "a"), ("ADDED", "b"), ("ADDED", "c")]
    watch.leave()


async def test_the_object_of_an_event_is_what_a_get_answers(hub: LocalHub) -> None:
    watch = await hub.watch(CONFIG_MAPS)
    await hub.config_map("a", k="v")

    (event,) = await watch.next(1)
    assert event["object"] == (await hub.get(f"{CONFIG_MAPS}/a")).json
    assert watch.content_type == "application/json"


@pytest.mark.parametrize(
    ("path", "query"),
    [
        ("/api/v1/watch/namespaces/default/configmaps/a", {}),
        ("/api/v1/watch/configmaps", {"fieldSelector": "metadata.name=a"}),
        (CONFIG_MAPS, {"fieldSelector": "metadata.name=a"}),
        ("/api/v1/configmaps", {"fieldSelector": "metadata.name=a,metadata.namespace=default"}),
        (CONFIG_MAPS, {"labelSelector": "only in (a)"}),
    ],
)
async def test_every_way_to_watch_one_object(hub: LocalHub, path: str, query: dict[str, str]) -> None:
    await hub.config_map("a", {"only": "a"})
    await hub.config_map("b", {"only": "b"})

    watch = await hub.watch(path, query)
    await hub.patch(f"{CONFIG_MAPS}/b", {"data": {"k": "v"}})
    await hub.patch(f"{CONFIG_MAPS}/a", {"data": {"k": "v"}})

    await watch.next(2)
    assert watch.changes == [("ADDED", "a"), ("MODIFIED", "a")]


async def test_a_get_of_one_object_is_no_watch(hub: LocalHub) -> None:
    await hub.config_map("a")

    assert (await hub.get(f"{CONFIG_MAPS}/a", "watch=1")).json["kind"] == "ConfigMap"


async def test_nothing_of_other_namespaces_is_seen(hub: LocalHub) -> None:
    await hub.create("/api/v1/namespaces", {"metadata": {"name": "other"}})
    watch = await hub.watch(CONFIG_MAPS)
    everywhere = await hub.watch("/api/v1/configmaps")

    await hub.create("/api/v1/namespaces/other/configmaps", {"metadata": {"name": "a"}})
    await hub.config_map("b")

    await everywhere.next(2)
    assert watch.changes == [("ADDED", "b")]


# --- selectors ------------------------------------------------------------------------------------


async def test_what_enters_and_leaves_a_selection_is_added_and_deleted(any_hub: LocalHub) -> None:
    await any_hub.config_map("a", {"color": "red"})
    watch = await any_hub.watch(CONFIG_MAPS, {"labelSelector": "color=red"})

    for color in ("blue", "green", "red", "red2", "red"):
        await any_hub.patch(f"{CONFIG_MAPS}/a", {"metadata": {"labels": {"color": color}}})
    await any_hub.patch(f"{CONFIG_MAPS}/a", {"data": {"k": "v"}})
    await any_hub.delete(f"{CONFIG_MAPS}/a")

    events = await watch.next(7)
    assert [event["type"] for event in events] == [
        "ADDED",
        "DELETED",
        "ADDED",
        "DELETED",
        "ADDED",
        "MODIFIED",
        "DELETED",
    ]
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
    assert versions == sorted(set(versions))
    assert all(event["object"]["metadata"]["labels"] == {"color": "red"} for event in events)


async def test_selected_fields_turn_changes_into_additions_too(hub: LocalHub) -> None:
    path = "/api/v1/namespaces/default/pods"
    watch = await hub.watch(path, {"fieldSelector": "status.phase=Running"})
    await hub.create(path, {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
    await hub.patch(f"{path}/p/status", {"status": {"phase": "Running"}})
    await hub.patch(f"{path}/p/status", {"status": {"phase": "Succeeded"}})

    await watch.next(2)
    assert watch.changes == [("ADDED", "p"), ("DELETED", "p")]


# --- refusals and ends ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "status", "message"),
    [
        (
            {"resourceVersion": "abc"},
            400,
            'resourceVersion: Invalid value: "abc": strconv.ParseUint: parsing "abc": invalid syntax',
        ),
        ({"labelSelector": "a in b"}, 400, "unable to parse requirement: found 'b' expected: '('"),
        (
            {"fieldSelector": "data.x=y"},
            400,
            '"data.x" is not a known field selector: only "metadata.name", "metadata.namespace"',
        ),
        (
            {"sendInitialEvents": "true"},
            422,
            'ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden: sendInitialEvents requires '
            "setting resourceVersionMatch to NotOlderThan",
        ),
        (
            {"resourceVersionMatch": "NotOlderThan", "resourceVersion": "1"},
            422,
            'ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden '
            "for watch unless sendInitialEvents is provided",
        ),
        (
            {"continue": "abc"},
            422,
            'ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden '
            "when continue is provided",
        ),
    ],
)
async def test_a_watch_that_makes_no_sense_is_refused(
    hub: LocalHub, query: dict[str, str], status: int, message: str
) -> None:
    answer = await hub.get(CONFIG_MAPS, {"watch": "1", **query})

    assert (answer.status, answer.message) == (status, message)
    assert hub.watches.count == 0


@pytest.mark.parametrize("more", [{}, INITIAL])
async def test_a_watch_from_a_future_revision_is_answered_with_retry_after(hub: LocalHub, more: dict[str, str]) -> None:
    answer = await hub.get(CONFIG_MAPS, {"watch": "1", "resourceVersion": "999", **more})

    assert answer.status == 504
    assert answer.message == f"Timeout: Too large resource version: 999, current: {hub.store.revision}"
    assert ("Retry-After", "1") in answer.headers
    assert hub.watches.count == 0


async def test_a_watch_from_a_compacted_revision_must_relist(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "hub.sqlite", stamp=objects.stamp, lines=10)
    hub = LocalHub(store)
    since = store.revision
    value = b'{"metadata":{"name":"a","resourceVersion":""},"data":{"a":"%b"}}' % (b"x" * 3_000_000)
    revision = 0
    for _ in range(15):
        revision = (await store.put("/core/configmaps/root/default/a", value, expect=revision)).revision

    watch = await hub.watch(CONFIG_MAPS, {"resourceVersion": since})
    [event] = await watch.end()
    assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")
    assert hub.watches.count == 0
    await store.close()


@pytest.mark.parametrize("query", [{}, {"resourceVersion": "3"}, INITIAL])
async def test_changes_during_a_long_history_are_sent_after_it(any_hub: LocalHub, query: dict[str, str]) -> None:
    for number in range(600):
        await any_hub.config_map(f"c{number:03}")

    opening = asyncio.create_task(any_hub.watch(CONFIG_MAPS, query))
    await asyncio.sleep(0)
    await any_hub.config_map("new")
    watch = await opening
    await any_hub.config_map("newer")

    expected = [*(f"c{number:03}" for number in range(600)), "new", "newer"]
    await watch.next(len(expected))
    assert [name for type_, name in watch.changes if type_ == "ADDED"] == expected
    watch.leave()


async def test_a_change_that_cannot_be_shown_ends_its_watches_instead_of_leaving_a_gap(hub: LocalHub) -> None:
    table = await hub.watch(CONFIG_MAPS, accept=TABLE)
    request = hub.prepared("GET", CONFIG_MAPS, None, "watch=1", {"accept": TABLE})
    unstarted = await hub.answer(request)
    assert isinstance(unstarted, Stream)
    plain = await hub.watch(CONFIG_MAPS)
    await hub.config_map("a")

    await hub.store.put("/core/configmaps/root/default/b", b'{"metadata":{"resourceVersion":""},"data":1}', expect=0)
    await hub.config_map("c")

    assert table.aborted
    assert len(table.events) == 1
    late = Collector(unstarted.stop)
    unstarted.start(late)
    assert late.closed
    assert late.data.count(b"\n") == 1
    assert len(await plain.next(3)) == 3
    assert hub.watches.count == 1
    plain.leave()


async def test_a_watch_from_a_forgotten_version_is_one_error_and_the_end(any_hub: LocalHub) -> None:
    await any_hub.config_map("a")
    await any_hub.store.compact(any_hub.store.revision)

    request = any_hub.prepared("GET", CONFIG_MAPS, None, "watch=1&resourceVersion=2", {})
    stream = await any_hub.answer(request)
    assert isinstance(stream, Stream)
    await any_hub.config_map("between the answer and its start".replace(" ", "-"))
    sink = Collector(stream.stop)
    stream.start(sink)

    assert sink.closed
    status = (
        '{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",'
        f'"message":"too old resource version: 2 ({any_hub.store.oldest})","reason":"Expired","code":410}}}}\n'
    )
    assert sink.data.decode() == status
    assert any_hub.watches.count == 0


async def test_a_watch_from_the_oldest_version_that_is_kept_is_complete(any_hub: LocalHub) -> None:
    await any_hub.config_map("a")
    await any_hub.store.compact(any_hub.store.revision)
    oldest = any_hub.store.revision
    await any_hub.config_map("b")

    watch = await any_hub.watch(CONFIG_MAPS, {"resourceVersion": oldest})

    await watch.next(1)
    assert watch.changes == [("ADDED", "b")]
    watch.leave()


async def test_a_watch_ends_when_its_time_is_up(hub: LocalHub, monkeypatch: pytest.MonkeyPatch) -> None:
    time = VirtualTime(monkeypatch)
    watch = await hub.watch(CONFIG_MAPS, {"timeoutSeconds": "5"})
    await time.advance(4.9)
    assert not watch.closed
    await time.advance(0.2)
    assert watch.closed
    assert watch.events == []
    assert hub.watches.count == 0


async def test_a_watch_without_a_time_ends_when_the_hub_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    time = VirtualTime(monkeypatch)
    hub = await LocalHub(LocalHub.in_memory().store, longest_watch=100).furnish()
    watch = await hub.watch(CONFIG_MAPS)
    await time.advance(99)
    assert not watch.closed
    await time.advance(2)
    assert watch.closed


async def test_a_watch_lasts_no_longer_than_the_hub_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    time = VirtualTime(monkeypatch)
    hub = await LocalHub(LocalHub.in_memory().store, longest_watch=100).furnish()
    watch = await hub.watch(CONFIG_MAPS, {"timeoutSeconds": "9223372036854775807"})
    await time.advance(101)
    assert watch.closed


@given(st.integers(0, 2**63))
def test_a_hub_allows_an_hour_and_some_jitter(timeout: int) -> None:
    seconds = watch_seconds(timeout)
    assert 1800 <= seconds <= 3600 if not timeout else min(timeout, 3600) <= seconds <= min(timeout, 3960)


@pytest.mark.parametrize("seconds", ["9223372036854775807", "-1"])
async def test_any_number_of_seconds_is_taken(hub: LocalHub, seconds: str) -> None:
    watch = await hub.watch(CONFIG_MAPS, {"timeoutSeconds": seconds})
    await hub.config_map("a")
    watch.leave()
    assert hub.watches.count == 0


async def test_a_disconnected_watcher_gets_no_events_and_is_dropped(hub: LocalHub) -> None:
    first, second = await hub.watch(CONFIG_MAPS), await hub.watch(CONFIG_MAPS)
    assert hub.watches.count == 2

    first.leave()
    await hub.config_map("a")
    await second.next(1)
    second.leave()
    await hub.config_map("b")

    assert first.changes == []
    assert second.changes == [("ADDED", "a")]
    assert hub.watches.count == 0


async def test_a_stream_that_is_never_started_leaves_nothing_behind(hub: LocalHub) -> None:
    stream = await hub.answer(hub.prepared("GET", CONFIG_MAPS, None, "watch=1", {}))
    assert isinstance(stream, Stream)
    stream.stop()

    assert hub.watches.count == 0


# --- bookmarks ------------------------------------------------------------------------------------


class VirtualTime:
    """The loop's clock, moved by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._loop = asyncio.get_running_loop()
        self._real = self._loop.time
        self._offset = 0.0
        monkeypatch.setattr(self._loop, "time", lambda: self._real() + self._offset)

    async def advance(self, seconds: float) -> None:
        """Step by step, so that timers set by timers come in order."""
        while seconds > 0:
            step = min(seconds, 0.5)
            self._offset += step
            seconds -= step
            for _ in range(4):
                await asyncio.sleep(0)


async def test_bookmarks_tell_how_far_a_quiet_watch_has_come(hub: LocalHub, monkeypatch: pytest.MonkeyPatch) -> None:
    time = VirtualTime(monkeypatch)
    query = {"labelSelector": "none", "timeoutSeconds": "200", "allowWatchBookmarks": "true"}
    watch = await hub.watch(CONFIG_MAPS, query)
    quiet = await hub.watch(CONFIG_MAPS, {"labelSelector": "none", "timeoutSeconds": "200"})
    await time.advance(50)
    assert watch.events == []
    await hub.config_map("a")
    await time.advance(15)
    bookmark = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"resourceVersion": str(hub.store.revision)}}
    assert watch.events == [{"type": "BOOKMARK", "object": bookmark}]
    await time.advance(134)
    assert [event["type"] for event in watch.events] == ["BOOKMARK"] * 4
    assert not watch.closed
    await time.advance(3)
    assert watch.closed
    assert quiet.events == []


async def test_even_a_short_watch_ends_with_a_bookmark(hub: LocalHub, monkeypatch: pytest.MonkeyPatch) -> None:
    time = VirtualTime(monkeypatch)
    watch = await hub.watch(CONFIG_MAPS, {"timeoutSeconds": "1", "allowWatchBookmarks": "1"})
    await time.advance(2)
    assert watch.closed
    assert watch.changes == [("BOOKMARK", str(hub.store.revision))]


async def test_a_watch_resumes_from_its_bookmark(any_hub: LocalHub, monkeypatch: pytest.MonkeyPatch) -> None:
    await any_hub.config_map("a")
    bookmarked = await any_hub.watch(CONFIG_MAPS, {"allowWatchBookmarks": "1", **INITIAL})
    version = bookmarked.changes[-1][1]
    bookmarked.leave()
    await any_hub.config_map("b")

    watch = await any_hub.watch(CONFIG_MAPS, {"resourceVersion": version})
    await watch.next(1)
    assert watch.changes == [("ADDED", "b")]
    watch.leave()


# --- initial events -------------------------------------------------------------------------------


async def test_initial_events_end_with_a_bookmark_that_says_so(any_hub: LocalHub) -> None:
    await any_hub.config_map("a")

    watch = await any_hub.watch(CONFIG_MAPS, INITIAL)
    await any_hub.config_map("b")

    events = await watch.next(3)
    assert [event["type"] for event in events] == ["ADDED", "BOOKMARK", "ADDED"]
    assert events[1]["object"]["metadata"] == {
        "resourceVersion": events[0]["object"]["metadata"]["resourceVersion"],
        "annotations": {"k8s.io/initial-events-end": "true"},
    }
    watch.leave()


async def test_initial_events_come_without_a_bookmark_if_none_are_wanted(hub: LocalHub) -> None:
    await hub.config_map("a")

    watch = await hub.watch(CONFIG_MAPS, INITIAL | {"allowWatchBookmarks": "false"})

    assert watch.changes == [("ADDED", "a")]


async def test_initial_events_may_be_declined(hub: LocalHub) -> None:
    await hub.config_map("a")

    watch = await hub.watch(CONFIG_MAPS, INITIAL | {"sendInitialEvents": "false"})
    await hub.config_map("b")

    await watch.next(1)
    assert watch.changes == [("ADDED", "b")]


# --- representations ------------------------------------------------------------------------------


async def test_only_the_first_event_of_a_table_brings_columns(hub: LocalHub) -> None:
    await hub.config_map("a")
    await hub.config_map("b")

    watch = await hub.watch(CONFIG_MAPS, {"includeObject": "None"}, accept=TABLE)
    late = await hub.watch(CONFIG_MAPS, {"includeObject": "None", "resourceVersion": hub.store.revision}, accept=TABLE)
    await hub.config_map("c")

    events = await watch.next(3)
    tables = [event["object"] for event in events]
    assert [table["kind"] for table in tables] == ["Table"] * 3
    assert [bool(table["columnDefinitions"]) for table in tables] == [True, False, False]
    assert [table["rows"][0]["cells"][0] for table in tables] == ["a", "b", "c"]
    assert tables[0]["rows"][0]["object"] is None
    (only,) = await late.next(1)
    assert only["object"]["columnDefinitions"] == tables[0]["columnDefinitions"]


async def test_a_watch_of_metadata_brings_nothing_else(hub: LocalHub) -> None:
    await hub.config_map("a", k="v")

    watch = await hub.watch(CONFIG_MAPS, accept=PARTIAL)
    await hub.patch(f"{CONFIG_MAPS}/a", {"data": {"k": "w"}})

    events = await watch.next(2)
    for event in events:
        assert event["object"]["kind"] == "PartialObjectMetadata"
        assert list(event["object"]) == ["kind", "apiVersion", "metadata"]


async def test_watchers_of_two_versions_each_get_theirs(hub: LocalHub) -> None:
    paths = {
        version: f"/apis/autoscaling/{version}/namespaces/default/horizontalpodautoscalers" for version in ("v1", "v2")
    }
    watches = {version: await hub.watch(path) for version, path in paths.items()}
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}
    await hub.create(paths["v1"], {"metadata": {"name": "h"}, "spec": {"maxReplicas": 3, "scaleTargetRef": target}})

    for version, watch in watches.items():
        (event,) = await watch.next(1)
        assert event["object"]["apiVersion"] == f"autoscaling/{version}"
        assert event["object"] == (await hub.get(f"{paths[version]}/h")).json


async def test_events_of_both_groups_are_the_same_objects(hub: LocalHub) -> None:
    old, new = "/api/v1/namespaces/default/events", "/apis/events.k8s.io/v1/namespaces/default/events"
    watches = {"v1": await hub.watch(old), "events.k8s.io/v1": await hub.watch(new)}
    involved = {"kind": "Pod", "name": "p", "namespace": "default"}
    await hub.create(old, {"metadata": {"name": "e"}, "involvedObject": involved, "message": "m", "reason": "R"})

    for version, watch in watches.items():
        (event,) = await watch.next(1)
        assert event["object"]["apiVersion"] == version
    assert watches["events.k8s.io/v1"].events[0]["object"]["note"] == "m"


# --- many at once ---------------------------------------------------------------------------------


async def test_watchers_that_join_while_writes_commit_miss_and_repeat_nothing(any_hub: LocalHub) -> None:
    """Every watcher, wherever it comes in, ends with what a list shows."""
    watches = []

    async def write(name: str) -> None:
        for number in range(10):
            if number == 0:
                await any_hub.config_map(name)
            else:
                await any_hub.patch(f"{CONFIG_MAPS}/{name}", {"data": {"n": str(number)}})

    async def join() -> None:
        for number in range(20):
            listed = await any_hub.get(CONFIG_MAPS)
            state = {item["metadata"]["name"]: item["metadata"]["resourceVersion"] for item in listed.json["items"]}
            await asyncio.sleep(0)
            query = {"resourceVersion": listed.version} if number % 2 else {}
            watches.append((state if number % 2 else {}, await any_hub.watch(CONFIG_MAPS, query)))

    async with asyncio.TaskGroup() as group:
        for name in ("a", "b", "c"):
            group.create_task(write(name))
        group.create_task(join())

    listed = await any_hub.get(CONFIG_MAPS)
    final = {item["metadata"]["name"]: item["metadata"]["resourceVersion"] for item in listed.json["items"]}
    assert len(final) == 3
    for state, watch in watches:
        versions: list[int] = []
        for event in watch.events:
            metadata = event["object"]["metadata"]
            assert (event["type"] == "ADDED") == (metadata["name"] not in state)
            state[metadata["name"]] = metadata["resourceVersion"]
            versions.append(int(metadata["resourceVersion"]))
        assert state == final
        assert len(set(versions)) == len(versions)
        watch.leave()


class SlowClient(Collector):
    """A sink that cuts itself off, as the connection does, after so many bytes."""

    def __init__(self, stop: object, patience: int) -> None:
        super().__init__(stop)  # type: ignore[arg-type]
        self._patience = patience

    def write(self, data: bytes) -> None:
        super().write(data)
        if len(self.data) > self._patience:
            self.abort()


async def test_a_slow_client_is_cut_off_and_the_others_go_on(hub: LocalHub) -> None:
    watch = await hub.watch(CONFIG_MAPS)
    stream = await hub.answer(hub.prepared("GET", CONFIG_MAPS, None, "watch=1", {}))
    assert isinstance(stream, Stream)
    slow = SlowClient(stream.stop, patience=5000)
    stream.start(slow)

    for number in range(20):
        await hub.config_map(f"c{number:02}", k="x" * 500)

    assert slow.aborted
    assert len(slow.data) < 7000
    assert len(await watch.next(20)) == 20
    await asyncio.sleep(0)
    assert hub.watches.count == 1


# --- deliveries that wait -------------------------------------------------------------------------


@pytest.mark.parametrize("accept", ["application/json", TABLE])
async def test_changes_arrive_once_and_in_order_while_deliveries_wait(
    hub: LocalHub, monkeypatch: pytest.MonkeyPatch, accept: str
) -> None:
    monkeypatch.setattr(watches, "AT_ONCE", 3)  # further deliveries wait for their turn
    monkeypatch.setattr(respond, "AT_ONCE", 1_500)  # workers encode larger objects
    opened: list[tuple[int, Watch]] = []
    written: list[int] = []
    for number in range(24):
        for query in ({}, {"labelSelector": f"a!={number % 5}"}):
            since = {"resourceVersion": str(hub.store.revision)}
            opened.append((number, await hub.watch(CONFIG_MAPS, since | query, accept=accept)))
        path, data = f"{CONFIG_MAPS}/c{number % 4}", {"k": "x" * (3_000 if number % 3 else 10) + str(number)}
        match number:
            case 0 | 1 | 2 | 3 | 15:
                await hub.create(CONFIG_MAPS, {"metadata": {"name": f"c{number % 4}"}, "data": data})
            case 11:
                await hub.delete(path)
            case _:
                await hub.patch(path, {"data": data})
        written.append(hub.store.revision)
    for number, watch in opened:
        events = await watch.next(len(written) - number)
        assert [int(event["object"]["metadata"]["resourceVersion"]) for event in events] == written[number:]
    assert bool(hub.assembly.workers.finished) == (accept == TABLE)


async def test_watches_that_are_too_far_behind_are_cut_off(hub: LocalHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watches, "AT_ONCE", 0)
    monkeypatch.setattr(watches, "BEHIND", 1)
    watch = await hub.watch(CONFIG_MAPS)
    entries = [(f"/core/configmaps/root/default/{name}", b'{"metadata":{"resourceVersion":""}}') for name in "abc"]
    await asyncio.gather(*(hub.store.put(key, value, expect=0) for key, value in entries))
    await watch.end()
    assert watch.aborted
