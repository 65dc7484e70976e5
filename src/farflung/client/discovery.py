"""Discovery of the resources of a server: aggregated if the server supports it, otherwise per group version."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

import msgspec

from farflung.apis.names import Collection
from farflung.client.errors import DECODE_ERRORS, InvalidResponse, NotFound, Refused
from farflung.client.rest import Client

AGGREGATED: Final = "APIGroupDiscoveryList"
#: most preferred first
ACCEPTED: Final = ",".join(
    (
        f"application/json;g=apidiscovery.k8s.io;v=v2;as={AGGREGATED}",
        f"application/json;g=apidiscovery.k8s.io;v=v2beta1;as={AGGREGATED}",
        "application/json",
    )
)
CONCURRENT: Final = 8  #: concurrent requests

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class DiscoveredResource:
    """A resource in one version."""

    collection: Collection
    singular: str
    namespaced: bool
    verbs: frozenset[str]
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: Mapping[str, frozenset[str]] = field(default_factory=dict)  #: with their verbs


@dataclass(frozen=True, slots=True)
class DiscoveredVersion:
    name: str
    resources: tuple[DiscoveredResource, ...]
    stale: bool = False  #: the server of the group did not respond, so the resources may be old or missing


@dataclass(frozen=True, slots=True)
class DiscoveredGroup:
    """`versions`: preferred version first."""

    name: str  #: empty: the core group
    versions: tuple[DiscoveredVersion, ...]


@dataclass(frozen=True, slots=True)
class ServedResources:
    """The discovered resources of a server."""

    groups: tuple[DiscoveredGroup, ...]

    def resources(self) -> Iterator[DiscoveredResource]:
        """Each resource in its preferred version."""
        for group in self.groups:
            seen: set[str] = set()
            for resource in (one for version in group.versions for one in version.resources):
                if resource.collection.plural not in seen:
                    seen.add(resource.collection.plural)
                    yield resource

    def find(self, group: str, plural: str, version: str = "") -> DiscoveredResource | None:
        """A resource in a version, or in its preferred one."""
        for one in (one for one in self.groups if one.name == group):
            for served in one.versions:
                for resource in served.resources if version in ("", served.name) else ():
                    if resource.collection.plural == plural:
                        return resource
        return None

    def find_kind(self, group: str, version: str, kind: str) -> DiscoveredResource | None:
        for one in (one for one in self.groups if one.name == group):
            for resource in (each for served in one.versions if served.name == version for each in served.resources):
                if resource.collection.kind == kind:
                    return resource
        return None


async def discover(client: Client) -> ServedResources:
    """Raises ClientError.  A group whose aggregated server does not respond is stale."""
    core, named = await asyncio.gather(_part(client, "/api"), _part(client, "/apis"))
    return ServedResources((*core, *named))


async def _part(client: Client, path: str) -> tuple[DiscoveredGroup, ...]:
    try:
        body = await client.raw(path, accept=ACCEPTED)
    except NotFound:
        return ()
    document = _decoded(body, _Answer)
    if document.kind == AGGREGATED:
        return tuple(
            DiscoveredGroup(
                item.metadata.name, tuple(_version_of(item.metadata.name, version) for version in item.versions or ())
            )
            for item in document.items or ()
        )
    if document.kind == "APIVersions":
        return await _listed(client, [_Named("", [_GroupVersion(version) for version in document.versions or ()])])
    if document.kind != "APIGroupList":
        raise InvalidResponse(f"{path} is not a discovery document, but of the kind {document.kind[:50]!r}")
    return await _listed(client, document.groups or [])


# --- aggregated discovery -------------------------------------------------------------------------


class _Kind(msgspec.Struct, frozen=True):
    kind: str = ""
    group: str = ""
    version: str = ""


class _Subresource(msgspec.Struct, frozen=True):
    subresource: str
    verbs: list[str] = []


class _WholeResource(msgspec.Struct, frozen=True, rename="camel"):
    resource: str
    scope: str = ""
    response_kind: _Kind | None = None
    singular_resource: str = ""
    verbs: list[str] = []
    short_names: list[str] | None = None
    categories: list[str] | None = None
    subresources: list[_Subresource] | None = None


class _WholeVersion(msgspec.Struct, frozen=True):
    version: str
    resources: list[_WholeResource] | None = None
    freshness: str = ""


class _Metadata(msgspec.Struct, frozen=True):
    name: str = ""


class _WholeGroup(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()
    versions: list[_WholeVersion] | None = None


def _version_of(group: str, document: _WholeVersion) -> DiscoveredVersion:
    resources = tuple(_resource_of(group, document.version, resource) for resource in document.resources or ())
    return DiscoveredVersion(document.version, resources, document.freshness == "Stale")


def _resource_of(group: str, version: str, document: _WholeResource) -> DiscoveredResource:
    kind = document.response_kind or _Kind()
    return DiscoveredResource(
        Collection(group, version, document.resource, kind.kind),
        document.singular_resource,
        document.scope == "Namespaced",
        frozenset(document.verbs),
        tuple(document.short_names or ()),
        tuple(document.categories or ()),
        {one.subresource: frozenset(one.verbs) for one in document.subresources or ()},
    )


# --- discovery per group version ------------------------------------------------------------------


class _GroupVersion(msgspec.Struct, frozen=True):
    version: str


class _Named(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    versions: list[_GroupVersion]
    preferred_version: _GroupVersion | None = None


class _Answer(msgspec.Struct, frozen=True):
    """One of the three document types of discovery."""

    kind: str = ""
    items: list[_WholeGroup] | None = None
    groups: list[_Named] | None = None
    versions: list[str] | None = None


class _Listed(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    kind: str = ""
    namespaced: bool = False
    singular_name: str = ""
    verbs: list[str] | None = None
    short_names: list[str] | None = None
    categories: list[str] | None = None


class _List(msgspec.Struct, frozen=True):
    resources: list[_Listed] | None = None


async def _listed(client: Client, groups: Iterable[_Named]) -> tuple[DiscoveredGroup, ...]:
    turns = asyncio.Semaphore(CONCURRENT)

    async def version_of(group: str, version: str) -> DiscoveredVersion:
        async with turns:
            return await _version_listed(client, group, version)

    async def group_of(document: _Named) -> DiscoveredGroup:
        preferred = document.preferred_version or document.versions[0] if document.versions else None
        names = sorted((one.version for one in document.versions), key=lambda name: preferred != _GroupVersion(name))
        return DiscoveredGroup(
            document.name, tuple(await asyncio.gather(*(version_of(document.name, name) for name in names)))
        )

    return tuple(await asyncio.gather(*(group_of(document) for document in groups)))


async def _version_listed(client: Client, group: str, version: str) -> DiscoveredVersion:
    path = f"/apis/{group}/{version}" if group else f"/api/{version}"
    try:
        document = _decoded(await client.raw(path), _List).resources or []
    except Refused as error:
        if error.status != 404 and error.status < 500:
            raise
        return DiscoveredVersion(version, (), stale=True)
    subresources: dict[str, dict[str, frozenset[str]]] = {}
    for one in document:
        plural, _, subresource = one.name.partition("/")
        if subresource:
            subresources.setdefault(plural, {})[subresource] = frozenset(one.verbs or ())
    return DiscoveredVersion(
        version,
        tuple(
            DiscoveredResource(
                Collection(group, version, one.name, one.kind),
                one.singular_name,
                one.namespaced,
                frozenset(one.verbs or ()),
                tuple(one.short_names or ()),
                tuple(one.categories or ()),
                subresources.get(one.name, {}),
            )
            for one in document
            if "/" not in one.name
        ),
    )


def _decoded(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except DECODE_ERRORS as error:
        raise InvalidResponse(f"not a discovery document: {error}") from None
