"""Clusters that took none of the last machines: nobody is sent there for a while, and then one at a time.  Pure: `now`
is an argument, in monotonic seconds.

Which machines they were is noted in the status of the Cluster, so that whoever schedules next knows it, too.  As long
as they are of fewer workspaces than machines, only these keep away: it may be their machines that nobody would take.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from datetime import datetime, timedelta
from math import inf
from typing import Any, Final, NamedTuple

from farflung.controllers.global_scheduler.cluster_health import FailoverOptions
from farflung.machinery import times
from farflung.machinery.errors import Obj
from farflung.scheduling.values import SiteKey

ENOUGH_REFUSALS: Final = 3  #: different machines in a row
CLUSTER_REFUSED: Final = "took none of the last machines"
BACKOFF_BASE: Final = 60.0  #: seconds after the first refusal of a Cluster; twice as many after each further one
TRIAL: Final = 2 * BACKOFF_BASE  #: seconds for which nobody else goes where one is tried, if nothing is heard of it
BACKOFF_MAX: Final = 3600.0
MAX_CLUSTERS: Final = 16  #: Clusters in one note
MAX_REFUSALS: Final = 20
MAX_REASON: Final = 256  #: characters
REFUSED: Final = "refused it"


# --- the note -------------------------------------------------------------------------------------


def read_machine_refusals(text: str) -> dict[SiteKey, int]:
    """How often which Cluster refused, out of `<logical cluster>|<namespace>/<name>=<times>,…`; what makes no sense is
    left out."""
    found: dict[SiteKey, int] = {}
    for one in text.split(",", MAX_CLUSTERS)[:MAX_CLUSTERS]:
        written, _, number = one.strip().rpartition("=")
        cluster, bar, rest = written.partition("|")
        namespace, _, name = rest.rpartition("/")
        if bar and name and number.isascii() and number.isdigit() and len(number) <= len(str(MAX_REFUSALS)):
            found[SiteKey(cluster, namespace, name)] = max(1, min(MAX_REFUSALS, int(number)))
    return found


def add_machine_refusal(text: str, site: SiteKey) -> str:
    """The note, with one more.  Of too many, those that refused least often are forgotten."""
    known = read_machine_refusals(text)
    number = min(MAX_REFUSALS, known.pop(site, 0) + 1)
    kept = sorted(known.items(), key=lambda one: (-one[1], one[0]))[: MAX_CLUSTERS - 1]
    return ",".join("{}|{}/{}={}".format(*key, count) for key, count in sorted([*kept, (site, number)]))


def describe_machine_refusal(note: str, site: SiteKey, why: str, now: datetime) -> str:
    """Why the Cluster that is noted last did not take it, and when it may be tried again."""
    again = now + timedelta(seconds=refusal_backoff(read_machine_refusals(note).get(site, 1)))
    said = " ".join(why.split()) or f"{site} does not take it"
    bounded = said if len(said) <= MAX_REASON else f"{said[: MAX_REASON - 1]}…"
    return f"{bounded}; not tried there again before {times.format_seconds(again)}"


def add_refusal_reason(message: str, reasons: Container[str], refusal: str) -> str:
    """Why something finds no place, with the words of the last Cluster that did not take it, if there is one."""
    return f"{message} ({refusal[: 2 * MAX_REASON]})" if refusal and REFUSED in reasons else message


def remove_refusal_reason(message: str) -> str:
    """What is the same for all whom a Cluster did not take."""
    return message.partition(" (")[0] if REFUSED in message else message


# --- what is known --------------------------------------------------------------------------------


class MachineRefusals:
    def __init__(self, patience: FailoverOptions) -> None:
        self._patience = patience
        self._since: dict[str, tuple[SiteKey, float]] = {}  #: who is bound where, and is not taken
        self._avoided: dict[str, dict[SiteKey, tuple[int, float]]] = {}  #: how often it was refused, until when

    def __iter__(self) -> Iterator[tuple[str, SiteKey]]:
        """Who is not taken, by uid, and where."""
        return ((uid, site) for uid, (site, _) in self._since.items())

    def __bool__(self) -> bool:
        return bool(self._since)

    def refuse(self, uid: str, site: SiteKey, now: float) -> None:
        """It is bound there, and cannot be brought there."""
        if self._since.get(uid, ("", 0.0))[0] != site:
            self._since[uid] = site, now

    def accept(self, uid: str, site: SiteKey) -> None:
        """Nobody says so any more."""
        if self._since.get(uid, ("", 0.0))[0] == site:
            del self._since[uid]

    def due(self, uid: str, site: SiteKey) -> float:
        """When it has to leave."""
        where, since = self._since.get(uid, (None, 0.0))
        return since + self._patience.refused if where == site else inf

    def remember(self, uid: str, times: Mapping[SiteKey, int], now: float) -> bool:
        """What is noted.  Whether something is forgiven: it may go where it could not go before."""
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
        """Where it is not brought to now."""
        return [site for site, (_, until) in self._avoided.get(uid, {}).items() if now < until]

    def forget(self, uid: str) -> None:
        self._since.pop(uid, None)
        self._avoided.pop(uid, None)


def refusal_backoff(times: int) -> float:
    return min(BACKOFF_MAX, BACKOFF_BASE * 2.0 ** (times - 1))


class MachineRef(NamedTuple):
    workspace: str  #: its logical cluster
    uid: str


class RefusalRecord(NamedTuple):
    """Of the last machines that were bound to a Cluster, all of which it did not take."""

    machines: tuple[MachineRef, ...]  #: at most SEVERAL
    times: int  #: how often it was seen that it takes none
    last: str  #: when that was seen last, or the last of too few machines was refused

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


# --- the note -------------------------------------------------------------------------------------


def read_cluster_refusals(status: Obj, generation: int) -> RefusalRecord | None:
    """What the status of a Cluster says; None: nothing, or something about what it was before somebody changed it."""
    said = status.get("refusals")
    if not isinstance(said, dict) or said.get("observedGeneration") != generation:
        return None
    machines = tuple(_machines(said.get("machines")))
    number, last = said.get("times"), said.get("lastTime")
    if not machines or not isinstance(number, int) or not isinstance(last, str):
        return None
    return RefusalRecord(machines[-ENOUGH_REFUSALS:], max(0, min(MAX_REFUSALS, number)), last)


def _machines(said: Any) -> Iterator[MachineRef]:
    for one in said if isinstance(said, list) else ():
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
    known: RefusalRecord | None, machine: MachineRef, now: datetime, *, pausing: bool
) -> RefusalRecord:
    """`pausing`: it is avoided already, so this machine was bound before that, and says nothing new but whose it is."""
    if known is not None and (
        known.concern(machine.workspace) if pausing else machine in known.machines and not known.several
    ):
        return known
    others = () if known is None else tuple(one for one in known.machines if one != machine)
    machines = (*others, machine)[-ENOUGH_REFUSALS:]
    if known is not None and pausing:
        return known._replace(machines=machines)
    number = (0 if known is None else known.times) + (len(machines) >= ENOUGH_REFUSALS)
    return RefusalRecord(machines, min(MAX_REFUSALS, number), times.format_seconds(now))


def describe_cluster_refusals(refusals: RefusalRecord) -> str:
    """What there is to say of a Cluster that several machines were not taken by."""
    try:
        until = times.format_seconds(times.parse(refusals.last) + timedelta(seconds=refusal_backoff(refusals.times)))
    except (times.TimeError, OverflowError):
        until = refusals.last
    machines, workspaces = len(refusals.machines), len(refusals.workspaces)
    if refusals.concern_all:
        whose = who = ""
    elif workspaces == 1:
        whose, who = ", all of one workspace,", " of that workspace"
    else:
        whose, who = f", all of {workspaces} workspaces,", " of these workspaces"
    told = f"the last {machines} machines{whose} were not taken"
    return f"{told}, so no other{who} goes there before {until}, and then one at a time"


# --- what is known --------------------------------------------------------------------------------


class _Known(NamedTuple):
    refusals: RefusalRecord
    until: float  #: when one may be tried
    is_over: bool = False  #: it has taken one since


class ClusterRefusals:
    def __init__(self) -> None:
        self._known: dict[SiteKey, _Known] = {}
        self._trying: dict[SiteKey, float] = {}  #: until when nobody else goes there

    def remember(self, site: SiteKey, refusals: RefusalRecord | None, age: float, now: float) -> bool:
        """What is noted.  `age`: seconds since it was.  Whether something is forgiven."""
        before = self._known.get(site)
        if refusals is None:
            self._trying.pop(site, None)
            return self._known.pop(site, None) is not None
        if before is None or before.refusals != refusals:
            self._known[site] = _Known(refusals, now + refusal_backoff(refusals.times) - max(0.0, age))
            self._trying.pop(site, None)
        return False

    def is_pausing(self, site: SiteKey, now: float) -> bool:
        known = self._known.get(site)
        return known is not None and known.refusals.several and not known.is_over and now < known.until

    def avoided(self, workspace: str, now: float) -> list[SiteKey]:
        """Where no machine of this workspace is sent now."""
        return [
            site
            for site, known in self._known.items()
            if known.refusals.concern(workspace)
            and not known.is_over
            and now < max(known.until, self._trying.get(site, known.until))
        ]

    def send(self, site: SiteKey, now: float) -> None:
        """A machine goes there."""
        if site in self._known:
            self._trying[site] = now + TRIAL

    def take(self, site: SiteKey) -> bool:
        """It has got a machine.  Whether that is something new."""
        known = self._known.get(site)
        if known is None or known.is_over:
            return False
        self._known[site] = known._replace(is_over=True)
        return True

    def is_over(self, site: SiteKey) -> bool:
        known = self._known.get(site)
        return known is not None and known.is_over
