"""What a syncer may do, and what it may not: as rules, and on a hub."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from edge_objects import definition
from hub_harness import APPLY_PATCH, JSON_PATCH, MERGE_PATCH
from platform_harness import MAPS, OPERATOR, RBAC
from registered import Registry, name_of, registry

from farflung.apis.names import Collection
from farflung.hub.request.attributes import Attributes
from farflung.machinery.errors import Obj
from farflung.placement.names import DEFINITIONS, GroupResource
from farflung.syncer.rbac import (
    NAMESPACES,
    SEEN,
    USUAL,
    SyncedKinds,
    edge_rules,
    mailbox_rules,
    parse_resource,
    policy_rules,
    synced_kinds,
)
from farflung.syncer.registration import Registered

GROUP = "rbac.authorization.k8s.io"
ROLES = GroupResource(GROUP, "roles")
WIDGETS, JOBS = GroupResource("example.com", "widgets"), GroupResource("batch", "jobs")
FLANGES = GroupResource("group1.test", "flanges")
DEFINED = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
NODES = GroupResource("", "nodes")


def entry(resource: GroupResource, **rest: Any) -> Obj:
    return {"apiVersion": "v1", "group": resource.group, "resource": resource.resource, **rest}


SPEC = {
    "namespaceScope": {"namespaces": ["shop"], "resources": [entry(JOBS), entry(ROLES)]},
    "clusterScope": [entry(WIDGETS, objects=["one"])],
    "upsync": [{"apiGroup": "group1.test", "resources": ["flanges"]}, {"apiGroup": "x.test", "resources": ["*"]}],
}


def allowing(rules: list[Obj], verb: str) -> set[tuple[str, str]]:
    return {
        (group, resource)
        for rule in rules
        if verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }


# --- rules ----------------------------------------------------------------------------------------


def test_what_the_mailbox_lists_is_allowed_beside_the_usual_kinds() -> None:
    kinds = synced_kinds(SPEC)
    assert kinds.down == USUAL | {JOBS, WIDGETS}
    assert kinds.up == {FLANGES}


def test_kinds_that_grant_rights_or_cannot_be_listed_are_left_out_until_they_are_named() -> None:
    kinds = synced_kinds(SPEC)
    assert kinds.left_out == {ROLES}
    assert kinds.left_out_up == {GroupResource("x.test", "*")}
    named = synced_kinds(SPEC, allowed=[ROLES], allowed_up=[WIDGETS])
    assert ROLES in named.down
    assert named.left_out == frozenset()
    assert named.up == {FLANGES, WIDGETS}


def test_kinds_of_the_hub_go_to_no_edge() -> None:
    spec = {"clusterScope": [entry(GroupResource("tenancy.kcp.io", "workspaces"), objects=["w"])]}
    assert synced_kinds(spec) == SyncedKinds(USUAL)


def test_nothing_is_written_by_a_wildcard_unless_it_is_asked_for() -> None:
    kinds = synced_kinds(SPEC)
    rules = [*mailbox_rules(kinds, "me"), *edge_rules(kinds), *policy_rules()]
    wild = [rule for rule in rules if any("*" in rule[part] for part in ("apiGroups", "resources", "verbs"))]
    assert wild == [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["list"]}]
    assert wild[0] in edge_rules(kinds)
    every = synced_kinds(SPEC, everything=True)
    assert ("*", "*") in allowing(edge_rules(every), "patch")
    assert not any("*" in rule["verbs"] for rule in [*mailbox_rules(every, "me"), *edge_rules(every)])
    assert ("*", "*") not in allowing(mailbox_rules(every, "me"), "create")


def test_at_the_edge_downsynced_kinds_are_written_and_upsynced_kinds_only_read() -> None:
    rules = edge_rules(synced_kinds(SPEC))
    assert allowing(rules, "patch") == allowing(rules, "create") == allowing(rules, "delete") == USUAL | {JOBS, WIDGETS}
    assert allowing(rules, "watch") == USUAL | {JOBS, WIDGETS, FLANGES, NODES}
    assert allowing(rules, "escalate") == allowing(rules, "bind") == allowing(rules, "update") == set()


def test_only_a_syncer_that_applies_roles_may_grant_other_rights() -> None:
    roles, bindings = (
        synced_kinds({}, allowed=[GroupResource(GROUP, plural)]) for plural in ("roles", "clusterrolebindings")
    )
    assert allowing(edge_rules(roles), "escalate") == {(GROUP, "roles")}
    assert allowing(edge_rules(roles), "bind") == set()
    assert allowing(edge_rules(bindings), "bind") == {(GROUP, "clusterroles")}
    assert allowing(mailbox_rules(roles, "me"), "escalate") == set()


def test_in_the_mailbox_only_upsynced_kinds_may_be_created_and_deleted() -> None:
    rules = mailbox_rules(synced_kinds(SPEC), "me")
    assert allowing(rules, "delete") == allowing(rules, "update") == {FLANGES, NAMESPACES}
    assert allowing(rules, "create") == {FLANGES, NAMESPACES, DEFINITIONS, ("", "serviceaccounts/token")}
    [defining] = [rule for rule in rules if "create" in rule["verbs"] and rule["resources"] == [DEFINITIONS.resource]]
    assert defining["resourceNames"] == ["flanges.group1.test"]
    assert allowing(mailbox_rules(synced_kinds({}), "me"), "delete") == set()
    upsyncs_core = {"upsync": [{"apiGroup": "", "resources": ["configmaps"]}]}
    assert DEFINITIONS not in allowing(mailbox_rules(synced_kinds(upsyncs_core), "me"), "create")


def test_what_gives_rights_in_namespaces_is_seen_in_the_mailbox_before_any_placement_names_it() -> None:
    rules = mailbox_rules(synced_kinds({}), "me")
    assert allowing(rules, "watch") >= SEEN
    assert not SEEN & allowing(rules, "patch")
    assert allowing(mailbox_rules(synced_kinds({}, allowed=SEEN), "me"), "patch") >= SEEN


def test_only_statuses_that_are_brought_back_are_written_and_only_in_the_way_they_are() -> None:
    kinds = synced_kinds(SPEC)
    rules = mailbox_rules(kinds, "me")
    told = {("", "pods"), ("", "services"), ("apps", "deployments"), ("networking.k8s.io", "ingresses"), JOBS, WIDGETS}
    expected = {(group, f"{plural}/status") for group, plural in {*told, FLANGES, ("edge.kcp.io", "syncerconfigs")}}
    assert statuses(rules, "patch") == expected
    assert statuses(rules, "update") == statuses(policy_rules(), "update") == set()
    every = mailbox_rules(synced_kinds({}, everything=True), "me")
    for one in (rules, every):
        assert [rule.get("resourceNames") for rule in one if "syncerconfigs/status" in rule["resources"]] == [
            ["the-one"]
        ]


def statuses(rules: list[Obj], verb: str) -> set[tuple[str, str]]:
    return {(group, resource) for group, resource in allowing(rules, verb) if resource.endswith("/status")}


def test_rules_do_not_depend_on_the_order_of_what_is_listed() -> None:
    there = {"clusterScope": [entry(WIDGETS, objects=["a"]), entry(JOBS, objects=["b"])]}
    back = {"clusterScope": [entry(JOBS, objects=["b"]), entry(WIDGETS, objects=["a"])]}
    assert mailbox_rules(synced_kinds(there), "me") == mailbox_rules(synced_kinds(back), "me")
    assert edge_rules(synced_kinds(there)) == edge_rules(synced_kinds(back))


def test_a_kind_is_named_with_its_group() -> None:
    assert parse_resource("apps/deployments") == GroupResource("apps", "deployments")
    assert parse_resource("core/configmaps") == parse_resource("/configmaps") == GroupResource("", "configmaps")
    assert parse_resource("configmaps") == GroupResource("", "configmaps")


@pytest.mark.parametrize("text", ["", "apps/", "*/*", "apps/*", "a b/c", "äpps/x"])
def test_what_is_no_kind_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="GROUP/RESOURCE"):
        parse_resource(text)


# --- on a hub -------------------------------------------------------------------------------------

WRITES = ("create", "update", "patch", "delete", "deletecollection")
SPECIAL = ("impersonate", "escalate", "bind", "approve", "sign", "use", "access", "initialize", "*")


async def allowed_in(one: Registry, registered: Registered, cluster: str) -> set[tuple[str, str, str]]:
    """Every verb on every kind that a workspace serves, subresources and all, that changes something or is special."""
    hub = one.fleet.hub
    user = hub.accounts.verify(registered.token).user
    found = set()
    for group, resource in await served(one, cluster):
        plural, _, subresource = resource.partition("/")
        for verb in (*WRITES, *SPECIAL):
            attributes = Attributes(verb, group, plural, subresource, "farflung-syncer", "anything")
            if hub.authorizer.decide(cluster, user, attributes).allowed:
                found.add((verb, group, resource))
    return found


async def served(one: Registry, cluster: str) -> set[tuple[str, str]]:
    groups = (await one.fleet.hub.of(OPERATOR, "GET", f"/clusters/{cluster}/apis")).json["groups"]
    paths = {"": "/api/v1", **{group["name"]: f"/apis/{group['preferredVersion']['groupVersion']}" for group in groups}}
    return {
        (group, resource["name"])
        for group, path in paths.items()
        for resource in (await one.fleet.hub.of(OPERATOR, "GET", f"/clusters/{cluster}{path}")).json["resources"]
    } | {("", "users"), ("", "groups"), ("", "serviceaccounts")}


async def test_a_syncer_changes_nothing_in_its_mailbox_but_what_it_is_there_for() -> None:
    async with registry("florin") as one:
        registered = await one.register("florin")
        core = ("configmaps", "limitranges", "namespaces", "resourcequotas", "secrets", "serviceaccounts")
        assert await allowed_in(one, registered, registered.cluster) == {
            *(("patch", "", plural) for plural in core),
            ("patch", "apiextensions.k8s.io", "customresourcedefinitions"),
            ("patch", "coordination.k8s.io", "leases"),
            ("create", "authorization.k8s.io", "selfsubjectaccessreviews"),
            ("create", "authorization.k8s.io", "selfsubjectrulesreviews"),
        }


async def test_a_syncer_defines_no_kinds_but_those_that_it_upsyncs() -> None:
    async with registry("florin") as one:
        registered = await one.register("florin", allowed_up=frozenset({FLANGES}))
        hub, at = one.fleet.hub, f"/clusters/{registered.cluster}{DEFINED}"
        force = {"fieldManager": "x", "force": "true"}

        async def apply(collection: Collection) -> int:
            body = definition(collection)
            path = f"{at}/{body['metadata']['name']}"
            return (await hub.of(registered.token, "PATCH", path, body, force, content_type=APPLY_PATCH)).status

        flanges = Collection("group1.test", "v1", "flanges", "Flange")
        with hub.writes_nothing():
            assert (await hub.of(registered.token, "POST", at, definition(flanges))).status == 403
            assert (
                await hub.of(registered.token, "PUT", f"{at}/flanges.group1.test", definition(flanges))
            ).status == 403
            for other in (("group1.test", "cogs", "Cog"), ("other.test", "flanges", "Flange")):
                assert await apply(Collection(other[0], "v1", *other[1:])) == 403
        assert [await apply(flanges), await apply(flanges)] == [201, 200]
        assert (await hub.of(registered.token, "DELETE", f"{at}/flanges.group1.test")).status == 403
        assert (await hub.of(registered.token, "DELETE", at)).status == 403


async def test_a_syncer_has_no_permissions_elsewhere() -> None:
    async with registry("florin", "guilder") as one:
        florin, guilder = await one.register("florin"), await one.register("guilder")
        hub = one.fleet.hub
        places = (guilder.cluster, "root:espw", one.inventory, "root", "root:compute", "system:admin", "*", "nowhere")
        configs = "/apis/edge.kcp.io/v1alpha1/syncerconfigs"
        for place, path in product(
            places, ("/api/v1/namespaces", MAPS, configs, f"{configs}/the-one", f"{RBAC}/clusterroles")
        ):
            answer = await hub.of(florin.token, "GET", f"/clusters/{place}{path}")
            assert answer.status == 403, (place, path, answer.body)
        for place in places:
            body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}}
            assert (await hub.of(florin.token, "POST", f"/clusters/{place}{MAPS}", body)).status in (403, 405)
        for place in (guilder.cluster, "root", one.inventory):
            assert await allowed_in(one, florin, place) == set()
        view = (
            await hub.of(OPERATOR, "GET", "/clusters/root:espw/apis/apis.kcp.io/v1alpha1/apiexports/edge.kcp.io")
        ).json
        path = view["status"]["virtualWorkspaces"][0]["url"].removeprefix("https://hub:6443")
        assert (await hub.of(florin.token, "GET", f"{path}/clusters/*{configs}")).status == 403


async def test_who_steals_the_token_of_a_syncer_gets_no_further_than_its_mailbox() -> None:
    """Nor can they say there what their own cluster is told, or that other things are well."""
    async with registry("florin", "guilder") as one:
        florin, guilder = await one.register("florin"), await one.register("guilder")
        hub, at = one.fleet.hub, f"/clusters/{florin.cluster}"
        configs, targets = "/apis/edge.kcp.io/v1alpha1/syncerconfigs", "/apis/workload.kcp.io/v1alpha1/synctargets"
        other = {"apiVersion": "edge.kcp.io/v1alpha1", "kind": "SyncerConfig", "metadata": {"name": "other"}}
        await hub.made(OPERATOR, f"{at}{configs}", other)
        quota = {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "1"}}}
        await hub.made(OPERATOR, f"{at}/api/v1/namespaces/default/resourcequotas", quota)
        status, spec = {"status": {"message": "stolen"}}, {"spec": {"upsync": []}}
        used, ended = {"status": {"used": {"pods": "0"}}}, {"status": {"phase": "Terminating"}}
        mailboxes = "/clusters/root:espw/apis/tenancy.kcp.io/v1alpha1/workspaces"
        mailbox = next(
            item["metadata"]["name"]
            for item in (await hub.of(OPERATOR, "GET", mailboxes)).json["items"]
            if item["spec"]["cluster"] == guilder.cluster
        )
        inventory = f"/clusters/{one.inventory}{targets}"
        attempts: list[tuple[str, Any]] = [
            (f"{at}{configs}/the-one", spec),
            (f"{at}{configs}/other/status", status),
            (f"{at}/api/v1/namespaces/default/resourcequotas/q/status", used),
            (f"{at}/api/v1/namespaces/default/status", ended),
            (f"{at}/apis/apis.kcp.io/v1alpha1/apibindings/bind-edge", {"spec": {"permissionClaims": []}}),
            (f"{at}/apis/core.kcp.io/v1alpha1/logicalclusters/cluster", {"metadata": {"labels": {"a": "b"}}}),
            (f"/clusters/{guilder.cluster}{configs}/the-one/status", status),
            (f"/clusters/root:espw:{mailbox}{configs}/the-one/status", status),
            (f"{mailboxes}/{mailbox}", {"metadata": {"labels": {"a": "b"}}}),
            *((f"{inventory}/{name}{part}", status) for name in ("florin", "guilder") for part in ("", "/status")),
        ]
        with hub.writes_nothing():
            for path, body in attempts:
                answer = await hub.of(florin.token, "PATCH", path, body, content_type=MERGE_PATCH)
                assert answer.status == 403, (path, answer.body)
            there = (await hub.of(OPERATOR, "GET", f"{at}{configs}/the-one")).json
            answer = await hub.of(florin.token, "PUT", f"{at}{configs}/the-one/status", {**there, **status})
            assert answer.status == 403, answer.body
            for path in (f"{at}{configs}/the-one", f"{mailboxes}/{mailbox}", f"{inventory}/guilder"):
                assert (await hub.of(florin.token, "DELETE", path)).status == 403, path
        both = {
            **spec,
            "metadata": {"labels": {"a": "b"}},
            "status": {"lastSyncerHeartbeatTime": "2024-05-01T12:00:00Z"},
        }
        answer = await hub.of(florin.token, "PATCH", f"{at}{configs}/the-one/status", both, content_type=MERGE_PATCH)
        assert answer.status == 200, answer.body
        assert (answer.json.get("spec"), answer.json["metadata"].get("labels")) == (
            there.get("spec"),
            there["metadata"].get("labels"),
        )


@pytest.mark.parametrize("everything", [False, True])
async def test_a_syncer_cannot_get_more_rights(everything: bool) -> None:
    async with registry("florin") as one:
        registered = await one.register("florin", everything=everything)
        hub, me = one.fleet.hub, name_of("florin", registered)
        at = f"/clusters/{registered.cluster}"
        accounts = f"{at}/api/v1/namespaces/farflung-syncer/serviceaccounts"
        admin = {"apiGroup": GROUP, "kind": "ClusterRole", "name": "cluster-admin"}
        subject = {"kind": "ServiceAccount", "name": me, "namespace": "farflung-syncer"}
        await hub.made(
            OPERATOR, f"{at}{RBAC}/clusterrolebindings", {"metadata": {"name": "a"}, "roleRef": admin, "subjects": []}
        )
        rule = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        secret = {
            "metadata": {"name": "t", "annotations": {"kubernetes.io/service-account.name": "default"}},
            "type": "kubernetes.io/service-account-token",
        }
        attempts: list[tuple[str, str, Any, str]] = [
            ("PATCH", f"{RBAC}/clusterroles/{me}", {"rules": [rule]}, MERGE_PATCH),
            (
                "PATCH",
                f"{RBAC}/clusterroles/{me}",
                {"apiVersion": f"{GROUP}/v1", "kind": "ClusterRole", "rules": [rule]},
                APPLY_PATCH,
            ),
            ("PATCH", f"{RBAC}/clusterrolebindings/a", {"subjects": [subject]}, MERGE_PATCH),
            ("PUT", f"{RBAC}/clusterroles/{me}", {"metadata": {"name": me}, "rules": [rule]}, ""),
            ("POST", f"{RBAC}/clusterroles", {"metadata": {"name": "x"}, "rules": []}, ""),
            (
                "POST",
                f"{RBAC}/clusterrolebindings",
                {"metadata": {"name": "x"}, "roleRef": admin, "subjects": [subject]},
                "",
            ),
            ("POST", "/api/v1/namespaces/default/secrets", secret, ""),
            ("POST", "/api/v1/namespaces/default/serviceaccounts/default/token", request, ""),
            ("POST", "/api/v1/namespaces/farflung-syncer/serviceaccounts/default/token", request, ""),
            ("POST", "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "x"}}, ""),
            ("DELETE", f"{RBAC}/clusterrolebindings/{me}", None, ""),
        ]
        for method, path, body, media in attempts:
            headers = {"content_type": media} if media else {}
            query = "fieldManager=x&force=true" if media == APPLY_PATCH else ""
            answer = await hub.of(registered.token, method, f"{at}{path}", body, query, **headers)
            assert answer.status == 403, (method, path, answer.body)
        for acting in ({}, {"impersonate_group": "system:kcp:admin"}):
            answer = await hub.of(registered.token, "GET", accounts, impersonate_user="kcp-admin", **acting)
            assert answer.status == 403, answer.body


async def test_a_syncer_does_its_work() -> None:
    async with registry("florin") as one:
        registered = await one.register("florin")
        hub, at, me = one.fleet.hub, f"/clusters/{registered.cluster}", name_of("florin", registered)
        await hub.bind(registered.cluster, "bind-kube", "root:compute", "kubernetes")
        await one.fleet.eventually(lambda: bound(one, at), "the binding")
        template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        deployment = {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "d"},
            "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template},
        }
        deployments = f"{at}/apis/apps/v1/namespaces/default/deployments"
        await hub.made(OPERATOR, deployments, deployment)
        await hub.made(OPERATOR, f"{at}{MAPS}", {"metadata": {"name": "m"}})
        finalizer = [{"op": "add", "path": "/metadata/finalizers", "value": ["edge.kcp.io/syncer"]}]
        status = [{"op": "add", "path": "/status", "value": {"replicas": 1}}]
        heartbeat = {"status": {"lastSyncerHeartbeatTime": "2024-05-01T12:00:00Z"}}
        for path, body, media in (
            (f"{deployments}/d", finalizer, JSON_PATCH),
            (f"{deployments}/d/status", status, JSON_PATCH),
            (f"{at}{MAPS}/m", finalizer, JSON_PATCH),
            (f"{at}/apis/edge.kcp.io/v1alpha1/syncerconfigs/the-one/status", heartbeat, MERGE_PATCH),
        ):
            answer = await hub.of(registered.token, "PATCH", path, body, content_type=media)
            assert answer.status == 200, (path, answer.body)
        for path in (
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
            "/apis/apis.kcp.io/v1alpha1/apibindings",
            "/apis/core.kcp.io/v1alpha1/logicalclusters/cluster",
            "/apis/edge.kcp.io/v1alpha1/syncerconfigs",
            "/apis/apps/v1/deployments",
            "/api/v1/pods",
            "/api/v1/secrets",
            "/api/v1",
            "/apis",
            "/version",
        ):
            assert (await hub.of(registered.token, "GET", f"{at}{path}")).status == 200, path
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        accounts = f"{at}/api/v1/namespaces/farflung-syncer/serviceaccounts"
        assert (await hub.of(registered.token, "POST", f"{accounts}/{me}/token", request)).status == 201


async def bound(one: Registry, at: str) -> bool:
    answer = await one.fleet.hub.of(OPERATOR, "GET", f"{at}/apis/apis.kcp.io/v1alpha1/apibindings/bind-kube")
    return bool(answer.json.get("status", {}).get("phase") == "Bound")


async def test_upsynced_kinds_may_be_written_when_the_mailbox_selects_them() -> None:
    async with registry("florin") as one:
        registered = await one.register("florin")
        hub, at = one.fleet.hub, f"/clusters/{registered.cluster}"
        leases = f"{at}/apis/coordination.k8s.io/v1/namespaces/default/leases"
        lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"}}
        assert (await hub.of(registered.token, "POST", leases, lease)).status == 403
        spec = {"spec": {"upsync": [{"apiGroup": "coordination.k8s.io", "resources": ["leases"]}]}}
        config = f"{at}/apis/edge.kcp.io/v1alpha1/syncerconfigs/the-one"
        assert (await hub.of(OPERATOR, "PATCH", config, spec, content_type=MERGE_PATCH)).status == 200
        registered = await one.register("florin")
        assert (await hub.of(registered.token, "POST", leases, lease)).status == 201
        assert (await hub.of(registered.token, "DELETE", f"{leases}/l")).status == 200
        assert (await hub.of(registered.token, "POST", f"{at}{MAPS}", {"metadata": {"name": "m"}})).status == 403
