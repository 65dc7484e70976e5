"""Kinds that come and go, as housekeeping follows them."""

from __future__ import annotations

from collections.abc import Sequence

from farflung.apis.builtin import BUILTIN
from farflung.apis.resource import Resource
from farflung.hub import objects
from farflung.hub.catalog.catalog import Catalog
from farflung.hub.controllers.stored_kinds import Hearing, KeptKinds, Table, Turnover
from farflung.hub.objects import home_of
from farflung.store.base import Change
from farflung.store.memory import MemoryStore

WIDGETS = "/example.com/widgets/"


def widget(version: str = "v1", *, namespaced: bool = True) -> Resource:
    definition = "com.example.Widget"
    return Resource("example.com", version, "widgets", "Widget", namespaced, definition, custom=True)


def kept() -> KeptKinds:
    return KeptKinds(Catalog(BUILTIN))


def test_a_clusters_own_kinds_are_found_there_and_nowhere_else() -> None:
    kinds = kept()
    kinds.replace("one", Table([widget("v2"), widget("v1")]))
    assert kinds.of_type("one", "example.com/v1", "Widget") == widget("v1")
    assert kinds.of_type("other", "example.com/v1", "Widget") is None
    assert kinds.of_key(WIDGETS + "one/default/a") == widget("v2")
    assert kinds.of_key(WIDGETS + "other/default/a") is None
    assert kinds.namespaced("one")[-1] == widget("v2")
    assert widget("v2") not in kinds.namespaced("other")
    kinds.replace("one", Table([]))
    assert kinds.of_type("one", "example.com/v1", "Widget") is None


def test_built_in_kinds_are_everywhere() -> None:
    kinds = kept()
    for cluster in ("one", "other"):
        found = kinds.of_type(cluster, "v1", "ConfigMap")
        assert found is not None
        assert home_of(found) == "/core/configmaps/"
        assert kinds.of_key(f"/core/configmaps/{cluster}/default/a") == found


def test_turnovers_name_the_homes_that_came_and_went() -> None:
    kinds = kept()
    heard: list[Turnover] = []
    kinds.listen(heard.append)
    kinds.replace("one", Table([widget()]))
    kinds.replace("one", Table([widget()]))
    kinds.replace("one", Table([widget(), widget("v2")]))
    kinds.replace("one", Table([]))
    nothing: frozenset[str] = frozenset()
    assert heard == [
        Turnover("one", frozenset({WIDGETS}), nothing),
        Turnover("one", nothing, nothing),
        Turnover("one", nothing, frozenset({WIDGETS})),
    ]


async def test_a_home_is_heard_as_long_as_some_cluster_has_it() -> None:
    store, kinds = MemoryStore(), kept()
    heard: list[str] = []

    def hear(changes: Sequence[Change]) -> None:
        heard.extend(change.key for change in changes)

    hearing = Hearing(store, kinds, hear)
    kinds.replace("one", Table([widget()]))
    hearing.start()
    kinds.replace("other", Table([widget()]))
    await store.put(WIDGETS + "one/default/a", b"", expect=0)
    kinds.replace("one", Table([]))
    await store.put(WIDGETS + "other/default/b", b"", expect=0)
    kinds.replace("other", Table([]))
    await store.put(WIDGETS + "other/default/c", b"", expect=0)
    kinds.replace("other", Table([widget()]))
    await store.put(WIDGETS + "other/default/d", b"", expect=0)
    hearing.stop()
    kinds.replace("other", Table([]))
    kinds.replace("other", Table([widget()]))
    await store.put(WIDGETS + "other/default/e", b"", expect=0)
    assert [objects.name_in(key)[1] for key in heard] == ["a", "b", "d"]
