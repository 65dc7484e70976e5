"""The two sides of a syncer: the mailbox, and the edge."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from farflung.apis.edge.names import SYNCER_CONFIGS, SYNCER_FINALIZER
from farflung.apis.kcp.names import CLUSTER_ANNOTATION, LOGICAL_CLUSTERS
from farflung.client.errors import ClientError, NotFound, Unreachable
from farflung.client.rest import Client, PatchType
from farflung.lib.klog import Logger
from farflung.machinery.errors import Obj
from farflung.runtime.reflector import Environment
from farflung.syncer.copies import MailboxCopy
from farflung.syncer.discovery import ServedKinds
from farflung.syncer.edge import EdgeProbe, ignore_absence
from farflung.syncer.informers import KindInformers
from farflung.syncer.journal import SUSPICION, Journal
from farflung.syncer.lease import (
    CLUSTER,
    LeaseTracker,
    ServedElsewhereError,
    WrongMailboxError,
    cluster_of,
    holder_record,
)
from farflung.syncer.report import THE_ONE, StatusReporter
from farflung.syncer.types import Part


class MailboxEndsError(ClientError):
    """What is deleted in it is not withdrawn: all of it goes."""


@dataclass(frozen=True, slots=True)
class MailboxClient:
    client: Client
    kinds: ServedKinds
    copies: KindInformers[MailboxCopy]

    async def check(self, incarnation: str) -> None:
        """Whether what was being deleted there was withdrawn.  Raises MailboxEndsError if the mailbox itself is being
        deleted, or is another one by now."""
        if self.kinds.mailbox.groups == ():
            raise Unreachable("what the mailbox serves is not known yet")
        if self.kinds.mailbox.find(LOGICAL_CLUSTERS.group, LOGICAL_CLUSTERS.plural) is None:
            return  # not a workspace: it cannot end
        metadata = (await self.client.get(LOGICAL_CLUSTERS, CLUSTER))["metadata"]
        if "deletionTimestamp" in metadata:
            raise MailboxEndsError("the mailbox is being deleted: what came from it stays at the edge")
        if (metadata.get("annotations") or {}).get(CLUSTER_ANNOTATION) != incarnation:
            raise MailboxEndsError("the mailbox was made anew: what came from the old one stays at the edge")

    async def guard(self, part: Part, copy: MailboxCopy) -> None:
        """Let it not go before it is gone at the edge."""
        await self._set_finalizers(part, copy, add=True)

    async def release(self, part: Part, copy: MailboxCopy) -> None:
        await self._set_finalizers(part, copy, add=False)

    async def _set_finalizers(self, part: Part, copy: MailboxCopy, *, add: bool) -> None:
        collection = self.copies.collection(part.resource)
        if collection is None:
            raise MailboxEndsError(f"the mailbox does not serve {part.resource.plural}")
        finalizers, version = copy.finalizers, str(copy.revision)
        with ignore_absence(part):
            if finalizers is None:
                metadata = (await self.client.get(collection, part.name, part.namespace))["metadata"]
                finalizers, version = tuple(metadata.get("finalizers") or ()), metadata["resourceVersion"]
            others = [one for one in finalizers if one != SYNCER_FINALIZER]
            wanted = [*others, SYNCER_FINALIZER] if add else others
            patch = {"metadata": {"uid": copy.uid, "resourceVersion": version, "finalizers": wanted}}
            answer = await self.client.patch(collection, part.name, patch, part.namespace)
            if add or others:
                self.copies.assume(part.resource, answer)

    async def set_status(self, part: Part, copy: MailboxCopy, status: Obj) -> None:
        """Nothing happens if it is gone, or another one by now."""
        collection = self.copies.collection(part.resource)
        if collection is None:
            return
        subresource = "status" if self.kinds.has_status(part.resource, collection.version) else ""
        patch = [
            {"op": "test", "path": "/metadata/uid", "value": copy.uid},
            {"op": "add", "path": "/status", "value": status},
        ]
        with ignore_absence(part):
            answer = await self.client.patch(
                collection, part.name, patch, part.namespace, subresource, how=PatchType.JSON
            )
            self.copies.assume(part.resource, answer)


INCARNATION: Final = "incarnation"  #: fact of the journal: the cluster that the mailbox was when it was last heard


class MailboxIdentity:
    def __init__(self, mailbox: Client, uid: str, serving: MailboxLease, journal: Journal, log: Logger) -> None:
        """`uid`: of the SyncTarget."""
        self.cluster: str | None = None  #: the one that was found to be our mailbox; None: it is to be asked
        self._mailbox = mailbox
        self._uid = uid
        self._serving = serving
        self._journal = journal
        self._log = log
        self._stranger = ""  #: somebody else's, that was found in its place
        self._asking = asyncio.Lock()

    @property
    def remembered(self) -> str:
        """The cluster that what we know is from; empty if nothing was heard yet."""
        return self._journal.get_fact(INCARNATION)

    async def find(self) -> bool:
        """Ask whose it is, if that is not known.  Whether it was asked.  Raises ClientError as long as it is not
        ours."""
        async with self._asking:
            if self.cluster is not None:
                return False
            try:
                self.cluster = await self._ask()
            except ServedElsewhereError:
                raise
            except ClientError:
                self._serving.lose_sight()
                raise
            return True

    async def _ask(self) -> str:
        try:
            cluster = await cluster_of(self._mailbox, self._uid)
        except WrongMailboxError as error:
            if error.path != self._stranger:
                self._log.warning("the mailbox is not ours; going on without it", error=str(error))
            self._stranger = error.path
            raise
        if self._stranger:
            self._log.info("the mailbox is ours again")
        self._stranger = ""
        await self._serving.begin()
        return cluster

    def meet(self, cluster: str, forget: Callable[[], None]) -> None:
        """What is heard from now on is from this one.  `forget`: how far another was heard and what it released, and
        that before it is known to be another, because the journal may be written at any moment."""
        before = self.remembered
        if before and before != cluster:
            self._log.warning("the mailbox was made anew", before=before, now=cluster)
            self._journal.set_fact(SUSPICION, f"MailboxReplaced: the mailbox was {before} and is {cluster} now")
            forget()
        self._journal.set_fact(INCARNATION, cluster)


BEATS: Final = 4  #: heartbeats that a syncer may miss before that of another cluster takes over
LONGEST: Final = 64  #: characters of an uid that are told
STANDING_BACK: Final = "standing back"  #: fact of the journal: for the syncer of which cluster


class MailboxLease:
    def __init__(
        self,
        name: str,
        mailbox: Client,
        edge: EdgeProbe,
        reporter: StatusReporter,
        journal: Journal,
        env: Environment,
        log: Logger,
        *,
        beat: float,
        lost: Callable[[], None],
    ) -> None:
        """`name`: of the SyncTarget; `lost`: told when somebody else is found to serve the mailbox."""
        self.allowed = asyncio.Event()  #: nothing is done on either side until this is set
        self._name = name
        self._mailbox = mailbox
        self._edge = edge
        self._reporter = reporter
        self._journal = journal
        self._monotonic = env.monotonic
        self._log = log
        self._lost = lost
        self._turn = LeaseTracker(BEATS * beat)
        self._is_told = False  #: whether it is known that we stand back
        if not journal.get_fact(STANDING_BACK):
            self.allowed.set()

    @property
    def obstacle(self) -> str:
        """Who serves the mailbox in our place, as a sentence; empty if we do."""
        rival = "".join(filter(str.isprintable, self._turn.rival[:LONGEST]))
        silence = int(self._turn.silence(self._monotonic()))
        served = f"the mailbox of {self._name} is served by the syncer of cluster {rival}, last heard {silence}s ago"
        return served if self._turn.rival else ""

    def lose_sight(self) -> None:
        """Nobody can say now who serves the mailbox."""
        self._turn.lose_sight()

    async def begin(self) -> None:
        """Raises ServedElsewhereError if it is not our turn, and ClientError if that cannot be found out."""
        if not self._own:
            await self._edge.asked.wait()
        try:
            config = await self._mailbox.get(SYNCER_CONFIGS, THE_ONE)
        except NotFound:
            config = {}
        if not self.may(config):
            raise ServedElsewhereError(self.obstacle)
        uid = holder_record(config).uid
        if config and uid not in self._own and (uid or self._own):
            await self._reporter.claim(config)
            if uid:
                self._log.info("taking over the mailbox", cluster=uid)
        self._resume()

    def may(self, config: Obj) -> bool:
        """Whether it is our turn, by what `the-one` says.  From now on nothing is done if it is not."""
        if self._turn.judge(holder_record(config), self._own, self._monotonic()):
            return True
        if not self._is_told:
            self._log.warning("standing back", error=self.obstacle)
            self._is_told = True
            self._journal.set_fact(STANDING_BACK, self._turn.rival)
            self.allowed.clear()
            self._reporter.heartbeat = ""
            self._lost()
        return False

    @property
    def _own(self) -> set[str]:
        """Two if the edge was replaced, and the hub does not know yet."""
        return {str(self._edge.said.get("uid") or ""), self._reporter.edge} - {""}

    def _resume(self) -> None:
        if self.allowed.is_set():
            return
        rival = self._journal.get_fact(STANDING_BACK)
        if len(self._journal) and rival not in self._own:
            reason = f"ServedByAnother: the syncer of cluster {rival} served the mailbox for a while"
            self._journal.set_fact(SUSPICION, reason)
        self._journal.set_fact(STANDING_BACK, "")
        self._is_told = False
        self.allowed.set()
