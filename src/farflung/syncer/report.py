"""The report of a syncer in the status of `the-one`: problems by object, progress, conditions, and its writer."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Set
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, NamedTuple

from farflung.apis.edge.names import SYNCER_CONFIGS
from farflung.client.errors import ClientError, Invalid, NotFound, Refused, Unreachable
from farflung.client.rest import PatchType
from farflung.machinery.errors import Obj
from farflung.machinery.times import format_seconds, parse
from farflung.placement.names import THE_ONE, GroupResource, ObjectRef
from farflung.placement.syncer_config import ANY
from farflung.syncer.context import SyncerContext
from farflung.syncer.lease import HEARTBEAT, ServedElsewhereError, holder_record

MAX_PROBLEMS: Final = 50  #: problems in a report
MAX_MESSAGE: Final = 300  #: characters of a message
SECRETS: Final = GroupResource("", "secrets")


class Direction(StrEnum):
    DOWN = "down"
    STATUS = "status"
    UP = "up"


@dataclass(frozen=True, slots=True)
class SyncProblem:
    reason: str
    message: str
    last_try: datetime
    tries: int


class Problems:
    def __init__(self) -> None:
        self._known: dict[tuple[ObjectRef, Direction], SyncProblem] = {}

    def __len__(self) -> int:
        """Number of objects with problems."""
        return len({ref for ref, _ in self._known})

    def put(self, ref: ObjectRef, direction: Direction, reason: str, message: str, now: datetime) -> bool:
        """Returns whether the problem is new or differs from the last one."""
        before = self._known.get((ref, direction))
        tries = 1 if before is None else before.tries + 1
        new = SyncProblem(reason, message[:MAX_MESSAGE], now, tries)
        self._known[ref, direction] = new
        return before is None or (before.reason, before.message) != (new.reason, new.message)

    def clear(self, ref: ObjectRef, direction: Direction) -> None:
        self._known.pop((ref, direction), None)

    def keep_kinds(self, resources: Set[GroupResource], direction: Direction) -> None:
        """Clear problems of whole kinds, except these."""
        for ref, one in list(self._known):
            if ref == all_of(ref.resource) and one is direction and ref.resource not in resources:
                self.clear(ref, direction)

    def listed(self) -> list[Obj]:
        """The first ones, sorted, in the format of a SyncerConfig's status."""
        found = sorted(self._known.items(), key=lambda one: one[0])[:MAX_PROBLEMS]
        return [
            {
                "group": ref.resource.group,
                "resource": ref.resource.resource,
                "namespace": ref.namespace,
                "name": ref.name,
                "direction": direction.value,
                "reason": trouble.reason,
                "message": trouble.message,
                "lastTry": format_seconds(trouble.last_try),
                "tries": trouble.tries,
            }
            for (ref, direction), trouble in found
        ]

    def count_by_reason(self) -> Counter[tuple[str, str]]:
        """By direction and reason."""
        return Counter((direction.value, trouble.reason) for (_, direction), trouble in self._known.items())

    @property
    def omitted(self) -> int:
        return max(0, len(self._known) - MAX_PROBLEMS)


def all_of(resource: GroupResource) -> ObjectRef:
    """In place of an object: the whole kind."""
    return ObjectRef(resource, "", ANY)


def describe_error(ref: ObjectRef, error: ClientError) -> tuple[str, str]:
    """Reason and message.  A server may quote the object that it refuses, so messages about Secrets are replaced."""
    reason = error.reason if isinstance(error, Refused) and error.reason else type(error).__name__
    if ref.resource == SECRETS and isinstance(error, Refused):
        return reason, f"the server refused it with {error.status}; its message may contain the Secret and is omitted"
    return reason, str(error)


def without_secrets(ref: ObjectRef, error: ClientError) -> ClientError:
    """The same error for logs."""
    if ref.resource != SECRETS or not isinstance(error, Refused):
        return error
    _, message = describe_error(ref, error)
    return type(error)(error.status, error.reason, message, retry_after=error.retry_after)


