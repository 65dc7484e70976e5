"""The event loop in which waiting takes no time, which many tests rely on."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable

import pytest
from simulated_time import SIMULATED_PATIENCE, ShuffledSimulatedLoop, SimulatedLoop, monotonic, now, poll

LOOPS = pytest.mark.parametrize("loop", [SimulatedLoop, lambda: ShuffledSimulatedLoop(7)], ids=["plain", "shuffled"])
Loop = Callable[[], SimulatedLoop]


@LOOPS
def test_sleepers_wake_in_the_order_of_their_timers_and_a_year_takes_no_time(loop: Loop) -> None:
    year = 365 * 24 * 3600.0
    woken: list[str] = []

    async def sleep(name: str, seconds: float) -> None:
        await asyncio.sleep(seconds)
        woken.append(name)

    async def main() -> None:
        began, day = monotonic(), now()
        await asyncio.gather(sleep("late", year), sleep("early", 1.0), sleep("middle", year / 2))
        assert year <= monotonic() - began < year + 1
        assert (now() - day).days == 365

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(main())
    assert woken == ["early", "middle", "late"]


@LOOPS
def test_no_time_is_skipped_while_a_thread_works(loop: Loop) -> None:
    async def main() -> None:
        async with asyncio.timeout(3600):
            await asyncio.to_thread(time.sleep, 0.01)
        assert monotonic() < 3600

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(main())


@LOOPS
def test_no_time_is_skipped_while_a_socket_is_read(loop: Loop) -> None:
    async def main() -> None:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.setblocking(False)
            sent = asyncio.to_thread(lambda: (time.sleep(0.01), theirs.send(b"x")))
            async with asyncio.timeout(3600):
                received, _ = await asyncio.gather(asyncio.get_running_loop().sock_recv(ours, 1), sent)
        assert received == b"x"
        assert monotonic() < 3600

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(main())


@LOOPS
def test_a_task_that_only_yields_sees_time_pass(loop: Loop) -> None:
    async def main() -> None:
        while monotonic() < 0.1:
            await asyncio.sleep(0)

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(main())


def test_a_condition_is_waited_for_and_given_up_at_last() -> None:
    async def main() -> None:
        assert await poll(lambda: monotonic() > 100) is True
        began = monotonic()
        assert await poll(lambda: False) is None
        assert monotonic() - began >= SIMULATED_PATIENCE

    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        runner.run(main())
