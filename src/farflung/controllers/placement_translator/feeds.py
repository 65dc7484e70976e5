"""Hear of the objects of every kind that goes somewhere, in every workspace that matters.

A kind that every workspace has is one watch over all of them, and so is one that workspaces bind from the same export.
One that a workspace defines for itself is a watch of its own.  Which kinds there are is known from bindings and
definitions as they come and go, and not by asking again and again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from farflung.client.rest import Client
from farflung.controllers.placement_translator.values import Kind, Part, Source
from farflung.controllers.placement_translator.world import Seen
from farflung.informer.cache import Change
from farflung.informer.informer import Informer
from farflung.informer.reflector import Surroundings

Heard = Callable[[str, Part, Seen | None, Seen | None], None]


class Feeds:
    """As many informers as there are sources, as long as they are wanted."""

    def __init__(
        self,
        everywhere: Client,
        decode: Callable[[Kind, str, bytes], Seen],
        heard: Heard,
        changed: Callable[[Source], None],
        outside: Surroundings,
        trouble: Callable[[str, Exception], None],
    ) -> None:
        """`everywhere`: all workspaces at once; `heard` is told of every change, and `changed` of a source that is
        known from now on, or no longer."""
        self._everywhere = everywhere
        self._decode = decode
        self._heard = heard
        self._changed = changed
        self._outside = outside
        self._trouble = trouble
        self._informers: dict[Source, Informer[Seen]] = {}
        self._running: dict[Source, asyncio.Task[None]] = {}

    def want(self, group: asyncio.TaskGroup, sources: Iterable[Source]) -> None:
        """These, and no others."""
        wanted = set(sources)
        for source in self._informers.keys() - wanted:
            self._stop(source)
        for source in sorted(wanted - self._informers.keys()):
            informer = self._informers[source] = self._informer(source)
            self._running[source] = group.create_task(self._run(source, informer), name=f"informer of {source.kind}")

    async def _run(self, source: Source, informer: Informer[Seen]) -> None:
        running = asyncio.create_task(informer.run())
        try:
            await informer.synced.wait()
            self._changed(source)
            await running
        finally:
            running.cancel()

    def _informer(self, source: Source) -> Informer[Seen]:
        client = self._everywhere.workspace(source.cluster) if source.cluster else self._everywhere

        def decode(document: bytes) -> Seen:
            return self._decode(source.kind, source.version, document)

        informer: Informer[Seen] = Informer(client, source.collection(), decode, self._outside, self._trouble)

        def listener(change: Change[Seen]) -> None:
            cluster = change.key.cluster or source.cluster
            part = Part(source.kind, change.key.namespace, change.key.name)
            self._heard(cluster, part, change.old, change.new)

        informer.subscribe(listener)
        return informer

    def _stop(self, source: Source) -> None:
        self._running.pop(source).cancel()
        informer = self._informers.pop(source)
        for key, seen in informer.cache.items():
            part = Part(source.kind, key.namespace, key.name)
            self._heard(key.cluster or source.cluster, part, seen, None)
        self._changed(source)

    def is_known(self, source: Source) -> bool:
        """Whether there was a whole list of it."""
        informer = self._informers.get(source)
        return informer is not None and informer.synced.is_set()

    async def synced(self) -> None:
        """Until there was a whole list of everything that is wanted now."""
        while pending := [one for one in self._informers.values() if not one.synced.is_set()]:
            await asyncio.gather(*(one.synced.wait() for one in pending))

    def informers(self) -> list[Informer[Seen]]:
        return list(self._informers.values())

    def informer(self, source: Source) -> Informer[Seen] | None:
        return self._informers.get(source)
