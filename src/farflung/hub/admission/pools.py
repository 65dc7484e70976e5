"""Addresses and node ports of Services, kept in step with what is stored.

A cluster's pool is read from its Services when it is first needed.  From then on a commit adds and releases what it
changed; what a request under way has taken is taken at once, and given back if its write fails.
"""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from farflung.apis.core.services import Allocations, allocations
from farflung.hub.admission.service_pools import ServicePools
from farflung.store.base import Change, Entry, Store


class Pools:
    """Every cluster's."""

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
