"""The model of the scheduler: pending requests, reservations, evictions, and the next decision.  Pure: `now` is an
argument, in monotonic seconds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from math import inf
from typing import Final, NamedTuple, TypeVar

from farflung.apis.edge.authors import Author
from farflung.lib.groups import discard_from
from farflung.machines.engine.engine import SchedulingEngine
from farflung.machines.engine.policy import SchedulerPolicy
from farflung.machines.engine.queue import SchedulingQueue, shape_of
from farflung.machines.engine.values import (
    Flavor,
    MachineRequest,
    MachineToleration,
    Reservation,
    SchedulingDecision,
    Site,
    SiteKey,
)
from farflung.machines.failover import (
    CLUSTER_REFUSED,
    REFUSED,
    ClusterHealth,
    ClusterRefusals,
    EvictionBudget,
    FailoverOptions,
    HealthCause,
    MachineRefusal,
    MachineRefusals,
    RefusalRecord,
    is_eviction_suspended,
)
from farflung.machines.subjects import COPY, POD, ObservedSubject, PlacedSubject, SchedulingSubject, UnplacedSubject
from farflung.runtime.cache import Key

K = TypeVar("K")
M = TypeVar("M")

EVICTION_RETRY: Final = 10.0  #: seconds between two attempts to evict the same machine
MAX_CHECKS: Final = 20_000  #: most calls of `could_help` per wake-up; beyond that, every request is retried
NAME_CONFLICT: Final = "has a machine of that name"
UNHEALTHY_TOO_LONG: Final = "unhealthy for too long"
CONFIRMED_BY: Final = 30.0  #: seconds after which a written binding that no watch event confirmed is read again


class UnconfirmedBinding(NamedTuple):
    """A binding that no watch event has confirmed."""

    subject: SchedulingSubject
    uid: str
    reservations: tuple[Reservation, ...]


class MachineLocations:
    def __init__(self) -> None:
        self._target: dict[SiteKey, Key] = {}
        self._sites: dict[Key, set[SiteKey]] = {}  #: several sites may have one SyncTarget
        self._machines: dict[tuple[str, str], Counter[tuple[Key, SiteKey]]] = {}  #: by namespace and name
        self._workspaces: dict[SiteKey, Counter[str]] = {}

    def set_target(self, site: SiteKey, target: Key | None) -> bool:
        """Set the SyncTarget of a site.  True if it changed."""
        before = self._target.pop(site, None)
        if before is not None:
            self._sites[before].discard(site)
            if not self._sites[before]:
                del self._sites[before]
        if target is not None:
            self._target[site] = target
            self._sites.setdefault(target, set()).add(site)
        return before != target

    def has_target(self, site: SiteKey) -> bool:
        return site in self._target

    def targets(self) -> Iterable[tuple[SiteKey, Key]]:
        return self._target.items()

    def add(self, machine: Key, site: SiteKey) -> None:
        self._machines.setdefault((machine.namespace, machine.name), Counter())[machine, site] += 1
        self._workspaces.setdefault(site, Counter())[machine.cluster] += 1

    def remove(self, machine: Key, site: SiteKey) -> None:
        _decrement(self._machines, (machine.namespace, machine.name), (machine, site))
        _decrement(self._workspaces, site, machine.cluster)

    def workspaces(self, site: SiteKey) -> set[str]:
        """Logical clusters with machines at the site."""
        return set(self._workspaces.get(site, ()))

    def conflicting_sites(self, machine: Key) -> set[SiteKey]:
        """Sites whose SyncTarget has another machine of that name."""
        there = self._machines.get((machine.namespace, machine.name), ())
        targets = {self._target[site] for other, site in there if other != machine and site in self._target}
        return set().union(*(self._sites[target] for target in targets))

    def namesakes(self, machine: Key, site: SiteKey) -> list[Key]:
        """Machines of that name at the SyncTarget of the site."""
        there, target = self._machines.get((machine.namespace, machine.name), ()), self._target.get(site)
        found = {other for other, where in there if target is not None and self._target.get(where) == target}
        return sorted(found)


def _decrement(counters: dict[K, Counter[M]], key: K, member: M) -> None:
    counter = counters[key]
    counter[member] -= 1
    if not counter[member]:
        del counter[member]
    if not counter:
        del counters[key]


ClosedSites = Callable[[Author | None], Mapping[SiteKey, str]]  #: sites that are closed to an author, with the reason


class SchedulerState:
    def __init__(self, engine: SchedulingEngine, failover: FailoverOptions, closed: ClosedSites) -> None:
        self.engine = engine
        self._closed = closed
        self._all_changed = False  #: rights changed, so that any request may be placed now
        self.queue = SchedulingQueue()
        self._failover = failover
        self._budget = EvictionBudget(failover)
        self._observed: dict[SchedulingSubject, ObservedSubject] = {}
        self._subjects: dict[str, SchedulingSubject] = {}  #: by uid
        self._reservations: dict[str, tuple[Reservation, ...]] = {}  #: by uid of the subject
        self._uids_at: dict[SiteKey, dict[str, None]] = {}  #: uids of subjects
        #: bindings without a watch event, by uid: when the write ended; inf: it is being written; None: it is decided
        self._in_progress: dict[str, float | None] = {}
        self._sites_by_name: dict[str, set[SiteKey]] = {}  #: sites by name
        self._foreign: dict[
            str, set[SchedulingSubject]
        ] = {}  #: by the name of the Cluster to which another scheduler bound them
        self._finished: dict[SiteKey, set[SchedulingSubject]] = {}
        self._health = ClusterHealth(failover)
        self._machine_refusals = MachineRefusals(failover)
        self._cluster_refusals = ClusterRefusals()
        self._locations = MachineLocations()
        self._eviction_tried: dict[str, float] = {}  #: when the scheduler last tried to evict it
        self._changes: dict[SiteKey, Site | None] = {}  #: changed sites, with their value before the change
        self.touched: dict[SiteKey, None] = {}  #: sites with changed reservations, whose status must be written

    # --- sites ------------------------------------------------------------------------------------

    def put_site(self, site: Site, now: float, *, ages: Mapping[HealthCause, float] | None = None) -> None:
        """`ages`: for how long each cause of bad health has already existed, in seconds."""
        before = self.engine.site(site.key)
        if before == site:
            return
        self.engine.put_site(site)
        self._changed(site.key, before)
        self._health.put(site, now, ages or {})
        if before is None:
            self._sites_by_name.setdefault(site.key.name, set()).add(site.key)
            self._reconsider_foreign(site.key.name, now)

    def remove_site(self, key: SiteKey, now: float) -> None:
        before = self.engine.site(key)
        if before is None:
            return
        self.engine.remove_site(key)
        self._changed(key, before)
        if key.cluster:
            self._health.lose(key, now)
        else:
            self._health.forget(key)  # a site of a file evicts nothing when it is removed
        discard_from(self._sites_by_name, key.name, key)
        self._reconsider_foreign(key.name, now)
        self._forget_if_empty(key)

    def configure(
        self, policy: SchedulerPolicy, catalogue: Mapping[str, Flavor], sites: Iterable[Site], now: float
    ) -> None:
        """Replace policy, catalogue and the sites from files.  Bindings stay."""
        if self.engine.configure(policy, catalogue):
            for uid, reservations in list(self._reservations.items()):
                self._set_reservations(uid, self.engine.counted(reservations), now)
            for site in self.engine.sites():
                self._changes.setdefault(site.key, site)  # every site may fit now
        there = {site.key: site for site in sites}
        for site in list(self.engine.sites()):
            if not site.key.cluster and site.key not in there:
                self.remove_site(site.key, now)
        for site in there.values():
            self.put_site(site, now)

    def _forget_if_empty(self, key: SiteKey) -> None:
        if self.engine.site(key) is None and not self._uids_at.get(key):
            self._health.forget(key)

    def _changed(self, key: SiteKey, before: Site | None) -> None:
        self._changes.setdefault(key, before)
        self.touched[key] = None

    def set_target(self, site: SiteKey, target: Key | None) -> bool:
        """Set the SyncTarget that represents a site.  True if it changed."""
        is_new = self._locations.set_target(site, target)
        if is_new:
            self.touched[site] = None
        return is_new

    def has_target(self, site: SiteKey) -> bool:
        return self._locations.has_target(site)

    def targets(self) -> Iterable[tuple[SiteKey, Key]]:
        """The sites with a SyncTarget."""
        return self._locations.targets()

    # --- Pods and Allocations -------------------------------------------------------------------------

    def observed(self, subject: SchedulingSubject) -> ObservedSubject | None:
        return self._observed.get(subject)

    def reservations(self, uid: str) -> tuple[Reservation, ...]:
        return self._reservations.get(uid, ())

    def subjects_at(self, key: SiteKey) -> list[SchedulingSubject]:
        return [self._subjects[uid] for uid in self._uids_at.get(key, ()) if uid in self._subjects]

    def machines(self, key: SiteKey) -> list[SchedulingSubject]:
        """Machines that are bound to the site or finished there."""
        return [*(one for one in self.subjects_at(key) if one.kind == POD), *self._finished.get(key, ())]

    def namesakes(self, subject: SchedulingSubject, site: SiteKey) -> list[SchedulingSubject]:
        """Machines with the same namespace and name at the same SyncTarget."""
        return [SchedulingSubject(POD, key) for key in self._locations.namesakes(subject.key, site)]

    def workspaces(self, key: SiteKey) -> set[str]:
        """Logical clusters with machines at the site, also finished ones."""
        return self._locations.workspaces(key)

    def observe(self, subject: SchedulingSubject, observed: ObservedSubject | None, now: float) -> None:
        before = self._observed.get(subject)
        if before is not None and (observed is None or observed.uid != before.uid):
            self._forget(subject, before, now)
        if observed is None:
            return
        if before is not None and before.foreign_cluster and before.foreign_cluster != observed.foreign_cluster:
            discard_from(self._foreign, before.foreign_cluster, subject)
        self._observed[subject] = observed
        self._subjects[observed.uid] = subject
        if observed.foreign_cluster:
            self._foreign.setdefault(observed.foreign_cluster, set()).add(subject)
        former = before if before is not None and before.uid == observed.uid else None
        self._note_finished(subject, former, observed)
        if observed.returned_from and former is not None and not former.returned_from and observed.site is not None:
            self._on_accepted(observed.site)
        retry = self._machine_refusals.set_recorded(observed.uid, dict(observed.refused_by), now)
        if retry and observed.uid not in self._in_progress:
            self.queue.remove(observed.uid)  # retry it at once
        self._update(subject, observed, now)

    def reserve(self, subject: SchedulingSubject, observed: ObservedSubject) -> None:
        """Reserve the resources of a bound subject with which `observe` failed, until the engine is rebuilt."""
        self.engine.reserve(self._resolved(subject, observed))

    def _on_accepted(self, site: SiteKey) -> None:
        """The site accepted a machine."""
        if self._cluster_refusals.accept(site):
            self._changed(site, self.engine.site(site))

    def _note_finished(
        self, subject: SchedulingSubject, old: ObservedSubject | None, new: ObservedSubject | None
    ) -> None:
        before = None if old is None else old.finished_at
        after = None if new is None else new.finished_at
        if before == after:
            return
        if before is not None:
            self._locations.remove(subject.key, before)
            discard_from(self._finished, before, subject)
            self._changed(before, self.engine.site(before))
        if after is not None:
            self._locations.add(subject.key, after)
            self._finished.setdefault(after, set()).add(subject)
            self.touched[after] = None

    def _forget(self, subject: SchedulingSubject, observed: ObservedSubject, now: float) -> None:
        del self._observed[subject]
        if observed.foreign_cluster:
            discard_from(self._foreign, observed.foreign_cluster, subject)
        self._in_progress.pop(observed.uid, None)
        self._eviction_tried.pop(observed.uid, None)
        self._note_finished(subject, observed, None)
        self._machine_refusals.forget(observed.uid)
        self.queue.remove(observed.uid)
        self._set_reservations(observed.uid, (), now)
        self._subjects.pop(observed.uid, None)

    def _update(self, subject: SchedulingSubject, observed: ObservedSubject, now: float) -> None:
        reservations = self._resolved(subject, observed)
        pending = observed.pending and observed.request is not None
        if observed.uid in self._in_progress:
            if pending and not self._is_newer(subject, observed.uid, reservations):
                if observed.uid in self.queue and observed.request is not None:
                    self.queue.put(observed.request, now)
                return
            del self._in_progress[observed.uid]
        self._set_reservations(observed.uid, reservations, now)
        if pending and observed.request is not None:
            self.queue.put(observed.request, now)
        else:
            self.queue.remove(observed.uid)

    def _is_newer(self, subject: SchedulingSubject, uid: str, reservations: tuple[Reservation, ...]) -> bool:
        """Whether the observed reservations are newer than the write in progress."""
        return bool(reservations) and (subject.kind == POD or set(reservations) == set(self._reservations.get(uid, ())))

    def _resolved(self, subject: SchedulingSubject, observed: ObservedSubject) -> tuple[Reservation, ...]:
        """Another scheduler records only the name of a Cluster: it means the one in the same workspace, else the only
        one of that name."""
        if not observed.foreign_cluster:
            return self.engine.counted(observed.reservations)
        named = self._sites_by_name.get(observed.foreign_cluster, set())
        near = sorted(key for key in named if key.cluster == subject.key.cluster) or sorted(named)
        if len(near) != 1:
            return ()
        return self.engine.counted(one._replace(site=near[0]) for one in observed.reservations)

    def _reconsider_foreign(self, name: str, now: float) -> None:
        for subject in sorted(self._foreign.get(name, ())):
            self._update(subject, self._observed[subject], now)

    def _set_reservations(self, uid: str, reservations: tuple[Reservation, ...], now: float) -> None:
        before = self._reservations.get(uid, ())
        if before == reservations:
            return
        self._update_locations(self._subjects[uid], before, reservations)
        kept = {one.uid: one for one in reservations}
        for one in before:
            new = kept.get(one.uid)
            if new is None:
                self.engine.release(one.uid)
            if new is None or (new.site, new.claim) != (one.site, one.claim):
                self._changed(one.site, self.engine.site(one.site))
            if one.site in self._uids_at:
                self._uids_at[one.site].pop(uid, None)
                if not self._uids_at[one.site]:
                    del self._uids_at[one.site]
        self.engine.reserve(reservations)
        for one in reservations:
            self._uids_at.setdefault(one.site, {})[uid] = None
            self.touched[one.site] = None
            if one.site.cluster and self.engine.site(one.site) is None:
                self._health.lose(one.site, now)  # deleted while the scheduler was down, or not observed yet
        if reservations:
            self._reservations[uid] = reservations
        else:
            self._reservations.pop(uid, None)
        for one in before:
            self._forget_if_empty(one.site)

    def _update_locations(
        self, subject: SchedulingSubject, before: tuple[Reservation, ...], after: tuple[Reservation, ...]
    ) -> None:
        """Update the names of machines at sites.  Allocations are not delivered."""
        if subject.kind == POD:
            for one in before:
                self._locations.remove(subject.key, one.site)
            for one in after:
                self._locations.add(subject.key, one.site)

    # --- decisions ------------------------------------------------------------------------------------

    def wake(self, now: float) -> None:
        """Retry the waiting requests that a changed site may help."""
        changes, self._changes = self._changes, {}
        if self._all_changed:
            self._all_changed = False
            self.queue.wake(now, lambda request: True)
            return
        if not changes:
            return
        if len(changes) * self.queue.shapes > MAX_CHECKS:
            self.queue.wake(now, lambda request: True)
            return
        pairs = [(before, self.engine.site(key)) for key, before in sorted(changes.items())]
        could_help = self.engine.could_help
        self.queue.wake(now, lambda request: any(could_help(request, before, after) for before, after in pairs))

    @property
    def has_changes(self) -> bool:
        return self._all_changed or bool(self._changes)

    def change_rights(self) -> None:
        """Other sites are closed to an author."""
        self._all_changed = True

    def next(self, now: float) -> PlacedSubject | UnplacedSubject | None:
        """Decide about the next request.  A placement is reserved, and counts as being bound until `end_write` or
        `fail_write`."""
        while True:
            request = self.queue.pop(now)
            if request is None:
                return None
            subject = self._subjects.get(request.uid)
            if subject is not None:
                return self._decide(subject, self._observed[subject], request, now)
            self.queue.remove(request.uid)

    def _decide(
        self, subject: SchedulingSubject, observed: ObservedSubject, request: MachineRequest, now: float
    ) -> PlacedSubject | UnplacedSubject:
        with self._without_reservations(request.uid):
            decision = self._choose(request, now)
        if not decision.is_placed:
            self.queue.refuse(request.uid, now)
            if not observed.pending:
                self.queue.remove(request.uid)  # it stays where it is; the evictor tries again
            return UnplacedSubject(subject, observed, decision.message, decision.reasons)
        self._set_reservations(request.uid, tuple(self.engine.reservations_of(request, decision)), now)
        self._in_progress[request.uid] = None
        if subject.kind == POD:
            self._cluster_refusals.on_bound(decision.chosen[0].site, now)
        return PlacedSubject(subject, observed, request, decision, self.queue.added_at(request.uid))

    @contextmanager
    def _without_reservations(self, uid: str) -> Iterator[None]:
        """Decide as if the subject used nothing."""
        before = self._reservations.get(uid, ())
        for one in before:
            self.engine.release(one.uid)
        try:
            yield
        finally:
            self.engine.reserve(before)

    def _choose(self, request: MachineRequest, now: float) -> SchedulingDecision:
        """Without sites from which the machine would be evicted at once."""
        closed = self._undeliverable(request, self._subjects.get(request.uid), now)
        decision = self.engine.decide(request, excluded=closed)
        if not any(one.site in self._health for one in decision.chosen):
            return decision
        overdue = self._overdue(request, now)
        if overdue.keys().isdisjoint(one.site for one in decision.chosen):
            return decision
        return self.engine.decide(request, excluded=overdue | closed)

    def excluded(
        self, request: MachineRequest, now: float, subject: SchedulingSubject | None = None
    ) -> dict[SiteKey, str]:
        """Sites that are not available to the request, with the reason.  `subject`: for a request that is not observed
        yet."""
        return self._overdue(request, now) | self._undeliverable(
            request, subject or self._subjects.get(request.uid), now
        )

    def _undeliverable(
        self, request: MachineRequest, subject: SchedulingSubject | None, now: float
    ) -> dict[SiteKey, str]:
        """Sites to which the machine cannot be delivered."""
        found = dict.fromkeys(self._machine_refusals.avoided(request.uid, now), REFUSED)
        observed = None if subject is None else self._observed.get(subject)
        author = request.author if request.author is not None or observed is None else observed.author
        found |= self._closed(author)
        if subject is not None and subject.kind == POD:
            found = dict.fromkeys(self._cluster_refusals.avoided(request.tenant, now), CLUSTER_REFUSED) | found
            found |= dict.fromkeys(self._locations.conflicting_sites(subject.key), NAME_CONFLICT)
        return found

    def _overdue(self, request: MachineRequest, now: float) -> dict[SiteKey, str]:
        """Sites that are unhealthy for longer than the request tolerates."""
        tolerations = request.selector.tolerations
        return {key: UNHEALTHY_TOO_LONG for key in self._health if self._health.due(key, tolerations) <= now}

    @property
    def in_progress(self) -> list[UnconfirmedBinding]:
        """Without decisions that are not written yet."""
        found = [(uid, self._subjects.get(uid)) for uid, at in self._in_progress.items() if at is not None]
        return [UnconfirmedBinding(one, uid, self.reservations(uid)) for uid, one in found if one is not None]

    def is_in_progress(self, uid: str) -> bool:
        return uid in self._in_progress

    def resume(self, binding: UnconfirmedBinding, now: float) -> None:
        """Keep the reservation of a binding of the engine before this one, unless the observed object is newer."""
        subject, uid, reservations = binding
        observed = self._observed.get(subject)
        if observed is None:
            self.engine.reserve(reservations)  # the engine fails with the object
        elif observed.uid == uid and observed.pending and observed.reservations != reservations:
            self._set_reservations(uid, self.engine.counted(reservations), now)
            self._in_progress[uid] = -inf  # read it soon
            self.queue.remove(uid)

    def begin_write(self, uid: str) -> None:
        """The server may have the binding from now on."""
        self._in_progress[uid] = inf

    def end_write(self, uid: str, now: float) -> None:
        """The write ended; a watch event will confirm it, or `MachineBinder.verify` finds its result."""
        self.queue.remove(uid)
        if uid in self._in_progress:
            self._in_progress[uid] = now

    def fail_write(self, uid: str, now: float) -> None:
        """The write failed: release the reservation and retry later."""
        subject = self._subjects.get(uid)
        if uid not in self._in_progress or subject is None:
            return
        del self._in_progress[uid]
        observed = self._observed[subject]
        self.queue.refuse(uid, now)
        if observed.request is not None:
            shape = shape_of(observed.request)
            self.queue.wake(now, lambda request: shape_of(request) == shape)
        self._update(subject, observed, now)

    def unconfirmed(self, now: float) -> list[SchedulingSubject]:
        """Machines whose binding was written long ago without a confirming watch event."""
        late = [uid for uid, at in self._in_progress.items() if at is not None and at + CONFIRMED_BY < now]
        return [self._subjects[uid] for uid in late]

    # --- evictions ------------------------------------------------------------------------------------

    @property
    def unhealthy(self) -> list[SiteKey]:
        return sorted(self._health)

    def unhealthy_since(self, site: SiteKey) -> float | None:
        """None: its phase is healthy."""
        return self._health.since(site)

    def eviction_due(self, site: SiteKey, tolerations: Iterable[MachineToleration]) -> float:
        """When a machine with these tolerations is evicted from the site."""
        return self._health.due(site, tolerations)

    @property
    def is_eviction_suspended(self) -> bool:
        """Deleted Clusters do not count and are not protected."""
        there = [key for key in self._health if self.engine.site(key) is not None]
        return is_eviction_suspended(len(there), sum(1 for _ in self.engine.sites()), self._failover)

    @property
    def may_evict(self) -> bool:
        refused = any(not self._observed[self._subjects[uid]].returned_from for uid, _ in self._machine_refusals)
        return refused or any(self._uids_at.get(key) for key in self._health)

    def due_evictions(self, now: float) -> list[tuple[SchedulingSubject, SiteKey]]:
        """Evictions that are due and within the budget, the longest overdue first."""
        self._budget.refill(now, len(self._reservations))
        due: list[tuple[float, SchedulingSubject, SiteKey]] = []
        suspended = self.is_eviction_suspended
        for key in [one for one in self._health if not suspended or self.engine.site(one) is None]:
            for uid in self._uids_at.get(key, ()):
                subject = self._subjects[uid]
                if subject.kind == COPY:
                    continue
                when = self._health.due(key, self._observed[subject].tolerations)
                if when <= now and self._may_be_evicted(uid, self._observed[subject], now):
                    due.append((when, subject, key))
        for uid, key in self._machine_refusals:
            subject = self._subjects[uid]
            when = self._refusal_due(self._observed[subject], key)
            if when <= now and self._may_be_evicted(uid, self._observed[subject], now):
                due.append((when, subject, key))
        found: list[tuple[SchedulingSubject, SiteKey]] = []
        for _, subject, key in sorted(due):
            if not self._budget.take():
                break
            self._eviction_tried[self._observed[subject].uid] = now
            found.append((subject, key))
        return found

    def is_eviction_due(self, subject: SchedulingSubject, site: SiteKey, now: float) -> bool:
        """Whether it is still at the site and its toleration time has expired."""
        observed = self._observed.get(subject)
        if observed is None or observed.uid not in self._uids_at.get(site, ()):
            return False
        return min(self._health.due(site, observed.tolerations), self._refusal_due(observed, site)) <= now

    def _refusal_due(self, observed: ObservedSubject, site: SiteKey) -> float:
        """When it has to leave a site that refuses it.  A machine that already runs there stays: only a change of it is
        refused."""
        return inf if observed.returned_from else self._machine_refusals.due(observed.uid, site)

    def refuse(self, subject: SchedulingSubject, refusal: MachineRefusal) -> None:
        """A bound machine is refused where it is."""
        if (observed := self._observed.get(subject)) is not None:
            self._machine_refusals.refuse(observed.uid, refusal)

    def accept(self, subject: SchedulingSubject) -> None:
        """The machine is not refused any more."""
        if (observed := self._observed.get(subject)) is not None:
            self._machine_refusals.accept(observed.uid)

    def refusal(self, subject: SchedulingSubject, site: SiteKey) -> MachineRefusal | None:
        """The refusal for which the machine is evicted."""
        observed = self._observed.get(subject)
        is_refused = observed is not None and self._refusal_due(observed, site) < inf
        return self._machine_refusals.of(observed.uid, site) if observed is not None and is_refused else None

    def set_refusals(self, site: SiteKey, refusals: RefusalRecord | None, age: float, now: float) -> None:
        """Set the refusals recorded in the Cluster's status.  `age`: seconds since the last one."""
        if self._cluster_refusals.set_recorded(site, refusals, age, now):
            self._changed(site, self.engine.site(site))

    def has_recovered(self, site: SiteKey) -> bool:
        """Whether the site accepted a machine after the recorded refusals."""
        return self._cluster_refusals.has_recovered(site)

    def is_avoided(self, site: SiteKey, now: float) -> bool:
        """Whether the site gets no new machines because of refusals."""
        return self._cluster_refusals.is_avoided(site, now)

    def _may_be_evicted(self, uid: str, observed: ObservedSubject, now: float) -> bool:
        return (
            uid not in self._in_progress
            and not observed.foreign_cluster
            and self._eviction_tried.get(uid, -inf) + EVICTION_RETRY <= now
        )

    def fits_elsewhere(self, request: MachineRequest, site: SiteKey, now: float) -> bool:
        """Whether it fits without that site.  Reserves nothing."""
        with self._without_reservations(request.uid):
            excluded = self.excluded(request, now) | {site: UNHEALTHY_TOO_LONG}
            return self.engine.decide(request, excluded=excluded).is_placed

    def reschedule(self, request: MachineRequest, now: float) -> None:
        """Decide anew about a request that may already be placed."""
        self.queue.put(request, now)
