"""Of several processes that could do the work, the one that holds a Lease does it.

Clocks of different machines need not agree: a Lease is over when nobody was seen to renew it for as long as it lasts,
by our own clock.  Who cannot renew stops before others may start.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from farflung.client.errors import AlreadyExists, ClientError, Conflict, NotFound
from farflung.client.resource import Collection
from farflung.client.rest import Client
from farflung.informer.reflector import Surroundings
from farflung.lib.klog import Logger
from farflung.machinery.errors import Obj

LEASES: Final = Collection("coordination.k8s.io", "v1", "leases", "Lease")


@dataclass(frozen=True, slots=True)
class Terms:
    """In seconds."""

    lasting: float = 15.0  #: how long a Lease holds without being renewed
    deadline: float = 10.0  #: how long its holder tries to renew it before it stops working
    pause: float = 2.0  #: between two tries


class LostLead(Exception):
    """Somebody else may be at work by now."""


class Candidate:
    def __init__(
        self,
        client: Client,
        namespace: str,
        name: str,
        identity: str,
        surroundings: Surroundings,
        now: Callable[[], datetime],
        log: Logger,
        terms: Terms = Terms(),  # noqa: B008
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._outside = surroundings
        self._now = now
        self._log = log.bind(lease=f"{namespace}/{name}", identity=identity)
        self._terms = terms
        self._seen: Obj | None = None  #: the Lease as it was last seen
        self._since = 0.0  #: when it was first seen like that

    async def lead(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do the work while we hold the Lease, again whenever we get it back.  Until cancelled, or the work ends."""
        while True:
            await self._acquire()
            self._log.info("became leader")
            try:
                async with asyncio.TaskGroup() as group:
                    keeping = group.create_task(self._keep(), name="lease")
                    await group.create_task(_awaited(work), name="work of the leader")
                    keeping.cancel()
                return
            except* LostLead:
                self._log.warning("stopped leading")
            finally:
                await self._release()

    async def _acquire(self) -> None:
        while not await self._try(self._terms.deadline):
            await self._outside.sleep(self._terms.pause * (0.5 + self._outside.random()))

    async def _keep(self) -> None:
        renewed = self._outside.monotonic()
        while True:
            await self._outside.sleep(self._terms.pause)
            began = self._outside.monotonic()
            if await self._try(self._terms.deadline - (began - renewed)):
                renewed = began
            elif self._taken() or self._outside.monotonic() - renewed >= self._terms.deadline:
                raise LostLead

    def _taken(self) -> bool:
        return self._seen is not None and self._seen["spec"].get("holderIdentity") != self._identity

    async def _try(self, seconds: float) -> bool:
        """Take the Lease or renew it.  False if it is another's, or nobody can tell."""
        try:
            async with asyncio.timeout(max(0.0, seconds)):
                return await self._take()
        except (ClientError, TimeoutError) as error:
            if not isinstance(error, Conflict | AlreadyExists):
                self._log.error(error, "cannot take the lease")
            return False

    async def _take(self) -> bool:
        try:
            lease = await self._client.get(LEASES, self._name, self._namespace)
        except NotFound:
            self._look(await self._client.create(LEASES, self._lease(), self._namespace))
            return True
        if not isinstance(lease.get("spec"), dict):
            lease["spec"] = {}
        self._look(lease)
        holder = lease["spec"].get("holderIdentity")
        lasting = lease["spec"].get("leaseDurationSeconds")
        patience = float(lasting) if isinstance(lasting, int) else self._terms.lasting
        if holder and holder != self._identity and self._outside.monotonic() - self._since < patience:
            return False
        self._look(await self._client.update(LEASES, self._mine(lease)))
        return True

    def _look(self, lease: Obj) -> None:
        if self._seen is None or self._seen["spec"] != lease["spec"]:
            self._seen, self._since = lease, self._outside.monotonic()

    def _lease(self) -> Obj:
        now = self._timestamp()
        spec = {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": max(1, int(self._terms.lasting)),
            "acquireTime": now,
            "renewTime": now,
            "leaseTransitions": 0,
        }
        metadata = {"name": self._name, "namespace": self._namespace}
        return {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": metadata, "spec": spec}

    def _mine(self, lease: Obj) -> Obj:
        before, now = lease["spec"], self._timestamp()
        spec = self._lease()["spec"]
        if before.get("holderIdentity") == self._identity:
            spec |= {
                "acquireTime": before.get("acquireTime", now),
                "leaseTransitions": before.get("leaseTransitions", 0),
            }
        else:
            spec["leaseTransitions"] = int(before.get("leaseTransitions") or 0) + 1
        return lease | {"spec": spec}

    async def _release(self) -> None:
        """So that others need not wait until it is over.  They will anyway if this fails."""
        if self._seen is None or self._taken():
            return
        spec = self._seen["spec"] | {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": self._timestamp()}
        try:
            async with asyncio.timeout(self._terms.pause):
                self._seen = await self._client.update(LEASES, self._seen | {"spec": spec})
        except (ClientError, TimeoutError):
            self._seen = None

    def _timestamp(self) -> str:
        return self._now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")


async def _awaited(work: Callable[[], Awaitable[None]]) -> None:
    await work()
