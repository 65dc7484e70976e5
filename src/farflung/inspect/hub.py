"""The hub that commands read: its workspaces, its inventory, lists over all workspaces, and the kind of a word."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, TypeVar

import msgspec

from farflung.apis.edge.names import EDGE_PLACEMENTS, SINGLE_PLACEMENT_SLICES, SOURCE_PLACEMENT
from farflung.apis.kcp.names import API_EXPORTS, LOCATIONS, SYNC_TARGETS, WORKSPACES
from farflung.apis.names import Collection
from farflung.client.discovery import DiscoveredResource, ServedResources
from farflung.client.errors import ClientError, Expired, Forbidden, InvalidResponse, NotFound
from farflung.client.rest import Client, ListOptions
from farflung.inspect import fields
from farflung.inspect.results import InspectError
from farflung.machinery.errors import Obj
from farflung.placement.names import ObjectKey
from farflung.placement.resolve import Resolver
from farflung.placement.types import (
    Location,
    Placement,
    TargetForScheduling,
    is_extra,
    parse_location,
    parse_target,
    source_label,
)
from farflung.runtime.exports import url_of

PROVIDER: Final = "root:espw"


@dataclass(frozen=True, slots=True)
class HubClient:
    """Clients for reading and dry runs: they never change anything."""

    workspace: Client  #: with the placements
    root: Client  #: with the exports of Locations and SyncTargets
    provider: str  #: path of the provider workspace
    server: str = ""  #: URL, for messages

    def mailbox(self, name: str) -> Client:
        return self.root.workspace(f"{self.provider}:{name}")

    async def mailboxes(self) -> dict[str, str] | None:
        """Logical clusters of mailboxes, and of other workspaces beside them, by name; None: not visible."""
        try:
            found = await self.root.workspace(self.provider).list(WORKSPACES)
        except (NotFound, Forbidden):
            return None
        return {fields.name_of(one): fields.text(one, "spec", "cluster") for one in found}


def hub_client(client: Client, provider: str = PROVIDER, server: str = "") -> HubClient:
    """`client`: of the workspace with the placements."""
    client = client.with_dry_run()
    return HubClient(client, client.workspace("root"), provider, server)


async def get_placement(hub: HubClient, name: str) -> Obj | None:
    """None if it does not exist.  Raises InspectError if the workspace has no edge API."""
    try:
        return await hub.workspace.get(EDGE_PLACEMENTS, name)
    except NotFound as error:
        if error.details:
            return None
    raise InspectError(
        f"the workspace {workspace_name(hub)} has no edge API: bind it with "
        f"`kubectl kcp bind apiexport {hub.provider}:edge.kcp.io` in that workspace"
    )


async def server_time(hub: HubClient) -> datetime:
    """The server's time, which its timestamps use."""
    return await hub.workspace.date() or datetime.now(UTC)


def workspace_name(hub: HubClient) -> str:
    """Its path or logical cluster, as given."""
    return hub.workspace.prefix.rpartition("/")[2]


def find_resource(served: ServedResources, word: str) -> DiscoveredResource | None:
    """The resource with this plural, singular, kind or short name, also with group (`nines.group9.test`) or with
    version and group (`nines.v1.group9.test`).  Plurals take precedence, then the order of discovery."""
    name, _, rest = word.lower().partition(".")
    version, _, group = rest.partition(".")
    found = [one for one in served.resources() if rest in ("", one.collection.group) and name in _names(one)]
    if not found:
        every = (one for of_group in served.groups for of_version in of_group.versions for one in of_version.resources)
        wanted = version, group
        found = [
            one for one in every if (one.collection.version, one.collection.group) == wanted and name in _names(one)
        ]
    return min(found, key=lambda one: one.collection.plural != name, default=None)


def _names(one: DiscoveredResource) -> set[str]:
    return {one.collection.plural, one.singular, one.collection.kind.lower(), *one.short_names} - {""}


T = TypeVar("T")

ATTEMPTS: Final = 3  #: for a list that takes longer than the server keeps history


