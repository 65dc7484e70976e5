"""Whether labels meet requirements, and tolerations meet taints."""

from __future__ import annotations

from collections.abc import Iterable

from farflung.machinery.selectors import LabelSelector
from farflung.machinery.selectors import Requirement as LabelRequirement
from farflung.scheduling.values import Requirement, Taint, Toleration

OPERATORS = {"=": "in", "==": "in", "!=": "notin"}


def selector_of(requirements: Iterable[Requirement]) -> LabelSelector:
    """All of them.  A requirement that makes no sense is never met."""
    return LabelSelector(tuple(_requirement(one) for one in requirements))


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in ("Equal", "") and toleration.value == taint.value


def untolerated(taints: Iterable[Taint], tolerations: Iterable[Toleration], effects: frozenset[str]) -> list[Taint]:
    """Those with one of the effects."""
    tolerations = tuple(tolerations)
    return [
        taint for taint in taints if taint.effect in effects and not any(tolerates(one, taint) for one in tolerations)
    ]


def _requirement(one: Requirement) -> LabelRequirement:
    operator = OPERATORS.get(one.operator, one.operator)
    if operator in ("exists", "!"):
        return LabelRequirement(one.key, operator)
    if operator in ("in", "notin") or (operator in ("gt", "lt") and _is_bound(one.values)):
        return LabelRequirement(one.key, operator, one.values)
    return LabelRequirement(one.key, "in", ())


def _is_bound(values: tuple[str, ...]) -> bool:
    try:
        return len(values) == 1 and int(values[0]) is not None
    except ValueError:
        return False
