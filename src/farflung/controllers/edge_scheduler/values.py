"""What is known of placements, locations and targets, as far as the scheduler cares.  None of it ever changes."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

from farflung.controllers.edge_scheduler.where import Where
from farflung.machinery.selectors import EVERYTHING, LabelSelector

NOTHING: Final[Mapping[str, str]] = {}
EMPTY_DOCUMENT: Final = b"{}"


class Key(NamedTuple):
    """An object without a namespace, among those of its kind.  As text: `cluster|name`, as informers write it."""

    cluster: str
    name: str

    def __str__(self) -> str:
        return f"{self.cluster}|{self.name}"


class Destination(NamedTuple):
    """One entry of a slice.  They are sorted as they are."""

    cluster: str
    location: str
    target: str
    uid: str  #: of the target


class Effect(StrEnum):
    NO_SCHEDULE = "NoSchedule"
    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    NO_EXECUTE = "NoExecute"


class Taint(msgspec.Struct, frozen=True, gc=False):
    key: str
    value: str
    effect: Effect

    def __str__(self) -> str:
        """As kubectl writes it."""
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


class Toleration(msgspec.Struct, frozen=True, gc=False):
    """An empty key and a missing effect stand for any."""

    key: str = ""
    value: str | None = None  #: None: any
    effect: Effect | None = None

    def tolerates(self, taint: Taint) -> bool:
        return (
            (not self.key or self.key == taint.key)
            and (self.value is None or self.value == taint.value)
            and (self.effect is None or self.effect is taint.effect)
        )


class Location(msgspec.Struct, frozen=True, gc=False):
    key: Key
    labels: Mapping[str, str] = NOTHING
    instances: LabelSelector | None = EVERYTHING  #: which targets; None if it cannot be understood
    problem: str = ""  #: why
    taints: tuple[Taint, ...] = ()
    document: bytes = EMPTY_DOCUMENT  #: what expressions see, as JSON


class Target(msgspec.Struct, frozen=True, gc=False):
    key: Key
    uid: str
    labels: Mapping[str, str] = NOTHING
    taints: tuple[Taint, ...] = ()  #: with one for a target that takes no new work
    document: bytes = EMPTY_DOCUMENT


class Placement(msgspec.Struct, frozen=True):
    key: Key
    uid: str = ""
    generation: int = 0
    selectors: tuple[LabelSelector, ...] = ()
    number: int | None = None  #: of Locations; None: all
    spread_by: tuple[str, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    where: Where | None = None
    problem: str = ""  #: why it cannot be understood; then the rest says nothing


class Resolution(msgspec.Struct, frozen=True):
    """Where a placement leads."""

    destinations: tuple[Destination, ...] = ()  #: sorted
    matching: int = 0  #: Locations that the selectors match, whether chosen or not
    chosen: int = 0  #: Locations that are in `destinations`
    problem: str = ""  #: why nobody knows; then the rest says nothing


class Refusal(NamedTuple):
    target: str
    reason: str


class Explanation(msgspec.Struct, frozen=True):
    """What became of one Location for one placement."""

    location: Key
    destinations: tuple[Destination, ...] = ()  #: what it contributes
    reason: str = ""  #: why nothing
    refused: tuple[Refusal, ...] = ()  #: targets of the Location that are not used, and why
