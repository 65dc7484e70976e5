"""Hear of the objects of several kinds on one side, as long as they are wanted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Generic, TypeVar

from farflung.client.resource import Collection
from farflung.client.rest import EVERYTHING, Client, Selection
from farflung.machinery.errors import Obj
from farflung.runtime.cache import Change, Key
from farflung.runtime.informer import Informer
from farflung.runtime.reflector import Environment
from farflung.syncer.values import Part, Resource

T = TypeVar("T")

Heard = Callable[[Part, str, "T | None"], None]
Resume = Callable[[Resource, Collection, "Informer[T]"], None]


def never(resource: Resource, collection: Collection, informer: Informer[T]) -> None:
    """Nothing is known from before."""


class Feeds(Generic[T]):
    """One informer for each kind."""

    def __init__(
        self,
        client: Client,
        decode: Callable[[Resource, bytes], T],
        heard: Heard[T],
        env: Environment,
        trouble: Callable[[Resource, Exception], None],
        *,
        selection: Selection = EVERYTHING,
        resume: Resume[T] = never,
        listed: Callable[[Resource], None] = lambda resource: None,
        relisted: Callable[[], None] = lambda: None,
    ) -> None:
        """`heard` is told of each change, after it is known: the object, the cluster that it says it is in, and what
        there is now; `listed` of a kind that is known as a whole from now on.  `relisted` is called when the server
        cannot resume a watch.  `resume` may let a new informer go on from what was known before."""
        self._client = client
        self._decode = decode
        self._heard = heard
        self._env = env
        self._trouble = trouble
        self._selection = selection
        self._resume = resume
        self._listed = listed
        self._relisted = relisted
        self._collections: dict[Resource, Collection] = {}
        self._informers: dict[Resource, Informer[T]] = {}
        self._running: dict[Resource, asyncio.Task[None]] = {}
        self._known: dict[Resource, dict[Part, T]] = {}
        self._errors: dict[Resource, Exception] = {}

    def want(self, group: asyncio.TaskGroup, collections: Mapping[Resource, Collection]) -> None:
        """These, and no others."""
        for resource in [one for one, how in self._collections.items() if collections.get(one) != how]:
            self.stop(resource)
        for resource, collection in collections.items():
            if resource not in self._collections:
                self._start(group, resource, collection)

    def _start(self, group: asyncio.TaskGroup, resource: Resource, collection: Collection) -> None:
        def trouble(what: str, error: Exception) -> None:
            self._errors[resource] = error
            self._trouble(resource, error)

        decode = partial(self._decode, resource)
        informer = Informer(self._client, collection, decode, self._env, trouble, self._selection)
        informer.relisted = self._relisted
        self._known[resource] = {}
        self._collections[resource] = collection
        self._informers[resource] = informer
        self._resume(resource, collection, informer)
        for key, value in informer.cache.items():
            self._known[resource][Part(resource, key.namespace, key.name)] = value
        informer.subscribe(lambda change: self._hear(resource, change))
        running = self._run(resource, informer)
        self._running[resource] = group.create_task(running, name=f"informer of {collection.plural}")

    async def _run(self, resource: Resource, informer: Informer[T]) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(informer.run())
            await informer.synced.wait()
            self._errors.pop(resource, None)
            self._listed(resource)

    def stop(self, resource: Resource) -> None:
        """Nothing is known of the kind any more, and nobody is told."""
        self._running.pop(resource).cancel()
        del self._informers[resource], self._collections[resource], self._known[resource]
        self._errors.pop(resource, None)

    def stop_all(self) -> None:
        for resource in self.resources():
            self.stop(resource)

    def _hear(self, resource: Resource, change: Change[T]) -> None:
        part = Part(resource, change.key.namespace, change.key.name)
        known = self._known.get(resource)
        if known is None:
            return  # whoever heard of the one before this one stopped it
        if change.new is not None:
            known[part] = change.new
        else:
            known.pop(part, None)
        self._heard(part, change.key.cluster, change.new)

    # --- what is known ----------------------------------------------------------------------------

    def get(self, part: Part) -> T | None:
        return self._known.get(part.resource, {}).get(part)

    def of(self, resource: Resource) -> Mapping[Part, T]:
        """All of a kind.  It changes as changes are heard of."""
        return self._known.get(resource, {})

    def resources(self) -> list[Resource]:
        return list(self._known)

    def collection(self, resource: Resource) -> Collection | None:
        return self._collections.get(resource)

    def is_known(self, resource: Resource) -> bool:
        """Whether there was a whole list of it."""
        informer = self._informers.get(resource)
        return informer is not None and informer.synced.is_set()

    def error(self, resource: Resource) -> Exception | None:
        """What went wrong last with a kind of which there was no whole list yet."""
        return None if self.is_known(resource) else self._errors.get(resource)

    def heard(self) -> Iterator[tuple[Resource, Collection, int]]:
        """Up to which version everything was heard of, of each kind of which there was a whole list."""
        for resource, informer in self._informers.items():
            if informer.synced.is_set():
                yield resource, self._collections[resource], informer.cache.heard

    # --- what we did ourselves --------------------------------------------------------------------

    def assume(self, resource: Resource, written: Obj) -> None:
        if informer := self._informers.get(resource):
            informer.assume(written)

    def forget(self, part: Part, cluster: str = "") -> None:
        if informer := self._informers.get(part.resource):
            informer.forget(Key(cluster, part.namespace, part.name))
