"""Calls of functions whose overload depends on the values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from farflung.machinery.cel.language.budget import Metered
from farflung.machinery.cel.language.declarations import Overload
from farflung.machinery.cel.language.values import NUMBERS, EvaluationError, has_type, no_such_overload, type_name
from farflung.machinery.cel.library import costs
from farflung.machinery.cel.selection import Run

#: raised by implementations for values of another type than declared: objects may violate their schemas
UNFIT: Final = (TypeError, AttributeError, ValueError, LookupError, ArithmeticError)

Values = tuple[Any, ...]
Application = Callable[[Run, Values], Any]


class OverloadDispatcher:
    """Calls the first overload that matches the values.  It is cached by the values' classes."""

    __slots__ = ("_chosen", "_function", "_overloads")

    def __init__(self, function: str, overloads: Sequence[Overload]) -> None:
        self._function = function
        self._overloads = overloads
        self._chosen: dict[tuple[type, ...], Application | None] = {}

    def __call__(self, run: Run, values: Values) -> Any:
        classes = tuple(map(type, values))
        if classes not in self._chosen:
            self._chosen[classes] = self._choose(values)
        application = self._chosen[classes]
        if application is None:
            named = self._function[0].isalpha()
            signature = f": {self._function}({', '.join(map(type_name, values))})" if named else ""
            raise EvaluationError(f"no such overload{signature}")
        return application(run, values)

    def _choose(self, values: Values) -> Application | None:
        for overload in self._overloads:
            if overload.implementation is not None and all(map(has_type, values, overload.arguments)):
                return _application(overload)
        return None


def _application(overload: Overload) -> Application:
    """The application of an overload to values.  It pays its cost in advance, unless the cost depends on the result."""
    assert overload.implementation is not None
    implementation = _with_meter(overload.implementation)
    cost = overload.cost or _one
    work = costs.SLOW_CALLS.get(overload.id, 0)

    def paid_before(run: Run, values: Values) -> Any:
        try:
            run.pay(cost(values, None))
            if work:
                run.work(work)
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


def _with_meter(implementation: Callable[..., Any]) -> Callable[..., Any]:
    if isinstance(implementation, Metered):
        return implementation.function
    return lambda _, *values: implementation(*values)


def is_simple(elements: list[Any]) -> bool:
    """Whether cel-go looks a value up in these, instead of comparing it with each."""
    return all(type(element) in (bool, str) or type(element) in NUMBERS for element in elements)
