"""`quantity('1Gi')` and its functions."""

from __future__ import annotations

from typing import Final

from farflung.machinery.cel.language.declarations import Function, overload
from farflung.machinery.cel.language.values import LEAST_INT, MAX_INT, EvaluationError
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


def is_integer(quantity: Quantity) -> bool:
    return quantity.nanos % ONE == 0 and LEAST_INT <= quantity.nanos // ONE <= MAX_INT


def as_integer(quantity: Quantity) -> int:
    if not is_integer(quantity):
        raise EvaluationError("cannot convert value to integer")
    return quantity.nanos // ONE


def as_float(quantity: Quantity) -> float:
    try:
        return quantity.nanos / ONE
    except OverflowError:
        return float("inf") if quantity.nanos > 0 else float("-inf")


LIBRARY: Final[tuple[Function, ...]] = (
    overload("quantity", "string_to_quantity", "string -> kubernetes.Quantity", to_quantity, costs.of_text),
    overload("isQuantity", "is_quantity_string", "string -> bool", is_quantity, costs.of_text),
    overload("sign", "quantity_sign", "kubernetes.Quantity -> int", sign),
    overload(
        ".isGreaterThan",
        "quantity_is_greater_than",
        "kubernetes.Quantity, kubernetes.Quantity -> bool",
        lambda one, other: one.nanos > other.nanos,
    ),
    overload(
        ".isLessThan",
        "quantity_is_less_than",
        "kubernetes.Quantity, kubernetes.Quantity -> bool",
        lambda one, other: one.nanos < other.nanos,
    ),
    overload(".compareTo", "quantity_compare_to", "kubernetes.Quantity, kubernetes.Quantity -> int", compare_to),
    overload(".asApproximateFloat", "quantity_get_float", "kubernetes.Quantity -> double", as_float),
    overload(".asInteger", "quantity_get_int", "kubernetes.Quantity -> int", as_integer),
    overload(".isInteger", "quantity_is_integer", "kubernetes.Quantity -> bool", is_integer),
    overload(
        ".add", "quantity_add", "kubernetes.Quantity, kubernetes.Quantity -> kubernetes.Quantity", Quantity.__add__
    ),
    overload(
        ".add",
        "quantity_add_int",
        "kubernetes.Quantity, int -> kubernetes.Quantity",
        lambda one, number: one + Quantity(number * ONE, EXPONENT),
    ),
    overload(
        ".sub", "quantity_sub", "kubernetes.Quantity, kubernetes.Quantity -> kubernetes.Quantity", Quantity.__sub__
    ),
    overload(
        ".sub",
        "quantity_sub_int",
        "kubernetes.Quantity, int -> kubernetes.Quantity",
        lambda one, number: one - Quantity(number * ONE, EXPONENT),
    ),
)
