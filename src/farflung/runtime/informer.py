"""A cache that a reflector keeps up to date, and those who want to know."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

import orjson

from farflung.apis.names import Collection
from farflung.client.rest import EVERYTHING, Client, Selection
from farflung.machinery.errors import Obj
from farflung.runtime.cache import Cache, Change, Key, Known
from farflung.runtime.reflector import Environment, Reflector, number, where

T = TypeVar("T")

Listener = Callable[[Change[T]], None]
Trouble = Callable[[str, Exception], None]


def _ignore() -> None:
    pass


class Informer(Generic[T]):
    """Changes are told in the order in which they happened, each after the cache has it."""

    def __init__(
        self,
        client: Client,
        collection: Collection,
        decode: Callable[[bytes], T],
        env: Environment,
        trouble: Trouble,
        selection: Selection = EVERYTHING,
    ) -> None:
        self.collection = collection
        self.cache: Cache[T] = Cache()
        self.synced = asyncio.Event()  #: there was a whole list
        self.relisted: Callable[[], None] = (
            _ignore  #: called when a list replaces a watch that the server cannot resume
        )
        self.troubles = 0  #: how often something failed
        self._report = trouble
        self._decode = decode
        self._listeners: list[Listener[T]] = []
        self._reflector = Reflector(client, collection, decode, self, env, selection)

    def subscribe(self, listener: Listener[T]) -> None:
        self._listeners.append(listener)

    def resume(self, remembered: Iterable[Known[T]], version: int) -> None:
        """Go on from what was known before, at that version, as if it had been heard just now; nobody is told of it.
        What changed since then is heard by watching, or by a list if the server does not remember that long."""
        self.cache.replace(remembered, version)
        self.synced.set()
        self._reflector.resume(str(version))

    async def run(self) -> None:
        """Until cancelled."""
        await self._reflector.run()

    def assume(self, written: Obj) -> None:
        """What we wrote ourselves, as the server answered."""
        raw = orjson.dumps(written)
        key, version = where(raw)
        if number(version) > self.cache.heard:
            self._tell(self.cache.assume(Known(key, number(version), self._decode(raw))))

    def forget(self, key: Key, version: int | None = None) -> None:
        """What we deleted ourselves.  `version`: as we knew it before; if something was heard of it since, that is
        newer than what we did, or its end is still to be heard of."""
        if version is None or self.cache.version(key) <= version:
            self._tell(self.cache.forget(key))

    # --- what the reflector says ------------------------------------------------------------------

    def replace(self, everything: list[Known[T]], version: int) -> None:
        changes = self.cache.replace(everything, version)
        if self.synced.is_set():
            self.relisted()
        self.synced.set()
        for change in changes:
            self._tell(change)

    def apply(self, news: Known[T]) -> None:
        self._tell(self.cache.apply(news))

    def remove(self, gone: Known[T]) -> None:
        self._tell(self.cache.remove(gone))

    def hear(self, version: int) -> None:
        self.cache.hear(version)

    def is_news(self, key: Key, version: int) -> bool:
        return version > self.cache.version(key)

    def previous(self, key: Key) -> T | None:
        return self.cache.get(key)

    def trouble(self, what: str, error: Exception) -> None:
        self.troubles += 1
        self._report(what, error)

    def _tell(self, change: Change[T] | None) -> None:
        """A listener that fails keeps nobody else from hearing of it, nor of what comes after."""
        if change is None:
            return
        for listener in self._listeners:
            try:
                listener(change)
            except Exception as error:
                self.trouble(f"cannot make use of {self.collection.plural} {change.key}", error)
