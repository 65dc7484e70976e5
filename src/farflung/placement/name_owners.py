"""Which tenants own the names in each mailbox.

The workspaces with the same parent are of one tenant.  In a mailbox, a namespace with everything in it belongs to one
tenant, and so does each cluster-scoped object: the first tenant owns it until all its copies there are deleted.
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
    located,
)
from farflung.placement.project import content_hash
from farflung.placement.types import CopyDestination, Location, ObservedObject, Placement

if TYPE_CHECKING:
    from farflung.placement.index import CopyKey, ObjectIndex, PlacementIndex, ServedKinds

HOME: Final = "root:home"  #: the WorkspaceType of home workspaces, whose parents depend on a hash of the user's name
ALONE: Final = "~"  #: prefix of the tenant of a workspace that is a tenant of its own
SHARED_KINDS: Final = frozenset({DEFINITIONS, BINDINGS})  #: of equal content, several tenants share an object
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
    """The parent of a LogicalCluster, by which its tenant is named; empty: the workspace is a tenant of its own."""
    found = _decode(document)
    parent = found.spec.owner.cluster if found.spec.owner is not None else ""
    return "" if found.metadata.annotations.type == HOME else parent


def tenant_of(cluster: str, parent: str) -> str:
    return parent or f"{ALONE}{cluster}"


def owned_scope(ref: ObjectRef) -> ObjectRef:
    """What one tenant owns as a whole: the namespace, or the cluster-scoped object."""
    return ObjectRef(NAMESPACES, "", ref.namespace) if ref.namespace else ref


def is_delivery(key: PlacementKey) -> bool:
    """Whether it is an EdgePlacement of the global scheduler, for machines."""
    return key.name.startswith(DELIVERY_PREFIX)


def is_reserved_for_syncers(scope: ObjectRef) -> bool:
    return scope.name == SYNCERS or scope.name.startswith(f"{SYNCERS}-")


def permissions_of(location: Location | None) -> tuple[bool, ...]:
    return tuple(allows(location, annotation) for annotation in (ALLOW_SHARING, ALLOW_SYSTEM_NAMESPACES))


def allows(location: Location | None, annotation: str) -> bool:
    return location is not None and location.annotations.get(annotation) == YES


def refusal_message(copy: CopyKey, reason: str, destination: CopyDestination) -> str:
    """Names only objects of the placement's own workspace, and its Location."""
    own = located(copy.ref, copy.mailbox)
    if reason == KIND_IN_USE:
        return (
            f"{own}the mailbox of the Location {destination.location} serves {copy.ref.resource} of "
            "another APIExport, so nothing is copied (bind the APIExport that the other workspaces placed there bind)"
        )
    if reason == NAME_IN_USE and copy.ref.namespace:
        return (
            f"{own}the name at the Location {destination.location} is used by a virtual machine of "
            "another workspace, so it is not copied (rename it)"
        )
    scope = owned_scope(copy.ref)
    kind = "namespace" if scope.resource == NAMESPACES else "name"
    what = f"{located(scope, copy.mailbox)}the {kind} at the Location {destination.location}"
    if reason == NAMESPACE_RESERVED:
        return f"{what} is reserved for the cluster itself, so nothing is copied (rename it)"
    return (
        f"{what} is used by a workspace with another parent, so nothing is copied (rename "
        f'it, or ask the owner of the Location to allow sharing with the annotation {ALLOW_SHARING}: "true")'
    )


