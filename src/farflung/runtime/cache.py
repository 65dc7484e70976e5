"""A cache of the objects of one collection."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")


class Key(NamedTuple):
    """Logical cluster, namespace and name of an object.  As text: `cluster|namespace/name`, as in kcp's clients."""

    cluster: str
    namespace: str
    name: str

    def __str__(self) -> str:
        within = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.cluster}|{within}" if self.cluster else within


@dataclass(frozen=True, slots=True)
class CachedObject(Generic[T]):
    """A decoded object at a resourceVersion."""

    key: Key
    version: int
    value: T


@dataclass(frozen=True, slots=True)
class CacheChange(Generic[T]):
    """`old is None`: the object is new; `new is None`: it was deleted."""

    key: Key
    old: T | None
    new: T | None


class Cache(Mapping[Key, T], Generic[T]):
    """Objects only become newer, until a list replaces all of them.

    `assume` adds the server's answer to a write, before the watch delivers it.
    """

    def __init__(self) -> None:
        self._known: dict[Key, CachedObject[T]] = {}
        self._delivered = 0  #: the version up to which all changes were delivered

    def __getitem__(self, key: Key) -> T:
        return self._known[key].value

    def __iter__(self) -> Iterator[Key]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)

    @property
    def delivered(self) -> int:
        """The version up to which all changes were delivered."""
        return self._delivered

    def version(self, key: Key) -> int:
        """0 if the cache does not have the object."""
        known = self._known.get(key)
        return 0 if known is None else known.version

    def apply(self, changed: CachedObject[T]) -> CacheChange[T] | None:
        """Apply a change of the watch.  None if the cache has this version or a newer one."""
        self.advance(changed.version)
        return self._put(changed)

    def assume(self, written: CachedObject[T]) -> CacheChange[T] | None:
        """Apply an own write, unless the watch delivered that version already, and perhaps a newer one."""
        return self._put(written) if written.version > self._delivered else None

    def forget(self, key: Key) -> CacheChange[T] | None:
        """Remove an object after an own deletion.  If finalizers keep it, the watch delivers it again."""
        known = self._known.pop(key, None)
        return None if known is None else CacheChange(key, known.value, None)

    def remove(self, deleted: CachedObject[T]) -> CacheChange[T] | None:
        """None if the cache does not have it, or has a newer object of this name."""
        self.advance(deleted.version)
        known = self._known.get(deleted.key)
        if known is None or known.version > deleted.version:
            return None
        del self._known[deleted.key]
        return CacheChange(deleted.key, known.value, None)

    def advance(self, version: int) -> None:
        self._delivered = max(self._delivered, version)

    def replace(self, everything: Iterable[CachedObject[T]], version: int) -> list[CacheChange[T]]:
        """Replace everything by a list of that version, even if it is older: the server may have been restored from a
        backup, and then versions are used again for other writes."""
        found = {known.key: known for known in everything}
        before, self._known, self._delivered = self._known, found, version
        changes: list[CacheChange[T]] = [
            CacheChange(key, old.value, None) for key, old in before.items() if key not in found
        ]
        for key, new in found.items():
            old = before.get(key)
            if old is None or old.version != new.version or old.value != new.value:
                changes.append(CacheChange(key, None if old is None else old.value, new.value))
        return changes

    def _put(self, changed: CachedObject[T]) -> CacheChange[T] | None:
        known = self._known.get(changed.key)
        if known is not None and known.version >= changed.version:
            return None
        self._known[changed.key] = changed
        return CacheChange(changed.key, None if known is None else known.value, changed.value)
