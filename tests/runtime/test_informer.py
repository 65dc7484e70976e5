"""Who wants to know hears of each change after the cache has it, whatever others do with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest
from hub_harness import ADMIN_TOKEN, CONFIG_MAPS, LocalHub
from local_transport import LocalTransport
from scripted_server import Scripted, ScriptedServer, failure, query_of, said

from farflung.apis.names import Collection
from farflung.client.errors import InvalidResponse
from farflung.client.rest import Client
from farflung.client.transport import OutgoingRequest, Reply
from farflung.lib.backoff import Backoff
from farflung.runtime.cache import CacheChange, CachedObject, Key
from farflung.runtime.environment import Environment
from farflung.runtime.informer import Informer, SharedInformers

MAPS = Collection("", "v1", "configmaps", "ConfigMap")
PATIENCE = 60.0


async def soon(seconds: float) -> None:
    await asyncio.sleep(0)


OUTSIDE = Environment(lambda: 0.0, soon, lambda: 0.5, Backoff(1, 30, lambda: 1.0))


def informer(client: Client, troubles: list[str] | None = None) -> Informer[Any]:
    def trouble(what: str, error: Exception) -> None:
        if troubles is not None:
            troubles.append(what)

    return Informer(client, MAPS, orjson.loads, OUTSIDE, trouble)


def alone() -> Informer[Any]:
    return informer(Client(ScriptedServer(lambda request: failure(500))))


def known(name: str, version: int) -> CachedObject[Any]:
    return CachedObject(Key("", "", name), version, {"version": version})


async def test_listeners_hear_of_changes_in_order_and_the_cache_knows_already() -> None:
    hub = await LocalHub.in_memory().furnish()
    await hub.config_map("before")
    transport = LocalTransport(hub.function, ADMIN_TOKEN)
    made = informer(Client(transport))
    heard: list[tuple[str, bool, bool]] = []
    news = asyncio.Event()

    def listener(change: CacheChange[Any]) -> None:
        assert made.cache.get(change.key) == change.new
        heard.append((change.key.name, change.old is None, change.new is None))
        news.set()

    made.subscribe(listener)
    running = asyncio.create_task(made.run())

    async def until(count: int) -> None:
        async with asyncio.timeout(PATIENCE):
            while len(heard) < count:
                news.clear()
                await news.wait()

    await made.synced.wait()
    await until(1)
    await hub.config_map("after")
    await until(2)
    transport.cut()
    await hub.delete(f"{CONFIG_MAPS}/before")
    await until(3)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert heard == [("before", True, False), ("after", True, False), ("before", False, True)]


def test_a_failing_listener_does_not_keep_others_from_being_notified() -> None:
    troubles: list[str] = []
    made, heard = informer(Client(ScriptedServer(lambda request: failure(500))), troubles), []

    def broken(change: CacheChange[Any]) -> None:
        raise RuntimeError("a mistake")

    made.subscribe(broken)
    made.subscribe(lambda change: heard.append(change.key.name))
    made.replace([known("a", 1), known("b", 2)], 2)
    made.apply(known("c", 3))
    assert heard == ["a", "b", "c"]
    assert troubles[0] == "cannot handle configmaps a"
    assert made.troubles == 3


def test_an_own_write_is_in_the_cache_before_its_event_and_is_notified_once() -> None:
    made, heard = alone(), []
    made.subscribe(heard.append)
    made.replace([], 5)
    written = {"metadata": {"name": "a", "resourceVersion": "7"}}
    made.assume(written)
    assert made.cache[Key("", "", "a")] == written
    made.apply(CachedObject(Key("", "", "a"), 7, written))
    assert len(heard) == 1
    made.assume({"metadata": {"name": "a", "resourceVersion": "6"}})
    assert made.cache[Key("", "", "a")] == written


@pytest.mark.parametrize("answer", [{}, {"metadata": {"name": "a", "resourceVersion": "x"}}, {"metadata": 5}])
def test_an_answer_that_is_no_object_is_garbled(answer: Any) -> None:
    with pytest.raises(InvalidResponse):
        alone().assume(answer)


def test_an_own_deletion_leaves_the_cache_unless_a_later_event_arrived() -> None:
    made, key = alone(), Key("", "", "a")
    made.replace([known("a", 3)], 3)
    made.forget(key, 3)
    assert key not in made.cache
    made.replace([known("a", 3)], 3)
    made.apply(known("a", 9))  # there again, or still there with something to finish
    made.forget(key, 3)
    assert made.cache[key] == {"version": 9}
    made.forget(key)
    assert key not in made.cache
    made.forget(key, 9)


async def test_an_informer_that_resumes_is_notified_only_of_later_changes() -> None:
    hub = await LocalHub.in_memory().furnish()
    await hub.config_map("kept")
    await hub.config_map("deleted")
    transport = LocalTransport(hub.function, ADMIN_TOKEN)
    before = informer(Client(transport))
    running = asyncio.create_task(before.run())
    await asyncio.wait_for(before.synced.wait(), PATIENCE)
    running.cancel()
    remembered = [CachedObject(key, before.cache.version(key), value) for key, value in before.cache.items()]
    await hub.config_map("new")
    await hub.delete(f"{CONFIG_MAPS}/deleted")

    after = informer(Client(transport))
    heard: dict[str, bool] = {}
    news = asyncio.Event()

    def listener(change: CacheChange[Any]) -> None:
        heard[change.key.name] = change.new is not None
        if len(heard) == 2:
            news.set()

    after.subscribe(listener)
    after.resume(remembered, before.cache.delivered)
    assert after.synced.is_set()
    assert {key.name for key in after.cache} == {key.name for key in before.cache}
    running = asyncio.create_task(after.run())
    await asyncio.wait_for(news.wait(), PATIENCE)
    running.cancel()
    assert heard == {"new": True, "deleted": False}


async def test_informers_of_one_collection_share_a_watch_and_survive_each_other() -> None:
    hub = await LocalHub.in_memory().furnish()
    await hub.config_map("before")
    transport = LocalTransport(hub.function, ADMIN_TOKEN)
    shared = SharedInformers(OUTSIDE)

    def watches() -> int:
        return sum("watch=" in sink.target for sink in transport._sinks)

    async def until(made: Informer[Any], name: str) -> None:
        async with asyncio.timeout(PATIENCE):
            while name not in {key.name for key in made.cache}:
                await asyncio.sleep(0)

    def ignore(what: str, error: Exception) -> None:
        raise error

    first = shared.informer(Client(transport), MAPS, orjson.loads, ignore)
    second = shared.informer(Client(transport), MAPS, len, ignore)
    running = [asyncio.create_task(one.run()) for one in (first, second)]
    for one in (first, second):
        await until(one, "before")
    await hub.config_map("after")
    for one in (first, second):
        await until(one, "after")
    assert watches() == 1
    heard: list[str] = []
    second.subscribe(lambda change: heard.append(change.key.name))
    late = shared.informer(Client(transport), MAPS, bytes, ignore)
    running.append(asyncio.create_task(late.run()))
    await until(late, "after")
    assert not heard  # the list for the late informer has no changes for the others
    running[0].cancel()  # which runs the watch
    await asyncio.wait(running[:1])
    await hub.config_map("last")
    for made in (second, late):
        await until(made, "last")
    assert watches() == 1
    assert "last" not in {key.name for key in first.cache}
    for task in running[1:]:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    assert watches() == 0


async def test_clients_of_one_group_share_a_watch_whoever_their_users_are() -> None:
    hub = await LocalHub.in_memory().furnish()
    await hub.config_map("one")
    lines = [LocalTransport(hub.function, ADMIN_TOKEN) for _ in range(3)]
    shared, group = SharedInformers(OUTSIDE), object()

    def ignore(what: str, error: Exception) -> None:
        raise error

    clients = Client(lines[0], group=group), Client(lines[1], "", "other", group=group), Client(lines[2])
    made = [shared.informer(client, MAPS, orjson.loads, ignore) for client in clients]
    running = [asyncio.create_task(one.run()) for one in made]
    for one in made:
        await one.synced.wait()
    assert [bool(line.requests) for line in lines] == [True, False, True]
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)


async def test_an_informer_that_joins_while_changes_arrive_gets_a_list() -> None:
    hub = await LocalHub.in_memory().furnish()
    await hub.config_map("before")
    transport = LocalTransport(hub.function, ADMIN_TOKEN)
    shared = SharedInformers(OUTSIDE)

    def fail(what: str, error: Exception) -> None:
        raise error

    first = shared.informer(Client(transport), MAPS, orjson.loads, fail)
    joined: list[Informer[Any]] = []

    def join(change: CacheChange[Any]) -> None:
        if first.synced.is_set() and change.key.name == "one":
            joined.append(shared.informer(Client(transport), MAPS, len, fail))

    first.subscribe(join)
    running = [asyncio.create_task(first.run())]
    async with asyncio.timeout(PATIENCE):
        await first.synced.wait()
        await asyncio.gather(*(hub.config_map(name) for name in ("one", "two")))
        while not joined:
            await asyncio.sleep(0)
        running.append(asyncio.create_task(joined[0].run()))
        while {key.name for key in joined[0].cache} != {"before", "one", "two"}:
            await asyncio.sleep(0)
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)


class SlowServer:
    """A server whose responses wait for `go`; a cancelled request needs some turns of the event loop to end."""

    def __init__(self, answer: Callable[[OutgoingRequest], Scripted]) -> None:
        self._server = ScriptedServer(answer)
        self.asked = asyncio.Event()
        self.go = asyncio.Event()

    @asynccontextmanager
    async def open(self, request: OutgoingRequest) -> AsyncIterator[Reply]:
        self.asked.set()
        try:
            await self.go.wait()
        finally:
            for _ in range(5):
                await asyncio.sleep(0)
        async with self._server.open(request) as reply:
            yield reply


def one_object(request: OutgoingRequest) -> Scripted:
    if "watch=" in request.target:
        return failure(500)
    return said({"metadata": {"resourceVersion": "5"}, "items": [{"metadata": {"name": "a", "resourceVersion": "3"}}]})


def ignore(what: str, error: Exception) -> None:
    pass


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_an_informer_can_join_while_the_others_wait_for_the_next_attempt() -> None:
    pauses: asyncio.Queue[float] = asyncio.Queue()
    go = asyncio.Event()

    async def sleep(seconds: float) -> None:
        pauses.put_nowait(seconds)
        await go.wait()
        await asyncio.sleep(0)

    answers = iter([failure(500)])
    server = ScriptedServer(lambda request: next(answers, None) or one_object(request))
    shared = SharedInformers(Environment(lambda: 0.0, sleep, lambda: 0.5, Backoff(1, 30, lambda: 1.0)))
    first = shared.informer(Client(server), MAPS, orjson.loads, ignore)
    running = [asyncio.create_task(first.run())]
    async with asyncio.timeout(PATIENCE):
        await pauses.get()
        late = shared.informer(Client(server), MAPS, len, ignore)
        running.append(asyncio.create_task(late.run()))
        go.set()
        await asyncio.gather(first.synced.wait(), late.synced.wait())
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)


async def test_informers_can_join_while_the_list_of_the_others_is_being_cancelled() -> None:
    server = SlowServer(one_object)
    shared = SharedInformers(OUTSIDE)
    made = [shared.informer(Client(server), MAPS, orjson.loads, ignore)]
    running = [asyncio.create_task(made[0].run())]
    async with asyncio.timeout(PATIENCE):
        await server.asked.wait()
        for _ in range(3):
            made.append(shared.informer(Client(server), MAPS, len, ignore))
            running.append(asyncio.create_task(made[-1].run()))
            await turns(2)
        server.go.set()
        await asyncio.gather(*(one.synced.wait() for one in made))
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)


async def test_an_informer_that_left_gets_no_list_that_was_requested_before() -> None:
    server = SlowServer(one_object)
    shared = SharedInformers(OUTSIDE)
    stays, leaves, stops = (shared.informer(Client(server), MAPS, orjson.loads, ignore) for _ in range(3))
    running = [asyncio.create_task(one.run()) for one in (stays, leaves)]
    async with asyncio.timeout(PATIENCE):
        await server.asked.wait()
        await turns(2)
        running[1].cancel()
        stops.stop()
        await turns(2)
        server.go.set()
        await stays.synced.wait()
    assert len(stays.cache) == 1
    assert not leaves.cache
    assert not leaves.synced.is_set()
    assert not stops.cache
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)


async def test_clients_with_other_credentials_have_their_own_watch() -> None:
    servers = ScriptedServer(one_object), ScriptedServer(lambda request: failure(403))
    shared = SharedInformers(OUTSIDE)
    allowed, forbidden = (shared.informer(Client(server), MAPS, orjson.loads, ignore) for server in servers)
    running = [asyncio.create_task(one.run()) for one in (allowed, forbidden)]
    async with asyncio.timeout(PATIENCE):
        await allowed.synced.wait()
        while not forbidden.troubles:
            await asyncio.sleep(0)
    assert not forbidden.cache
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)


async def test_nothing_is_remembered_of_a_collection_that_no_informer_watches() -> None:
    shared = SharedInformers(OUTSIDE)
    client = Client(ScriptedServer(one_object))
    one, other = (shared.informer(client, MAPS, orjson.loads, ignore) for _ in range(2))
    running = asyncio.create_task(one.run())
    async with asyncio.timeout(PATIENCE):
        await one.synced.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert len(shared._reflectors) == 1
    other.stop()
    assert not shared._reflectors
    again = shared.informer(client, MAPS, orjson.loads, ignore)
    other.stop()
    assert len(shared._reflectors) == 1
    running = asyncio.create_task(again.run())
    async with asyncio.timeout(PATIENCE):
        await again.synced.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert not shared._reflectors


# --- kinds that a server need not serve -----------------------------------------------------------


def listed(*names: str) -> Scripted:
    items = [{"metadata": {"name": name, "resourceVersion": "7"}} for name in names]
    return said({"metadata": {"resourceVersion": "7"}, "items": items})


class Script:
    """Answers in turn, and then without end the last one.  `told`: what the informer had before each request."""

    def __init__(self, *answers: Scripted, lenient: bool = True) -> None:
        self._answers = list(answers)
        self.told: list[tuple[bool, list[str]]] = []
        self.troubles: list[str] = []
        self.informer = informer(Client(ScriptedServer(self._answer), lenient=lenient), self.troubles)

    def _answer(self, request: OutgoingRequest) -> Scripted:
        made = self.informer
        self.told.append((made.synced.is_set(), [key.name for key in made.cache]))
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]

    async def run(self, requests: int) -> None:
        running = asyncio.create_task(self.informer.run())
        async with asyncio.timeout(PATIENCE):
            while len(self.told) < requests:
                await asyncio.sleep(0)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_a_kind_counts_as_empty_until_the_server_serves_it() -> None:
    script = Script(failure(404, "NotFound"), failure(404, "NotFound"), listed("a"), failure(500))
    await script.run(4)
    assert script.told == [(False, []), (True, []), (True, []), (True, ["a"])]
    assert "cannot list configmaps" not in script.troubles


async def test_a_kind_that_was_served_once_is_never_emptied() -> None:
    script = Script(listed("a"), failure(404, "NotFound"))
    await script.run(5)
    assert [names for _, names in script.told[1:]] == [["a"]] * 4
    assert "cannot watch configmaps" in script.troubles
    assert "cannot list configmaps" in script.troubles


@pytest.mark.parametrize(("code", "lenient"), [(404, False), (403, True), (500, True)])
async def test_no_other_failure_counts_as_an_empty_kind(code: int, lenient: bool) -> None:
    script = Script(failure(code), lenient=lenient)
    await script.run(4)
    assert not script.informer.synced.is_set()


@pytest.mark.parametrize("leniencies", [(False, True), (True, False)])
async def test_an_informer_waits_until_the_kind_is_served_although_another_one_of_its_watch_does_not(
    leniencies: tuple[bool, bool],
) -> None:
    served = False

    def answer(request: OutgoingRequest) -> Scripted:
        if not served:
            return failure(404, "NotFound")
        return failure(500) if "watch" in query_of(request) else listed("a")

    shared, server = SharedInformers(OUTSIDE), ScriptedServer(answer)
    troubles: dict[bool, list[str]] = {True: [], False: []}
    informers = {
        one: shared.informer(
            Client(server, lenient=one), MAPS, orjson.loads, lambda what, error, one=one: troubles[one].append(what)
        )
        for one in leniencies
    }
    running = [asyncio.create_task(one.run()) for one in informers.values()]
    async with asyncio.timeout(PATIENCE):
        await informers[True].synced.wait()
        while not troubles[False]:
            await asyncio.sleep(0)
        assert not informers[False].synced.is_set()
        assert not troubles[True]
        served = True
        await informers[False].synced.wait()
    assert [[key.name for key in one.cache] for one in informers.values()] == [["a"], ["a"]]
    assert len({request.target for request in server.requests if "watch" not in query_of(request)}) == 1
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
