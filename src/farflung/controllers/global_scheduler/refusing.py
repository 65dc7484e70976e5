"""Clusters that do not take a machine which is bound to them: when it has to leave, and for how long it is not brought
there again.  Pure: `now` is an argument, in monotonic seconds.

How often a Cluster refused a machine is noted at the machine, so that whoever schedules next knows it, too.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from datetime import datetime, timedelta
from math import inf
from typing import Final

from farflung.controllers.global_scheduler.failover import Patience
from farflung.machinery import times
from farflung.scheduling.values import SiteKey

FIRST_PAUSE: Final = 60.0  #: seconds after the first refusal of a Cluster; twice as many after each further one
LONGEST_PAUSE: Final = 3600.0
MOST_NOTED: Final = 16  #: Clusters in one note
MOST_TIMES: Final = 20
LONGEST_REASON: Final = 256  #: characters
REFUSED: Final = "refused it"

# --- the note -------------------------------------------------------------------------------------


def noted(text: str) -> dict[SiteKey, int]:
    """How often which Cluster refused, out of `<logical cluster>|<namespace>/<name>=<times>,…`; what makes no sense is
    left out."""
    found: dict[SiteKey, int] = {}
    for one in text.split(",", MOST_NOTED)[:MOST_NOTED]:
        written, _, number = one.strip().rpartition("=")
        cluster, bar, rest = written.partition("|")
        namespace, _, name = rest.rpartition("/")
        if bar and name and number.isascii() and number.isdigit() and len(number) <= len(str(MOST_TIMES)):
            found[SiteKey(cluster, namespace, name)] = max(1, min(MOST_TIMES, int(number)))
    return found


def with_refusal(text: str, site: SiteKey) -> str:
    """The note, with one more.  Of too many, those that refused least often are forgotten."""
    known = noted(text)
    number = min(MOST_TIMES, known.pop(site, 0) + 1)
    kept = sorted(known.items(), key=lambda one: (-one[1], one[0]))[: MOST_NOTED - 1]
    return ",".join("{}|{}/{}={}".format(*key, count) for key, count in sorted([*kept, (site, number)]))


def in_words(note: str, site: SiteKey, why: str, now: datetime) -> str:
    """Why the Cluster that is noted last did not take it, and when it may be tried again."""
    again = now + timedelta(seconds=pause(noted(note).get(site, 1)))
    said = " ".join(why.split()) or f"{site} does not take it"
    bounded = said if len(said) <= LONGEST_REASON else f"{said[: LONGEST_REASON - 1]}…"
    return f"{bounded}; not tried there again before {times.format_seconds(again)}"


def with_reason(message: str, reasons: Container[str], refusal: str) -> str:
    """Why something finds no place, with the words of the last Cluster that did not take it, if there is one."""
    return f"{message} ({refusal[: 2 * LONGEST_REASON]})" if refusal and REFUSED in reasons else message


def without_reason(message: str) -> str:
    """What is the same for all whom a Cluster did not take."""
    return message.partition(" (")[0] if REFUSED in message else message


# --- what is known --------------------------------------------------------------------------------


class Refusing:
    def __init__(self, patience: Patience) -> None:
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
            site: before[site] if before.get(site, (0, 0.0))[0] == number else (number, now + pause(number))
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


def pause(times: int) -> float:
    return min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** (times - 1))
