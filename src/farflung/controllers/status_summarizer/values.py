"""What is said of one copy, and by what it is known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from farflung.controllers.placement_translator.engine import Place
from farflung.controllers.placement_translator.values import Part
from farflung.controllers.placement_translator.world import PlacementKey


class Subject(NamedTuple):
    """What a summary is about: an object, as far as one placement brings it somewhere."""

    placement: PlacementKey
    part: Part


class Verdict(NamedTuple):
    """What is wrong.  The words stay the same as long as what they are about does."""

    reason: str  #: one CamelCase word
    message: str = ""
    since: str = ""  #: RFC 3339 in UTC with seconds; empty: nobody knows


@dataclass(frozen=True, slots=True)
class Digest:
    """What counts of a copy, read from its document alone."""

    reporting: bool = False  #: it has a status
    observed: str = ""  #: when the hub took its status, as RFC 3339 in UTC with seconds; empty: nobody knows
    numbers: Mapping[str, int | float] = field(default_factory=dict)  #: by their paths in the status
    conditions: Mapping[str, str] = field(default_factory=dict)  #: type → True, False or Unknown
    texts: Mapping[str, str] = field(default_factory=dict)  #: short ones, by their paths in the status
    verdict: Verdict | None = None  #: what is wrong with it by its own account; None: nothing


@dataclass(frozen=True, slots=True)
class Report:
    """What is known of one destination."""

    place: Place
    digest: Digest | None = None  #: None: the copy is not there
    refused: Verdict | None = None  #: why its syncer cannot bring it to the cluster
    stale: Verdict | None = None  #: why what is known may be old


class Row(NamedTuple):
    """One destination, for expressions."""

    place: Place
    given: Mapping[str, Any]  #: `inventory`, `obj`, `returned`, `propagation`
