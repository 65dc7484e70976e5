"""Open streams: watches and logs, which end soon after their permission is withdrawn.

A stream depends on roles, bindings and credentials.  When one of them changes, the hub checks the stream's request
again as if it was sent now, and ends the stream if it would be refused.  The client sends its request again, and gets
401 or 403.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final, NamedTuple

from farflung.http.messages import Sink, Stream
from farflung.hub.auth.rbac import STORAGE_PREFIXES
from farflung.hub.auth.static_tokens import FOREVER
from farflung.machinery.errors import ApiError
from farflung.store.base import Change, Store, Subscription

PAUSE: Final = 1.0  #: seconds for which changes are collected before streams are checked
TURN: Final = 50  #: streams that are checked before other requests get a turn
DRAIN_SECONDS: Final = 5.0  #: seconds for the client to read what was sent before the end
MAX_TIMER_SECONDS: Final = 86400.0  #: seconds of a timer; no stream lasts so long

log = logging.getLogger(__name__)


class Permission(NamedTuple):
    """What an open stream depends on."""

    depends_on: Collection[str]  #: keys and prefixes of the store, and other names
    until: float = FOREVER  #: Unix time


Check = Callable[[], Permission]  #: raises ApiError if the request would be refused now


class OpenStreams:
    def __init__(self, store: Store, clock: Callable[[], datetime]) -> None:
        self._store = store
        self._clock = clock
        self._by_dependency: dict[str, dict[OpenStream, None]] = {}
        self._subscriptions: dict[str, Subscription] = {}
        self._to_check: dict[OpenStream, None] = {}
        self._waiting = False  #: for the end of a pause, or of the checks in progress
        self.checks = 0

    def guard(self, stream: Stream, check: Check) -> Stream:
        """The same stream, which also ends when `check` fails."""
        guarded = OpenStream(self, stream, check)
        return replace(stream, start=guarded.start, stop=guarded.stop)

    def recheck(self, changed: Iterable[str]) -> None:
        """Check the streams that depend on these soon."""
        for dependency in changed:
            self._to_check.update(self._by_dependency.get(dependency, {}))
        self._begin()

    @property
    def dependencies(self) -> Collection[str]:
        """Of all open streams."""
        return self._by_dependency.keys()

    # --- called by streams ------------------------------------------------------------------------

    def add(self, stream: OpenStream, dependencies: Iterable[str]) -> None:
        for one in dependencies:
            dependents = self._by_dependency.get(one)
            if dependents is None:
                dependents = self._by_dependency[one] = {}
                if one.startswith("/"):
                    self._subscriptions[one] = self._store.subscribe(one, self._listener(dependents))
            dependents[stream] = None

    def remove(self, stream: OpenStream, dependencies: Iterable[str]) -> None:
        for one in dependencies:
            dependents = self._by_dependency[one]
            del dependents[stream]
            if not dependents:
                del self._by_dependency[one]
                if one in self._subscriptions:
                    self._subscriptions.pop(one).cancel()

    def timer(self, stream: OpenStream, until: float) -> asyncio.TimerHandle | None:
        """Check the stream at a time."""
        if until == FOREVER:
            return None
        seconds = until - self._clock().timestamp()
        return asyncio.get_running_loop().call_later(
            min(max(seconds, 0.0), MAX_TIMER_SECONDS), self._check_soon, stream
        )

    # --- checks -----------------------------------------------------------------------------------

    def _listener(self, dependents: dict[OpenStream, None]) -> Callable[[Sequence[Change]], None]:
        def on_changes(changes: Sequence[Change]) -> None:
            if any(map(may_withdraw, changes)):
                self._to_check.update(dependents)
                self._begin()

        return on_changes

    def _check_soon(self, stream: OpenStream) -> None:
        self._to_check[stream] = None
        self._begin()

    def _begin(self) -> None:
        if self._to_check and not self._waiting:
            self._waiting = True
            asyncio.get_running_loop().call_later(PAUSE, self._check_all)

    def _check_all(self) -> None:
        streams, self._to_check = self._to_check, {}
        self._check_some(iter(streams), 0)

    def _check_some(self, streams: Iterator[OpenStream], ended: int) -> None:
        for checked, stream in enumerate(streams, 1):
            self.checks += 1
            ended += not stream.check()
            if checked == TURN:
                asyncio.get_running_loop().call_soon(self._check_some, streams, ended)
                return
        self._waiting = False
        if ended:
            log.info("ended %d streams: their permission was withdrawn", ended)
        self._begin()


def may_withdraw(change: Change) -> bool:
    """A new role or binding withdraws nothing."""
    return change.previous is not None or not change.key.startswith(STORAGE_PREFIXES)


class OpenStream:
    __slots__ = ("_check", "_depends_on", "_sink", "_stream", "_streams", "_timer")

    def __init__(self, streams: OpenStreams, stream: Stream, check: Check) -> None:
        self._streams = streams
        self._stream = stream
        self._check = check
        self._depends_on: frozenset[str] = frozenset()
        self._timer: asyncio.TimerHandle | None = None
        self._sink: Sink | None = None

    def start(self, sink: Sink) -> None:
        self._sink = sink
        if self.check():
            self._stream.start(sink)

    def check(self) -> bool:
        """End the stream if its permission was withdrawn; False in that case."""
        if self._sink is None:
            return True
        try:
            permission = self._check()
        except ApiError:
            self._end(self._sink)
            return False
        except Exception:
            log.exception("the permission of a stream cannot be checked; it ends")
            self._end(self._sink)
            return False
        depends_on = frozenset(permission.depends_on)
        self._streams.add(self, depends_on - self._depends_on)
        self._streams.remove(self, self._depends_on - depends_on)
        self._depends_on = depends_on
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._streams.timer(self, permission.until)
        return True

    def _end(self, sink: Sink) -> None:
        self._forget()
        sink.close()
        self._timer = asyncio.get_running_loop().call_later(DRAIN_SECONDS, sink.abort)

    def stop(self) -> None:
        self._forget()
        self._stream.stop()

    def _forget(self) -> None:
        self._sink = None
        self._streams.remove(self, self._depends_on)
        self._depends_on = frozenset()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
