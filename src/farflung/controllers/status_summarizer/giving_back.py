"""The status of the only copy, written where the object is described."""

from __future__ import annotations

from typing import Final, NamedTuple

import orjson

from farflung.client.errors import NotFound
from farflung.client.resource import Collection
from farflung.client.rest import Client, PatchType
from farflung.controllers.placement_translator.engine import Copy
from farflung.controllers.placement_translator.knowledge import Knowledge
from farflung.controllers.placement_translator.values import Part
from farflung.controllers.placement_translator.world import PlacementKey, Seen
from farflung.controllers.status_summarizer.returning import Asked, Returned, Step, is_marked, step
from farflung.lib.klog import Logger
from farflung.machinery.errors import Obj

MOST_STEPS: Final = 4  #: that follow one another: the marks, the status, the marks again


class Object(NamedTuple):
    """One that is described somewhere."""

    cluster: str
    part: Part


class GivingBack:
    def __init__(self, known: Knowledge, everywhere: Client, log: Logger) -> None:
        self._known = known
        self._everywhere = everywhere
        self._log = log
        self._marked: dict[Part, set[str]] = {}  #: the clusters where it has annotations of ours

    def concerned(self, copy: Copy) -> set[Object]:
        """The objects whose status may be another one because of a copy."""
        wanted = self._known.engine.wanted(copy.mailbox, copy.part)
        asking = {one.placement.cluster for one in wanted if one.selected is not None and one.selected.singleton}
        return {Object(cluster, copy.part) for cluster in asking | self._marked.get(copy.part, set())}

    def asked_by(self, key: PlacementKey) -> set[Object]:
        """The objects whose status a placement wants back."""
        selected = self._known.engine.selected(key)
        return {Object(key.cluster, part) for part, how in selected.items() if how.singleton}

    def is_concerned(self, cluster: str, part: Part, seen: Seen | None) -> bool:
        """Whether something is to be done about an object that was heard of."""
        if seen is not None and not seen.ours and is_marked(seen.document):
            self._marked.setdefault(part, set()).add(cluster)
            return True
        if cluster not in self._marked.get(part, ()):
            return False
        self._marked[part].discard(cluster)
        if not self._marked[part]:
            del self._marked[part]
        return True

    async def give(self, one: Object) -> bool:
        """Whether somebody asks for it."""
        seen = self._known.world.get(*one)
        source = self._known.offers.source(one.cluster, one.part.kind)
        asked = self._asked(one)
        if seen is None or not seen.alive or seen.ours or source is None:
            return False
        obj: Obj = orjson.loads(seen.document)
        client = self._everywhere.workspace(one.cluster)
        collection = Collection(one.part.kind.group, source.version, one.part.kind.resource, "")
        for _ in range(MOST_STEPS):
            following = step(one.part.kind, obj, asked)
            if following is None:
                break
            patch, subresource = _patch(obj, following)
            try:
                obj = await client.patch(
                    collection, one.part.name, patch, one.part.namespace, subresource, how=PatchType.JSON
                )
            except NotFound:
                break  # it is gone, or has no status of its own
            self._log.info("Gave back", v=3, object=str(one.part), cluster=one.cluster, what=subresource or "marks")
        return asked is not None

    def _asked(self, one: Object) -> Asked | None:
        engine = self._known.engine
        holders = [key for key in engine.holders(one.part) if key.cluster == one.cluster]
        asking = {key for key in holders if (how := engine.selected(key).get(one.part)) and how.singleton}
        if not asking:
            return None
        mailboxes = {mailbox: place for key in asking for mailbox, place in engine.places(key).items()}
        if len(mailboxes) != 1:
            return Asked(len(mailboxes))
        [(mailbox, place)] = mailboxes.items()
        copy = self._known.world.get(self._known.mailboxes.get(mailbox, ""), one.part)
        if copy is None or not copy.alive or copy.placements.isdisjoint(asking):
            return Asked(1)
        status = orjson.loads(copy.document).get("status")
        return Asked(1, Returned(place.target, status) if isinstance(status, dict) and status else None)


def _patch(obj: Obj, following: Step) -> tuple[list[Obj], str]:
    """Of this very object; and the subresource it is for."""
    patch: list[Obj] = [{"op": "test", "path": "/metadata/uid", "value": obj["metadata"]["uid"]}]
    if following.status is not None:
        return [*patch, {"op": "add", "path": "/status", "value": following.status}], "status"
    there = obj["metadata"].get("annotations")
    if there is None:
        patch.append({"op": "add", "path": "/metadata/annotations", "value": {}})
    for name, value in following.annotations.items():
        path = f"/metadata/annotations/{name.replace('~', '~0').replace('/', '~1')}"
        if value is not None:
            patch.append({"op": "add", "path": path, "value": value})
        elif name in (there or {}):
            patch.append({"op": "remove", "path": path})
    return patch, ""
