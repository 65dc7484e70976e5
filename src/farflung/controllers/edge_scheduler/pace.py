"""How soon slices may be written again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from farflung.controllers.edge_scheduler.values import Key
from farflung.lib.backoff import Backoff

#: Seconds for each destination before slices are written again: many changes in a row become few writes.
PACE: Final = 20e-6
FORGIVEN: Final = 300.0  #: seconds after which nobody remembers that slices had to be mended


class _Mended(NamedTuple):
    times: int
    at: float


class Pace:
    """Many changes become few writes.  And slices that somebody else changes whenever we mend them are mended more and
    more seldom: two who insist would write for ever, as fast as they can."""

    def __init__(self, monotonic: Callable[[], float], backoff: Backoff) -> None:
        self._monotonic = monotonic
        self._backoff = backoff
        self._not_before: dict[Key, float] = {}
        self._mended: dict[Key, _Mended] = {}
        self._not_mended_before: dict[Key, float] = {}

    def wait(self, key: Key, *, mending: bool = False) -> float:
        """Seconds until slices may be written; `mending`: to say what was decided before."""
        times = self._not_mended_before if mending else self._not_before
        return times.get(key, 0.0) - self._monotonic()

    def note(self, key: Key, destinations: int, *, mending: bool) -> None:
        """They are written now."""
        now = self._monotonic()
        self._not_before[key] = now + PACE * destinations
        if mending:
            before = self._mended.get(key)
            times = before.times + 1 if before is not None and now - before.at < FORGIVEN else 1
            self._mended[key] = _Mended(times, now)
            self._not_mended_before[key] = now + self._backoff.delay(times)

    def forget(self, key: Key) -> None:
        for known in (self._not_before, self._mended, self._not_mended_before):
            known.pop(key, None)
