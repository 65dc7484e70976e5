"""What Go says of a regular expression that is none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from farflung.machinery.schema.structural import patterns

#: what RE2 says → what Go says of the same mistake
GO_WORDS: Final[Mapping[str, str]] = {
    "missing )": "missing closing )",
    "missing ]": "missing closing ]",
    "bad repetition operator": "invalid nested repetition operator",
    "no argument for repetition operator": "missing argument to repetition operator",
    "invalid repetition size": "invalid repeat count",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid named capture group": "invalid named capture",
}
TRAILING: Final = "trailing \\"


def pattern_problem(pattern: str) -> str:
    """Empty for an expression that can be compiled."""
    problem = patterns.problem(pattern)
    if not problem:
        return ""
    if problem == TRAILING:
        return "error parsing regexp: trailing backslash at end of expression: ``"
    words, _, part = problem.partition(": ")
    return f"error parsing regexp: {GO_WORDS.get(words, words)}: `{part}`"
