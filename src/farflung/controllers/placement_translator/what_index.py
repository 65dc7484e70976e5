"""Which of many placements have to be asked about an object.

A workspace may have a hundred placements and ten thousand objects, and most placements have nothing to do with most
objects.  Placements of one workspace are known by keys that the caller hands out.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, Generic, TypeVar

from farflung.controllers.placement_translator.values import Kind, Part
from farflung.controllers.placement_translator.what import What
from farflung.machinery.selectors import Labels

MOST_NAMESPACES: Final = 10_000  #: of which answers are remembered

Key = TypeVar("Key", bound=Hashable)


class WhatIndex(Generic[Key]):
    __slots__ = ("_by_kind", "_by_namespace", "_whats")

    def __init__(self) -> None:
        self._whats: dict[Key, What] = {}
        self._by_kind: dict[tuple[Kind, bool], frozenset[Key]] = {}  #: who may select objects of a kind one by one
        self._by_namespace: dict[str, tuple[Labels, frozenset[Key]]] = {}  #: who selects all that is in a namespace

    def __len__(self) -> int:
        return len(self._whats)

    def put(self, key: Key, what: What) -> None:
        if self._whats.get(key) != what:
            self._whats[key] = what
            self._forget()

    def remove(self, key: Key) -> None:
        if self._whats.pop(key, None) is not None:
            self._forget()

    def candidates(self, part: Part, namespace_labels: Labels | None) -> frozenset[Key]:
        """Those that may select an object.  No other does, as long as its namespace has these labels."""
        if not part.namespace:
            return self._singly(part.kind, namespaced=False)
        if namespace_labels is None:
            return frozenset()
        return self._singly(part.kind, namespaced=True) | self.selecting_namespace(part.namespace, namespace_labels)

    def selecting_namespace(self, name: str, labels: Labels) -> frozenset[Key]:
        """Those that select all that is in a namespace."""
        known = self._by_namespace.get(name)
        if known is None or known[0] != labels:
            if len(self._by_namespace) >= MOST_NAMESPACES:
                self._by_namespace.clear()
            keys = frozenset(key for key, what in self._whats.items() if what.selects_namespace(labels))
            known = self._by_namespace[name] = (dict(labels), keys)
        return known[1]

    def _singly(self, kind: Kind, *, namespaced: bool) -> frozenset[Key]:
        known = self._by_kind.get((kind, namespaced))
        if known is None:
            known = self._by_kind[kind, namespaced] = frozenset(
                key for key, what in self._whats.items() if what.may_select_singly(kind, namespaced=namespaced)
            )
        return known

    def _forget(self) -> None:
        self._by_kind.clear()
        self._by_namespace.clear()
