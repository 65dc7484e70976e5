"""Runs a checked tree as a Program.

    program = Program(checked.tree, {"self": type}, adapters)
    run = program.start({"self": value}, limit=1_000_000)
    program.evaluate(run)       the value; raises only EvaluationError or OverBudget
    run.spent                   its cost, also after an error

Variables are JSON values of their declared types.  A chain of field selections walks the JSON value and adapts only
its result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from farflung.machinery.cel.adapt import Adapters
from farflung.machinery.cel.calls import UNFIT
from farflung.machinery.cel.generator import NOTHING_COMPUTED, Computed, generated
from farflung.machinery.cel.language.ast import Expression
from farflung.machinery.cel.language.budget import MAX_WORK, PER_CALL, OverBudget
from farflung.machinery.cel.language.types import Type
from farflung.machinery.cel.language.values import EvaluationError, no_such_overload
from farflung.machinery.cel.selection import Run
from farflung.machinery.turns import ALLOWANCE, TurnOver

#: work of writing and compiling a function, and more for each node of the tree
GENERATION: Final = 10_000
GENERATION_OF_NODE: Final = 2_000


class Program:
    """A compiled expression.  Its function is generated for the first evaluation.  Evaluations may run concurrently."""

    __slots__ = ("_function", "_generate", "_names", "_work")

    def __init__(
        self,
        tree: Expression,
        variables: Mapping[str, Type],
        adapters: Adapters,
        computed: Mapping[str, Computed] = NOTHING_COMPUTED,
    ) -> None:
        """`computed`: names that are computed instead of given as variables; they may have dots."""
        self._names = tuple(variables)
        self._function: Callable[[Run], Any] | None = None
        self._work = GENERATION + GENERATION_OF_NODE * tree.id  # the root has the highest id
        self._generate = partial(generated, tree, variables, adapters, computed)

    def start(
        self, variables: Mapping[str, Any], limit: int = PER_CALL, worked: int = 0, most_work: int = MAX_WORK
    ) -> Run:
        return Run([*map(variables.get, self._names)], limit, worked, most_work)

    def evaluate(self, run: Run) -> Any:
        """The value.  Raises EvaluationError, OverBudget, or TurnOver if the current task has an allowance."""
        allowance = ALLOWANCE.get()
        function = self._function
        if function is None:
            if allowance is not None:
                allowance.take(self._work)
            function = self._function = self._generate()
        if allowance is None:
            return _evaluated(function, run)
        narrowed = run.narrow(allowance)
        try:
            return _evaluated(function, run)
        except OverBudget:
            if narrowed:
                raise TurnOver from None
            raise
        finally:
            run.charge(allowance)


def _evaluated(function: Callable[[Run], Any], run: Run) -> Any:
    try:
        value = function(run)
    except EvaluationError:
        if run.spent > run.limit:
            raise OverBudget from None
        raise
    except RecursionError:
        raise EvaluationError("evaluation exceeds the depth of nested values") from None
    except UNFIT:
        raise no_such_overload() from None
    if run.spent > run.limit:
        raise OverBudget
    return value
