"""Which cluster the mailbox is.  One that is not known to be ours is neither believed nor written to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from farflung.client.errors import ClientError
from farflung.client.rest import Client
from farflung.lib.klog import Logger
from farflung.syncer.journal import Journal
from farflung.syncer.serving import SUSPICION, Serving
from farflung.syncer.whose import ServedElsewhereError, WrongMailboxError, cluster_of

INCARNATION: Final = "incarnation"  #: fact of the journal: the cluster that the mailbox was when it was last heard


class Incarnation:
    def __init__(self, mailbox: Client, uid: str, serving: Serving, journal: Journal, log: Logger) -> None:
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
