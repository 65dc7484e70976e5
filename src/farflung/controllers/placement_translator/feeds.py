"""Hear of the objects of every kind that goes somewhere, in every workspace that matters.

A kind that every workspace has is one watch over all of them, and so is one that workspaces bind from the same export.
One that a workspace defines for itself is a watch of its own.  Which kinds there are is known from bindings and
definitions as they come and go, and not by asking again and again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from farflung.client.rest import Client
from farflung.controllers.placement_translator.values import Kind, Part, Source
from farflung.controllers.placement_translator.world import Seen
from farflung.machinery.errors import Obj
from farflung.runtime.cache import Change, Key
from farflung.runtime.informer import Informer
from farflung.runtime.reflector import Environment

TICK: Final = 0.01  #: seconds
PATIENCE: Final = 5  #: failures after which a kind is taken for one that cannot be listed

Heard = Callable[[str, Part, Seen | None], None]


class Feeds:
    """As many informers as there are sources, as long as they are wanted."""

    def __init__(
        self,
        everywhere: Client,
        decode: Callable[[Kind, str, bytes], Seen],
        heard: Heard,
        changed: Callable[[Source], None],
        env: Environment,
        trouble: Callable[[str, Exception], None],
    ) -> None:
        """`everywhere`: all workspaces at once; `heard` is told of every change, and `changed` of a source that is
        known from now on, or no longer."""
        self._everywhere = everywhere
        self._decode = decode
        self._heard = heard
        self._changed = changed
        self._env = env
        self._trouble = trouble
        self.is_assuming = False  #: what is heard just now, we did ourselves
        self._informers: dict[Source, Informer[Seen]] = {}
        self._running: dict[Source, asyncio.Task[None]] = {}

    def want(self, group: asyncio.TaskGroup, sources: Iterable[Source]) -> None:
        """These, and no others."""
        wanted = set(sources)
        for source in self._informers.keys() - wanted:
            self._stop(source)
        for source in sorted(wanted - self._informers.keys()):
            informer = self._informers[source] = self._informer(source)
            running = self._run(source, informer)
            try:
                self._running[source] = group.create_task(running, name=f"informer of {source.kind}")
            except RuntimeError:  # everything comes to its end
                running.close()
                raise

    async def _run(self, source: Source, informer: Informer[Seen]) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(informer.run())
            await informer.synced.wait()
            self._changed(source)

    def _informer(self, source: Source) -> Informer[Seen]:
        client = self._everywhere.workspace(source.cluster) if source.cluster else self._everywhere

        def decode(document: bytes) -> Seen:
            return self._decode(source.kind, source.version, document)

        informer: Informer[Seen] = Informer(client, source.collection(), decode, self._env, self._trouble)

        def listener(change: Change[Seen]) -> None:
            self._heard(*self._where(source, change.key), change.new)

        informer.subscribe(listener)
        return informer

    def _where(self, source: Source, key: Key) -> tuple[str, Part]:
        return key.cluster or source.cluster, Part(source.kind, key.namespace, key.name)

    def _stop(self, source: Source) -> None:
        self._running.pop(source).cancel()
        informer = self._informers.pop(source)
        for key in informer.cache:
            self._heard(*self._where(source, key), None)
        self._changed(source)

    # --- what is known ----------------------------------------------------------------------------

    def is_known(self, source: Source) -> bool:
        """Whether there was a whole list of it."""
        informer = self._informers.get(source)
        return informer is not None and informer.synced.is_set()

    def informers(self) -> Sequence[Informer[Any]]:
        return list(self._informers.values())

    async def synced(self, sources: Iterable[Source]) -> None:
        """Until there was a whole list of each."""
        await asyncio.gather(*(self._informers[source].synced.wait() for source in sources))

    async def settled(self) -> None:
        """Until there was a whole list of everything that is wanted now, but for what cannot be listed: one kind that
        nobody can read must not keep the others waiting."""
        while any(not one.synced.is_set() and one.troubles < PATIENCE for one in self._informers.values()):
            await self._env.sleep(TICK)

    # --- what we did ourselves --------------------------------------------------------------------

    def assume(self, source: Source, written: Obj) -> None:
        if informer := self._informers.get(source):
            self.is_assuming = True
            try:
                informer.assume(written)
            finally:
                self.is_assuming = False

    def forget(self, source: Source, key: Key, version: int) -> None:
        """What we deleted, as it was known then."""
        if informer := self._informers.get(source):
            informer.forget(key, version)
