"""Write StatusSummaries, and the status of StatusCollectors."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

import msgspec
import orjson

from farflung.apis.edge.names import EDGE_PLACEMENTS, STATUS_COLLECTORS, STATUS_SUMMARIES, SUMMARY_PLACEMENT
from farflung.apis.names import NAMESPACES
from farflung.client.errors import AlreadyExists, NotFound
from farflung.client.rest import Client
from farflung.controllers.status_summarizer.collectors import ParsedCollector, status_of
from farflung.controllers.status_summarizer.decide import NAMESPACE, CollectorKey, Summaries, summary_key
from farflung.controllers.status_summarizer.health import SummarySubject
from farflung.lib.klog import Logger
from farflung.machinery.errors import Obj
from farflung.placement.feeds import FeedViews
from farflung.placement.names import GroupResource
from farflung.runtime.cache import Key
from farflung.runtime.informer import Informer


class _Owner(msgspec.Struct, frozen=True):
    kind: str = ""


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    labels: dict[str, str] | None = None
    owner_references: list[_Owner] | None = None


class _About(msgspec.Struct, frozen=True):
    resource: str = ""
    group: str = ""


class _Summary(msgspec.Struct, frozen=True):
    metadata: _Metadata
    subject: _About = _About()


_SUMMARY: Final = msgspec.json.Decoder(_Summary)


class StoredSummary(msgspec.Struct, frozen=True):
    """A summary in the cache."""

    document: bytes
    ours: bool  #: whether the summarizer created it
    resource: GroupResource  #: of its subject


def parse_summary(document: bytes) -> StoredSummary:
    found = _SUMMARY.decode(document)
    metadata, about = found.metadata, found.subject
    owned = any(one.kind == EDGE_PLACEMENTS.kind for one in metadata.owner_references or ())
    return StoredSummary(
        document, owned or SUMMARY_PLACEMENT in (metadata.labels or ()), GroupResource(about.group, about.resource)
    )


class SummaryWriter:
    def __init__(self, summaries: Summaries, there: Informer[StoredSummary], views: FeedViews, log: Logger) -> None:
        self._summaries = summaries
        self._there = there
        self._views = views
        self._log = log

    async def write(self, subject: SummarySubject) -> bool:
        """Whether there is a summary afterwards."""
        wanted = self._summaries.summary(subject)
        key = summary_key(subject)
        found = self._there.cache.get(key)
        before: Obj | None = None if found is None else orjson.loads(found.document)
        if wanted is None:
            if before is not None:
                await self._delete(key, before)
            return False
        if before is None:
            await self._create(key, wanted)
        elif (after := renewed(before, wanted)) != before:
            self._there.assume(await self._views.edge_of(key.cluster).update(STATUS_SUMMARIES, after))
            self._log.info("Updated StatusSummary", v=4, summary=str(key))
        return True

    async def clear(self, key: Key) -> None:
        """Delete a superfluous summary."""
        found = self._there.cache.get(key)
        if found is not None and found.ours and self._summaries.called(key) is None:
            await self._delete(key, orjson.loads(found.document))

    async def _create(self, key: Key, wanted: Obj) -> None:
        view = self._views.edge_of(key.cluster)
        try:
            made = await view.create(STATUS_SUMMARIES, wanted, key.namespace)
        except AlreadyExists:
            return  # an event follows
        except NotFound:
            if key.namespace != NAMESPACE:
                raise
            await self._make_namespace(key.cluster)
            made = await view.create(STATUS_SUMMARIES, wanted, key.namespace)
        self._there.assume(made)
        self._log.info("Created StatusSummary", v=2, summary=str(key))

    async def _make_namespace(self, cluster: str) -> None:
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        with contextlib.suppress(AlreadyExists):
            await self._views.everywhere.workspace(cluster).create(NAMESPACES, namespace)

    async def _delete(self, key: Key, before: Obj) -> None:
        metadata = before["metadata"]
        with contextlib.suppress(NotFound):
            await self._views.edge_of(key.cluster).delete(
                STATUS_SUMMARIES, key.name, key.namespace, uid=metadata["uid"]
            )
        self._there.forget(key, int(metadata["resourceVersion"]))
        self._log.info("Deleted StatusSummary", v=2, summary=str(key))


def renewed(before: Obj, wanted: Obj) -> Obj:
    """The observed summary with the desired content; metadata of others is kept."""
    metadata: dict[str, Any] = {**before["metadata"], "ownerReferences": wanted["metadata"]["ownerReferences"]}
    metadata["labels"] = {**(metadata.get("labels") or {}), **wanted["metadata"]["labels"]}
    return {**wanted, "metadata": metadata}


class CollectorStatusWriter:
    def __init__(
        self,
        collectors: Informer[ParsedCollector],
        view: Callable[[str], Client],
        now: Callable[[], datetime],
        log: Logger,
    ) -> None:
        """`view`: the edge API of a workspace."""
        self._collectors = collectors
        self._view = view
        self._now = now
        self._log = log

    async def write(self, key: CollectorKey) -> None:
        seen = self._collectors.cache.get(Key(key.cluster, "", key.name))
        status = None if seen is None else status_of(seen, self._now())
        if seen is None or status is None:
            return
        obj = orjson.loads(seen.document) | {"status": status}
        self._collectors.assume(await self._view(key.cluster).update(STATUS_COLLECTORS, obj, "status"))
        self._log.info("Updated status of StatusCollector", v=2, statusCollector=key.name, errors=len(seen.errors))
