"""The edge: requests about one object, and a probe of the cluster."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import orjson

from farflung.apis.edge.names import EDGE_REACHABLE
from farflung.apis.names import NAMESPACES, PODS, Collection
from farflung.client.errors import ClientError, InvalidResponse, NotFound
from farflung.client.rest import EVERYTHING, Client, ListOptions
from farflung.controllers.status_summarizer.health import CopyProblem, find_stuck_pod
from farflung.machinery.errors import Obj
from farflung.machinery.selectors import InvalidFieldError, Selector, parse_label_selector
from farflung.placement.names import GroupResource, ObjectRef, is_system
from farflung.syncer.context import SyncerContext
from farflung.syncer.conversion import is_create_only, is_downsynced
from farflung.syncer.discovery import SharedKinds
from farflung.syncer.informers import KindInformers
from farflung.syncer.report import ReportCondition

#: resources that other controllers write about objects, and that do not keep a namespace from being deleted
IGNORED_RESOURCES: Final = frozenset({"events", "endpoints", "endpointslices", "leases", "controllerrevisions"})


@contextlib.contextmanager
def ignore_absence(ref: ObjectRef) -> Iterator[None]:
    """Suppress NotFound if the server names the object.  A proxy or another server that does not know it is not
    believed."""
    try:
        yield
    except NotFound as error:
        if not error.is_about(ref.name):
            raise


@dataclass(frozen=True, slots=True)
class EdgeClient:
    client: Client
    kinds: SharedKinds
    objects: KindInformers[Obj]  #: those with the label of downsynced objects, without fields that no decision needs

    async def read(self, collection: Collection, ref: ObjectRef) -> Obj | None:
        """The whole object, from the server."""
        with ignore_absence(ref):
            return await self.client.get(collection, ref.name, ref.namespace)
        return None

    async def stuck_pod(self, namespace: str, selector: Any) -> CopyProblem | None:
        """A Pod of a workload that does not start.  Raises ClientError."""
        try:
            wanted = msgspec.convert(selector, Selector)
            chosen = parse_label_selector(wanted, "spec.selector")
        except (msgspec.ValidationError, InvalidFieldError):
            return None
        labels = ",".join(f"{key}={value}" for key, value in (wanted.match_labels or {}).items())
        pods = await self.client.list(PODS, ListOptions(namespace, labels))
        return find_stuck_pod(pod for pod in pods if chosen.matches(pod["metadata"].get("labels") or {}))

    async def foreign_object_in(self, ref: ObjectRef) -> str:
        """An object in a namespace, or of the kind of a definition, that was not withdrawn; empty if there is
        none.  The journal has no entries in it any more."""
        if ref.resource == GroupResource("", "namespaces"):
            inside = [one for one in self.kinds.containing() if one.plural not in IGNORED_RESOURCES]
            for collection in inside:
                if found := await self._foreign_object(collection, ListOptions(namespace=ref.name)):
                    return found
            return ""
        plural, _, group = ref.name.partition(".")
        defined = self.kinds.at_edge(GroupResource(group, plural))
        return "" if defined is None else await self._foreign_object(defined, EVERYTHING)

    async def _foreign_object(self, collection: Collection, selection: ListOptions) -> str:
        for one in await self.client.list(collection, selection):
            metadata = one["metadata"]
            if not (
                (is_downsynced(one) and is_create_only(one))
                or metadata.get("ownerReferences")
                or "deletionTimestamp" in metadata
                or is_system(GroupResource(collection.group, collection.plural), one)
            ):
                return f"{collection.kind} {metadata['name']}"
        return ""


LASTING: Final = "kube-system"  #: the namespace whose uid identifies a cluster


class EdgeProbe:
    """Asks the edge periodically for its version and its identity."""

    def __init__(
        self, context: SyncerContext, uid: str, changed: Callable[[], None], replaced: Callable[[], None]
    ) -> None:
        """`uid`: of the last known cluster, or empty; `changed`: called when the edge becomes unreachable or reachable;
        `replaced`: called when it is another cluster."""
        self.error = ""  #: why the edge is unreachable; empty if it is reachable
        self.info: Obj = {"uid": uid} if uid else {}  #: `version` and `uid` of the edge
        self.probed = asyncio.Event()  #: set after the first probe, successful or not
        self._edge = context.options.edge
        self._pause = context.options.beat / 2
        self._env = context.edge_env
        self._log = context.log
        self._changed = changed
        self._replaced = replaced

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                await self._probe()
                self._set_error("")
            except ClientError as error:
                self._set_error(str(error) or type(error).__name__)
            self.probed.set()
            await self._env.sleep(self._pause)

    async def _probe(self) -> None:
        try:
            version = orjson.loads(await self._edge.raw("/version"))
        except orjson.JSONDecodeError as error:
            raise InvalidResponse(f"the edge's /version is not JSON: {error}") from None
        self.info["version"] = str(version.get("gitVersion", "")) if isinstance(version, dict) else ""
        with contextlib.suppress(NotFound):
            metadata = (await self._edge.get(NAMESPACES, LASTING)).get("metadata") or {}
            before, self.info["uid"] = self.info.get("uid"), str(metadata.get("uid") or "")
            if before not in (None, self.info["uid"]):
                self._replaced()

    def condition(self) -> ReportCondition:
        if self.error:
            return ReportCondition(EDGE_REACHABLE, False, "Unreachable", self.error)
        return ReportCondition(EDGE_REACHABLE, True, "Reachable")

    def _set_error(self, error: str) -> None:
        before, self.error = self.error, error
        if bool(before) == bool(error):
            return
        if error:
            self._log.warning("the edge cannot be reached", error=error)
        else:
            self._log.info("the edge can be reached again")
        self._changed()
