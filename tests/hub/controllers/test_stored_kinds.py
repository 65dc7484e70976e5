"""Kinds that come and go, as controllers follows them."""

from __future__ import annotations

from collections.abc import Sequence

from memory_store import MemoryStore

from farflung.apis.builtin.catalog import Catalog
from farflung.apis.builtin.kinds import BUILTIN
from farflung.apis.resource import Resource
from farflung.hub.catalog import objects
from farflung.hub.controllers.stored_kinds import KindsChange, KindTable, StoredKinds, StoredKindsWatch
from farflung.store.base import Change

WIDGETS = "/example.com/widgets/"


def widget(version: str = "v1", *, namespaced: bool = True) -> Resource:
    definition = "com.example.Widget"
    return Resource("example.com", version, "widgets", "Widget", namespaced, definition, custom=True)


def stored_kinds() -> StoredKinds:
    return StoredKinds(Catalog(BUILTIN))


def test_a_clusters_own_kinds_are_found_there_and_nowhere_else() -> None:
    kinds = stored_kinds()
    kinds.replace("one", KindTable([widget("v2"), widget("v1")]))
    assert kinds.of_type("one", "example.com/v1", "Widget") == widget("v1")
    assert kinds.of_type("other", "example.com/v1", "Widget") is None
    assert kinds.of_key(WIDGETS + "one/default/a") == widget("v2")
    assert kinds.of_key(WIDGETS + "other/default/a") is None
    assert kinds.namespaced("one")[-1] == widget("v2")
    assert widget("v2") not in kinds.namespaced("other")
    kinds.replace("one", KindTable([]))
    assert kinds.of_type("one", "example.com/v1", "Widget") is None


def test_built_in_kinds_are_everywhere() -> None:
    kinds = stored_kinds()
    for cluster in ("one", "other"):
        found = kinds.of_type(cluster, "v1", "ConfigMap")
        assert found is not None
        assert found.storage_prefix == "/core/configmaps/"
        assert kinds.of_key(f"/core/configmaps/{cluster}/default/a") == found


def test_a_change_names_the_prefixes_that_were_added_and_removed() -> None:
    kinds = stored_kinds()
    heard: list[KindsChange] = []
    kinds.listen(heard.append)
    kinds.replace("one", KindTable([widget()]))
    kinds.replace("one", KindTable([widget()]))
    kinds.replace("one", KindTable([widget(), widget("v2")]))
    kinds.replace("one", KindTable([]))
    nothing: frozenset[str] = frozenset()
    assert heard == [
        KindsChange("one", frozenset({WIDGETS}), nothing),
        KindsChange("one", nothing, nothing),
        KindsChange("one", nothing, frozenset({WIDGETS})),
    ]


async def test_a_prefix_is_watched_as_long_as_some_cluster_has_it() -> None:
    store, kinds = MemoryStore(), stored_kinds()
    heard: list[str] = []

    def hear(changes: Sequence[Change]) -> None:
        heard.extend(change.key for change in changes)

    hearing = StoredKindsWatch(store, kinds, hear)
    kinds.replace("one", KindTable([widget()]))
    hearing.start()
    kinds.replace("other", KindTable([widget()]))
    await store.put(WIDGETS + "one/default/a", b"", expect=0)
    kinds.replace("one", KindTable([]))
    await store.put(WIDGETS + "other/default/b", b"", expect=0)
    kinds.replace("other", KindTable([]))
    await store.put(WIDGETS + "other/default/c", b"", expect=0)
    kinds.replace("other", KindTable([widget()]))
    await store.put(WIDGETS + "other/default/d", b"", expect=0)
    hearing.stop()
    kinds.replace("other", KindTable([]))
    kinds.replace("other", KindTable([widget()]))
    await store.put(WIDGETS + "other/default/e", b"", expect=0)
    assert [objects.name_in(key)[1] for key in heard] == ["a", "b", "d"]
