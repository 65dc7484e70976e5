"""What the hub takes back goes at the edge, and nothing else does."""

from __future__ import annotations

import pytest
from asked_hub import BINDINGS
from edge_contract import Link, is_gone
from edge_objects import (
    CONFIGS,
    DEFINITIONS,
    DEPLOYMENTS,
    MAPS,
    NAMESPACES,
    definition,
    deployment,
    obj,
    parts,
    scope,
    whole,
)

from farflung.apis.edge.names import DOWNSYNCED


async def furnished(link: Link) -> str:
    """The Deployment is at the edge.  The namespace it is in."""
    namespace = await link.put_namespace("optimized")
    await link.put(DEPLOYMENTS, deployment("cpu-usage"), namespace)
    await link.configure(namespacedObjects=[parts(DEPLOYMENTS, **{namespace: ["cpu-usage"]})])
    await link.start()
    await link.at_edge(DEPLOYMENTS, "cpu-usage", namespace)
    await link.settled()
    return namespace


@pytest.mark.parametrize(
    ("steps", "running"),
    [
        pytest.param(("delete",), True, marks=pytest.mark.long),
        pytest.param(("empty", "delete"), True, marks=pytest.mark.long),
        pytest.param(("unbind",), True, marks=pytest.mark.long),
        pytest.param(("empty", "unbind"), True, marks=pytest.mark.long),
        (("empty", "delete", "unbind"), True),
        pytest.param(("empty", "delete"), False, marks=pytest.mark.long),
        (("empty", "unbind"), False),
    ],
    ids=lambda one: " and ".join(one) if isinstance(one, tuple) else "at once" if one else "while nobody runs",
)
async def test_a_deployment_that_is_taken_away_upstream_vanishes_and_its_namespace_stays(
    link: Link, steps: tuple[str, ...], running: bool
) -> None:
    namespace = await furnished(link)
    if not running:
        await link.stop()
    for step in steps:
        if step == "empty":
            await link.configure()
        elif step == "delete":
            await link.mailbox.delete(DEPLOYMENTS, "cpu-usage", namespace)
        else:
            await link.mailbox.delete(BINDINGS, "kube")
    if not running:
        await link.start()
    await link.gone_at_edge(DEPLOYMENTS, "cpu-usage", namespace)
    if "unbind" in steps:
        await link.gone_in_mailbox(BINDINGS, "kube")
    else:
        await link.gone_in_mailbox(DEPLOYMENTS, "cpu-usage", namespace)
    await link.settled()
    found = await link.cluster.get(NAMESPACES, namespace)
    assert found["status"]["phase"] == "Active"


async def test_what_is_not_listed_any_more_is_followed_until_it_is_deleted(link: Link) -> None:
    namespace = await link.put_namespace("shop")
    await link.put_map(namespace, "prices", tea="3")
    await link.configure(namespaceScope=scope([namespace], MAPS))
    await link.start()
    await link.at_edge(MAPS, "prices", namespace)
    await link.configure()
    await link.restart()
    await link.mailbox.patch(MAPS, "prices", {"data": {"tea": "4"}}, namespace)
    await link.at_edge(MAPS, "prices", namespace, lambda one: one["data"] == {"tea": "4"})
    await link.mailbox.delete(MAPS, "prices", namespace)
    await link.gone_at_edge(MAPS, "prices", namespace)


async def withdraw(link: Link, namespace: str) -> None:
    """The namespace, and before it what is in it, because a hub gives a namespace time to be emptied."""
    await link.mailbox.delete(MAPS, "prices", namespace)
    await link.mailbox.delete(NAMESPACES, namespace)
    await link.gone_at_edge(MAPS, "prices", namespace)


@pytest.mark.slow
async def test_an_empty_namespace_of_ours_goes_with_its_copy_and_what_is_in_it_goes_first(link: Link) -> None:
    namespace = await link.put_namespace("shop")
    await link.put_map(namespace, "prices", tea="3")
    await link.configure(namespaceScope=scope([namespace], MAPS))
    await link.start()
    await link.at_edge(MAPS, "prices", namespace)
    await link.mailbox.delete(NAMESPACES, namespace)
    await link.gone_at_edge(NAMESPACES, namespace)
    await link.gone_in_mailbox(NAMESPACES, namespace)
    await link.no_problem()


async def test_a_namespace_of_ours_stays_as_long_as_it_holds_what_is_not_ours(link: Link) -> None:
    namespace = await link.put_namespace("shop")
    await link.put_map(namespace, "prices", tea="3")
    await link.configure(namespaceScope=scope([namespace], MAPS))
    await link.start()
    await link.at_edge(MAPS, "prices", namespace)
    await link.at_edge_already(MAPS, obj(MAPS, "theirs", {"data": {"a": "b"}}), namespace)
    await withdraw(link, namespace)
    problem = await link.problem(namespace, "NotEmpty")
    assert "ConfigMap theirs" in problem["message"]
    assert (await link.cluster.get(NAMESPACES, namespace))["status"]["phase"] == "Active"
    assert (await link.cluster.get(MAPS, "theirs", namespace))["data"] == {"a": "b"}
    await link.cluster.delete(MAPS, "theirs", namespace)
    await link.restart()
    await link.gone_at_edge(NAMESPACES, namespace)
    await link.released(NAMESPACES, namespace)


