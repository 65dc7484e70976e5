"""The kinds that mailbox and edge serve, in which versions, and the cache of their discovery."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import Final, Literal

import orjson

from farflung.apis.names import CUSTOM_RESOURCE_DEFINITIONS, Collection
from farflung.client.discovery import DiscoveredResource as CustomKind
from farflung.client.discovery import ServedResources, discover
from farflung.client.errors import ClientError, InvalidResponse
from farflung.client.rest import Client
from farflung.lib.backoff import Backoff
from farflung.lib.klog import Logger
from farflung.placement.names import GroupResource
from farflung.runtime.cache import Key
from farflung.runtime.environment import Environment
from farflung.runtime.informer import Informer

NOTHING = ServedResources(())


@dataclass(slots=True)
class SharedKinds:
    """The last discovery of each side; empty before the first."""

    mailbox: ServedResources = field(default_factory=lambda: NOTHING)
    edge: ServedResources = field(default_factory=lambda: NOTHING)

    def in_mailbox(self, resource: GroupResource, version: str) -> Collection | None:
        """How to read copies of a kind: in the requested version if both sides serve it, else in one that both serve,
        else in one of the mailbox."""
        for candidate in self._candidates(resource, version):
            found = self._found(self.mailbox, resource, candidate)
            if found is not None and self._found(self.edge, resource, found.collection.version):
                return found.collection
        found = self._found(self.mailbox, resource, version) or self._found(self.mailbox, resource, "")
        return None if found is None else found.collection

    def at_edge(self, resource: GroupResource, version: str = "") -> Collection | None:
        found = self._found(self.edge, resource, version)
        return None if found is None else found.collection

    def edge_lacks(self, resource: GroupResource) -> bool:
        """Whether the edge certainly does not serve the kind in any version."""
        of_group = [version for group in self.edge.groups if group.name == resource.group for version in group.versions]
        known = self.edge.groups != () and not any(version.stale for version in of_group)
        return known and self.edge.find(resource.group, resource.resource) is None

    def has_status(self, resource: GroupResource, version: str) -> bool:
        """Whether the mailbox serves the status subresource of the kind."""
        found = self._found(self.mailbox, resource, version)
        return found is not None and "status" in found.subresources

    def named(self, group: str, kind: str) -> tuple[str, bool] | None:
        """The plural of a kind, and whether it is namespaced, from either side."""
        for side in (self.mailbox, self.edge):
            for one in side.resources():
                if one.collection.group == group and one.collection.kind == kind:
                    return one.collection.plural, one.namespaced
        return None

    def of_group(self, group: str) -> Iterator[GroupResource]:
        """The kinds of a group at the edge."""
        for one in self.edge.resources():
            if one.collection.group == group and _readable(one):
                yield GroupResource(group, one.collection.plural)

    def containing(self) -> Iterator[Collection]:
        """The namespaced kinds of the edge."""
        for one in self.edge.resources():
            if one.namespaced and _readable(one):
                yield one.collection

    def _candidates(self, resource: GroupResource, version: str) -> Iterator[str]:
        yield version
        for group in self.mailbox.groups:
            if group.name == resource.group:
                yield from (one.name for one in group.versions)

    def _found(self, side: ServedResources, resource: GroupResource, version: str) -> CustomKind | None:
        found = side.find(resource.group, resource.resource, version)
        return found if found is not None and _readable(found) else None


def served_only(collections: Mapping[GroupResource, Collection | None]) -> dict[GroupResource, Collection]:
    return {resource: collection for resource, collection in collections.items() if collection is not None}


def _readable(one: CustomKind) -> bool:
    return {"list", "watch"} <= one.verbs


MISSING: Final = Backoff(
    first=0.2, longest=60.0, random=lambda: 1.0
)  #: until a side that lacks a kind is discovered again
Side = Literal["mailbox", "edge"]
BOTH: Final[tuple[Side, ...]] = ("mailbox", "edge")


@dataclass(frozen=True, slots=True)
class DefinitionState:
    """The part of a definition that decides which kinds are served."""

    generation: int
    conditions: tuple[str, ...]  #: the status of each
    versions: tuple[str, ...]  #: to be served; empty: it is not established, or is being deleted


class SideDiscovery:
    """Keeps `kinds` current, and watches the CustomResourceDefinitions of the edge, which change them."""

    def __init__(
        self,
        mailbox: Client,
        edge: Client,
        kinds: SharedKinds,
        env: Environment,
        log: Logger,
        doubted: Callable[[], None],
    ) -> None:
        """`doubted`: called when a side has to be discovered again."""
        self._clients: dict[Side, Client] = {"mailbox": mailbox, "edge": edge}
        self._kinds = kinds
        self._log = log
        self._doubted = doubted
        self._stale: set[Side] = set(BOTH)
        self._misses = 0  #: plans in a row that lacked a kind, since a definition of the edge changed
        self._definitions: Informer[DefinitionState] = Informer(
            edge, CUSTOM_RESOURCE_DEFINITIONS, definition_state, env, self._trouble
        )
        self._definitions.subscribe(lambda change: self._redefine() if change.old != change.new else None)

    async def run(self) -> None:
        """Until cancelled."""
        await self._definitions.run()

    def definition_state(self, name: str) -> DefinitionState | None:
        """None: the edge has no definition of that name."""
        return self._definitions.cache.get(Key("", "", name))

    def unlisted(self) -> set[GroupResource]:
        """Kinds with an established definition at the edge, whose discovery lacks a version of them: a kube-apiserver
        lists new kinds one after the other."""
        groups = self._kinds.edge.groups
        listed = {
            (group.name, one.collection.plural, version.name)
            for group in groups
            for version in group.versions
            for one in version.resources
        }
        found: set[GroupResource] = set()
        for key in self._definitions.cache if groups else ():
            plural, _, group = key.name.partition(".")
            if any((group, plural, version) not in listed for version in self._definitions.cache[key].versions):
                found.add(GroupResource(group, plural))
        return found

    def _redefine(self) -> None:
        self.reset_pause()
        self.rediscover("edge")

    def pause(self, lacking: Set[Side]) -> float | None:
        """Seconds until the sides that lacked a kind in a plan are discovered again; None: no side lacked any."""
        self._misses = self._misses + 1 if lacking else 0
        return MISSING.delay(self._misses) if lacking else None

    def reset_pause(self) -> None:
        self._misses = 0

    def _trouble(self, what: str, error: Exception) -> None:
        self._log.info(what, v=2, side="edge", error=str(error))

    def rediscover(self, *sides: Side) -> None:
        """Discover these sides again."""
        self._stale.update(sides)
        self._doubted()

    async def discover(self, side: Side) -> bool:
        """Discover a side, if it is stale.  Returns whether its kinds are known."""
        if side not in self._stale:
            return True
        self._stale.discard(side)
        try:
            served = await discover(self._clients[side])
            if {bool(group.name) for group in served.groups} != {True, False}:
                raise InvalidResponse("it serves less than every Kubernetes API: /api, /apis or both are missing")
        except ClientError as error:
            self._stale.add(side)
            self._log.info("cannot discover the served kinds", v=2, side=side, error=str(error))
            return False
        setattr(self._kinds, side, served)
        return True


def definition_state(document: bytes) -> DefinitionState:
    obj = orjson.loads(document)
    metadata = obj.get("metadata") or {}
    conditions = (obj.get("status") or {}).get("conditions") or ()
    is_established = any(one.get("type") == "Established" and one.get("status") == "True" for one in conditions)
    versions = (obj.get("spec") or {}).get("versions") or () if "deletionTimestamp" not in metadata else ()
    return DefinitionState(
        metadata.get("generation") or 0,
        tuple(one.get("status") for one in conditions),
        tuple(one.get("name") for one in versions if is_established and one.get("served")),
    )
