"""Sets of completion indexes as the status of a Job writes them: `1,3-5,7`.  Pure."""

from __future__ import annotations

from collections.abc import Iterable


def parse(text: str, limit: int) -> set[int]:
    """What is not below the limit, or cannot be understood, is left out."""
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        if first.isdigit() and (not last or last.isdigit()):
            found.update(range(int(first), min(int(last or first), limit - 1) + 1))
    return found


def written(indexes: Iterable[int]) -> str:
    """Two neighbours are written with a comma, more with a dash."""
    runs: list[list[int]] = []
    for index in sorted(set(indexes)):
        if runs and runs[-1][-1] == index - 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 2 else ",".join(map(str, run)) for run in runs)
