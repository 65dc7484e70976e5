"""What time it is at a server."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from farflung.client.errors import ClientError
from farflung.client.rest import Client

EXACT: Final = timedelta(seconds=2)  #: what answers say may be wrong by that
OLD: Final = 60.0  #: seconds after which it is asked again


class ServerClock:
    """Whatever the clock of this machine says: the server was asked, and since then time passed on a clock that never
    jumps.  A server that does not say what time it is has the time of this machine."""

    def __init__(self, client: Client, now: Callable[[], datetime], monotonic: Callable[[], float]) -> None:
        self._client = client
        self._now = now
        self._monotonic = monotonic
        self._said: tuple[datetime, float] | None = None
        self._asked = float("-inf")

    def now(self) -> datetime:
        if self._said is None:
            return self._now()
        moment, at = self._said
        return moment + timedelta(seconds=self._monotonic() - at)

    async def ask(self) -> bool:
        """If that is some time ago.  Whether it is another time than we thought."""
        if self._monotonic() - self._asked < OLD:
            return False
        self._asked = self._monotonic()
        try:
            said = await self._client.date()
        except ClientError:
            return False
        thought = self.now()
        self._said = None if said is None else (said, self._monotonic())
        return abs(self.now() - thought) > EXACT
