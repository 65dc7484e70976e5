"""pods/log: which start of which container is asked for, and how what it prints reaches the client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from hub_harness import PODS, Collector, LocalHub, pod
from memory_store import MemoryStore

from farflung.http.messages import Response, Stream
from farflung.hub.catalog import objects
from farflung.hub.endpoints import logs
from farflung.hub.endpoints.logs import LogOptions
from farflung.machinery.errors import ApiError, Obj


class Printing:
    """A node whose containers print what a test says."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, LogOptions]] = []
        self.printed: asyncio.Queue[bytes] = asyncio.Queue()

    async def logs(self, node: str, wanted: LogOptions, ended: Callable[[], bool]) -> AsyncIterator[bytes]:
        self.asked.append((node, wanted))
        yield b"first\n"
        while wanted.follow and not ended():
            yield await self.printed.get()


@pytest.fixture
def nodes() -> Printing:
    return Printing()


@pytest.fixture
async def hub(nodes: Printing) -> LocalHub:
    return await LocalHub(MemoryStore(stamp=objects.stamp), nodes=nodes).furnish()


def state(name: str, restarts: int = 0, *, last: bool = False, **states: Any) -> Obj:
    terminated = {"exitCode": 1, "containerID": "process://old"}
    return {
        "name": name,
        "image": "i",
        "imageID": "",
        "ready": False,
        "restartCount": restarts,
        "state": states,
        "lastState": {"terminated": terminated} if last else {},
    }


async def running(hub: LocalHub, name: str = "p", *statuses: Obj, node: str = "florin") -> None:
    containers = [{"name": one["name"], "image": "i"} for one in statuses] or [{"name": "main", "image": "i"}]
    wanted = pod(name) | {"spec": {"containers": containers} | ({"nodeName": node} if node else {})}
    await hub.create(PODS, wanted)
    await tell(hub, name, *statuses)


async def tell(hub: LocalHub, name: str, *statuses: Obj) -> None:
    answer = await hub.patch(f"{PODS}/{name}/status", {"status": {"containerStatuses": list(statuses)}})
    assert answer.status == 200, answer.body


async def reading(hub: LocalHub, path: str, **query: Any) -> Collector:
    answer = await hub.answer(hub.prepared("GET", path, None, query, {}))
    assert isinstance(answer, Stream), answer
    assert answer.content_type == "text/plain"
    sink = Collector(answer.stop)
    answer.start(sink)
    return sink


async def test_a_log_ends_with_what_there_is(hub: LocalHub, nodes: Printing) -> None:
    await running(hub, "p", state("main", 3, running={}))

    sink = await reading(hub, f"{PODS}/p/log", tailLines=5, limitBytes=100, sinceSeconds=60, timestamps="true")
    await sink.until(lambda: sink.closed)

    assert sink.data == b"first\n"
    ((node, wanted),) = nodes.asked
    uid = (await hub.get(f"{PODS}/p")).json["metadata"]["uid"]
    since = datetime(2024, 5, 1, 11, 59, 0, tzinfo=UTC)
    assert node == "florin"
    assert wanted == LogOptions(uid, "main", 3, tail=5, since=since, timestamps=True, limit=100)


async def test_a_followed_log_continues_until_the_container_ends(hub: LocalHub, nodes: Printing) -> None:
    await running(hub, "p", state("main", running={}))
    sink = await reading(hub, f"{PODS}/p/log", follow="true")
    nodes.printed.put_nowait(b"second\n")
    await sink.until(lambda: sink.data == b"first\nsecond\n")
    assert not sink.closed

    await tell(hub, "p", state("main", terminated={"exitCode": 0, "containerID": "process://1"}))
    nodes.printed.put_nowait(b"third\n")
    await sink.until(lambda: sink.closed)

    assert sink.data == b"first\nsecond\nthird\n"
    assert not sink.aborted


async def test_a_followed_log_ends_with_its_pod(hub: LocalHub, nodes: Printing) -> None:
    await running(hub, "p", state("main", running={}))
    sink = await reading(hub, f"{PODS}/p/log", follow="1")
    await hub.delete(f"{PODS}/p", {"gracePeriodSeconds": 0})
    nodes.printed.put_nowait(b"last\n")

    await sink.until(lambda: sink.closed)


async def test_the_log_is_not_read_for_a_disconnected_client(hub: LocalHub, nodes: Printing) -> None:
    await running(hub, "p", state("main", running={}))
    sink = await reading(hub, f"{PODS}/p/log", follow="1")
    await sink.until(lambda: sink.data == b"first\n")

    sink.close()
    async with asyncio.timeout(60):
        while any(task.get_name() == "log of default/p" for task in asyncio.all_tasks()):
            await asyncio.sleep(0)


async def test_a_log_that_cannot_be_read_ends_without_looking_complete(hub: LocalHub, nodes: Printing) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield b"some\n"
        raise OSError("the disk")

    pump = logs.LogStream(broken(), "default/p")
    sink = Collector(pump.stop)
    pump.start(sink)

    await sink.until(lambda: sink.closed)

    assert (sink.data, sink.aborted) == (b"some\n", True)


