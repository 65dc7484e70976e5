"""Whether the edge can be reached, and which cluster it is."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

import orjson

from farflung.client.errors import ClientError, Garbled, NotFound
from farflung.client.resource import Collection
from farflung.client.rest import Client
from farflung.lib.klog import Logger
from farflung.machinery.errors import Obj
from farflung.runtime.reflector import Environment
from farflung.syncer.report import Condition

NAMESPACES: Final = Collection("", "v1", "namespaces", "Namespace")
LASTING: Final = "kube-system"  #: the namespace whose uid is the cluster's


class EdgeWatch:
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
            raise Garbled(f"the edge does not say which version it has: {error}") from None
        self.said["version"] = str(said.get("gitVersion", "")) if isinstance(said, dict) else ""
        with contextlib.suppress(NotFound):
            metadata = (await self._edge.get(NAMESPACES, LASTING)).get("metadata") or {}
            before, self.said["uid"] = self.said.get("uid"), str(metadata.get("uid") or "")
            if before not in (None, self.said["uid"]):
                self._replaced()

    def condition(self) -> Condition:
        """Whether it can be reached."""
        if self.trouble:
            return Condition("EdgeReachable", False, "Unreachable", self.trouble)
        return Condition("EdgeReachable", True, "Reachable")

    def _settle(self, trouble: str) -> None:
        before, self.trouble = self.trouble, trouble
        if bool(before) == bool(trouble):
            return
        if trouble:
            self._log.warning("the edge cannot be reached", error=trouble)
        else:
            self._log.info("the edge can be reached again")
        self._news()
