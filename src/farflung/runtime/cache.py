"""What is known of the objects of one kind, by where they are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")


class Key(NamedTuple):
    """Where an object is.  As text: `cluster|namespace/name`, as kcp's clients write it."""

    cluster: str
    namespace: str
    name: str

    def __str__(self) -> str:
        within = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.cluster}|{within}" if self.cluster else within


@dataclass(frozen=True, slots=True)
class CachedObject(Generic[T]):
    """An object as it was at a version."""

    key: Key
    version: int
    value: T


@dataclass(frozen=True, slots=True)
class Change(Generic[T]):
    """`old is None`: it is new; `new is None`: it is gone."""

    key: Key
    old: T | None
    new: T | None


class Cache(Mapping[Key, T], Generic[T]):
    """The reader's half, which only grows newer until a whole list replaces it.

    What a client wrote is put in with `assume`, so that it need not wait until it hears of it.
    """

    def __init__(self) -> None:
        self._known: dict[Key, CachedObject[T]] = {}
        self._heard = 0  #: the version up to which every change was heard of

    def __getitem__(self, key: Key) -> T:
        return self._known[key].value

    def __iter__(self) -> Iterator[Key]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)

    @property
    def heard(self) -> int:
        """The version up to which every change was heard of."""
        return self._heard

    def version(self, key: Key) -> int:
        """0 if it is not there."""
        known = self._known.get(key)
        return 0 if known is None else known.version

    def apply(self, news: CachedObject[T]) -> Change[T] | None:
        """What was heard.  None if it is no news."""
        self.hear(news.version)
        return self._put(news)

    def assume(self, written: CachedObject[T]) -> Change[T] | None:
        """What was written.  If that version was heard of already, so was what became of it since."""
        return self._put(written) if written.version > self._heard else None

    def forget(self, key: Key) -> Change[T] | None:
        """What was deleted.  If it is still there, with something to finish first, that is still to be heard of."""
        known = self._known.pop(key, None)
        return None if known is None else Change(key, known.value, None)

    def remove(self, gone: CachedObject[T]) -> Change[T] | None:
        """None if it is not there, or there again."""
        self.hear(gone.version)
        known = self._known.get(gone.key)
        if known is None or known.version > gone.version:
            return None
        del self._known[gone.key]
        return Change(gone.key, known.value, None)

    def hear(self, version: int) -> None:
        self._heard = max(self._heard, version)

    def replace(self, everything: Iterable[CachedObject[T]], version: int) -> list[Change[T]]:
        """By a whole list of that version.  It counts, whatever was known: the server may have been restored from a
        backup, and what was written since then may have versions that were something else before."""
        found = {known.key: known for known in everything}
        before, self._known, self._heard = self._known, found, version
        changes: list[Change[T]] = [Change(key, old.value, None) for key, old in before.items() if key not in found]
        for key, new in found.items():
            old = before.get(key)
            if old is None or old.version != new.version or old.value != new.value:
                changes.append(Change(key, None if old is None else old.value, new.value))
        return changes

    def _put(self, news: CachedObject[T]) -> Change[T] | None:
        known = self._known.get(news.key)
        if known is not None and known.version >= news.version:
            return None
        self._known[news.key] = news
        return Change(news.key, None if known is None else known.value, news.value)
