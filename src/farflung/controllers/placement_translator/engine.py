"""What goes into which mailbox, kept up to date, and what has to be looked at again when something changes.

A placement selects parts of its own workspace and leads to mailboxes; a mailbox should have the parts of all placements
that lead there.  Beside what is selected, a part brings its namespace and the definition of its kind.  Nothing is kept
for a pair of a part and a mailbox: what a part's placements are, and where each of them leads, says it all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, TypeAlias

from farflung.controllers.placement_translator.kinds import Category, category
from farflung.controllers.placement_translator.values import Part
from farflung.controllers.placement_translator.what import Selected, What
from farflung.controllers.placement_translator.world import DEFINITIONS, NAMESPACES, PlacementKey, Seen, World


class Copy(NamedTuple):
    """One object of one mailbox, to be looked at."""

    mailbox: str
    part: Part


class Config(NamedTuple):
    """What the syncer of a mailbox is told, to be looked at."""

    mailbox: str


Output: TypeAlias = Copy | Config


class Place(NamedTuple):
    """A Location, and the mailbox's SyncTarget there."""

    cluster: str
    location: str
    target: str
    others: tuple[str, ...] = ()  #: further Locations that lead to the mailbox, sorted

    @property
    def locations(self) -> tuple[str, ...]:
        return (self.location, *self.others)


def by_mailbox(pairs: Iterable[tuple[str, Place]]) -> dict[str, Place]:
    """Of several Locations that lead to a mailbox the one with the smallest name counts."""
    places: dict[str, Place] = {}
    for mailbox, place in sorted(set(pairs)):
        first = places.setdefault(mailbox, place)
        if first is not place:
            places[mailbox] = first._replace(others=(*first.others, place.location))
    return places


class Wanted(NamedTuple):
    """Why a part should be in a mailbox.  `selected is None`: only because something else needs it."""

    placement: PlacementKey
    selected: Selected | None
    place: Place


class _Placement:
    """One placement, and what follows from it."""

    __slots__ = ("needed", "places", "selected", "what", "whole")

    def __init__(self) -> None:
        self.what: What | None = None  #: None: it is not there, or cannot be understood
        self.places: Mapping[str, Place] = {}  #: by mailbox
        self.selected: dict[Part, Selected] = {}
        self.whole: set[str] = set()  #: namespaces whose contents are selected as a whole
        self.needed: Counter[Part] = Counter()  #: what goes along: how many need it

    def parts(self) -> set[Part]:
        return {*self.selected, *self.needed}


