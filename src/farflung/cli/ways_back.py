"""From where objects come back that were made at edges, and which: as syncers understand it who are told what
placements say in `spec.upsync`.  Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from farflung.cli import fields
from farflung.cli.imagining import mailbox_of, places_of
from farflung.controllers.edge_scheduler.slices import destinations_of, owners
from farflung.controllers.edge_scheduler.values import Destination
from farflung.controllers.placement_translator.engine import Place
from farflung.controllers.placement_translator.syncer_config import Told
from farflung.controllers.placement_translator.what import UpsyncSet, parse_what
from farflung.machinery.errors import Obj
from farflung.syncer import wanted
from farflung.syncer.types import Part, Resource
from farflung.syncer.wanted import Wanted


class Way(NamedTuple):
    """How objects come back from one place."""

    place: Place
    wanted: Wanted  #: by the placements that lead there

    def may_bring(self, resource: Resource) -> bool:
        return self.wanted.may_bring(resource)

    def brings(self, part: Part) -> bool:
        return self.wanted.brings(*part)


def brings_back(placement: Obj) -> bool:
    """Whether it says that something comes back."""
    return bool(parse_what(placement).upsync)


def ways(placements: Iterable[Obj], slices: Iterable[Obj]) -> dict[str, Way]:
    """By mailbox, for placements that bring something back."""
    leading: dict[str, set[Destination]] = {}
    for one in slices:
        for owner in owners(one):
            leading.setdefault(fields.text(owner, "uid"), set()).update(destinations_of(one))
    sets: dict[str, set[UpsyncSet]] = {}
    destinations: set[Destination] = set()
    for placement in filter(brings_back, placements):
        found = leading.get(fields.text(placement, "metadata", "uid"), set())
        destinations |= found
        for mailbox in set(map(mailbox_of, found)):
            sets.setdefault(mailbox, set()).update(parse_what(placement).upsync)
    understood = {some: _understood(some) for some in set(map(frozenset, sets.values()))}
    return {
        mailbox: Way(place, understood[frozenset(sets[mailbox])])
        for mailbox, place in sorted(places_of(destinations).items())
    }


def _understood(sets: frozenset[UpsyncSet]) -> Wanted:
    return wanted.read([{"spec": Told(upsync=sets).spec()}], lambda _group, _kind: None)
