"""The dependencies of a node, and waits that an event interrupts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final, TypeVar

from farflung.client.rest import Client
from farflung.edge.runtimes.base import Publisher, Runtime
from farflung.lib.klog import Logger
from farflung.machinery.errors import Obj
from farflung.runtime.environment import Environment
from farflung.runtime.recorder import Recorder

NODE_ADDRESS: Final = "127.0.0.1"  #: IP address of the node and of its pods, which only this machine can reach

T = TypeVar("T")


@dataclass(frozen=True)
class NodeConfig:
    client: Client
    name: str
    directory: Path
    runtime: Runtime
    publisher: Publisher
    env: Environment
    recorder: Recorder
    now: Callable[[], datetime]
    log: Logger


@dataclass(frozen=True)
class NodeContext(NodeConfig):
    """What the workers of all pods share."""

    allocatable: Mapping[str, str]
    find: Callable[[str, str, str], Obj | None]  #: a ConfigMap or Secret, by kind, namespace and name
    assume: Callable[[Obj], None]  #: put a written pod into the cache


class Stopped(Exception):
    """The awaited result is not needed any more."""


async def wait_unless(stopping: asyncio.Event, awaited: Awaitable[T]) -> T:
    """The result of `awaited`.  If `stopping` is set first, cancel it and raise Stopped."""
    if stopping.is_set():
        if asyncio.iscoroutine(awaited):
            awaited.close()
        raise Stopped
    task = asyncio.ensure_future(awaited)
    stop = asyncio.ensure_future(stopping.wait())
    try:
        await asyncio.wait({task, stop}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise Stopped
    finally:
        for one in (task, stop):
            one.cancel()
        await asyncio.gather(task, stop, return_exceptions=True)


async def wait_for_either(event: asyncio.Event, awaited: Awaitable[object]) -> None:
    try:
        await wait_unless(event, awaited)
    except Stopped:
        return
