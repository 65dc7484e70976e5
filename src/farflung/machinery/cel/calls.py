"""Closures that call functions, and logical operators that evaluate only the operands they need."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil
from typing import Any, Final

from farflung.machinery.cel.language.budget import Metered
from farflung.machinery.cel.language.declarations import Overload
from farflung.machinery.cel.language.equality import equal, is_member
from farflung.machinery.cel.language.values import (
    NONE,
    NUMBERS,
    EvaluationError,
    OptionalValue,
    has_type,
    no_such_overload,
    type_name,
)
from farflung.machinery.cel.library import costs
from farflung.machinery.cel.library.costs import TRAVERSAL
from farflung.machinery.cel.selection import Code, Run

#: raised by implementations for values of another type than declared: objects may violate their schemas
UNFIT: Final = (TypeError, AttributeError, ValueError, LookupError, ArithmeticError)

Implementation = Callable[..., Any]
Values = tuple[Any, ...]
Application = Callable[[Run, Values], Any]


# --- functions ------------------------------------------------------------------------------------


def call(overload: Overload, arguments: Sequence[Code]) -> Code:
    """Calls the one overload that matches the static types."""
    implementation = overload.implementation
    assert implementation is not None
    if overload.cost is None and not isinstance(implementation, Metered):
        if len(arguments) == 1:
            return _unary(implementation, *arguments)
        if len(arguments) == 2:
            return _binary(implementation, *arguments)
    application = _application(overload)

    def applied(run: Run) -> Any:
        return application(run, tuple([argument(run) for argument in arguments]))

    return applied


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


def _application(overload: Overload) -> Application:
    """The application of an overload to values.  It pays its cost in advance, unless the cost depends on the result."""
    assert overload.implementation is not None
    implementation = _with_meter(overload.implementation)
    cost = overload.cost or _one

    def paid_before(run: Run, values: Values) -> Any:
        try:
            run.pay(cost(values, None))
            return implementation(run, *values)
        except UNFIT:
            raise no_such_overload() from None

    def paid_afterwards(run: Run, values: Values) -> Any:
        try:
            result = implementation(run, *values)
        except UNFIT:
            raise no_such_overload() from None
        run.pay(cost(values, result))
        return result

    return paid_afterwards if cost in costs.AFTERWARDS else paid_before


def _one(_: Values, __: Any) -> int:
    return 1


def _with_meter(implementation: Implementation) -> Implementation:
    if isinstance(implementation, Metered):
        return implementation.function
    return lambda _, *values: implementation(*values)


def dispatch(function: str, overloads: Sequence[Overload], arguments: Sequence[Code]) -> Code:
    """Calls the first overload that matches the values.  It is cached by the values' classes."""
    chosen: dict[tuple[type, ...], Application | None] = {}
    operator = not function[0].isalpha()

    def choose(values: Values) -> Application | None:
        for overload in overloads:
            if overload.implementation is not None and all(map(has_type, values, overload.arguments)):
                return _application(overload)
        return None

    def dispatched(run: Run) -> Any:
        values = tuple([argument(run) for argument in arguments])
        classes = tuple(map(type, values))
        if classes not in chosen:
            chosen[classes] = choose(values)
        application = chosen[classes]
        if application is None:
            signature = "" if operator else f": {function}({', '.join(map(type_name, values))})"
            raise EvaluationError(f"no such overload{signature}")
        return application(run, values)

    return dispatched


def with_pattern(implementation: Implementation, pattern: Any, arguments: Sequence[Code]) -> Code:
    """A match against a compiled pattern; the second argument is its text."""

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
    """Compares JSON values for which Python's equality is that of CEL.  Not for loops, because no meter counts it."""

    def compare(run: Run) -> bool:
        one, other = left(run), right(run)
        run.spent += costs.of_equality((one, other), None)
        return bool(one == other) is not negated

    return compare


def membership(value: Code, elements: list[Any]) -> Code:
    """Membership in a list literal, which costs nothing."""
    texts = frozenset(elements) if all(type(element) is str for element in elements) else None

    def is_in(run: Run) -> bool:
        wanted = value(run)
        if texts is not None:
            return type(wanted) is str and wanted in texts
        return is_member(run, wanted, elements)

    return is_in


def is_simple(elements: list[Any]) -> bool:
    """Whether cel-go looks a value up in these, instead of comparing it with each."""
    return all(type(element) in (bool, str) or type(element) in NUMBERS for element in elements)


# --- logic ----------------------------------------------------------------------------------------


def logical_and(left: Code, right: Code) -> Code:
    return _logical(left, right, decisive=False)


def logical_or(left: Code, right: Code) -> Code:
    return _logical(left, right, decisive=True)


def _logical(left: Code, right: Code, *, decisive: bool) -> Code:
    """The decisive value on either side is the result, even if the other side is an error."""

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
