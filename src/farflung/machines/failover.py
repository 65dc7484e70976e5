"""When machines leave a Cluster: its bad health, and its refusals.  Pure: `now` is an argument, in monotonic seconds.

Each taint of a site and its health count separately, because machines may tolerate them for different times.

A Cluster that refused the last machines gets none for a while, and then one at a time.  The machines are recorded in
its status, so that the next scheduler knows them.  If they are of few workspaces, only these avoid the Cluster: the
machines themselves may be the cause.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import inf
from typing import Any, Final, NamedTuple

from farflung.apis.names import NO_EXECUTE, NOT_READY_TAINT, UNREACHABLE_TAINT
from farflung.machinery import times
from farflung.machinery.errors import Obj
from farflung.machines.engine.values import Health, MachineToleration, Site, SiteKey, SiteTaint, tolerates

HEALTH_TAINTS: Final = {
    Health.OFFLINE: NOT_READY_TAINT,
    Health.DOWN: NOT_READY_TAINT,
    Health.UNREACHABLE: UNREACHABLE_TAINT,
}


@dataclass(frozen=True, slots=True)
class FailoverOptions:
    """When machines are evicted from an unhealthy Cluster, and how fast."""

    tolerated: float = 300.0  #: seconds, of machines without a toleration
    vanished: float = 5.0  #: seconds after the deletion of a Cluster, which may be created again
    refused: float = 30.0  #: seconds for which a Cluster may refuse a machine, all_of_workspaces cause may be temporary
    per_second: float = 10.0  #: evictions
    share: float = 0.1  #: of all machines evicted per second, if that is more
    held_above: float = 0.5  #: evictions stop while more than this share of all Clusters is unhealthy


class EvictionBudget:
    """A token bucket of evictions."""

    def __init__(self, failover: FailoverOptions) -> None:
        self._failover = failover
        self._left = failover.per_second
        self._at: float | None = None

    def refill(self, now: float, stacks: int) -> None:
        """`stacks`: the number of all machines."""
        rate = max(self._failover.per_second, self._failover.share * stacks)
        passed = 0.0 if self._at is None else now - self._at
        self._left = min(max(rate, 1.0), self._left + rate * passed)
        self._at = now

    def take(self) -> bool:
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True


def toleration_seconds(taint: SiteTaint, tolerations: tuple[MachineToleration, ...], otherwise: float) -> float:
    """Seconds for which a machine stays at a site with this taint.  `otherwise`: without a matching toleration."""
    found = [inf if one.seconds is None else max(0.0, one.seconds) for one in tolerations if tolerates(one, taint)]
    return min(found, default=otherwise)


def is_eviction_suspended(unhealthy: int, sites: int, failover: FailoverOptions) -> bool:
    """Whether so many sites are unhealthy that the fault is probably the scheduler's own connection."""
    return unhealthy > sites * failover.held_above


class HealthCause(NamedTuple):
    """A taint without its time, or one of the constants below."""

    key: str
    value: str = ""


UNHEALTHY: Final = HealthCause("")  #: the exact health does not matter
DELETED: Final = HealthCause("", "gone")  #: the Cluster does not exist


def find_causes(site: Site) -> Iterator[tuple[HealthCause, SiteTaint]]:
    """Causes of eviction, each as the taint that tolerations are compared with."""
    if site.health in HEALTH_TAINTS:
        yield UNHEALTHY, SiteTaint(HEALTH_TAINTS[site.health], "", NO_EXECUTE)
    for taint in site.taints:
        if taint.effect == NO_EXECUTE:
            yield HealthCause(taint.key, taint.value), taint


