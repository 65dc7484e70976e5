"""What does not work, object by object, for those who look into the mailbox; and how far the edge is.  Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Set
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from farflung.client.errors import ClientError, Refused
from farflung.machinery.errors import Obj
from farflung.machinery.times import format_seconds
from farflung.syncer.values import Part, Resource
from farflung.syncer.wanted import ANY

MOST: Final = 50  #: that are told one by one
LONGEST: Final = 300  #: characters of a message
SECRETS: Final = Resource("", "secrets")


class Direction(StrEnum):
    DOWN = "down"
    STATUS = "status"
    UP = "up"


@dataclass(frozen=True, slots=True)
class Trouble:
    reason: str
    message: str
    last_try: datetime
    tries: int


class Troubles:
    def __init__(self) -> None:
        self._known: dict[tuple[Part, Direction], Trouble] = {}
        self.changed = False  #: since somebody last said it is not

    def __len__(self) -> int:
        """How many objects have one."""
        return len({part for part, _ in self._known})

    def has(self, part: Part, direction: Direction) -> bool:
        return (part, direction) in self._known

    def put(self, part: Part, direction: Direction, reason: str, message: str, now: datetime) -> bool:
        """Whether it is another one than before."""
        before = self._known.get((part, direction))
        tries = 1 if before is None else before.tries + 1
        new = Trouble(reason, message[:LONGEST], now, tries)
        self._known[part, direction] = new
        other = before is None or (before.reason, before.message) != (new.reason, new.message)
        self.changed = self.changed or other
        return other

    def clear(self, part: Part, direction: Direction) -> None:
        if self._known.pop((part, direction), None) is not None:
            self.changed = True

    def keep_kinds(self, resources: Set[Resource], direction: Direction) -> None:
        """Clear what is about a kind as a whole, unless it is one of these."""
        for part, way in list(self._known):
            if part == all_of(part.resource) and way is direction and part.resource not in resources:
                self.clear(part, direction)

    def listed(self) -> list[Obj]:
        """The first ones, sorted, as the status of a SyncerConfig has them."""
        found = sorted(self._known.items(), key=lambda one: one[0])[:MOST]
        return [
            {
                "group": part.resource.group,
                "resource": part.resource.plural,
                "namespace": part.namespace,
                "name": part.name,
                "direction": direction.value,
                "reason": trouble.reason,
                "message": trouble.message,
                "lastTry": format_seconds(trouble.last_try),
                "tries": trouble.tries,
            }
            for (part, direction), trouble in found
        ]

    def counted(self) -> Counter[tuple[str, str]]:
        """By direction and reason."""
        return Counter((direction.value, trouble.reason) for (_, direction), trouble in self._known.items())

    @property
    def omitted(self) -> int:
        return max(0, len(self._known) - MOST)


def all_of(resource: Resource) -> Part:
    """In the place of an object: a kind as a whole."""
    return Part(resource, "", ANY)


def told(part: Part, error: ClientError) -> tuple[str, str]:
    """Reason and message.  A server may quote what it refuses, and Secrets are quoted to nobody."""
    reason = error.reason if isinstance(error, Refused) and error.reason else type(error).__name__
    if part.resource == SECRETS and isinstance(error, Refused):
        return reason, f"it was refused with {error.status}; of Secrets, no more is said"
    return reason, str(error)


def quotable(part: Part, error: ClientError) -> ClientError:
    """The same in words that anybody may read, for logs."""
    if part.resource != SECRETS or not isinstance(error, Refused):
        return error
    _, message = told(part, error)
    return type(error)(error.status, error.reason, message, retry_after=error.retry_after)


class Progress:
    """Up to which version of the mailbox all is at the edge, kind by kind."""

    def __init__(self) -> None:
        self._under_way: dict[Resource, dict[Part, int]] = {}
        self._latest: dict[Resource, int] = {}

    def began(self, part: Part, revision: int) -> None:
        """A copy is to be brought."""
        self._under_way.setdefault(part.resource, {}).setdefault(part, revision)
        self.reached(part.resource, revision)

    def reached(self, resource: Resource, revision: int) -> None:
        """As is known from before."""
        self._latest[resource] = max(self._latest.get(resource, 0), revision)

    def ended(self, part: Part) -> None:
        """It was brought as it is now, or is known not to go."""
        self._under_way.get(part.resource, {}).pop(part, None)

    @property
    def pending(self) -> int:
        return sum(map(len, self._under_way.values()))

    def through(self) -> list[Obj]:
        """As the status of a SyncerConfig has it."""
        return [
            {"group": resource.group, "resource": resource.plural, "resourceVersion": str(self._through(resource))}
            for resource in sorted(self._latest)
        ]

    def _through(self, resource: Resource) -> int:
        under_way = self._under_way.get(resource)
        return min(under_way.values()) - 1 if under_way else self._latest[resource]
