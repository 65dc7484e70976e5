"""Compile errors in the format of cel-go: a message, the source line, and a mark below it."""

from __future__ import annotations

import bisect
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

MAX_ISSUES: Final = 100  #: reported for one expression
MAX_SNIPPET: Final = 16_384  #: bytes of a source line in a message
NOWHERE: Final = -1  #: the offset of an issue about the whole expression


@dataclass(frozen=True, slots=True)
class Issue:
    offset: int  #: into the text, in characters; or NOWHERE
    message: str


class CompileError(Exception):
    """An invalid expression.  Its text follows `compilation failed: ` in Kubernetes' message."""

    def __init__(self, text: str, issues: Iterable[Issue]) -> None:
        self.issues = sorted(issues, key=lambda issue: issue.offset)
        super().__init__(_display(text, self.issues))


def _display(text: str, issues: list[Issue]) -> str:
    lines = text.split("\n")
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)
    shown = [_shown(issue, lines, starts) for issue in issues[:MAX_ISSUES]]
    if len(issues) > MAX_ISSUES:
        shown.append(f"{len(issues) - MAX_ISSUES} more errors were truncated")
    return "\n".join(shown)


def _shown(issue: Issue, lines: list[str], starts: list[int]) -> str:
    if issue.offset == NOWHERE:
        return f"ERROR: <input>:-1:0: {issue.message}"
    row = min(bisect.bisect_right(starts, issue.offset), len(lines)) - 1
    column = issue.offset - starts[row]
    head = f"ERROR: <input>:{row + 1}:{column + 1}: {issue.message}"
    line = lines[row].replace("\t", " ")
    if len(line.encode(errors="replace")) > MAX_SNIPPET:
        return head
    dots = "".join("." if char.isascii() else "\uff0e" for char in line[:column])
    mark = "^" if column >= len(line) or line[column].isascii() else "\uff3e"
    return f"{head}\n | {line}\n | {dots}{mark}"
