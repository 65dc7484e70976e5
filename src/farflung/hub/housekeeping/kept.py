"""The kinds whose objects are in the store, as housekeeping needs them: by the place of their objects, by type."""

from __future__ import annotations

from collections.abc import Iterable

from farflung.apis.resource import Resource
from farflung.hub import objects
from farflung.hub.catalog.catalog import Catalog


def home_of(resource: Resource) -> str:
    """The prefix under which all objects of a resource are, in every cluster."""
    return objects.prefix(resource, "").removesuffix("/")


class KeptKinds:
    def __init__(self, catalog: Catalog) -> None:
        kept = [resource for resource in preferred_first(catalog) if {"list", "delete"} <= set(resource.verbs)]
        self._by_type = {(one.api_version, one.kind): one for one in kept}
        self._by_home: dict[str, Resource] = {}
        by_name: dict[tuple[str, str], Resource] = {}
        for resource in kept:
            self._by_home.setdefault(home_of(resource), resource)
            by_name.setdefault((resource.group, resource.plural), resource)
        #: what a namespace can contain, each resource in the version that is preferred
        self.namespaced = tuple(resource for resource in by_name.values() if resource.namespaced)

    @property
    def prefixes(self) -> frozenset[str]:
        return frozenset(self._by_home)

    def of_type(self, api_version: str, kind: str) -> Resource | None:
        return self._by_type.get((api_version, kind))

    def of_key(self, key: str) -> Resource:
        """Whose objects are at a key, or under a prefix."""
        _, group, plural, _ = key.split("/", 3)
        return self._by_home[f"/{group}/{plural}/"]


def preferred_first(catalog: Catalog) -> Iterable[Resource]:
    for group in catalog.groups:
        for version in catalog.versions(group):
            yield from catalog.resources(group, version)
