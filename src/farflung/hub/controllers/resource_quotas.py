"""The status of ResourceQuotas: what they allow, and how much of it is used."""

from __future__ import annotations

from typing import Final

from farflung.hub import objects
from farflung.hub.admission.quotas import status_of
from farflung.hub.controllers.loopback import Inside, object_path
from farflung.hub.controllers.reconcile_queue import Work
from farflung.hub.controllers.stored_kinds import KeptKinds
from farflung.hub.quotas import HOME, Quotas
from farflung.machinery.quantity import QuantityError, parse
from farflung.store.base import Store

WORKERS: Final = 2


class QuotaStatus:
    def __init__(self, store: Store, kinds: KeptKinds, inside: Inside, quotas: Quotas, pause: float) -> None:
        """`pause`: seconds in which changes gather; a namespace that is filled costs a write now and then."""
        self._store = store
        self._inside = inside
        self._quotas = quotas
        self._pause = pause
        self._resource = kinds.builtin(HOME)
        self._listens = False
        quotas.listen(self._hear)
        self.work: Work[str] = Work("quotas", self._look, workers=WORKERS)

    def start(self) -> None:
        self._listens = True
        for key in self._quotas.keys:
            self.work.add(key)

    def stop(self) -> None:
        self._listens = False

    def _hear(self, key: str) -> None:
        if self._listens:
            self.work.add_later(key, self._pause)

    async def _look(self, key: str) -> None:
        entry, books = self._store.get(key), self._quotas.books(key)
        if entry is None or books is None:
            return
        quota = objects.decode(entry)
        present = quota.get("status") or {}
        wanted = status_of((quota.get("spec") or {}).get("hard") or {}, books.used)
        if all(same(present.get(part) or {}, wanted[part]) for part in wanted):
            return
        gone = {
            part: dict.fromkeys((present.get(part) or {}).keys() - wanted[part].keys()) for part in wanted
        }  # which a merge would leave
        status = {part: wanted[part] | gone[part] for part in wanted}
        path = object_path(self._resource, key) + "/status"
        await self._inside.patch(path, {"status": status}, uid=quota["metadata"]["uid"], revision=entry.revision)


def same(one: dict[str, str], other: dict[str, str]) -> bool:
    """The same amounts, however they are written."""
    try:
        return one.keys() == other.keys() and all(parse(one[name]) == parse(other[name]) for name in one)
    except QuantityError:
        return False
