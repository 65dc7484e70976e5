"""Who hears of which change.

A subscription is kept under its prefix, and a key lies under four at most: by resource, by cluster, by namespace, and
itself.  A change therefore finds its subscribers with four look-ups, however many there are.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence

from farflung.store.base import (
    Change,
    FutureRevision,
    Revision,
    Store,
    Subscription,
    TooSlow,
    Watcher,
    check_key,
    check_prefix,
    prefixes_of,
)

QUEUE = 10_000  #: changes a watch may lie behind before it is cut off; more than one commit ever holds

log = logging.getLogger(__name__)


class Listener:
    """One subscription: a watcher until it is cancelled."""

    __slots__ = ("_fanout", "_prefix", "watcher")

    def __init__(self, fanout: Fanout, prefix: str, watcher: Watcher) -> None:
        self._fanout = fanout
        self._prefix = prefix
        self.watcher: Watcher | None = watcher

    def cancel(self) -> None:
        if self.watcher is not None:
            self.watcher = None
            self._fanout.remove(self._prefix, self)


class Backlog:
    """The changes a watch has not read yet, up to a limit: the watcher behind `Fanout.watch`."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._changes: list[Change] = []
        self._overrun = False
        self._ended = False
        self._news = asyncio.Event()

    def __call__(self, changes: Sequence[Change], /) -> None:
        if self._overrun:
            return
        self._overrun = len(self._changes) + len(changes) > self._limit
        if self._overrun:
            self._changes.clear()
        else:
            self._changes.extend(changes)
        self._news.set()

    def end(self) -> None:
        self._ended = True
        self._news.set()

    async def take(self) -> Sequence[Change]:
        """What is waiting, as soon as there is something; nothing at the end.  Raises TooSlow if some was dropped."""
        while not self._changes:
            if self._overrun:
                raise TooSlow(f"more than {self._limit} changes were waiting to be read")
            if self._ended:
                break
            self._news.clear()
            await self._news.wait()
        taken, self._changes = self._changes, []
        return taken


class Fanout:
    """The subscriptions of a store."""

    def __init__(self, *, queue: int = QUEUE) -> None:
        self._queue = queue
        self._by_prefix: dict[str, dict[Listener, None]] = {}
        self._backlogs: set[Backlog] = set()
        self._closed = False

    def subscribe(self, prefix: str, watcher: Watcher) -> Subscription:
        if prefix.endswith("/"):
            check_prefix(prefix)
        else:
            check_key(prefix)
        listener = Listener(self, prefix, watcher)
        self._by_prefix.setdefault(prefix, {})[listener] = None
        return listener

    def remove(self, prefix: str, listener: Listener) -> None:
        listeners = self._by_prefix[prefix]
        del listeners[listener]
        if not listeners:
            del self._by_prefix[prefix]

    def publish(self, changes: Sequence[Change]) -> None:
        """Tell every subscriber of its part of a batch.  Who subscribes meanwhile does not hear of this batch."""
        if not self._by_prefix:
            return
        for listeners, heard in self._audiences(changes):
            for listener in listeners:
                if listener.watcher is not None:
                    self._tell(listener.watcher, heard)

    def _audiences(self, changes: Sequence[Change]) -> list[tuple[list[Listener], list[Change]]]:
        """The listeners of each prefix that has some, with the changes under it, which they share."""
        heard: dict[str, list[Change]] = {}
        for change in changes:
            for prefix in (*prefixes_of(change.key), change.key):
                if prefix in self._by_prefix:
                    heard.setdefault(prefix, []).append(change)
        return [(list(self._by_prefix[prefix]), part) for prefix, part in heard.items()]

    def _tell(self, watcher: Watcher, changes: Sequence[Change]) -> None:
        try:
            watcher(changes)
        except Exception:
            log.exception("a subscriber of the store failed; the others go on")

    async def watch(self, store: Store, prefix: str, *, since: Revision) -> AsyncIterator[Change]:
        """The changes under a prefix after `since`: first those that happened, then those that happen."""
        check_prefix(prefix)
        if since > store.revision:
            raise FutureRevision(since, store.revision)
        backlog = Backlog(self._queue)
        if self._closed:
            backlog.end()
        self._backlogs.add(backlog)
        subscription = self.subscribe(prefix, backlog)
        try:
            for change in await store.changes(prefix, since=since, until=store.revision):
                yield change
            while changes := await backlog.take():
                for change in changes:
                    yield change
        finally:
            subscription.cancel()
            self._backlogs.discard(backlog)

    def close(self) -> None:
        """End every watch."""
        self._closed = True
        for backlog in self._backlogs:
            backlog.end()
