"""The kinds that each cluster serves: built-in ones, and those of its CustomResourceDefinitions and APIBindings.

Clusters without definitions share one `ClusterKinds`.  When definitions change, the cluster gets another one; running
requests finish with the former.  The store reports a commit before its writer gets a response, so a new definition is
served at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple
from weakref import WeakValueDictionary

from farflung.apis.builtin.catalog import Catalog, Path
from farflung.apis.resource import Resource
from farflung.hub.catalog import objects
from farflung.hub.catalog.custom_kinds import Definition, decoded_definition, is_established
from farflung.hub.catalog.discovery import Documents
from farflung.hub.catalog.kinds import Kind, Shape, builtin_kind, shape_of
from farflung.hub.request.target import Target
from farflung.machinery.errors import Obj
from farflung.store.base import Change, Entry, Revision, Store

if TYPE_CHECKING:  # loaded for the first request for OpenAPI documents
    from farflung.hub.catalog.openapi.handler import DocumentCache, OpenAPI
    from farflung.hub.catalog.openapi.schemas import Own

#: cluster, group and plural of a resource
Changed = tuple[str, str, str]

Definitions = tuple[Definition, ...]


class ExtendedKind(NamedTuple):
    """A built-in kind with further fields."""

    kind: Callable[[], Kind]
    openapi: Callable[[], Own]  #: its definitions, by name


NONE_EXTENDED: Final[Mapping[Path, ExtendedKind]] = {}


class ClusterKinds:
    """The kinds of one cluster, each compiled when it is first used, and the documents that describe them."""

    def __init__(
        self,
        resources: Iterable[Resource],
        definitions: Iterable[Definition] = (),
        base: ClusterKinds | None = None,
        *,
        open_ended: bool = False,
        extended: Mapping[Path, ExtendedKind] = NONE_EXTENDED,
    ) -> None:
        """`base`: has the kinds and documents of the built-in resources, to share them; `open_ended`: kinds may be
        added by APIBindings; `extended`: built-in kinds with further fields."""
        self._base = base
        self._open_ended: bool = base._open_ended if base else open_ended
        self._extended: Mapping[Path, ExtendedKind] = base._extended if base else extended
        self._definitions: Mapping[Path, Definition] = {
            path_of(resource): definition for definition in definitions for resource in definition.resources
        }
        own = [resource for one in dict.fromkeys(self._definitions.values()) for resource in one.resources]
        self.catalog = Catalog([*own, *resources])
        self._kinds: dict[Path, Kind] = {}

    def find(self, group: str, version: str, plural: str) -> Kind | None:
        path = (group, version, plural)
        kind = self._kinds.get(path)
        if kind is None:
            kind = self._made(path)
            if kind is not None:
                self._kinds[path] = kind
        return kind

    def of(self, group: str, version: str, plural: str) -> Kind:
        """The kind of a resource that is always served."""
        kind = self.find(group, version, plural)
        assert kind is not None, f"{plural}.{group}/{version} is not served"
        return kind

    def _made(self, path: Path) -> Kind | None:
        if definition := self._definitions.get(path):
            return definition.kind(path[1])
        resource = self.catalog.find(*path)
        if resource is None:
            return None
        if self._base is None:
            return self._extended[path].kind() if path in self._extended else builtin_kind(resource, self.catalog)
        kind = self._base.find(*path)
        return kind if kind is None or kind.resource is resource else replace(kind, resource=resource)

    @property
    def definitions(self) -> Iterable[Definition]:
        """The definitions of its custom resources."""
        return dict.fromkeys(self._definitions.values())

    def of_type(self, api_version: str, kind: str) -> Kind | None:
        """The kind of a type; None if it is not served."""
        resource = self._types.get((api_version, kind))
        return None if resource is None else self.find(*path_of(resource))

    def shape(self, api_version: str, kind: str) -> Shape | None:
        """The shape of a type; None if it is not served."""
        resource = self._types.get((api_version, kind))
        if resource is None:
            return None
        definition = self._definitions.get(path_of(resource))
        if definition is not None:
            return definition.shape(resource.version)
        extended = self._extended.get(path_of(resource))
        return shape_of(resource) if extended is None else extended.kind().shape

    @cached_property
    def _types(self) -> Mapping[tuple[str, str], Resource]:
        return {(resource.api_version, resource.kind): resource for resource in self.catalog}

    @cached_property
    def documents(self) -> Documents:
        return Documents(self.catalog, open_ended=self._open_ended)

    @cached_property
    def _shelf(self) -> DocumentCache:
        from farflung.hub.catalog.openapi.handler import DocumentCache

        return DocumentCache() if self._base is None else self._base._shelf

    @cached_property
    def openapi(self) -> OpenAPI:
        from farflung.hub.catalog.openapi.handler import OpenAPI

        sources = [*self.definitions, *(self._base.definitions if self._base else ())]
        return OpenAPI(self.catalog, self._openapi_of, self._shelf, sources)

    def _openapi_of(self, resource: Resource) -> Own:
        if extended := self._extended.get(path_of(resource)):
            return extended.openapi()
        definition = self._definitions.get(path_of(resource))
        if definition is None:
            return {} if self._base is None else self._base._openapi_of(resource)
        return definition.openapi(resource.version)


def path_of(resource: Resource) -> Path:
    return resource.group, resource.version, resource.plural


class Kinds:
    """The kinds of all clusters."""

    def __init__(self, builtin: ClusterKinds) -> None:
        self.builtin = builtin  #: served by every cluster
        self._clusters: dict[str, ClusterKinds] = {}
        self._own: dict[str, Definitions] = {}  #: by CustomResourceDefinitions of the cluster
        self._bound: dict[str, Definitions] = {}  #: by APIBindings of the cluster
        #: shared by all clusters with exactly these definitions
        self._shared: WeakValueDictionary[Definitions, ClusterKinds] = WeakValueDictionary()
        nothing = ClusterKinds(())
        self._views: Callable[[str], ClusterKinds] = lambda view: nothing
        self._identified: Callable[[Target], Kind | None] = lambda target: None
        self._listeners: list[Callable[[Iterable[Changed]], None]] = []

    def of(self, cluster: str) -> ClusterKinds:
        return self._clusters.get(cluster, self.builtin)

    @property
    def clusters(self) -> Iterable[str]:
        """Clusters that serve more than the built-in kinds."""
        return tuple(self._clusters)

    def bound_names(self, cluster: str, group: str) -> list[Obj]:
        """The names of the kinds of a group that a cluster serves by APIBindings, as in their definitions."""
        return [one.named for one in self.of(cluster).definitions if one.group == group and one.is_bound]

    def at(self, cluster: str, view: str = "") -> ClusterKinds:
        """The kinds of a cluster, or of a view."""
        return self._views(view) if view else self.of(cluster)

    def find(self, target: Target) -> Kind | None:
        if ":" in target.plural:
            return None if target.view else self._identified(target)
        return self.at(target.cluster, target.view).find(target.group, target.version, target.plural)

    def serve(self, cluster: str, definitions: Iterable[Definition], changed: Iterable[Changed]) -> None:
        """Serve these definitions of the cluster's own beside the built-in kinds.  `changed`: the added, removed and
        redefined resources."""
        self._follow(self._own, cluster, definitions, changed)

    def bind(self, cluster: str, definitions: Iterable[Definition], changed: Iterable[Changed]) -> None:
        """Serve these definitions by APIBindings.  They take precedence over the cluster's own."""
        self._follow(self._bound, cluster, definitions, changed)

    def _follow(
        self,
        layer: dict[str, Definitions],
        cluster: str,
        definitions: Iterable[Definition],
        changed: Iterable[Changed],
    ) -> None:
        if found := tuple(definitions):
            layer[cluster] = found
        else:
            layer.pop(cluster, None)
        bound, own = self._bound.get(cluster, ()), self._own.get(cluster, ())
        taken = {(one.group, one.plural) for one in bound}
        together = (*bound, *(one for one in own if (one.group, one.plural) not in taken))
        if together:
            self._clusters[cluster] = self._serving(together)
        else:
            self._clusters.pop(cluster, None)
        changed = tuple(changed)
        for listener in self._listeners:
            listener(changed)

    def _serving(self, definitions: Definitions) -> ClusterKinds:
        ordered = tuple(sorted(definitions, key=lambda one: (one.group, one.plural)))
        served = self._shared.get(ordered)
        if served is None:
            served = self._shared[ordered] = ClusterKinds(self.builtin.catalog, ordered, self.builtin)
        return served

    def set_views(self, views: Callable[[str], ClusterKinds]) -> None:
        """Set the function from a view to its kinds."""
        self._views = views

    def set_identity_lookup(self, find: Callable[[Target], Kind | None]) -> None:
        """Set the function that finds kinds by a plural with a colon and the identity of an APIExport."""
        self._identified = find

    def subscribe(self, listener: Callable[[Iterable[Changed]], None]) -> None:
        """The listener is called with the changed resources, at once."""
        self._listeners.append(listener)


