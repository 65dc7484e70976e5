"""Checked expressions as programs: trees become closures once, and are then evaluated often.

    program = Program(checked.tree, {"self": type}, adapters)
    run = program.start({"self": value}, limit=1_000_000)
    program.evaluate(run)       the value; EvaluationError or OverBudget, and nothing else
    run.spent                   what it has cost, in any case

Variables are JSON values of their declared types.  They stay as they are while a path of fields leads through them,
and are adapted where the path ends.  A computed variable is code of its own that gives a value of CEL.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from farflung.machinery.cel import calls
from farflung.machinery.cel.adapt import Adapters
from farflung.machinery.cel.compiler import Compiler
from farflung.machinery.cel.language.ast import Expression
from farflung.machinery.cel.language.budget import PER_CALL, OverBudget
from farflung.machinery.cel.language.types import Type
from farflung.machinery.cel.language.values import EvaluationError, no_such_overload
from farflung.machinery.cel.selection import Code, Run

NOTHING_COMPUTED: Final[Mapping[str, Code]] = MappingProxyType({})


class Program:
    """Never changes; evaluations may be under way side by side."""

    __slots__ = ("_code", "_names", "_spare")

    def __init__(
        self,
        tree: Expression,
        variables: Mapping[str, Type],
        adapters: Adapters,
        computed: Mapping[str, Code] = NOTHING_COMPUTED,
    ) -> None:
        """`computed`: names that are no variables; they may have dots."""
        compiler = Compiler(variables, adapters, computed)
        self._names = tuple(variables)
        self._code = compiler.compile(tree)
        self._spare = [None] * (compiler.slots - len(self._names))

    def start(self, variables: Mapping[str, Any], limit: int = PER_CALL) -> Run:
        return Run([*map(variables.get, self._names), *self._spare], limit)

    def evaluate(self, run: Run) -> Any:
        try:
            value = self._code(run)
        except EvaluationError:
            if run.spent > run.limit:
                raise OverBudget from None
            raise
        except RecursionError:
            raise EvaluationError("evaluation exceeds the depth of nested values") from None
        except calls.UNFIT:
            raise no_such_overload() from None
        if run.spent > run.limit:
            raise OverBudget
        return value
