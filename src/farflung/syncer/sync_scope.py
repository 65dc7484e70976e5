"""What the SyncerConfigs and EdgeSyncConfigs of a mailbox select for downsync and upsync.

scope = read_scope(configs, kinds)
scope.resources                              kinds to watch in the mailbox → version of the API
scope.covers(ref)                            whether a copy is selected for downsync
scope.upsyncs(kind, namespace, name)         whether an object of the edge is selected for upsync
scope.problems, scope.unknown                invalid parts, and kinds that no side serves

All configurations add up.  Users may write them by hand: invalid parts are listed in `problems`, and the rest
counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from farflung.machinery.errors import Obj
from farflung.machinery.names import version_order
from farflung.placement.names import NAMESPACES, GroupResource, ObjectRef
from farflung.placement.syncer_config import ANY, ConfigFields, SyncerSpec, read_syncer_spec

KindLookup = Callable[[str, str], tuple[str, bool] | None]  #: group and kind → plural, and whether it is namespaced

MAX_PROBLEMS: Final = 50  #: in a list of problems
LONGEST_TITLE: Final = 300  #: characters of a configuration's kind and name
_NOTHING: Final[frozenset[str]] = frozenset()


class UpsyncSelector(NamedTuple):
    """Selects objects of the edge.  Each list may contain `*`; a cluster-scoped object fits any namespaces."""

    group: str
    resources: frozenset[str]
    namespaces: frozenset[str]
    names: frozenset[str]

    def has(self, namespace: str, name: str) -> bool:
        """Whether it selects an object of one of its kinds."""
        inside = not namespace or namespace in self.namespaces or ANY in self.namespaces
        return inside and (name in self.names or ANY in self.names)

    def order(self) -> tuple[str, list[str], list[str], list[str]]:
        return self.group, sorted(self.resources), sorted(self.namespaces), sorted(self.names)


@dataclass(frozen=True, slots=True)
class SyncScope:
    resources: Mapping[GroupResource, str]  #: to watch in the mailbox → version; empty: any
    upsync: tuple[UpsyncSelector, ...] = ()  #: sorted, without empty ones
    unknown: tuple[tuple[str, str], ...] = ()  #: groups and kinds without a plural, sorted
    problems: tuple[str, ...] = ()  #: sentences, sorted
    _whole: Mapping[GroupResource, tuple[frozenset[str], ...]] = field(default_factory=dict)  #: namespaces
    _refs: frozenset[ObjectRef] = frozenset()  #: single objects; a namespace or a name may be `*`
    _namespaces: frozenset[str] = _NOTHING  #: namespaces of selected objects
    _upsync: Mapping[GroupResource, tuple[UpsyncSelector, ...]] = field(default_factory=dict)

    def covers(self, ref: ObjectRef) -> bool:
        """Whether a copy is selected for downsync."""
        resource, namespace, name = ref
        if ref in self._refs or ObjectRef(resource, namespace, ANY) in self._refs:
            return True
        if resource == NAMESPACES:
            return not namespace and (name in self._namespaces or ANY in self._namespaces)
        if not namespace:
            return False
        if any(namespace in some or ANY in some for some in self._whole.get(resource, ())):
            return True
        return ObjectRef(resource, ANY, name) in self._refs or ObjectRef(resource, ANY, ANY) in self._refs

    def upsyncs(self, resource: GroupResource, namespace: str, name: str) -> bool:
        """Whether an object of the edge is selected for upsync."""
        return any(one.has(namespace, name) for one in self._sets(resource))

    def may_upsync(self, resource: GroupResource) -> bool:
        """Whether any object of the kind may be."""
        return next(self._sets(resource), None) is not None

    def _sets(self, resource: GroupResource) -> Iterator[UpsyncSelector]:
        yield from self._upsync.get(resource, ())
        yield from self._upsync.get(GroupResource(resource.group, ANY), ())


def read_scope(configs: Iterable[Obj], kinds: KindLookup) -> SyncScope:
    """Independent of the order of the configurations.  Never raises."""
    reader = _ScopeReader(kinds)
    for config in configs:
        reader.add(config)
    return reader.result()


class _ScopeReader:
    def __init__(self, kinds: KindLookup) -> None:
        self._kinds = kinds
        self._versions: dict[GroupResource, str] = {}
        self._whole: dict[GroupResource, set[frozenset[str]]] = {}
        self._refs: set[ObjectRef] = set()
        self._namespaces: set[str] = set()
        self._upsync: dict[tuple[str, frozenset[str], frozenset[str]], set[str]] = {}
        self._unknown: set[tuple[str, str]] = set()
        self._problems: set[str] = set()
        self._config = ""
        self._fields = ConfigFields(lambda where, what: self._problems.add(f"{self._config}: {where} {what}"))

    def result(self) -> SyncScope:
        if self._namespaces:
            self._watch(NAMESPACES, "v1")
        upsync = sorted(
            (UpsyncSelector(*key, frozenset(names)) for key, names in self._upsync.items()), key=UpsyncSelector.order
        )
        by_resource: dict[GroupResource, list[UpsyncSelector]] = {}
        for one in upsync:
            for plural in one.resources:
                by_resource.setdefault(GroupResource(one.group, plural), []).append(one)
        problems, left = sorted(self._problems), len(self._problems) - MAX_PROBLEMS
        return SyncScope(
            MappingProxyType(dict(sorted(self._versions.items()))),
            tuple(upsync),
            tuple(sorted(self._unknown)),
            tuple(problems) if left <= 0 else (*problems[:MAX_PROBLEMS], f"… and {left} more"),
            {resource: tuple(sorted(some, key=sorted)) for resource, some in self._whole.items()},
            frozenset(self._refs),
            frozenset(self._namespaces),
            {resource: tuple(some) for resource, some in by_resource.items()},
        )

    def add(self, config: Any) -> None:
        config = config if isinstance(config, dict) else {}
        self._config = _title(config)
        spec = self._fields.map(config, "spec", "")
        self._add_syncer_spec(read_syncer_spec(spec, self._fields))
        for where, one in self._fields.maps(spec, "downSyncedResources", "spec."):
            self._add_downsynced(where, one)
        for where, one in self._fields.maps(spec, "upSyncedResources", "spec."):
            self._add_upsynced(where, one)

    def _add_syncer_spec(self, spec: SyncerSpec) -> None:
        self._namespaces |= spec.namespaces
        for resource in spec.resources if spec.namespaces else ():
            self._watch(resource, spec.versions.get(resource, ""))
            self._whole.setdefault(resource, set()).add(spec.namespaces)
        for ref in spec.refs:
            self._select(ref, spec.versions.get(ref.resource, ""))
        for one in spec.upsync:
            if one.resources and one.names:
                key = one.group, frozenset(one.resources), frozenset(one.namespaces)
                self._upsync.setdefault(key, set()).update(one.names)

    # --- EdgeSyncConfigs --------------------------------------------------------------------------

    def _add_downsynced(self, where: str, one: Obj) -> None:
        ref = self._named_object(where, one)
        version = self._fields.version(where, one, "version")
        if ref and version is not None:
            self._select(ref, version)

    def _add_upsynced(self, where: str, one: Obj) -> None:
        if ref := self._named_object(where, one):
            namespaces = frozenset([ref.namespace]) if ref.namespace else _NOTHING
            key = ref.resource.group, frozenset([ref.resource.resource]), namespaces
            self._upsync.setdefault(key, set()).add(ref.name)

    def _named_object(self, where: str, one: Obj) -> ObjectRef | None:
        fields = self._fields
        group = fields.group(where, one, "group")
        kind, name, namespace = (fields.text(one, key, f"{where}.") for key in ("kind", "name", "namespace"))
        for key, text in (("kind", kind), ("name", name)):
            if not text:
                fields.missing(f"{where}.{key}")
        if group is None or not kind or not name:
            return None
        known = self._kinds(group, kind)
        if known is None:
            self._unknown.add((group, kind))
            return None
        plural, namespaced = known
        if namespaced and not namespace:
            fields.missing(f"{where}.namespace", f"is missing, and objects of kind {kind} are in namespaces")
            return None
        return ObjectRef(GroupResource(group, plural), namespace if namespaced else "", name)

    # --- selection --------------------------------------------------------------------------------

    def _select(self, ref: ObjectRef, version: str) -> None:
        self._watch(ref.resource, version)
        self._refs.add(ref)
        if ref.namespace:
            self._namespaces.add(ref.namespace)

    def _watch(self, resource: GroupResource, version: str) -> None:
        """In the newest requested version."""
        known = self._versions.get(resource) or version
        self._versions[resource] = min(known, version or known, key=version_order)


def _title(config: Obj) -> str:
    metadata = config.get("metadata")
    kind, name = config.get("kind"), metadata.get("name") if isinstance(metadata, dict) else None
    return f"{kind if isinstance(kind, str) else 'SyncerConfig'} {name if isinstance(name, str) else ''}"[
        :LONGEST_TITLE
    ]
