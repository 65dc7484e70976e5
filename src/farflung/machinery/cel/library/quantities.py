"""`quantity('1Gi')` and its functions."""

from __future__ import annotations

from typing import Final

from farflung.machinery.cel.language.declarations import Function, Overload
from farflung.machinery.cel.language.types import BOOL, DOUBLE, INT, STRING
from farflung.machinery.cel.language.types import QUANTITY as QUANTITY_TYPE
from farflung.machinery.cel.language.values import LEAST_INT, MOST_INT, EvaluationError
from farflung.machinery.cel.library import costs
from farflung.machinery.quantity import EXPONENT, ONE, Quantity, QuantityError, parse


def to_quantity(text: str) -> Quantity:
    try:
        return parse(text)
    except QuantityError as error:
        raise EvaluationError(str(error)) from None


def is_quantity(text: str) -> bool:
    try:
        parse(text)
    except QuantityError:
        return False
    return True


def sign(quantity: Quantity) -> int:
    return (quantity.nanos > 0) - (quantity.nanos < 0)


def compare_to(quantity: Quantity, other: Quantity) -> int:
    return (quantity.nanos > other.nanos) - (quantity.nanos < other.nanos)


def is_greater(quantity: Quantity, other: Quantity) -> bool:
    return quantity.nanos > other.nanos


def is_less(quantity: Quantity, other: Quantity) -> bool:
    return quantity.nanos < other.nanos


def is_integer(quantity: Quantity) -> bool:
    return quantity.nanos % ONE == 0 and LEAST_INT <= quantity.nanos // ONE <= MOST_INT


def as_integer(quantity: Quantity) -> int:
    if not is_integer(quantity):
        raise EvaluationError("cannot convert value to integer")
    return quantity.nanos // ONE


def as_float(quantity: Quantity) -> float:
    try:
        return quantity.nanos / ONE
    except OverflowError:
        return float("inf") if quantity.nanos > 0 else float("-inf")


def add_int(quantity: Quantity, number: int) -> Quantity:
    return quantity + Quantity(number * ONE, EXPONENT)


def subtract_int(quantity: Quantity, number: int) -> Quantity:
    return quantity - Quantity(number * ONE, EXPONENT)


_TWO: Final = (QUANTITY_TYPE, QUANTITY_TYPE)
_WITH_INT: Final = (QUANTITY_TYPE, INT)

LIBRARY: Final[tuple[Function, ...]] = (
    Function(
        "quantity", (Overload("string_to_quantity", (STRING,), QUANTITY_TYPE, False, to_quantity, costs.of_text),)
    ),
    Function("isQuantity", (Overload("is_quantity_string", (STRING,), BOOL, False, is_quantity, costs.of_text),)),
    Function("sign", (Overload("quantity_sign", (QUANTITY_TYPE,), INT, False, sign),)),
    Function("isGreaterThan", (Overload("quantity_is_greater_than", _TWO, BOOL, True, is_greater),)),
    Function("isLessThan", (Overload("quantity_is_less_than", _TWO, BOOL, True, is_less),)),
    Function("compareTo", (Overload("quantity_compare_to", _TWO, INT, True, compare_to),)),
    Function("asApproximateFloat", (Overload("quantity_get_float", (QUANTITY_TYPE,), DOUBLE, True, as_float),)),
    Function("asInteger", (Overload("quantity_get_int", (QUANTITY_TYPE,), INT, True, as_integer),)),
    Function("isInteger", (Overload("quantity_is_integer", (QUANTITY_TYPE,), BOOL, True, is_integer),)),
    Function(
        "add",
        (
            Overload("quantity_add", _TWO, QUANTITY_TYPE, True, Quantity.__add__),
            Overload("quantity_add_int", _WITH_INT, QUANTITY_TYPE, True, add_int),
        ),
    ),
    Function(
        "sub",
        (
            Overload("quantity_sub", _TWO, QUANTITY_TYPE, True, Quantity.__sub__),
            Overload("quantity_sub_int", _WITH_INT, QUANTITY_TYPE, True, subtract_int),
        ),
    ),
)
