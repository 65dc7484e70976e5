"""Which custom resources each cluster serves, kept in step with its CustomResourceDefinitions.

A commit is heard here before its writer is answered, so whoever created a definition can use it at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from farflung.hub.catalog import objects
from farflung.hub.catalog.custom_kinds import Definition, is_established
from farflung.hub.catalog.served import Changed, Kinds, Served
from farflung.store.base import Change, Entry, Revision, Store

DEFINITIONS: Final = "/apiextensions.k8s.io/customresourcedefinitions/"


def kinds_in(store: Store, builtin: Served) -> Kinds:
    """The kinds of every cluster of a store, now and from now on."""
    kinds = Kinds(builtin)
    Registry(store, kinds).start()
    return kinds


class Registry:
    def __init__(self, store: Store, kinds: Kinds) -> None:
        self._store = store
        self._kinds = kinds
        self._served: dict[str, dict[str, Definition]] = {}  #: cluster → key of a definition → what is served of it
        #: built-in kinds, and where their objects are, are not for definitions to take over
        self._builtin = frozenset((one.group, one.plural) for one in kinds.builtin.catalog)

    def start(self) -> None:
        """Serve what is there, and follow from now on."""
        self._store.subscribe(DEFINITIONS, self._hear)
        present = ((entry.key, entry) for entry in self._store.list(DEFINITIONS).entries)
        for cluster, entries in by_cluster(present).items():
            # a definition's own revision is not older than its last change, which nobody remembers
            newest = max(entry.revision for _, entry in entries if entry is not None)
            self._follow(cluster, entries, settled=newest)

    def _hear(self, changes: Sequence[Change]) -> None:
        for cluster, entries in by_cluster((change.key, change.entry) for change in changes).items():
            self._follow(cluster, entries, settled=self._store.last_assigned)

    def _follow(self, cluster: str, entries: Iterable[tuple[str, Entry | None]], *, settled: Revision) -> None:
        """`settled`: objects that are newer than this were written under the definitions as they are now."""
        served = self._served.setdefault(cluster, {})
        changed: set[Changed] = set()
        for key, entry in entries:
            before = served.pop(key, None)
            after = None if entry is None else followed(entry, before, settled)
            if after is not None and (after.group, after.plural) in self._builtin:
                after = None
            if after is not None:
                served[key] = after
            if after is not before:
                changed.update((cluster, one.group, one.plural) for one in (before, after) if one is not None)
        if not served:
            del self._served[cluster]
        self._kinds.serve(cluster, served.values(), changed)


def by_cluster(entries: Iterable[tuple[str, Entry | None]]) -> dict[str, list[tuple[str, Entry | None]]]:
    """Keys and what is there, sorted by cluster."""
    found: dict[str, list[tuple[str, Entry | None]]] = {}
    for key, entry in entries:
        found.setdefault(objects.cluster_in(key), []).append((key, entry))
    return found


def followed(entry: Entry, before: Definition | None, settled: Revision) -> Definition | None:
    """What is served of a definition, the same as before if it says the same; None if it is not established."""
    definition = objects.decode(entry)
    if not is_established(definition):
        return None
    after = Definition(definition, settled)
    return before if before is not None and before.says_the_same(after) else after
