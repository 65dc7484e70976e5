"""Who corrects each other at the edge, and how often.  Two that do so at once would do nothing else any more.  Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from farflung.syncer.values import Part

PATIENT: Final = 3  #: corrections that are done at once
QUIET: Final = 300.0  #: seconds after which a contest is over, and the longest pause in one


@dataclass(slots=True)
class Contest:
    rounds: int  #: of corrections
    until: float  #: when it is our turn


class Contests:
    def __init__(self) -> None:
        self._known: dict[Part, Contest] = {}

    def pause(self, part: Part, now: float) -> float:
        """Seconds until it is our turn to correct it once more."""
        contest = self._known.get(part)
        if contest is not None and now > contest.until + QUIET:
            del self._known[part]
            return 0.0
        return 0.0 if contest is None else max(0.0, contest.until - now)

    def corrected(self, part: Part, now: float) -> str:
        """It was.  What is to be told of that; empty if it has not happened often."""
        contest = self._known.setdefault(part, Contest(0, now))
        contest.rounds += 1
        contest.until = now
        if contest.rounds <= PATIENT:
            return ""
        pause = min(2.0 ** (contest.rounds - PATIENT), QUIET)
        contest.until += pause
        return f"somebody at the edge has changed it {contest.rounds} times: it is corrected in {pause:.0f} s again"