class NameOwners:
    def __init__(
        self,
        objects: ObjectIndex,
        selections: PlacementIndex,
        served_kinds: ServedKinds,
        placements: Mapping[PlacementKey, Placement],
        locations: Mapping[tuple[str, str], Location],
        mailboxes: Mapping[str, str],
    ) -> None:
        """The caller keeps all of them up to date.  `mailboxes`: their logical clusters, by name."""
        self._objects = objects
        self._selections = selections
        self._served_kinds = served_kinds
        self._placements = placements
        self._locations = locations
        self._mailboxes = mailboxes
        self._tenant: dict[str, str] = {}  #: by cluster
        self._observed: dict[
            str, dict[ObjectRef, Counter[str]]
        ] = {}  #: tenants of copies, by cluster of a mailbox and scope
        self._copy_tenants: dict[
            str, dict[ObjectRef, tuple[str, ...]]
        ] = {}  #: tenants of each copy, by cluster of a mailbox
        self._writing: Counter[tuple[str, ObjectRef]] = Counter()  #: creations in flight, by mailbox and scope
        self._claims: dict[tuple[str, ObjectRef], str] = {}  #: the tenants that began to create something, likewise
        self._contested: dict[str, bool] = {}  #: results of `is_contested`

    # --- tenants ---------------------------------------------------------------------------------

    def tenant(self, cluster: str) -> str | None:
        """None: not known yet."""
        return self._tenant.get(cluster)

    def set_parent(self, cluster: str, parent: str | None) -> bool:
        """Whether the tenant changed.  The tenant of a deleted workspace is kept while it has placements."""
        if parent is None and any(key.cluster == cluster for key in self._placements):
            return False
        tenant = None if parent is None else tenant_of(cluster, parent)
        if tenant == self._tenant.get(cluster):
            return False
        self._contested.clear()
        if tenant is None:
            del self._tenant[cluster]
        else:
            self._tenant[cluster] = tenant
        return True

    def tenants(self, keys: Iterable[PlacementKey]) -> tuple[str, ...]:
        """Sorted."""
        return tuple(sorted({tenant for key in keys if (tenant := self._tenant.get(key.cluster))}))

    def is_contested(self, mailbox: str) -> bool:
        """Whether several tenants have placements or copies there."""
        known = self._contested.get(mailbox)
        if known is None:
            tenants = {self._tenant.get(key.cluster) for key in self._selections.placements_at(mailbox)}
            for counts in self._observed.get(self._mailboxes.get(mailbox, ""), {}).values():
                if len(tenants) > 1:
                    break
                tenants |= counts.keys()
            known = self._contested[mailbox] = len(tenants) > 1
        return known

    def destinations_changed(self, mailbox: str) -> None:
        self._contested.pop(mailbox, None)

    # --- copies -----------------------------------------------------------------------------------

    def on_copy(self, mailbox: str, ref: ObjectRef, after: ObservedObject | None) -> bool:
        """A copy changed.  Whether the owner of its scope may have changed."""
        cluster, now = self._mailboxes[mailbox], self._tenants_of(after)
        marks = self._copy_tenants.setdefault(cluster, {})
        left = marks.pop(ref, ())
        if not now and after is not None and after.ours:
            now = left  # another client removed them
        if now:
            marks[ref] = now
        if left == now:
            return False
        scopes = self._observed.setdefault(cluster, {})
        counts = scopes.setdefault(owned_scope(ref), Counter())
        tenants = set(counts)
        counts.update(now)
        counts.subtract(left)
        for tenant in [tenant for tenant, number in counts.items() if number <= 0]:
            del counts[tenant]
        changed = set(counts) != tenants
        if not counts:
            del scopes[owned_scope(ref)]
        if changed:
            self._contested.pop(mailbox, None)
        return changed

    def _tenants_of(self, seen: ObservedObject | None) -> tuple[str, ...]:
        """Of a copy; copies of earlier versions do not state them."""
        if seen is None or not seen.ours:
            return ()
        return seen.tenants or self.tenants(seen.placements)

    def forget_mailbox(self, mailbox: str, cluster: str) -> None:
        self._copy_tenants.pop(cluster, None)
        self._observed.pop(cluster, None)
        self._contested.pop(mailbox, None)

    # --- decisions --------------------------------------------------------------------------------

    def permits(self, mailbox: str, ref: ObjectRef, key: PlacementKey) -> bool:
        """Whether the tenant of a placement that selects or needs an object may have it in a mailbox.  False while the
        tenant is not known."""
        tenant = self._tenant.get(key.cluster)
        return tenant is not None and not self._problem(mailbox, ref, key, tenant)

    def refusal(self, mailbox: str, ref: ObjectRef, key: PlacementKey) -> str:
        """A reason of REASONS; empty if it is permitted or not decided yet."""
        tenant = self._tenant.get(key.cluster)
        return "" if tenant is None else self._problem(mailbox, ref, key, tenant)

    def owned_namespaces(self, mailbox: str, key: PlacementKey) -> set[str]:
        """Those with copies of the tenant of a placement."""
        scopes = self._observed.get(self._mailboxes.get(mailbox, ""), {})
        found = [scope for scope in scopes if scope.resource == NAMESPACES]
        return {scope.name for scope in found if self.owner(mailbox, scope) == self._tenant.get(key.cluster)}

    def _problem(self, mailbox: str, ref: ObjectRef, key: PlacementKey, tenant: str) -> str:
        problem = self._tenant_problem(mailbox, ref, key, tenant)
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
            if (tenant := self._tenant.get(one.cluster)) and not self._tenant_problem(mailbox, ref, one, tenant)
        ]
        workspaces = {one.cluster for one in made_for or permitted}
        return min(workspaces, key=lambda one: self._source_age(one, ref), default=key.cluster) != key.cluster

    def _source_age(self, cluster: str, ref: ObjectRef) -> tuple[str, str]:
        seen = self._objects.get(cluster, ref)
        metadata = {} if seen is None else orjson.loads(seen.document)["metadata"]
        return metadata.get("creationTimestamp", "~"), metadata.get("uid", "")

    def _tenant_problem(self, mailbox: str, ref: ObjectRef, key: PlacementKey, tenant: str) -> str:
        if self._is_of_another_export(mailbox, ref.resource, key.cluster):
            return KIND_IN_USE
        scope = owned_scope(ref)
        if self._is_reserved(mailbox, scope, key):
            return NAMESPACE_RESERVED
        if not self.is_contested(mailbox):
            return ""
        owner = self.owner(mailbox, scope)
        if owner in ("", tenant) or self._is_shared(mailbox, scope, key, owner):
            return ""
        if scope.resource in SHARED_KINDS and self._agrees(mailbox, scope, key, owner):
            return ""
        return NAMESPACE_IN_USE if scope.resource == NAMESPACES else NAME_IN_USE

    def _is_of_another_export(self, mailbox: str, resource: GroupResource, workspace: str) -> bool:
        """Whether the mailbox and the workspace of a placement serve different kinds of this name: the owner of the
        other export could read the copies."""
        there = self._served_kinds.collection(self._mailboxes.get(mailbox, ""), resource)
        here = self._served_kinds.collection(workspace, resource)
        return there is not None and here is not None and there.identity != here.identity

    def _is_reserved(self, mailbox: str, scope: ObjectRef, key: PlacementKey) -> bool:
        if is_reserved_for_syncers(scope):
            return True
        return (
            scope.resource == NAMESPACES
            and scope.name in SYSTEM_NAMESPACES
            and not self._is_allowed(mailbox, key, ALLOW_SYSTEM_NAMESPACES)
        )

    def owner(self, mailbox: str, scope: ObjectRef) -> str:
        """The tenant that owns a scope: the one with copies there, else the one that is about to write, else the one
        with the oldest EdgePlacement.  Empty: none."""
        counts = self._observed.get(self._mailboxes.get(mailbox, ""), {}).get(scope)
        if counts:
            return next(iter(counts)) if len(counts) == 1 else self._oldest_copy(mailbox, scope, counts)
        holders = list(self._holders(mailbox, scope))
        tenants = {self._tenant.get(key.cluster) for key in holders}
        claim = self._claims.get((mailbox, scope))
        if claim is not None and (claim in tenants or self._writing.get((mailbox, scope))):
            return claim
        first = min((one for one in holders if one.cluster in self._tenant), key=self._age, default=None)
        return "" if first is None else self._tenant[first.cluster]

    def _oldest_copy(self, mailbox: str, scope: ObjectRef, counts: Counter[str]) -> str:
        """Only after sharing was allowed, or by copies of an earlier version."""
        cluster = self._mailboxes[mailbox]
        inside = self._objects.inside(cluster, scope.name) if scope.resource == NAMESPACES else ()
        copies = [seen for ref in (scope, *inside) if (seen := self._objects.get(cluster, ref)) and seen.ours]
        oldest = min(copies, key=lambda seen: (not self._tenants_of(seen), seen.created, seen.uid))
        tenants = set(self._tenants_of(oldest)) & counts.keys()
        holders = [key for key in self._holders(mailbox, scope) if self._tenant.get(key.cluster) in tenants]
        return self._tenant[min(holders, key=self._age).cluster] if holders else min(tenants or counts)

    def _holders(self, mailbox: str, scope: ObjectRef) -> Iterator[PlacementKey]:
        """The placements that select or need something of a scope in a mailbox."""
        for key in self._selections.holders(scope):
            has_source = scope.resource not in SHARED_KINDS or self._source(key, scope) is not None
            if has_source and mailbox in self._selections.destinations(key):
                yield key

    def _age(self, key: PlacementKey) -> tuple[str, str, PlacementKey]:
        seen = self._placements.get(key)
        return ("~", "", key) if seen is None else (seen.created, seen.uid, key)

    # --- sharing ----------------------------------------------------------------------------------

    def _is_shared(self, mailbox: str, scope: ObjectRef, key: PlacementKey, owner: str) -> bool:
        """Whether the Locations, through which this placement and those of the owning tenant reach the mailbox, allow
        sharing."""
        if not self._is_allowed(mailbox, key, ALLOW_SHARING):
            return False
        others = [one for one in self._holders(mailbox, scope) if self._tenant.get(one.cluster) == owner]
        if others:
            return all(self._is_allowed(mailbox, one, ALLOW_SHARING) for one in others)
        counts = self._observed.get(self._mailboxes.get(mailbox, ""), {}).get(scope, Counter())
        return self._tenant[key.cluster] in counts

    def _is_allowed(self, mailbox: str, key: PlacementKey, annotation: str) -> bool:
        destination: CopyDestination | None = self._selections.destinations(key).get(mailbox)
        return destination is not None and all(
            allows(self._locations.get((destination.cluster, name)), annotation) for name in destination.locations
        )

    def _agrees(self, mailbox: str, scope: ObjectRef, key: PlacementKey, owner: str) -> bool:
        """Whether the source of a placement has the content of the copy, or of the source of the owning tenant.  True
        without a source."""
        source = self._source(key, scope)
        if source is None:
            return True
        copy = self._objects.get(self._mailboxes.get(mailbox, ""), scope)
        if copy is not None and copy.ours:
            return _hash(source) == _hash(copy)
        others = (self._source(one, scope) for one in self._holders(mailbox, scope) if self._of(one) == owner)
        return all(_hash(source) == _hash(one) for one in others if one is not None)

    def _of(self, key: PlacementKey) -> str | None:
        return self._tenant.get(key.cluster)

    def _source(self, key: PlacementKey, scope: ObjectRef) -> ObservedObject | None:
        seen = self._objects.get(key.cluster, scope)
        return seen if seen is not None and not seen.is_terminating and not seen.ours else None

    # --- writes -----------------------------------------------------------------------------------

    def begin_creation(self, mailbox: str, ref: ObjectRef, placements: Iterable[PlacementKey]) -> bool:
        """Claim the scope of a new copy for its tenant until `end_creation`.  False if another tenant owns it."""
        scope, keys = owned_scope(ref), sorted(placements)
        if not all(self.permits(mailbox, ref, key) for key in keys):
            return False
        self._claims[mailbox, scope] = (
            self.owner(mailbox, scope) if self.is_contested(mailbox) else self._tenant[keys[0].cluster]
        )
        self._writing[mailbox, scope] += 1
        return True

    def end_creation(self, mailbox: str, ref: ObjectRef) -> bool:
        """Whether the scope has no owner for the moment, so that other tenants may have it."""
        scope = owned_scope(ref)
        self._writing[mailbox, scope] -= 1
        if self._writing[mailbox, scope]:
            return False
        del self._writing[mailbox, scope]
        if self._observed.get(self._mailboxes.get(mailbox, ""), {}).get(scope):
            del self._claims[mailbox, scope]
            return False
        if self._claims[mailbox, scope] in {self._of(key) for key in self._holders(mailbox, scope)}:
            return False  # it tries again
        del self._claims[mailbox, scope]
        return self.is_contested(mailbox)


def _hash(seen: ObservedObject) -> str:
    return content_hash(orjson.loads(seen.document))
