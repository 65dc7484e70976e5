"""The allocated cluster addresses and node ports of Services.

A request allocates at once, and releases if its write fails.  A commit releases what it no longer uses.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Final

import orjson

from farflung.apis.core.services import Allocations, NotAvailable, allocations
from farflung.store.base import Change, Entry, Store

NETWORK: Final = "10.96.0.0/12"
PORTS: Final = range(30000, 32768)
ALL_TAKEN: Final = "range is full"


class ServicePools:
    """Of one logical cluster; implements `services.Pools`.  The search starts after the last allocation, so a released
    address or port is not reused at once."""

    def __init__(self, network: str = NETWORK, ports: range = PORTS) -> None:
        self.network = ipaddress.IPv4Network(network)
        self.ports = ports
        self._addresses = {str(self.network[1])}  #: the first one is the API server's
        self._numbers: set[int] = set()
        self._last_address = 0
        self._last_number = -1

    def hold(self, held: Allocations) -> None:
        """Mark the allocations of a stored Service."""
        self._addresses.update(held.addresses)
        self._numbers.update(held.ports)

    def take_address(self, wanted: str) -> str:
        address = self._check_address(wanted) if wanted else self._next_address()
        self._addresses.add(address)
        return address

    def _check_address(self, wanted: str) -> str:
        try:
            address = ipaddress.IPv4Address(wanted)
        except ValueError:
            raise NotAvailable("the provided network does not match the current range") from None
        if address not in self.network or not 0 < int(address) - int(self.network[0]) < self.network.num_addresses - 1:
            raise NotAvailable("the provided network does not match the current range")
        if wanted in self._addresses:
            raise NotAvailable("provided IP is already allocated")
        return wanted

    def _next_address(self) -> str:
        usable = self.network.num_addresses - 2  # without the network address and the broadcast address
        for step in range(usable):
            offset = (self._last_address + step) % usable + 1
            address = str(self.network[offset])
            if address not in self._addresses:
                self._last_address = offset
                return address
        raise NotAvailable(ALL_TAKEN)

    def take_port(self, wanted: int) -> int:
        number = self._check_port(wanted) if wanted else self._next_port()
        self._numbers.add(number)
        return number

    def _check_port(self, wanted: int) -> int:
        if wanted not in self.ports:
            valid = f"{self.ports[0]}-{self.ports[-1]}"
            raise NotAvailable(f"provided port is not in the valid range. The range of valid ports is {valid}")
        if wanted in self._numbers:
            raise NotAvailable("provided port is already allocated")
        return wanted

    def _next_port(self) -> int:
        for step in range(1, len(self.ports) + 1):
            at = (self._last_number + step) % len(self.ports)
            if self.ports[at] not in self._numbers:
                self._last_number = at
                return self.ports[at]
        raise NotAvailable(ALL_TAKEN)

    def release_address(self, address: str) -> None:
        self._addresses.discard(address)

    def release_port(self, number: int) -> None:
        self._numbers.discard(number)


class ClusterPools:
    """The pools of all logical clusters, which follow the stored Services.  A pool is read when it is first needed."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._pools: dict[str, ServicePools] = {}

    def of(self, cluster: str) -> ServicePools:
        pool = self._pools.get(cluster)
        if pool is None:
            pool = self._pools[cluster] = ServicePools()
            prefix = f"/core/services/{cluster}/"
            self._store.subscribe(prefix, lambda changes: follow(pool, changes))
            for entry in self._store.list(prefix).entries:
                pool.hold(held_by(entry))
        return pool


def follow(pool: ServicePools, changes: Sequence[Change]) -> None:
    for change in changes:
        held, before = held_by(change.entry), held_by(change.previous)
        for address in set(before.addresses).difference(held.addresses):
            pool.release_address(address)
        for number in set(before.ports).difference(held.ports):
            pool.release_port(number)
        pool.hold(held)


def held_by(entry: Entry | None) -> Allocations:
    return Allocations() if entry is None else allocations(orjson.loads(entry.value))
