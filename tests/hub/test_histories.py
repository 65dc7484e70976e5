"""Laws of lists and watches, over random histories: what a client replays is what the hub shows.

The twin is a dict and a list: every write appends what the collection looked like after it.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from examples import examples
from hub_harness import CONFIG_MAPS, LocalHub, Watch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from farflung.hub.catalog import objects
from farflung.machinery.errors import Obj
from farflung.store.sqlite.store import SqliteStore

NAMES = ["a", "b", "c", "d"]
Chosen = Callable[[str, dict[str, str]], bool]

#: (labelSelector, fieldSelector) → whether they select this name and these labels
SELECTORS: dict[tuple[str, str], Chosen] = {
    ("", ""): lambda name, labels: True,
    ("color", ""): lambda name, labels: "color" in labels,
    ("color=red", ""): lambda name, labels: labels.get("color") == "red",
    ("color!=red,size", ""): lambda name, labels: labels.get("color") != "red" and "size" in labels,
    ("!color", ""): lambda name, labels: "color" not in labels,
    ("color in (red,blue)", ""): lambda name, labels: labels.get("color") in ("red", "blue"),
    ("", "metadata.name=a"): lambda name, labels: name == "a",
    ("", "metadata.name!=a"): lambda name, labels: name != "a",
    ("", "metadata.name=a,metadata.name=b"): lambda name, labels: False,
    ("", "metadata.name=a,metadata.namespace=other"): lambda name, labels: False,
    ("color=red", "metadata.name=b"): lambda name, labels: name == "b" and labels.get("color") == "red",
}
Selector = tuple[str, str]
State = dict[str, Obj]

labels = st.fixed_dictionaries({}, optional={"color": st.sampled_from(["red", "blue"]), "size": st.just("1")})
writes = st.tuples(st.sampled_from(["create", "put", "patch", "delete", "touch"]), st.sampled_from(NAMES), labels)
histories = st.lists(writes, max_size=12)
law = settings(max_examples=examples(40), suppress_health_check=list(HealthCheck))


@dataclass
class History:
    """A hub, and what its ConfigMaps looked like at every revision."""

    hub: LocalHub
    states: dict[int, State] = field(default_factory=dict)

    @property
    def present(self) -> State:
        return self.states[max(self.states)]

    async def write(self, verb: str, name: str, chosen: dict[str, str]) -> None:
        path, before = f"{CONFIG_MAPS}/{name}", self.hub.store.revision
        body = {"metadata": {"name": name, "labels": chosen}}
        match verb:
            case "create":
                answer = await self.hub.post(CONFIG_MAPS, body)
            case "put":
                answer = await self.hub.put(path, body)
            case "patch":
                removed = {"color": None, "size": None}
                answer = await self.hub.patch(path, {"metadata": {"labels": removed | chosen}})
            case "touch":
                answer = await self.hub.patch(path, {"data": {"at": str(before)}})
            case _:
                answer = await self.hub.delete(path)
        state = dict(self.present)
        if answer.status in (200, 201):
            if verb == "delete":
                del state[name]
            else:
                state[name] = answer.json
                assert answer.version == before + 1 or self.hub.store.revision == before
        else:
            assert (answer.status, name in state) in [(404, False), (409, True)]
            assert self.hub.store.revision == before
        assert self.hub.store.revision <= before + 1
        self.states[self.hub.store.revision] = state


async def begun(hub: LocalHub) -> History:
    await hub.furnish()
    return History(hub, {hub.store.revision: {}})


def selected(state: State, selector: Selector) -> State:
    chosen = SELECTORS[selector]
    return {name: obj for name, obj in state.items() if chosen(name, obj["metadata"].get("labels", {}))}


def asking(selector: Selector, **more: object) -> dict[str, Any]:
    """A query."""
    return {"labelSelector": selector[0], "fieldSelector": selector[1], **more}


def listed(items: list[Obj]) -> State:
    """The items of a list, which do not say what they are, as gets answer them."""
    names = [item["metadata"]["name"] for item in items]
    assert names == sorted(set(names))
    return {item["metadata"]["name"]: {"kind": "ConfigMap", "apiVersion": "v1", **item} for item in items}


def replayed(state: State, watch: Watch, since: int) -> State:
    """A list and the events after it, put together as every client does."""
    state, last = dict(state), since
    for event in watch.events:
        obj = event["object"]
        name, version = obj["metadata"]["name"], int(obj["metadata"]["resourceVersion"])
        assert version > last
        last = version
        match event["type"]:
            case "ADDED":
                assert name not in state
                state[name] = obj
            case "MODIFIED":
                assert name in state
                state[name] = obj
            case "DELETED":
                del state[name]
    return state


@law
@given(histories, histories, st.sampled_from(sorted(SELECTORS)))
async def test_a_list_and_the_watch_after_it_are_the_later_list(before: Any, after: Any, selector: Selector) -> None:
    history = await begun(LocalHub.in_memory())
    hub = history.hub
    for write in before:
        await history.write(*write)
    first = await hub.get(CONFIG_MAPS, asking(selector))
    live = await hub.watch(CONFIG_MAPS, asking(selector, resourceVersion=first.version))
    fresh = await hub.watch(CONFIG_MAPS, asking(selector))
    for write in after:
        await history.write(*write)
    late = await hub.watch(CONFIG_MAPS, asking(selector, resourceVersion=first.version))
    last = await hub.get(CONFIG_MAPS, asking(selector))

    final = listed(last.json["items"])
    assert final == selected(history.present, selector)
    assert replayed(listed(first.json["items"]), live, first.version) == final
    assert late.events == live.events
    initial = len(first.json["items"])
    assert sorted(event["object"]["metadata"]["name"] for event in fresh.events[:initial]) == first.names
    assert fresh.events[initial:] == live.events


@law
@given(histories, st.data())
async def test_a_watch_from_any_version_brings_exactly_the_rest(writes: Any, data: st.DataObject) -> None:
    history = await begun(LocalHub.in_memory())
    for write in writes:
        await history.write(*write)
    selector = data.draw(st.sampled_from(sorted(SELECTORS)))

    for since, state in history.states.items():
        watch = await history.hub.watch(CONFIG_MAPS, asking(selector, resourceVersion=since))
        assert replayed(selected(state, selector), watch, since) == selected(history.present, selector)
        watch.leave()


@law
@given(histories, histories, st.integers(1, 5), st.sampled_from(sorted(SELECTORS)), st.booleans())
async def test_pages_together_are_the_whole_list_despite_writes_between_them(
    before: Any, between: Any, limit: int, selector: Selector, exact: bool
) -> None:
    history = await begun(LocalHub.in_memory())
    for write in before:
        await history.write(*write)
    query: dict[str, Any] = asking(selector)
    whole = await history.hub.get(CONFIG_MAPS, query)
    pinned = {"resourceVersion": whole.version, "resourceVersionMatch": "Exact"} if exact else {}
    if exact:
        for write in between:
            await history.write(*write)
    rest = [] if exact else list(between)
    page = await history.hub.get(CONFIG_MAPS, query | pinned | {"limit": limit})
    items = page.json["items"]
    while token := page.json["metadata"].get("continue"):
        assert len(page.json["items"]) == limit
        for write in rest[:2]:
            await history.write(*write)
        del rest[:2]
        page = await history.hub.get(CONFIG_MAPS, query | {"limit": limit, "continue": token})
        assert page.version == whole.version
        items += page.json["items"]

    assert items == whole.json["items"]


@law
@given(histories)
async def test_every_state_of_the_past_can_be_listed(writes: Any) -> None:
    history = await begun(LocalHub.in_memory())
    for write in writes:
        await history.write(*write)

    for revision, state in history.states.items():
        query = {"resourceVersion": revision, "resourceVersionMatch": "Exact"}
        assert listed((await history.hub.get(CONFIG_MAPS, query)).json["items"]) == state


# --- restarts -------------------------------------------------------------------------------------


@contextmanager
def scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as directory:
        yield Path(directory) / "hub.sqlite"


@settings(law, max_examples=examples(10))
@given(histories, histories, st.sampled_from(sorted(SELECTORS)))
async def test_a_restarted_hub_continues_with_the_same_state(before: Any, after: Any, selector: Selector) -> None:
    with scratch() as path:
        store = await SqliteStore.open(path, stamp=objects.stamp)
        history = await begun(LocalHub(store))
        for write in before:
            await history.write(*write)
        paths = (CONFIG_MAPS, "/api/v1/namespaces", "/api/v1/namespaces/default/serviceaccounts")
        shown = [(await history.hub.get(one)).json["items"] for one in paths]
        first = await history.hub.get(CONFIG_MAPS, asking(selector))
        page = await history.hub.get(CONFIG_MAPS, "limit=1")
        await store.close()

        store = await SqliteStore.open(path, stamp=objects.stamp)
        try:
            history.hub = LocalHub(store)
            assert [(await history.hub.get(one)).json["items"] for one in paths] == shown
            for write in after:
                await history.write(*write)
            for since, state in history.states.items():
                watch = await history.hub.watch(CONFIG_MAPS, asking(selector, resourceVersion=since))
                assert replayed(selected(state, selector), watch, since) == selected(history.present, selector)
                watch.leave()
            if token := page.json["metadata"].get("continue"):
                rest = await history.hub.get(CONFIG_MAPS, {"continue": token})
                assert rest.version == first.version
                assert listed(page.json["items"] + rest.json["items"]) == history.states[first.version]
        finally:
            await store.close()


# --- many clients at once -------------------------------------------------------------------------


@settings(law, max_examples=examples(10))
@given(st.lists(st.lists(writes, min_size=1, max_size=5), min_size=2, max_size=4), st.sampled_from(sorted(SELECTORS)))
async def test_concurrent_writers_and_watchers_agree(clients: Any, selector: Selector) -> None:
    """On a store that really commits in the background: versions are distinct, and every watcher sees them in order."""
    with scratch() as path:
        store = await SqliteStore.open(path, stamp=objects.stamp)
        hub = LocalHub(store)
        try:
            await hub.furnish()
            watches: list[tuple[State, int, Watch]] = []
            versions: list[int] = []

            async def client(writes: Any) -> None:
                for verb, name, chosen in writes:
                    body = {"metadata": {"name": name, "labels": chosen}}
                    first = await hub.get(CONFIG_MAPS, asking(selector))
                    if verb == "create":
                        answer = await hub.post(CONFIG_MAPS, body)
                    elif verb == "delete":
                        answer = await hub.delete(f"{CONFIG_MAPS}/{name}")
                    else:
                        answer = await hub.patch(f"{CONFIG_MAPS}/{name}", body)
                    assert answer.status in (200, 201, 404, 409)
                    if answer.status == 201:
                        versions.append(answer.version)
                    query = asking(selector, resourceVersion=first.version)
                    watches.append((listed(first.json["items"]), first.version, await hub.watch(CONFIG_MAPS, query)))

            await asyncio.gather(*map(client, clients))
            final = listed((await hub.get(CONFIG_MAPS, asking(selector))).json["items"])
            assert len(set(versions)) == len(versions)
            for state, since, watch in watches:
                assert replayed(state, watch, since) == final
                watch.leave()
        finally:
            await store.close()


@settings(law, max_examples=examples(15))
@given(st.lists(st.integers(0, 3), min_size=2, max_size=8))
async def test_of_conditional_updates_exactly_one_wins_per_version(stale: list[int]) -> None:
    """Each writer insists on one of the last versions; only the newest can win, and only once."""
    with scratch() as path:
        store = await SqliteStore.open(path, stamp=objects.stamp)
        hub = LocalHub(store)
        try:
            await hub.furnish()
            history = [int((await hub.config_map("a"))["metadata"]["resourceVersion"])]
            for number in range(3):
                history.append((await hub.patch(f"{CONFIG_MAPS}/a", {"data": {"n": str(number)}})).version)

            async def writer(number: int, back: int) -> int:
                metadata = {"name": "a", "resourceVersion": str(history[-1 - back])}
                body = {"metadata": metadata, "data": {"writer": str(number)}}
                return (await hub.put(f"{CONFIG_MAPS}/a", body)).status

            statuses = await asyncio.gather(*(writer(number, back) for number, back in enumerate(stale)))

            won = [back for back, status in zip(stale, statuses, strict=True) if status == 200]
            assert won == ([0] if 0 in stale else [])
            assert all(status in (200, 409) for status in statuses)
        finally:
            await store.close()