async def test_a_namespace_that_others_made_is_used_and_stays(link: Link) -> None:
    namespace = link.called("shop")
    await link.at_edge_already(NAMESPACES, obj(NAMESPACES, namespace, labels={"of": "others"}))
    await link.put_namespace("shop")
    await link.put_map(namespace, "prices", tea="3")
    await link.configure(namespaceScope=scope([namespace], MAPS))
    await link.start()
    await link.at_edge(MAPS, "prices", namespace)
    found = await link.cluster.get(NAMESPACES, namespace)
    assert DOWNSYNCED not in found["metadata"].get("annotations", {})
    assert found["metadata"]["labels"]["of"] == "others"
    await withdraw(link, namespace)
    await link.released(NAMESPACES, namespace)
    assert (await link.cluster.get(NAMESPACES, namespace))["status"]["phase"] == "Active"


async def test_a_definition_stays_as_long_as_there_are_objects_of_others(link: Link) -> None:
    widgets = link.kind("widgets", "Widget")
    described = definition(widgets)
    name = described["metadata"]["name"]
    await link.define(link.mailbox, widgets=described)
    await link.configure(clusterScope=[whole(DEFINITIONS, name)])
    await link.start()
    await link.at_edge(DEFINITIONS, name)
    await link.established(link.cluster, name)
    theirs = link.called("theirs")
    await link.at_edge_already(widgets, obj(widgets, "one", {"spec": {"size": 1}}), theirs)
    await link.mailbox.delete(DEFINITIONS, name)
    problem = await link.problem(name, "NotEmpty")
    assert "Widget one" in problem["message"]
    assert (await link.cluster.get(widgets, "one", theirs))["spec"] == {"size": 1}
    await link.cluster.delete(widgets, "one", theirs)
    await link.restart()
    await link.gone_at_edge(DEFINITIONS, name)


# --- what nobody withdrew -------------------------------------------------------------------------


async def lost(link: Link, *names: str) -> str:
    """These are at the edge, and their copies went without a word while nobody listened.  Their namespace."""
    namespace = await link.put_namespace("shop")
    for name in names:
        await link.put_map(namespace, name, tea="3")
    await link.configure(namespaceScope=scope([namespace], MAPS))
    await link.start()
    for name in names:
        await link.at_edge(MAPS, name, namespace)
    await link.settled()
    await link.stop()
    for name in names:
        await link.mailbox.patch(MAPS, name, {"metadata": {"finalizers": None}}, namespace)
        await link.mailbox.delete(MAPS, name, namespace)
    await link.start()
    return namespace


async def test_a_copy_that_goes_without_a_word_leaves_an_orphan_that_is_kept_and_reported(link: Link) -> None:
    namespace = await lost(link, "prices", "opening")
    report = await link.told(lambda report: report["objects"]["orphaned"] == 2)
    orphans = next(one for one in report["conditions"] if one["type"] == "OrphansPresent")
    assert orphans["status"] == "True"
    assert "2 objects stay at the edge" in orphans["message"]
    assert await link.settled() == []
    await link.cluster.patch(MAPS, "prices", {"data": {"tea": "999"}}, namespace)
    await link.at_edge(MAPS, "prices", namespace, lambda one: one["data"] == {"tea": "3"})


async def test_orphans_are_deleted_when_an_operator_states_their_number(link: Link) -> None:
    namespace = await lost(link, "prices", "opening")
    await link.told(lambda report: report["objects"]["orphaned"] == 2)
    release = {"metadata": {"annotations": {"edge.kcp.io/release-orphans": "1"}}}
    await link.mailbox.patch(CONFIGS, "the-one", release)
    why = "2 objects stay at the edge; edge.kcp.io/release-orphans is '1' and not their number"
    await link.told(lambda report: any(why in one["message"] for one in report["conditions"]))
    await link.settled()
    assert not await is_gone(link.cluster, MAPS, "prices", namespace)
    release["metadata"]["annotations"]["edge.kcp.io/release-orphans"] = "2"
    await link.mailbox.patch(CONFIGS, "the-one", release)
    for name in ("prices", "opening"):
        await link.gone_at_edge(MAPS, name, namespace)
    await link.told(lambda report: report["objects"]["orphaned"] == 0)


async def test_an_orphan_is_followed_again_when_its_copy_is_back(link: Link) -> None:
    namespace = await lost(link, "prices")
    await link.told(lambda report: report["objects"]["orphaned"] == 1)
    before = await link.cluster.get(MAPS, "prices", namespace)
    await link.put_map(namespace, "prices", tea="5")
    after = await link.at_edge(MAPS, "prices", namespace, lambda one: one["data"] == {"tea": "5"})
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    await link.told(lambda report: report["objects"]["orphaned"] == 0)
    await link.mailbox.delete(MAPS, "prices", namespace)
    await link.gone_at_edge(MAPS, "prices", namespace)
