"""Leader election: of several processes, the holder of a Lease works.

Clocks of different machines need not agree.  A candidate takes a Lease that did not change for its duration, by the
candidate's own clock.  A holder that cannot renew the Lease stops before others may start: it counts from before its
last successful request, the others from after they read the result.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum
from typing import Final

import msgspec

from farflung.apis.names import LEASES, REQUESTED_BY
from farflung.client.errors import AlreadyExists, ClientError, InvalidResponse, NotFound, Unreachable, UpdateConflict
from farflung.client.rest import Client
from farflung.client.transport import OutgoingRequest, Reply, Transport
from farflung.lib.klog import Logger
from farflung.machinery.errors import Obj
from farflung.runtime.environment import Environment

ATTEMPTS: Final = 3  #: to write a request for the Lease, beside renewals of its holder
LONGEST_HOLDER: Final = 253  #: characters of its identity in log lines


@dataclass(frozen=True, slots=True)
class Terms:
    """In seconds."""

    lasting: float = 15.0  #: duration of the Lease without renewal
    deadline: float = 10.0  #: the holder stops working if it cannot renew for so long
    pause: float = 2.0  #: between two attempts
    renewal: float = 2.0  #: between two renewals by the holder


USUAL: Final = Terms()


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    lease_transitions: int | None = None
    acquire_time: str | None = None


class Precedence(Enum):
    """Between the candidates for a Lease."""

    EQUAL = "equal"  #: the holder keeps it
    FIRST = "first"  #: asks holders that are LAST to release it
    LAST = "last"  #: releases it to one that is FIRST


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    annotations: dict[str, str] | None = None


class Lease(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()
    spec: _Spec | None = None

    @property
    def holder(self) -> str:
        return "" if self.spec is None else self.spec.holder_identity or ""

    @property
    def requested_by(self) -> str:
        """The candidate that asks for it; empty: none."""
        return (self.metadata.annotations or {}).get(REQUESTED_BY, "")


@dataclass(frozen=True, slots=True)
class LeaseRef:
    """The Lease of a leader election."""

    client: Client
    namespace: str
    name: str
    annotations: Callable[[], Mapping[str, str]] = dict  #: written at each renewal; one without a value is removed
    precedence: Precedence = Precedence.EQUAL


class Candidate:
    """A process that may become the leader.  Its work should write with `guarded` clients."""

    def __init__(
        self,
        lease: LeaseRef,
        identity: str,
        env: Environment,
        now: Callable[[], datetime],
        log: Logger,
        terms: Terms = USUAL,
    ) -> None:
        """`identity`: unique among the candidates; `now`: for the times in the Lease, which only people read."""
        self._client = lease.client
        self._namespace = namespace = lease.namespace
        self._name = name = lease.name
        self._identity = identity
        self._env = env
        self._now = now
        self._log = log.bind(lease=f"{namespace}/{name}", identity=identity)
        self._terms = terms
        self._annotations = lease.annotations
        self._precedence = lease.precedence
        self._seen = Lease()  #: as last read
        self._since = 0.0  #: when this version was first read
        self._written = datetime.min  #: the last time written to the Lease
        self._renewed: float | None = None  #: time of the request that acquired or renewed the Lease
        self.waits = False  #: since an attempt to acquire the Lease failed

    @property
    def leads(self) -> bool:
        """Whether no other candidate can be working now."""
        return self._renewed is not None and self._left(self._renewed) > 0

    def guarded(self, client: Client) -> Client:
        """A client that writes only while this candidate leads: a suspended process must not finish an old write after
        it lost the Lease."""
        return replace(client, transport=_Guarded(client.transport, lambda: self.leads))

    async def lead(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run `work` while holding the Lease, and again after each new acquisition.  Until cancelled, or until `work`
        returns or raises."""
        while True:
            await self._acquire()
            self.waits = False
            self._log.info("became leader")
            try:
                if await self._term(work):
                    return
                self._log.warning("stopped leading")
            finally:
                self._renewed = None
                await self._release()

    async def _term(self, work: Callable[[], Awaitable[None]]) -> bool:
        """Whether `work` returned."""
        async with asyncio.TaskGroup() as group:
            working = group.create_task(_outcome(work), name="work of the leader")
            keeping = group.create_task(self._renew_until_lost(), name="lease")
            await asyncio.wait({working, keeping}, return_when=asyncio.FIRST_COMPLETED)
            self._renewed = None
            working.cancel()
            keeping.cancel()
        if working.cancelled():
            return False
        if error := working.result():
            raise error
        return True

    async def _acquire(self) -> None:
        """Logs each other holder once."""
        awaited = ""
        while not await self._try(self._terms.deadline):
            self.waits = True
            if self._seen.holder not in ("", self._identity, awaited):
                awaited = self._seen.holder
                self._log.info("waiting for the lease of another holder", holder=awaited[:LONGEST_HOLDER])
            await self._env.sleep(self._terms.pause * (0.5 + self._env.random()))

    async def _renew_until_lost(self) -> None:
        wait = self._terms.renewal
        while self._renewed is not None:
            renewed = self._renewed
            await self._env.sleep(max(0.0, min(wait, self._left(renewed))))
            if self._left(renewed) <= 0:
                return
            is_ours = await self._try(self._left(renewed))
            if not is_ours and (self._seen.holder != self._identity or self._yields()):
                return
            wait = self._terms.renewal if is_ours else self._terms.pause

    def _left(self, renewed: float) -> float:
        """Seconds until the holder has to stop."""
        return renewed + self._terms.deadline - self._env.monotonic()

    # --- the Lease --------------------------------------------------------------------------------

    async def _try(self, seconds: float) -> bool:
        """Acquire or renew the Lease.  False if another candidate holds it, or the request failed."""
        try:
            async with asyncio.timeout(seconds):
                return await self._acquire_or_renew()
        except (ClientError, TimeoutError) as error:
            if not isinstance(error, UpdateConflict | AlreadyExists):
                self._log.error(error, "cannot take the lease")
            return False

    async def _acquire_or_renew(self) -> bool:
        try:
            found = await self._client.get(LEASES, self._name, self._namespace)
        except NotFound:
            return not self._is_held() and await self._written_as(self._client.create, self._fresh(), self._namespace)
        self._observe(found)
        if self._is_held():
            await self._request(found)
            return False
        return not self._yields() and await self._written_as(self._client.update, self._mine(found))

    async def _request(self, found: Obj) -> None:
        """Ask the holder for the Lease, unless another candidate does: each request would make a dead holder look
        alive."""
        for _ in range(ATTEMPTS):
            if self._precedence is not Precedence.FIRST or self._seen.requested_by or not self._is_held():
                return
            metadata = found["metadata"]
            annotations = {**(metadata.get("annotations") or {}), REQUESTED_BY: self._identity}
            try:
                written = {**found, "metadata": {**metadata, "annotations": annotations}}
                self._observe(await self._client.update(LEASES, written))
            except UpdateConflict:  # with a renewal, perhaps every time, if both have the same rhythm
                found = await self._client.get(LEASES, self._name, self._namespace)
                self._observe(found)

    def _yields(self) -> bool:
        """Whether this candidate leaves the Lease to the one that asks for it.  That one may have died, so the Lease
        is only left to it for a while once it is free."""
        if self._precedence is not Precedence.LAST or self._seen.requested_by in ("", self._identity):
            return False
        return self._renewed is not None or self._env.monotonic() - self._since < self._terms.lasting

    def _is_held(self) -> bool:
        """Whether another candidate may hold it; also if it was deleted, because its holder may not have noticed.  A
        working candidate does not acquire a Lease again, even if it is free: others may have worked meanwhile."""
        if self._seen.holder == self._identity:
            return False
        if self._renewed is not None:
            return True
        lasting = self._seen.spec.lease_duration_seconds if self._seen.spec is not None else None
        patience = self._terms.lasting if lasting is None else float(lasting)
        return self._seen.holder != "" and self._env.monotonic() - self._since < patience

    async def _written_as(self, write: Callable[..., Awaitable[Obj]], *arguments: object) -> bool:
        asked = self._env.monotonic()
        self._observe(await write(LEASES, *arguments))
        self._renewed = asked
        return True

    def _observe(self, found: Obj) -> None:
        try:
            lease = msgspec.convert(found, Lease)
        except msgspec.ValidationError as error:
            raise InvalidResponse(f"not a Lease: {error}") from None
        if not lease.metadata.resource_version:
            raise InvalidResponse("a Lease without a resourceVersion")
        if self._seen.spec is None or self._seen.metadata != lease.metadata:
            self._since = self._env.monotonic()
        self._seen = lease

    def _fresh(self) -> Obj:
        now = self._timestamp()
        spec = {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": math.ceil(self._terms.lasting),
            "acquireTime": now,
            "renewTime": now,
            "leaseTransitions": 0,
        }
        metadata = self._annotated({"name": self._name, "namespace": self._namespace})
        return {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": metadata, "spec": spec}

    def _mine(self, found: Obj) -> Obj:
        """The Lease with this candidate as its holder."""
        fresh, before = self._fresh(), self._seen.spec or _Spec()
        transitions = before.lease_transitions or 0
        if before.holder_identity == self._identity:
            kept: Obj = {"leaseTransitions": transitions}
            if before.acquire_time is not None:
                kept |= {"acquireTime": before.acquire_time}
        else:
            kept = {"leaseTransitions": transitions + 1}
        metadata = {**(found.get("metadata") or {}), "name": self._name, "namespace": self._namespace}
        if before.holder_identity != self._identity:
            known = metadata.get("annotations") or {}
            metadata["annotations"] = {name: value for name, value in known.items() if name != REQUESTED_BY}
        return {**found, **fresh, "metadata": self._annotated(metadata), "spec": {**fresh["spec"], **kept}}

    def _annotated(self, metadata: Obj) -> Obj:
        """Keeps the annotations of others."""
        ours = self._annotations()
        others = {name: value for name, value in (metadata.get("annotations") or {}).items() if name not in ours}
        found = others | {name: value for name, value in ours.items() if value}
        return metadata | {"annotations": found} if found != (metadata.get("annotations") or {}) else metadata

    async def _release(self) -> None:
        """Let other candidates start at once.  If this fails, they wait for the Lease's duration."""
        with contextlib.suppress(ClientError, TimeoutError):
            async with asyncio.timeout(self._terms.pause):
                found = await self._client.get(LEASES, self._name, self._namespace)
                self._observe(found)
                if self._seen.holder == self._identity:
                    free = {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": self._timestamp()}
                    self._observe(await self._client.update(LEASES, {**found, "spec": {**found["spec"], **free}}))

    def _timestamp(self) -> str:
        """Always another time than the last one, so that every renewal changes the Lease."""
        now = self._now()
        if now == self._written:
            now += timedelta(microseconds=1)
        self._written = now
        return now.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


@dataclass(frozen=True, slots=True)
class _Guarded:
    inner: Transport
    allowed: Callable[[], bool]

    @asynccontextmanager
    async def open(self, request: OutgoingRequest) -> AsyncIterator[Reply]:
        if request.method != "GET" and not self.allowed():
            raise Unreachable("we do not lead any more")
        async with self.inner.open(request) as reply:
            yield reply


def unguarded(transport: Transport) -> Transport:
    """The transport below the guards, with which a client reads."""
    while isinstance(transport, _Guarded):
        transport = transport.inner
    return transport


async def _outcome(work: Callable[[], Awaitable[None]]) -> Exception | None:
    try:
        await work()
    except Exception as error:
        return error
    return None
