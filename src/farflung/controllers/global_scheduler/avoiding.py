"""Clusters that took none of the last machines: nobody is sent there for a while, and then one at a time.  Pure: `now`
is an argument, in monotonic seconds.

Which machines they were is noted in the status of the Cluster, so that whoever schedules next knows it, too.  As long
as they are of fewer workspaces than machines, only these keep away: it may be their machines that nobody would take.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from farflung.controllers.global_scheduler.refusing import FIRST_PAUSE, MOST_TIMES, pause
from farflung.machinery import times
from farflung.machinery.errors import Obj
from farflung.scheduling.values import SiteKey

SEVERAL: Final = 3  #: different machines in a row
TRYING: Final = 2 * FIRST_PAUSE  #: seconds for which nobody else goes where one is tried, if nothing is heard of it
AVOIDED: Final = "took none of the last machines"


class Machine(NamedTuple):
    workspace: str  #: its logical cluster
    uid: str


class Refusals(NamedTuple):
    """Of the last machines that were bound to a Cluster, all of which it did not take."""

    machines: tuple[Machine, ...]  #: at most SEVERAL
    times: int  #: how often it was seen that it takes none
    last: str  #: when that was seen last, or the last of too few machines was refused

    @property
    def several(self) -> bool:
        return len(self.machines) >= SEVERAL

    @property
    def workspaces(self) -> frozenset[str]:
        return frozenset(one.workspace for one in self.machines)

    @property
    def concern_all(self) -> bool:
        return len(self.workspaces) >= SEVERAL

    def concern(self, workspace: str) -> bool:
        return self.several and (self.concern_all or workspace in self.workspaces)


# --- the note -------------------------------------------------------------------------------------


def noted(status: Obj, generation: int) -> Refusals | None:
    """What the status of a Cluster says; None: nothing, or something about what it was before somebody changed it."""
    said = status.get("refusals")
    if not isinstance(said, dict) or said.get("observedGeneration") != generation:
        return None
    machines = tuple(_machines(said.get("machines")))
    number, last = said.get("times"), said.get("lastTime")
    if not machines or not isinstance(number, int) or not isinstance(last, str):
        return None
    return Refusals(machines[-SEVERAL:], max(0, min(MOST_TIMES, number)), last)


def _machines(said: Any) -> Iterator[Machine]:
    for one in said if isinstance(said, list) else ():
        workspace, slash, uid = one.partition("/") if isinstance(one, str) else ("", "", "")
        if slash and uid:
            yield Machine(workspace, uid)


def note(refusals: Refusals, generation: int) -> Obj:
    return {
        "machines": ["/".join(one) for one in refusals.machines],
        "times": refusals.times,
        "lastTime": refusals.last,
        "observedGeneration": generation,
    }


def with_refusal(known: Refusals | None, machine: Machine, now: datetime, *, pausing: bool) -> Refusals:
    """`pausing`: it is avoided already, so this machine was bound before that, and says nothing new but whose it is."""
    if known is not None and (
        known.concern(machine.workspace) if pausing else machine in known.machines and not known.several
    ):
        return known
    others = () if known is None else tuple(one for one in known.machines if one != machine)
    machines = (*others, machine)[-SEVERAL:]
    if known is not None and pausing:
        return known._replace(machines=machines)
    number = (0 if known is None else known.times) + (len(machines) >= SEVERAL)
    return Refusals(machines, min(MOST_TIMES, number), times.format_seconds(now))


def in_words(refusals: Refusals) -> str:
    """What there is to say of a Cluster that several machines were not taken by."""
    try:
        until = times.format_seconds(times.parse(refusals.last) + timedelta(seconds=pause(refusals.times)))
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
    refusals: Refusals
    until: float  #: when one may be tried
    is_over: bool = False  #: it has taken one since


class Avoiding:
    def __init__(self) -> None:
        self._known: dict[SiteKey, _Known] = {}
        self._trying: dict[SiteKey, float] = {}  #: until when nobody else goes there

    def remember(self, site: SiteKey, refusals: Refusals | None, age: float, now: float) -> bool:
        """What is noted.  `age`: seconds since it was.  Whether something is forgiven."""
        before = self._known.get(site)
        if refusals is None:
            self._trying.pop(site, None)
            return self._known.pop(site, None) is not None
        if before is None or before.refusals != refusals:
            self._known[site] = _Known(refusals, now + pause(refusals.times) - max(0.0, age))
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
            self._trying[site] = now + TRYING

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
