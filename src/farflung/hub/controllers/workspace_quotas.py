"""The condition WithinQuota of LogicalClusters, which Workspaces copy: what a workspace stores, and its limits.

Amounts change with every write, so the condition is written at most every `PERIOD`, and only if it changes.  A
workspace that always used less than 1 % of each limit has no condition: thousands of small workspaces cost no writes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Final

from farflung.apis.kcp.names import WITHIN_QUOTA
from farflung.hub.catalog import objects
from farflung.hub.catalog.objects import cluster_in
from farflung.hub.controllers.reconcile_queue import ReconcileQueue
from farflung.hub.registry.call import StorageLimits
from farflung.hub.tenancy import status as states
from farflung.hub.tenancy.direct_writes import encode_stored
from farflung.hub.tenancy.paths import LOGICAL_CLUSTERS, logical_cluster_key
from farflung.machinery.errors import Obj
from farflung.machinery.times import format_seconds
from farflung.store.base import Amount, Conflict, Store

PERIOD: Final = 30.0  #: seconds between two writes of one condition
NOTABLE: Final = 100  #: from a hundredth of a limit on there is a condition
WORKERS: Final = 4
MEBIBYTE: Final = 1024 * 1024
_STORED: Final = f'"{WITHIN_QUOTA}"'.encode()


def quota_condition(used: Amount, limits: StorageLimits) -> Obj:
    """Without type and time."""
    size, limit = -(-used.size // MEBIBYTE), limits.size // MEBIBYTE
    amounts = f"{used.keys} of {limits.objects} objects and {size} of {limit} MiB are used"
    if used.keys < limits.objects and used.size < limits.size:
        return {"status": "True", "message": amounts}
    return {
        "status": "False",
        "severity": "Error",
        "reason": "QuotaExhausted",
        "message": f"{amounts}; delete objects, or ask an administrator of the hub for a higher limit",
    }


class WorkspaceQuotaController:
    """Reconciles names of clusters."""

    def __init__(self, store: Store, clock: Callable[[], datetime], limits: StorageLimits) -> None:
        self._store = store
        self._clock = clock
        self._limits = limits
        self._reported: set[str] = set()  #: clusters with a condition
        self._timer: asyncio.TimerHandle | None = None
        self.queue: ReconcileQueue[str] = ReconcileQueue("workspace-quotas", self._reconcile, workers=WORKERS)

    def start(self) -> None:
        found = self._store.list(LOGICAL_CLUSTERS).entries
        self._reported = {cluster_in(entry.key) for entry in found if _STORED in entry.value}
        self._wait()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _wait(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(PERIOD, self._check_all)

    def _check_all(self) -> None:
        self._wait()
        if self._is_notable(self._store.most()):
            for entry in self._store.list(LOGICAL_CLUSTERS).entries:
                if self._is_notable(self._store.amount(cluster_in(entry.key))):
                    self._reported.add(cluster_in(entry.key))
        for cluster in self._reported:
            self.queue.add(cluster)

    def _is_notable(self, used: Amount) -> bool:
        return used.keys * NOTABLE >= self._limits.objects or used.size * NOTABLE >= self._limits.size

    async def _reconcile(self, cluster: str) -> None:
        entry = self._store.get(logical_cluster_key(cluster))
        if entry is None or objects.is_terminating(entry):
            self._reported.discard(cluster)
            return
        obj = objects.decode(entry)
        wanted = quota_condition(self._store.amount(cluster), self._limits)
        states.set_condition_message(obj.setdefault("status", {}), WITHIN_QUOTA, wanted, format_seconds(self._clock()))
        if obj != objects.decode(entry):
            try:
                await self._store.put(entry.key, encode_stored(obj), expect=entry.revision)
            except Conflict:
                self.queue.add(cluster)  # another client wrote the object
