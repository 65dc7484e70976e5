"""What cannot be brought is reported, object by object, and keeps nothing else from being brought."""

from __future__ import annotations

from edge_contract import Link, is_gone
from edge_objects import (
    DEFINITIONS,
    MAPS,
    NAMESPACES,
    POLICIES,
    POLICY_BINDINGS,
    SECRETS,
    definition,
    obj,
    scope,
    whole,
)

from farflung.apis.names import Collection
from farflung.client.errors import Refused
from farflung.client.rest import ListOptions
from farflung.syncer.decide import Adopt

STRICT = {"type": "object", "required": ["size"], "properties": {"size": {"type": "integer", "maximum": 10}}}
PASSWORD = ("hunter2-is-no-password", "aHVudGVyMi1pcy1uby1wYXNzd29yZA==")  #: as it is, and in base64
EVENTS = Collection("", "v1", "events", "Event")


async def test_an_object_that_the_edge_finds_invalid_is_reported_until_it_is_mended(link: Link) -> None:
    widgets, namespace = link.kind("widgets", "Widget"), await link.put_namespace("shop")
    await link.define(link.mailbox, widgets=definition(widgets))
    await link.define(link.cluster, widgets=definition(widgets, spec=STRICT))
    for name, size in (("bad", 11), ("good", 1)):
        await link.put(widgets, obj(widgets, name, {"spec": {"size": size}}), namespace)
    await link.configure(namespaceScope=scope([namespace], widgets))
    await link.start()
    await link.at_edge(widgets, "good", namespace)
    problem = await link.problem("bad", "Invalid")
    assert problem["group"] == widgets.group
    assert (problem["resource"], problem["namespace"], problem["direction"]) == ("widgets", namespace, "down")
    assert "spec.size" in problem["message"]
    assert problem["lastTry"]
    report = await link.told(lambda report: report["problems"][0]["tries"] > problem["tries"])
    assert report["objects"]["failing"] == 1
    assert next(one for one in report["conditions"] if one["type"] == "Synced")["status"] == "False"
    await link.put(widgets, obj(widgets, "later", {"spec": {"size": 2}}), namespace)
    await link.at_edge(widgets, "later", namespace)
    await link.mailbox.patch(widgets, "bad", {"spec": {"size": 3}}, namespace)
    await link.at_edge(widgets, "bad", namespace)
    await link.no_problem()


async def test_an_object_that_was_never_brought_can_be_withdrawn(link: Link) -> None:
    widgets, namespace = link.kind("widgets", "Widget"), await link.put_namespace("shop")
    await link.define(link.mailbox, widgets=definition(widgets))
    await link.define(link.cluster, widgets=definition(widgets, spec=STRICT))
    await link.put(widgets, obj(widgets, "bad", {"spec": {"size": 11}}), namespace)
    await link.configure(namespaceScope=scope([namespace], widgets))
    await link.start()
    await link.problem("bad", "Invalid")
    await link.mailbox.delete(widgets, "bad", namespace)
    await link.gone_in_mailbox(widgets, "bad", namespace)
    await link.no_problem()


async def test_a_kind_that_is_forbidden_is_reported_until_it_is_allowed(link: Link) -> None:
    namespace = await link.put_namespace("shop")
    await link.put(SECRETS, obj(SECRETS, "key", {"stringData": {"a": "b"}}), namespace)
    await link.put_map(namespace, "prices", tea="3")
    await link.configure(namespaceScope=scope([namespace], MAPS, SECRETS))
    await link.register(withheld=[SECRETS])
    await link.start()
    await link.at_edge(MAPS, "prices", namespace)
    problem = await link.problem("key", "Forbidden")
    assert problem["tries"] >= 1
    await link.put_map(namespace, "later", tea="3")
    await link.at_edge(MAPS, "later", namespace)
    assert await is_gone(link.cluster, SECRETS, "key", namespace)
    await link.register()
    await link.at_edge(SECRETS, "key", namespace)
    await link.no_problem()


async def test_an_object_that_cannot_be_changed_any_more_is_reported(link: Link) -> None:
    link.adopt = Adopt.ALWAYS
    namespace = await link.put_namespace("shop")
    fixed = obj(MAPS, "fixed", {"data": {"tea": "1"}, "immutable": True})
    await link.at_edge_already(MAPS, fixed, namespace)
    await link.put_map(namespace, "fixed", tea="2")
    await link.put_map(namespace, "prices", tea="3")
    await link.configure(namespaceScope=scope([namespace], MAPS))
    await link.start()
    await link.at_edge(MAPS, "prices", namespace)
    problem = await link.problem("fixed", "Invalid")
    assert "immutable" in problem["message"]
    assert (await link.cluster.get(MAPS, "fixed", namespace))["data"] == {"tea": "1"}


