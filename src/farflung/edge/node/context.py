"""What all pods of a node share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from farflung.client.rest import Client
from farflung.edge.runtimes.base import Publisher, Runtime
from farflung.lib.klog import Logger
from farflung.machinery.errors import Obj
from farflung.runtime.recorder import Recorder
from farflung.runtime.reflector import Environment

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class NodeContext:
    client: Client
    directory: Path
    runtime: Runtime
    publisher: Publisher
    env: Environment
    recorder: Recorder
    now: Callable[[], datetime]
    log: Logger
    address: str  #: of the node and of its pods
    allocatable: Mapping[str, str]
    find: Callable[[str, str, str], Obj | None]  #: a ConfigMap or a Secret, by kind, namespace and name
    assume: Callable[[Obj], None]  #: a pod as the server has it now
    host_paths: bool  #: pods may see directories of the machine


class Stopped(Exception):
    """What was waited for does not matter any more."""


async def wait_unless(stopping: asyncio.Event, awaited: Awaitable[T]) -> T:
    """What it comes to; it is cancelled, and Stopped raised, when `stopping` is set first."""
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
    """Until the one or the other."""
    try:
        await wait_unless(event, awaited)
    except Stopped:
        return
