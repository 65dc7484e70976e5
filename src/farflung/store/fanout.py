"""Subscriptions: which watchers are called with which changes.

Subscriptions are indexed by prefix.  A key has at most four: resource, cluster, namespace and the key itself.  So a
change finds its subscribers with four lookups.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from farflung.store.base import Change, Subscription, Watcher, check_key, check_prefix, prefixes_of

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


class Fanout:
    """The subscriptions of a store."""

    def __init__(self) -> None:
        self._by_prefix: dict[str, dict[Listener, None]] = {}

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
