"""Move what has to leave a cluster, and ask for what should have been heard of."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from farflung.client.errors import ClientError, Refused
from farflung.controllers.global_scheduler.avoiding import Machine
from farflung.controllers.global_scheduler.binding import Binder
from farflung.controllers.global_scheduler.reading import InvalidRequestError, pod_request, reservation_of_pod
from farflung.controllers.global_scheduler.subjects import ALLOCATION, Seen, Subject
from farflung.controllers.global_scheduler.telling import Telling
from farflung.controllers.global_scheduler.world import World
from farflung.lib.klog import Logger
from farflung.runtime.reflector import Environment
from farflung.scheduling.values import SiteKey

TICK: Final = 1.0  #: seconds between two looks at what has to leave


class Moving:
    """`tell`: who decides, that something changed; `refuse`: note that a site did not take a machine."""

    def __init__(
        self,
        world: World,
        binder: Binder,
        telling: Telling,
        tell: Callable[[], None],
        refuse: Callable[[SiteKey, Machine], Awaitable[None]],
        env: Environment,
        log: Logger,
    ) -> None:
        self._world = world
        self._binder = binder
        self._telling = telling
        self._tell = tell
        self._refuse = refuse
        self._env = env
        self._log = log

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._env.sleep(TICK)
            now = self._env.monotonic()
            for subject in self._world.unheard(now):
                seen = self._world.seen(subject)
                if seen is not None:
                    await self._binder.settle(subject, seen.uid)
            if not self._world.has_unwell:
                continue
            for subject, site in self._world.leaving(now):
                try:
                    await self.move(subject, site)
                except ClientError as error:
                    self._log.error(error, f"cannot move {subject.key}")
            self._tell()

    async def move(self, subject: Subject, site: SiteKey) -> None:
        """One that has to leave that site, if it is there."""
        seen, now = self._world.seen(subject), self._env.monotonic()
        if seen is None or not self._world.has_to_leave(subject, site, now):
            return
        if subject.kind != ALLOCATION:
            await self._move_pod(subject, seen, site, now)
        elif seen.request is not None:
            self._world.ask_again(seen.request, now)

    async def _move_pod(self, subject: Subject, seen: Seen, site: SiteKey, now: float) -> None:
        """To another place, if there is one, or if the cluster is no more or does not take it."""
        try:
            found = await self._binder.fetch(subject)
            request = pod_request(found, subject.key.cluster)
        except (Refused, InvalidRequestError):
            return
        held = reservation_of_pod(found, subject.key.cluster, {})
        is_there = held is not None and (held.uid, held.site) == (seen.uid, site)
        if not is_there or not self._world.has_to_leave(subject, site, now):
            return  # something happened to one of them in the meantime
        refused, gone = self._world.is_refused(subject, site), self._world.engine.site(site) is None
        if refused or gone or self._world.finds_another(request, site, now):
            by_name = self._world.is_taken(subject, site)
            if refused and not by_name:
                await self._refuse(site, Machine(subject.key.cluster, seen.uid))
            await self._binder.unbind(subject, found, site if refused and not by_name else None)
            self._log.info("left its cluster", v=1, key=str(subject.key), cluster=str(site))
            why = "does not take it" if refused else "is no more" if gone else "is not well"
            self._telling.left(subject, seen, f"Left {site}, which {why}")
