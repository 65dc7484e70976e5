"""The current state in memory: entries, their keys in order, and the amounts of each cluster."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Mapping, Sequence

from farflung.store.base import Amount, Change, Entry, Page, Revision, end_of, resource_prefix


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


BLOCK = 512  #: keys; a block is split at twice this size

NOTHING: Mapping[str, Entry | None] = {}


class SortedKeys:
    """A sorted set of strings in blocks: an insertion moves only the keys of one block."""

    __slots__ = ("_blocks", "_firsts")

    def __init__(self, ordered: Sequence[str] = ()) -> None:
        self._blocks = [list(ordered[at : at + BLOCK]) for at in range(0, len(ordered), BLOCK)]
        self._firsts = [block[0] for block in self._blocks]

    def __bool__(self) -> bool:
        return bool(self._blocks)

    def add(self, key: str) -> None:
        """The key must not be in the set."""
        if not self._blocks:
            self._blocks, self._firsts = [[key]], [key]
            return
        at = max(bisect_right(self._firsts, key) - 1, 0)
        block = self._blocks[at]
        insort(block, key)
        self._firsts[at] = block[0]
        if len(block) >= 2 * BLOCK:
            self._blocks[at : at + 1] = [block[:BLOCK], block[BLOCK:]]
            self._firsts.insert(at + 1, block[BLOCK])

    def remove(self, key: str) -> None:
        """The key must be in the set."""
        at = bisect_right(self._firsts, key) - 1
        block = self._blocks[at]
        del block[bisect_left(block, key)]
        if block:
            self._firsts[at] = block[0]
        else:
            del self._blocks[at], self._firsts[at]

    def rank(self, key: str) -> int:
        """The number of keys that are not greater than this one."""
        at = bisect_right(self._firsts, key) - 1
        if at < 0:
            return 0
        return sum(map(len, self._blocks[:at])) + bisect_right(self._blocks[at], key)

    def following(self, key: str, count: int) -> list[str]:
        """The next `count` keys greater than this one."""
        at = max(bisect_right(self._firsts, key) - 1, 0)
        found: list[str] = []
        for block in self._blocks[at:]:
            start = 0 if found else bisect_right(block, key)
            found += block[start : start + count - len(found)]
            if len(found) >= count:
                break
        return found


class Bucket:
    """The keys of one resource, and the revision of their last change."""

    __slots__ = ("changed", "keys")

    def __init__(self, keys: SortedKeys, changed: Revision) -> None:
        self.keys = keys
        self.changed = changed


class CurrentState:
    """The entries at `revision`.  Changes must be applied in order."""

    def __init__(self, entries: Iterable[Entry], revision: Revision) -> None:
        self.revision = revision
        self._loaded = revision
        self._entries = {entry.key: entry for entry in entries}
        self.amounts = StoredAmounts(self._entries.values())
        self._buckets = self._sorted_by_resource()
        self._emptied = revision  #: when a resource lost its last key
        self.get = self._entries.get

    def _sorted_by_resource(self) -> dict[str, Bucket]:
        by_resource: dict[str, list[str]] = {}
        for key in sorted(self._entries):
            by_resource.setdefault(resource_prefix(key), []).append(key)
        return {prefix: Bucket(SortedKeys(keys), self._loaded) for prefix, keys in by_resource.items()}

    def apply(self, change: Change) -> None:
        key = change.key
        self.amounts.follow(change)
        resource = resource_prefix(key)
        bucket = self._buckets.get(resource)
        if bucket is None:
            bucket = self._buckets[resource] = Bucket(SortedKeys(), self._loaded)
        if change.entry is None:
            del self._entries[key]
            bucket.keys.remove(key)
        else:
            self._entries[key] = change.entry
            if change.previous is None:
                bucket.keys.add(key)
        bucket.changed = self.revision = change.revision
        if not bucket.keys:
            del self._buckets[resource]
            self._emptied = change.revision

    def storage_prefixes(self) -> Sequence[str]:
        return tuple(self._buckets)

    def unchanged_since(self, prefix: str, revision: Revision) -> bool:
        """Whether no key of the prefix's resource changed after a revision.  False may also mean unknown."""
        bucket = self._buckets.get(resource_prefix(prefix))
        return (self._emptied if bucket is None else bucket.changed) <= revision

    def page(self, prefix: str, *, after: str, limit: int) -> Page:
        return self.page_before(prefix, after=after, limit=limit, revision=self.revision, undone=NOTHING)

    def page_before(
        self, prefix: str, *, after: str, limit: int, revision: Revision, undone: Mapping[str, Entry | None]
    ) -> Page:
        """A page at an earlier revision.  `undone`: the entries of changed keys at that revision, None if they did not
        exist."""
        start = max(prefix, after)
        bucket = self._buckets.get(resource_prefix(prefix))
        keys: list[str] = []
        total = 0
        if bucket is not None:
            total = max(bucket.keys.rank(end_of(prefix)) - bucket.keys.rank(start), 0)
            wanted = min(total, limit + len(undone)) if limit > 0 else total
            keys = bucket.keys.following(start, wanted)
        if undone:
            past = {key: entry for key, entry in undone.items() if key > start}
            total += sum((entry is not None) - (key in self._entries) for key, entry in past.items())
            keys = [key for key in keys if key not in past]
            keys = sorted(keys + [key for key, entry in past.items() if entry is not None])
            keys = keys[:limit] if limit > 0 else keys
        present = self._entries
        entries = [undone.get(key) or present[key] for key in keys] if undone else [present[key] for key in keys]
        remaining = total - len(entries)
        return Page(entries, revision, after=keys[-1] if remaining and keys else "", remaining=remaining)