async def test_what_a_secret_holds_appears_nowhere(link: Link) -> None:
    link.adopt = Adopt.ALWAYS
    namespace = await link.put_namespace("shop")
    values = {"password": PASSWORD[0], "other": "neither-is-swordfish"}
    encoded = [PASSWORD[1], "bmVpdGhlci1pcy1zd29yZGZpc2g="]
    theirs = {"stringData": {"password": "which-was-there-before"}, "immutable": True}
    await link.at_edge_already(SECRETS, obj(SECRETS, "fixed", theirs), namespace)
    for name in ("fixed", "key"):
        await link.put(SECRETS, obj(SECRETS, name, {"stringData": values}), namespace)
    await link.configure(namespaceScope=scope([namespace], SECRETS))
    await link.start()
    found = await link.at_edge(SECRETS, "key", namespace)
    assert sorted(found["data"].values()) == sorted(encoded)
    await link.problem("fixed", "Invalid")
    await link.cluster.patch(SECRETS, "key", {"data": {"password": "YQ=="}}, namespace)
    await link.told(lambda report: report["driftCorrected"] == 1)
    events = [*await link.mailbox.list(EVENTS), *await link.cluster.list(EVENTS, ListOptions(namespace))]
    said = f"{link.log.getvalue()}{await link.report()}{events}{link.grounds.hub.log()}"
    for value in (*values.values(), *encoded, "which-was-there-before"):
        assert value not in said
    for file in link.state.iterdir():
        assert file.stat().st_mode & 0o077 == 0, file


async def test_the_refusal_of_a_secret_by_a_cluster_is_not_reported_in_words(link: Link) -> None:
    namespace, policy = await link.put_namespace("shop"), link.called("tell")
    await link.at_edge_already(NAMESPACES, obj(NAMESPACES, namespace))
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["secrets"]}
    selector = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    tells = {"expression": "false", "messageExpression": "'not ' + string(object.data['password'])"}
    spec = {"matchConstraints": {"resourceRules": [rule], "namespaceSelector": selector}, "validations": [tells]}
    await link.cluster.create(POLICIES, obj(POLICIES, policy, {"spec": spec}))
    bound = {"spec": {"policyName": policy, "validationActions": ["Deny"]}}
    await link.cluster.create(POLICY_BINDINGS, obj(POLICY_BINDINGS, policy, bound))
    key = obj(SECRETS, "key", {"stringData": {"password": PASSWORD[0]}})

    async def quotes() -> bool:
        try:
            await link.cluster.with_dry_run().create(SECRETS, key, namespace)
        except Refused as error:
            return any(one in str(error) for one in PASSWORD)
        return False

    await link.eventually(quotes, "a policy that quotes what it refuses")
    await link.put(SECRETS, key, namespace)
    await link.put_map(namespace, "prices", tea="3")
    await link.configure(namespaceScope=scope([namespace], SECRETS, MAPS))
    await link.start()
    await link.at_edge(MAPS, "prices", namespace)
    problem = await link.problem("key")
    await link.told(lambda report: report["problems"][0]["tries"] > problem["tries"])
    said = f"{link.log.getvalue()}{await link.report()}"
    assert not any(one in said for one in PASSWORD)


# --- kinds that come later ------------------------------------------------------------------------


async def test_a_custom_resource_waits_for_its_definition_at_the_edge(link: Link) -> None:
    widgets, namespace = link.kind("widgets", "Widget"), await link.put_namespace("shop")
    described = definition(widgets)
    await link.define(link.mailbox, widgets=described)
    await link.put(widgets, obj(widgets, "one", {"spec": {"size": 1}}), namespace)
    await link.put_map(namespace, "prices", tea="3")
    await link.configure(namespaceScope=scope([namespace], widgets, MAPS))
    await link.start()
    await link.at_edge(MAPS, "prices", namespace)
    problem = await link.problem("one", "NotServed")
    assert "the edge does not serve widgets" in problem["message"]
    clusters = {"clusterScope": [whole(DEFINITIONS, described["metadata"]["name"])]}
    await link.configure(namespaceScope=scope([namespace], widgets, MAPS), **clusters)
    await link.at_edge(widgets, "one", namespace)
    await link.no_problem()


async def test_a_custom_resource_waits_for_a_definition_that_another_client_creates(link: Link) -> None:
    widgets, namespace = link.kind("widgets", "Widget"), await link.put_namespace("shop")
    await link.define(link.mailbox, widgets=definition(widgets))
    await link.put(widgets, obj(widgets, "one", {"spec": {"size": 1}}), namespace)
    await link.configure(namespaceScope=scope([namespace], widgets))
    await link.start()
    await link.problem("one", "NotServed")
    await link.define(link.cluster, widgets=definition(widgets))
    await link.at_edge(widgets, "one", namespace)
    await link.no_problem()


async def test_a_custom_resource_is_brought_when_its_kind_comes_to_the_mailbox_last(link: Link) -> None:
    widgets, namespace = link.kind("widgets", "Widget"), await link.put_namespace("shop")
    await link.define(link.cluster, widgets=definition(widgets))
    await link.configure(namespaceScope=scope([namespace], widgets))
    await link.start()
    await link.settled()
    await link.define(link.mailbox, widgets=definition(widgets))
    await link.put(widgets, obj(widgets, "one", {"spec": {"size": 1}}), namespace)
    await link.at_edge(widgets, "one", namespace)
    await link.no_problem()
