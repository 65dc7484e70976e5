"""The mailbox: requests about one copy, its identity, and which syncer serves it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from farflung.apis.edge.names import SYNCER_CONFIGS, SYNCER_FINALIZER
from farflung.apis.kcp.names import CLUSTER_ANNOTATION, LOGICAL_CLUSTERS
from farflung.client.errors import ClientError, NotFound, Unreachable
from farflung.client.rest import Client, PatchType
from farflung.machinery.errors import Obj
from farflung.placement.names import THE_ONE, ObjectRef
from farflung.syncer.context import SyncerContext
from farflung.syncer.copies import MailboxCopy, generation_of
from farflung.syncer.discovery import SharedKinds
from farflung.syncer.edge import EdgeProbe, ignore_absence
from farflung.syncer.informers import KindInformers
from farflung.syncer.journal import ORPHAN_CAUSE
from farflung.syncer.lease import (
    CLUSTER,
    LeaseTracker,
    ServedElsewhereError,
    WrongMailboxError,
    cluster_of,
    holder_record,
)
from farflung.syncer.report import StatusReporter


class MailboxTerminatingError(ClientError):
    """The whole mailbox is being deleted, so that the deletion of a copy is not a withdrawal."""


@dataclass(frozen=True, slots=True)
class MailboxClient:
    client: Client
    kinds: SharedKinds
    copies: KindInformers[MailboxCopy]

    async def check(self, incarnation: str) -> None:
        """Raise MailboxTerminatingError if the mailbox itself is being deleted, or was replaced."""
        if self.kinds.mailbox.groups == ():
            raise Unreachable("discovery of the mailbox is not complete")
        if self.kinds.mailbox.find(LOGICAL_CLUSTERS.group, LOGICAL_CLUSTERS.plural) is None:
            return  # not a workspace, so it cannot be deleted
        metadata = (await self.client.get(LOGICAL_CLUSTERS, CLUSTER))["metadata"]
        if "deletionTimestamp" in metadata:
            raise MailboxTerminatingError("the mailbox is being deleted: its objects stay at the edge")
        if (metadata.get("annotations") or {}).get(CLUSTER_ANNOTATION) != incarnation:
            raise MailboxTerminatingError("the mailbox was replaced: objects of the former one stay at the edge")

    async def add_finalizer(self, ref: ObjectRef, copy: MailboxCopy) -> None:
        await self._set_finalizers(ref, copy, add=True)

    async def remove_finalizer(self, ref: ObjectRef, copy: MailboxCopy) -> None:
        await self._set_finalizers(ref, copy, add=False)

    async def _set_finalizers(self, ref: ObjectRef, copy: MailboxCopy, *, add: bool) -> None:
        collection = self.copies.collection(ref.resource)
        if collection is None:
            raise MailboxTerminatingError(f"the mailbox does not serve {ref.resource.resource}")
        finalizers, version = copy.finalizers, str(copy.revision)
        with ignore_absence(ref):
            if finalizers is None:
                metadata = (await self.client.get(collection, ref.name, ref.namespace))["metadata"]
                finalizers, version = tuple(metadata.get("finalizers") or ()), metadata["resourceVersion"]
            others = [one for one in finalizers if one != SYNCER_FINALIZER]
            wanted = [*others, SYNCER_FINALIZER] if add else others
            patch = {"metadata": {"uid": copy.uid, "resourceVersion": version, "finalizers": wanted}}
            answer = await self.client.patch(collection, ref.name, patch, ref.namespace)
            if add or others:
                self.copies.assume(ref.resource, answer)

    async def generation(self, ref: ObjectRef) -> int | None:
        """Of a copy, asked of the hub; None if it was deleted."""
        if (collection := self.copies.collection(ref.resource)) is not None:
            with ignore_absence(ref):
                answer = await self.client.get(collection, ref.name, ref.namespace)
                return generation_of(answer["metadata"])
        return None

    async def set_status(self, ref: ObjectRef, copy: MailboxCopy, status: Obj) -> None:
        """Do nothing if the copy was deleted or replaced."""
        collection = self.copies.collection(ref.resource)
        if collection is None:
            return
        subresource = "status" if self.kinds.has_status(ref.resource, collection.version) else ""
        patch = [
            {"op": "test", "path": "/metadata/uid", "value": copy.uid},
            {"op": "add", "path": "/status", "value": status},
        ]
        with ignore_absence(ref):
            answer = await self.client.patch(
                collection, ref.name, patch, ref.namespace, subresource, how=PatchType.JSON
            )
            self.copies.assume(ref.resource, answer)


MAILBOX_CLUSTER: Final = "incarnation"  #: fact of the journal: the last logical cluster of the mailbox


class MailboxIdentity:
    """Which logical cluster is the mailbox of the syncer's SyncTarget."""

    def __init__(self, context: SyncerContext, lease: MailboxLease) -> None:
        self.cluster: str | None = None  #: None: `identify` has to ask
        self._mailbox = context.options.mailbox
        self._uid = context.options.uid
        self._lease = lease
        self._journal = context.journal
        self._log = context.log
        self._wrong_path = ""  #: of another SyncTarget's mailbox that answers in its place
        self._asking = asyncio.Lock()

    @property
    def last_cluster(self) -> str:
        """The logical cluster of the copies in the journal; empty if there are none."""
        return self._journal.get_fact(MAILBOX_CLUSTER)

    async def identify(self) -> bool:
        """Ask for the logical cluster, if it is unknown.  Returns whether it was unknown.  Raises ClientError if the
        mailbox is unreachable, not ours, or served by another syncer."""
        async with self._asking:
            if self.cluster is not None:
                return False
            try:
                self.cluster = await self._ask()
            except ServedElsewhereError:
                raise
            except ClientError:
                self._lease.forget_silence()
                raise
            return True

    async def _ask(self) -> str:
        try:
            cluster = await cluster_of(self._mailbox, self._uid)
        except WrongMailboxError as error:
            if error.path != self._wrong_path:
                self._log.warning("the mailbox belongs to another SyncTarget; continuing without it", error=str(error))
            self._wrong_path = error.path
            raise
        if self._wrong_path:
            self._log.info("the mailbox belongs to our SyncTarget again")
        self._wrong_path = ""
        await self._lease.acquire()
        return cluster

    def enter(self, cluster: str, forget: Callable[[], None]) -> None:
        """Events come from this logical cluster from now on.  `forget` discards positions and releases of a former one.
        It is called first, because the journal may be flushed at any moment."""
        before = self.last_cluster
        if before and before != cluster:
            self._log.warning("the mailbox was replaced", before=before, now=cluster)
            self._journal.set_fact(ORPHAN_CAUSE, f"MailboxReplaced: the mailbox was {before} and is {cluster} now")
            forget()
        self._journal.set_fact(MAILBOX_CLUSTER, cluster)


