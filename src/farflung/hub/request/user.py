"""The user of a request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from farflung.machinery.errors import Obj


@dataclass(frozen=True, slots=True)
class User:
    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()  #: as in a UserInfo
    cluster: str = ""  #: the only logical cluster where it has permissions; empty: all of them
    borrowed: bool = False  #: another user sends the request, with its permissions


ADMINISTRATORS: Final = "system:masters"
AUTHENTICATED: Final = "system:authenticated"
UNAUTHENTICATED: Final = "system:unauthenticated"
CONTROLLER: Final = "system:farflung:"  #: prefix of the user names of the hub's controllers
ANONYMOUS: Final = User("system:anonymous", (UNAUTHENTICATED,))


def is_administrator(user: User) -> bool:
    return ADMINISTRATORS in user.groups


def user_info(user: User) -> Obj:
    """The UserInfo of the authentication API."""
    info: Obj = {"username": user.name}
    if user.uid:
        info["uid"] = user.uid
    if user.groups:
        info["groups"] = list(user.groups)
    if user.extra:
        info["extra"] = {name: list(values) for name, values in user.extra}
    return info
