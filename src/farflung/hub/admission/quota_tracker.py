"""The used amounts of all ResourceQuotas, which follow the stored objects.

The objects of a namespace are counted when its quota is read; then every commit updates the amounts.  A request
reserves its amounts until the store reports its write or the write fails, so concurrent requests cannot exceed a quota.
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
    exceeded_text,
    growth,
    missing_amounts,
    negative,
    quota_of,
)
from farflung.hub.admission.usage import PODS, Amounts
from farflung.machinery.errors import Obj
from farflung.machinery.quantity import ZERO, Quantity
from farflung.store.base import Change, Entry, Store, Subscription, resource_prefix

QUOTAS: Final = "/core/resourcequotas/"

NamespaceKey = tuple[str, str]  #: cluster, namespace
Release = Callable[[], None]


class QuotaExceeded(Exception):
    """A quota refuses an object; the text is the reason."""


def nothing() -> None:
    pass


class QuotaUsage:
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
        namespace = key.removeprefix(QUOTAS).rpartition("/")[0]
        for prefix in quota.prefixes:
            objects = f"{prefix}{namespace}/"
            self._subscriptions.append(store.subscribe(objects, partial(self._on_changes, prefix)))
            for entry in store.list(objects).entries:
                self._count(self._usage(prefix, entry), 1)

    @property
    def used(self) -> Amounts:
        """Amounts of stored objects."""
        return self._used

    def close(self) -> None:
        for subscription in self._subscriptions:
            subscription.cancel()

    def _usage(self, prefix: str, entry: Entry | None) -> Amounts:
        return {} if entry is None else self.quota.usage(prefix, orjson.loads(entry.value))

    def _on_changes(self, prefix: str, changes: Sequence[Change]) -> None:
        before = dict(self._used)
        for change in changes:
            self._reserved.pop(change.key, None)
            self._count(self._usage(prefix, change.previous), -1)
            self._count(self._usage(prefix, change.entry), 1)
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
        self._usages: dict[NamespaceKey, dict[str, QuotaUsage]] = {}  #: by key; only namespaces with quotas
        self._listeners: list[Callable[[str], None]] = []
        store.subscribe(QUOTAS, self._on_changes)
        for entry in store.list(QUOTAS).entries:
            self._open(entry)

    def listen(self, listener: Callable[[str], None]) -> None:
        """The listener gets the key of every quota that is created or changed, or whose used amounts change."""
        self._listeners.append(listener)

    @property
    def keys(self) -> Iterable[str]:
        return [key for usage in self._usages.values() for key in usage]

    def usage_of(self, key: str) -> QuotaUsage | None:
        return self._usages.get(namespace_of(key), {}).get(key)

    # --- changes ----------------------------------------------------------------------------------

    def _on_changes(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if change.entry is None:
                self._close(change.key)
            else:
                self._open(change.entry)
                self._notify(change.key)

    def _notify(self, key: str) -> None:
        for listener in self._listeners:
            listener(key)

    def _open(self, entry: Entry) -> None:
        quota = quota_of(orjson.loads(entry.value))
        present = self.usage_of(entry.key)
        if present is not None and present.quota == quota:
            return
        self._close(entry.key)
        usage = QuotaUsage(self._store, entry.key, quota, self._notify)
        self._usages.setdefault(namespace_of(entry.key), {})[entry.key] = usage

    def _close(self, key: str) -> None:
        namespace = namespace_of(key)
        usage = self._usages.get(namespace, {}).pop(key, None)
        if usage is not None:
            usage.close()
        if not self._usages.get(namespace, True):
            del self._usages[namespace]

    # --- requests ---------------------------------------------------------------------------------

    def are_in(self, cluster: str, namespace: str) -> bool:
        return (cluster, namespace) in self._usages

    def reserve(self, key: str, obj: Obj, old: Obj | None, *, resize: bool = False) -> Release:
        """Reserve the amounts of a new object, or the increase by a change, until the result is called.  Raises
        QuotaExceeded."""
        prefix = resource_prefix(key)
        if old is not None and prefix not in GROWING and not (resize and prefix == PODS):
            return nothing
        covering = [
            usage
            for _, usage in sorted(self._usages.get(namespace_of(key), {}).items())
            if usage.quota.covers(prefix, obj)
        ]
        for usage in covering:
            if why := missing_amounts(usage.quota, prefix, obj):
                raise QuotaExceeded(f"failed quota: {usage.name}: {why}")
        wanted = [(usage, wanted_of(usage.quota, prefix, obj, old)) for usage in covering]
        for usage, amounts in wanted:
            taken = usage.taken()
            if names := exceeded(usage.quota.hard, taken, amounts):
                raise QuotaExceeded(exceeded_text(usage.name, usage.quota.hard, taken, amounts, names))
        releases = [usage.reserve(key, amounts) for usage, amounts in wanted if amounts]
        return partial(release_all, releases) if releases else nothing


def wanted_of(quota: Quota, prefix: str, obj: Obj, old: Obj | None) -> Amounts:
    usage = quota.usage(prefix, obj)
    if names := negative(usage):
        raise QuotaExceeded(f"quota usage is negative for resource(s): {','.join(names)}")
    return growth(usage, {} if old is None else quota.usage(prefix, old))


def release_all(releases: Iterable[Release]) -> None:
    for release in releases:
        release()


def namespace_of(key: str) -> NamespaceKey:
    """Cluster and namespace of a key; the namespace of a cluster-scoped object is empty."""
    parts = key.split("/")
    return parts[3], parts[4] if len(parts) == 6 else ""