class Engine:
    def __init__(self, world: World) -> None:
        """`world`: all objects; it is changed before `object_changed` is told."""
        self._world = world
        self._placements: dict[PlacementKey, _Placement] = {}
        self._in_cluster: dict[str, set[PlacementKey]] = {}  #: those that select something there
        self._holders: dict[Part, set[PlacementKey]] = {}  #: who wants a part, for whatever reason
        self._at: dict[str, set[PlacementKey]] = {}  #: who leads to a mailbox

    # --- what there is ----------------------------------------------------------------------------

    def wanted(self, mailbox: str, part: Part) -> list[Wanted]:
        """Why a part should be in a mailbox, sorted; nothing: it should not."""
        found = []
        for key in sorted(self._holders.get(part, ())):
            placement = self._placements[key]
            place = placement.places.get(mailbox)
            if place is not None:
                found.append(Wanted(key, placement.selected.get(part), place))
        return found

    def is_wanted(self, mailbox: str, part: Part) -> bool:
        """Whether a part should be in a mailbox, for whatever reason."""
        return any(mailbox in self._placements[key].places for key in self._holders.get(part, ()))

    def is_wanted_by(self, key: PlacementKey, mailbox: str, part: Part) -> bool:
        placement = self._placements.get(key)
        return placement is not None and mailbox in placement.places and key in self._holders.get(part, ())

    def holders(self, part: Part) -> Iterable[PlacementKey]:
        """The placements that want a part somewhere, for whatever reason."""
        return self._holders.get(part, ())

    def parts_at(self, mailbox: str) -> set[Part]:
        """All that should be in a mailbox."""
        return {part for key in self._at.get(mailbox, ()) for part in self._placements[key].parts()}

    def placements_at(self, mailbox: str) -> list[PlacementKey]:
        return sorted(self._at.get(mailbox, ()))

    def what(self, key: PlacementKey) -> What | None:
        placement = self._placements.get(key)
        return None if placement is None else placement.what

    def places(self, key: PlacementKey) -> Mapping[str, Place]:
        placement = self._placements.get(key)
        return {} if placement is None else placement.places

    def selected(self, key: PlacementKey) -> Mapping[Part, Selected]:
        placement = self._placements.get(key)
        return {} if placement is None else placement.selected

    def whole_namespaces(self, key: PlacementKey) -> frozenset[str]:
        """Namespaces whose contents are selected as a whole."""
        placement = self._placements.get(key)
        return frozenset() if placement is None else frozenset(placement.whole)

    def sources(self) -> Iterable[str]:
        """Clusters that have placements."""
        return self._in_cluster.keys()

    # --- placements -------------------------------------------------------------------------------

    def put_placement(self, key: PlacementKey, what: What) -> set[Output]:
        placement = self._placements.setdefault(key, _Placement())
        before, placement.what = placement.what, what
        self._in_cluster.setdefault(key.cluster, set()).add(key)
        if before == what:
            return set()
        return self._select_all(key, placement) | _configs(placement)

    def remove_placement(self, key: PlacementKey) -> set[Output]:
        placement = self._placements.get(key)
        if placement is None or placement.what is None:
            return set()
        placement.what = None
        outputs = self._select_all(key, placement) | _configs(placement)
        self._in_cluster[key.cluster].discard(key)
        if not self._in_cluster[key.cluster]:
            del self._in_cluster[key.cluster]
        self._forget(key, placement)
        return outputs

    def put_places(self, key: PlacementKey, places: Mapping[str, Place]) -> set[Output]:
        """Where a placement leads, by mailbox; nothing: nowhere."""
        placement = self._placements.setdefault(key, _Placement())
        before, placement.places = placement.places, dict(places)
        moved = {mailbox for mailbox in {*before, *places} if before.get(mailbox) != places.get(mailbox)}
        for mailbox in moved:
            if mailbox in places:
                self._at.setdefault(mailbox, set()).add(key)
            else:
                self._at[mailbox].discard(key)
                if not self._at[mailbox]:
                    del self._at[mailbox]
        parts = placement.parts() if moved else set()
        outputs: set[Output] = {Copy(mailbox, part) for mailbox in moved for part in parts}
        outputs |= {Config(mailbox) for mailbox in moved}
        self._forget(key, placement)
        return outputs

    def _forget(self, key: PlacementKey, placement: _Placement) -> None:
        """The placement and its slices come and go on their own."""
        if placement.what is None and not placement.places:
            del self._placements[key]

    def _select_all(self, key: PlacementKey, placement: _Placement) -> set[Output]:
        outputs: set[Output] = set()
        parts = self._world.parts(key.cluster)
        for part in [part for part in placement.selected if part not in parts]:
            outputs |= self._select(key, placement, part, None)
        for part, seen in parts.items():
            outputs |= self._select(key, placement, part, seen)
        for name in [name for name in placement.whole if Part(NAMESPACES, "", name) not in parts]:
            outputs |= self._set_whole(key, placement, name, whole=False)
        return outputs

    # --- objects ----------------------------------------------------------------------------------

    def object_changed(self, cluster: str, part: Part, before: Seen | None, after: Seen | None) -> set[Output]:
        """The world has `after` already."""
        outputs: set[Output] = set()
        for key in self._in_cluster.get(cluster, ()):
            placement = self._placements[key]
            outputs |= self._select(key, placement, part, after)
            if part in placement.selected or part in placement.needed:
                outputs |= _copies(placement, part)
            if part.kind == DEFINITIONS and part in placement.needed and (before is None) != (after is None):
                outputs |= _configs(placement)
            if part.kind == NAMESPACES and _labels(before) != _labels(after):
                for inside in list(self._world.inside(cluster, part.name)):
                    outputs |= self._select(key, placement, inside, self._world.get(cluster, inside))
        return outputs

    def _select(self, key: PlacementKey, placement: _Placement, part: Part, seen: Seen | None) -> set[Output]:
        """Look at one part anew."""
        outputs: set[Output] = set()
        if part.kind == NAMESPACES:
            labels = _labels(seen)
            whole = placement.what is not None and labels is not None and placement.what.selects_namespace(labels)
            outputs |= self._set_whole(key, placement, part.name, whole=whole)
        before, after = placement.selected.get(part), self._chosen(key, placement, part, seen)
        if before == after:
            return outputs
        if after is None:
            del placement.selected[part]
        else:
            placement.selected[part] = after
        outputs |= _copies(placement, part)
        if not (_goes_along(before) and _goes_along(after)):
            outputs |= _configs(placement)
        self._hold(key, placement, part)
        if (before is None) != (after is None):
            for needed in _needs(part):
                outputs |= self._need(key, placement, needed, 1 if before is None else -1)
        return outputs

    def _chosen(self, key: PlacementKey, placement: _Placement, part: Part, seen: Seen | None) -> Selected | None:
        """What is gone, or going, is not selected; nor is what a translator made, or what stays in its workspace."""
        if placement.what is None or seen is None or not seen.alive or seen.ours or seen.system:
            return None
        if category(part.kind) is Category.NOWHERE:
            return None
        namespace = self._world.get(key.cluster, Part(NAMESPACES, "", part.namespace)) if part.namespace else None
        return placement.what.selects(part, seen.labels, _labels(namespace))

    def _set_whole(self, key: PlacementKey, placement: _Placement, name: str, *, whole: bool) -> set[Output]:
        if whole == (name in placement.whole):
            return set()
        (placement.whole.add if whole else placement.whole.discard)(name)
        return self._need(key, placement, Part(NAMESPACES, "", name), 1 if whole else -1) | _configs(placement)

    def _need(self, key: PlacementKey, placement: _Placement, part: Part, more: int) -> set[Output]:
        placement.needed[part] += more
        if placement.needed[part] == 0:
            del placement.needed[part]
        elif placement.needed[part] > 1 or more < 0:
            return set()
        self._hold(key, placement, part)
        return _copies(placement, part) | (_configs(placement) if part.kind == DEFINITIONS else set())

    def _hold(self, key: PlacementKey, placement: _Placement, part: Part) -> None:
        if part in placement.selected or part in placement.needed:
            self._holders.setdefault(part, set()).add(key)
        elif part in self._holders:
            self._holders[part].discard(key)
            if not self._holders[part]:
                del self._holders[part]


def _labels(seen: Seen | None) -> Mapping[str, str] | None:
    """None if it is not there, going, or none that goes anywhere."""
    return seen.labels if seen is not None and seen.alive and not seen.system else None


def _goes_along(selected: Selected | None) -> bool:
    """Syncers are told nothing of a part beside that its whole namespace goes there."""
    return selected is None or selected.whole_namespace


def _needs(part: Part) -> Iterator[Part]:
    """What has to be there first.  Whether a kind has a definition is not known here."""
    if part.namespace:
        yield Part(NAMESPACES, "", part.namespace)
    if "." in part.kind.group:
        yield Part(DEFINITIONS, "", f"{part.kind.resource}.{part.kind.group}")


def _copies(placement: _Placement, part: Part) -> set[Output]:
    return {Copy(mailbox, part) for mailbox in placement.places}


def _configs(placement: _Placement) -> set[Output]:
    return {Config(mailbox) for mailbox in placement.places}
