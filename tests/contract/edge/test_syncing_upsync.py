"""What is born at the edge comes to the mailbox, stays there as it is at the edge, and goes with it."""

from __future__ import annotations

from edge_contract import Link, is_gone
from edge_objects import DEFINITIONS, MAPS, NAMESPACES, definition, obj, schema_of, scope, upsync

from farflung.apis.edge.names import DOWNSYNCED, UPSYNCED
from farflung.apis.names import Collection
from farflung.machinery.errors import Obj

SIZED: Obj = {"type": "object", "properties": {"size": {"type": "integer"}}}


async def defined(link: Link, *collections: Collection) -> None:
    """On both sides."""
    for one in collections:
        await link.define(link.mailbox, link.cluster, one=definition(one))


async def test_wildcards_bring_all_kinds_names_and_namespaces_of_a_group_up(link: Link) -> None:
    widgets, gadgets = link.kind("widgets", "Widget"), link.kind("gadgets", "Gadget")
    await defined(link, widgets, gadgets)
    await link.configure(upsync=[upsync(widgets.group, ["*"], ["*"], ["*"])])
    await link.register(up=[widgets, gadgets])
    await link.start()
    born = [(widgets, "one", link.called("here")), (gadgets, "two", link.called("there"))]
    for collection, name, namespace in born:
        await link.at_edge_already(collection, obj(collection, name, {"spec": {"size": 1}}), namespace)
        found = await link.in_mailbox(collection, name, namespace)
        assert found["spec"] == {"size": 1}
        assert found["metadata"]["annotations"][UPSYNCED] == f"{collection.kind}/{namespace}/{name}"
    await link.told(lambda report: report["objects"]["upsynced"] == 2)
    for collection, name, namespace in born:
        await link.cluster.delete(collection, name, namespace)
        await link.gone_in_mailbox(collection, name, namespace)
    await link.told(lambda report: report["objects"]["upsynced"] == 0)
    await link.no_problem()


async def test_only_what_is_named_comes_up_and_what_is_not_wanted_any_more_is_withdrawn(link: Link) -> None:
    widgets, here, there = link.kind("widgets", "Widget"), link.called("here"), link.called("there")
    await defined(link, widgets)
    await link.configure(upsync=[upsync(widgets.group, ["widgets"], [here], ["one", "two"])])
    await link.start()
    for name, namespace in (("one", here), ("two", here), ("three", here), ("one", there)):
        await link.at_edge_already(widgets, obj(widgets, name, {"spec": {"size": 1}}), namespace)
    await link.in_mailbox(widgets, "one", here)
    await link.in_mailbox(widgets, "two", here)
    await link.settled()
    assert await is_gone(link.mailbox, widgets, "three", here)
    assert await is_gone(link.mailbox, widgets, "one", there)

    await link.configure(upsync=[upsync(widgets.group, ["widgets"], [here], ["one"])])
    await link.gone_in_mailbox(widgets, "two", here)
    await link.stop()
    await link.configure()
    await link.start()
    await link.gone_in_mailbox(widgets, "one", here)
    assert (await link.cluster.get(widgets, "one", here))["spec"] == {"size": 1}
    assert (await link.cluster.get(widgets, "two", here))["spec"] == {"size": 1}


async def test_the_edge_has_the_last_word_about_what_is_born_there(link: Link) -> None:
    widgets, namespace = link.kind("widgets", "Widget"), link.called("here")
    await defined(link, widgets)
    await link.configure(upsync=[upsync(widgets.group, ["widgets"], ["*"], ["*"])])
    await link.start()
    await link.at_edge_already(widgets, obj(widgets, "one", {"spec": {"size": 1}}), namespace)
    await link.cluster.patch(widgets, "one", {"status": {"ready": True}}, namespace, "status")
    await link.in_mailbox(widgets, "one", namespace, lambda one: one["status"] == {"ready": True})
    await link.mailbox.patch(widgets, "one", {"spec": {"size": 9}}, namespace)
    await link.in_mailbox(widgets, "one", namespace, lambda one: one["spec"] == {"size": 1})
    await link.mailbox.delete(widgets, "one", namespace)
    await link.in_mailbox(widgets, "one", namespace, lambda one: one["status"] == {"ready": True})
    assert (await link.cluster.get(widgets, "one", namespace))["spec"] == {"size": 1}


async def test_an_object_that_is_in_the_mailbox_already_is_left_alone_and_reported(link: Link) -> None:
    widgets = link.kind("widgets", "Widget")
    await defined(link, widgets)
    namespace = link.called("here")
    await link.mailbox.create(NAMESPACES, obj(NAMESPACES, namespace))
    await link.mailbox.create(widgets, obj(widgets, "one", {"spec": {"size": 7}}), namespace)
    await link.configure(upsync=[upsync(widgets.group, ["widgets"], ["*"], ["*"])])
    await link.start()
    for name in ("one", "two"):
        await link.at_edge_already(widgets, obj(widgets, name, {"spec": {"size": 1}}), namespace)
    await link.in_mailbox(widgets, "two", namespace)
    problem = await link.problem("one", "NotManaged")
    assert problem["direction"] == "up"
    found = await link.mailbox.get(widgets, "one", namespace)
    assert found["spec"] == {"size": 7}
    assert UPSYNCED not in found["metadata"]["annotations"]
    await link.cluster.delete(widgets, "one", namespace)
    await link.no_problem()
    assert not await is_gone(link.mailbox, widgets, "one", namespace)


