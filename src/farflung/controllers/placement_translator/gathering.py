"""What an object of a mailbox is made of: the same object of several workspaces, all in one version of the API."""

from __future__ import annotations

from typing import Final, NamedTuple

import orjson

from farflung.apis.names import Collection
from farflung.client.errors import NotFound
from farflung.client.rest import Client
from farflung.controllers.placement_translator import projecting
from farflung.controllers.placement_translator.engine import Copy
from farflung.controllers.placement_translator.merging import Offer, Source, agreed
from farflung.controllers.placement_translator.serving import Serving
from farflung.controllers.placement_translator.values import Kind, Part
from farflung.controllers.placement_translator.world import Seen
from farflung.machinery.errors import Obj

REMEMBERED: Final = 20_000  #: objects of which is remembered what goes anywhere


class Gathered(NamedTuple):
    sources: list[Source]
    conflict: str = ""  #: why some are left out


class Gathering:
    def __init__(self, serving: Serving, everywhere: Client) -> None:
        self._serving = serving
        self._everywhere = everywhere
        self._agreed: dict[tuple[str, Kind], str] = {}  #: versions, by mailbox
        self._stripped: dict[tuple[str, Part], tuple[int, str, Obj]] = {}

    async def gather(self, copy: Copy, alive: list[tuple[str, Seen]]) -> Gathered:
        """`alive`: by cluster.  Raises ClientError."""
        if len(alive) > 1 and len({seen.api_version for _, seen in alive}) > 1:
            return await self._in_one_version(copy, alive)
        return Gathered(
            [Source(cluster, seen.version, self._bare(cluster, copy.part, seen)) for cluster, seen in alive]
        )

    async def _in_one_version(self, copy: Copy, alive: list[tuple[str, Seen]]) -> Gathered:
        kind = copy.part.kind
        offers: list[Offer] = []
        for cluster, seen in alive:
            versions = await self._serving.versions(cluster, kind) or (seen.api_version,)
            offers.append(Offer(cluster, versions, versions[0]))
        agreement = agreed(offers, self._agreed.get((copy.mailbox, kind)))
        self._agreed[copy.mailbox, kind] = agreement.version
        sources: list[Source] = []
        for cluster, seen in alive:
            if cluster not in agreement.dropped:
                bare = await self._bare_in(agreement.version, cluster, copy.part, seen)
                sources += [] if bare is None else [Source(cluster, seen.version, bare)]
        return Gathered(sources, agreement.conflict)

    def _bare(self, cluster: str, part: Part, seen: Seen) -> Obj:
        """What of an object goes anywhere, worked out once for all mailboxes."""
        remembered = self._stripped.get((cluster, part))
        if remembered is not None and remembered[:2] == (seen.version, seen.api_version):
            return remembered[2]
        return self._remember(cluster, part, seen.version, seen.api_version, orjson.loads(seen.document))

    async def _bare_in(self, version: str, cluster: str, part: Part, seen: Seen) -> Obj | None:
        """In another version than it was heard of; None if it has gone."""
        remembered = self._stripped.get((cluster, part))
        if remembered is not None and remembered[:2] == (seen.version, version):
            return remembered[2]
        if version == seen.api_version:
            return self._bare(cluster, part, seen)
        collection = Collection(part.kind.group, version, part.kind.resource, "")
        try:
            obj = await self._everywhere.workspace(cluster).get(collection, part.name, part.namespace)
        except NotFound:
            return None
        return self._remember(cluster, part, seen.version, version, obj)

    def _remember(self, cluster: str, part: Part, version: int, api_version: str, obj: Obj) -> Obj:
        if len(self._stripped) >= REMEMBERED:
            self._stripped.clear()
        bare = projecting.stripped(obj)
        self._stripped[cluster, part] = version, api_version, bare
        return bare
