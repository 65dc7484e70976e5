"""Informers: caches that reflectors keep up to date, with listeners for changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

import orjson

from farflung.apis.names import Collection
from farflung.client.rest import EVERYTHING, Client, ListOptions
from farflung.machinery.errors import Obj
from farflung.runtime.cache import Cache, CacheChange, CachedObject, Key
from farflung.runtime.environment import Environment
from farflung.runtime.leader import unguarded
from farflung.runtime.reflector import Reflector, number

T = TypeVar("T")

Listener = Callable[[CacheChange[T]], None]
Trouble = Callable[[str, Exception], None]
ReflectorKey = tuple[int, str, str, str, str]


def _ignore() -> None:
    pass


class Informer(Generic[T]):
    """Calls its listeners for every change, in order, after the cache has it."""

    def __init__(
        self,
        client: Client,
        collection: Collection,
        decode: Callable[[bytes], T],
        env: Environment,
        trouble: Trouble,
        selection: ListOptions = EVERYTHING,
    ) -> None:
        self.collection = collection
        self._client = client
        self.cache: Cache[T] = Cache()
        self.synced = asyncio.Event()  #: set after the first list
        self.relisted: Callable[[], None] = _ignore  #: called when a list replaces the cache again
        self.troubles = 0  #: failed requests and objects that could not be decoded
        self._report = trouble
        self._decode = decode
        self._listeners: list[Listener[T]] = []
        self._reflector = Reflector(client, collection, decode, self, env, selection)
        self._shared: tuple[dict[ReflectorKey, Reflector[Any]], ReflectorKey] | None = None

    def share(self, reflectors: dict[ReflectorKey, Reflector[Any]]) -> None:
        """Use the reflector of another informer of the same collection, if there is one."""
        client, collection = self._client, self.collection
        group = unguarded(client.transport) if client.group is None else client.group
        key = id(group), client.prefix, collection.group, collection.version, collection.plural
        found = reflectors.setdefault(key, self._reflector)
        if found is not self._reflector:
            found.add(self._decode, self, lenient=client.lenient)
        self._reflector, self._shared = found, (reflectors, key)

    def subscribe(self, listener: Listener[T]) -> None:
        self._listeners.append(listener)

    def resume(self, remembered: Iterable[CachedObject[T]], version: int) -> None:
        """Start with these objects of an earlier process, without calling listeners, and watch from that version."""
        self.cache.replace(remembered, version)
        self.synced.set()
        self._reflector.resume(str(version))

    async def run(self) -> None:
        """Until cancelled."""
        try:
            await self._reflector.run()
        finally:
            if self._shared is not None:
                self.stop()

    def stop(self) -> None:
        """Get no more changes.  `run` may not have been called, or may end later."""
        self._reflector.remove(self)
        if self._shared is not None and not self._reflector.has_sinks:
            reflectors, key = self._shared
            if reflectors.get(key) is self._reflector:
                del reflectors[key]

    def assume(self, written: Obj) -> None:
        """Put the server's answer to a write into the cache, before the watch has it."""
        raw = orjson.dumps(written)
        key, version = self._reflector.where(raw)
        if number(version) > self.cache.delivered:
            self._notify(self.cache.assume(CachedObject(key, number(version), self._decode(raw))))

    def forget(self, key: Key, version: int | None = None) -> None:
        """Remove a deleted object from the cache before the watch does.  `version`: the deleted one; a newer version in
        the cache is kept: it was created since, or the watch will delete it."""
        if version is None or self.cache.version(key) <= version:
            self._notify(self.cache.forget(key))

    # --- Sink of the reflector --------------------------------------------------------------------

    def replace(self, everything: list[CachedObject[T]], version: int) -> None:
        changes = self.cache.replace(everything, version)
        if self.synced.is_set():
            self.relisted()
        self.synced.set()
        for change in changes:
            self._notify(change)

    def apply(self, changed: CachedObject[T]) -> None:
        self._notify(self.cache.apply(changed))

    def remove(self, deleted: CachedObject[T]) -> None:
        self._notify(self.cache.remove(deleted))

    def advance(self, version: int) -> None:
        self.cache.advance(version)

    def is_new(self, key: Key, version: int) -> bool:
        return version > self.cache.version(key)

    def previous(self, key: Key) -> T | None:
        return self.cache.get(key)

    def trouble(self, what: str, error: Exception) -> None:
        self.troubles += 1
        self._report(what, error)

    def _notify(self, change: CacheChange[T] | None) -> None:
        """A listener that fails does not keep the others from being called."""
        if change is None:
            return
        for listener in self._listeners:
            try:
                listener(change)
            except Exception as error:
                self.trouble(f"cannot handle {self.collection.plural} {change.key}", error)


class SharedInformers:
    """The informers of one process.  Informers of the same collection share one watch, and those with the same decoder
    share what it decodes.

    Clients share a watch if they share a transport, and so the server and its credentials, or if they are of one group:
    of users that may watch whatever they ask for."""

    def __init__(self, env: Environment) -> None:
        self.env = env
        self._reflectors: dict[ReflectorKey, Reflector[Any]] = {}

    def informer(
        self, client: Client, collection: Collection, decode: Callable[[bytes], T], trouble: Trouble
    ) -> Informer[T]:
        informer = Informer(client, collection, decode, self.env, trouble)
        informer.share(self._reflectors)
        return informer
