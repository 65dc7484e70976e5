"""Ask each side what it serves, when that may be other than it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

import orjson

from farflung.client.discovery import discover
from farflung.client.errors import ClientError, Garbled
from farflung.client.rest import Client
from farflung.lib.klog import Logger
from farflung.runtime.informer import Informer
from farflung.runtime.reflector import Environment
from farflung.syncer.kinds import Kinds
from farflung.syncer.sides import DEFINITIONS

Side = Literal["mailbox", "edge"]
BOTH: Final[tuple[Side, ...]] = ("mailbox", "edge")


class Discovering:
    """Keeps `kinds` as the sides last said, and listens to the definitions at the edge, which change that."""

    def __init__(
        self,
        mailbox: Client,
        edge: Client,
        kinds: Kinds,
        env: Environment,
        log: Logger,
        news: Callable[[], None],
    ) -> None:
        """`news`: told when there is something to ask."""
        self._clients: dict[Side, Client] = {"mailbox": mailbox, "edge": edge}
        self._kinds = kinds
        self._log = log
        self._news = news
        self._stale: set[Side] = set(BOTH)
        self._definitions: Informer[str] = Informer(edge, DEFINITIONS, _settled, env, self._trouble)
        self._definitions.subscribe(lambda change: self.doubt("edge") if change.old != change.new else None)

    async def run(self) -> None:
        """Until cancelled: listen."""
        await self._definitions.run()

    def _trouble(self, what: str, error: Exception) -> None:
        self._log.info(what, v=2, side="edge", error=str(error))

    def doubt(self, *sides: Side) -> None:
        """They are to be asked again."""
        self._stale.update(sides)
        self._news()

    async def ask(self, side: Side) -> bool:
        """What a side serves, if that is to be asked.  Whether it is known."""
        if side not in self._stale:
            return True
        self._stale.discard(side)
        try:
            served = await discover(self._clients[side])
            if {bool(group.name) for group in served.groups} != {True, False}:
                raise Garbled("less is served there than every Kubernetes API has: /api, /apis or both are missing")
        except ClientError as error:
            self._stale.add(side)
            self._log.info("cannot ask what is served", v=2, side=side, error=str(error))
            return False
        setattr(self._kinds, side, served)
        return True


def _settled(document: bytes) -> str:
    """Of a definition, what changes which kinds are served."""
    obj = orjson.loads(document)
    established = [one.get("status") for one in (obj.get("status") or {}).get("conditions") or ()]
    return f"{(obj.get('metadata') or {}).get('generation')}{established}"
