"""Keeps the volumes of a pod as they should be."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from farflung.client.errors import ClientError
from farflung.edge.node.environment import Unavailable
from farflung.edge.node.place import Place, either
from farflung.edge.node.volumes import Volumes
from farflung.machinery.errors import Obj

Warn = Callable[[str, str], None]  #: by a reason and a message


class Mounting:
    """Filled once, they change with what they are made of; what is not there any more stays as it was."""

    def __init__(self, place: Place, volumes: Volumes, pod: Callable[[], Obj], warn: Warn) -> None:
        self.ready = asyncio.Event()  #: all of them were there
        self._place = place
        self._volumes = volumes
        self._pod = pod
        self._warn = warn
        self._news = asyncio.Event()

    def look_again(self) -> None:
        self._news.set()

    async def run(self) -> None:
        """Until cancelled."""
        failures = 0
        while True:
            self._news.clear()
            again = None
            try:
                await self._volumes.fill(self._pod())
                failures = 0
                self.ready.set()
                again = self._volumes.renewal
            except Unavailable as error:
                self._warn("FailedMount", str(error))
            except ClientError as error:
                failures += 1
                self._warn("FailedMount", f"MountVolume.SetUp failed : {error}")
                again = self._place.env.backoff.delay(failures, error.retry_after)
            except OSError as error:
                failures += 1
                self._warn("FailedMount", f"MountVolume.SetUp failed : {error.strerror}")
                again = self._place.env.backoff.delay(failures)
            if again is None:
                await self._news.wait()
            else:
                await either(self._news, self._place.env.sleep(again))