async def test_what_went_down_does_not_come_up_and_what_came_up_does_not_go_down(link: Link) -> None:
    widgets, namespace = link.kind("widgets", "Widget"), await link.put_namespace("shop")
    await defined(link, widgets)
    await link.put(widgets, obj(widgets, "placed", {"spec": {"size": 1}}), namespace)
    await link.configure(
        namespaceScope=scope([namespace], widgets), upsync=[upsync(widgets.group, ["*"], ["*"], ["*"])]
    )
    await link.register(up=[widgets])
    await link.start()
    await link.at_edge(widgets, "placed", namespace)
    await link.at_edge_already(widgets, obj(widgets, "born", {"spec": {"size": 2}}), namespace)
    await link.in_mailbox(widgets, "born", namespace)
    await link.settled()
    copy = await link.mailbox.get(widgets, "placed", namespace)
    assert UPSYNCED not in copy["metadata"]["annotations"]
    born = await link.cluster.get(widgets, "born", namespace)
    assert DOWNSYNCED not in born["metadata"].get("annotations", {})
    await link.mailbox.delete(widgets, "placed", namespace)
    await link.gone_at_edge(widgets, "placed", namespace)
    assert not await is_gone(link.cluster, widgets, "born", namespace)


async def test_the_definition_of_a_kind_comes_up_with_its_objects_and_follows_changes(link: Link) -> None:
    widgets, namespace = link.kind("widgets", "Widget"), link.called("here")
    wanted = definition(widgets, spec=SIZED)
    webhook = {"url": "https://converter.example.com/convert"}
    wanted["spec"]["conversion"] = {
        "strategy": "Webhook",
        "webhook": {"clientConfig": webhook, "conversionReviewVersions": ["v1"]},
    }
    await link.define(link.cluster, widgets=wanted)
    await link.at_edge_already(widgets, obj(widgets, "one", {"spec": {"size": 1}}), namespace)
    await link.configure(upsync=[upsync(widgets.group, ["widgets"], ["*"], ["*"])])
    await link.start()
    await link.in_mailbox(widgets, "one", namespace)
    name = wanted["metadata"]["name"]
    copy = await link.mailbox.get(DEFINITIONS, name)
    assert copy["metadata"]["annotations"][UPSYNCED] == f"CustomResourceDefinition/{name}"
    assert copy["spec"]["conversion"] == {"strategy": "None"}

    changed = {**SIZED, "properties": {**SIZED["properties"], "color": {"type": "string"}}}
    versions = [{**wanted["spec"]["versions"][0], "schema": schema_of(changed)}]
    await link.cluster.patch(DEFINITIONS, name, {"spec": {"versions": versions}})
    await link.eventually(
        lambda: link.cluster.patch(widgets, "one", {"spec": {"color": "red"}}, namespace), "the field at the edge"
    )
    await link.in_mailbox(widgets, "one", namespace, lambda one: one["spec"] == {"size": 1, "color": "red"})

    await link.mailbox.delete(DEFINITIONS, name)
    await link.in_mailbox(widgets, "one", namespace)
    written = await link.settled()
    await link.restart()
    assert await link.settled() == [], written
    await link.configure()
    await link.gone_in_mailbox(widgets, "one", namespace)
    await link.settled()
    assert not await is_gone(link.mailbox, DEFINITIONS, name), "its deletion would delete all objects of the kind"
    await link.no_problem()


async def test_a_definition_that_the_syncer_may_not_write_or_did_not_write_is_left_alone(link: Link) -> None:
    widgets, gadgets, namespace = link.kind("widgets", "Widget"), link.kind("gadgets", "Gadget"), link.called("here")
    await link.define(link.cluster, widgets=definition(widgets), gadgets=definition(gadgets))
    own = definition(gadgets)
    await link.define(link.mailbox, gadgets=own)
    await link.register(up=[gadgets])
    await link.configure(upsync=[upsync(widgets.group, ["widgets", "gadgets"], ["*"], ["*"])])
    await link.start()
    for collection in (widgets, gadgets):
        await link.at_edge_already(collection, obj(collection, "one", {"spec": {"size": 1}}), namespace)
    await link.in_mailbox(gadgets, "one", namespace)
    problem = await link.problem(f"widgets.{widgets.group}", "Forbidden")
    assert problem["direction"] == "up"
    assert "; run `farflung syncer-gen` again, which allows " in problem["message"]
    found = await link.mailbox.get(DEFINITIONS, own["metadata"]["name"])
    assert UPSYNCED not in found["metadata"].get("annotations", {})
    await link.configure(upsync=[upsync(widgets.group, ["gadgets"], ["*"], ["*"])])
    await link.no_problem()
    await link.register(up=[widgets, gadgets])
    await link.define(link.mailbox, widgets=definition(widgets))
    await link.configure(upsync=[upsync(widgets.group, ["widgets"], ["*"], ["*"])])
    await link.in_mailbox(widgets, "one", namespace)
    await link.no_problem()


async def test_builtin_objects_come_up_too(link: Link) -> None:
    namespace = link.called("here")
    await link.configure(upsync=[upsync("", ["configmaps"], [namespace], ["*"])])
    await link.start()
    await link.at_edge_already(MAPS, obj(MAPS, "prices", {"data": {"tea": "3"}}), namespace)
    found = await link.in_mailbox(MAPS, "prices", namespace)
    assert found["data"] == {"tea": "3"}
    await link.no_problem()