class HiddenError(ClientError):
    """What is not visible, and which permission is missing."""

    def __init__(self, sentence: str, message: str = "") -> None:
        """`message`: the server's message."""
        super().__init__(f"{sentence}. The server says: {message}" if message else sentence)
        self.sentence = sentence


@dataclass(frozen=True, slots=True)
class Inventory:
    locations: tuple[Location, ...]
    targets: tuple[TargetForScheduling, ...]

    def resolver(self) -> Resolver:
        resolver = Resolver()
        for target in self.targets:
            resolver.put_target(target)
        for location in self.locations:
            resolver.put_location(location)
        return resolver

    def targets_of(self, cluster: str) -> list[TargetForScheduling]:
        """By name."""
        return sorted((one for one in self.targets if one.key.cluster == cluster), key=lambda one: one.key.name)


async def read_inventory(root: Client) -> Inventory:
    """`root`: of the workspace that exports both kinds.  Raises HiddenError."""
    locations = await everywhere(root, LOCATIONS, parse_location)
    return Inventory(locations, await everywhere(root, SYNC_TARGETS, parse_target))


async def everywhere(
    exporting: Client, collection: Collection, parse: Callable[[bytes], T], *, export: str = ""
) -> tuple[T, ...]:
    """Objects of all workspaces, through the view of an export in the workspace `exporting`; by default it has the name
    of their group.  Raises HiddenError."""
    name = export or collection.group
    view = exporting.view(await _view_of(exporting, collection, name))
    for attempt in range(ATTEMPTS):
        try:
            return tuple(
                [parse(bytes(raw)) async for page in view.pages(collection) for raw in page.items or ()],
            )
        except Expired:
            if attempt == ATTEMPTS - 1:
                raise
        except Forbidden as error:
            raise _hidden(exporting, collection, name, "list", "apiexports/content", error) from None
        except msgspec.MsgspecError as error:
            raise InvalidResponse(f"invalid {collection.kind}: {error}") from None
    raise AssertionError("unreachable")


async def _view_of(exporting: Client, collection: Collection, name: str) -> str:
    try:
        url, missing = url_of(await exporting.get(API_EXPORTS, name))
    except NotFound:
        missing = f"no APIExport {name} in the workspace {_path_of(exporting)}"
        raise HiddenError(f"{missing}, whose view has {_plural(collection)} of all workspaces") from None
    except Forbidden as error:
        raise _hidden(exporting, collection, name, "get", "apiexports", error) from None
    if not url:
        raise HiddenError(f"the APIExport {name} in the workspace {_path_of(exporting)} has no view yet: {missing}")
    return url


def _hidden(
    exporting: Client, collection: Collection, name: str, verb: str, resource: str, error: Forbidden
) -> HiddenError:
    right = f'the verb "{verb}" on {resource} of apis.kcp.io, for the name {name}'
    return HiddenError(
        f"you may not list {_plural(collection)} of all workspaces: this needs {right}, in the workspace "
        f"{_path_of(exporting)}",
        str(error),
    )


def _path_of(exporting: Client) -> str:
    return exporting.prefix.rpartition("/")[2]


def _plural(collection: Collection) -> str:
    kind = collection.kind
    return f"the {kind.removesuffix('y')}ies" if kind.endswith("y") else f"the {kind}s"


async def slices_of(workspace: Client, name: str) -> list[Obj]:
    """The slices of a placement: the one of its name, and further ones by label."""
    labelled = await workspace.list(
        SINGLE_PLACEMENT_SLICES, ListOptions(labels=f"{SOURCE_PLACEMENT}={source_label(name)}")
    )
    placement = Placement(ObjectKey("", name))
    found = {obj["metadata"]["name"]: obj for obj in labelled if is_extra(placement, obj)}
    if name not in found:
        with suppress(NotFound):
            found[name] = await workspace.get(SINGLE_PLACEMENT_SLICES, name)
    return [found[one] for one in sorted(found)]
