"""Subscriptions: which watchers are called with which changes.

Subscriptions are indexed by prefix.  A key has at most four: resource, cluster, namespace and the key itself.  So a
change finds its subscribers with four lookups.
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

QUEUE = 10_000  #: changes that a watch may be behind before it ends; more than one commit has

log = logging.getLogger(__name__)


class Listener:
    """A subscription.  `watcher` is None after `cancel`."""

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
    """The changes that a watch has not read yet, up to a limit."""

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
        """The waiting changes, or the next ones; empty at the end of the watch.  Raises TooSlow after an overflow."""
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
        """Call all watchers with their changes of one commit.  A watcher that subscribes meanwhile is not called."""
        if not self._by_prefix:
            return
        for listeners, parts in self._audiences(changes):
            for listener in listeners:
                if listener.watcher is not None:
                    self._call(listener.watcher, parts)

    def _audiences(self, changes: Sequence[Change]) -> list[tuple[list[Listener], list[Change]]]:
        """The listeners of each prefix with the changes under it.  They share the list."""
        parts: dict[str, list[Change]] = {}
        for change in changes:
            for prefix in (*prefixes_of(change.key), change.key):
                if prefix in self._by_prefix:
                    parts.setdefault(prefix, []).append(change)
        return [(list(self._by_prefix[prefix]), part) for prefix, part in parts.items()]

    def _call(self, watcher: Watcher, changes: Sequence[Change]) -> None:
        try:
            watcher(changes)
        except Exception:
            log.exception("a watcher of the store failed")

    async def watch(self, store: Store, prefix: str, *, since: Revision) -> AsyncIterator[Change]:
        """The changes under a prefix after `since`, from history and then live."""
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