class Progress:
    """For each kind, up to which resourceVersion of the mailbox everything is applied at the edge."""

    def __init__(self) -> None:
        self._under_way: dict[GroupResource, dict[ObjectRef, int]] = {}
        self._latest: dict[GroupResource, int] = {}

    def start(self, ref: ObjectRef, revision: int) -> None:
        """A copy has to be applied."""
        self._under_way.setdefault(ref.resource, {}).setdefault(ref, revision)
        self.advance(ref.resource, revision)

    def advance(self, resource: GroupResource, revision: int) -> None:
        self._latest[resource] = max(self._latest.get(resource, 0), revision)

    def finish(self, ref: ObjectRef) -> None:
        """The copy is applied, or will not be."""
        self._under_way.get(ref.resource, {}).pop(ref, None)

    @property
    def pending(self) -> int:
        return sum(map(len, self._under_way.values()))

    def synced_through(self) -> list[Obj]:
        """In the format of a SyncerConfig's status."""
        return [
            {"group": resource.group, "resource": resource.resource, "resourceVersion": str(self._through(resource))}
            for resource in sorted(self._latest)
        ]

    def _through(self, resource: GroupResource) -> int:
        under_way = self._under_way.get(resource)
        return min(under_way.values()) - 1 if under_way else self._latest[resource]


@dataclass(frozen=True, slots=True)
class ReportCondition:
    type: str
    status: bool
    reason: str
    message: str = ""


def with_conditions(status: Obj, conditions: list[ReportCondition], before: Obj, now: datetime) -> Obj:
    """Add conditions.  One with the same status as `before` keeps its lastTransitionTime."""
    old = {one.get("type"): one for one in before.get("conditions") or () if isinstance(one, dict)}
    listed = []
    for one in conditions:
        status_text = "True" if one.status else "False"
        earlier = old.get(one.type, {})
        since = earlier.get("lastTransitionTime") if earlier.get("status") == status_text else None
        listed.append(
            {
                "type": one.type,
                "status": status_text,
                "reason": one.reason,
                "message": one.message,
                "lastTransitionTime": since or format_seconds(now),
            }
        )
    return {**status, "conditions": listed}


def without_retries(status: Obj) -> Obj:
    """The status without numbers and times of retries, which need no report of their own."""
    problems = [
        {name: value for name, value in one.items() if name not in ("lastTry", "tries")}
        for one in status.get("problems") or ()
    ]
    return {**status, "problems": problems}


class LastReport(NamedTuple):
    """What the journal has of the last report."""

    heartbeat: str  #: empty: none
    edge_uid: str  #: of the cluster; empty: it was unknown
    started: str  #: when the process started that reported, or may have since; empty: none did


@dataclass(frozen=True, slots=True)
class ReportHandlers:
    ready: Callable[[], Awaitable[None]]  #: raises ClientError as long as the syncer must not report
    compose: Callable[[Obj], Obj]  #: last status → current status, without the heartbeat
    on_first_read: Callable[[Obj], None]  #: called with the status from before the start
    on_mismatch: Callable[[Obj], None]  #: called if the server has another report


