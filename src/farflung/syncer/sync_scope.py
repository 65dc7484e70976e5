"""What the SyncerConfigs and EdgeSyncConfigs of a mailbox select for downsync and upsync.

scope = read_scope(configs, kinds)
scope.resources                              kinds to watch in the mailbox → version of the API
scope.covers(part)                           whether a copy is selected for downsync
scope.upsyncs(kind, namespace, name)         whether an object of the edge is selected for upsync
scope.problems, scope.unknown                invalid parts, and kinds that no side serves

All configurations add up.  Users may write them by hand: invalid parts are listed in `problems`, and the rest
counts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from farflung.machinery.errors import Obj
from farflung.machinery.names import version_order
from farflung.placement.names import GroupResource, Part

KindLookup = Callable[[str, str], tuple[str, bool] | None]  #: group and kind → plural, and whether it is namespaced

NAMESPACES: Final = GroupResource("", "namespaces")
ANY: Final = "*"
MOST_PROBLEMS: Final = 50  #: in a list of problems
LONGEST_TITLE: Final = 300  #: characters of a configuration's kind and name
_LABEL: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?", re.ASCII).fullmatch
_DOMAIN: Final = re.compile(r"[a-z0-9](?:[-.a-z0-9]{0,251}[a-z0-9])?", re.ASCII).fullmatch
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
    _parts: frozenset[Part] = frozenset()  #: single objects; a namespace or a name may be `*`
    _namespaces: frozenset[str] = _NOTHING  #: namespaces of selected objects
    _upsync: Mapping[GroupResource, tuple[UpsyncSelector, ...]] = field(default_factory=dict)

    def covers(self, part: Part) -> bool:
        """Whether a copy is selected for downsync."""
        resource, namespace, name = part
        if part in self._parts or Part(resource, namespace, ANY) in self._parts:
            return True
        if resource == NAMESPACES:
            return not namespace and (name in self._namespaces or ANY in self._namespaces)
        if not namespace:
            return False
        if any(namespace in some or ANY in some for some in self._whole.get(resource, ())):
            return True
        return Part(resource, ANY, name) in self._parts or Part(resource, ANY, ANY) in self._parts

    def upsyncs(self, resource: GroupResource, namespace: str, name: str) -> bool:
        """Whether an object of the edge is selected for upsync."""
        return any(one.has(namespace, name) for one in self._sets(resource))

    def may_upsync(self, resource: GroupResource) -> bool:
        """Whether any object of the kind may be."""
        return next(self._sets(resource), None) is not None

    @property
    def upsync_groups(self) -> frozenset[str]:
        """The API groups of all selectors for upsync."""
        return frozenset(one.group for one in self.upsync)

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
        self._parts: set[Part] = set()
        self._namespaces: set[str] = set()
        self._upsync: dict[tuple[str, frozenset[str], frozenset[str]], set[str]] = {}
        self._unknown: set[tuple[str, str]] = set()
        self._problems: set[str] = set()
        self._config = ""

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
        return SyncScope(
            MappingProxyType(dict(sorted(self._versions.items()))),
            tuple(upsync),
            tuple(sorted(self._unknown)),
            _first(sorted(self._problems)),
            {resource: tuple(sorted(some, key=sorted)) for resource, some in self._whole.items()},
            frozenset(self._parts),
            frozenset(self._namespaces),
            {resource: tuple(some) for resource, some in by_resource.items()},
        )

    def add(self, config: Any) -> None:
        config = config if isinstance(config, dict) else {}
        self._config = _title(config)
        spec = self._map(config, "spec", "")
        self._namespace_scope(self._map(spec, "namespaceScope", "spec."))
        for where, one in self._maps(spec, "namespacedObjects", "spec."):
            self._namespaced_objects(where, one)
        for where, one in self._maps(spec, "clusterScope", "spec."):
            self._cluster_scope(where, one)
        for where, one in self._maps(spec, "upsync", "spec."):
            self._upsync_set(where, one)
        for where, one in self._maps(spec, "downSyncedResources", "spec."):
            self._downsynced_resource(where, one)
        for where, one in self._maps(spec, "upSyncedResources", "spec."):
            self._upsynced_resource(where, one)

    # --- SyncerConfigs ----------------------------------------------------------------------------

    def _namespace_scope(self, scope: Obj) -> None:
        namespaces = self._texts(scope, "namespaces", "spec.namespaceScope.")
        self._namespaces |= namespaces
        for where, one in self._maps(scope, "resources", "spec.namespaceScope."):
            resource = self._resource(where, one)
            if resource and namespaces:
                self._watch(*resource)
                self._whole.setdefault(resource[0], set()).add(namespaces)

    def _namespaced_objects(self, where: str, one: Obj) -> None:
        resource = self._resource(where, one)
        for inner, within in self._maps(one, "objectsByNamespace", f"{where}."):
            namespace = self._text(within, "namespace", f"{inner}.")
            names = self._texts(within, "names", f"{inner}.")
            if not namespace:
                self._problem(f"{inner}.namespace", "is missing")
            elif resource and names:
                self._select(*resource, namespace, names)

    def _cluster_scope(self, where: str, one: Obj) -> None:
        resource = self._resource(where, one)
        names = self._texts(one, "objects", f"{where}.")
        if resource and names:
            self._select(*resource, "", names)

    def _upsync_set(self, where: str, one: Obj) -> None:
        group = self._group(where, one, "apiGroup")
        resources, namespaces, names = (
            self._texts(one, key, f"{where}.") for key in ("resources", "namespaces", "names")
        )
        plurals = frozenset(plural for plural in resources if plural == ANY or self._is_plural(where, plural))
        if group is not None and plurals and names:
            self._upsync.setdefault((group, plurals, namespaces), set()).update(names)

    def _resource(self, where: str, one: Obj) -> tuple[GroupResource, str] | None:
        group = self._group(where, one, "group")
        version = self._version(where, one, "apiVersion")
        plural = self._text(one, "resource", f"{where}.")
        if not self._is_plural(where, plural) or group is None or version is None:
            return None
        return GroupResource(group, plural), version

    # --- EdgeSyncConfigs --------------------------------------------------------------------------

    def _downsynced_resource(self, where: str, one: Obj) -> None:
        named = self._named_object(where, one)
        version = self._version(where, one, "version")
        if named and version is not None:
            resource, namespace, name = named
            self._select(resource, version, namespace, [name])

    def _upsynced_resource(self, where: str, one: Obj) -> None:
        if named := self._named_object(where, one):
            resource, namespace, name = named
            namespaces = frozenset([namespace]) if namespace else _NOTHING
            key = resource.group, frozenset([resource.resource]), namespaces
            self._upsync.setdefault(key, set()).add(name)

    def _named_object(self, where: str, one: Obj) -> Part | None:
        group = self._group(where, one, "group")
        kind, name, namespace = (self._text(one, key, f"{where}.") for key in ("kind", "name", "namespace"))
        for key, text in (("kind", kind), ("name", name)):
            if not text:
                self._problem(f"{where}.{key}", "is missing")
        if group is None or not kind or not name:
            return None
        known = self._kinds(group, kind)
        if known is None:
            self._unknown.add((group, kind))
            return None
        plural, namespaced = known
        if namespaced and not namespace:
            self._problem(f"{where}.namespace", f"is missing, and objects of kind {kind} are in namespaces")
            return None
        return Part(GroupResource(group, plural), namespace if namespaced else "", name)

    # --- selection --------------------------------------------------------------------------------

    def _select(self, resource: GroupResource, version: str, namespace: str, names: Iterable[str]) -> None:
        self._watch(resource, version)
        self._parts.update(Part(resource, namespace, name) for name in names)
        if namespace:
            self._namespaces.add(namespace)

    def _watch(self, resource: GroupResource, version: str) -> None:
        """In the newest requested version."""
        known = self._versions.get(resource) or version
        self._versions[resource] = min(known, version or known, key=version_order)

    # --- reading ----------------------------------------------------------------------------------

    def _map(self, within: Obj, key: str, above: str) -> Obj:
        found = within.get(key)
        if isinstance(found, dict):
            return found
        if found is not None:
            self._problem(f"{above}{key}", "is no map")
        return {}

    def _list(self, within: Obj, key: str, above: str) -> list[Any]:
        found = within.get(key)
        if isinstance(found, list):
            return found
        if found is not None:
            self._problem(f"{above}{key}", "is no list")
        return []

    def _maps(self, within: Obj, key: str, above: str) -> Iterator[tuple[str, Obj]]:
        """Each with its path."""
        for number, one in enumerate(self._list(within, key, above)):
            where = f"{above}{key}[{number}]"
            if isinstance(one, dict):
                yield where, one
            else:
                self._problem(where, "is no map")

    def _texts(self, within: Obj, key: str, above: str) -> frozenset[str]:
        found = self._list(within, key, above)
        texts = [one for one in found if isinstance(one, str) and one]
        if len(texts) < len(found):
            self._problem(f"{above}{key}", "holds something that is no text, or empty")
        return frozenset(texts)

    def _text(self, within: Obj, key: str, above: str) -> str:
        """Empty if it is absent."""
        found = within.get(key)
        if isinstance(found, str):
            return found
        if found is not None:
            self._problem(f"{above}{key}", "is no text")
        return ""

    def _group(self, where: str, one: Obj, key: str) -> str | None:
        return self._fitting(where, one, key, _DOMAIN, "is no name of an API group")

    def _version(self, where: str, one: Obj, key: str) -> str | None:
        return self._fitting(where, one, key, _LABEL, "is no version of an API: say `v1`, without its group")

    def _fitting(self, where: str, one: Obj, key: str, fits: Callable[[str], object], problem: str) -> str | None:
        """A valid or empty text; None if it is invalid."""
        text = one.get(key)
        if text is None or text == "":
            return ""
        if isinstance(text, str) and fits(text):
            return text
        self._problem(f"{where}.{key}", problem)
        return None

    def _is_plural(self, where: str, plural: str) -> bool:
        if _LABEL(plural):
            return True
        self._problem(where, "has a resource that is no lower-case plural")
        return False

    def _problem(self, where: str, what: str) -> None:
        self._problems.add(f"{self._config}: {where} {what}")


def _title(config: Obj) -> str:
    metadata = config.get("metadata")
    kind, name = config.get("kind"), metadata.get("name") if isinstance(metadata, dict) else None
    return f"{kind if isinstance(kind, str) else 'SyncerConfig'} {name if isinstance(name, str) else ''}"[
        :LONGEST_TITLE
    ]


def _first(problems: list[str]) -> tuple[str, ...]:
    left = len(problems) - MOST_PROBLEMS
    return tuple(problems) if left <= 0 else (*problems[:MOST_PROBLEMS], f"… and {left} more")
