"""The status of the only copy, written where the object is described."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable
from typing import Any, Final, NamedTuple, TypeVar

import orjson

from farflung.apis.names import Collection
from farflung.client.errors import NotFound, Refused
from farflung.client.rest import Client, PatchType, Selection
from farflung.controllers.placement_translator.engine import Copy
from farflung.controllers.placement_translator.kinds import Category, category
from farflung.controllers.placement_translator.knowledge import Knowledge
from farflung.controllers.placement_translator.offers import BINDINGS
from farflung.controllers.placement_translator.projecting import COUNT, RETURNED
from farflung.controllers.placement_translator.values import Part, Source
from farflung.controllers.placement_translator.what import Selected
from farflung.controllers.placement_translator.world import DEFINITIONS, NAMESPACES, PlacementKey, Seen
from farflung.controllers.status_summarizer.returning import Asked, Returned, Step, is_marked, step
from farflung.controllers.status_summarizer.verdicts import sentence
from farflung.lib.klog import Logger
from farflung.machinery.errors import Obj
from farflung.runtime.recorder import About, Recorder
from farflung.runtime.reflector import CLUSTER

K = TypeVar("K", bound=Hashable)
V = TypeVar("V", bound=Hashable)

MARKED: Final = Selection(labels=COUNT)
MOST_STEPS: Final = 4  #: that follow one another: the marks, the status, the marks again
HOPELESS: Final = frozenset({400, 405, 413, 415, 422})  #: what a server says of a write that it will never take


class Object(NamedTuple):
    """One that is described somewhere."""

    cluster: str
    part: Part


class GivingBack:
    def __init__(self, known: Knowledge, everywhere: Client, recorder: Recorder, log: Logger) -> None:
        self._known = known
        self._everywhere = everywhere
        self._recorder = recorder
        self._log = log
        self._marked: dict[Part, set[str]] = {}  #: the clusters where it has marks of ours
        self._marked_in: dict[str, set[Part]] = {}  #: the same by cluster
        self._refused: dict[Object, tuple[str, bytes]] = {}  #: which version of it does not take which write

    def concerned(self, copy: Copy) -> set[Object]:
        """The objects whose status may be another one because of a copy."""
        wanted = self._known.engine.wanted(copy.mailbox, copy.part)
        asking = {one.placement.cluster for one in wanted if _asks(one.selected, copy.part)}
        return {Object(cluster, copy.part) for cluster in asking | self._marked.get(copy.part, set())}

    def asked_by(self, key: PlacementKey) -> set[Object]:
        """The objects whose status a placement wants back, or may have wanted: it may lead nowhere, and then no copy
        tells of its end."""
        selected = self._known.engine.selected(key)
        asking = {part for part, how in selected.items() if _asks(how, part)}
        return {Object(key.cluster, part) for part in asking | self._marked_in.get(key.cluster, set())}

    def on_object(self, cluster: str, part: Part, seen: Seen | None) -> set[Object]:
        """What was heard of, and what is in it, as far as something may have to be done about it.  Of objects that go
        nowhere no copy tells."""
        found: set[Object] = set()
        if seen is None:
            self._refused.pop(Object(cluster, part), None)
        if self._note_marks(cluster, part, seen) or (
            seen is not None and not seen.ours and self._asking(cluster, part)
        ):
            found.add(Object(cluster, part))
        if part.kind == NAMESPACES and cluster in self._known.engine.sources():
            for key in [one for one in self._known.placements if one.cluster == cluster]:
                found |= self.asked_by(key)
        if part.kind in (DEFINITIONS, BINDINGS):
            found |= self._reconsidered(cluster)
        return found

    def _reconsidered(self, cluster: str) -> set[Object]:
        """What was refused in a workspace, by a schema that may be another one now."""
        found = {one for one in self._refused if one.cluster == cluster}
        for one in found:
            del self._refused[one]
        return found

    def _note_marks(self, cluster: str, part: Part, seen: Seen | None) -> bool:
        """Whether it has marks of ours, or had some."""
        if seen is not None and not seen.ours and is_marked(seen.document):
            self._marked.setdefault(part, set()).add(cluster)
            self._marked_in.setdefault(cluster, set()).add(part)
            return True
        if cluster not in self._marked.get(part, ()):
            return False
        _discard(self._marked, part, cluster)
        _discard(self._marked_in, cluster, part)
        return True

    def unheard(self) -> list[Source]:
        """Kinds of which nothing is heard, in workspaces without placements."""
        return sorted(self._known.offers.everything().difference(self._known.offers.builtin(), self._known.sources))

    async def find(self, source: Source) -> set[Object]:
        """Those that have marks.  Raises ClientError."""
        found: set[Object] = set()
        everywhere = self._everywhere.workspace(source.cluster) if source.cluster else self._everywhere
        for obj in await everywhere.list(source.collection(), MARKED):
            metadata = obj["metadata"]
            cluster = source.cluster or (metadata.get("annotations") or {}).get(CLUSTER, "")
            found.add(Object(cluster, Part(source.kind, metadata.get("namespace", ""), metadata["name"])))
        return found

    async def give(self, one: Object) -> bool:
        """Whether somebody asks for it."""
        seen = self._known.world.get(*one)
        source = self._known.offers.source(one.cluster, one.part.kind)
        asked = self._asked(one)
        if source is None or (seen is not None and (not seen.alive or seen.ours)):
            return False
        client = self._everywhere.workspace(one.cluster)
        collection = Collection(one.part.kind.group, source.version, one.part.kind.resource, "")
        if seen is not None:
            obj: Obj = orjson.loads(seen.document)
        else:  # of workspaces without placements less is heard
            try:
                obj = await client.get(collection, one.part.name, one.part.namespace)
            except NotFound:
                return False
        for _ in range(MOST_STEPS):
            following = step(one.part.kind, obj, asked)
            if following is None:
                self._refused.pop(one, None)
                break
            try:
                taken = await self._take(one, client, collection, obj, following)
            except NotFound:
                break  # it is gone, or has no status of its own
            if taken is None:
                break
            obj = taken
            if following.status is not None:
                obj["status"] = following.status  # some servers have more to say; that is not ours
        return asked is not None

    async def _take(self, one: Object, client: Client, collection: Collection, obj: Obj, following: Step) -> Obj | None:
        """None: its server refuses that, which is told once; the same is tried again when the object is another."""
        patch, subresource, how = _patch(obj, following)
        attempt = obj["metadata"].get("resourceVersion", ""), hashlib.sha256(orjson.dumps(patch)).digest()
        if self._refused.get(one) == attempt:
            return None
        self._refused[one] = attempt  # before it is, so that a schema that changes meanwhile leads here again
        try:
            taken = await client.patch(collection, one.part.name, patch, one.part.namespace, subresource, how=how)
        except BaseException as error:
            if isinstance(error, Refused) and error.status in HOPELESS:
                self._tell(one, obj, error)
                return None
            self._refused.pop(one, None)
            raise
        self._refused.pop(one, None)
        self._log.info("Gave back", v=3, object=str(one.part), cluster=one.cluster, what=subresource or "marks")
        return taken

    def _tell(self, one: Object, obj: Obj, error: Refused) -> None:
        part, uid = one.part, obj["metadata"]["uid"]
        about = About(one.cluster, obj.get("apiVersion", ""), obj.get("kind", ""), part.name, part.namespace, uid)
        self._recorder.record(about, "Warning", "StatusNotReturned", sentence(f"its server refuses it: {error}"))
        self._log.error(error, "cannot give back", object=str(part), cluster=one.cluster)

    def _asking(self, cluster: str, part: Part) -> set[PlacementKey]:
        """The placements that want the status of an object back."""
        engine = self._known.engine
        holders = [key for key in engine.holders(part) if key.cluster == cluster]
        return {key for key in holders if _asks(engine.selected(key).get(part), part)}

    def _asked(self, one: Object) -> Asked | None:
        engine, asking = self._known.engine, self._asking(*one)
        if not asking:
            return None
        mailboxes = {mailbox: place for key in asking for mailbox, place in engine.places(key).items()}
        if len(mailboxes) != 1:
            return Asked(len(mailboxes))
        names = frozenset(key.name for key in asking)
        [(mailbox, place)] = mailboxes.items()
        copy = self._known.world.get(self._known.mailboxes.get(mailbox, ""), one.part)
        if copy is None or not copy.alive or copy.placements.isdisjoint(asking):
            return Asked(1)
        status = orjson.loads(copy.document).get("status")
        return Asked(1, Returned(place.target, status) if isinstance(status, dict) and status else None, names)


def _asks(selected: Selected | None, part: Part) -> bool:
    """Only clusters say how something is that goes there."""
    return selected is not None and selected.singleton and category(part.kind) is Category.EDGE


def _discard(index: dict[K, set[V]], key: K, value: V) -> None:
    index[key].discard(value)
    if not index[key]:
        del index[key]


def _patch(obj: Obj, following: Step) -> tuple[Any, str, PatchType]:
    """Of this very object, and of nothing in it but what is ours, whatever became of the rest meanwhile; and the
    subresource it is for."""
    uid = obj["metadata"]["uid"]
    if following.status is not None:
        test = {"op": "test", "path": "/metadata/uid", "value": uid}
        put = {"op": "add", "path": "/status", "value": following.status}
        gone = {"op": "remove", "path": "/status"}  # some kinds have no status that is empty
        return [test, put if following.status else gone], "status", PatchType.JSON
    metadata: Obj = {"uid": uid}
    for section, name, value in (("labels", COUNT, following.executing), ("annotations", RETURNED, following.returned)):
        if value is not None or name in (obj["metadata"].get(section) or {}):
            metadata[section] = {name: value}
    return {"metadata": metadata}, "", PatchType.MERGE
