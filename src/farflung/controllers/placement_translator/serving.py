"""What workspaces with placements serve, asked for once and again when bindings or definitions change."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from farflung.client.discovery import Resource, Served, discover
from farflung.client.rest import Client
from farflung.controllers.placement_translator.kinds import Category, category
from farflung.controllers.placement_translator.offers import BINDINGS
from farflung.controllers.placement_translator.values import Kind


class Kinds(NamedTuple):
    namespaced: dict[Kind, str]  #: those that are in namespaces, and go somewhere: their versions
    versions: dict[Kind, tuple[str, ...]]  #: of all that go somewhere, the preferred one first


class Serving:
    def __init__(self, workspace: Callable[[str], Client]) -> None:
        self._workspace = workspace
        self._known: dict[str, Kinds] = {}

    def known(self, cluster: str) -> Kinds | None:
        """None: nobody has asked yet."""
        return self._known.get(cluster)

    def forget(self, cluster: str) -> None:
        self._known.pop(cluster, None)

    async def ask(self, cluster: str) -> Kinds:
        """Raises ClientError."""
        served = await discover(self._workspace(cluster))
        found = travelling(served.resources())
        kinds = self._known[cluster] = Kinds(
            {kind: one.collection.version for kind, one in found.items() if one.namespaced},
            {kind: tuple(_versions(served, kind)) for kind in found},
        )
        return kinds

    async def versions(self, cluster: str, kind: Kind) -> tuple[str, ...]:
        """Raises ClientError."""
        known = self._known.get(cluster) or await self.ask(cluster)
        return known.versions.get(kind, ())


def _versions(served: Served, kind: Kind) -> Iterable[str]:
    for group in served.groups:
        if group.name == kind.group:
            for version in group.versions:
                if any(one.collection.plural == kind.resource for one in version.resources):
                    yield version.name


def travelling(resources: Iterable[Resource]) -> dict[Kind, Resource]:
    """Kinds whose objects can be followed and go somewhere."""
    found = {
        Kind(one.collection.group, one.collection.plural): one for one in resources if {"list", "watch"} <= one.verbs
    }
    return {kind: one for kind, one in found.items() if category(kind) is not Category.NOWHERE}


def is_builtin(kind: Kind) -> bool:
    """Whether every workspace may have it by itself, as its group says."""
    return kind == BINDINGS or "." not in kind.group or kind.group.endswith(".k8s.io")
