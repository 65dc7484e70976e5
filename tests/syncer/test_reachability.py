"""A side that was away is served as soon as it answers again, however long everything has waited meanwhile."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from local_transport import LocalReply
from syncing import MAPS, NAMESPACES, linked, scope
from translated import config_map, namespace

from farflung.client.errors import ClientError, Unreachable
from farflung.client.rest import Client
from farflung.client.transport import OutgoingRequest, Reply
from farflung.lib.backoff import Backoff
from farflung.runtime.environment import Environment
from farflung.syncer import discovery
from farflung.syncer.reachability import FIRST_PROBE, LONGEST_PROBE, RECENT, Reachability

FOR_EVER = 1000.0  #: seconds; longer than any test waits


async def sleep(seconds: float) -> None:
    """Only pauses between probes end soon."""
    await asyncio.sleep(0 if seconds <= LONGEST_PROBE else seconds)


@dataclass
class Server:
    """Answers with these, one after the other, and the last one for ever; 0: not at all."""

    statuses: list[int]
    targets: list[str] = field(default_factory=list)

    @asynccontextmanager
    async def open(self, request: OutgoingRequest) -> AsyncIterator[Reply]:
        self.targets.append(request.target)
        status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
        if not status:
            raise Unreachable("connection refused")

        async def body() -> AsyncIterator[bytes]:
            yield b"{}"

        yield LocalReply(status, {}, body)


@dataclass
class Side:
    server: Server
    now: float = 0.0
    restored: int = 0
    pauses: list[float] = field(default_factory=list)  #: of all sleep that began
    reachability: Reachability = field(init=False)

    def __post_init__(self) -> None:
        backoff = Backoff(0.05, FOR_EVER, lambda: 1.0)
        env = Environment(lambda: self.now, self._sleep, lambda: 1.0, backoff)
        self.reachability = Reachability(Client(self.server, "/clusters/mailbox"), env, self._count)

    def _count(self) -> None:
        self.restored += 1

    async def _sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        await sleep(seconds)

    async def fail(self) -> None:
        with pytest.raises(ClientError):
            await self.reachability.client.raw("/apis")

    async def until_restored(self) -> None:
        async with asyncio.timeout(60):
            while not self.restored:
                await asyncio.sleep(0)


@asynccontextmanager
async def side(*statuses: int) -> AsyncIterator[Side]:
    one = Side(Server(list(statuses)))
    running = asyncio.create_task(one.reachability.run())
    yield one
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def turns(number: int = 2000) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


async def test_all_sleep_ends_with_the_first_answer_of_a_side_that_was_away() -> None:
    async with side(0, 0, 0, 0, 200) as one:
        sleeping = [asyncio.create_task(one.reachability.env.sleep(FOR_EVER)) for _ in range(3)]
        await one.fail()
        await asyncio.wait_for(asyncio.gather(*sleeping), 60)
        assert one.restored == 1
        assert not one.reachability.is_away
        assert one.server.targets == ["/clusters/mailbox/apis", *["/clusters/mailbox/version"] * 4]


async def test_a_request_that_fails_alone_ends_no_sleep() -> None:
    async with side(0, 200) as one:
        sleeping = asyncio.create_task(one.reachability.env.sleep(FOR_EVER))
        await one.fail()
        await turns()
        assert len(one.server.targets) == 2
        assert (one.restored, sleeping.done()) == (0, False)
        sleeping.cancel()


async def test_an_answer_without_a_failure_is_not_probed() -> None:
    async with side(200, 404) as one:
        await one.reachability.client.raw("/apis")
        await one.fail()
        await turns()
        assert one.server.targets == ["/clusters/mailbox/apis"] * 2


async def test_a_gateway_that_answers_for_the_server_is_no_answer() -> None:
    async with side(0, 502, 503, 504, 403) as one:
        await one.fail()
        await one.until_restored()
        assert len(one.server.targets) == 5


async def test_pauses_stay_short_for_a_minute_after_the_return() -> None:
    async with side(0, 0, 200) as one:
        backoff = one.reachability.env.backoff
        assert backoff.delay(30) == FOR_EVER
        await one.fail()
        await one.until_restored()
        assert backoff.delay(1) == 0.05
        assert backoff.delay(30) <= LONGEST_PROBE
        assert backoff.delay(30, retry_after=20.0) == 20.0
        one.now += RECENT
        assert backoff.delay(30) == FOR_EVER


async def test_an_unstable_side_is_probed_with_backoff() -> None:
    rounds = 8
    async with side(*[0, 0, 200] * rounds, *[0, 0, 200]) as one:
        for number in range(rounds):
            await one.fail()
            await turns()
            assert one.restored == number + 1
        assert one.pauses[:3] == [FIRST_PROBE, 2 * FIRST_PROBE, 4 * FIRST_PROBE]
        assert one.pauses[-1] == LONGEST_PROBE
        one.now += RECENT
        await one.fail()
        await turns()
        assert (one.restored, one.pauses[-1]) == (rounds + 1, FIRST_PROBE)


# --- a syncer -------------------------------------------------------------------------------------


@contextmanager
def patient() -> Iterator[Environment]:
    """Pauses after a failure never end by themselves; only probes are sent."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(discovery, "MISSING", Backoff(FOR_EVER, FOR_EVER, lambda: 1.0))
        yield Environment(time.monotonic, sleep, lambda: 0.5, Backoff(FOR_EVER, FOR_EVER, lambda: 1.0))


@pytest.mark.parametrize("away", ["up", "down"])
async def test_a_side_that_returns_is_served_at_once_although_everything_waits(tmp_path: Path, away: str) -> None:
    with patient() as env:
        async with linked(tmp_path, starts=False) as link:
            link.env, link.beat = env, FOR_EVER
            await link.configure(scope("shop", resources=(MAPS,)))
            await link.put(NAMESPACES, namespace("shop"))
            await link.put(MAPS, config_map("a", {"v": "1"}), "shop")
            line = getattr(link, away)
            line.up = False
            await link.start()
            await turns()
            line.up = True
            await link.at_edge(MAPS, "a", "shop")
            line.go_down()
            await link.put(MAPS, config_map("b", {"v": "1"}), "shop")
            await link.mailbox.delete(MAPS, "a", "shop")
            await turns()
            line.up = True
            await link.at_edge(MAPS, "b", "shop")
            await link.gone_at_edge(MAPS, "a", "shop")
            await link.gone_in_mailbox(MAPS, "a", "shop")
