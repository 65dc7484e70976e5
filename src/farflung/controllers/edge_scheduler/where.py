"""`spec.where`: an expression about a Location and a SyncTarget.

where = compiled("target.metadata.labels['gpu'] == 'yes'")      InvalidWhereError says what is wrong with it
where.ask(location, target)                                     whether it holds, or why nobody knows, and the cost
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from farflung.machinery.cel.budget import MOST_WORK, STEP, OverBudget
from farflung.machinery.cel.types import BOOL, DYN
from farflung.machinery.cel.values import EvaluationError

if TYPE_CHECKING:  # the compiler is loaded with the first expression
    from farflung.machinery.cel.environment import Environment
    from farflung.machinery.cel.evaluate import Program

LONGEST: Final = 10_240  #: characters of an expression
MOST_COST: Final = 100_000  #: of asking about one pair
COST_OF_ALL: Final = (1_000_000, 10_000_000)  #: of asking about all pairs of a placement: of few, and at most
COST_OF_EACH: Final = 100  #: that is allowed for each of very many pairs
PAIR_WORK: Final = 1 << 20  #: bytes that one answer may make on its way

_GIVEN: Final = {"location": DYN, "target": DYN}


class InvalidWhereError(ValueError):
    pass


def most_cost(pairs: int) -> int:
    """Of asking about so many.  Who asks does nothing else meanwhile, so few pairs may not cost as much as many."""
    least, most = COST_OF_ALL
    return min(most, max(least, COST_OF_EACH * pairs))


class Answer(NamedTuple):
    refusal: str  #: empty: it holds
    cost: int


class Where:
    """Two are equal if their texts are."""

    __slots__ = ("_program", "text")

    def __init__(self, text: str, program: Program) -> None:
        self.text = text
        self._program = program

    def __eq__(self, other: object) -> bool:
        return type(other) is Where and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"Where({self.text!r})"

    def ask(self, location: Any, target: Any) -> Answer:
        """The same answer for the same documents.  It ends soon, whatever the expression does."""
        run = self._program.start({"location": location, "target": target}, MOST_COST)
        run.worked = MOST_WORK - PAIR_WORK
        try:
            holds = self._program.evaluate(run)
            refusal = "" if holds is True else f"spec.where is false: {self.text}"
        except (EvaluationError, OverBudget) as error:
            refusal = f"spec.where fails: {error}"
        return Answer(refusal, run.spent + (run.worked - (MOST_WORK - PAIR_WORK)) // STEP)


@cache
def _environment() -> Environment:
    from farflung.machinery.cel.environment import Environment
    from farflung.machinery.cel.library import KUBERNETES

    return Environment(_GIVEN, KUBERNETES)


def compiled(text: str) -> Where:
    from farflung.machinery.cel.adapt import Adapters
    from farflung.machinery.cel.environment import CompileError
    from farflung.machinery.cel.evaluate import Program

    if len(text) > LONGEST:
        raise InvalidWhereError(f"may not be more than {LONGEST} characters long")
    try:
        checked = _environment().compile(text, BOOL)
    except CompileError as error:
        raise InvalidWhereError(f"compilation failed: {error}") from None
    return Where(text, Program(checked.tree, _GIVEN, Adapters()))
