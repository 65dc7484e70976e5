"""Which tenants own the names in each mailbox.

The workspaces with the same parent are a family.  In a mailbox, a namespace with everything in it belongs to one
family, and so does each cluster-scoped object: the first family keeps it until all its copies there are deleted.
The name of a virtual machine belongs to one workspace, because machines cannot be merged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

import msgspec
import orjson

from farflung.apis.edge.names import ALLOW_SHARING, ALLOW_SYSTEM_NAMESPACES
from farflung.apis.globalscheduler.names import DELIVERY_PREFIX
from farflung.apis.kcp.names import TYPE_ANNOTATION
from farflung.placement.names import (
    BINDINGS,
    DEFINITIONS,
    KIND_IN_USE,
    NAME_IN_USE,
    NAMESPACE_IN_USE,
    NAMESPACE_RESERVED,
    NAMESPACES,
    PODS,
    GroupResource,
    ObjectRef,
    PlacementKey,
)
from farflung.placement.project import content_hash
from farflung.placement.types import CopyDestination, Location, ObservedObject, Placement

if TYPE_CHECKING:
    from farflung.placement.index import ObjectIndex, PlacementIndex, ServedKinds

HOME: Final = "root:home"  #: the WorkspaceType of home workspaces, whose parents depend on a hash of the user's name
ALONE: Final = "~"  #: prefix of the family of a workspace that has no family but itself
SHARED_KINDS: Final = frozenset({DEFINITIONS, BINDINGS})  #: of equal content, several families share an object
SYSTEM_NAMESPACES: Final = frozenset({"kube-system", "kube-public", "kube-node-lease"})
SYNCERS: Final = "farflung-syncer"  #: the namespaces of syncers have this name, or begin with it
YES: Final = "true"


class _Owner(msgspec.Struct, frozen=True):
    cluster: str = ""


class _Spec(msgspec.Struct, frozen=True):
    owner: _Owner | None = None


class _Annotations(msgspec.Struct, frozen=True):
    type: str = msgspec.field(default="", name=TYPE_ANNOTATION)


class _Metadata(msgspec.Struct, frozen=True):
    annotations: _Annotations = _Annotations()


class _LogicalCluster(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()
    spec: _Spec = _Spec()


_decode: Final = msgspec.json.Decoder(_LogicalCluster).decode


def parse_parent(document: bytes) -> str:
    """The parent of a LogicalCluster that gives it its family; empty: it has a family of its own."""
    found = _decode(document)
    parent = found.spec.owner.cluster if found.spec.owner is not None else ""
    return "" if found.metadata.annotations.type == HOME else parent


def family_of(cluster: str, parent: str) -> str:
    return parent or f"{ALONE}{cluster}"


def unit_of(ref: ObjectRef) -> ObjectRef:
    """What is kept as a whole: the namespace, or the cluster-scoped object."""
    return ObjectRef(NAMESPACES, "", ref.namespace) if ref.namespace else ref


def is_delivery(key: PlacementKey) -> bool:
    """Whether it is an EdgePlacement of the global scheduler, for machines."""
    return key.name.startswith(DELIVERY_PREFIX)


def is_reserved_for_syncers(unit: ObjectRef) -> bool:
    return unit.name == SYNCERS or unit.name.startswith(f"{SYNCERS}-")


def permissions_of(location: Location | None) -> tuple[bool, ...]:
    return tuple(allows(location, annotation) for annotation in (ALLOW_SHARING, ALLOW_SYSTEM_NAMESPACES))


def allows(location: Location | None, annotation: str) -> bool:
    return location is not None and location.annotations.get(annotation) == YES


class Keepers:
    def __init__(
        self,
        objects: ObjectIndex,
        selections: PlacementIndex,
        served_kinds: ServedKinds,
        placements: Mapping[PlacementKey, Placement],
        locations: Mapping[tuple[str, str], Location],
        mailboxes: Mapping[str, str],
    ) -> None:
        """All of them are kept up to date by their owner.  `mailboxes`: their logical clusters, by name."""
        self._objects = objects
        self._selections = selections
        self._served_kinds = served_kinds
        self._placements = placements
        self._locations = locations
        self._mailboxes = mailboxes
        self._family: dict[str, str] = {}  #: by cluster
        self._observed: dict[
            str, dict[ObjectRef, Counter[str]]
        ] = {}  #: families of copies, by cluster of a mailbox and unit
        self._marks: dict[str, dict[ObjectRef, tuple[str, ...]]] = {}  #: families of each copy, by cluster of a mailbox
        self._writing: Counter[tuple[str, ObjectRef]] = Counter()  #: creations in flight, by mailbox and unit
        self._claims: dict[tuple[str, ObjectRef], str] = {}  #: the families that began to create something, likewise
        self._contested: dict[str, bool] = {}  #: results of `is_contested`

    # --- families ---------------------------------------------------------------------------------

    def family(self, cluster: str) -> str | None:
        """None: not known yet."""
        return self._family.get(cluster)

    def set_parent(self, cluster: str, parent: str | None) -> bool:
        """Whether the family changed.  The family of a deleted workspace is kept while it has placements."""
        if parent is None and any(key.cluster == cluster for key in self._placements):
            return False
        family = None if parent is None else family_of(cluster, parent)
        if family == self._family.get(cluster):
            return False
        self._contested.clear()
        if family is None:
            del self._family[cluster]
        else:
            self._family[cluster] = family
        return True

    def families(self, keys: Iterable[PlacementKey]) -> tuple[str, ...]:
        """Sorted."""
        return tuple(sorted({family for key in keys if (family := self._family.get(key.cluster))}))

    def is_contested(self, mailbox: str) -> bool:
        """Whether several families have placements or copies there."""
        known = self._contested.get(mailbox)
        if known is None:
            families = {self._family.get(key.cluster) for key in self._selections.placements_at(mailbox)}
            for counts in self._observed.get(self._mailboxes.get(mailbox, ""), {}).values():
                if len(families) > 1:
                    break
                families |= counts.keys()
            known = self._contested[mailbox] = len(families) > 1
        return known

    def destinations_changed(self, mailbox: str) -> None:
        self._contested.pop(mailbox, None)

    # --- copies -----------------------------------------------------------------------------------

    def on_copy(self, mailbox: str, ref: ObjectRef, after: ObservedObject | None) -> bool:
        """A copy changed.  Whether the keeper of its unit may have changed."""
        cluster, now = self._mailboxes[mailbox], self._families_of(after)
        marks = self._marks.setdefault(cluster, {})
        left = marks.pop(ref, ())
        if not now and after is not None and after.ours:
            now = left  # another client removed them
        if now:
            marks[ref] = now
        if left == now:
            return False
        units = self._observed.setdefault(cluster, {})
        counts = units.setdefault(unit_of(ref), Counter())
        families = set(counts)
        counts.update(now)
        counts.subtract(left)
        for family in [family for family, number in counts.items() if number <= 0]:
            del counts[family]
        changed = set(counts) != families
        if not counts:
            del units[unit_of(ref)]
        if changed:
            self._contested.pop(mailbox, None)
        return changed

    def _families_of(self, seen: ObservedObject | None) -> tuple[str, ...]:
        """Of a copy; copies of earlier versions do not state them."""
        if seen is None or not seen.ours:
            return ()
        return seen.families or self.families(seen.placements)

    def forget_mailbox(self, mailbox: str, cluster: str) -> None:
        self._marks.pop(cluster, None)
        self._observed.pop(cluster, None)
        self._contested.pop(mailbox, None)

    # --- decisions --------------------------------------------------------------------------------

    def permits(self, mailbox: str, ref: ObjectRef, key: PlacementKey) -> bool:
        """Whether the family of a placement that selects or needs an object may have it in a mailbox.  False while the
        family is not known."""
        family = self._family.get(key.cluster)
        return family is not None and not self._problem(mailbox, ref, key, family)

    def refusal(self, mailbox: str, ref: ObjectRef, key: PlacementKey) -> str:
        """A reason of REASONS; empty if it is permitted or not decided yet."""
        family = self._family.get(key.cluster)
        return "" if family is None else self._problem(mailbox, ref, key, family)

    def kept_namespaces(self, mailbox: str, key: PlacementKey) -> set[str]:
        """Those with copies of the family of a placement."""
        units = self._observed.get(self._mailboxes.get(mailbox, ""), {})
        found = [unit for unit in units if unit.resource == NAMESPACES]
        return {unit.name for unit in found if self.keeper(mailbox, unit) == self._family.get(key.cluster)}

    def _problem(self, mailbox: str, ref: ObjectRef, key: PlacementKey, family: str) -> str:
        problem = self._family_problem(mailbox, ref, key, family)
        return problem or (NAME_IN_USE if ref.resource == PODS and self._has_namesake(mailbox, ref, key) else "")

    def _has_namesake(self, mailbox: str, ref: ObjectRef, key: PlacementKey) -> bool:
        """Whether the name is that of a machine of another workspace: of the one with the copy, else of the oldest."""
        copy = self._objects.get(self._mailboxes.get(mailbox, ""), ref)
        made_for = copy.placements if copy is not None and copy.ours else frozenset()
        others = [one for one in self._selections.holders(ref) if mailbox in self._selections.destinations(one)]
        if not any(is_delivery(one) for one in (*others, *made_for)):
            return False
        permitted = [
            one
            for one in others
            if (family := self._family.get(one.cluster)) and not self._family_problem(mailbox, ref, one, family)
        ]
        workspaces = {one.cluster for one in made_for or permitted}
        return min(workspaces, key=lambda one: self._source_age(one, ref), default=key.cluster) != key.cluster

    def _source_age(self, cluster: str, ref: ObjectRef) -> tuple[str, str]:
        seen = self._objects.get(cluster, ref)
        metadata = {} if seen is None else orjson.loads(seen.document)["metadata"]
        return metadata.get("creationTimestamp", "~"), metadata.get("uid", "")

    def _family_problem(self, mailbox: str, ref: ObjectRef, key: PlacementKey, family: str) -> str:
        if self._is_of_another_export(mailbox, ref.resource, key.cluster):
            return KIND_IN_USE
        unit = unit_of(ref)
        if self._is_reserved(mailbox, unit, key):
            return NAMESPACE_RESERVED
        if not self.is_contested(mailbox):
            return ""
        keeper = self.keeper(mailbox, unit)
        if keeper in ("", family) or self._is_shared(mailbox, unit, key, keeper):
            return ""
        if unit.resource in SHARED_KINDS and self._agrees(mailbox, unit, key, keeper):
            return ""
        return NAMESPACE_IN_USE if unit.resource == NAMESPACES else NAME_IN_USE

    def _is_of_another_export(self, mailbox: str, resource: GroupResource, workspace: str) -> bool:
        """Whether the mailbox and the workspace of a placement serve different kinds of this name: the owner of the
        other export could read the copies."""
        there = self._served_kinds.collection(self._mailboxes.get(mailbox, ""), resource)
        here = self._served_kinds.collection(workspace, resource)
        return there is not None and here is not None and there.identity != here.identity

    def _is_reserved(self, mailbox: str, unit: ObjectRef, key: PlacementKey) -> bool:
        if is_reserved_for_syncers(unit):
            return True
        return (
            unit.resource == NAMESPACES
            and unit.name in SYSTEM_NAMESPACES
            and not self._is_allowed(mailbox, key, ALLOW_SYSTEM_NAMESPACES)
        )

    def keeper(self, mailbox: str, unit: ObjectRef) -> str:
        """The family that keeps a unit: the one with copies there, else the one that is about to write, else the one
        with the oldest EdgePlacement.  Empty: none."""
        counts = self._observed.get(self._mailboxes.get(mailbox, ""), {}).get(unit)
        if counts:
            return next(iter(counts)) if len(counts) == 1 else self._oldest_copy(mailbox, unit, counts)
        holders = list(self._holders(mailbox, unit))
        families = {self._family.get(key.cluster) for key in holders}
        claim = self._claims.get((mailbox, unit))
        if claim is not None and (claim in families or self._writing.get((mailbox, unit))):
            return claim
        first = min((one for one in holders if one.cluster in self._family), key=self._age, default=None)
        return "" if first is None else self._family[first.cluster]

    def _oldest_copy(self, mailbox: str, unit: ObjectRef, counts: Counter[str]) -> str:
        """Only after sharing was allowed, or by copies of an earlier version."""
        cluster = self._mailboxes[mailbox]
        inside = self._objects.inside(cluster, unit.name) if unit.resource == NAMESPACES else ()
        copies = [seen for ref in (unit, *inside) if (seen := self._objects.get(cluster, ref)) and seen.ours]
        oldest = min(copies, key=lambda seen: (not self._families_of(seen), seen.created, seen.uid))
        families = set(self._families_of(oldest)) & counts.keys()
        holders = [key for key in self._holders(mailbox, unit) if self._family.get(key.cluster) in families]
        return self._family[min(holders, key=self._age).cluster] if holders else min(families or counts)

    def _holders(self, mailbox: str, unit: ObjectRef) -> Iterator[PlacementKey]:
        """The placements that select or need something of a unit in a mailbox."""
        for key in self._selections.holders(unit):
            has_source = unit.resource not in SHARED_KINDS or self._source(key, unit) is not None
            if has_source and mailbox in self._selections.destinations(key):
                yield key

    def _age(self, key: PlacementKey) -> tuple[str, str, PlacementKey]:
        seen = self._placements.get(key)
        return ("~", "", key) if seen is None else (seen.created, seen.uid, key)

    # --- sharing ----------------------------------------------------------------------------------

    def _is_shared(self, mailbox: str, unit: ObjectRef, key: PlacementKey, keeper: str) -> bool:
        """Whether the owner of the Locations, through which this placement and those of the keeper reach the mailbox,
        allows sharing."""
        if not self._is_allowed(mailbox, key, ALLOW_SHARING):
            return False
        others = [one for one in self._holders(mailbox, unit) if self._family.get(one.cluster) == keeper]
        if others:
            return all(self._is_allowed(mailbox, one, ALLOW_SHARING) for one in others)
        counts = self._observed.get(self._mailboxes.get(mailbox, ""), {}).get(unit, Counter())
        return self._family[key.cluster] in counts

    def _is_allowed(self, mailbox: str, key: PlacementKey, annotation: str) -> bool:
        destination: CopyDestination | None = self._selections.destinations(key).get(mailbox)
        return destination is not None and all(
            allows(self._locations.get((destination.cluster, name)), annotation) for name in destination.locations
        )

    def _agrees(self, mailbox: str, unit: ObjectRef, key: PlacementKey, keeper: str) -> bool:
        """Whether the source of a placement has the content of the copy, or of the keeper's source.  True without a
        source."""
        source = self._source(key, unit)
        if source is None:
            return True
        copy = self._objects.get(self._mailboxes.get(mailbox, ""), unit)
        if copy is not None and copy.ours:
            return _hash(source) == _hash(copy)
        others = (self._source(one, unit) for one in self._holders(mailbox, unit) if self._of(one) == keeper)
        return all(_hash(source) == _hash(one) for one in others if one is not None)

    def _of(self, key: PlacementKey) -> str | None:
        return self._family.get(key.cluster)

    def _source(self, key: PlacementKey, unit: ObjectRef) -> ObservedObject | None:
        seen = self._objects.get(key.cluster, unit)
        return seen if seen is not None and seen.alive and not seen.ours else None

    # --- writes -----------------------------------------------------------------------------------

    def begin_creation(self, mailbox: str, ref: ObjectRef, placements: Iterable[PlacementKey]) -> bool:
        """Keep the unit of a new copy for its family until `end_creation`.  False if another family keeps it by now."""
        unit, keys = unit_of(ref), sorted(placements)
        if not all(self.permits(mailbox, ref, key) for key in keys):
            return False
        self._claims[mailbox, unit] = (
            self.keeper(mailbox, unit) if self.is_contested(mailbox) else self._family[keys[0].cluster]
        )
        self._writing[mailbox, unit] += 1
        return True

    def end_creation(self, mailbox: str, ref: ObjectRef) -> bool:
        """Whether the unit has no keeper for the moment, so that other families may have it."""
        unit = unit_of(ref)
        self._writing[mailbox, unit] -= 1
        if self._writing[mailbox, unit]:
            return False
        del self._writing[mailbox, unit]
        if self._observed.get(self._mailboxes.get(mailbox, ""), {}).get(unit):
            del self._claims[mailbox, unit]
            return False
        if self._claims[mailbox, unit] in {self._of(key) for key in self._holders(mailbox, unit)}:
            return False  # it tries again
        del self._claims[mailbox, unit]
        return self.is_contested(mailbox)


def _hash(seen: ObservedObject) -> str:
    return content_hash(orjson.loads(seen.document))
