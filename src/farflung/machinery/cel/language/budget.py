"""The cost limit of an evaluation.

Costs are those of cel-go and Kubernetes, so a rule exceeds its budget here if it does there.  They do not bound all
work: `replace` may make a long text from a short one, and lists that share elements are compared element by element.
So a Meter also counts work against its own limit.  The unit is one byte of a new value; sixty of them take about a
microsecond.

Both together bound the time: a unit of cost takes at most a tenth of a microsecond, unless it is also work.  So the
allowance of a turn of the event loop (`machinery/turns.py`) limits cost and work.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

PER_CALL: Final = 1_000_000  #: maximum cost of one evaluation of one rule
PER_OBJECT: Final = 10_000_000  #: maximum cost of all rules of one object
MAX_WORK: Final = 64 << 20  #: of one evaluation
MAX_WORK_PER_OBJECT: Final = 4 * MAX_WORK
STEP: Final = 64  #: one step of Python without a cost
SLOW: Final = 16  #: a character that Python code processes
COMPILED: Final = 250  #: a character of an expression that is compiled, about four microseconds

OVER: Final = "operation cancelled: actual cost limit exceeded"


class OverBudget(Exception):
    """An evaluation exceeded its cost or its work.  No expression can handle this error."""

    def __init__(self) -> None:
        super().__init__(OVER)


class Meter:
    """Counts the cost and the work of one evaluation."""

    __slots__ = ("limit", "most_work", "spent", "worked")

    def __init__(self, limit: int = PER_CALL, worked: int = 0, most_work: int = MAX_WORK) -> None:
        self.limit = limit
        self.most_work = most_work
        self.spent = 0
        self.worked = worked

    def pay(self, cost: int) -> None:
        self.spent += cost
        if self.spent > self.limit:
            raise OverBudget

    def work(self, amount: int) -> None:
        """Count work before it is done: the bytes of a new value, or the equivalent."""
        self.worked += amount
        if self.worked > self.most_work:
            raise OverBudget

    def forgive(self, cost: int) -> None:
        """A call has this cost, but takes hardly any time."""


class Metered:
    """An implementation that gets the Meter before its arguments, because its cost does not bound its work."""

    __slots__ = ("function",)

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __call__(self, *arguments: Any) -> Any:
        """Outside of an evaluation, with its own meter."""
        return self.function(Meter(), *arguments)
