"""A key that goes wrong is looked at again, and keeps nobody else from being looked at."""

from __future__ import annotations

import asyncio
import io
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hub_harness import ADMIN_TOKEN, LocalHub
from hypothesis import given
from hypothesis import strategies as st
from local_transport import LocalTransport
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from scripted_server import ScriptedServer, failure

from farflung.apis.names import Collection
from farflung.client.errors import AlreadyExists, InvalidResponse, TooMany, Unreachable, UpdateConflict
from farflung.client.rest import Client
from farflung.lib.backoff import Backoff
from farflung.lib.klog import Logger
from farflung.lib.workqueue import WorkQueue
from farflung.runtime.controller import Controller
from farflung.runtime.environment import Environment
from farflung.runtime.informer import Informer
from farflung.runtime.manager import Manager

PATIENCE = 60.0
AT_ONCE = Backoff(0.0, 0.0, lambda: 1.0)
MAPS = Collection("", "v1", "configmaps", "ConfigMap")


def controller(
    reconcile: Callable[[str, int], Awaitable[float | None]],
    *,
    workers: int = 1,
    backoff: Backoff = AT_ONCE,
    now: Callable[[], float] = lambda: 0.0,
    log: Logger | None = None,
) -> Controller[str]:
    log = log or Logger(io.StringIO(), 9)
    return Controller("tester", reconcile, workers=workers, backoff=backoff, queue=WorkQueue(now), log=log)


@asynccontextmanager
async def running(what: Controller[Any] | Manager) -> AsyncIterator[None]:
    task = asyncio.create_task(what.run())
    try:
        yield
    finally:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0)


