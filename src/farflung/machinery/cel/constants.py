"""Arguments that are written in the expression and can only fail: a duration that is none, a broken pattern."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from farflung.machinery.cel.errors import Issue
from farflung.machinery.cel.language import ast
from farflung.machinery.cel.language.ast import Expression
from farflung.machinery.cel.language.values import EvaluationError

#: overload → what the arguments before the one that is looked at may be
CHECKED: Final[dict[str, tuple[str, ...]]] = {
    "string_to_duration": (),
    "string_to_timestamp": (),
    "matches_string": ("",),
}


def constant_issues(nodes: Iterable[Expression]) -> list[Issue]:
    """What is wrong with the constants among the nodes of a checked expression."""
    found: list[Issue] = []
    for node in nodes:
        if not isinstance(node, ast.Call) or len(node.overloads) != 1 or len(node.arguments) != 1:
            continue
        overload, argument = node.overloads[0], node.arguments[0]
        if overload.id in CHECKED and isinstance(argument, ast.Literal) and overload.implementation is not None:
            try:
                overload.implementation(*CHECKED[overload.id], argument.value)
            except EvaluationError:
                found.append(Issue(argument.offset, f"invalid {node.function} argument"))
    return found
