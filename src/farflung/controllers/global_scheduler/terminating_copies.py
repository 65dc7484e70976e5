"""Room of machines that were deleted, or left, and that their cluster has not stopped yet.

A syncer holds the copy in the mailbox by a finalizer until the cluster has let it go.  So a copy whose machine is not
there any more keeps its room as long as it is in the mailbox; but not for longer than who is there tolerates of a
cluster that is away.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from farflung.controllers.global_scheduler.context import SchedulerContext
from farflung.controllers.global_scheduler.subjects import COPY, POD, ObservedSubject, SchedulingSubject
from farflung.runtime.cache import Key
from farflung.runtime.controller import Controller
from farflung.runtime.informer import Informer
from farflung.scheduling.values import SiteKey

NAME: Final = "global-scheduler-lingering"


class _KeptCopy(NamedTuple):
    uid: str
    until: float


class TerminatingCopies:
    def __init__(
        self,
        context: SchedulerContext,
        pods: Informer[ObservedSubject],
        is_mailbox: Callable[[str], bool],
        mailbox_of: Callable[[SiteKey], str],
        tell: Callable[[], None],
        *,
        longest: float,
    ) -> None:
        """`is_mailbox`: whether a logical cluster is one; `mailbox_of`: that of a site, empty if none is known; `tell`:
        who decides, that something changed; `longest`: seconds."""
        self._state = context.state
        self._pods = pods
        self._is_mailbox = is_mailbox
        self._mailbox_of = mailbox_of
        self._tell = tell
        self._monotonic = context.env.monotonic
        self._longest = longest
        self._kept: dict[Key, _KeptCopy] = {}
        self._unsure: dict[SiteKey, set[Key]] = {}  #: copies of sites of which it was not known where they lead to
        self.controller: Controller[Key] = context.controller(NAME, self.reconcile, workers=1)

    def leave(self, machine: Key, site: SiteKey) -> None:
        """A machine is not there any more, but its copy may be."""
        copy = self._copy_of(machine, site)
        seen = self._pods.cache.get(copy)
        if seen is not None and self._is_mailbox(copy.cluster):
            self._keep(copy, seen)

    def come(self, machine: Key, site: SiteKey) -> None:
        """A machine is there, and has the room of a copy that one of its name left."""
        if not self._kept:
            return
        copy = self._copy_of(machine, site)
        seen = self._pods.cache.get(copy)
        if copy in self._kept and seen is not None and not seen.ending:
            self._forget(copy)

    def _copy_of(self, machine: Key, site: SiteKey) -> Key:
        return Key(self._mailbox_of(site), machine.namespace, machine.name)

    def hear(self, copy: Key, seen: ObservedSubject | None) -> None:
        """Something in a mailbox."""
        kept = self._kept.get(copy)
        if kept is not None and (seen is None or seen.uid != kept.uid):
            self._forget(copy)
        if seen is not None and seen.ending:
            self._keep(copy, seen)

    def look_at_all(self) -> None:
        """What was left behind while nobody looked."""
        for key in [one for one in self._pods.cache if self._is_mailbox(one.cluster)]:
            self._look_at(key)

    def look_at(self, site: SiteKey) -> None:
        """It is known where it leads to."""
        for key in sorted(self._unsure.pop(site, ())):
            self._look_at(key)

    def _look_at(self, copy: Key) -> None:
        seen = self._pods.cache.get(copy)
        site = None if seen is None else seen.site
        if seen is None or site is None:
            return
        if not self._mailbox_of(site):
            self._unsure.setdefault(site, set()).add(copy)
        elif seen.ending or not self._state.together(SchedulingSubject(POD, copy), site):
            self._keep(copy, seen)

    def _keep(self, copy: Key, seen: ObservedSubject) -> None:
        if copy in self._kept or not seen.held or self._mailbox_of(seen.held[0].site) != copy.cluster:
            return
        now = self._monotonic()
        self._kept[copy] = _KeptCopy(seen.uid, now + self._longest)
        self._state.hear(SchedulingSubject(COPY, copy), ObservedSubject(seen.uid, seen.version, held=seen.held), now)
        self.controller.queue.add_after(copy, self._longest)

    def _forget(self, copy: Key) -> None:
        del self._kept[copy]
        self._release(copy)

    def _release(self, copy: Key) -> None:
        self._state.hear(SchedulingSubject(COPY, copy), None, self._monotonic())
        self._tell()

    async def reconcile(self, copy: Key, worker: int) -> float | None:
        kept = self._kept.get(copy)
        if kept is None:
            return None
        if (left := kept.until - self._monotonic()) > 0:
            return left
        self._release(copy)  # and it stays known, so that it is not kept again
        return None
