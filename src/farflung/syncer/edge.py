"""The two sides of a syncer: the mailbox, and the edge."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import orjson

from farflung.apis.edge.names import EDGE_REACHABLE
from farflung.apis.names import NAMESPACES, Collection
from farflung.client.errors import ClientError, InvalidResponse, NotFound
from farflung.client.rest import EVERYTHING, Client, ListOptions
from farflung.lib.klog import Logger
from farflung.machinery.errors import Obj
from farflung.placement.names import Kind, is_system
from farflung.runtime.reflector import Environment
from farflung.syncer.conversion import is_create_only, is_downsynced
from farflung.syncer.discovery import ServedKinds
from farflung.syncer.informers import KindInformers
from farflung.syncer.report import ReportCondition
from farflung.syncer.types import Part, Resource

#: what others write about objects, and what follows them
BESIDE: Final = frozenset({"events", "endpoints", "endpointslices", "leases", "controllerrevisions"})


@contextlib.contextmanager
def ignore_absence(part: Part) -> Iterator[None]:
    """Nothing is wrong if a server says that the object is not there.  Another server, that knows nothing of it, is
    not believed."""
    try:
        yield
    except NotFound as error:
        if not error.is_about(part.name):
            raise


@dataclass(frozen=True, slots=True)
class EdgeClient:
    client: Client
    kinds: ServedKinds
    objects: KindInformers[Obj]  #: those that look like ours, slim

    async def read(self, collection: Collection, part: Part) -> Obj | None:
        """The whole of it, as it is now."""
        with ignore_absence(part):
            return await self.client.get(collection, part.name, part.namespace)
        return None

    async def stranger_in(self, part: Part) -> str:
        """Something that is in a namespace, or of a kind that a definition defines, and that nobody withdrew; empty if
        there is none.  Of what is ours, nothing is left that is remembered."""
        if part.resource == Resource("", "namespaces"):
            inside = [one for one in self.kinds.containing() if one.plural not in BESIDE]
            for collection in inside:
                if found := await self._stranger(collection, ListOptions(namespace=part.name)):
                    return found
            return ""
        plural, _, group = part.name.partition(".")
        defined = self.kinds.at_edge(Resource(group, plural))
        return "" if defined is None else await self._stranger(defined, EVERYTHING)

    async def _stranger(self, collection: Collection, selection: ListOptions) -> str:
        for one in await self.client.list(collection, selection):
            metadata = one["metadata"]
            if not (
                (is_downsynced(one) and is_create_only(one))
                or metadata.get("ownerReferences")
                or "deletionTimestamp" in metadata
                or is_system(Kind(collection.group, collection.plural), one)
            ):
                return f"{collection.kind} {metadata['name']}"
        return ""


LASTING: Final = "kube-system"  #: the namespace whose uid is the cluster's


class EdgeProbe:
    """Asks again and again."""

    def __init__(
        self,
        edge: Client,
        pause: float,
        env: Environment,
        log: Logger,
        *,
        uid: str,
        news: Callable[[], None],
        replaced: Callable[[], None],
    ) -> None:
        """`pause`: seconds between two questions; `uid`: of the cluster that it was before, empty if that is not known;
        `news`: told when the edge is gone or back; `replaced`: told if it is another cluster than before."""
        self.trouble = ""  #: why it cannot be reached; empty if it can
        self.said: Obj = {"uid": uid} if uid else {}  #: what the edge says of itself: `version` and `uid`
        self.asked = asyncio.Event()  #: it has answered, or does not now
        self._edge = edge
        self._pause = pause
        self._env = env
        self._log = log
        self._news = news
        self._replaced = replaced

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                await self._ask()
                self._settle("")
            except ClientError as error:
                self._settle(str(error) or type(error).__name__)
            self.asked.set()
            await self._env.sleep(self._pause)

    async def _ask(self) -> None:
        try:
            said = orjson.loads(await self._edge.raw("/version"))
        except orjson.JSONDecodeError as error:
            raise InvalidResponse(f"the edge does not say which version it has: {error}") from None
        self.said["version"] = str(said.get("gitVersion", "")) if isinstance(said, dict) else ""
        with contextlib.suppress(NotFound):
            metadata = (await self._edge.get(NAMESPACES, LASTING)).get("metadata") or {}
            before, self.said["uid"] = self.said.get("uid"), str(metadata.get("uid") or "")
            if before not in (None, self.said["uid"]):
                self._replaced()

    def condition(self) -> ReportCondition:
        """Whether it can be reached."""
        if self.trouble:
            return ReportCondition(EDGE_REACHABLE, False, "Unreachable", self.trouble)
        return ReportCondition(EDGE_REACHABLE, True, "Reachable")

    def _settle(self, trouble: str) -> None:
        before, self.trouble = self.trouble, trouble
        if bool(before) == bool(trouble):
            return
        if trouble:
            self._log.warning("the edge cannot be reached", error=trouble)
        else:
            self._log.info("the edge can be reached again")
        self._news()