BEATS: Final = 4  #: heartbeats that a syncer may miss before one of another cluster takes over
MAX_SHOWN_UID: Final = 64  #: characters of a uid in a message
STANDBY_FOR: Final = "standing back"  #: fact of the journal: uid of the cluster whose syncer serves the mailbox


class MailboxLease:
    """Whether this syncer serves the mailbox, or stands by for the syncer of another cluster."""

    def __init__(
        self, context: SyncerContext, edge: EdgeProbe, reporter: StatusReporter, lost: Callable[[], None]
    ) -> None:
        """`lost`: called when the syncer of another cluster serves the mailbox."""
        self.held = asyncio.Event()  #: the syncer writes to neither side until this is set
        self._name = context.options.name
        self._mailbox = context.options.mailbox
        self._edge = edge
        self._reporter = reporter
        self._journal = context.journal
        self._monotonic = context.env.monotonic
        self._log = context.log
        self._lost = lost
        self._tracker = LeaseTracker(BEATS * context.options.beat)
        self._stands_by = False
        if not context.journal.get_fact(STANDBY_FOR):
            self.held.set()

    @property
    def standby_reason(self) -> str:
        """A sentence about the syncer that serves the mailbox; empty if this one does."""
        holder = "".join(filter(str.isprintable, self._tracker.holder[:MAX_SHOWN_UID]))
        silence = int(self._tracker.silence(self._monotonic()))
        served = f"the mailbox of {self._name} is served by the syncer of cluster {holder}, last heard {silence}s ago"
        return served if self._tracker.holder else ""

    def forget_silence(self) -> None:
        """The hub does not answer, so the holder may still be alive."""
        self._tracker.forget_silence()

    async def acquire(self) -> None:
        """Raises ServedElsewhereError if a syncer of another cluster serves the mailbox."""
        if not self._own_uids:
            await self._edge.probed.wait()
        try:
            config = await self._mailbox.get(SYNCER_CONFIGS, THE_ONE)
        except NotFound:
            config = {}
        if not self.check(config):
            raise ServedElsewhereError(self.standby_reason)
        uid = holder_record(config).uid
        if config and uid not in self._own_uids and (uid or self._own_uids):
            await self._reporter.claim(config)
            if uid:
                self._log.info("taking over the mailbox", cluster=uid)
        self._resume()

    def check(self, config: Obj) -> bool:
        """Whether this syncer may serve the mailbox according to `the-one`.  If not, it stands by from now on."""
        if self._tracker.check(holder_record(config), self._own_uids, self._monotonic()):
            return True
        if not self._stands_by:
            self._log.warning("standing by", error=self.standby_reason)
            self._stands_by = True
            self._journal.set_fact(STANDBY_FOR, self._tracker.holder)
            self.held.clear()
            self._reporter.heartbeat = ""
            self._lost()
        return False

    @property
    def _own_uids(self) -> set[str]:
        """Two if the edge was replaced and the new uid is not reported yet."""
        return {str(self._edge.info.get("uid") or ""), self._reporter.edge_uid} - {""}

    def _resume(self) -> None:
        if self.held.is_set():
            return
        holder = self._journal.get_fact(STANDBY_FOR)
        if len(self._journal) and holder not in self._own_uids:
            reason = f"ServedByAnother: the syncer of cluster {holder} served the mailbox meanwhile"
            self._journal.set_fact(ORPHAN_CAUSE, reason)
        self._journal.set_fact(STANDBY_FOR, "")
        self._stands_by = False
        self.held.set()
