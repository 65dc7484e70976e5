"""Numbers that may be given as a part of another: `3`, `25%`.  Pure."""

from __future__ import annotations


def portion(value: int | str | None, total: int, *, round_up: bool) -> int:
    if value is None:
        return 0
    if isinstance(value, int):
        return value
    percent = int(value.removesuffix("%"))
    return -(-percent * total // 100) if round_up else percent * total // 100


def fence(surge: int | str | None, unavailable: int | str | None, desired: int) -> tuple[int, int]:
    """How many more there may be than desired, and how many fewer may be available; never both none."""
    more = portion(surge, desired, round_up=True)
    fewer = portion(unavailable, desired, round_up=False)
    return more, 1 if more == 0 and fewer == 0 else fewer
