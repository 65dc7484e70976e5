"""An immutable collection of served resources, by group, version and plural."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from farflung.apis.builtin.kinds import GROUPS
from farflung.apis.resource import Resource
from farflung.machinery.names import version_order

Path = tuple[str, str, str]  #: group, version, plural

#: built-in groups come first, in an order of their own: kubectl takes the first group that knows a name
RANKS: Final = {group: rank for rank, group in enumerate(GROUPS)}


class Catalog:
    """Resources by (group, version, plural); of two with the same path the later one wins."""

    __slots__ = ("_groups", "_resources")

    def __init__(self, resources: Iterable[Resource]) -> None:
        self._resources: dict[Path, Resource] = {(one.group, one.version, one.plural): one for one in resources}
        self._groups = grouped(self._resources.values())

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        return self._resources.get((group, version, plural))

    def __iter__(self) -> Iterator[Resource]:
        return iter(self._resources.values())

    def __len__(self) -> int:
        return len(self._resources)

    @property
    def groups(self) -> tuple[str, ...]:
        """In the order of discovery, the core group first."""
        return tuple(self._groups)

    def has_group(self, group: str) -> bool:
        return group in self._groups

    def is_builtin(self, group: str) -> bool:
        """Whether a group is served, and not by definitions alone."""
        return any(not one.custom for version in self._groups.get(group, {}).values() for one in version)

    def versions(self, group: str) -> tuple[str, ...]:
        """The preferred one first; nothing if the group is not served."""
        return tuple(self._groups.get(group, ()))

    def resources(self, group: str, version: str) -> tuple[Resource, ...]:
        """By name; nothing if the version is not served."""
        return self._groups.get(group, {}).get(version, ())


def grouped(resources: Iterable[Resource]) -> dict[str, dict[str, tuple[Resource, ...]]]:
    """group → version → resources, each level in the order of discovery."""
    found: dict[str, dict[str, list[Resource]]] = {}
    for resource in resources:
        found.setdefault(resource.group, {}).setdefault(resource.version, []).append(resource)
    return {
        group: {
            version: tuple(sorted(found[group][version], key=lambda one: one.plural))
            for version in sorted(found[group], key=version_order)
        }
        for group in sorted(found, key=group_order)
    }


def group_order(group: str) -> tuple[int, str]:
    return RANKS.get(group, len(RANKS)), group
