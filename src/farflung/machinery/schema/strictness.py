"""What a strict reader says of the problems of a body."""

from __future__ import annotations

from collections.abc import Sequence


def strict_text(problems: Sequence[str]) -> str:
    """`strict decoding error: unknown field "x", duplicate field "y"`.  What YAML has twice is one of the errors, with
    a line for each key."""
    lines = [problem for problem in problems if problem.startswith("line ")]
    others = [problem for problem in problems if not problem.startswith("line ")]
    return "strict decoding error: " + ", ".join([*([yaml_errors(lines)] if lines else []), *others])


def yaml_errors(lines: Sequence[str]) -> str:
    """As go-yaml lists what it found."""
    return "yaml: unmarshal errors:" + "".join(f"\n  {line}" for line in lines)
