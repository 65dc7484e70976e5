"""The model of the scheduler: pending requests, reservations, evictions, and the next decision.  Pure: `now` is an
argument, in monotonic seconds."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from math import inf
from typing import Final, TypeVar

from farflung.controllers.global_scheduler.cluster_health import (
    ClusterHealth,
    EvictionBudget,
    FailoverOptions,
    HealthCause,
    is_eviction_suspended,
)
from farflung.controllers.global_scheduler.machine_locations import MachineLocations
from farflung.controllers.global_scheduler.refusals import (
    CLUSTER_REFUSED,
    REFUSED,
    ClusterRefusals,
    MachineRefusals,
    RefusalRecord,
)
from farflung.controllers.global_scheduler.subjects import (
    COPY,
    POD,
    ObservedSubject,
    PlacedSubject,
    SchedulingSubject,
    UnplacedSubject,
    UsageSummary,
    summarize_usage,
)
from farflung.scheduling.engine import SchedulingEngine
from farflung.scheduling.policy import SchedulerPolicy
from farflung.scheduling.queue import SchedulingQueue, shape_of
from farflung.scheduling.values import Flavor, MachineRequest, Reservation, SchedulingDecision, Site, SiteKey

K = TypeVar("K")
M = TypeVar("M")

EVICTION_RETRY: Final = 10.0  #: seconds between two attempts to evict the same machine
MAX_CHECKS: Final = 20_000  #: most calls of `could_help` per wake-up; beyond that, every request is retried
NAME_CONFLICT: Final = "with another of that name"
UNHEALTHY_TOO_LONG: Final = "not well for too long"
CONFIRMED_BY: Final = 30.0  #: seconds after which a written binding that no watch event confirmed is read again


class SchedulerState:
    def __init__(self, engine: SchedulingEngine, patience: FailoverOptions) -> None:
        self.engine = engine
        self.queue = SchedulingQueue()
        self._patience = patience
        self._budget = EvictionBudget(patience)
        self._known: dict[SchedulingSubject, ObservedSubject] = {}
        self._subjects: dict[str, SchedulingSubject] = {}  #: by uid
        self._held: dict[str, tuple[Reservation, ...]] = {}  #: by uid of the subject
        self._holders: dict[SiteKey, dict[str, None]] = {}  #: uids of subjects
        self._under_way: dict[str, float] = {}  #: by uid; when it was written, inf while the write is in progress
        self._named: dict[str, set[SiteKey]] = {}  #: sites by name
        self._guests: dict[
            str, set[SchedulingSubject]
        ] = {}  #: by the name of the Cluster to which another scheduler bound them
        self._ended: dict[SiteKey, set[SchedulingSubject]] = {}
        self._unwell = ClusterHealth(patience)
        self._refusing = MachineRefusals(patience)
        self._avoiding = ClusterRefusals()
        self._whereabouts = MachineLocations()
        self._tried: dict[str, float] = {}  #: when the scheduler last tried to evict it
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
        self._unwell.put(site, now, ages or {})
        if before is None:
            self._named.setdefault(site.key.name, set()).add(site.key)
            self.engine.reserve(self._held_at(site.key))
            self._reconsider_guests(site.key.name, now)

    def remove_site(self, key: SiteKey, now: float) -> None:
        before = self.engine.site(key)
        if before is None:
            return
        self.engine.remove_site(key)
        self._changed(key, before)
        if key.cluster:
            self._unwell.lose(key, now)
        else:
            self._unwell.forget(key)  # a site of a file evicts nothing when it is removed
        discard_from(self._named, key.name, key)
        self._reconsider_guests(key.name, now)
        self._forget_if_empty(key)

    def configure(
        self, policy: SchedulerPolicy, catalogue: Mapping[str, Flavor], sites: Iterable[Site], now: float
    ) -> None:
        """Replace policy, catalogue and the sites from files.  Bindings stay."""
        if self.engine.configure(policy, catalogue):
            for uid, held in list(self._held.items()):
                self._hold(uid, self.engine.counted(held), now)
            for site in self.engine.sites():
                self._changes.setdefault(site.key, site)  # every site may fit now
        there = {site.key: site for site in sites}
        for site in list(self.engine.sites()):
            if not site.key.cluster and site.key not in there:
                self.remove_site(site.key, now)
        for site in there.values():
            self.put_site(site, now)

    def _held_at(self, key: SiteKey) -> Iterator[Reservation]:
        return (one for uid in self._holders.get(key, ()) for one in self._held[uid] if one.site == key)

    def _forget_if_empty(self, key: SiteKey) -> None:
        if self.engine.site(key) is None and not self._holders.get(key):
            self._unwell.forget(key)

    def _changed(self, key: SiteKey, before: Site | None) -> None:
        self._changes.setdefault(key, before)
        self.touched[key] = None

    def lead(self, site: SiteKey, target: Hashable | None) -> bool:
        """Set the SyncTarget that represents a site.  True if it changed."""
        is_new = self._whereabouts.lead(site, target)
        if is_new:
            self.touched[site] = None
        return is_new

    def is_led(self, site: SiteKey) -> bool:
        return self._whereabouts.is_led(site)

    # --- Pods and Allocations -------------------------------------------------------------------------

    def seen(self, subject: SchedulingSubject) -> ObservedSubject | None:
        return self._known.get(subject)

    def holds(self, uid: str) -> tuple[Reservation, ...]:
        return self._held.get(uid, ())

    def subject_of(self, uid: str) -> SchedulingSubject | None:
        return self._subjects.get(uid)

    def holders(self, key: SiteKey) -> list[SchedulingSubject]:
        return [self._subjects[uid] for uid in self._holders.get(key, ()) if uid in self._subjects]

    def machines(self, key: SiteKey) -> list[SchedulingSubject]:
        """Machines that are bound to the site or finished there."""
        return [*(one for one in self.holders(key) if one.kind == POD), *self._ended.get(key, ())]

    def together(self, subject: SchedulingSubject, site: SiteKey) -> list[SchedulingSubject]:
        """Machines with the same namespace and name at the same SyncTarget, including itself."""
        return [SchedulingSubject(POD, key) for key in self._whereabouts.together(subject.key, site)]

    def workspaces(self, key: SiteKey) -> set[str]:
        """Logical clusters with machines at the site, also finished ones."""
        return self._whereabouts.workspaces(key)

    def hear(self, subject: SchedulingSubject, seen: ObservedSubject | None, now: float) -> None:
        before = self._known.get(subject)
        if before is not None and (seen is None or seen.uid != before.uid):
            self._forget(subject, before, now)
        if seen is None:
            return
        if before is not None and before.guest_of and before.guest_of != seen.guest_of:
            discard_from(self._guests, before.guest_of, subject)
        self._known[subject] = seen
        self._subjects[seen.uid] = subject
        if seen.guest_of:
            self._guests.setdefault(seen.guest_of, set()).add(subject)
        known = before if before is not None and before.uid == seen.uid else None
        self._note_end(subject, known, seen)
        if seen.returned_from and known is not None and not known.returned_from and seen.site is not None:
            self._take(seen.site)
        forgiven = self._refusing.remember(seen.uid, dict(seen.refused_by), now)
        if forgiven and seen.uid not in self._under_way:
            self.queue.remove(seen.uid)  # retry it at once
        self._look_at(subject, seen, now)

    def _take(self, site: SiteKey) -> None:
        """The site accepted a machine."""
        if self._avoiding.take(site):
            self._changed(site, self.engine.site(site))

    def _note_end(self, subject: SchedulingSubject, old: ObservedSubject | None, new: ObservedSubject | None) -> None:
        before = None if old is None else old.ended_at
        after = None if new is None else new.ended_at
        if before == after:
            return
        if before is not None:
            self._whereabouts.go(subject.key, before)
            discard_from(self._ended, before, subject)
            self._changed(before, self.engine.site(before))
        if after is not None:
            self._whereabouts.come(subject.key, after)
            self._ended.setdefault(after, set()).add(subject)
            self.touched[after] = None

    def _forget(self, subject: SchedulingSubject, seen: ObservedSubject, now: float) -> None:
        del self._known[subject]
        if seen.guest_of:
            discard_from(self._guests, seen.guest_of, subject)
        self._under_way.pop(seen.uid, None)
        self._tried.pop(seen.uid, None)
        self._note_end(subject, seen, None)
        self._refusing.forget(seen.uid)
        self.queue.remove(seen.uid)
        self._hold(seen.uid, (), now)
        self._subjects.pop(seen.uid, None)

    def _look_at(self, subject: SchedulingSubject, seen: ObservedSubject, now: float) -> None:
        held = self._resolved(subject, seen)
        asks = seen.asks and seen.request is not None
        if seen.uid in self._under_way:
            if asks and not self._is_news(subject, seen.uid, held):
                if seen.uid in self.queue and seen.request is not None:
                    self.queue.update(seen.request, now)
                return
            del self._under_way[seen.uid]
        self._hold(seen.uid, held, now)
        if asks and seen.request is not None:
            self.queue.update(seen.request, now)
        else:
            self.queue.remove(seen.uid)

    def _is_news(self, subject: SchedulingSubject, uid: str, held: tuple[Reservation, ...]) -> bool:
        """Whether the observed reservations are newer than the write in progress."""
        return bool(held) and (subject.kind == POD or set(held) == set(self._held.get(uid, ())))

    def _resolved(self, subject: SchedulingSubject, seen: ObservedSubject) -> tuple[Reservation, ...]:
        """Another scheduler records only the name of a Cluster: it means the one in the same workspace, else the only
        one of that name."""
        if not seen.guest_of:
            return self.engine.counted(seen.held)
        named = self._named.get(seen.guest_of, set())
        near = sorted(key for key in named if key.cluster == subject.key.cluster) or sorted(named)
        if len(near) != 1:
            return ()
        return self.engine.counted(one._replace(site=near[0]) for one in seen.held)

    def _reconsider_guests(self, name: str, now: float) -> None:
        for subject in sorted(self._guests.get(name, ())):
            self._look_at(subject, self._known[subject], now)

    def _hold(self, uid: str, held: tuple[Reservation, ...], now: float) -> None:
        before = self._held.get(uid, ())
        if before == held:
            return
        self._rename(self._subjects[uid], before, held)
        kept = {one.uid: one for one in held}
        for one in before:
            new = kept.get(one.uid)
            if new is None:
                self.engine.release(one.uid)
            if new is None or (new.site, new.claim) != (one.site, one.claim):
                self._changed(one.site, self.engine.site(one.site))
            if one.site in self._holders:
                self._holders[one.site].pop(uid, None)
                if not self._holders[one.site]:
                    del self._holders[one.site]
        self.engine.reserve(held)
        for one in held:
            self._holders.setdefault(one.site, {})[uid] = None
            self.touched[one.site] = None
            if one.site.cluster and self.engine.site(one.site) is None:
                self._unwell.lose(one.site, now)  # deleted while the scheduler was down, or not observed yet
        if held:
            self._held[uid] = held
        else:
            self._held.pop(uid, None)
        for one in before:
            self._forget_if_empty(one.site)

    def _rename(
        self, subject: SchedulingSubject, before: tuple[Reservation, ...], after: tuple[Reservation, ...]
    ) -> None:
        """Update the names of machines at sites.  Allocations are not delivered."""
        if subject.kind == POD:
            for one in before:
                self._whereabouts.go(subject.key, one.site)
            for one in after:
                self._whereabouts.come(subject.key, one.site)

    # --- decisions ------------------------------------------------------------------------------------

    def wake(self, now: float) -> None:
        """Retry the waiting requests that a changed site may help."""
        changes, self._changes = self._changes, {}
        if not changes:
            return
        if len(changes) * self.queue.shapes > MAX_CHECKS:
            self.queue.wake(now, lambda request: True)
            return
        pairs = [(before, self.engine.site(key)) for key, before in sorted(changes.items())]
        could_help = self.engine.could_help
        self.queue.wake(now, lambda request: any(could_help(request, before, after) for before, after in pairs))

    @property
    def has_news(self) -> bool:
        return bool(self._changes)

    def next(self, now: float) -> PlacedSubject | UnplacedSubject | None:
        """Decide about the next request.  A placement is reserved, and counts as being bound until `confirm_write` or
        `fail_write`."""
        while True:
            request = self.queue.pop(now)
            if request is None:
                return None
            subject = self._subjects.get(request.uid)
            if subject is not None:
                return self._decide(subject, self._known[subject], request, now)
            self.queue.remove(request.uid)

    def _decide(
        self, subject: SchedulingSubject, seen: ObservedSubject, request: MachineRequest, now: float
    ) -> PlacedSubject | UnplacedSubject:
        before = self._held.get(request.uid, ())
        for one in before:
            self.engine.release(one.uid)
        decision = self._decided(request, now)
        if not decision.is_placed:
            self.engine.reserve(before)
            self.queue.refuse(request.uid, now)
            if not seen.asks:
                self.queue.remove(request.uid)  # it stays where it is; the evictor tries again
            return UnplacedSubject(subject, seen, decision.message, decision.reasons)
        self._hold(request.uid, tuple(self.engine.reservations_of(request, decision)), now)
        self.engine.reserve(self._held[request.uid])
        self._under_way[request.uid] = inf
        if subject.kind == POD:
            self._avoiding.send(decision.chosen[0].site, now)
        return PlacedSubject(subject, seen, request, decision, self.queue.asked(request.uid))

    def _decided(self, request: MachineRequest, now: float) -> SchedulingDecision:
        """Without sites from which the machine would be evicted at once."""
        closed = self._closed(request, self._subjects.get(request.uid), now)
        decision = self.engine.decide(request, excluded=closed)
        if not any(one.site in self._unwell for one in decision.chosen):
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
        return self._overdue(request, now) | self._closed(request, subject or self._subjects.get(request.uid), now)

    def _closed(self, request: MachineRequest, subject: SchedulingSubject | None, now: float) -> dict[SiteKey, str]:
        """Sites to which the machine cannot be delivered."""
        found = dict.fromkeys(self._refusing.avoided(request.uid, now), REFUSED)
        if subject is not None and subject.kind == POD:
            found = dict.fromkeys(self._avoiding.avoided(request.tenant, now), CLUSTER_REFUSED) | found
            found |= dict.fromkeys(self._whereabouts.taken(subject.key), NAME_CONFLICT)
        return found

    def _overdue(self, request: MachineRequest, now: float) -> dict[SiteKey, str]:
        """Sites that are unhealthy for longer than the request tolerates."""
        tolerations = request.selector.tolerations
        return {key: UNHEALTHY_TOO_LONG for key in self._unwell if self._unwell.due(key, tolerations) <= now}

    def expected(self, uid: str) -> tuple[Reservation, ...]:
        """Its reservations once the write in progress is observed; empty if there is none."""
        return self._held.get(uid, ()) if uid in self._under_way else ()

    def is_under_way(self, uid: str) -> bool:
        return uid in self._under_way

    def written(self, uid: str, now: float) -> None:
        """The write succeeded; a watch event will confirm it."""
        self.queue.remove(uid)
        if uid in self._under_way:
            self._under_way[uid] = now

    def failed(self, uid: str, now: float) -> None:
        """The write failed: release the reservation and retry later."""
        subject = self._subjects.get(uid)
        if self._under_way.pop(uid, None) is None or subject is None:
            return
        seen = self._known[subject]
        self.queue.refuse(uid, now)
        if seen.request is not None:
            shape = shape_of(seen.request)
            self.queue.wake(now, lambda request: shape_of(request) == shape)
        self._look_at(subject, seen, now)

    def unheard(self, now: float) -> list[SchedulingSubject]:
        """Machines whose binding was written long ago without a confirming watch event."""
        late = [uid for uid, since in self._under_way.items() if since + CONFIRMED_BY < now]
        return [self._subjects[uid] for uid in late]

    # --- evictions ------------------------------------------------------------------------------------

    @property
    def unwell(self) -> list[SiteKey]:
        return sorted(self._unwell)

    @property
    def has_unwell(self) -> bool:
        refused = any(not self._known[self._subjects[uid]].returned_from for uid, _ in self._refusing)
        return refused or any(self._holders.get(key) for key in self._unwell)

    def leaving(self, now: float) -> list[tuple[SchedulingSubject, SiteKey]]:
        """Evictions that are due and within the budget, the longest overdue first."""
        self._budget.refill(now, len(self._held))
        there = {key for key in self._unwell if self.engine.site(key) is not None}
        held = is_eviction_suspended(len(there), sum(1 for _ in self.engine.sites()), self._patience)
        due: list[tuple[float, SchedulingSubject, SiteKey]] = []
        for key in [one for one in self._unwell if one not in there] if held else self._unwell:
            for uid in self._holders.get(key, ()):
                subject = self._subjects[uid]
                if subject.kind == COPY:
                    continue
                when = self._unwell.due(key, self._known[subject].tolerations)
                if when <= now and self._may_leave(uid, self._known[subject], now):
                    due.append((when, subject, key))
        for uid, key in self._refusing:
            subject = self._subjects[uid]
            when = self._refusal_due(self._known[subject], key)
            if when <= now and self._may_leave(uid, self._known[subject], now):
                due.append((when, subject, key))
        found: list[tuple[SchedulingSubject, SiteKey]] = []
        for _, subject, key in sorted(due):
            if not self._budget.take():
                break
            self._tried[self._known[subject].uid] = now
            found.append((subject, key))
        return found

    def has_to_leave(self, subject: SchedulingSubject, site: SiteKey, now: float) -> bool:
        """Whether it is still at the site and its toleration time has expired."""
        seen = self._known.get(subject)
        if seen is None or seen.uid not in self._holders.get(site, ()):
            return False
        return min(self._unwell.due(site, seen.tolerations), self._refusal_due(seen, site)) <= now

    def _refusal_due(self, seen: ObservedSubject, site: SiteKey) -> float:
        """When it has to leave a site that refuses it.  A machine that already runs there stays: only a change of it is
        refused."""
        return inf if seen.returned_from else self._refusing.due(seen.uid, site)

    def refuse(self, subject: SchedulingSubject, site: SiteKey, now: float) -> None:
        """The site of a bound machine refuses it."""
        if (seen := self._known.get(subject)) is not None:
            self._refusing.refuse(seen.uid, site, now)

    def accept(self, subject: SchedulingSubject, site: SiteKey) -> None:
        """The site no longer refuses the machine."""
        if (seen := self._known.get(subject)) is not None:
            self._refusing.accept(seen.uid, site)

    def is_refused(self, subject: SchedulingSubject, site: SiteKey) -> bool:
        seen = self._known.get(subject)
        return seen is not None and self._refusal_due(seen, site) < inf

    def remember_refusals(self, site: SiteKey, refusals: RefusalRecord | None, age: float, now: float) -> None:
        """Set the refusals recorded in the Cluster's status.  `age`: seconds since the last one."""
        if self._avoiding.remember(site, refusals, age, now):
            self._changed(site, self.engine.site(site))

    def is_forgiven(self, site: SiteKey) -> bool:
        """Whether the site accepted a machine after the recorded refusals."""
        return self._avoiding.is_over(site)

    def is_pausing(self, site: SiteKey, now: float) -> bool:
        """Whether the site gets no new machines because of refusals."""
        return self._avoiding.is_pausing(site, now)

    def is_taken(self, subject: SchedulingSubject, site: SiteKey) -> bool:
        """Whether another machine has its name at the SyncTarget of the site."""
        return site in self._whereabouts.taken(subject.key)

    def _may_leave(self, uid: str, seen: ObservedSubject, now: float) -> bool:
        return uid not in self._under_way and not seen.guest_of and self._tried.get(uid, -inf) + EVICTION_RETRY <= now

    def finds_another(self, request: MachineRequest, site: SiteKey, now: float) -> bool:
        """Whether it fits without that site.  Reserves nothing."""
        before = self._held.get(request.uid, ())
        for one in before:
            self.engine.release(one.uid)
        placed = self.engine.decide(
            request, excluded=self.excluded(request, now) | {site: UNHEALTHY_TOO_LONG}
        ).is_placed
        self.engine.reserve(before)
        return placed

    def ask_again(self, request: MachineRequest, now: float) -> None:
        """Decide anew about a request that may already be placed."""
        self.queue.update(request, now)

    # --- usage ----------------------------------------------------------------------------------------

    def usage(self, key: SiteKey) -> UsageSummary:
        return summarize_usage(one.claim for one in self._held_at(key))


def discard_from(groups: dict[K, set[M]], name: K, member: M) -> None:
    members = groups.get(name, set())
    members.discard(member)
    if not members:
        groups.pop(name, None)
