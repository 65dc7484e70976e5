"""The rights of authors to place, as far as the user of a command may review them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import orjson
from msgspec.structs import replace

from farflung.apis.names import ACCESS_REVIEWS, CLUSTER_ROLES
from farflung.client.errors import Forbidden
from farflung.client.rest import Client
from farflung.controllers.placing_rights.decide import (
    RightKey,
    decode_role,
    is_allowed,
    new_review,
    records_authors,
    workspace_author,
)
from farflung.inspect.hub import HubClient
from farflung.inspect.placement_model import paths_of
from farflung.placement.resolve import Resolver
from farflung.placement.types import Destination, Location, Placement, PlacingRight

TRUSTED: Final = (
    "the server records no authors: this assumes that the edge scheduler trusts the workspace (--trust-workspaces)"
)


class ReviewedRights:
    def __init__(self, hub: HubClient, locations: Iterable[Location] = ()) -> None:
        """`locations`: they know the paths of their workspaces, for remarks."""
        self._paths = paths_of(locations)
        self._root, self._workspace = hub.root, hub.workspace
        self._rights: dict[RightKey, PlacingRight | None] = {}
        self._records: bool | None = None  #: whether the server records authors
        self.remarks: list[str] = []

    async def put(self, resolver: Resolver, placement: Placement, current: Iterable[Destination]) -> Placement:
        """Put a placement and the rights of its author into an resolver.  Returns it with its author.  `current`: its
        destinations; rights that the user may not review count as those that the edge scheduler found."""
        if not await self.records_authors():
            placement = replace(placement, author=workspace_author(placement.key.cluster))
        resolver.put_placement(placement)
        if placement.author is None:
            return placement
        for cluster in sorted(resolver.undecided(placement.key, frozenset(current))):
            right = await self.right(RightKey(placement.author, cluster))
            used = frozenset(one.location for one in current if one.cluster == cluster)
            resolver.put_right(placement.author, cluster, PlacingRight(names=used) if right is None else right)
        return placement

    async def records_authors(self) -> bool:
        """Whether the server does."""
        if self._records is None:
            self._records = records_authors(orjson.loads(await self._workspace.raw("/version")))
            if not self._records:
                self.remarks.append(TRUSTED)
        return self._records

    async def right(self, key: RightKey) -> PlacingRight | None:
        """None: the user may not review it."""
        if key not in self._rights:
            try:
                self._rights[key] = await self._review(key) if key.author.user else PlacingRight(everywhere=True)
            except Forbidden as error:
                self._rights[key] = None
                self.remarks.append(
                    f"you may not review whether {key.author.user} may place on the Locations in "
                    f"{self._paths.get(key.cluster, key.cluster)}: this "
                    f"needs permission to create {ACCESS_REVIEWS.plural} and to list {CLUSTER_ROLES.plural} there; "
                    f"so the scheduler may decide otherwise. The server says: {error}"
                )
        return self._rights[key]

    async def _review(self, key: RightKey) -> PlacingRight:
        workspace = self._root.workspace(key.cluster)
        if await _allows(workspace, key):
            return PlacingRight(everywhere=True)
        roles = [decode_role(orjson.dumps(role)) for role in await workspace.list(CLUSTER_ROLES)]
        named = sorted(frozenset().union(*(role.names for role in roles)))
        return PlacingRight(names=frozenset([name for name in named if await _allows(workspace, key, name)]))


async def _allows(workspace: Client, key: RightKey, location: str = "") -> bool:
    return is_allowed(await workspace.create(ACCESS_REVIEWS, new_review(key, location)))
