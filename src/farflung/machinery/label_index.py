"""Indexes for label selectors in both directions: the objects of a selector, and the selectors of an object.

    LabelIndex      labels by id:     .select(selector)   the ids of labels that match
    SelectorIndex   selectors by id:  .matching(labels)   the ids of selectors that match

Ids are small integers that the caller assigns and should reuse.  Results are exact for every operator, and the caller
may change them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

from pyroaring import BitMap

from farflung.lib.groups import discard_from
from farflung.machinery.selectors import LabelRequirement, Labels, LabelSelector

CHECKED_ONE_BY_ONE: Final = 8  #: up to so many labels are checked one by one, instead of intersecting sets

_NONE: Final = BitMap()


class LabelIndex:
    """The cost of a selector depends on the values in its requirements, and not on the number of objects; only `gt` and
    `lt` compare all values of a label."""

    __slots__ = ("_all", "_by_label", "_labels", "_with_label")

    def __init__(self) -> None:
        self._labels: dict[int, Labels] = {}
        self._all = BitMap()
        self._with_label: dict[str, BitMap] = {}
        self._by_label: dict[str, dict[str, BitMap]] = {}  #: label → value → ids

    def __len__(self) -> int:
        return len(self._labels)

    def __contains__(self, id: int) -> bool:
        return id in self._labels

    def put(self, id: int, labels: Labels) -> None:
        """Add an object, or change its labels.  The caller must not change `labels` afterwards."""
        before = self._labels.get(id)
        if before is not None:
            if before == labels:
                return
            self._unfile(id, before)
        self._labels[id] = labels
        self._all.add(id)
        for key, value in labels.items():
            values = self._by_label.get(key)
            if values is None:
                values = self._by_label[key] = {}
                self._with_label[key] = BitMap()
            self._with_label[key].add(id)
            ids = values.get(value)
            if ids is None:
                values[value] = BitMap((id,))
            else:
                ids.add(id)

    def remove(self, id: int) -> None:
        """Does nothing if the object is not in the index."""
        before = self._labels.pop(id, None)
        if before is not None:
            self._all.discard(id)
            self._unfile(id, before)

    def select(self, selector: LabelSelector) -> BitMap:
        if len(self._labels) <= CHECKED_ONE_BY_ONE:
            return BitMap([id for id, labels in self._labels.items() if selector.matches(labels)])
        found = self._wanted(selector)
        for key in selector.unwanted:
            if not found:
                break
            found -= self._with_label.get(key, _NONE)
        for key, values in selector.barred.items():
            if not found:
                break
            named = list(self._named(key, values))
            if named:
                found -= BitMap.union(*named)
        return found

    def _wanted(self, selector: LabelSelector) -> BitMap:
        """The objects with all required labels."""
        parts: list[BitMap] = []
        for key, wanted in selector.wanted:
            having = list(self._having(key, wanted))
            if not having:
                return BitMap()
            parts.append(having[0] if len(having) == 1 else BitMap.union(*having))
        if not parts:
            return self._all.copy()
        if len(parts) == 1:
            return parts[0].copy()
        parts.sort(key=len)
        found = parts[0] & parts[1]
        for part in parts[2:]:
            found &= part
        return found

    def _having(self, key: str, wanted: LabelRequirement) -> Iterator[BitMap]:
        by_value = self._by_label.get(key)
        if by_value is None:
            return
        if wanted.among is None and wanted.above is None and wanted.below is None:
            yield self._with_label[key]
            return
        values: Iterable[str] = by_value if wanted.among is None else wanted.among
        for value in values:
            ids = by_value.get(value)
            if ids is not None and wanted.matches(value):
                yield ids

    def _named(self, key: str, values: Iterable[str]) -> Iterator[BitMap]:
        by_value = self._by_label.get(key)
        if by_value is not None:
            for value in values:
                if value in by_value:
                    yield by_value[value]

    def _unfile(self, id: int, labels: Labels) -> None:
        for key, value in labels.items():
            values = self._by_label[key]
            ids = values[value]
            ids.discard(id)
            if not ids:
                del values[value]
            self._with_label[key].discard(id)
            if not values:
                del self._by_label[key], self._with_label[key]


Places: TypeAlias = tuple[tuple[str, str | None], ...]  #: labels and values; None: any value


class _Filed:
    """A selector, which several ids may share."""

    __slots__ = ("alone", "ids", "places", "selector")

    def __init__(self, selector: LabelSelector) -> None:
        self.selector = selector
        self.ids = BitMap()
        self.places: Places = ()
        self.alone = False  #: it requires nothing but the label under which it is filed


class SelectorIndex:
    """Each selector is filed under one label that it requires.  So labels are compared only with selectors filed under
    one of them, and with selectors that require no label.  Equal selectors are compared once."""

    __slots__ = ("_anywhere", "_by_key", "_by_label", "_filed", "_known")

    def __init__(self) -> None:
        self._filed: dict[int, _Filed] = {}
        self._known: dict[LabelSelector, _Filed] = {}
        self._by_label: dict[str, dict[str, set[_Filed]]] = {}
        self._by_key: dict[str, set[_Filed]] = {}
        self._anywhere: set[_Filed] = set()

    def __len__(self) -> int:
        return len(self._filed)

    def __contains__(self, id: int) -> bool:
        return id in self._filed

    def put(self, id: int, selector: LabelSelector) -> None:
        """Add or replace a selector."""
        before = self._filed.get(id)
        if before is not None:
            if before.selector == selector:
                return
            self.remove(id)
        filed = self._known.get(selector)
        if filed is None:
            filed = self._known[selector] = _Filed(selector)
            self._file(filed)
        filed.ids.add(id)
        self._filed[id] = filed

    def remove(self, id: int) -> None:
        """Does nothing if the selector is not in the index."""
        filed = self._filed.pop(id, None)
        if filed is None:
            return
        filed.ids.discard(id)
        if not filed.ids:
            del self._known[filed.selector]
            self._unfile(filed)

    def matching(self, labels: Labels) -> BitMap:
        if not self._filed:
            return BitMap()
        found = [filed.ids for filed in self._anywhere if filed.selector.matches(labels)]
        for key, value in labels.items():
            by_value = self._by_label.get(key)
            if by_value is not None:
                for filed in by_value.get(value, ()):
                    if filed.alone or filed.selector.matches(labels):
                        found.append(filed.ids)
            for filed in self._by_key.get(key, ()):
                if filed.alone or filed.selector.matches(labels):
                    found.append(filed.ids)
        if not found:
            return BitMap()
        return found[0].copy() if len(found) == 1 else BitMap.union(*found)

    def _file(self, filed: _Filed) -> None:
        selector = filed.selector
        if not selector.wanted:
            self._anywhere.add(filed)
            return
        key, wanted = selector.wanted[0]
        if len(selector.wanted) == 1:
            filed.places = _places(key, wanted)
            further = selector.barred or selector.unwanted or wanted.above is not None or wanted.below is not None
            filed.alone = not further
        else:
            filed.places = min((_places(key, wanted) for key, wanted in selector.wanted), key=self._crowd)
        for key, value in filed.places:
            if value is None:
                self._by_key.setdefault(key, set()).add(filed)
            else:
                self._by_label.setdefault(key, {}).setdefault(value, set()).add(filed)

    def _crowd(self, places: Places) -> int:
        """The load of a bucket: selectors for any value of a label match more labels, and count more."""
        crowd = 0
        for key, value in places:
            if value is None:
                crowd += 1 + 2 * len(self._by_key.get(key, ()))
            else:
                crowd += len(self._by_label.get(key, {}).get(value, ()))
        return crowd

    def _unfile(self, filed: _Filed) -> None:
        if not filed.places:
            self._anywhere.discard(filed)
        for key, value in filed.places:
            if value is None:
                discard_from(self._by_key, key, filed)
                continue
            values = self._by_label[key]
            discard_from(values, value, filed)
            if not values:
                del self._by_label[key]


def _places(key: str, wanted: LabelRequirement) -> Places:
    if wanted.among is None:
        return ((key, None),)
    return tuple([(key, value) for value in sorted(wanted.among)])
