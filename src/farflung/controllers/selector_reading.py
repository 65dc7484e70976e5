"""Label selectors as objects have them, and what is wrong with those that nobody can understand."""

from __future__ import annotations

import msgspec

from farflung.machinery import names
from farflung.machinery.errors import go_quote
from farflung.machinery.selectors import EVERYTHING, IN_OBJECTS, LabelSelector, Requirement


class Expression(msgspec.Struct):
    key: str
    operator: str
    values: list[str] | None = None


class Selector(msgspec.Struct, rename="camel"):
    match_labels: dict[str, str] | None = None
    match_expressions: list[Expression] | None = None


class ProblemError(ValueError):
    """Its text begins with the path of what is wrong."""


def misfit(path: str, error: msgspec.ValidationError) -> str:
    """`spec.locationSelectors[0]: Expected …`, of what was decoded at `path`."""
    what, _, at = str(error).partition(" - at `$")
    return f"{path}{at.rstrip('`')}: {what}"


def understood(selector: Selector, path: str) -> LabelSelector:
    """ProblemError if it cannot be."""
    requirements: list[Requirement] = []
    for key, value in (selector.match_labels or {}).items():
        check_key(key, f"{path}.matchLabels")
        _check_value(value, f"{path}.matchLabels[{key}]")
        requirements.append(Requirement(key, "in", (value,)))
    for at, expression in enumerate(selector.match_expressions or ()):
        requirements.append(_requirement(expression, f"{path}.matchExpressions[{at}]"))
    return LabelSelector(tuple(requirements)) if requirements else EVERYTHING


def check_key(key: str, path: str) -> None:
    """ProblemError if no label can have that name."""
    if wrong := names.qualified_name(key):
        raise ProblemError(f"{path}: Invalid value: {go_quote(key)}: {'; '.join(wrong)}")


def _requirement(expression: Expression, path: str) -> Requirement:
    operator = IN_OBJECTS.get(expression.operator)
    values = expression.values or ()
    if operator is None:
        why = "not a valid selector operator"
        raise ProblemError(f"{path}.operator: Invalid value: {go_quote(expression.operator)}: {why}")
    if operator in ("in", "notin") and not values:
        raise ProblemError(f"{path}.values: Required value: must be specified when `operator` is 'In' or 'NotIn'")
    if operator in ("exists", "!") and values:
        why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
        raise ProblemError(f"{path}.values: Forbidden: {why}")
    check_key(expression.key, f"{path}.key")
    for at, value in enumerate(values):
        _check_value(value, f"{path}.values[{at}]")
    return Requirement(expression.key, operator, tuple(values))


def _check_value(value: str, path: str) -> None:
    if wrong := names.label_value(value):
        raise ProblemError(f"{path}: Invalid value: {go_quote(value)}: {'; '.join(wrong)}")
