"""Objects that say so are made once at the edge and are left alone from then on."""

from __future__ import annotations

import pytest
from edge_contract import Link, is_gone
from edge_objects import MAPS, obj, parts

from farflung.apis.edge.names import DOWNSYNCED

OVERWRITE = "edge.kubestellar.io/downsync-overwrite"


async def flip(link: Link, namespace: str, name: str, value: str) -> None:
    """And wait until the syncer has heard of it, and did what it does."""
    patch = {"metadata": {"annotations": {OVERWRITE: value}}}
    await link.mailbox.patch(MAPS, name, patch, namespace)
    await link.at_edge(MAPS, name, namespace, lambda one: one["metadata"]["annotations"].get(OVERWRITE) == value)


async def edit(link: Link, namespace: str, name: str) -> None:
    await link.cluster.patch(MAPS, name, {"data": {"tea": "edited"}}, namespace)


async def survives(link: Link, namespace: str, name: str) -> None:
    """An edit at the edge, also when another object is corrected meanwhile."""
    await edit(link, namespace, name)
    await edit(link, namespace, "normal")
    await overwritten(link, namespace, "normal")
    await link.settled()
    assert (await link.cluster.get(MAPS, name, namespace))["data"] == {"tea": "edited"}


async def overwritten(link: Link, namespace: str, name: str) -> None:
    await link.at_edge(MAPS, name, namespace, lambda one: one["data"] == {"tea": "3"})


@pytest.mark.parametrize("names", [["normal", "once"], ["*"]], ids=["named", "all of them"])
async def test_edits_at_the_edge_survive_only_as_long_as_an_object_says_that_it_is_made_once(
    link: Link, names: list[str]
) -> None:
    namespaces = [await link.put_namespace("one"), await link.put_namespace("two")]
    for namespace in namespaces:
        await link.put_map(namespace, "normal", tea="3")
        protected = obj(MAPS, "once", {"data": {"tea": "3"}}, annotations={OVERWRITE: "false"})
        await link.put(MAPS, protected, namespace)
    await link.configure(namespacedObjects=[parts(MAPS, **dict.fromkeys(namespaces, names))])
    await link.start()
    for namespace in namespaces:
        await link.at_edge(MAPS, "once", namespace)
        await link.at_edge(MAPS, "normal", namespace)
        await survives(link, namespace, "once")
        await link.mailbox.patch(MAPS, "once", {"data": {"coffee": "5"}}, namespace)
        await survives(link, namespace, "once")
        await link.mailbox.patch(MAPS, "once", {"data": {"coffee": None}}, namespace)

        await flip(link, namespace, "once", "true")
        await overwritten(link, namespace, "once")
        await edit(link, namespace, "once")
        await overwritten(link, namespace, "once")

        await flip(link, namespace, "once", "false")
        await survives(link, namespace, "once")

    one, two = namespaces
    await link.mailbox.delete(MAPS, "normal", one)
    await link.mailbox.delete(MAPS, "once", one)
    await link.gone_at_edge(MAPS, "normal", one)
    await link.gone_in_mailbox(MAPS, "once", one)
    await link.settled()
    assert not await is_gone(link.cluster, MAPS, "once", one)

    await flip(link, two, "once", "true")
    await overwritten(link, two, "once")
    await link.mailbox.delete(MAPS, "once", two)
    await link.gone_at_edge(MAPS, "once", two)
    await link.gone_in_mailbox(MAPS, "once", two)


async def test_an_object_that_is_made_once_is_not_made_again_in_the_place_of_another_one(link: Link) -> None:
    namespace = await link.put_namespace("shop")
    await link.at_edge_already(MAPS, obj(MAPS, "once", {"data": {"tea": "theirs"}}), namespace)
    protected = obj(MAPS, "once", {"data": {"tea": "3"}}, annotations={OVERWRITE: "false"})
    await link.put(MAPS, protected, namespace)
    await link.put_map(namespace, "normal", tea="3")
    await link.configure(namespacedObjects=[parts(MAPS, **{namespace: ["*"]})])
    await link.start()
    await link.at_edge(MAPS, "normal", namespace)
    await link.settled()
    found = await link.cluster.get(MAPS, "once", namespace)
    assert found["data"] == {"tea": "theirs"}
    assert DOWNSYNCED not in found["metadata"].get("annotations", {})
