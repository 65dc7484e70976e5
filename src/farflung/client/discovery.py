"""What a server serves: the whole of it at once from servers that can, else group by group."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

import msgspec

from farflung.apis.names import Collection
from farflung.client.errors import NONSENSE, Garbled, NotFound, Refused
from farflung.client.rest import Client

WHOLE: Final = "APIGroupDiscoveryList"
#: the best first
ACCEPTED: Final = ",".join(
    (
        f"application/json;g=apidiscovery.k8s.io;v=v2;as={WHOLE}",
        f"application/json;g=apidiscovery.k8s.io;v=v2beta1;as={WHOLE}",
        "application/json",
    )
)
AT_ONCE: Final = 8  #: groups that are asked for at the same time

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Resource:
    """One kind of objects, in one version."""

    collection: Collection
    singular: str
    namespaced: bool
    verbs: frozenset[str]
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: Mapping[str, frozenset[str]] = field(default_factory=dict)  #: and their verbs


@dataclass(frozen=True, slots=True)
class Version:
    name: str
    resources: tuple[Resource, ...]
    stale: bool = False  #: who serves it does not answer; what is said of it may be old, or missing


@dataclass(frozen=True, slots=True)
class Group:
    """`versions`: the preferred one first, as the server sorts them."""

    name: str  #: empty: the core group
    versions: tuple[Version, ...]


@dataclass(frozen=True, slots=True)
class Served:
    """Everything, as of one moment."""

    groups: tuple[Group, ...]

    def resources(self) -> Iterator[Resource]:
        """Each in the first of the versions that have it."""
        for group in self.groups:
            seen: set[str] = set()
            for resource in (one for version in group.versions for one in version.resources):
                if resource.collection.plural not in seen:
                    seen.add(resource.collection.plural)
                    yield resource

    def find(self, group: str, plural: str, version: str = "") -> Resource | None:
        """In that version, or in the preferred one of those that have it."""
        for one in (one for one in self.groups if one.name == group):
            for served in one.versions:
                for resource in served.resources if version in ("", served.name) else ():
                    if resource.collection.plural == plural:
                        return resource
        return None

    def find_kind(self, group: str, version: str, kind: str) -> Resource | None:
        for one in (one for one in self.groups if one.name == group):
            for resource in (each for served in one.versions if served.name == version for each in served.resources):
                if resource.collection.kind == kind:
                    return resource
        return None


async def discover(client: Client) -> Served:
    """Raises ClientError.  A group that another server serves, and that does not answer, is stale."""
    core, named = await asyncio.gather(_part(client, "/api"), _part(client, "/apis"))
    return Served((*core, *named))


async def _part(client: Client, path: str) -> tuple[Group, ...]:
    try:
        body = await client.raw(path, accept=ACCEPTED)
    except NotFound:
        return ()
    said = _decoded(body, _Answer)
    if said.kind == WHOLE:
        return tuple(_group_of(item) for item in said.items or ())
    if said.kind == "APIVersions":
        return await _listed(client, [_Named("", [_GroupVersion(version) for version in said.versions or ()])])
    if said.kind != "APIGroupList":
        raise Garbled(f"{path} is not a discovery document, but of the kind {said.kind[:50]!r}")
    return await _listed(client, said.groups or [])


# --- all at once ----------------------------------------------------------------------------------


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


def _group_of(said: _WholeGroup) -> Group:
    name = said.metadata.name
    return Group(name, tuple(_version_of(name, version) for version in said.versions or ()))


def _version_of(group: str, said: _WholeVersion) -> Version:
    resources = tuple(_resource_of(group, said.version, resource) for resource in said.resources or ())
    return Version(said.version, resources, said.freshness == "Stale")


def _resource_of(group: str, version: str, said: _WholeResource) -> Resource:
    kind = said.response_kind or _Kind()
    return Resource(
        Collection(group, version, said.resource, kind.kind),
        said.singular_resource,
        said.scope == "Namespaced",
        frozenset(said.verbs),
        tuple(said.short_names or ()),
        tuple(said.categories or ()),
        {one.subresource: frozenset(one.verbs) for one in said.subresources or ()},
    )


# --- group by group -------------------------------------------------------------------------------


class _GroupVersion(msgspec.Struct, frozen=True):
    version: str


class _Named(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    versions: list[_GroupVersion]
    preferred_version: _GroupVersion | None = None


class _Answer(msgspec.Struct, frozen=True):
    """Any of the three things that a server may say."""

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


async def _listed(client: Client, groups: Iterable[_Named]) -> tuple[Group, ...]:
    turns = asyncio.Semaphore(AT_ONCE)

    async def version_of(group: str, version: str) -> Version:
        async with turns:
            return await _version_listed(client, group, version)

    async def group_of(said: _Named) -> Group:
        preferred = said.preferred_version or said.versions[0] if said.versions else None
        names = sorted((one.version for one in said.versions), key=lambda name: preferred != _GroupVersion(name))
        return Group(said.name, tuple(await asyncio.gather(*(version_of(said.name, name) for name in names))))

    return tuple(await asyncio.gather(*(group_of(said) for said in groups)))


async def _version_listed(client: Client, group: str, version: str) -> Version:
    path = f"/apis/{group}/{version}" if group else f"/api/{version}"
    try:
        said = _decoded(await client.raw(path), _List).resources or []
    except Refused as error:
        if error.status != 404 and error.status < 500:
            raise
        return Version(version, (), stale=True)
    subresources: dict[str, dict[str, frozenset[str]]] = {}
    for one in said:
        plural, _, subresource = one.name.partition("/")
        if subresource:
            subresources.setdefault(plural, {})[subresource] = frozenset(one.verbs or ())
    return Version(
        version,
        tuple(
            Resource(
                Collection(group, version, one.name, one.kind),
                one.singular_name,
                one.namespaced,
                frozenset(one.verbs or ()),
                tuple(one.short_names or ()),
                tuple(one.categories or ()),
                subresources.get(one.name, {}),
            )
            for one in said
            if "/" not in one.name
        ),
    )


def _decoded(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except NONSENSE as error:
        raise Garbled(f"not a discovery document: {error}") from None
