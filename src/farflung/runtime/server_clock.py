"""The time of a server."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from farflung.client.errors import ClientError
from farflung.client.rest import Client

EXACT: Final = timedelta(seconds=2)  #: precision of the Date header
OLD: Final = 60.0  #: seconds between two requests


class ServerClock:
    """The Date header of an answer, plus the monotonic time since then.  Without such a header, this machine's time."""

    def __init__(self, client: Client, now: Callable[[], datetime], monotonic: Callable[[], float]) -> None:
        self._client = client
        self._now = now
        self._monotonic = monotonic
        self._answer: tuple[datetime, float] | None = None
        self._asked = float("-inf")

    def now(self) -> datetime:
        if self._answer is None:
            return self._now()
        moment, at = self._answer
        return moment + timedelta(seconds=self._monotonic() - at)

    async def ask(self) -> bool:
        """Ask the server, if the last request is long ago.  Whether its time differs from the expected one."""
        if self._monotonic() - self._asked < OLD:
            return False
        self._asked = self._monotonic()
        try:
            date = await self._client.date()
        except ClientError:
            return False
        expected = self.now()
        self._answer = None if date is None else (date, self._monotonic())
        return abs(self.now() - expected) > EXACT
