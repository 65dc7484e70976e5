"""The number and the bytes of the keys of each cluster, kept with every change and counted again at load."""

from __future__ import annotations

from collections.abc import Iterable

from farflung.store.base import Amount, Change, Entry


class StoredAmounts:
    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self._of: dict[str, list[int]] = {}  #: by cluster: keys and bytes
        for entry in entries:
            self._add(entry.key, 1, len(entry.value))

    def follow(self, change: Change) -> None:
        after, before = change.entry, change.previous
        keys = (after is not None) - (before is not None)
        size = (0 if after is None else len(after.value)) - (0 if before is None else len(before.value))
        self._add(change.key, keys, size)

    def _add(self, key: str, keys: int, size: int) -> None:
        cluster = key.split("/", 4)[3]
        amounts = self._of.get(cluster)
        if amounts is None:
            amounts = self._of[cluster] = [0, 0]
        amounts[0] += keys
        amounts[1] += size
        if not amounts[0]:
            del self._of[cluster]

    def of(self, cluster: str) -> Amount:
        return Amount(*self._of.get(cluster, (0, 0)))

    def most(self) -> Amount:
        """The most keys and the most bytes of a cluster."""
        return Amount(
            max((keys for keys, _ in self._of.values()), default=0),
            max((size for _, size in self._of.values()), default=0),
        )