class ClusterHealth:
    def __init__(self, failover: FailoverOptions) -> None:
        self._failover = failover
        self._since: dict[SiteKey, dict[HealthCause, float]] = {}
        self._taints: dict[SiteKey, dict[HealthCause, SiteTaint]] = {}

    def __contains__(self, key: SiteKey) -> bool:
        return key in self._since

    def __iter__(self) -> Iterator[SiteKey]:
        return iter(self._since)

    def put(self, site: Site, now: float, ages: Mapping[HealthCause, float]) -> None:
        """`ages`: for how long each cause has existed.  A known time takes precedence, because clocks may change."""
        taints = dict(find_causes(site))
        if not taints:
            self.forget(site.key)
            return
        known = self._since.get(site.key, {})
        self._since[site.key] = {
            cause: known[cause] if cause in known else now - max(0.0, ages.get(cause, 0.0)) for cause in taints
        }
        self._taints[site.key] = taints

    def lose(self, key: SiteKey, now: float) -> None:
        """The site does not exist."""
        if DELETED not in self._since.get(key, {}):
            self._since[key] = {DELETED: now}
            self._taints.pop(key, None)

    def forget(self, key: SiteKey) -> None:
        self._since.pop(key, None)
        self._taints.pop(key, None)

    def since(self, key: SiteKey) -> float | None:
        """When its phase became unhealthy; None: it is not."""
        return self._since.get(key, {}).get(UNHEALTHY)

    def due(self, key: SiteKey, tolerations: Iterable[MachineToleration]) -> float:
        """When a machine with these tolerations is evicted."""
        since, known = self._since.get(key, {}), tuple(tolerations)
        if DELETED in since:
            return since[DELETED] + self._failover.vanished
        found = self._taints.get(key, {})
        return min((since[cause] + self._grace(cause, taint, known) for cause, taint in found.items()), default=inf)

    def _grace(self, cause: HealthCause, taint: SiteTaint, tolerations: tuple[MachineToleration, ...]) -> float:
        return toleration_seconds(taint, tolerations, self._failover.tolerated if cause == UNHEALTHY else 0.0)


ENOUGH_REFUSALS: Final = 3  #: different machines in succession
CLUSTER_REFUSED: Final = "refused the last machines"
BACKOFF_BASE: Final = 60.0  #: seconds after the first refusal; doubles with each further one
TRIAL: Final = 2 * BACKOFF_BASE  #: seconds for which one trial machine keeps others away from a Cluster
BACKOFF_MAX: Final = 3600.0
MAX_CLUSTERS: Final = 16  #: Clusters in one annotation
MAX_REFUSALS: Final = 20
MAX_REASON: Final = 256  #: characters
REFUSED: Final = "refused it"


# --- annotations of a machine ---------------------------------------------------------------------


def read_machine_refusals(text: str) -> dict[SiteKey, int]:
    """Number of refusals per Cluster, from `<logical cluster>|<namespace>/<name>=<times>,…`.  Invalid entries are
    ignored."""
    found: dict[SiteKey, int] = {}
    for one in text.split(",", MAX_CLUSTERS)[:MAX_CLUSTERS]:
        written, _, number = one.strip().rpartition("=")
        site = SiteKey.parse(written)
        if site and number.isascii() and number.isdigit() and len(number) <= len(str(MAX_REFUSALS)):
            found[site] = max(1, min(MAX_REFUSALS, int(number)))
    return found


def add_machine_refusal(text: str, site: SiteKey) -> str:
    """The annotation with one more refusal.  Beyond the limit, the Clusters with the fewest refusals are dropped."""
    known = read_machine_refusals(text)
    number = min(MAX_REFUSALS, known.pop(site, 0) + 1)
    kept = sorted(known.items(), key=lambda one: (-one[1], one[0]))[: MAX_CLUSTERS - 1]
    return ",".join(f"{key.annotation}={count}" for key, count in sorted([*kept, (site, number)]))


def describe_machine_refusal(note: str, site: SiteKey, why: str, now: datetime) -> str:
    """Why the Cluster refused the machine, and when it is tried there again."""
    again = now + timedelta(seconds=refusal_backoff(read_machine_refusals(note).get(site, 1)))
    message = " ".join(why.split()) or f"{site} refused it"
    bounded = message if len(message) <= MAX_REASON else f"{message[: MAX_REASON - 1]}…"
    return f"{bounded}; not tried there again before {times.format_seconds(again)}"


def add_refusal_reason(message: str, reasons: Container[str], refusal: str) -> str:
    """A scheduling failure with the message of the last refusal, if a refusal is among its reasons."""
    return f"{message} ({refusal[: 2 * MAX_REASON]})" if refusal and REFUSED in reasons else message


