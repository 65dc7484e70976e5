"""Who asks, who holds what, and what is decided next.  Pure: `now` is an argument, in monotonic seconds."""

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

EVICTION_RETRY: Final = 10.0  #: seconds between two tries to find another place for what has to leave
MAX_CHECKS: Final = 20_000  #: whether a change could help somebody: instead of more of them, all are tried
NAME_CONFLICT: Final = "with another of that name"
UNHEALTHY_TOO_LONG: Final = "not well for too long"
CONFIRMED_BY: Final = 30.0  #: seconds after which somebody asks for what should have been heard of


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
        self._under_way: dict[str, float] = {}  #: what is being written, and since when nobody heard of it
        self._named: dict[str, set[SiteKey]] = {}  #: sites by name
        self._guests: dict[str, set[SchedulingSubject]] = {}  #: by the name of the cluster that they were bound to
        self._ended: dict[SiteKey, set[SchedulingSubject]] = {}
        self._unwell = ClusterHealth(patience)
        self._refusing = MachineRefusals(patience)
        self._avoiding = ClusterRefusals()
        self._whereabouts = MachineLocations()
        self._tried: dict[str, float] = {}  #: who should leave, and when a place was last looked for
        self._changes: dict[SiteKey, Site | None] = {}  #: what a site was before something happened there
        self.touched: dict[SiteKey, None] = {}  #: sites where somebody came or went, for who tells of it

    # --- sites ------------------------------------------------------------------------------------

    def put_site(self, site: Site, now: float, *, ages: Mapping[HealthCause, float] | None = None) -> None:
        """`ages`: for how long what is wrong with it has been so already."""
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
            self._unwell.forget(key)  # files say nothing about what is there already
        discard_from(self._named, key.name, key)
        self._reconsider_guests(key.name, now)
        self._forget_if_empty(key)

    def configure(
        self, policy: SchedulerPolicy, catalogue: Mapping[str, Flavor], sites: Iterable[Site], now: float
    ) -> None:
        """From now on; `sites`: all that are not in the API.  What is bound stays where it is."""
        if self.engine.configure(policy, catalogue):
            for uid, held in list(self._held.items()):
                self._hold(uid, self.engine.counted(held), now)
            for site in self.engine.sites():
                self._changes.setdefault(site.key, site)  # any of them may do now
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
        """What is bound to a site is brought to this SyncTarget; None: nowhere.  Whether that was otherwise before."""
        is_new = self._whereabouts.lead(site, target)
        if is_new:
            self.touched[site] = None
        return is_new

    def is_led(self, site: SiteKey) -> bool:
        return self._whereabouts.is_led(site)

    # --- who asks and who has ---------------------------------------------------------------------

    def seen(self, subject: SchedulingSubject) -> ObservedSubject | None:
        return self._known.get(subject)

    def holds(self, uid: str) -> tuple[Reservation, ...]:
        return self._held.get(uid, ())

    def subject_of(self, uid: str) -> SchedulingSubject | None:
        return self._subjects.get(uid)

    def holders(self, key: SiteKey) -> list[SchedulingSubject]:
        return [self._subjects[uid] for uid in self._holders.get(key, ()) if uid in self._subjects]

    def machines(self, key: SiteKey) -> list[SchedulingSubject]:
        """Those that are bound there, and those that have ended there."""
        return [*(one for one in self.holders(key) if one.kind == POD), *self._ended.get(key, ())]

    def together(self, subject: SchedulingSubject, site: SiteKey) -> list[SchedulingSubject]:
        """Machines of the same name that are brought to where those of that site are, with itself."""
        return [SchedulingSubject(POD, key) for key in self._whereabouts.together(subject.key, site)]

    def workspaces(self, key: SiteKey) -> set[str]:
        """Logical clusters of machines that hold something there, or have ended there."""
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
            self.queue.remove(seen.uid)  # to be tried at once
        self._look_at(subject, seen, now)

    def _take(self, site: SiteKey) -> None:
        """It has got a machine."""
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
        """Whether what was heard is not from before that which is under way."""
        return bool(held) and (subject.kind == POD or set(held) == set(self._held.get(uid, ())))

    def _resolved(self, subject: SchedulingSubject, seen: ObservedSubject) -> tuple[Reservation, ...]:
        """Somebody else says only the name of a cluster: one of the same workspace is meant, or the only one."""
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
                self._unwell.lose(one.site, now)  # it went while nobody looked, or is still to be heard of
        if held:
            self._held[uid] = held
        else:
            self._held.pop(uid, None)
        for one in before:
            self._forget_if_empty(one.site)

    def _rename(
        self, subject: SchedulingSubject, before: tuple[Reservation, ...], after: tuple[Reservation, ...]
    ) -> None:
        """Which machines of that name are where; Allocations are brought nowhere."""
        if subject.kind == POD:
            for one in before:
                self._whereabouts.go(subject.key, one.site)
            for one in after:
                self._whereabouts.come(subject.key, one.site)

    # --- deciding ---------------------------------------------------------------------------------

    def wake(self, now: float) -> None:
        """Those for whom something happened that can help."""
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
        """What is placed is reserved, and counts as under way until somebody says what became of it."""
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
                self.queue.remove(request.uid)  # it has a place, and a better one is looked for again anyway
            return UnplacedSubject(subject, seen, decision.message, decision.reasons)
        self._hold(request.uid, tuple(self.engine.reservations_of(request, decision)), now)
        self.engine.reserve(self._held[request.uid])
        self._under_way[request.uid] = inf
        if subject.kind == POD:
            self._avoiding.send(decision.chosen[0].site, now)
        return PlacedSubject(subject, seen, request, decision, self.queue.asked(request.uid))

    def _decided(self, request: MachineRequest, now: float) -> SchedulingDecision:
        """Nowhere from where it would have to leave at once."""
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
        """Sites that will not do for it, whatever they are and have, and why.  `subject`: if it is not known yet."""
        return self._overdue(request, now) | self._closed(request, subject or self._subjects.get(request.uid), now)

    def _closed(self, request: MachineRequest, subject: SchedulingSubject | None, now: float) -> dict[SiteKey, str]:
        """Sites where it cannot be brought to."""
        found = dict.fromkeys(self._refusing.avoided(request.uid, now), REFUSED)
        if subject is not None and subject.kind == POD:
            found = dict.fromkeys(self._avoiding.avoided(request.tenant, now), CLUSTER_REFUSED) | found
            found |= dict.fromkeys(self._whereabouts.taken(subject.key), NAME_CONFLICT)
        return found

    def _overdue(self, request: MachineRequest, now: float) -> dict[SiteKey, str]:
        """Sites that have not been well for longer than it tolerates."""
        tolerations = request.selector.tolerations
        return {key: UNHEALTHY_TOO_LONG for key in self._unwell if self._unwell.due(key, tolerations) <= now}

    def expected(self, uid: str) -> tuple[Reservation, ...]:
        """What it holds as soon as what is under way is heard of; nothing if nothing is."""
        return self._held.get(uid, ()) if uid in self._under_way else ()

    def is_under_way(self, uid: str) -> bool:
        return uid in self._under_way

    def written(self, uid: str, now: float) -> None:
        """It is done, and will be heard of."""
        self.queue.remove(uid)
        if uid in self._under_way:
            self._under_way[uid] = now

    def failed(self, uid: str, now: float) -> None:
        """It is not done, and will not be: what was reserved for it is free, and it is tried again later."""
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
        """Those that were written long ago, and nobody heard of it."""
        late = [uid for uid, since in self._under_way.items() if since + CONFIRMED_BY < now]
        return [self._subjects[uid] for uid in late]

    # --- leaving ----------------------------------------------------------------------------------

    @property
    def unwell(self) -> list[SiteKey]:
        return sorted(self._unwell)

    @property
    def has_unwell(self) -> bool:
        refused = any(not self._known[self._subjects[uid]].returned_from for uid, _ in self._refusing)
        return refused or any(self._holders.get(key) for key in self._unwell)

    def leaving(self, now: float) -> list[tuple[SchedulingSubject, SiteKey]]:
        """Those that have to leave a site now and may, the longest overdue first."""
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
        """Whether it is there, still or again, and its time is over."""
        seen = self._known.get(subject)
        if seen is None or seen.uid not in self._holders.get(site, ()):
            return False
        return min(self._unwell.due(site, seen.tolerations), self._refusal_due(seen, site)) <= now

    def _refusal_due(self, seen: ObservedSubject, site: SiteKey) -> float:
        """When it has to leave because the site does not take it.  Of what is there already only a change is
        refused, and it runs as it is."""
        return inf if seen.returned_from else self._refusing.due(seen.uid, site)

    def refuse(self, subject: SchedulingSubject, site: SiteKey, now: float) -> None:
        """It is bound there, and that site does not take it."""
        if (seen := self._known.get(subject)) is not None:
            self._refusing.refuse(seen.uid, site, now)

    def accept(self, subject: SchedulingSubject, site: SiteKey) -> None:
        """Nobody says any more that the site does not take it."""
        if (seen := self._known.get(subject)) is not None:
            self._refusing.accept(seen.uid, site)

    def is_refused(self, subject: SchedulingSubject, site: SiteKey) -> bool:
        seen = self._known.get(subject)
        return seen is not None and self._refusal_due(seen, site) < inf

    def remember_refusals(self, site: SiteKey, refusals: RefusalRecord | None, age: float, now: float) -> None:
        """What is noted of the last machines that a site did not take, `age` seconds ago."""
        if self._avoiding.remember(site, refusals, age, now):
            self._changed(site, self.engine.site(site))

    def is_forgiven(self, site: SiteKey) -> bool:
        """Whether it has taken a machine since it took none of the last ones."""
        return self._avoiding.is_over(site)

    def is_pausing(self, site: SiteKey, now: float) -> bool:
        """Whether no machine is sent there, because it took none of the last ones."""
        return self._avoiding.is_pausing(site, now)

    def is_taken(self, subject: SchedulingSubject, site: SiteKey) -> bool:
        """Whether another machine has its name where it would be brought to from there."""
        return site in self._whereabouts.taken(subject.key)

    def _may_leave(self, uid: str, seen: ObservedSubject, now: float) -> bool:
        return uid not in self._under_way and not seen.guest_of and self._tried.get(uid, -inf) + EVICTION_RETRY <= now

    def finds_another(self, request: MachineRequest, site: SiteKey, now: float) -> bool:
        """Whether it can be placed without that site, for longer than a moment.  Nothing is reserved."""
        before = self._held.get(request.uid, ())
        for one in before:
            self.engine.release(one.uid)
        placed = self.engine.decide(
            request, excluded=self.excluded(request, now) | {site: UNHEALTHY_TOO_LONG}
        ).is_placed
        self.engine.reserve(before)
        return placed

    def ask_again(self, request: MachineRequest, now: float) -> None:
        """It is decided anew, whatever it has."""
        self.queue.update(request, now)

    # --- telling ----------------------------------------------------------------------------------

    def usage(self, key: SiteKey) -> UsageSummary:
        return summarize_usage(one.claim for one in self._held_at(key))


def discard_from(groups: dict[K, set[M]], name: K, member: M) -> None:
    members = groups.get(name, set())
    members.discard(member)
    if not members:
        groups.pop(name, None)
