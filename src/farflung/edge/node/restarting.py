"""Whether and when a container is started again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

FIRST: Final = 10.0  #: seconds of the first pause; the restart before it is at once
LONGEST: Final = 300.0
FORGIVEN: Final = 600.0  #: seconds that it has to run until what was before does not count


def restarts(policy: str, exit_code: int) -> bool:
    return policy == "Always" or (policy == "OnFailure" and exit_code != 0)


def pause(failures: int) -> float:
    """Seconds before the next try, after so many that failed, one at least: 10, 20, 40, … 300."""
    return min(LONGEST, FIRST * 2.0 ** min(failures - 1, 16))


@dataclass(frozen=True, slots=True)
class Crashes:
    """How often a container ended in a row without having run for long."""

    count: int = 0

    def ended(self, seconds: float) -> Crashes:
        """After it ran for so long."""
        return Crashes(1 if seconds >= FORGIVEN else self.count + 1)

    @property
    def delay(self) -> float:
        """Seconds until it may be started again: 0, 10, 20, 40, … 300."""
        return pause(self.count - 1) if self.count > 1 else 0.0
