"""Who has which children, by what was heard so far.  Pure.

Objects are found by uid, never by a key put together from names: what an informer files an object under depends on
annotations that anybody may write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from farflung.controllers.workload.ownership import controller_of, selector
from farflung.controllers.workload.pods import labels
from farflung.machinery.errors import Obj
from farflung.runtime.cache import Change, Key


class Offspring:
    """Children of one kind, by who controls them; those whom nobody does, by namespace."""

    def __init__(self) -> None:
        self._of: dict[str, dict[Key, None]] = {}
        self._orphans: dict[str, dict[Key, None]] = {}

    def hear(self, change: Change[Obj]) -> None:
        if change.old is not None:
            self._remove(change.old, change.key)
        if change.new is not None:
            shelf, place = self._shelf(change.new)
            shelf.setdefault(place, {})[change.key] = None

    def of(self, uid: str) -> list[Key]:
        return sorted(self._of.get(uid, ()))

    def orphans(self, namespace: str) -> list[Key]:
        return sorted(self._orphans.get(namespace, ()))

    def _remove(self, obj: Obj, key: Key) -> None:
        shelf, place = self._shelf(obj)
        filed = shelf.get(place, {})
        filed.pop(key, None)
        if not filed:
            shelf.pop(place, None)

    def _shelf(self, obj: Obj) -> tuple[dict[str, dict[Key, None]], str]:
        reference = controller_of(obj)
        if reference is None:
            return self._orphans, obj["metadata"].get("namespace", "")
        return self._of, reference.get("uid", "")


class Owners:
    """Owners of one kind, and which of them a change of a child concerns."""

    def __init__(self, find: Callable[[Key], Obj | None]) -> None:
        self._find = find
        self._keys: dict[str, Key] = {}
        self._in: dict[str, dict[Key, None]] = {}

    def hear(self, change: Change[Obj]) -> None:
        if change.old is not None:
            self._keys.pop(change.old["metadata"]["uid"], None)
            self._in.get(change.key.namespace, {}).pop(change.key, None)
        if change.new is not None:
            self._keys[change.new["metadata"]["uid"]] = change.key
            self._in.setdefault(change.key.namespace, {})[change.key] = None

    def key(self, uid: str) -> Key | None:
        return self._keys.get(uid)

    def every(self) -> list[Key]:
        return list(self._keys.values())

    def concerned(self, change: Change[Obj]) -> Iterator[Key]:
        """Whoever controlled the child before or does now; of an orphan, all that select it."""
        found: dict[Key, None] = {}
        for child in (change.old, change.new):
            reference = controller_of(child) if child is not None else None
            if reference is not None and (key := self._keys.get(reference.get("uid", ""))) is not None:
                found[key] = None
        if change.new is not None and controller_of(change.new) is None:
            found |= dict.fromkeys(self._selecting(change.key.namespace, labels(change.new)))
        yield from found

    def _selecting(self, namespace: str, worn: dict[str, str]) -> Iterator[Key]:
        for key in self._in.get(namespace, ()):
            owner = self._find(key)
            if owner is not None and selector(owner).matches(worn):
                yield key
