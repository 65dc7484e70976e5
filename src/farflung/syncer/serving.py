"""Serve a mailbox, unless the syncer of another cluster does.  Of two that both did, each would undo what the other one
does: the later one stands back, and touches nothing on either side."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from farflung.client.errors import NotFound
from farflung.client.rest import Client
from farflung.lib.klog import Logger
from farflung.machinery.errors import Obj
from farflung.runtime.reflector import Environment
from farflung.syncer.edge_watch import EdgeWatch
from farflung.syncer.journal import Journal
from farflung.syncer.report import CONFIGS, THE_ONE, Reporter
from farflung.syncer.turns import Turn, seen
from farflung.syncer.whose import ServedElsewhereError

BEATS: Final = 4  #: heartbeats that a syncer may miss before that of another cluster takes over
LONGEST: Final = 64  #: characters of an uid that are told
STANDING_BACK: Final = "standing back"  #: fact of the journal: for the syncer of which cluster
SUSPICION: Final = "suspicion"  #: why the hub is not what it was


class Serving:
    def __init__(
        self,
        name: str,
        mailbox: Client,
        edge: EdgeWatch,
        reporter: Reporter,
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
        self._turn = Turn(BEATS * beat)
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
            config = await self._mailbox.get(CONFIGS, THE_ONE)
        except NotFound:
            config = {}
        if not self.may(config):
            raise ServedElsewhereError(self.obstacle)
        uid = seen(config).uid
        if config and uid not in self._own and (uid or self._own):
            await self._reporter.claim(config)
            if uid:
                self._log.info("taking over the mailbox", cluster=uid)
        self._resume()

    def may(self, config: Obj) -> bool:
        """Whether it is our turn, by what `the-one` says.  From now on nothing is done if it is not."""
        if self._turn.judge(seen(config), self._own, self._monotonic()):
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
