"""What does not work, object by object, for those who look into the mailbox; and how far the edge is.  Pure."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Set
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from farflung.apis.edge.names import SYNCER_CONFIGS
from farflung.client.errors import ClientError, Invalid, NotFound, Refused, Unreachable
from farflung.client.rest import Client, PatchType
from farflung.lib.klog import Logger
from farflung.machinery.errors import Obj
from farflung.machinery.times import format_seconds, parse
from farflung.runtime.reflector import Environment
from farflung.syncer.lease import HEARTBEAT, ServedElsewhereError, holder_record
from farflung.syncer.types import Part, Resource
from farflung.syncer.wanted import ANY

MOST: Final = 50  #: that are told one by one
LONGEST: Final = 300  #: characters of a message
SECRETS: Final = Resource("", "secrets")


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
        self._known: dict[tuple[Part, Direction], SyncProblem] = {}
        self.changed = False  #: since somebody last said it is not

    def __len__(self) -> int:
        """How many objects have one."""
        return len({part for part, _ in self._known})

    def has(self, part: Part, direction: Direction) -> bool:
        return (part, direction) in self._known

    def put(self, part: Part, direction: Direction, reason: str, message: str, now: datetime) -> bool:
        """Whether it is another one than before."""
        before = self._known.get((part, direction))
        tries = 1 if before is None else before.tries + 1
        new = SyncProblem(reason, message[:LONGEST], now, tries)
        self._known[part, direction] = new
        other = before is None or (before.reason, before.message) != (new.reason, new.message)
        self.changed = self.changed or other
        return other

    def clear(self, part: Part, direction: Direction) -> None:
        if self._known.pop((part, direction), None) is not None:
            self.changed = True

    def keep_kinds(self, resources: Set[Resource], direction: Direction) -> None:
        """Clear what is about a kind as a whole, unless it is one of these."""
        for part, way in list(self._known):
            if part == all_of(part.resource) and way is direction and part.resource not in resources:
                self.clear(part, direction)

    def listed(self) -> list[Obj]:
        """The first ones, sorted, as the status of a SyncerConfig has them."""
        found = sorted(self._known.items(), key=lambda one: one[0])[:MOST]
        return [
            {
                "group": part.resource.group,
                "resource": part.resource.plural,
                "namespace": part.namespace,
                "name": part.name,
                "direction": direction.value,
                "reason": trouble.reason,
                "message": trouble.message,
                "lastTry": format_seconds(trouble.last_try),
                "tries": trouble.tries,
            }
            for (part, direction), trouble in found
        ]

    def counted(self) -> Counter[tuple[str, str]]:
        """By direction and reason."""
        return Counter((direction.value, trouble.reason) for (_, direction), trouble in self._known.items())

    @property
    def omitted(self) -> int:
        return max(0, len(self._known) - MOST)


def all_of(resource: Resource) -> Part:
    """In the place of an object: a kind as a whole."""
    return Part(resource, "", ANY)


def describe_error(part: Part, error: ClientError) -> tuple[str, str]:
    """Reason and message.  A server may quote what it refuses, and Secrets are quoted to nobody."""
    reason = error.reason if isinstance(error, Refused) and error.reason else type(error).__name__
    if part.resource == SECRETS and isinstance(error, Refused):
        return reason, f"it was refused with {error.status}; of Secrets, no more is said"
    return reason, str(error)


def without_secrets(part: Part, error: ClientError) -> ClientError:
    """The same in words that anybody may read, for logs."""
    if part.resource != SECRETS or not isinstance(error, Refused):
        return error
    _, message = describe_error(part, error)
    return type(error)(error.status, error.reason, message, retry_after=error.retry_after)


class Progress:
    """Up to which version of the mailbox all is at the edge, kind by kind."""

    def __init__(self) -> None:
        self._under_way: dict[Resource, dict[Part, int]] = {}
        self._latest: dict[Resource, int] = {}

    def began(self, part: Part, revision: int) -> None:
        """A copy is to be brought."""
        self._under_way.setdefault(part.resource, {}).setdefault(part, revision)
        self.reached(part.resource, revision)

    def reached(self, resource: Resource, revision: int) -> None:
        """As is known from before."""
        self._latest[resource] = max(self._latest.get(resource, 0), revision)

    def ended(self, part: Part) -> None:
        """It was brought as it is now, or is known not to go."""
        self._under_way.get(part.resource, {}).pop(part, None)

    @property
    def pending(self) -> int:
        return sum(map(len, self._under_way.values()))

    def through(self) -> list[Obj]:
        """As the status of a SyncerConfig has it."""
        return [
            {"group": resource.group, "resource": resource.plural, "resourceVersion": str(self._through(resource))}
            for resource in sorted(self._latest)
        ]

    def _through(self, resource: Resource) -> int:
        under_way = self._under_way.get(resource)
        return min(under_way.values()) - 1 if under_way else self._latest[resource]


THE_ONE: Final = "the-one"
BEAT: Final = 20.0  #: seconds between two signs of life
PAUSE: Final = 1.0  #: seconds, about, from news to a report, and so between two reports


@dataclass(frozen=True, slots=True)
class ReportCondition:
    type: str
    status: bool
    reason: str
    message: str = ""


def with_conditions(status: Obj, conditions: list[ReportCondition], before: Obj, now: datetime) -> Obj:
    """When each came about: what is as it was before came about then."""
    old = {one.get("type"): one for one in before.get("conditions") or () if isinstance(one, dict)}
    listed = []
    for one in conditions:
        said = "True" if one.status else "False"
        earlier = old.get(one.type, {})
        since = earlier.get("lastTransitionTime") if earlier.get("status") == said else None
        listed.append(
            {
                "type": one.type,
                "status": said,
                "reason": one.reason,
                "message": one.message,
                "lastTransitionTime": since or format_seconds(now),
            }
        )
    return {**status, "conditions": listed}


def without_retries(status: Obj) -> Obj:
    """What is worth a report of its own: that something was tried once more without success can wait for the next."""
    problems = [
        {name: value for name, value in one.items() if name not in ("lastTry", "tries")}
        for one in status.get("problems") or ()
    ]
    return {**status, "problems": problems}


class StatusReporter:
    """Writes what there is to say, when it had time to settle; and a sign of life if there is nothing."""

    def __init__(
        self,
        mailbox: Client,
        ready: Callable[[], Awaitable[None]],
        compose: Callable[[Obj], Obj],
        now: Callable[[], datetime],
        env: Environment,
        log: Logger,
        *,
        beat: float = BEAT,
        pause: float = PAUSE,
    ) -> None:
        """`ready` raises ClientError as long as nothing may be said there; `compose`: what is to be said now, without
        the heartbeat, given what was said last."""
        self._mailbox = mailbox
        self._ready = ready
        self._compose = compose
        self._now = now
        self._env = env
        self._log = log
        self._beat = beat
        self._pause = pause
        self._news = asyncio.Event()
        self._recalled = False  #: whether it is known what was said before we began
        self._last: Obj = {}
        self._beaten = float("-inf")
        self._failures = 0  #: in a row
        self._back = ""  #: what is to be logged once it works again
        self._tried: set[str] = set()  #: heartbeats that the server may have, too
        self.heartbeat = ""  #: the last that the server has; empty: none of ours
        self.edge = ""  #: the uid of the cluster for which that was; empty: it was not known
        self.began = ""  #: when the process did that reported last, or may have since; empty: none did
        self._latest = ""  #: the last heartbeat of this process
        self.found: Callable[[Obj], None] = lambda said: None  #: told what was said before we began, before it is gone
        self.doubt: Callable[[Obj], None] = lambda config: None  #: told if the server has another one: see what it has

    def look(self) -> None:
        """Something may be other than was said."""
        self._news.set()

    def recall(self, config: Obj) -> None:
        """What the server has of us, from before."""
        if self._recalled:
            return
        self._recalled = True
        said = config.get("status") or {}
        self.found(said)
        if self._is_forgotten(config):
            self.heartbeat, self.edge = holder_record(config).heartbeat, holder_record(config).uid
        elif self.heartbeat and said.get(HEARTBEAT) != self.heartbeat:
            self._lose(config)
        self._last = {name: value for name, value in said.items() if name != HEARTBEAT}

    def _is_forgotten(self, config: Obj) -> bool:
        """Whether we said it ourselves, and ended before that was noted."""
        found = holder_record(config)
        return bool(self.began) and found.began == self.began and found.heartbeat > self.heartbeat

    def _stamp(self) -> str:
        """Another one after each moment, and never an earlier one, although a clock may be set back."""
        now = format_seconds(self._now())
        if now < self._latest:
            now = format_seconds(parse(self._latest) + timedelta(seconds=1))
        self._latest = now
        return now

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            self._news.clear()
            try:
                await self._say()
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
            self._log.warning("the hub cannot be reached; going on without it", error=str(error))
            self._back = "the hub can be reached again"
        else:
            self._log.warning("cannot report to the hub; going on without it", error=str(error))
            self._back = "the hub takes reports again"

    async def _wait(self) -> None:
        """What is heard of now is often done in a moment, and then needs one report and not two."""
        left = self._beat * (0.9 + 0.2 * self._env.random()) - (self._env.monotonic() - self._beaten)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(left, 0.0)):
                await self._news.wait()
                await self._env.sleep(self._pause * (0.75 + 0.5 * self._env.random()))

    async def _say(self) -> None:
        """If there is something to say, or it failed before."""
        await self._ready()
        try:
            if not self._recalled:
                self.recall(await self._mailbox.get(SYNCER_CONFIGS, THE_ONE))
            status = self._compose(self._last)
            due = self._failures > 0 or self._env.monotonic() - self._beaten >= self._beat * 0.9
            if not due and without_retries(status) == without_retries(self._last):
                return
            await self._put({**status, HEARTBEAT: self._stamp()})
            self._last = status
        except NotFound:
            self._log.info("there is no SyncerConfig to report in", v=2, syncerConfig=THE_ONE)
        self._beaten = self._env.monotonic()

    async def claim(self, config: Obj) -> None:
        """Report, if nobody did since `the-one` was read as it is here."""
        self.recall(config)
        status = self._compose(self._last)
        unchanged = [{"op": "test", "path": "/status", "value": config["status"]}] if "status" in config else []
        await self._write(unchanged, {**status, HEARTBEAT: self._stamp()})
        self._last, self._beaten = status, self._env.monotonic()

    async def _put(self, status: Obj) -> None:
        """In the place of what we put there last."""
        ours = {f"/status/{HEARTBEAT}": self.heartbeat, "/status/edge/uid": self.edge} if self.heartbeat else {}
        here = [{"op": "test", "path": path, "value": value} for path, value in ours.items() if value]
        try:
            await self._write(here, status)
        except Invalid:
            if not here:
                raise
            config = await self._mailbox.get(SYNCER_CONFIGS, THE_ONE)
            found = holder_record(config)
            if found.heartbeat in self._tried and found.uid == _uid(status):  # an answer was lost
                self.heartbeat, self.edge = found.heartbeat, found.uid
            else:
                self._lose(config)
            raise

    async def _write(self, here: list[Obj], status: Obj) -> None:
        patch = [*here, {"op": "add", "path": "/status", "value": status}]
        self._tried.add(status[HEARTBEAT])
        await self._mailbox.patch(SYNCER_CONFIGS, THE_ONE, patch, subresource="status", how=PatchType.JSON)
        self.heartbeat, self.edge, self._tried = status[HEARTBEAT], _uid(status), set()

    def _lose(self, config: Obj) -> None:
        self.heartbeat = ""
        self.doubt(config)


def _uid(status: Obj) -> str:
    return holder_record({"status": status}).uid