async def test_a_slow_client_is_waited_for() -> None:
    turn = asyncio.Semaphore(0)
    made = 0

    class Slow(Collector):
        async def room(self) -> None:
            await turn.acquire()

    async def much() -> AsyncIterator[bytes]:
        nonlocal made
        for _ in range(100):
            made += 1
            yield b"x" * 1000

    pump = logs.LogStream(much(), "default/p")
    sink = Slow(pump.stop)
    pump.start(sink)
    for number in range(1, 101):
        await sink.until(lambda number=number: len(sink.data) == number * 1000)
        assert made == number
        turn.release()
    await sink.until(lambda: sink.closed)


async def test_a_pod_without_a_node_has_printed_nothing(hub: LocalHub, nodes: Printing) -> None:
    await running(hub, "p", node="")

    sink = await reading(hub, f"{PODS}/p/log")
    await sink.until(lambda: sink.closed)

    assert sink.data == b""
    assert not nodes.asked


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({}, "a container name must be specified for pod p, choose one of: [a b] or one of the init containers: [i]"),
        ({"container": "c"}, "container c is not valid for pod p"),
        ({"container": "a", "previous": "true"}, 'previous terminated container "a" in pod "p" not found'),
        ({"container": "b"}, 'container "b" in pod "p" is waiting to start: ContainerCreating'),
        ({"container": "i"}, 'container "i" in pod "p" is not available'),
        ({"container": "a", "tailLines": "x"}, 'strconv.ParseInt: parsing "x": invalid syntax'),
        ({"container": "a", "sinceTime": "yesterday"}, 'parsing time "yesterday" as "2006-01-02T15:04:05Z07:00"'),
    ],
)
async def test_what_cannot_be_shown_is_said_in_upstreams_words(
    hub: LocalHub, nodes: Printing, query: dict[str, str], message: str
) -> None:
    spec = {
        "containers": [{"name": "a", "image": "i"}, {"name": "b", "image": "i"}],
        "initContainers": [{"name": "i", "image": "i"}],
        "nodeName": "florin",
    }
    await hub.create(PODS, {"metadata": {"name": "p"}, "spec": spec})
    await tell(hub, "p", state("a", running={}), state("b", waiting={"reason": "ContainerCreating"}))

    answer = await hub.get(f"{PODS}/p/log", query)

    assert (answer.status, answer.reason) == (400, "BadRequest")
    assert answer.message.startswith(message)


async def test_numbers_that_mean_nothing_are_refused_together(hub: LocalHub, nodes: Printing) -> None:
    await running(hub, "p", state("main", running={}))

    answer = await hub.get(f"{PODS}/p/log", {"tailLines": -1, "limitBytes": 0, "sinceSeconds": 0})
    both = await hub.get(f"{PODS}/p/log", {"sinceSeconds": 5, "sinceTime": "2024-05-01T12:00:00Z"})

    assert answer.status == 422
    for field in ("tailLines", "limitBytes", "sinceSeconds"):
        assert f"{field}: Invalid value" in answer.message
    assert "at most one of `sinceTime` or `sinceSeconds` may be specified" in both.message


async def test_the_log_of_a_missing_container_is_not_found(hub: LocalHub, nodes: Printing) -> None:
    answer = await hub.answer(hub.prepared("GET", f"{PODS}/p/log", None, "", {}))

    assert isinstance(answer, Response)
    assert answer.status == 404


ENDED = {"exitCode": 1, "containerID": "process://1"}


@pytest.mark.parametrize(
    ("status", "previous", "attempt"),
    [
        (state("c", 0, running={}), False, 0),
        (state("c", 4, running={}, last=True), False, 4),
        (state("c", 4, running={}, last=True), True, 3),
        (state("c", 4, terminated=ENDED, last=True), False, 4),
        (state("c", 4, waiting={"reason": "CrashLoopBackOff"}, last=True), False, 4),
        (state("c", 4, waiting={"reason": "CrashLoopBackOff"}, last=True), True, 4),
    ],
)
def test_the_start_that_is_meant_follows_from_the_status(status: Obj, previous: bool, attempt: int) -> None:
    pod = {"metadata": {"name": "p"}, "status": {"containerStatuses": [status]}}

    assert logs.attempt_of(pod, "c", previous=previous) == attempt


@pytest.mark.parametrize(
    ("status", "why"),
    [
        (state("c", waiting={"reason": "ErrImagePull"}), "is waiting to start: image can't be pulled"),
        (state("c", waiting={"reason": "ImagePullBackOff"}), "is waiting to start: trying and failing to pull image"),
        (state("c", terminated={"exitCode": 1}), "is terminated"),
        (state("c"), "is waiting to start - no logs yet"),
    ],
)
def test_a_container_that_never_ran_says_why(status: Obj, why: str) -> None:
    pod = {"metadata": {"name": "p"}, "status": {"containerStatuses": [status]}}

    with pytest.raises(ApiError, match=why):
        logs.attempt_of(pod, "c", previous=False)


@pytest.mark.parametrize("name", ["exec", "attach", "portforward"])
async def test_what_nodes_do_not_offer_is_said_to_be_missing_there(hub: LocalHub, nodes: Printing, name: str) -> None:
    await hub.create(PODS, pod("p"))

    answer = await hub.get(f"{PODS}/p/{name}")

    assert (answer.status, answer.message) == (501, f"pods/{name} is not served: the nodes here do not offer it")
