"""All that the translator knows, and what has to be looked at again when it learns something.  Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, TypeAlias

from farflung.controllers.mailbox.decide import Workspace, is_mailbox_name
from farflung.controllers.placement_translator import guard
from farflung.controllers.placement_translator.customizing import Customizer
from farflung.controllers.placement_translator.engine import Config, Copy, Engine, Place
from farflung.controllers.placement_translator.offers import BINDINGS, Offers
from farflung.controllers.placement_translator.reading import SeenLocation, SeenPlacement, SeenSlice
from farflung.controllers.placement_translator.values import Kind, Part, Source
from farflung.controllers.placement_translator.world import DEFINITIONS, NAMESPACES, PlacementKey, Seen, World


class Discover(NamedTuple):
    """What a workspace serves, to be asked for."""

    cluster: str


class Status(NamedTuple):
    """What is said of a placement, to be written."""

    placement: PlacementKey


Work: TypeAlias = Copy | Config | Discover | Status
Led: TypeAlias = tuple[PlacementKey, str]  #: a placement, and a mailbox it leads to


class Knowledge:
    """Each `on_…` says what to look at again."""

    def __init__(self, builtin: Mapping[Kind, str], limits: guard.Limits) -> None:
        self.world = World()
        self.engine = Engine(self.world)
        self.offers = Offers(builtin)
        self.mailboxes: dict[str, str] = {}  #: cluster of each mailbox that can be used
        self.customizers: dict[tuple[str, str], Customizer] = {}  #: by cluster and `namespace/name`
        self.locations: dict[tuple[str, str], SeenLocation] = {}
        self.placements: dict[PlacementKey, SeenPlacement] = {}
        self._limits = limits
        self._names: dict[str, str] = {}  #: the mailbox of a cluster
        self._slices: dict[PlacementKey, dict[str, SeenSlice]] = {}
        self._led: dict[tuple[str, str], set[Led]] = {}  #: by Location
        self._special: dict[str, set[Part]] = {}  #: what is different in each place, by cluster
        self._copies: dict[PlacementKey, dict[str, set[Part]]] = {}  #: what was made for a placement, by mailbox
        self._verdicts: dict[PlacementKey, guard.Verdict[str, Part]] = {}

    # --- objects ----------------------------------------------------------------------------------

    def on_object(self, cluster: str, part: Part, after: Seen | None) -> set[Work]:
        before = self.world.remove(cluster, part) if after is None else self.world.put(cluster, part, after)
        works: set[Work] = set(self.engine.object_changed(cluster, part, before, after))
        if works:
            self._reconsider(key for key in self.placements if key.cluster == cluster)
        if part.kind in (BINDINGS, DEFINITIONS) and self.offers.changed(cluster, part, after):
            works |= self._on_offers(cluster)
        self._note_special(cluster, part, after)
        name = self._names.get(cluster)
        if name is not None:
            works |= self._on_copy(name, part, before, after)
        return works

    def _on_copy(self, mailbox: str, part: Part, before: Seen | None, after: Seen | None) -> set[Work]:
        """Something is different in a mailbox."""
        for key in before.placements if before is not None else ():
            self._copies[key][mailbox].discard(part)
            if not self._copies[key][mailbox]:
                del self._copies[key][mailbox]
            if not self._copies[key]:
                del self._copies[key]
        for key in after.placements if after is not None else ():
            self._copies.setdefault(key, {}).setdefault(mailbox, set()).add(part)
        works: set[Work] = {Copy(mailbox, part)}
        if after is None and part.namespace:
            works.add(Copy(mailbox, Part(NAMESPACES, "", part.namespace)))
        return works

    def _on_offers(self, cluster: str) -> set[Work]:
        """A workspace serves other kinds than before."""
        works: set[Work] = {Discover(cluster)} if cluster in self.engine.sources() else set()
        name = self._names.get(cluster)
        if name is not None:
            works |= {Copy(name, part) for part in self.engine.parts_at(name)}
        return works

    def _note_special(self, cluster: str, part: Part, seen: Seen | None) -> None:
        if seen is not None and (seen.customizer or seen.expands):
            self._special.setdefault(cluster, set()).add(part)
        elif part in self._special.get(cluster, ()):
            self._special[cluster].discard(part)

    # --- placements and where they lead -----------------------------------------------------------

    def on_placement(self, key: PlacementKey, seen: SeenPlacement | None) -> set[Work]:
        self._reconsider((key,))
        works: set[Work] = {Status(key)}
        if seen is None or not seen.alive:
            self.placements.pop(key, None)
            works |= self.engine.remove_placement(key)
            return works | self._lead(key)
        known = key.cluster in self.engine.sources()
        self.placements[key] = seen
        if not seen.what.problem:
            works |= self.engine.put_placement(key, seen.what)
        if not known and key.cluster in self.engine.sources():
            works.add(Discover(key.cluster))
        return works | self._lead(key) | self._unwanted(key)

    def on_slice(self, cluster: str, name: str, before: SeenSlice | None, after: SeenSlice | None) -> set[Work]:
        keys = {PlacementKey(cluster, one.placement) for one in (before, after) if one is not None}
        for key in keys:
            self._slices.get(key, {}).pop(name, None)
        if after is not None:
            self._slices.setdefault(PlacementKey(cluster, after.placement), {})[name] = after
        works: set[Work] = set()
        for key in keys:
            self._reconsider((key,))
            works |= self._lead(key) | self._unwanted(key)
        return works

    def _lead(self, key: PlacementKey) -> set[Work]:
        """Where the slices of a placement lead.  One that is there but has no slices has not been decided yet, and what
        was decided before counts."""
        seen = self.placements.get(key)
        own = [one for one in self._slices.get(key, {}).values() if seen is not None and one.owner == seen.uid]
        if seen is not None and not own:
            return set()
        places: dict[str, Place] = {}
        for mailbox, place in sorted(pair for one in own for pair in one.places):
            places.setdefault(mailbox, place)
        before = self.engine.places(key)
        for mailbox, place in before.items():
            self._led[place.cluster, place.location].discard((key, mailbox))
        for mailbox, place in places.items():
            self._led.setdefault((place.cluster, place.location), set()).add((key, mailbox))
        return set(self.engine.put_places(key, places))

    def is_undecided(self, key: PlacementKey) -> bool:
        """Whether nobody knows what a placement wants, or where: then nothing that was made for it goes."""
        seen = self.placements.get(key)
        if seen is None:
            return False
        return bool(seen.what.problem) or not any(one.owner == seen.uid for one in self._slices.get(key, {}).values())

    def _unwanted(self, key: PlacementKey) -> set[Work]:
        """What was made for a placement: some of it may go now."""
        return {
            Copy(mailbox, part)
            for mailbox, parts in self._copies.get(key, {}).items()
            for part in parts
            if not self.engine.is_wanted_by(key, mailbox, part)
        }

    # --- mailboxes and places ---------------------------------------------------------------------

    def on_workspace(self, name: str, workspace: Workspace | None) -> set[Work]:
        if not is_mailbox_name(name):
            return set()
        usable = workspace is not None and workspace.alive and workspace.ready and bool(workspace.target_name)
        cluster = workspace.cluster if workspace is not None and usable else ""
        before = self.mailboxes.get(name, "")
        if cluster == before:
            return set()
        if before:
            del self.mailboxes[name], self._names[before]
        if not cluster:
            return set()
        self.mailboxes[name], self._names[cluster] = cluster, name
        works: set[Work] = {Config(name), *(Copy(name, part) for part in self.engine.parts_at(name))}
        for part, seen in self.world.parts(cluster).items():
            works |= self._on_copy(name, part, None, seen)
        return works

    def mailbox_of(self, cluster: str) -> str | None:
        return self._names.get(cluster)

    def on_location(self, cluster: str, name: str, seen: SeenLocation | None) -> set[Work]:
        before = self.locations.pop((cluster, name), None)
        if seen is not None:
            self.locations[cluster, name] = seen
        if before == seen:
            return set()
        return {
            Copy(mailbox, part)
            for key, mailbox in self._led.get((cluster, name), ())
            for part in self._special.get(key.cluster, ())
            if part in self.engine.selected(key)
        }

    def on_customizer(self, cluster: str, name: str, customizer: Customizer | None) -> set[Work]:
        """`name`: with its namespace."""
        self.customizers.pop((cluster, name), None)
        if customizer is not None:
            self.customizers[cluster, name] = customizer
        concerned = [
            part
            for part in self._special.get(cluster, ())
            if (seen := self.world.get(cluster, part)) is not None and seen.customizer == name
        ]
        return {
            Copy(mailbox, part)
            for key in self.placements
            if key.cluster == cluster
            for part in concerned
            if part in self.engine.selected(key)
            for mailbox in self.engine.places(key)
        }

    # --- how much may go --------------------------------------------------------------------------

    def _reconsider(self, keys: Iterable[PlacementKey]) -> None:
        for key in list(keys):
            self._verdicts.pop(key, None)

    def verdict(self, key: PlacementKey) -> guard.Verdict[str, Part]:
        """What of a placement that is there may be withdrawn.  Decided once for each change of what it wants; what goes
        then makes no difference."""
        if key not in self._verdicts:
            copies = self._copies.get(key, {})
            losses = {
                mailbox: lost for mailbox, parts in copies.items() if (lost := set(self._lost(key, mailbox, parts)))
            }
            seen = self.placements.get(key)
            confirmed = seen is None or guard.is_confirmed(seen.annotations, seen.generation)
            self._verdicts[key] = guard.weigh(losses, len(copies), confirmed=confirmed, limits=self._limits)
        return self._verdicts[key]

    def _lost(self, key: PlacementKey, mailbox: str, parts: Iterable[Part]) -> Iterator[Part]:
        """What somebody deleted by name is meant to go."""
        for part in parts:
            if not self.engine.is_wanted_by(key, mailbox, part) and not self._was_deleted(key.cluster, part):
                yield part

    def _was_deleted(self, cluster: str, part: Part) -> bool:
        seen = self.world.get(cluster, part)
        if seen is not None:
            return not seen.alive
        return self.offers.source(cluster, part.kind) is not None

    # --- what to listen to ------------------------------------------------------------------------

    def sources(self) -> set[Source]:
        """Of kinds that matter: those that every workspace has, and those of workspaces with placements and of
        mailboxes."""
        clusters = {*self.engine.sources(), *self._names}
        return {*self.offers.builtin(), *(source for cluster in clusters for source in self.offers.of(cluster))}
