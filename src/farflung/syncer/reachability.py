"""End all pauses as soon as an unreachable side answers again.

Retries have growing pauses of up to a minute, which is right for a server that refuses and too long for one that was
unreachable.  So a request without an answer makes one task probe `/version`.  If the probe has no answer either, the
side is away: the task probes it every few seconds, and the first answer ends all pauses.

    request fails ──► probe answered: only that request failed, and its sender pauses as usual
                  └─► probe fails ──► AWAY ──► probes, at most LONGEST_PROBE apart ──answer──► `restored`

Pauses between probes also grow if the side answers in between, until it did so for a minute: an unstable side makes the
syncer retry everything every few seconds, not several times a second.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Final

from farflung.client.errors import ClientError, Unreachable
from farflung.client.rest import Client
from farflung.client.transport import OutgoingRequest, Reply, Transport
from farflung.lib.backoff import Backoff
from farflung.runtime.environment import Environment

FIRST_PROBE: Final = 0.2  #: seconds between the first two probes
LONGEST_PROBE: Final = 4.0  #: seconds between two probes
PROBE_SECONDS: Final = 5.0  #: seconds that a probe waits for its answer
RECENT: Final = 60.0  #: seconds after its first answer in which a server may still be starting
COUNTED_FAILURES: Final = 6  #: failures in a row that count for pauses meanwhile


class Reachability:
    """Probes an unreachable side.  Use its `client` and `env` instead of the given ones: when the side answers again,
    their sleeps end, and for a minute the backoff stays short."""

    def __init__(self, client: Client, env: Environment, restored: Callable[[], None]) -> None:
        """`restored` is called when the side answers after it was away."""
        self._suspicion = asyncio.Event()  #: a request found the side unreachable
        self.client = replace(client, transport=_Observed(client.transport, self._suspicion.set))
        self.env = replace(env, sleep=self._sleep, backoff=_ShorterPauses.of(env.backoff, self._is_recent))
        self.is_away = False
        self._probe = OutgoingRequest("GET", f"{client.prefix}/version", patience=PROBE_SECONDS)
        self._transport = client.transport
        self._sleep_whole = env.sleep
        self._monotonic = env.monotonic
        self._since = float("-inf")  #: when it answered after it was away
        self._failures = 0  #: of probes, since the side last answered for a minute
        self._pauses = Backoff(FIRST_PROBE, LONGEST_PROBE, env.random)
        self._restored = restored
        self._sleeping: set[asyncio.Future[None]] = set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._suspicion.wait()
            if not self._is_recent():
                self._failures = 0
            while not await self._answers():
                self.is_away = True
                self._failures += 1
                await self._sleep_whole(self._pauses.delay(self._failures))
            self._suspicion.clear()
            if self.is_away:
                self.is_away, self._since = False, self._monotonic()
                for one in self._sleeping:
                    one.cancel()
                self._restored()

    def _is_recent(self) -> bool:
        return self._monotonic() - self._since < RECENT

    async def _answers(self) -> bool:
        """Whatever the answer is, except an error of a gateway whose server is away."""
        try:
            async with self._transport.open(self._probe) as reply:
                await reply.read()
                return reply.status < 500
        except ClientError:
            return False

    async def _sleep(self, seconds: float) -> None:
        sleeping = asyncio.ensure_future(self._sleep_whole(seconds))
        self._sleeping.add(sleeping)
        try:
            await asyncio.wait({sleeping})
        finally:
            self._sleeping.discard(sleeping)
            sleeping.cancel()


@dataclass(frozen=True, slots=True)
class _ShorterPauses(Backoff):
    """Counts at most COUNTED_FAILURES failures as long as `is_recent`."""

    is_recent: Callable[[], bool]

    @classmethod
    def of(cls, backoff: Backoff, is_recent: Callable[[], bool]) -> _ShorterPauses:
        return cls(backoff.first, backoff.longest, backoff.random, is_recent)

    def delay(self, failures: int, retry_after: float | None = None) -> float:
        return Backoff.delay(self, min(failures, COUNTED_FAILURES) if self.is_recent() else failures, retry_after)


class _Observed:
    """A transport that reports every request without an answer, and every answer that breaks off."""

    def __init__(self, transport: Transport, failed: Callable[[], None]) -> None:
        self._transport = transport
        self._failed = failed

    @asynccontextmanager
    async def open(self, request: OutgoingRequest) -> AsyncIterator[Reply]:
        try:
            async with self._transport.open(request) as reply:
                yield reply
        except Unreachable:
            self._failed()
            raise
