"""Who is asking."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class User:
    name: str
    groups: tuple[str, ...] = ()


ADMINISTRATORS = "system:masters"
ANONYMOUS = User("system:anonymous", ("system:unauthenticated",))


def is_administrator(user: User) -> bool:
    return ADMINISTRATORS in user.groups
