"""Reservations of deleted or moved machines that still run at their cluster.

A syncer keeps the copy in the mailbox by a finalizer until the cluster has deleted the machine.  So a copy without its
machine keeps its reservation while it exists, but not longer than the default toleration of an unreachable cluster.
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
        wake: Callable[[], None],
        *,
        longest: float,
    ) -> None:
        """`is_mailbox`: whether a logical cluster is one; `mailbox_of`: the mailbox of a site, empty if unknown;
        `wake`: wakes the decision loop; `longest`: seconds."""
        self._state = context.state
        self._pods = pods
        self._is_mailbox = is_mailbox
        self._mailbox_of = mailbox_of
        self._wake = wake
        self._monotonic = context.env.monotonic
        self._longest = longest
        self._kept: dict[Key, _KeptCopy] = {}
        self._unresolved: dict[SiteKey, set[Key]] = {}  #: copies at sites whose mailbox is not known yet
        self.controller: Controller[Key] = context.controller(NAME, self.reconcile, workers=1)

    def on_left(self, machine: Key, site: SiteKey) -> None:
        """The machine left the site; its copy may still exist."""
        copy = self._copy_of(machine, site)
        observed = self._pods.cache.get(copy)
        if observed is not None and self._is_mailbox(copy.cluster):
            self._keep(copy, observed)

    def on_bound(self, machine: Key, site: SiteKey) -> None:
        """A machine at the site replaces a copy of the same name."""
        if not self._kept:
            return
        copy = self._copy_of(machine, site)
        observed = self._pods.cache.get(copy)
        if copy in self._kept and observed is not None and not observed.terminating:
            self._forget(copy)

    def _copy_of(self, machine: Key, site: SiteKey) -> Key:
        return Key(self._mailbox_of(site), machine.namespace, machine.name)

    def on_copy(self, copy: Key, observed: ObservedSubject | None) -> None:
        """A Pod in a mailbox changed."""
        kept = self._kept.get(copy)
        if kept is not None and (observed is None or observed.uid != kept.uid):
            self._forget(copy)
        if observed is not None and observed.terminating:
            self._keep(copy, observed)

    def check_all(self) -> None:
        """Keep the copies that were left while the scheduler was down."""
        for key in [one for one in self._pods.cache if self._is_mailbox(one.cluster)]:
            self._check(key)

    def on_target(self, site: SiteKey) -> None:
        """The SyncTarget of the site is known now."""
        for key in sorted(self._unresolved.pop(site, ())):
            self._check(key)

    def _check(self, copy: Key) -> None:
        observed = self._pods.cache.get(copy)
        site = None if observed is None else observed.site
        if observed is None or site is None:
            return
        if not self._mailbox_of(site):
            self._unresolved.setdefault(site, set()).add(copy)
        elif observed.terminating or not self._state.namesakes(SchedulingSubject(POD, copy), site):
            self._keep(copy, observed)

    def _keep(self, copy: Key, observed: ObservedSubject) -> None:
        if (
            copy in self._kept
            or not observed.reservations
            or self._mailbox_of(observed.reservations[0].site) != copy.cluster
        ):
            return
        now = self._monotonic()
        self._kept[copy] = _KeptCopy(observed.uid, now + self._longest)
        self._state.observe(
            SchedulingSubject(COPY, copy),
            ObservedSubject(observed.uid, observed.version, reservations=observed.reservations),
            now,
        )
        self.controller.queue.add_after(copy, self._longest)

    def _forget(self, copy: Key) -> None:
        del self._kept[copy]
        self._release(copy)

    def _release(self, copy: Key) -> None:
        self._state.observe(SchedulingSubject(COPY, copy), None, self._monotonic())
        self._wake()

    async def reconcile(self, copy: Key, worker: int) -> float | None:
        kept = self._kept.get(copy)
        if kept is None:
            return None
        if (left := kept.until - self._monotonic()) > 0:
            return left
        self._release(copy)  # stays in `_kept`, so that it is not kept again
        return None
