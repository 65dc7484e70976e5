"""Listen to the Nodes of the edge, as far as it lets us, and say what they have for work."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from farflung.client.errors import Refused
from farflung.client.resource import Collection
from farflung.client.rest import Client
from farflung.lib.backoff import Backoff
from farflung.lib.klog import Logger
from farflung.machinery.errors import Obj
from farflung.runtime.cache import Key, Known
from farflung.runtime.reflector import Environment, Reflector
from farflung.syncer.capacity import Share, Sums, share_of
from farflung.syncer.report import Condition

NODES: Final = Collection("", "v1", "nodes", "Node")
LONGEST: Final = 60.0  #: seconds until a cluster that lets nobody see its Nodes is asked again
LONGEST_MESSAGE: Final = 300  #: characters
KNOWN: Final = "CapacityKnown"
FIELDS: Final = ("capacity", "allocatable", "nodes")
WITHHELD: Final = (403, 404, 405)  #: how a cluster says that its Nodes are none of our business


class Nodes:
    """Where a reflector puts what it hears: of each Node no more than what it adds."""

    def __init__(self, edge: Client, env: Environment, log: Logger, news: Callable[[], None]) -> None:
        """`news`: told when there is something else to say."""
        self._edge = edge
        self._env = replace(env, backoff=Backoff(env.backoff.first, LONGEST, env.backoff.random))
        self._log = log
        self._news = news
        self._anew = asyncio.Event()
        self._refusal: Refused | None = None
        self._watches = False  #: whether the next thing that fails is a watch
        self._forget()

    def _forget(self) -> None:
        self._sums = Sums()
        self._versions: dict[str, int] = {}
        self._listed = False

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                reflector: Reflector[Share] = Reflector(self._edge, NODES, share_of, self, self._env)
                listening = group.create_task(reflector.run(), name="nodes")
                await self._anew.wait()
                self._anew.clear()
                listening.cancel()

    def start_anew(self) -> None:
        """It is another cluster."""
        self._forget()
        self._anew.set()

    # --- what is said -----------------------------------------------------------------------------

    def told(self, before: Obj) -> tuple[Obj, list[Condition]]:
        """The sums, and why there are none if the edge does not let us count.  Until it has answered, what was said
        `before` still counts."""
        if self._listed:
            return self._sums.told(), []
        if self._refusal is not None:
            message = str(self._refusal)[:LONGEST_MESSAGE]
            return {}, [Condition(KNOWN, False, self._refusal.reason or "Refused", message)]
        return _as_before(before)

    # --- what is heard ----------------------------------------------------------------------------

    def replace(self, everything: list[Known[Share]], version: int) -> None:
        known = {one.key.name: one for one in everything}
        gone = [self._sums.put(name, None) for name in self._sums.names() if name not in known]
        changed = [self._sums.put(name, one.value) for name, one in known.items()]
        self._versions = {name: one.version for name, one in known.items()}
        if self._refusal is not None:
            self._log.info("the edge lets its nodes be seen again")
        if any(gone) or any(changed) or not self._listed:
            self._news()
        self._listed, self._refusal, self._watches = True, None, True

    def apply(self, news: Known[Share]) -> None:
        self._versions[news.key.name] = news.version
        if self._sums.put(news.key.name, news.value):
            self._news()

    def remove(self, gone: Known[Share]) -> None:
        self._versions.pop(gone.key.name, None)
        if self._sums.put(gone.key.name, None):
            self._news()

    def hear(self, version: int) -> None:
        """Of the sums nothing is remembered that could be gone on from."""

    def is_news(self, key: Key, version: int) -> bool:
        return version > self._versions.get(key.name, -1)

    def previous(self, key: Key) -> Share | None:
        return self._sums.get(key.name)

    def trouble(self, what: str, error: Exception) -> None:
        self._log.info(what, v=2, side="edge", error=str(error))
        if not isinstance(error, Refused) or error.status not in WITHHELD:
            return
        if self._watches:  # whoever may only list does so again and again
            self._watches = False
            return
        if self._refusal is None:
            self._log.info("the edge does not let its nodes be seen; reporting no capacity", error=str(error))
        if self._listed or self._refusal is None:
            self._news()
        self._forget()
        self._refusal = error


def _as_before(before: Obj) -> tuple[Obj, list[Condition]]:
    withheld = [one for one in before.get("conditions") or () if isinstance(one, dict) and one.get("type") == KNOWN]
    conditions = [Condition(KNOWN, False, str(one.get("reason")), str(one.get("message"))) for one in withheld[:1]]
    return {name: before[name] for name in FIELDS if name in before}, conditions