class StatusReporter:
    """Writes the status of `the-one` shortly after a change, and a heartbeat periodically."""

    def __init__(self, context: SyncerContext, last: LastReport, handlers: ReportHandlers) -> None:
        self._mailbox = context.options.mailbox
        self._handlers = handlers
        self._now = context.options.now
        self._env = context.mailbox_env
        self._log = context.log
        self._beat = context.options.beat
        self._pause = context.options.pause
        self._changed = asyncio.Event()
        self._is_loaded = False  #: whether the status from before the start was read
        self._last: Obj = {}
        self._last_report_at = float("-inf")
        self._failures = 0  #: in a row
        self._back = ""  #: to be logged after the next success
        self._tried: set[str] = set()  #: heartbeats whose writes had no answer
        self.heartbeat = last.heartbeat  #: the last one that the server acknowledged; empty: none
        self.edge_uid = last.edge_uid
        self.started = last.started
        self._latest = ""  #: the last heartbeat of this process

    def notify(self) -> None:
        """The status may have changed."""
        self._changed.set()

    def load_last(self, config: Obj) -> None:
        """Read the status from before the start, once."""
        if self._is_loaded:
            return
        self._is_loaded = True
        status = config.get("status") or {}
        self._handlers.on_first_read(status)
        if self._is_forgotten(config):
            self.heartbeat, self.edge_uid = holder_record(config).heartbeat, holder_record(config).uid
        elif self.heartbeat and status.get(HEARTBEAT) != self.heartbeat:
            self._lose(config)
        self._last = {name: value for name, value in status.items() if name != HEARTBEAT}

    def _is_forgotten(self, config: Obj) -> bool:
        """Whether the process that used this journal wrote the report, and was killed before the journal had it."""
        found = holder_record(config)
        return bool(self.started) and found.started == self.started and found.heartbeat > self.heartbeat

    def _stamp(self) -> str:
        """A heartbeat that never decreases, even if the clock is set back."""
        now = format_seconds(self._now())
        if now < self._latest:
            now = format_seconds(parse(self._latest) + timedelta(seconds=1))
        self._latest = now
        return now

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            self._changed.clear()
            try:
                await self._report()
                self._succeed()
                await self._wait()
            except ClientError as error:
                self._fail(error)
                await self._env.sleep(self._env.backoff.delay(self._failures, error.retry_after))

    def _succeed(self) -> None:
        if self._failures and self._back:
            self._log.info(self._back)
        self._failures, self._back = 0, ""

    def _fail(self, error: ClientError) -> None:
        self._failures += 1
        if self._failures > 1 or isinstance(error, ServedElsewhereError):
            self._log.info("cannot report", v=3, error=str(error))
        elif isinstance(error, Unreachable):
            self._log.warning("the hub cannot be reached; continuing without it", error=str(error))
            self._back = "the hub can be reached again"
        else:
            self._log.warning("cannot report to the hub; continuing without it", error=str(error))
            self._back = "the hub takes reports again"

    async def _wait(self) -> None:
        """Until the next report.  Changes often come in groups, which need only one report."""
        left = self._beat * (0.9 + 0.2 * self._env.random()) - (self._env.monotonic() - self._last_report_at)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(left, 0.0)):
                await self._changed.wait()
                await self._env.sleep(self._pause * (0.75 + 0.5 * self._env.random()))

    async def _report(self) -> None:
        """If the status changed, a heartbeat is due, or the last attempt failed."""
        await self._handlers.ready()
        try:
            if not self._is_loaded:
                self.load_last(await self._mailbox.get(SYNCER_CONFIGS, THE_ONE))
            status = self._handlers.compose(self._last)
            due = self._failures > 0 or self._env.monotonic() - self._last_report_at >= self._beat * 0.9
            if not due and without_retries(status) == without_retries(self._last):
                return
            await self._put({**status, HEARTBEAT: self._stamp()})
            self._last = status
        except NotFound:
            self._log.info("there is no SyncerConfig to report in", v=2, syncerConfig=THE_ONE)
        self._last_report_at = self._env.monotonic()

    async def claim(self, config: Obj) -> None:
        """Report, if the status of `the-one` is still the given one."""
        self.load_last(config)
        status = self._handlers.compose(self._last)
        unchanged = [{"op": "test", "path": "/status", "value": config["status"]}] if "status" in config else []
        await self._write(unchanged, {**status, HEARTBEAT: self._stamp()})
        self._last, self._last_report_at = status, self._env.monotonic()

    async def _put(self, status: Obj) -> None:
        """Replace the last report of this syncer."""
        expected = {f"/status/{HEARTBEAT}": self.heartbeat, "/status/edge/uid": self.edge_uid} if self.heartbeat else {}
        preconditions = [{"op": "test", "path": path, "value": value} for path, value in expected.items() if value]
        try:
            await self._write(preconditions, status)
        except Invalid:
            if not preconditions:
                raise
            config = await self._mailbox.get(SYNCER_CONFIGS, THE_ONE)
            found = holder_record(config)
            if found.heartbeat in self._tried and found.uid == _uid(status):  # an answer was lost
                self.heartbeat, self.edge_uid = found.heartbeat, found.uid
            else:
                self._lose(config)
            raise

    async def _write(self, preconditions: list[Obj], status: Obj) -> None:
        patch = [*preconditions, {"op": "add", "path": "/status", "value": status}]
        self._tried.add(status[HEARTBEAT])
        await self._mailbox.patch(SYNCER_CONFIGS, THE_ONE, patch, subresource="status", how=PatchType.JSON)
        self.heartbeat, self.edge_uid, self._tried = status[HEARTBEAT], _uid(status), set()

    def _lose(self, config: Obj) -> None:
        self.heartbeat = ""
        self._handlers.on_mismatch(config)


def _uid(status: Obj) -> str:
    return holder_record({"status": status}).uid
