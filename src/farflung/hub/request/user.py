"""Who is asking."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class User:
    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()  #: further facts about who it is, by name
    cluster: str = ""  #: the only one where it is anybody; empty: all of them


ADMINISTRATORS: Final = "system:masters"
AUTHENTICATED: Final = "system:authenticated"
UNAUTHENTICATED: Final = "system:unauthenticated"
SERVICE_ACCOUNT: Final = (
    "system:serviceaccount:"  #: how the name of a ServiceAccount's user begins; namespace:name follows
)
ANONYMOUS: Final = User("system:anonymous", (UNAUTHENTICATED,))


def is_administrator(user: User) -> bool:
    return ADMINISTRATORS in user.groups
