"""The hub that commands read: its workspaces, the placement in question, and the kind that a word names."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from farflung.apis.edge.names import EDGE_PLACEMENTS
from farflung.apis.kcp.names import WORKSPACES
from farflung.client.discovery import DiscoveredResource, ServedResources
from farflung.client.errors import Forbidden, NotFound
from farflung.client.rest import Client
from farflung.inspect import fields
from farflung.inspect.errors import InspectError
from farflung.machinery.errors import Obj

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