def remove_refusal_reason(message: str) -> str:
    """The part of the message that does not depend on the machine."""
    return message.partition(" (")[0] if REFUSED in message else message


# --- refusals of a machine ------------------------------------------------------------------------


class MachineRefusal(NamedTuple):
    """A bound machine has no copy, or its cluster does not run it."""

    site: SiteKey
    since: float
    by_cluster: bool  #: otherwise it gets no copy
    why: str = ""


class MachineRefusals:
    def __init__(self, failover: FailoverOptions) -> None:
        self._failover = failover
        self._refused: dict[str, MachineRefusal] = {}  #: by uid
        self._avoided: dict[str, dict[SiteKey, tuple[int, float]]] = {}  #: number of refusals and end of the backoff

    def __iter__(self) -> Iterator[tuple[str, SiteKey]]:
        """(uid, site) of refused machines."""
        return ((uid, one.site) for uid, one in self._refused.items())

    def refuse(self, uid: str, refusal: MachineRefusal) -> None:
        if (known := self._refused.get(uid)) is None or known.site != refusal.site:
            self._refused[uid] = refusal

    def accept(self, uid: str) -> None:
        """It is not refused any more."""
        self._refused.pop(uid, None)

    def of(self, uid: str, site: SiteKey) -> MachineRefusal | None:
        found = self._refused.get(uid)
        return found if found is not None and found.site == site else None

    def due(self, uid: str, site: SiteKey) -> float:
        """When it is evicted."""
        found = self.of(uid, site)
        return inf if found is None else found.since + self._failover.refused

    def set_recorded(self, uid: str, times: Mapping[SiteKey, int], now: float) -> bool:
        """Set the recorded refusals.  True if one was removed, so that the machine may be placed there again."""
        before = self._avoided.get(uid, {})
        if not before and not times:
            return False
        self._avoided[uid] = {
            site: before[site] if before.get(site, (0, 0.0))[0] == number else (number, now + refusal_backoff(number))
            for site, number in times.items()
        }
        if not times:
            del self._avoided[uid]
        return not before.keys() <= times.keys()

    def avoided(self, uid: str, now: float) -> list[SiteKey]:
        """Sites that the machine avoids now."""
        return [site for site, (_, until) in self._avoided.get(uid, {}).items() if now < until]

    def forget(self, uid: str) -> None:
        self._refused.pop(uid, None)
        self._avoided.pop(uid, None)


def refusal_backoff(times: int) -> float:
    return min(BACKOFF_MAX, BACKOFF_BASE * 2.0 ** (times - 1))


class MachineRef(NamedTuple):
    workspace: str  #: logical cluster
    uid: str


class RefusalRecord(NamedTuple):
    """The last machines that were bound to a Cluster, all refused."""

    machines: tuple[MachineRef, ...]  #: at most ENOUGH_REFUSALS
    times: int  #: how often enough machines were refused
    last: str  #: time of the last refusal

    @property
    def several(self) -> bool:
        return len(self.machines) >= ENOUGH_REFUSALS

    @property
    def workspaces(self) -> frozenset[str]:
        return frozenset(one.workspace for one in self.machines)

    @property
    def concern_all(self) -> bool:
        return len(self.workspaces) >= ENOUGH_REFUSALS

    def concern(self, workspace: str) -> bool:
        return self.several and (self.concern_all or workspace in self.workspaces)


# --- status of a Cluster --------------------------------------------------------------------------


def read_cluster_refusals(status: Obj, generation: int) -> RefusalRecord | None:
    """None: no refusals, or they are of an older generation."""
    recorded = status.get("refusals")
    if not isinstance(recorded, dict) or recorded.get("observedGeneration") != generation:
        return None
    machines = tuple(_machines(recorded.get("machines")))
    number, last = recorded.get("times"), recorded.get("lastTime")
    if not machines or not isinstance(number, int) or not isinstance(last, str):
        return None
    return RefusalRecord(machines[-ENOUGH_REFUSALS:], max(0, min(MAX_REFUSALS, number)), last)


