"""The used amounts of all ResourceQuotas, which follow the stored objects.

The objects of a namespace are counted when its quota is read; then every commit updates the amounts.  A request
reserves
its amounts until the store reports its write or the write fails, so concurrent requests cannot exceed a quota.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

import orjson

from farflung.hub.admission.quotas import (
    GROWING,
    Quota,
    exceeded,
    growth,
    negative,
    no_room,
    quota_of,
    unsaid,
)
from farflung.hub.admission.usage import PODS, Amounts
from farflung.machinery.errors import Obj
from farflung.machinery.quantity import ZERO, Quantity
from farflung.store.base import Change, Entry, Store, Subscription, resource_prefix

HOME: Final = "/core/resourcequotas/"

Place = tuple[str, str]  #: cluster, namespace
Release = Callable[[], None]


class Refused(Exception):
    """A quota refuses an object; the text is the reason."""


def nothing() -> None:
    pass


class Books:
    """Used and reserved amounts of one quota."""

    def __init__(self, store: Store, key: str, quota: Quota, changed: Callable[[str], None]) -> None:
        self.key = key
        self.name = key.rpartition("/")[2]
        self.quota = quota
        self._store = store
        self._changed = changed
        self._used: dict[str, Quantity] = dict.fromkeys((name for name in quota.hard), ZERO)
        self._reserved: dict[str, list[Amounts]] = {}  #: key of an object → amounts of running requests
        self._subscriptions: list[Subscription] = []
        for home in quota.homes:
            prefix = home + key.removeprefix(HOME).rpartition("/")[0] + "/"
            self._subscriptions.append(store.subscribe(prefix, partial(self._hear, home)))
            for entry in store.list(prefix).entries:
                self._count(self._usage(home, entry), 1)

    @property
    def used(self) -> Amounts:
        """Amounts of stored objects."""
        return self._used

    def close(self) -> None:
        for subscription in self._subscriptions:
            subscription.cancel()

    def _usage(self, home: str, entry: Entry | None) -> Amounts:
        return {} if entry is None else self.quota.usage(home, orjson.loads(entry.value))

    def _hear(self, home: str, changes: Sequence[Change]) -> None:
        before = dict(self._used)
        for change in changes:
            self._reserved.pop(change.key, None)
            self._count(self._usage(home, change.previous), -1)
            self._count(self._usage(home, change.entry), 1)
        if self._used != before:
            self._changed(self.key)

    def _count(self, usage: Amounts, sign: int) -> None:
        for name, amount in usage.items():
            used = self._used[name]
            self._used[name] = used + amount if sign > 0 else used - amount

    def taken(self) -> Amounts:
        """Amounts of stored objects and of running requests."""
        if not self._reserved:
            return self._used
        total = dict(self._used)
        for wanted in self._reserved.values():
            for amounts in wanted:
                for name, amount in amounts.items():
                    total[name] = total[name] + amount
        return total

    def reserve(self, key: str, wanted: Amounts) -> Release:
        self._reserved.setdefault(key, []).append(wanted)
        return partial(self._release, key, wanted)

    def _release(self, key: str, wanted: Amounts) -> None:
        """Unless the commit has released them."""
        waiting = [one for one in self._reserved.get(key, ()) if one is not wanted]
        if waiting:
            self._reserved[key] = waiting
        else:
            self._reserved.pop(key, None)


class Quotas:
    """The quotas of all clusters."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._books: dict[Place, dict[str, Books]] = {}  #: by key; only namespaces with quotas
        self._listeners: list[Callable[[str], None]] = []
        store.subscribe(HOME, self._hear)
        for entry in store.list(HOME).entries:
            self._open(entry)

    def listen(self, listener: Callable[[str], None]) -> None:
        """The listener gets the key of every quota that is created or changed, or whose used amounts change."""
        self._listeners.append(listener)

    @property
    def keys(self) -> Iterable[str]:
        return [key for books in self._books.values() for key in books]

    def books(self, key: str) -> Books | None:
        return self._books.get(place_of(key), {}).get(key)

    # --- what happens -----------------------------------------------------------------------------

    def _hear(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if change.entry is None:
                self._close(change.key)
            else:
                self._open(change.entry)
                self._tell(change.key)

    def _tell(self, key: str) -> None:
        for listener in self._listeners:
            listener(key)

    def _open(self, entry: Entry) -> None:
        quota = quota_of(orjson.loads(entry.value))
        present = self.books(entry.key)
        if present is not None and present.quota == quota:
            return
        self._close(entry.key)
        books = Books(self._store, entry.key, quota, self._tell)
        self._books.setdefault(place_of(entry.key), {})[entry.key] = books

    def _close(self, key: str) -> None:
        place = place_of(key)
        books = self._books.get(place, {}).pop(key, None)
        if books is not None:
            books.close()
        if not self._books.get(place, True):
            del self._books[place]

    # --- requests ---------------------------------------------------------------------------------

    def are_in(self, cluster: str, namespace: str) -> bool:
        return (cluster, namespace) in self._books

    def reserve(self, key: str, obj: Obj, old: Obj | None, *, resize: bool = False) -> Release:
        """Reserve the amounts of a new object, or the increase by a change, until the result is called.  Raises
        Refused."""
        home = resource_prefix(key)
        if old is not None and home not in GROWING and not (resize and home == PODS):
            return nothing
        covering = [
            books for _, books in sorted(self._books.get(place_of(key), {}).items()) if books.quota.covers(home, obj)
        ]
        for books in covering:
            if why := unsaid(books.quota, home, obj):
                raise Refused(f"failed quota: {books.name}: {why}")
        wanted = [(books, wanted_of(books.quota, home, obj, old)) for books in covering]
        for books, amounts in wanted:
            taken = books.taken()
            if names := exceeded(books.quota.hard, taken, amounts):
                raise Refused(no_room(books.name, books.quota.hard, taken, amounts, names))
        releases = [books.reserve(key, amounts) for books, amounts in wanted if amounts]
        return partial(release_all, releases) if releases else nothing


def wanted_of(quota: Quota, home: str, obj: Obj, old: Obj | None) -> Amounts:
    usage = quota.usage(home, obj)
    if names := negative(usage):
        raise Refused(f"quota usage is negative for resource(s): {','.join(names)}")
    return growth(usage, {} if old is None else quota.usage(home, old))


def release_all(releases: Iterable[Release]) -> None:
    for release in releases:
        release()


def place_of(key: str) -> Place:
    """Cluster and namespace of a key; the namespace of a cluster-scoped object is empty."""
    parts = key.split("/")
    return parts[3], parts[4] if len(parts) == 6 else ""