DEFINITIONS: Final = "/apiextensions.k8s.io/customresourcedefinitions/"


def kinds_in(store: Store, builtin: ClusterKinds) -> Kinds:
    """The kinds of every cluster of a store, which follow its CustomResourceDefinitions."""
    kinds = Kinds(builtin)
    DefinitionFollower(store, kinds).start()
    return kinds


class DefinitionFollower:
    """Serves the established CustomResourceDefinitions of each cluster."""

    def __init__(self, store: Store, kinds: Kinds) -> None:
        self._store = store
        self._kinds = kinds
        self._served: dict[str, dict[str, Definition]] = {}  #: cluster → key of a definition → the served definition
        #: definitions cannot replace built-in kinds
        self._builtin = frozenset((one.group, one.plural) for one in kinds.builtin.catalog)

    def start(self) -> None:
        """Serve the stored definitions, and follow their changes."""
        self._store.subscribe(DEFINITIONS, self._on_changes)
        present = ((entry.key, entry) for entry in self._store.list(DEFINITIONS).entries)
        for cluster, entries in by_cluster(present).items():
            # the last change of a definition is not newer than its revision
            newest = max(entry.revision for _, entry in entries if entry is not None)
            self._follow(cluster, entries, unchanged_since=newest)

    def _on_changes(self, changes: Sequence[Change]) -> None:
        for cluster, entries in by_cluster((change.key, change.entry) for change in changes).items():
            self._follow(cluster, entries, unchanged_since=self._store.last_assigned)

    def _follow(self, cluster: str, entries: Iterable[tuple[str, Entry | None]], *, unchanged_since: Revision) -> None:
        """`unchanged_since`: objects of later revisions were written under the current definitions."""
        served = self._served.setdefault(cluster, {})
        changed: set[Changed] = set()
        for key, entry in entries:
            before = served.pop(key, None)
            after = None if entry is None else followed(entry, before, unchanged_since)
            if after is not None and (after.group, after.plural) in self._builtin:
                after = None
            if after is not None:
                served[key] = after
            if after is not before:
                changed.update((cluster, one.group, one.plural) for one in (before, after) if one is not None)
        if not served:
            del self._served[cluster]
        self._kinds.serve(cluster, served.values(), changed)


def by_cluster(entries: Iterable[tuple[str, Entry | None]]) -> dict[str, list[tuple[str, Entry | None]]]:
    """Keys and entries, by cluster."""
    found: dict[str, list[tuple[str, Entry | None]]] = {}
    for key, entry in entries:
        found.setdefault(objects.cluster_in(key), []).append((key, entry))
    return found


def followed(entry: Entry, before: Definition | None, unchanged_since: Revision) -> Definition | None:
    """The definition to serve, the same object as before if nothing changed; None if it is not established."""
    definition = objects.decode(entry)
    if not is_established(definition):
        return None
    after = decoded_definition(definition, entry.value, unchanged_since)
    return before if before is not None and before.has_same_source(after) else after
