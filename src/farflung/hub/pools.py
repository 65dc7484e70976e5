"""Addresses and node ports of Services: what is free, kept in step with what is stored.

A cluster's pool is read from its Services when it is first needed.  From then on a commit adds and releases what it
changed; what a request under way has taken is taken at once, and given back if its write fails.
"""

from __future__ import annotations

import ipaddress
import secrets
from collections.abc import Sequence
from typing import Final

import orjson

from farflung.hub.admission.services import Allocations, NotAvailable, allocations
from farflung.store.base import Change, Entry, Store

ADDRESSES: Final = ipaddress.ip_network("10.96.0.0/16")
PORTS: Final = range(30000, 32768)


class Pool:
    """One cluster's."""

    def __init__(self) -> None:
        self._addresses: set[str] = set()
        self._ports: set[int] = set()

    def take_address(self, wanted: str) -> str:
        if not wanted:
            wanted = self._free_address()
        elif ipaddress.ip_address(wanted) not in ADDRESSES:
            raise NotAvailable(f"the provided IP ({wanted}) is not in the valid range. The range of valid IPs is {ADDRESSES}")
        elif wanted in self._addresses:
            raise NotAvailable("provided IP is already allocated")
        self._addresses.add(wanted)
        return wanted

    def _free_address(self) -> str:
        usable = ADDRESSES.num_addresses - 2
        start = secrets.randbelow(usable)
        for step in range(usable):
            address = str(ADDRESSES[1 + (start + step) % usable])
            if address not in self._addresses:
                return address
        raise NotAvailable("range is full")

    def take_port(self, wanted: int) -> int:
        if not wanted:
            wanted = self._free_port()
        elif wanted not in PORTS:
            valid = f"{PORTS.start}-{PORTS.stop - 1}"
            raise NotAvailable(f"provided port is not in the valid range. The range of valid ports is {valid}")
        elif wanted in self._ports:
            raise NotAvailable("provided port is already allocated")
        self._ports.add(wanted)
        return wanted

    def _free_port(self) -> int:
        start = secrets.randbelow(len(PORTS))
        for step in range(len(PORTS)):
            number = PORTS[(start + step) % len(PORTS)]
            if number not in self._ports:
                return number
        raise NotAvailable("range is full")

    def release_address(self, address: str) -> None:
        self._addresses.discard(address)

    def release_port(self, number: int) -> None:
        self._ports.discard(number)

    def hold(self, held: Allocations) -> None:
        self._addresses.update(held.addresses)
        self._ports.update(held.ports)


class Pools:
    """Every cluster's."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._pools: dict[str, Pool] = {}

    def of(self, cluster: str) -> Pool:
        pool = self._pools.get(cluster)
        if pool is None:
            pool = self._pools[cluster] = Pool()
            prefix = f"/core/services/{cluster}/"
            self._store.subscribe(prefix, lambda changes: follow(pool, changes))
            for entry in self._store.list(prefix).entries:
                pool.hold(held_by(entry))
        return pool


def follow(pool: Pool, changes: Sequence[Change]) -> None:
    for change in changes:
        held = held_by(change.entry)
        for address in set(held_by(change.previous).addresses).difference(held.addresses):
            pool.release_address(address)
        for number in set(held_by(change.previous).ports).difference(held.ports):
            pool.release_port(number)
        pool.hold(held)


def held_by(entry: Entry | None) -> Allocations:
    return Allocations() if entry is None else allocations(orjson.loads(entry.value))
