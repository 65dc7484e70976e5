"""The work that may be done in one turn of an event loop.

A task may have an allowance, in the units of cost and work of `cel/language/budget.py`.  Work beyond it raises
TurnOver, and is done elsewhere: in a worker process, or in steps by later turns.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextvars import ContextVar
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")
Steps = Generator[int, None, T]  #: yields the work of each step before it, and returns the result


class TurnOver(Exception):
    """The allowance of the turn is used up."""


class LongWork(Exception):
    """A value that no turn can make.  Another process may call `make`; the result is for `keep`.  Whoever then asks
    again must hold the kept value until then."""

    def __init__(self, make: Callable[[], Any], keep: Callable[[Any], object]) -> None:
        super().__init__()
        self.make = make
        self.keep = keep


TURN_COST: Final = 100_000  #: at most ten milliseconds
TURN_WORK: Final = 1 << 19  #: about ten milliseconds


INDIVISIBLE: Final = 3 * TURN_WORK  #: work that a turn may do if it does nothing else


class TurnAllowance:
    """The cost and work that are left in one turn."""

    __slots__ = ("_whole", "cost", "work")

    def __init__(self, cost: int = TURN_COST, work: int = TURN_WORK) -> None:
        self._whole = (cost, work)
        self.cost = cost
        self.work = work

    def take(self, work: int) -> None:
        """Raises TurnOver if it is exceeded.  A turn that did nothing yet may do three times as much."""
        if self.cost < 0 or work > self.work:
            is_untouched = (self.cost, self.work) == self._whole
            if not is_untouched or work * TURN_WORK > self.work * INDIVISIBLE:
                raise TurnOver
        self.work -= work


#: of the current task; None: it takes as long as it needs
ALLOWANCE: Final[ContextVar[TurnAllowance | None]] = ContextVar("allowance", default=None)


def spend(work: int) -> None:
    """Take work from the allowance of the current task, if it has one, before it is done.  Raises TurnOver."""
    allowance = ALLOWANCE.get()
    if allowance is not None:
        allowance.take(work)


def at_once(steps: Steps[T]) -> T:
    """The result, without regard to the turn."""
    try:
        while True:
            next(steps)
    except StopIteration as end:
        result: T = end.value
        return result


class Paced(Generic[T]):
    """A value that is made once, in steps: by several turns, if the allowance of one is too small."""

    __slots__ = ("_make", "_next", "_steps", "_values")

    def __init__(self, make: Callable[[], Steps[T]]) -> None:
        self._make = make
        self._steps: Steps[T] | None = None
        self._next = 0  #: work of the next step
        self._values: list[T] = []

    @property
    def value(self) -> T:
        """Raises TurnOver if the current task has an allowance, and it is used up before.  The next call continues."""
        if not self._values:
            self._values.append(self._made(ALLOWANCE.get()))
        return self._values[0]

    def _made(self, allowance: TurnAllowance | None) -> T:
        steps = self._steps or self._make()
        self._steps = None  # an exception starts anew
        try:
            while True:
                if allowance is not None:
                    allowance.take(self._next)
                self._next = 0
                self._next = next(steps)
        except StopIteration as end:
            value: T = end.value
            return value
        except TurnOver:
            self._steps = steps
            raise
