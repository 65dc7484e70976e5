"""Engines in which one call fails, and informers whose objects a test delivers."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import orjson
import pytest
from simulated_time import simulated_environment

from farflung.client.rest import Client
from farflung.client.transport import OutgoingRequest, Reply
from farflung.controllers.placing_rights.controller import PlacingRights, TrustedWorkspaces
from farflung.lib.klog import Logger
from farflung.machinery.errors import Obj
from farflung.runtime.cache import CachedObject
from farflung.runtime.informer import Informer

LONG = 3000.0  #: seconds in which all repeated rebuilds are done


def trusting(log: Logger) -> PlacingRights:
    """All may place everywhere; `run` of the rights says so."""
    reviewer = TrustedWorkspaces(("root",), SERVER.workspace)
    return PlacingRights(reviewer, simulated_environment(), log, by_workspace=True)


class InjectedError(Exception):
    pass


class SilentTransport:
    """A server that does not answer."""

    @asynccontextmanager
    async def open(self, request: OutgoingRequest) -> AsyncIterator[Reply]:
        await asyncio.get_running_loop().create_future()
        yield  # type: ignore[misc]


SERVER = Client(SilentTransport())


@contextmanager
def failing(classes: tuple[type, ...], at: int, *, late: bool) -> Iterator[list[int]]:
    """The call with this number fails, of all methods of these classes: before its work, or after it."""
    calls = [0]
    patch = pytest.MonkeyPatch()

    def wrapped(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            calls[0] += 1
            fails = calls[0] == at
            if fails and not late:
                raise InjectedError
            result = method(*args, **kwargs)
            if fails:
                if inspect.isgenerator(result):
                    list(result)
                elif inspect.iscoroutine(result):
                    result.close()
                raise InjectedError
            return result

        return call

    for owner in classes:
        for name, method in list(vars(owner).items()):
            if inspect.isfunction(method) and not name.startswith("__") and name != "is_unresolved":
                patch.setattr(owner, name, wrapped(method))
    try:
        yield calls
    finally:
        patch.undo()


def deliver(informer: Informer[Any], obj: Obj, version: int, *, deleted: bool) -> None:
    obj = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(version)}}
    document = orjson.dumps(obj)
    known = CachedObject(informer._reflector.where(document)[0], version, informer._decode(document))
    (informer.remove if deleted else informer.apply)(known)
