"""The cost limit of an evaluation.

Costs are counted as cel-go and Kubernetes count them, so that a rule that is over its budget there is over it here.
They do not bound everything: a `replace` may make a long text of a short one, and two lists that share their elements
are compared as if they did not.  A Meter counts such work too, beside the costs, against limits of its own; its unit is
a byte of a value that is made, of which about sixty take a microsecond.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

PER_CALL: Final = 1_000_000  #: the most that one evaluation of one rule may cost
PER_OBJECT: Final = 10_000_000  #: the most that all rules of one object may cost
MOST_WORK: Final = 64 << 20  #: of one evaluation
MOST_WORK_PER_OBJECT: Final = 4 * MOST_WORK
STEP: Final = 64  #: one step of Python that no cost accounts for
SLOW: Final = 16  #: a character that Python code processes

OVER: Final = "operation cancelled: actual cost limit exceeded"


class OverBudget(Exception):
    """An evaluation has cost more than it may, or worked more than it should.  Nothing in an expression absorbs it."""

    def __init__(self) -> None:
        super().__init__(OVER)


class Meter:
    """Counts what one evaluation has cost and done."""

    __slots__ = ("limit", "spent", "worked")

    def __init__(self, limit: int = PER_CALL) -> None:
        self.limit = limit
        self.spent = 0
        self.worked = 0

    def pay(self, cost: int) -> None:
        self.spent += cost
        if self.spent > self.limit:
            raise OverBudget

    def work(self, amount: int) -> None:
        """Before a value of `amount` bytes is made, or as much is done otherwise."""
        self.worked += amount
        if self.worked > MOST_WORK:
            raise OverBudget


class Metered:
    """An implementation that takes the Meter before its arguments, because its costs alone do not bound it."""

    __slots__ = ("function",)

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __call__(self, *arguments: Any) -> Any:
        """Outside of an evaluation, with a meter of its own."""
        return self.function(Meter(), *arguments)
