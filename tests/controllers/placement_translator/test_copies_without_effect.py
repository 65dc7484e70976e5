"""Attacks of a tenant by objects that would have an effect in the mailbox, where another tenant has copies too: roles,
policies and bindings of APIs.  They take effect at the edge alone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from apis_harness import widget_schema
from platform_harness import ALICE, APIS, BOB, MASTER
from translated import MAPS, RBAC, World, config_map, inside, secret, shop

from farflung.machinery.errors import Obj

SECRETS = inside("shop", "secrets")
OWNER, TENANT = 0, 1
ROLES, BINDINGS = f"{RBAC}/clusterroles", f"{RBAC}/clusterrolebindings"
POLICIES = "/apis/admissionregistration.k8s.io/v1"
EVERYTHING: Obj = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
ENTER: Obj = {"nonResourceURLs": ["*"], "verbs": ["*"]}


@asynccontextmanager
async def tenants() -> AsyncIterator[World]:
    """The owner has a Secret at the cluster."""
    async with shop("florin", parents=("root:owners", "root:tenants")) as one:
        await one.must_put(one.workloads[OWNER], SECRETS, secret("password", {"value": "hers"}))
        await one.fleet.eventually(lambda: one.has(["florin"], f"{SECRETS}/password"))
        yield one


def objects(group: str, *resources: str) -> list[Obj]:
    return [{"apiGroup": group, "resources": list(resources), "resourceNames": ["mine"]}]


def role_and_binding(user: str) -> tuple[Obj, Obj]:
    head = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "mine"}}
    role = {**head, "kind": "ClusterRole", "rules": [EVERYTHING, ENTER]}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "mine"}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}
    return role, {**head, "kind": "ClusterRoleBinding", "roleRef": reference, "subjects": [subject]}


async def place(one: World, group: str, *resources: str) -> None:
    await one.placement(TENANT, "q", nonNamespacedObjects=objects(group, *resources))


async def status_of(one: World, user: str, path: str) -> int:
    """The answer for the mailbox."""
    return (await one.fleet.hub.of(user, "GET", f"/clusters/{one.boxes['florin']}{path}")).status


async def test_a_role_of_a_tenant_grants_nothing_in_the_mailbox() -> None:
    async with tenants() as one:
        role, bound = role_and_binding("alice")
        await one.must_put(one.workloads[TENANT], ROLES, role)
        await one.must_put(one.workloads[TENANT], BINDINGS, bound)
        await place(one, "rbac.authorization.k8s.io", "clusterroles", "clusterrolebindings")
        await one.fleet.eventually(lambda: one.has(["florin"], f"{BINDINGS}/mine"), "the copy of the binding")
        assert await status_of(one, ALICE, f"{SECRETS}/password") == 403
        await one.restart()
        assert await status_of(one, ALICE, f"{SECRETS}/password") == 403
        original = await one.fleet.hub.of(ALICE, "GET", f"/clusters/{one.workloads[TENANT]}{MAPS}/prices")
        assert original.status == 404


async def test_a_policy_of_a_tenant_refuses_nothing_in_the_mailbox() -> None:
    rules = [{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["configmaps"]}]
    head = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": "mine"}}
    policy = {
        **head,
        "kind": "ValidatingAdmissionPolicy",
        "spec": {"matchConstraints": {"resourceRules": rules}, "validations": [{"expression": "false"}]},
    }
    bound = {
        **head,
        "kind": "ValidatingAdmissionPolicyBinding",
        "spec": {"policyName": "mine", "validationActions": ["Deny"]},
    }
    plurals = ("validatingadmissionpolicies", "validatingadmissionpolicybindings")
    async with tenants() as one:
        for plural, obj in zip(plurals, (policy, bound), strict=True):
            await one.must_put(one.workloads[TENANT], f"{POLICIES}/{plural}", obj)
        await place(one, "admissionregistration.k8s.io", *plurals)
        await one.fleet.eventually(lambda: one.has(["florin"], f"{POLICIES}/{plurals[1]}/mine"), "the copies")
        await one.must_put(one.workloads[OWNER], MAPS, config_map("later", {"tea": "1"}))
        await one.fleet.eventually(lambda: one.has(["florin"], f"{MAPS}/later"), "the copy of the owner's ConfigMap")


async def test_a_binding_of_a_tenant_gives_its_export_no_access_to_other_objects_of_the_mailbox() -> None:
    """The tenant's export claims Secrets, and the tenant accepts the claim for the own workspace."""
    async with tenants() as one:
        hub = one.fleet.hub
        spy = await hub.workspace("spy", BOB)
        claims: list[Obj] = [{"group": "", "resource": "secrets", "all": True}]
        await hub.export(spy, "mine", widget_schema(), permissionClaims=claims)
        accepted = [{**claim, "state": "Accepted"} for claim in claims]
        await hub.bind(one.workloads[TENANT], "mine", "root:spy", "mine", permissionClaims=accepted)
        await place(one, "apis.kcp.io", "apibindings")
        await one.fleet.eventually(lambda: one.has(["florin"], f"{APIS}/apibindings/mine"), "the copy of the binding")
        cluster = one.boxes["florin"]
        path = f"/services/apiexport/{spy}/mine/clusters/{cluster}{SECRETS}"
        answer = await hub.of(BOB, "GET", path)
        assert answer.status != 200 or answer.json["items"] == []
        assert (await hub.of(MASTER, "GET", f"/clusters/{cluster}{SECRETS}/password")).status == 200
