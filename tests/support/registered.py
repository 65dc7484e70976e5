"""A hub with an inventory whose clusters have mailboxes, and a way to register their syncers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from fleet import PROVIDER, Fleet, fleet
from local_transport import LocalTransport

from farflung.client.rest import Client
from farflung.syncer.manifest import identity
from farflung.syncer.registration import Registered, RegistrationRequest, register

LIFETIME = 30 * 24 * 3600


@dataclass
class Registry:
    fleet: Fleet
    inventory: str  #: its cluster
    told: list[str] = field(default_factory=list)

    @property
    def operator(self) -> Client:
        """In the inventory."""
        return self.fleet.client(f"/clusters/{self.inventory}")

    def wanted(self, name: str, **how: Any) -> RegistrationRequest:
        return RegistrationRequest(name, PROVIDER, **{"lifetime": LIFETIME, "seconds": 20.0, **how})

    async def register(self, name: str, **how: Any) -> Registered:
        now = lambda: self.fleet.hub.now.timestamp()  # noqa: E731
        return await register(self.operator, self.wanted(name, **how), self.told.append, now)

    def syncer(self, registered: Registered) -> Client:
        """As the syncer has it."""
        transport = LocalTransport(self.fleet.hub.function, registered.token)
        return Client(transport, f"/clusters/{registered.cluster}", "farflung-syncer")


def name_of(target: str, registered: Registered) -> str:
    return identity(target, registered.uid)


@asynccontextmanager
async def registry(*targets: str) -> AsyncIterator[Registry]:
    async with fleet() as one:
        cluster = await one.hub.workspace("inventory")
        for target in targets:
            await one.target(cluster, target, {})
        await one.start(scheduler=False, mailboxes=True)
        yield Registry(one, cluster)
