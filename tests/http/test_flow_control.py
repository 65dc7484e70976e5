"""One client's flood delays others by a few slices of work, and is refused beyond its limits.

The clock is the work of the handler: `/get` costs 1 ms, `/list` 50 ms in ten steps between which it gives way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import orjson
import pytest

from farflung.http.flow_control import BUSY, FlowControl, FlowLimits
from farflung.http.messages import Answer, Flow, Request, Response, Stream
from farflung.lib.worker_pool import JobOwner, JobTerms, JobTurn

MILLISECOND = 0.001
AT_ONCE = round(BUSY / MILLISECOND)  #: requests that are answered before the loop is busy


class Service:
    """Notes in which order it answers requests."""

    def __init__(self, **limits: Any) -> None:
        self.now = 0.0
        self.begun: list[str] = []
        self.answered: list[str] = []
        self.gate = asyncio.Event()
        self.turns: list[JobTurn] = []
        self.stopped = 0
        self.control = FlowControl(self._handle, self._flow_of, FlowLimits(**limits), {}, lambda: self.now)

    @staticmethod
    def _flow_of(request: Request) -> Flow | None:
        user = request.headers["user"]
        return None if user == "admin" else Flow("workloads", user.partition("-")[0], user)

    def _handle(self, request: Request) -> Answer | Awaitable[Answer]:
        self.begun.append(request.headers["user"])
        match request.path:
            case "/get":
                self.now += MILLISECOND
                self.answered.append(request.headers["user"])
                return Response(200)
            case "/list":
                return self._list(request)
            case "/put":
                return self._put(request)
            case "/compute":
                return self._compute(request)
            case "/watch":
                return self._watch()
        raise RuntimeError("deliberate")

    async def _list(self, request: Request) -> Answer:
        for _ in range(10):
            self.now += 5 * MILLISECOND
            await asyncio.sleep(0)
        self.answered.append(request.headers["user"])
        return Response(200)

    async def _put(self, request: Request) -> Answer:
        self.now += MILLISECOND
        await self.gate.wait()
        self.answered.append(request.headers["user"])
        return Response(200)

    async def _compute(self, request: Request) -> Answer:
        turn = JobTurn(JobTerms(JobOwner("", "", ""), 0.0))
        self.turns.append(turn)
        await turn
        await self.gate.wait()
        return Response(200)

    async def _watch(self) -> Answer:
        def stop() -> None:
            self.stopped += 1

        return Stream(lambda sink: None, stop)

    def send(self, user: str, path: str, body: bytes = b"") -> asyncio.Task[Answer]:
        """As a connection does: call the handler at once, and await its answer if it has none yet."""
        method = "PUT" if path in ("/put", "/compute") else "GET"
        answer = self.control(Request(method, path, headers={"user": user}, body=body))

        async def awaited() -> Answer:
            return answer if isinstance(answer, Response | Stream) else await answer

        return asyncio.get_running_loop().create_task(awaited())


def refusal(answer: Answer) -> dict[str, Any]:
    assert isinstance(answer, Response)
    assert isinstance(answer.body, bytes)
    assert (answer.status, dict(answer.headers)["Retry-After"]) == (429, "1")
    found: dict[str, Any] = orjson.loads(answer.body)
    assert (found["kind"], found["reason"], found["details"]) == ("Status", "TooManyRequests", {"retryAfterSeconds": 1})
    return found


async def test_a_request_to_an_idle_server_is_answered_at_once() -> None:
    service = Service()
    assert isinstance(service.control(Request("GET", "/get", headers={"user": "ann"})), Response)
    assert not service.control.dispatched


async def test_a_request_is_served_next_after_a_flood_of_another_user() -> None:
    service = Service()
    flood = [service.send("ann", "/get") for _ in range(400)]
    await service.send("bob", "/get")
    assert service.answered.index("bob") <= AT_ONCE + 2
    await asyncio.gather(*flood)
    assert len(service.answered) == 401


async def test_users_of_one_tenant_get_no_more_than_another_tenant() -> None:
    service = Service()
    flood = [service.send(f"ann-{number}", "/get") for number in range(400)]
    mine = [service.send("bob", "/get") for _ in range(20)]
    await asyncio.gather(*mine)
    assert len(service.answered) <= 50 + AT_ONCE
    await asyncio.gather(*flood)


async def test_a_request_waits_for_one_step_of_long_requests_and_not_for_their_end() -> None:
    service = Service()
    flood = [service.send("ann", "/list") for _ in range(50)]
    while service.now < 40 * MILLISECOND:
        await asyncio.sleep(0)
    before = service.now
    await service.send("bob", "/get")
    assert service.now - before < 100 * MILLISECOND
    await asyncio.gather(*flood)


async def test_writes_that_wait_for_workers_leave_their_seats_to_other_writes() -> None:
    """The attack: a few large bodies, which count several times, take all seats of writes while they wait."""
    service = Service(mutating=10)
    large = [service.send("ann", "/compute", b"x" * 640 * 1024) for _ in range(5)]
    while len(service.turns) < 5:
        await asyncio.sleep(0)
    assert service.control.mutating.taken == 0
    service.gate.set()
    await service.send("bob", "/put")
    service.gate.clear()
    service.turns[0].set_exception(RuntimeError("no worker"))
    service.turns[1].cancel()
    for turn in service.turns[2:]:
        turn.set_result(None)  # type: ignore[arg-type]
    while not (large[0].done() and large[1].done() and service.control.mutating.taken):
        await asyncio.sleep(0)
    assert service.control.mutating.taken == 3 * 11
    service.gate.set()
    await asyncio.gather(*large, return_exceptions=True)
    assert service.control.mutating.taken == 0


async def test_requests_of_users_without_a_flow_never_wait() -> None:
    service = Service()
    flood = [service.send("ann", "/get") for _ in range(100)]
    assert isinstance(service.control(Request("GET", "/get", headers={"user": "admin"})), Response)
    await asyncio.gather(*flood)


async def test_a_user_with_too_many_waiting_requests_is_refused_with_429() -> None:
    service = Service(queued=10)
    flood = [service.send("ann", "/get") for _ in range(100)]
    other = service.send("bob", "/get")
    answers = await asyncio.gather(*flood)
    refused = [answer for answer in answers if answer.status == 429]
    assert len(refused) == 90 - AT_ONCE
    assert "10 requests of the user are waiting" in refusal(refused[0])["message"]
    assert (await other).status == 200
    assert service.control.rejected == {("workloads", "queue-full"): 90 - AT_ONCE}


async def test_a_tenant_with_too_many_waiting_requests_is_refused_with_429() -> None:
    service = Service(queued_of_tenant=10)
    flood = [service.send(f"ann-{number}", "/get") for number in range(100)]
    other = service.send("bob", "/get")
    assert [answer.status for answer in await asyncio.gather(*flood)].count(429) == 90 - AT_ONCE
    assert (await other).status == 200


async def test_the_bodies_of_waiting_requests_are_limited_by_tenant() -> None:
    service = Service(mutating=1, queued_bytes=2_500)
    first = service.send("ann", "/put")
    flood = [service.send("ann", "/put", bytes(1_000)) for _ in range(5)]
    other = service.send("bob", "/put", bytes(2_000))
    service.gate.set()
    assert [answer.status for answer in await asyncio.gather(first, *flood)] == [200, 200, 200, 429, 429, 429]
    assert (await other).status == 200


async def test_writes_in_progress_are_limited_and_reads_do_not_wait_for_them() -> None:
    service = Service(mutating=2)
    writes = [service.send("ann", "/put") for _ in range(5)]
    await asyncio.sleep(0)
    await service.send("ann", "/get")
    assert service.begun == ["ann", "ann", "ann"]
    assert service.control.mutating.taken == 2
    other = service.send("bob", "/put")
    service.gate.set()
    await asyncio.gather(*writes, other)
    assert (service.answered[-4:].count("bob"), service.control.mutating.taken) == (1, 0)


async def test_a_write_with_a_large_body_takes_several_seats() -> None:
    service = Service(mutating=10)
    write = service.send("ann", "/put", bytes(1024 * 1024))
    await asyncio.sleep(0)
    assert service.control.mutating.taken == 17
    service.gate.set()
    await write
    assert service.control.mutating.taken == 0


async def test_a_request_that_waited_too_long_is_refused() -> None:
    service = Service(mutating=1, wait=5.0)
    writes = [service.send("ann", "/put") for _ in range(2)]
    await asyncio.sleep(0)
    service.now += 6.0
    service.gate.set()
    answers = await asyncio.gather(*writes)
    assert "waited too long" in refusal(answers[1])["message"]
    assert service.control.rejected == {("workloads", "time-out"): 1}


async def test_open_watches_of_a_user_are_limited() -> None:
    service = Service(streams=2)
    answers = [await service.send("ann", "/watch") for _ in range(3)]
    assert "2 open watches" in refusal(answers[2])["message"]
    assert service.stopped == 1
    assert isinstance(await service.send("bob", "/watch"), Stream)
    assert isinstance(answers[0], Stream)
    answers[0].stop()
    assert isinstance(await service.send("ann", "/watch"), Stream)
    assert service.control.open_streams == 3


async def test_a_cancelled_request_is_never_begun() -> None:
    service = Service(mutating=1)
    first, cancelled = service.send("ann", "/put"), service.send("bob", "/put")
    await asyncio.sleep(0)
    cancelled.cancel()
    service.gate.set()
    await first
    await service.send("eve", "/put")
    assert service.begun == ["ann", "eve"]
    assert (service.control.queued.total(), len(service.control.mutating.queue)) == (0, 0)


async def test_a_cancelled_request_in_progress_leaves_its_seat() -> None:
    service = Service(mutating=1)
    write = service.send("ann", "/put")
    await asyncio.sleep(0)
    other = service.send("bob", "/put")
    await asyncio.sleep(0)
    write.cancel()
    service.gate.set()
    await other
    assert service.control.mutating.taken == 0


async def test_an_error_of_the_handler_reaches_the_connection() -> None:
    service = Service()
    flood = [service.send("ann", "/get") for _ in range(5)]
    failing = service.send("bob", "/fail")
    with pytest.raises(RuntimeError, match="deliberate"):
        await failing
    await asyncio.gather(*flood)
