"""Write Events.

A separate task writes them.  A repeated Event increments its count.  Events beyond a rate limit are dropped.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from farflung.apis.names import EVENTS
from farflung.client.errors import ClientError, NotFound
from farflung.client.rest import Client
from farflung.lib.klog import Logger
from farflung.machinery.errors import Obj

MAX_EVENTS: Final = 1000  #: queued Events, and remembered ones
MAX_MESSAGE: Final = 1024  #: characters of a message
BURST: Final = 25  #: Events for one object
REFILL: Final = 300.0  #: seconds after which one more is allowed


@dataclass(frozen=True, slots=True)
class InvolvedObject:
    """The involved object of an Event."""

    cluster: str
    api_version: str
    kind: str
    name: str
    namespace: str = ""
    uid: str = ""


@dataclass(frozen=True, slots=True)
class RecordedEvent:
    involved: InvolvedObject
    type: str  #: Normal or Warning
    reason: str
    message: str
    component: str  #: that reports it


@dataclass(slots=True)
class _Written:
    name: str
    count: int


@dataclass(slots=True)
class _Allowance:
    left: float
    at: float


class Recorder:
    def __init__(
        self,
        client: Client,
        component: str,
        now: Callable[[], datetime],
        monotonic: Callable[[], float],
        suffix: Callable[[], str],
        log: Logger,
    ) -> None:
        """`client`: any API of the server; `suffix`: makes names of Events unique."""
        self._client = client
        self._component = component
        self._now = now
        self._monotonic = monotonic
        self._suffix = suffix
        self._log = log
        self._waiting: asyncio.Queue[RecordedEvent] = asyncio.Queue(MAX_EVENTS)
        self._written: OrderedDict[RecordedEvent, _Written] = OrderedDict()
        self._allowances: OrderedDict[InvolvedObject, _Allowance] = OrderedDict()

    def record(self, involved: InvolvedObject, type: str, reason: str, message: str, *, component: str = "") -> None:
        """Never blocks.  `component`: by default that of the recorder."""
        if not self._allowed(involved):
            return
        try:
            self._waiting.put_nowait(
                RecordedEvent(involved, type, reason, message[:MAX_MESSAGE], component or self._component)
            )
        except asyncio.QueueFull:
            self._log.info("event dropped", v=2, reason=reason)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            event = await self._waiting.get()
            try:
                await self._write(event)
            except ClientError as error:
                self._log.info("cannot write event", v=2, reason=event.reason, err=str(error))
            finally:
                self._waiting.task_done()

    async def flush(self) -> None:
        """Wait until all recorded Events are written."""
        await self._waiting.join()

    def _allowed(self, involved: InvolvedObject) -> bool:
        now = self._monotonic()
        allowance = self._allowances.pop(involved, None) or _Allowance(BURST, now)
        left = min(BURST, allowance.left + (now - allowance.at) / REFILL)
        allowed = left >= 1
        self._allowances[involved] = _Allowance(left - 1 if allowed else left, now)
        if len(self._allowances) > MAX_EVENTS:
            self._allowances.popitem(last=False)
        return allowed

    async def _write(self, event: RecordedEvent) -> None:
        client = self._client.workspace(event.involved.cluster) if event.involved.cluster else self._client
        namespace = event.involved.namespace or "default"
        written = self._written.pop(event, None)
        if written is not None:
            patch = {"count": written.count + 1, "lastTimestamp": self._timestamp()}
            try:
                await client.patch(EVENTS, written.name, patch, namespace)
            except NotFound:
                written = None  # it has expired
            else:
                written.count += 1
        if written is None:
            obj = self._event(event, namespace)
            await client.create(EVENTS, obj, namespace)
            written = _Written(obj["metadata"]["name"], 1)
        self._written[event] = written
        if len(self._written) > MAX_EVENTS:
            self._written.popitem(last=False)

    def _event(self, event: RecordedEvent, namespace: str) -> Obj:
        involved, now = event.involved, self._timestamp()
        reference = {
            "apiVersion": involved.api_version,
            "kind": involved.kind,
            "name": involved.name,
            "namespace": involved.namespace,
            "uid": involved.uid,
        }
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{involved.name[:200].rstrip('.-')}.{self._suffix()}", "namespace": namespace},
            "involvedObject": {name: value for name, value in reference.items() if value},
            "reason": event.reason,
            "message": event.message,
            "type": event.type,
            "source": {"component": event.component},
            "reportingComponent": event.component,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }

    def _timestamp(self) -> str:
        return self._now().strftime("%Y-%m-%dT%H:%M:%SZ")
