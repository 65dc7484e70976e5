"""Ask each side what it serves, when that may be other than it was."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal

from farflung.client.discovery import discover
from farflung.client.errors import ClientError, Garbled
from farflung.client.rest import Client
from farflung.lib.klog import Logger
from farflung.syncer.kinds import Kinds

Side = Literal["mailbox", "edge"]
BOTH: Final[tuple[Side, ...]] = ("mailbox", "edge")


class Discovering:
    """Keeps `kinds` as the sides last said."""

    def __init__(self, mailbox: Client, edge: Client, kinds: Kinds, log: Logger) -> None:
        self._clients: dict[Side, Client] = {"mailbox": mailbox, "edge": edge}
        self._kinds = kinds
        self._log = log
        self._stale: set[Side] = set(BOTH)

    def doubt(self, sides: Iterable[Side]) -> None:
        """They are to be asked again."""
        self._stale.update(sides)

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
