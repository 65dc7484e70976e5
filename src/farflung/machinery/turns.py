"""The work that may be done in one turn of an event loop.

A task may have an allowance, in the units of cost and work of `cel/language/budget.py`.  Work beyond it raises
TurnOver, and is done elsewhere: in a worker process, or in steps by later turns.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final


class TurnOver(Exception):
    """The allowance of the turn is used up."""


TURN_COST: Final = 100_000  #: at most ten milliseconds
TURN_WORK: Final = 1 << 19  #: about ten milliseconds


class TurnAllowance:
    """The cost and work that are left in one turn."""

    __slots__ = ("cost", "work")

    def __init__(self, cost: int = TURN_COST, work: int = TURN_WORK) -> None:
        self.cost = cost
        self.work = work

    def take(self, cost: int, work: int) -> None:
        """Raises TurnOver if it is exceeded."""
        self.cost -= cost
        self.work -= work
        if self.cost < 0 or self.work < 0:
            raise TurnOver


#: of the current task; None: it takes as long as it needs
ALLOWANCE: Final[ContextVar[TurnAllowance | None]] = ContextVar("allowance", default=None)