def _machines(recorded: Any) -> Iterator[MachineRef]:
    for one in recorded if isinstance(recorded, list) else ():
        workspace, slash, uid = one.partition("/") if isinstance(one, str) else ("", "", "")
        if slash and uid:
            yield MachineRef(workspace, uid)


def write_cluster_refusals(refusals: RefusalRecord, generation: int) -> Obj:
    return {
        "machines": ["/".join(one) for one in refusals.machines],
        "times": refusals.times,
        "lastTime": refusals.last,
        "observedGeneration": generation,
    }


def add_cluster_refusal(
    known: RefusalRecord | None, machine: MachineRef, now: datetime, *, avoided: bool
) -> RefusalRecord:
    """`avoided`: the Cluster is already avoided, so that a machine bound before adds only its workspace."""
    if known is not None and (
        known.concern(machine.workspace) if avoided else machine in known.machines and not known.several
    ):
        return known
    others = () if known is None else tuple(one for one in known.machines if one != machine)
    machines = (*others, machine)[-ENOUGH_REFUSALS:]
    if known is not None and avoided:
        return known._replace(machines=machines)
    number = (0 if known is None else known.times) + (len(machines) >= ENOUGH_REFUSALS)
    return RefusalRecord(machines, min(MAX_REFUSALS, number), times.format_seconds(now))


def describe_cluster_refusals(refusals: RefusalRecord) -> str:
    """The message of the condition TakesMachines."""
    try:
        until = times.format_seconds(times.parse(refusals.last) + timedelta(seconds=refusal_backoff(refusals.times)))
    except (times.TimeError, OverflowError):
        until = refusals.last
    machines, workspaces = len(refusals.machines), len(refusals.workspaces)
    if refusals.concern_all:
        refused_of = waiting_of = ""
    elif workspaces == 1:
        refused_of, waiting_of = ", all of one workspace,", " of that workspace"
    else:
        refused_of, waiting_of = f", all of {workspaces} workspaces,", " of these workspaces"
    text = f"the Cluster refused the last {machines} machines{refused_of}"
    return (
        f"{text.removesuffix(',')}; no other machine{waiting_of} is bound to it before {until}, and then one at a time"
    )


# --- refusals of a Cluster ------------------------------------------------------------------------


class _Known(NamedTuple):
    refusals: RefusalRecord
    until: float  #: end of the backoff
    has_recovered: bool = False  #: the Cluster accepted a machine since


class ClusterRefusals:
    def __init__(self) -> None:
        self._known: dict[SiteKey, _Known] = {}
        self._trying: dict[SiteKey, float] = {}  #: end of the current trial

    def set_recorded(self, site: SiteKey, refusals: RefusalRecord | None, age: float, now: float) -> bool:
        """Set the recorded refusals.  `age`: seconds since the last one.  True if they were removed."""
        before = self._known.get(site)
        if refusals is None:
            self._trying.pop(site, None)
            return self._known.pop(site, None) is not None
        if before is None or before.refusals != refusals:
            self._known[site] = _Known(refusals, now + refusal_backoff(refusals.times) - max(0.0, age))
            self._trying.pop(site, None)
        return False

    def is_avoided(self, site: SiteKey, now: float) -> bool:
        known = self._known.get(site)
        return known is not None and known.refusals.several and not known.has_recovered and now < known.until

    def avoided(self, workspace: str, now: float) -> list[SiteKey]:
        """Sites that get no machines of this workspace now."""
        return [
            site
            for site, known in self._known.items()
            if known.refusals.concern(workspace)
            and not known.has_recovered
            and now < max(known.until, self._trying.get(site, known.until))
        ]

    def on_bound(self, site: SiteKey, now: float) -> None:
        """A machine is bound to the site."""
        if site in self._known:
            self._trying[site] = now + TRIAL

    def accept(self, site: SiteKey) -> bool:
        """The site accepted a machine.  True if it had refused the last ones."""
        known = self._known.get(site)
        if known is None or known.has_recovered:
            return False
        self._known[site] = known._replace(has_recovered=True)
        return True

    def has_recovered(self, site: SiteKey) -> bool:
        known = self._known.get(site)
        return known is not None and known.has_recovered