ERRORS: list[BaseException] = [
    RuntimeError("secret of the key"),
    RecursionError(),
    MemoryError(),
    KeyError("x"),
    AssertionError(),
    TimeoutError(),
    StopAsyncIteration(),
    asyncio.CancelledError(),
    ExceptionGroup("several", [ValueError("a"), OSError("b")]),
    Unreachable("away"),
    InvalidResponse("odd"),
    UpdateConflict(409, "Conflict", "changed"),
    AlreadyExists(409, "AlreadyExists", "there"),
    TooMany(429, "TooManyRequests", "wait", retry_after=None),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
async def test_a_key_that_raises_any_exception_is_retried_and_others_are_processed(error: BaseException) -> None:
    said, seen, failing = io.StringIO(), [], 3

    async def reconcile(key: str, worker: int) -> float | None:
        nonlocal failing
        seen.append(key)
        if key == "bad" and failing:
            failing -= 1
            raise error
        return None

    made = controller(reconcile, log=Logger(said, 9))
    made.queue.add("bad")
    made.queue.add("good")
    async with running(made):
        await until(lambda: made.tally.successes == 2)
    assert (made.tally.failures, seen.count("bad"), seen.count("good")) == (3, 4, 1)
    assert "secret" not in said.getvalue()
    if type(error) is RuntimeError:
        assert "RuntimeError at " in said.getvalue()


async def test_a_key_that_fails_for_ever_keeps_one_worker_from_nothing() -> None:
    async def reconcile(key: str, worker: int) -> float | None:
        await asyncio.sleep(0)
        if key == "bad":
            raise RuntimeError
        return None

    made = controller(reconcile)
    made.queue.add("bad")
    async with running(made):
        for number in range(20):
            made.queue.add(f"good {number}")
        await until(lambda: made.tally.successes == 20)


async def test_the_server_says_how_long_to_wait_at_least() -> None:
    now = 0.0

    async def reconcile(key: str, worker: int) -> float | None:
        if not made.tally.failures:
            raise TooMany(429, "TooManyRequests", "wait", retry_after=30.0)
        return None

    made = controller(reconcile, backoff=Backoff(1.0, 10.0, lambda: 1.0), now=lambda: now)
    made.queue.add("a")
    async with running(made):
        await until(lambda: made.tally.failures == 1)
        now = 29.0
        made.queue.add("other")  # makes the worker look at the clock
        await until(lambda: made.tally.successes == 1)
        assert len(made.queue) == 1
        now = 31.0
        made.queue.add("other")
        await until(lambda: made.tally.successes == 3)


async def test_a_key_may_want_to_be_looked_at_again_later() -> None:
    now, seen = 0.0, []

    async def reconcile(key: str, worker: int) -> float | None:
        seen.append((key, now))
        return 60.0 if key == "a" and len(seen) == 1 else None

    made = controller(reconcile, now=lambda: now)
    made.queue.add("a")
    async with running(made):
        await until(lambda: seen)
        now = 61.0
        made.queue.add("b")
        await until(lambda: len(seen) == 3)
    assert sorted(seen) == [("a", 0.0), ("a", 61.0), ("b", 61.0)]


async def test_failures_are_waited_for_longer_each_time_until_one_succeeds() -> None:
    said: list[float] = []

    class Noted(Backoff):
        def delay(self, failures: int, asked: float | None = None) -> float:
            said.append(failures)
            return 0.0

    outcomes = itertools.chain([1, 1, 1, 0, 1, 0], itertools.repeat(0))

    async def reconcile(key: str, worker: int) -> float | None:
        if next(outcomes):
            raise Unreachable("away")
        made.queue.add_after(key, 0.0)
        return None

    made = controller(reconcile, backoff=Noted(1.0, 2.0, lambda: 1.0))
    made.queue.add("a")
    async with running(made):
        await until(lambda: made.tally.successes == 2)
    assert said[:4] == [1, 2, 3, 1]


async def test_keys_that_need_nothing_leave_everybody_else_their_turn() -> None:
    turns = 0

    async def reconcile(key: str, worker: int) -> float | None:
        return 0.0  # again, and again

    made = controller(reconcile)
    made.queue.add("a")
    async with running(made):
        while made.tally.successes < 100:
            await asyncio.sleep(0)
            turns += 1
    assert turns >= 50


async def test_a_stop_ends_what_is_under_way_and_leaves_no_task() -> None:
    began, ended = asyncio.Event(), []

    async def reconcile(key: str, worker: int) -> float | None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(key)
        return None

    before = asyncio.all_tasks()
    made = controller(reconcile, workers=3)
    made.queue.add("a")
    async with running(made):
        await began.wait()
    assert ended == ["a"]
    assert asyncio.all_tasks() == before
    assert made.tally.failures == 0


# --- many of them -----------------------------------------------------------------------------------


async def soon(seconds: float) -> None:
    await asyncio.sleep(0)


OUTSIDE = Environment(lambda: 0.0, soon, lambda: 0.5, Backoff(1, 30, lambda: 1.0))


def informer(client: Client) -> Informer[Any]:
    return Informer(client, MAPS, bytes, OUTSIDE, lambda what, error: None)


async def nothing(key: str, worker: int) -> float | None:
    return None


async def test_controllers_begin_when_everything_was_listed_and_not_before() -> None:
    hub = await LocalHub.in_memory().furnish()
    await hub.config_map("one")
    up, down = LocalTransport(hub.function, ADMIN_TOKEN), LocalTransport(hub.function, ADMIN_TOKEN, up=False)
    looked = []

    async def reconcile(key: str, worker: int) -> float | None:
        looked.append(key)
        return None

    manager = Manager(Logger(io.StringIO(), 9))
    made, first, second = controller(reconcile), informer(Client(up)), informer(Client(down))
    first.subscribe(lambda change: made.queue.add(change.key.name))
    manager.add(made, [first, second])
    assert not manager.synced
    async with running(manager):
        await until(first.synced.is_set)
        await until(lambda: second.troubles > 3)
        assert (manager.synced, manager.started, manager.idle, looked) == (False, False, False, [])
        down.up = True
        await until(lambda: looked == ["one"])
        await until(lambda: manager.idle)
        assert manager.synced
        assert manager.started


async def test_nothing_is_ready_before_it_runs() -> None:
    manager = Manager(Logger(io.StringIO()))
    assert (manager.synced, manager.idle) == (False, False)
    manager.add(controller(nothing), [])
    async with running(manager):
        await until(lambda: manager.idle)


async def test_an_informer_of_two_controllers_runs_once() -> None:
    hub = await LocalHub.in_memory().furnish()
    transport = LocalTransport(hub.function, ADMIN_TOKEN)
    shared, manager = informer(Client(transport)), Manager(Logger(io.StringIO()))
    manager.add(controller(nothing), [shared])
    manager.add(controller(nothing), [shared])
    async with running(manager):
        await until(lambda: sum("watch=" in request.target for request in transport.requests) == 1)
        assert len(transport.requests) == 2


class Independent:
    """Finds out by itself what it has to hear of."""

    def __init__(self, client: Client) -> None:
        self.controllers = [controller(nothing), controller(nothing)]
        self.informers: list[Informer[Any]] = []
        self.synced = False
        self._client = client

    async def run(self) -> None:
        self.informers.append(informer(self._client))
        await self.informers[0].run()


async def test_a_controller_with_its_own_informers_runs_and_is_reported_with_the_others() -> None:
    hub = await LocalHub.in_memory().furnish()
    manager = Manager(Logger(io.StringIO()))
    one = Independent(Client(LocalTransport(hub.function, ADMIN_TOKEN)))
    manager.adopt(one)
    async with running(manager):
        await until(lambda: bool(one.informers) and one.informers[0].synced.is_set())
        assert not manager.synced
        one.synced = True
        assert manager.synced
        assert not manager.started
        assert manager.idle
        one.controllers[1].queue.add("a")
        assert not manager.idle
        assert manager.controllers == one.controllers
        registry = CollectorRegistry()
        registry.register(manager.figures())
        assert 'farflung_cached_objects{resource="configmaps"}' in generate_latest(registry).decode()


async def test_metrics_are_reported_once_per_kind_even_with_two_informers() -> None:
    away = Client(ScriptedServer(lambda request: failure(503)))
    manager = Manager(Logger(io.StringIO()))
    first, second, made = informer(away), informer(away), controller(nothing)
    manager.add(made, [first, second])
    made.queue.add("a")
    made.tally.successes, made.tally.failures, first.troubles, second.troubles = 5, 2, 1, 3
    registry = CollectorRegistry()
    registry.register(manager.figures())
    text = generate_latest(registry).decode()
    samples = [
        (sample.name, *sorted(sample.labels.values()), sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    ]
    assert sorted(samples) == [
        ("farflung_cached_objects", "configmaps", 0.0),
        ("farflung_informer_troubles_total", "configmaps", 4.0),
        ("farflung_queue_depth", "tester", 1.0),
        ("farflung_reconciles_total", "failure", "tester", 2.0),
        ("farflung_reconciles_total", "success", "tester", 5.0),
    ]


# --- how long to wait -------------------------------------------------------------------------------


@given(st.floats(0.001, 10), st.floats(0.001, 1000), st.integers(1, 100_000), st.floats(0, 1))
def test_a_pause_doubles_up_to_a_limit_and_is_never_less_than_half(
    first: float, longest: float, failures: int, chance: float
) -> None:
    whole = min(longest, first * 2.0 ** min(failures - 1, 32))
    backoff = Backoff(first, longest, lambda: chance)
    assert whole / 2 <= backoff.delay(failures) <= whole
    assert backoff.delay(failures, longest * 2) == longest * 2
    assert backoff.delay(failures, longest * 1000) == longest * 4


async def test_keys_that_failed_without_an_answer_are_looked_at_when_the_server_answers_again() -> None:
    """They begin with the shortest pause again; keys that failed otherwise wait for their time."""
    looks: list[str] = []
    answers = False

    async def reconcile(key: str, worker: int) -> None:
        looks.append(key)
        if key == "refused":
            raise InvalidResponse("odd")
        if not answers:
            raise Unreachable("away")

    one = controller(reconcile, backoff=Backoff(1000.0, 1000.0, lambda: 1.0))
    async with running(one):
        for key in ("away", "refused"):
            one.queue.add(key)
        await until(lambda: len(looks) == 2 and one.queue.idle)
        answers = True
        one.retry_unreached()
        await until(lambda: len(looks) == 3 and one.queue.idle)
        one.retry_unreached()
        await until(lambda: one.queue.idle)
    assert looks == ["away", "refused", "away"]
    assert len(one.queue) == 1


async def test_a_key_that_a_worker_has_when_a_server_answers_again_is_looked_at_right_after() -> None:
    """Its request may have been sent before, and get no answer."""
    looks, hanging = 0, asyncio.Event()

    async def reconcile(key: str, worker: int) -> float | None:
        nonlocal looks
        looks += 1
        if looks == 2:
            await hanging.wait()
        if looks < 3:
            raise Unreachable("away")
        return None

    one = controller(reconcile, backoff=Backoff(1000.0, 1000.0, lambda: 1.0))
    async with running(one):
        one.queue.add("a")
        await until(lambda: one.tally.failures == 1)
        one.queue.add("a")
        await until(lambda: looks == 2)
        one.retry_unreached()
        hanging.set()
        await until(lambda: one.tally.successes == 1)
