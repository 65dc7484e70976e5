"""The status of ResourceQuotas: hard limits and usage."""

from __future__ import annotations

from typing import Final

from farflung.hub.admission.quota_tracker import QUOTAS, Quotas
from farflung.hub.admission.quotas import status_of
from farflung.hub.catalog import objects
from farflung.hub.controllers.loopback import LoopbackClient, object_path
from farflung.hub.controllers.reconcile_queue import ReconcileQueue
from farflung.hub.controllers.stored_kinds import StoredKinds
from farflung.machinery.quantity import QuantityError, parse
from farflung.store.base import Store

WORKERS: Final = 2


class ResourceQuotaController:
    def __init__(self, store: Store, kinds: StoredKinds, client: LoopbackClient, quotas: Quotas, pause: float) -> None:
        """`pause`: seconds to collect changes before a status is written."""
        self._store = store
        self._client = client
        self._quotas = quotas
        self._pause = pause
        self._resource = kinds.builtin(QUOTAS)
        self._is_started = False
        quotas.listen(self._on_quota)
        self.queue: ReconcileQueue[str] = ReconcileQueue("quotas", self._reconcile, workers=WORKERS)

    def start(self) -> None:
        self._is_started = True
        for key in self._quotas.keys:
            self.queue.add(key)

    def stop(self) -> None:
        self._is_started = False

    def _on_quota(self, key: str) -> None:
        if self._is_started:
            self.queue.add_later(key, self._pause)

    async def _reconcile(self, key: str) -> None:
        entry, usage = self._store.get(key), self._quotas.usage_of(key)
        if entry is None or usage is None:
            return
        quota = objects.decode(entry)
        present = quota.get("status") or {}
        wanted = status_of((quota.get("spec") or {}).get("hard") or {}, usage.used)
        if all(same(present.get(part) or {}, wanted[part]) for part in wanted):
            return
        removed = {part: dict.fromkeys((present.get(part) or {}).keys() - wanted[part].keys()) for part in wanted}
        status = {part: wanted[part] | removed[part] for part in wanted}  # null removes a field in a merge patch
        path = object_path(self._resource, key) + "/status"
        await self._client.patch(path, {"status": status}, uid=quota["metadata"]["uid"], revision=entry.revision)


def same(one: dict[str, str], other: dict[str, str]) -> bool:
    """Whether quantities are equal, whatever their suffixes."""
    try:
        return one.keys() == other.keys() and all(parse(one[name]) == parse(other[name]) for name in one)
    except QuantityError:
        return False
