"""Code that calls functions, and the logic that does not need all its arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil
from typing import Any, Final

from farflung.machinery.cel.budget import Metered, OverBudget
from farflung.machinery.cel.declarations import Overload
from farflung.machinery.cel.equality import equal, is_member
from farflung.machinery.cel.library import costs
from farflung.machinery.cel.library.costs import TRAVERSAL
from farflung.machinery.cel.selection import Code, Run
from farflung.machinery.cel.values import (
    NONE,
    NUMBERS,
    EvaluationError,
    OptionalValue,
    has_type,
    no_such_overload,
    type_name,
)

#: what an implementation may raise if a value is not of the type that was declared: data may break its schema
UNFIT: Final = (TypeError, AttributeError, ValueError, LookupError, ArithmeticError)

Implementation = Callable[..., Any]
Cost = Callable[[tuple[Any, ...], Any], int]


# --- functions ------------------------------------------------------------------------------------


def call(overload: Overload, arguments: Sequence[Code]) -> Code:
    """Of one overload that the types are known to fit."""
    implementation = overload.implementation
    assert implementation is not None
    if isinstance(implementation, Metered):
        return _metered(implementation.function, overload.cost, arguments)
    if overload.cost is not None:
        return _costly(implementation, overload.cost, arguments)
    if len(arguments) == 1:
        return _unary(implementation, arguments[0])
    if len(arguments) == 2:
        return _binary(implementation, *arguments)
    return _costly(implementation, _one, arguments)


def _one(_: tuple[Any, ...], __: Any) -> int:
    return 1


def _unary(implementation: Implementation, argument: Code) -> Code:
    def unary(run: Run) -> Any:
        value = argument(run)
        run.spent += 1
        try:
            return implementation(value)
        except UNFIT:
            raise no_such_overload() from None

    return unary


def _binary(implementation: Implementation, left: Code, right: Code) -> Code:
    def binary(run: Run) -> Any:
        one, other = left(run), right(run)
        run.spent += 1
        try:
            return implementation(one, other)
        except UNFIT:
            raise no_such_overload() from None

    return binary


def _costly(implementation: Implementation, cost: Cost, arguments: Sequence[Code]) -> Code:
    def costly(run: Run) -> Any:
        values = tuple([argument(run) for argument in arguments])
        try:
            result = implementation(*values)
            run.spent += cost(values, result)
        except UNFIT:
            raise no_such_overload() from None
        if run.spent > run.limit:
            raise OverBudget
        return result

    return costly


def _metered(implementation: Implementation, cost: Cost | None, arguments: Sequence[Code]) -> Code:
    cost = cost or _one

    def metered(run: Run) -> Any:
        values = tuple([argument(run) for argument in arguments])
        try:
            result = implementation(run, *values)
            run.spent += cost(values, result)
        except UNFIT:
            raise no_such_overload() from None
        if run.spent > run.limit:
            raise OverBudget
        return result

    return metered


def dispatch(function: str, overloads: Sequence[Overload], arguments: Sequence[Code]) -> Code:
    """Of the first overload that the values fit.  Their classes decide, so it is looked for once for each of those."""
    chosen: dict[tuple[type, ...], Overload | None] = {}
    operator = not function[0].isalpha()

    def choose(values: tuple[Any, ...]) -> Overload | None:
        for overload in overloads:
            if all(map(has_type, values, overload.arguments)):
                return overload
        return None

    def dispatched(run: Run) -> Any:
        values = tuple([argument(run) for argument in arguments])
        classes = tuple(map(type, values))
        if classes not in chosen:
            chosen[classes] = choose(values)
        overload = chosen[classes]
        if overload is None or overload.implementation is None:
            signature = "" if operator else f": {function}({', '.join(map(type_name, values))})"
            raise EvaluationError(f"no such overload{signature}")
        implementation = overload.implementation
        try:
            if isinstance(implementation, Metered):
                result = implementation.function(run, *values)
            else:
                result = implementation(*values)
            run.spent += 1 if overload.cost is None else overload.cost(values, result)
        except UNFIT:
            raise no_such_overload() from None
        if run.spent > run.limit:
            raise OverBudget
        return result

    return dispatched


def with_pattern(implementation: Implementation, pattern: Any, arguments: Sequence[Code]) -> Code:
    """A match against a pattern that is compiled already; the second argument is its text."""

    def match(run: Run) -> Any:
        values = [argument(run) for argument in arguments]
        run.pay(costs.of_match((values[0], values[1]), None))
        try:
            return implementation(run, values[0], pattern, *values[2:])
        except UNFIT:
            raise no_such_overload() from None

    return match


# --- equality -------------------------------------------------------------------------------------


def equality(left: Code, right: Code, *, negated: bool) -> Code:
    def compare(run: Run) -> bool:
        one, other = left(run), right(run)
        if type(one) is str and type(other) is str:
            run.spent += ceil(min(len(one), len(other)) * TRAVERSAL)
            return (one == other) is not negated
        run.spent += costs.of_equality((one, other), None)
        return equal(run, one, other) is not negated

    return compare


def plain_equality(left: Code, right: Code, *, negated: bool) -> Code:
    """Of JSON values that Python compares as CEL does."""

    def compare(run: Run) -> bool:
        one, other = left(run), right(run)
        run.spent += costs.of_equality((one, other), None)
        return bool(one == other) is not negated

    return compare


def membership(value: Code, elements: list[Any]) -> Code:
    """In a list that is written in the expression, which costs nothing."""
    texts = frozenset(elements) if all(type(element) is str for element in elements) else None

    def is_in(run: Run) -> bool:
        wanted = value(run)
        if texts is not None:
            return type(wanted) is str and wanted in texts
        return is_member(run, wanted, elements)

    return is_in


def is_simple(elements: list[Any]) -> bool:
    """Whether cel-go looks a value up among these, instead of comparing it with each."""
    return all(type(element) in (bool, str) or type(element) in NUMBERS for element in elements)


# --- logic ----------------------------------------------------------------------------------------


def logical_and(left: Code, right: Code) -> Code:
    return _logical(left, right, decisive=False)


def logical_or(left: Code, right: Code) -> Code:
    return _logical(left, right, decisive=True)


def _logical(left: Code, right: Code, *, decisive: bool) -> Code:
    """The decisive value on either side decides, whatever the other one is: an error, even."""

    def decide(run: Run) -> bool:
        try:
            first: object = left(run)
        except EvaluationError as error:
            if _or_error(right, run, error) is decisive:
                return decisive
            raise
        if first is decisive:
            return decisive
        second: object = right(run)
        if second is decisive:
            return decisive
        if type(first) is bool and type(second) is bool:
            return second
        raise no_such_overload()

    return decide


def _or_error(code: Code, run: Run, error: EvaluationError) -> object:
    try:
        return code(run)
    except EvaluationError:
        raise error from None


def conditional(condition: Code, then: Code, otherwise: Code) -> Code:
    def choose(run: Run) -> Any:
        holds = condition(run)
        if holds is True:
            return then(run)
        if holds is False:
            return otherwise(run)
        raise no_such_overload()

    return choose


def negation(operand: Code) -> Code:
    def negate(run: Run) -> bool:
        value = operand(run)
        run.spent += 1
        if type(value) is not bool:
            raise no_such_overload()
        return not value

    return negate


def not_strictly_false(operand: Code) -> Code:
    def holds(run: Run) -> bool:
        run.spent += 1
        try:
            return operand(run) is not False
        except EvaluationError:
            return True

    return holds


def optional_or(optional: Code, otherwise: Code) -> Code:
    def choose(run: Run) -> Any:
        value = optional(run)
        if type(value) is not OptionalValue:
            raise no_such_overload()
        return otherwise(run) if value is NONE else value

    return choose


def optional_or_value(optional: Code, otherwise: Code) -> Code:
    def choose(run: Run) -> Any:
        value = optional(run)
        if type(value) is not OptionalValue:
            raise no_such_overload()
        return otherwise(run) if value is NONE else value.value

    return choose
